"""`axes`, `axis` and `keepdims` become the places of core dims, and places become moves.

In: the labels of core dims, numbers of dimensions, and the three options as the user wrote them. Out: `CoreAxes`, and
permutations as for `numpy.transpose`. The rules and their refusals are those of NumPy's gufuncs (``_parse_axes_arg``
and ``_parse_axis_arg`` in numpy/_core/src/umath/ufunc_object.c). This module must not know arrays, shapes or kernels.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ._errors import AxisError, DimensionError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CoreAxes", "find_core_axes", "from_core_last", "to_core_last"]

# Core dims of the inputs, and of the outputs.
_CoreDims: TypeAlias = "tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]"


@dataclass(frozen=True, slots=True)
class CoreAxes:
    """Where the core dims of every operand are, in the order of the signature's dims.

    Attributes
    ----------
    inputs : tuple of tuple of int
        Axes from the right (negative), one tuple per input; ``()`` for an input that is no array.
    outputs : tuple of tuple of int
        Axes from the right in the finished outputs, kept axes included.
    n_kept : int
        How many core axes of length 1 every output gets because of `keepdims`; 0 without.
    """

    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    n_kept: int


def find_core_axes(
    core_dims_in: Sequence[Sequence[str]],
    core_dims_out: Sequence[Sequence[str]],
    ndims: Sequence[int | None],
    *,
    axes: object = None,
    axis: object = None,
    keepdims: object = False,
    name: str = "",
    declared: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]] | None = None,
) -> CoreAxes:
    """Find where the core dims of every operand are.

    Without `axes` and `axis` core dims are last. Axes that the user gives may be positive or negative; those of an
    output count in the finished output. With `keepdims`, `axes` and no entries for outputs, each kept axis stays where
    it was in the first array input, counted from the right, so that the output broadcasts against that input.

    Parameters
    ----------
    core_dims_in, core_dims_out : sequence of sequence of str
        Labels of the core dims of each input and output, absent optional ones left out.
    ndims : sequence of int or None
        Number of dimensions of each input; None where there is no array. The `axes` entry of such an input is not read.
    axes : list, optional
        One entry per operand, or per input where no output has core dims: a tuple with one axis per core dim, or an int
        where there is one core dim.
    axis : int, optional
        The axis of the single core dim that all operands with core dims share.
    keepdims : bool
        Whether outputs keep the core axes of the inputs with length 1.
    name : str
        The kernel's name, for messages.
    declared : pair of sequence of sequence of str, optional
        Core dims of inputs and of outputs as the signature has them, absent optional ones included; by default none is
        absent. NumPy judges by these whether a signature can take `axis`, `keepdims`, or `axes` without outputs, so
        that it does not depend on shapes.

    Returns
    -------
    CoreAxes

    Raises
    ------
    OptionError
        If an option has a type that it cannot have, if `axes` and `axis` are both given, or if the signature cannot
        take `axis` or `keepdims`.
    AxisError
        If an axis is out of range or given twice, or if an entry of `axes` has another number of axes than core dims.
    DimensionError
        If an input has fewer dimensions than core dims, or if `axes` has another number of entries than operands.

    Examples
    --------
    >>> find_core_axes([["m", "n"], ["n"]], [["m"]], [3, 1], axes=[(0, 2), 0, 0])
    CoreAxes(inputs=((-3, -1), (-1,)), outputs=((-2,),), n_kept=0)
    """
    context = f"{name}: " if name else ""
    given = (tuple(map(tuple, core_dims_in)), tuple(map(tuple, core_dims_out)))
    written = given if declared is None else (tuple(map(tuple, declared[0])), tuple(map(tuple, declared[1])))
    _check_supported(context, written, given, axes=axes, axis=axis, keepdims=keepdims)
    inputs = tuple(_Operand("input", i, dims, ndim) for i, (dims, ndim) in enumerate(zip(given[0], ndims, strict=True)))
    _check_enough_dimensions(context, inputs)
    kept = given[0][0] if keepdims and inputs else ()
    outputs = _finished_outputs(inputs, given[1], kept)
    if axes is not None:
        found = _read_axes(context, axes, inputs, outputs, outputs_may_miss=not any(written[1]))
    elif axis is not None:
        found = _read_axis(context, axis, inputs + outputs)
    else:
        found = tuple(operand.last_axes for operand in inputs + outputs)
    return CoreAxes(found[: len(inputs)], found[len(inputs) :], len(kept))


def to_core_last(ndim: int, core_axes: Sequence[int]) -> tuple[int, ...] | None:
    """Give the permutation that moves core axes to the end, in their order; loop axes keep theirs.

    Parameters
    ----------
    ndim : int
        Number of dimensions of the array.
    core_axes : sequence of int
        Axes from the right.

    Returns
    -------
    tuple of int or None
        Axes as for `numpy.transpose`, from the left; None for the identity.

    Examples
    --------
    >>> to_core_last(3, (-3,))
    (1, 2, 0)
    """
    core = [axis + ndim for axis in core_axes]
    order = (*(axis for axis in range(ndim) if axis not in core), *core)
    return None if order == tuple(range(ndim)) else order


def from_core_last(ndim: int, core_axes: Sequence[int]) -> tuple[int, ...] | None:
    """Give the permutation that moves core axes from the end to their places: the inverse of `to_core_last`.

    Parameters
    ----------
    ndim : int
        Number of dimensions of the array.
    core_axes : sequence of int
        Axes from the right that the last axes go to.

    Returns
    -------
    tuple of int or None
        Axes as for `numpy.transpose`, from the left; None for the identity.

    Examples
    --------
    >>> from_core_last(3, (-3,))
    (2, 0, 1)
    """
    order = to_core_last(ndim, core_axes)
    return None if order is None else tuple(sorted(range(ndim), key=order.__getitem__))


@dataclass(frozen=True, slots=True)
class _Operand:
    """One operand; `ndim` is that of the finished output, and None for an input that is no array."""

    kind: str
    position: int
    core_dims: tuple[str, ...]
    ndim: int | None

    @property
    def label(self) -> str:
        return f"{self.kind} {self.position}"

    @property
    def last_axes(self) -> tuple[int, ...]:
        return () if self.ndim is None else tuple(range(-len(self.core_dims), 0))


def _check_supported(
    context: str, written: _CoreDims, given: _CoreDims, *, axes: object, axis: object, keepdims: object
) -> None:
    """Refuse options that the signature cannot take, whatever the shapes."""
    if axes is not None and axis is not None:
        raise OptionError(f"{context}cannot take both axes={axes!r} and axis={axis!r}: give one of them")
    if not isinstance(keepdims, bool):
        raise OptionError(f"{context}keepdims has to be True or False, got {keepdims!r}")
    if keepdims:
        _check_keepdims_supported(context, written)
        _check_keepdims_supported(context, given)
    if axis is not None:
        _check_axis_supported(context, written)


def _check_keepdims_supported(context: str, core_dims: _CoreDims) -> None:
    inputs, outputs = core_dims
    if any(outputs) or len(set(map(len, inputs))) > 1:
        raise OptionError(
            f"{context}keepdims=True needs inputs with the same number of core dims and outputs with none, "
            f"but the signature is {_signature_text(core_dims)}"
        )


def _check_axis_supported(context: str, core_dims: _CoreDims) -> None:
    """NumPy lets ``(m,m)->()`` through and then moves one of the two dims; that is refused here."""
    operands = core_dims[0] + core_dims[1]
    if len(set().union(*operands)) != 1 or max(map(len, operands)) > 1:
        raise OptionError(
            f"{context}axis needs a single core dim that all operands with core dims share, "
            f"but the signature is {_signature_text(core_dims)}: use axes"
        )


def _signature_text(core_dims: _CoreDims) -> str:
    return "->".join(",".join(f"({','.join(dims)})" for dims in operands) for operands in core_dims)


def _check_enough_dimensions(context: str, inputs: tuple[_Operand, ...]) -> None:
    for operand in inputs:
        if operand.ndim is not None and operand.ndim < len(operand.core_dims):
            raise DimensionError(
                f"{context}{operand.label} has ndim {operand.ndim}, but its core dims ({', '.join(operand.core_dims)}) "
                f"need at least {len(operand.core_dims)}"
            )


def _finished_outputs(
    inputs: tuple[_Operand, ...], core_dims_out: tuple[tuple[str, ...], ...], kept: tuple[str, ...]
) -> tuple[_Operand, ...]:
    """Give every output its ndim, and the kept dims, which only outputs without core dims of their own can get."""
    n_loop = max((operand.ndim - len(operand.core_dims) for operand in inputs if operand.ndim is not None), default=0)
    return tuple(
        _Operand("output", i, dims + kept, n_loop + len(dims) + len(kept)) for i, dims in enumerate(core_dims_out)
    )


def _read_axes(
    context: str, axes: object, inputs: tuple[_Operand, ...], outputs: tuple[_Operand, ...], *, outputs_may_miss: bool
) -> tuple[tuple[int, ...], ...]:
    """Read the list of one entry per operand."""
    if not isinstance(axes, list):
        raise OptionError(f"{context}axes has to be a list with one entry per operand, got {axes!r}")
    complete = len(axes) == len(inputs) + len(outputs)
    if not complete and (len(axes) != len(inputs) or not outputs_may_miss):
        raise DimensionError(
            f"{context}axes has {len(axes)} entries, expected {len(inputs) + len(outputs)}: {len(inputs)} for inputs "
            f"and {len(outputs)} for outputs, which may be left out only where the signature gives them no core dims"
        )
    operands = (inputs + outputs)[: len(axes)]
    found = tuple(_read_entry(context, entry, operand) for entry, operand in zip(axes, operands, strict=True))
    return found if complete else found + tuple(_kept_in_place(found, output) for output in outputs)


def _read_entry(context: str, entry: object, operand: _Operand) -> tuple[int, ...]:
    """Read one operand's entry: a tuple with an axis per core dim, or an int for a single core dim."""
    if operand.ndim is None:
        return ()
    if isinstance(entry, tuple) and len(entry) == len(operand.core_dims):
        return _normalize(context, entry, operand)
    if len(operand.core_dims) == 1 and not isinstance(entry, tuple):
        return _normalize(context, (entry,), operand)
    countable = isinstance(entry, tuple) or _as_int(entry) is not None
    dims = f" (core dims {', '.join(operand.core_dims)})" if operand.core_dims else ", for it has no core dims"
    raise (AxisError if countable else OptionError)(
        f"{context}in axes, the entry of {operand.label} has to be a tuple of {len(operand.core_dims)} axes{dims}, "
        f"got {entry!r}"
    )


