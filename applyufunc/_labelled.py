"""xarray in and out, around a call on its arrays: `evaluate_labelled` and `explain_labelled`.

In: a call as `evaluate` takes it, with labelled arguments or without. Out: results with labels where there were some.
xarray aligns and broadcasts the arguments and makes the coordinates; between the two the plain call runs on arrays,
core dims last, whatever library they are of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import numpy as np

from ._absent_dims import Fitted, leave_out
from ._arguments import is_constant
from ._dim_names import DimNames, name_dims
from ._errors import ArgumentError, DimensionError, OptionError
from ._evaluate import check_number
from ._explain import explain_call
from ._explanation import Explanation
from ._kernel import Kernel
from ._labelled_arguments import (
    Kinds,
    check_arguments,
    find_kinds,
    fit_at_sight,
    import_xarray,
    kind_of,
    size_conflict,
    unknown_size,
)
from ._labelled_results import finish, with_names
from ._labelled_shortcuts import find_copied, run_on_copy, without_shared_coords
from ._options import Options
from ._plan import shape_text
from ._signature import Signature

__all__ = ["evaluate_labelled", "explain_labelled", "find_kinds"]

Run: TypeAlias = Callable[[Kernel, Signature, Sequence[Any], Options], Any]
"""`evaluate`, or what stands for it."""


def evaluate_labelled(
    kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options, kinds: Kinds, run: Run
) -> Any:
    """Return the outputs of `kernel` applied to `args`, some of which have labels; `run` gives those on arrays."""
    call = _make_call(kernel, signature, args, options, kinds)
    if kinds.tree in map(kind_of, args):
        import_xarray().map_over_datasets(call.check, *args)  # all nodes, before the kernel runs for the first
        return import_xarray().map_over_datasets(partial(call.evaluate, run), *args)
    return call.evaluate(run, *args)


def explain_labelled(
    kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options, kinds: Kinds
) -> Explanation:
    """Return what `evaluate_labelled` would do, with the names of dims."""
    _refuse_collections(args, kinds)
    return _make_call(kernel, signature, args, options, kinds).explain(*args)


def _make_call(
    kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options, kinds: Kinds
) -> _LabelledCall:
    check_number(args, signature, kernel)
    _refuse_axes(options)
    if options.on_missing_core_dim == "copy" and signature.nout > 1:
        raise OptionError(
            f"on_missing_core_dim='copy' puts a variable in the place of one output, and the signature "
            f"{signature.text!r} has {signature.nout}: pass 'drop' or 'raise'"
        )
    names = name_dims(signature, options.dims, tuple(label for label, _ in options.output_sizes))
    return _LabelledCall(kernel, signature, options, names, kinds)


def _refuse_axes(options: Options) -> None:
    for name in ("axis", "axes"):
        if getattr(options, name) is not None:
            raise OptionError(
                f"{name}= is not taken with labelled arguments, whose core dimensions are found by name: the "
                f"signature or dims= names them"
            )
    if options.keepdims:
        raise OptionError(
            "keepdims=True is not taken with labelled arguments, whose results broadcast by name without it: use "
            "expand_dims on the result where a dimension of size 1 is wanted"
        )


def _refuse_collections(args: Sequence[Any], kinds: Kinds) -> None:
    for position, arg in enumerate(args):
        if isinstance(arg, (kinds.dataset, kinds.tree, kinds.group_by)):
            raise ArgumentError(
                f"argument {position} is a {type(arg).__name__}, which takes a call for each of its parts, and explain "
                f"tells of one: pass one variable of it, or of a group"
            )


@dataclass(slots=True)  # not frozen, which would take three times as long to make
class _LabelledCall:
    """A call whose arguments may be of any number of variables and groups."""

    kernel: Kernel
    signature: Signature
    options: Options
    names: DimNames
    kinds: Kinds

    def evaluate(self, run: Run, *args: Any) -> Any:
        """Return the outputs with labels: one, or a tuple where the signature says so."""
        fitted = self.fit(*args)
        copied = find_copied(fitted.args, self.kinds, fitted.names, self.options)
        if copied is None:
            results = self._apply(run, fitted)
            finished = tuple(
                finish(output, position, args, self.kinds, fitted.names, self.options)
                for position, output in enumerate(results if self.signature.nout > 1 else (results,))
            )
        else:
            finished = run_on_copy(fitted.args, copied, fitted.names, self._on_arrays(run, fitted).outputs)
        return finished if self.signature.nout > 1 or self.signature.always_tuple else finished[0]

    def explain(self, *args: Any) -> Explanation:
        """Return what the call on the arrays would do, dims by their names."""
        try:
            self._apply(_answer, self.fit(*args))
        except _Answer as answer:
            return with_names(answer.explanation, args, self.kinds, self.names)
        raise AssertionError("xarray.apply_ufunc has not called its function")

    def fit(self, *args: Any) -> Fitted:
        """Return the arguments as xarray takes them; refuse what does not fit."""
        if not self.names.may_be_absent and fit_at_sight(args, self.kinds, self.names):
            return Fitted(args, self.names)
        unknown = unknown_size(args, self.kinds, self.names)
        if unknown is not None:
            raise DimensionError(unknown)
        fitted = leave_out(args, self.kinds, self.names, self.signature)
        check_arguments(fitted.args, self.kinds, fitted.names, self.options)
        return fitted

    def check(self, *args: Any) -> None:
        """Refuse what does not fit, and do no more."""
        self.fit(*args)

    def _apply(self, run: Run, fitted: Fitted) -> Any:
        """Let xarray call `run` as `evaluate` on the arrays of each variable and group."""
        on_arrays = self._on_arrays(run, fitted)
        try:
            return import_xarray().apply_ufunc(
                on_arrays,
                *without_shared_coords(fitted.args, self.kinds, fitted.names, self.options),
                input_core_dims=fitted.names.inputs,
                output_core_dims=fitted.names.outputs,
                exclude_dims=set(fitted.names.excluded),
                dask="allowed",
                **_keywords_of_xarray(self.options),
            )
        except ValueError as error:
            conflict = None if on_arrays.is_called else size_conflict(fitted.args, self.kinds, fitted.names)
            if conflict is None:
                raise
            raise DimensionError(conflict) from error

    def _on_arrays(self, run: Run, fitted: Fitted) -> _OnArrays:
        args = enumerate(fitted.args)
        plain = tuple(position for position, arg in args if kind_of(arg) is None and not is_constant(arg))
        return _OnArrays(run, self, fitted, plain, self.options.dataset_join not in (None, "exact"))


@dataclass(slots=True)
class _OnArrays:
    """The function that is called with the arrays of one variable, core dims last."""

    run: Run
    call: _LabelledCall
    fitted: Fitted
    plain: tuple[int, ...]  # positions of arguments without labels
    may_fill: bool  # whether a fill value may stand for a variable that a Dataset lacks
    is_called: bool = False

    def __call__(self, *arrays: Any) -> Any:
        """Return the outputs as xarray takes them: one, or a tuple."""
        outputs = self.outputs(*arrays)
        return outputs if len(outputs) > 1 else outputs[0]

    def outputs(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the outputs as arrays."""
        self.is_called = True
        signature, fitted = self.call.signature, self.fitted
        if self.may_fill:
            arrays = _with_core_dims(arrays, fitted, self.call.kinds)
        if self.plain:
            _check_loops(arrays, self.plain, [len(dims) for dims in fitted.names.inputs])
        arrays = tuple(map(_indexed, arrays, fitted.inserts)) if fitted.inserts else arrays
        results = self.run(self.call.kernel, signature, arrays, self.call.options)
        outputs = results if signature.nout > 1 or signature.always_tuple else (results,)
        if fitted.drops:
            outputs = tuple(map(_indexed, outputs, fitted.drops))
        return tuple(map(_boxed, outputs))


