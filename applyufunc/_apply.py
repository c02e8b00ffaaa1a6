"""`apply_ufunc` and `explain`: one call of a kernel by a signature, unbound, and what it would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ._entry import call_in_graph, evaluate_any, explain_any, is_read_by_torch
from ._errors import OptionError, SignatureError
from ._gufunc import read_signature
from ._kernel import function_name, make_kernel, parameters_of
from ._options import OPTION_NAMES, Options, make_options, split_keywords
from ._signature import Signature
from ._typing import OneOutput, SeveralOutputs
from ._unbound import find_gufunc, read_chosen

if TYPE_CHECKING:
    from ._explanation import Explanation

__all__ = ["apply_ufunc", "explain"]


@overload
def apply_ufunc(
    func: Callable[..., OneOutput], signature: str | Signature | None, /, *args: Any, **options_and_keywords: Any
) -> Any: ...
@overload
def apply_ufunc(
    func: Callable[..., SeveralOutputs], signature: str | Signature | None, /, *args: Any, **options_and_keywords: Any
) -> SeveralOutputs: ...
def apply_ufunc(
    func: Callable[..., Any], signature: str | Signature | None = None, /, *args: Any, **options_and_keywords: Any
) -> Any:
    """
    Apply a function on small arrays to large ones, by a gufunc signature.

    Parameters
    ----------
    func : callable
        The kernel: gets the core dimensions of each argument last, and any loop dimensions first.
    signature : str, Signature or None
        The core dimensions of every argument and output, such as ``"(m,n),(n)->(m)"``. None: that of a NumPy or Numba
        ufunc.
    *args : array, scalar or None
        One for each input of the signature. Loop dimensions broadcast against each other, core dimensions do not. A
        Python scalar and None reach the kernel as they are. Of xarray's objects core dimensions are found by name.
    **options_and_keywords
        The options of `gufunc`, and the kernel's own keywords.

    Returns
    -------
    array or tuple of arrays
        Of the library of the arguments: loop dimensions, then the output's core dimensions; with labels, where an
        argument has some, each dimension in its place. A tuple where the signature has several outputs, or ends in a
        comma.

    Raises
    ------
    SignatureError, DimensionError, AxisError, OptionError, ArgumentError
        Before any work, if the signature, shapes, axes, keywords or arguments do not fit.
    OutputShapeError, OutputDTypeError, OutputRangeError
        When the kernel runs, if it returns what the signature and the dtypes do not declare.

    See Also
    --------
    gufunc : The same, bound once.
    explain : What a call would do.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> def spread(row):
    ...     return row.max(axis=-1) - row.min(axis=-1)
    >>> au.apply_ufunc(spread, "(n)->()", np.array([[1.0, 4.0, 2.0], [5.0, 5.0, 5.0]]))
    array([3., 0.])
    >>> au.apply_ufunc(np.vecdot, None, np.ones((2, 3)), np.ones(3)).shape
    (2,)
    """
    if is_read_by_torch():
        return call_in_graph(apply_ufunc, (func, signature, *args), options_and_keywords)
    parsed, chosen, own = _read_call(func, signature, args, options_and_keywords)
    gufunc = find_gufunc(func, parsed, chosen)
    if gufunc is not None:
        return gufunc(*args, **own)
    options = _read_options(parsed, chosen, own)
    return evaluate_any(make_kernel(func, options), parsed, args, options)


def explain(
    func: Callable[..., Any], signature: str | Signature | None = None, /, *args: Any, **options_and_keywords: Any
) -> Explanation:
    """
    Return what `apply_ufunc` would do with the same arguments, without doing it.

    The kernel is not called, not even to learn dtypes, and nothing is computed.

    Parameters
    ----------
    func : callable
        The kernel, as for `apply_ufunc`.
    signature : str, Signature or None
        The signature, as for `apply_ufunc`.
    *args : array, scalar or None
        One for each input of the signature.
    **options_and_keywords
        The options of `gufunc`, and the kernel's own keywords.

    Returns
    -------
    Explanation
        Dims, what is rechunked from what to what and why, bytes, blocks, calls of the kernel, tasks: fields to read,
        and a text by ``str``.

    Raises
    ------
    SignatureError, DimensionError, AxisError, OptionError, ArgumentError
        Before any work, as `apply_ufunc` does.
    AlignmentError, UnknownDTypeError, UnknownSizeError
        Where a lazy result could not be built.

    See Also
    --------
    GUFunc.explain : The same, bound once.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> print(au.explain(np.vecdot, None, np.ones((2, 3)), np.ones(3)))
    kernel 'vecdot', signature '(n),(n)->()'
    <BLANKLINE>
    operands
      argument 0      float64; loop -1: 2; core n: 3
      argument 1      float64; core n: 3
      output 0        dtype not known yet; loop -1: 2
    <BLANKLINE>
    run
      blocks          1, the whole arrays, to which the kernel is applied at once
      largest block   48 B
      kernel calls    1, one for each block
      output dtypes   those that the kernel returns
    """
    parsed, chosen, own = _read_call(func, signature, args, options_and_keywords)
    options = _read_options(parsed, chosen, own)
    return explain_any(make_kernel(func, options), parsed, args, options)


def _read_call(
    func: Callable[..., Any],
    signature: str | Signature | None,
    args: tuple[Any, ...],
    options_and_keywords: Mapping[str, Any],
) -> tuple[Signature, dict[str, Any], dict[str, Any]]:
    """Return the signature, the keywords that are options, as they are given, and those that are the kernel's."""
    parsed = _read(signature, func, args, options_and_keywords)
    chosen, own = split_keywords(
        options_and_keywords, parameters_of(func, parsed.nin), OPTION_NAMES, function_name(func)
    )
    return parsed, chosen, own


def _read_options(signature: Signature, chosen: Mapping[str, Any], own: Mapping[str, Any]) -> Options:
    """Return the options of a call, among them the kernel's own keywords."""
    options = read_chosen(signature, chosen)
    return make_options(options, {"kwargs": {**options.kwargs, **own}}) if own else options


def _read(signature: object, func: object, args: Sequence[Any], keywords: Mapping[str, Any]) -> Signature:
    """Return the parsed signature; where xarray's keywords or an array stand in its place, say what to write."""
    if not callable(func):
        raise OptionError(
            f"the function comes first and the signature second, got {type(func).__name__} in place of the function"
        )
    if "input_core_dims" in keywords or "output_core_dims" in keywords:
        given, _, returned = str(signature).partition("->") if isinstance(signature, (str, Signature)) else ("", "", "")
        n_args = len(args) + (signature is not None)  # where an array stands in its place
        inputs = _written(keywords.get("input_core_dims") or ()) or given or _written([()] * n_args)
        written = f"{inputs}->{_written(keywords.get('output_core_dims') or ()) or returned or '()'}"
        raise OptionError(
            f"input_core_dims= and output_core_dims= are not taken: write the signature {written!r} after the function"
        )
    if signature is not None and not isinstance(signature, (str, Signature)):
        pattern = f"{','.join(['(...)'] * (len(args) + 1))}->(...)"
        raise SignatureError(
            f"the signature comes after the function, a string with the core dimensions of each argument, here "
            f"{pattern!r}; "
            f"got {type(signature).__name__}"
        )
    return read_signature(signature, func)


def _written(core_dims: Iterable[Iterable[object]]) -> str:
    return ",".join(f"({','.join(map(str, dims))})" for dims in core_dims)