def _normalize(context: str, entry: tuple[object, ...], operand: _Operand) -> tuple[int, ...]:
    """Count the axes from the right; refuse one that is no integer, out of range, or given twice."""
    found: list[int] = []
    for item in entry:
        axis = _checked_axis(context, item, operand)
        if axis in found:
            raise AxisError(
                f"{context}axes {entry!r} of {operand.label}, which has ndim {operand.ndim}, name one axis twice"
            )
        found.append(axis)
    return tuple(found)


def _checked_axis(context: str, item: object, operand: _Operand) -> int:
    axis, ndim = _as_int(item), operand.ndim or 0
    if axis is None:
        raise OptionError(f"{context}axis of {operand.label} has to be an integer, got {item!r}")
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{context}axis {axis} is out of range for {operand.label}, which has ndim {ndim}: "
            f"expected {-ndim} to {ndim - 1}"
        )
    return axis if axis < 0 else axis - ndim


def _as_int(item: object) -> int | None:
    """Read an integer as NumPy does, which takes anything with `__index__` but a bool; None for what is no integer."""
    if isinstance(item, bool):
        return None
    try:
        return operator.index(item)  # type: ignore[arg-type]  # the TypeError is the answer
    except TypeError:
        return None


def _kept_in_place(found: tuple[tuple[int, ...], ...], output: _Operand) -> tuple[int, ...]:
    """Give an output without an entry its kept axes where the first array input has them (NumPy: last)."""
    if not output.core_dims:
        return ()
    return next(filter(None, found), output.last_axes)


def _read_axis(context: str, axis: object, operands: tuple[_Operand, ...]) -> tuple[tuple[int, ...], ...]:
    """Take the one axis for each operand that has the shared core dim, counted in that operand."""
    if _as_int(axis) is None:
        is_traced = hasattr(axis, "aval")  # as what JAX traces has
        cure = ": bind it by with_options(axis=...), since jit and vmap trace keywords" if is_traced else ""
        raise OptionError(f"{context}axis has to be an integer, got {axis!r}{cure}")
    return tuple(
        () if operand.ndim is None or not operand.core_dims else (_checked_axis(context, axis, operand),)
        for operand in operands
    )
