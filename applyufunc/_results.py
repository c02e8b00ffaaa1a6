"""What a kernel returned, made into the outputs that the signature declares: number, shape, dtype checked, padding done.

In: what one call returned, or the list of what every item's call returned. Out: one array per output, loop dims first.
Knows plans and arrays; calls no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._casting import cast, numpy_dtype
from ._errors import OptionError, OutputDTypeError, OutputShapeError
from ._options import UpTo
from ._plan import Operand, Plan, shape_text
from ._typing import Array, Namespace

__all__ = ["Expectation", "broadcast_to", "check_batch", "check_items", "empty_outputs"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the outputs have to be."""

    plan: Plan
    dtypes: tuple[np.dtype[Any], ...] | None  # None: whatever is returned
    thin: tuple[bool, ...]  # loop axes that a batch may return with length 1, since some array argument came so
    xp: Namespace  # the library that the outputs belong to

    def dtype(self, position: int) -> np.dtype[Any] | None:
        """Return the declared dtype of one output."""
        return None if self.dtypes is None else self.dtypes[position]


def check_batch(returned: Any, expected: Expectation) -> tuple[Array, ...]:
    """Return the outputs of a kernel that took the whole block."""
    values = _unpack(returned, expected.plan)
    return tuple(_check_output(position, value, expected) for position, value in enumerate(values))


def check_items(returned: Sequence[Any], expected: Expectation) -> tuple[Array, ...]:
    """Return the outputs of a kernel that was called once for each loop item."""
    by_output = zip(*(_unpack(value, expected.plan) for value in returned), strict=True)
    return tuple(_check_item_values(position, values, expected) for position, values in enumerate(by_output))


def empty_outputs(expected: Expectation) -> tuple[Array, ...]:
    """Return outputs without any loop item."""
    assert expected.dtypes is not None
    shapes = (tuple(size or 0 for size in output.shape) for output in expected.plan.outputs)
    dtypes = (_library_dtype(dtype, expected.xp) for dtype in expected.dtypes)
    return tuple(expected.xp.empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True))


def broadcast_to(array: Array, shape: tuple[int, ...], xp: Namespace) -> Array:
    """Return a view of `array` with `shape`; a mask is stretched too."""
    if isinstance(array, np.ma.MaskedArray):
        mask = np.broadcast_to(np.ma.getmaskarray(array), shape)
        return np.ma.MaskedArray(np.broadcast_to(np.ma.getdata(array), shape), mask=mask, copy=False)
    return xp.broadcast_to(array, shape)


def _unpack(returned: Any, plan: Plan) -> Sequence[Any]:
    signature = plan.signature
    if signature.nout == 1 and not signature.always_tuple:
        if isinstance(returned, tuple):
            raise OutputShapeError(f"kernel returned a tuple of {len(returned)}, expected one array: the signature {signature} has one output")
        return (returned,)
    if not isinstance(returned, (tuple, list)) or len(returned) != signature.nout:
        got = f"{type(returned).__name__} of {len(returned)}" if isinstance(returned, (tuple, list)) else type(returned).__name__
        raise OutputShapeError(f"kernel returned a {got}, expected a tuple of {signature.nout}: one array per output of {signature}")
    return returned


def _check_output(position: int, value: Any, expected: Expectation) -> Array:
    output = expected.plan.outputs[position]
    array = _pad(_as_array(value, f"output {position}", expected), output, expected, position)
    _check_shape(array.shape, output, expected, f"output {position}")
    array = _broadcast_loops(array, expected)
    dtype = expected.dtype(position)
    return array if dtype is None else _cast(array, dtype, f"output {position}", expected)


def _check_item_values(position: int, values: Sequence[Any], expected: Expectation) -> Array:
    output, dtype = expected.plan.outputs[position], expected.dtype(position)
    what = f"output {position}"
    if dtype == object and not output.n_core:
        stacked = _object_items(values)
    else:
        stacked = _stack(values, output, expected, position)
    loop_shape = tuple(size or 0 for size in expected.plan.loop_shape)
    array = expected.xp.reshape(stacked, (*loop_shape, *stacked.shape[1:]))
    return array if dtype is None else _cast(array, dtype, what, expected)


def _object_items(values: Sequence[Any]) -> Array:
    stacked = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        stacked[place] = value
    return stacked


def _stack(values: Sequence[Any], output: Operand, expected: Expectation, position: int) -> Array:
    """Stack the items of one output; dtypes promote over all of them, whatever their order."""
    what = f"output {position}"
    if not output.n_core and expected.xp is np and not any(isinstance(v, (np.ndarray, list, tuple)) or v is None for v in values):
        stacked = np.asarray(values)
        if stacked.ndim == 1:
            return stacked
    arrays = [_pad(_as_array(value, what, expected), output, expected, position) for value in values]
    shape = arrays[0].shape
    for item, array in enumerate(arrays):
        _check_item_shape(array.shape, output, what, item)
        if array.shape != shape:
            raise OutputShapeError(_uneven(what, output, shape, array.shape, item))
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        return _stack_masked(arrays)
    return expected.xp.stack(arrays)


def _stack_masked(arrays: Sequence[Array]) -> Array:
    """Stack masked items; the constant `numpy.ma.masked` takes the dtype of the others."""
    kept = [array.dtype for array in arrays if array is not np.ma.masked]
    dtype = np.result_type(*kept) if kept else np.dtype(float)
    return np.ma.stack([np.ma.masked_all((), dtype) if array is np.ma.masked else array for array in arrays])