class _Answer(Exception):  # noqa: N818  # no error: it carries a result past xarray
    def __init__(self, explanation: Explanation) -> None:
        super().__init__()
        self.explanation = explanation


def _answer(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> None:
    raise _Answer(explain_call(kernel, signature, args, options))


def _keywords_of_xarray(options: Options) -> dict[str, Any]:
    """Return the options that are xarray's own and given; of the others it has defaults, which differ by version."""
    return {name: value for name in _OPTIONS_OF_XARRAY if (value := getattr(options, name)) is not None}


def _with_core_dims(arrays: Sequence[Any], fitted: Fitted, kinds: Kinds) -> tuple[Any, ...]:
    """Return the arrays; a fill value, which stands for a variable that a Dataset lacks, gets that one's core dims."""
    return tuple(
        _stretched(array, dims, {**arg.sizes, **_core_sizes(arrays, fitted)}, arrays)
        if dims and isinstance(arg, kinds.dataset) and np.ndim(array) == 0
        else array
        for array, dims, arg in zip(arrays, fitted.names.inputs, fitted.args, strict=True)
    )


def _stretched(value: Any, dims: Sequence[Any], sizes: Mapping[Any, int], arrays: Sequence[Any]) -> Any:
    """Return a value with core dims, which widens the other arguments no more than a number without dims does."""
    dtypes = [array.dtype for array in arrays if isinstance(getattr(array, "dtype", None), np.dtype)]
    numbers = [dtype for dtype in dtypes if dtype.kind in "iufc"] if type(value) in (int, float, complex) else []
    filled = np.asarray(value, np.result_type(value, *numbers) if numbers else None)
    return np.broadcast_to(filled, [sizes.get(dim, 1) for dim in dims])  # 1: nothing says more


def _core_sizes(arrays: Sequence[Any], fitted: Fitted) -> dict[Any, int]:
    """Return the sizes that core dims have once arguments are aligned."""
    named = [pair for pair in zip(arrays, fitted.names.inputs, strict=True) if np.ndim(pair[0]) >= len(pair[1])]
    return {dim: np.shape(array)[axis] for array, dims in named for axis, dim in enumerate(dims, -len(dims))}


def _check_loops(arrays: Sequence[Any], plain: Sequence[int], n_core: Sequence[int]) -> None:
    """Refuse loop dims of arrays without labels that are not, from the right, those of the labelled ones."""
    shapes = [np.shape(array) if isinstance(array, (list, tuple)) else getattr(array, "shape", ()) for array in arrays]
    loops = [shape[: max(len(shape) - n, 0)] for shape, n in zip(shapes, n_core, strict=True)]
    named = [reversed(loop) for position, loop in enumerate(loops) if position not in plain]
    sizes = [next((size for size in axis if size != 1), 1) for axis in zip_longest(*named, fillvalue=1)]
    for position in plain:
        loop = loops[position]
        if len(loop) > len(sizes) or any(map(_differs, reversed(loop), sizes)):
            raise DimensionError(
                f"argument {position} has no labels and loop shape {shape_text(loop)}, which does not fit that of the "
                f"labelled arguments, {shape_text(sizes[::-1])}: loop dimensions without labels are those of the "
                f"labelled arguments, from the right; give it labels"
            )


def _differs(size: float, expected: float) -> bool:
    """Tell sizes that are known to differ; Dask's NaN is no known size."""
    return size not in (1, expected) and not math.isnan(size) and not math.isnan(expected)


def _indexed(array: Any, index: tuple[Any, ...]) -> Any:
    """Return an array with axes of length 1 put in, or taken away."""
    if not index or is_constant(array):
        return array
    return (array if hasattr(array, "shape") else np.asarray(array))[index]


def _boxed(output: Any) -> Any:
    """Return an object that is a whole output as an array of it, so that xarray does not look into it."""
    if hasattr(output, "dtype"):
        return output
    box = np.empty((), object)
    box[()] = output
    return box


_OPTIONS_OF_XARRAY: Final = ("join", "dataset_join", "dataset_fill_value", "keep_attrs", "on_missing_core_dim")