def _uneven(what: str, output: Operand, first: tuple[int, ...], other: tuple[int, ...], item: int) -> str:
    axis = next(axis for axis, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
    return (
        f"{what}, core dimension {output.dims[output.n_loop + axis]}: unknown size is {first[axis]} in item 0 and {other[axis]} in "
        f"item {item}, expected one size for the whole call (UpTo(bound) pads)"
    )


def _as_array(value: Any, what: str, expected: Expectation) -> Array:
    if value is None:
        raise OutputShapeError(f"{what}: kernel returned None, expected an array")
    if isinstance(value, np.ma.MaskedArray) and expected.xp is np:
        return value
    try:
        return np.asarray(value) if expected.xp is np else expected.xp.asarray(value)
    except ValueError as error:
        raise OutputShapeError(f"{what}: kernel returned a {type(value).__name__} that is no array: {error}") from None


def _pad(array: Array, output: Operand, expected: Expectation, position: int) -> Array:
    """Fill the output dims that are known by a bound up to it."""
    bounds = dict(expected.plan.bounds)
    if not bounds or array.ndim < output.n_core:
        return array
    for axis, label in enumerate(output.dims[output.n_loop :], start=array.ndim - output.n_core):
        if label in bounds:
            array = _pad_axis(array, axis, bounds[label], f"output {position}, core dimension {label}", expected.dtype(position), expected.xp)
    return array


def _pad_axis(
    array: Array, axis: int, upto: UpTo, what: str, dtype: np.dtype[Any] | None, xp: Namespace
) -> Array:
    size = array.shape[axis]
    if size > upto.bound:
        raise OutputShapeError(f"{what}: expected at most {upto.bound} (UpTo), kernel returned {size}")
    shape = (*array.shape[:axis], upto.bound - size, *array.shape[axis + 1 :])
    filler = _filler(shape, upto.fill_value, np.result_type(numpy_dtype(array.dtype), upto.fill_value) if dtype is None else dtype, what)
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.concatenate([array, filler], axis=axis)
    return xp.concat([array, xp.asarray(filler)], axis=axis)


def _filler(shape: tuple[int, ...], fill_value: Any, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    try:
        filler = np.full(shape, fill_value, dtype)
        fits = dtype.kind not in "iub" or np.full((), fill_value, dtype) == fill_value
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise OptionError(f"{what}: UpTo has fill_value {fill_value!r}, which the dtype {dtype} cannot hold")
    return filler


def _check_shape(shape: tuple[int, ...], output: Operand, expected: Expectation, what: str) -> None:
    if len(shape) != len(output.shape):
        raise OutputShapeError(_wrong_ndim(shape, output, what))
    for axis, (got, wanted) in enumerate(zip(shape, output.shape, strict=True)):
        is_thin = got == 1 and axis < output.n_loop and expected.thin[axis]
        if wanted is not None and got != wanted and not is_thin:
            raise OutputShapeError(f"{what}, {_dim_name(output, axis)}: {_expected_got(wanted, got, output.shape, shape)}")


def _check_item_shape(shape: tuple[int, ...], output: Operand, what: str, item: int) -> None:
    wanted_shape = output.core_shape
    if len(shape) != len(wanted_shape):
        raise OutputShapeError(
            f"{what}: kernel returned shape {shape_text(shape)} for one item (item {item}), expected core shape {shape_text(wanted_shape)}"
        )
    for axis, (got, wanted) in enumerate(zip(shape, wanted_shape, strict=True)):
        if wanted is not None and got != wanted:
            name = _dim_name(output, output.n_loop + axis)
            raise OutputShapeError(f"{what}, {name}: {_expected_got(wanted, got, wanted_shape, shape)} in item {item}")


def _dim_name(output: Operand, axis: int) -> str:
    kind = "loop" if axis < output.n_loop else "core"
    return f"{kind} dimension {output.dims[axis]}"


def _expected_got(wanted: int, got: int, wanted_shape: Sequence[int | None], shape: Sequence[int]) -> str:
    return f"expected {wanted}, kernel returned {got} (shape {shape_text(shape)}, expected {shape_text(wanted_shape)})"


def _wrong_ndim(shape: tuple[int, ...], output: Operand, what: str) -> str:
    message = f"{what}: kernel returned shape {shape_text(shape)} for loop shape {shape_text(output.loop_shape)}"
    if len(shape) < len(output.shape) and output.n_loop:
        return (
            f"{message}: is a core dimension missing from the signature? (expected {shape_text(output.shape)}; a kernel that takes one "
            f"item at a time needs vectorize=True)"
        )
    return f"{message}, expected {shape_text(output.shape)}"


def _broadcast_loops(array: Array, expected: Expectation) -> Array:
    n_loop = expected.plan.n_loop
    loop_shape = tuple(got if size is None else size for got, size in zip(array.shape, expected.plan.loop_shape, strict=False))
    if array.shape[:n_loop] == loop_shape:
        return array
    return broadcast_to(array, (*loop_shape, *array.shape[n_loop:]), expected.xp)


def _cast(array: Array, dtype: np.dtype[Any], what: str, expected: Expectation) -> Array:
    if expected.xp is np:
        return cast(array, dtype, what)
    wanted = _library_dtype(dtype, expected.xp)
    if array.dtype == wanted:
        return array
    if not expected.xp.can_cast(array.dtype, wanted):
        raise OutputDTypeError(f"{what}: kernel returned {array.dtype}, which does not cast to the declared {dtype}")
    return expected.xp.astype(array, wanted)


def _library_dtype(dtype: np.dtype[Any], xp: Namespace) -> Any:
    """Return the library's own dtype of the same name; its namespace may know it by another, such as ``bool_``."""
    return dtype if xp is np else getattr(xp, dtype.name, dtype)
