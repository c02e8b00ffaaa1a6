"""What a kernel returned, made into the outputs that the signature declares: number, shape, dtype checked, padded.

In: what one call returned, or columns of what every item's call returned. Out: one array per output, loop dims first.
Knows plans and arrays; calls no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from array_api_compat import is_pydata_sparse_array

from ._casting import astype, cast, check_range, does_not_cast, family, library_dtype, may_cast, numpy_dtype
from ._errors import OutputDTypeError, OutputShapeError
from ._expectation import Expectation
from ._items import Column
from ._ownership import copy_of
from ._padding import pad
from ._plan import Operand, Plan, shape_text
from ._returned import as_array, box, is_object, is_weak, unpack
from ._typing import Array, DType, Namespace

__all__ = ["broadcast_to", "cast_output", "check_batch", "check_items", "empty_outputs"]


def check_batch(returned: Any, expected: Expectation) -> tuple[Array, ...]:
    """Return the outputs of a kernel that took the whole block."""
    values = unpack(returned, expected.plan)
    outputs = tuple(_check_output(position, value, expected) for position, value in enumerate(values))
    _check_unknown_sizes(outputs, expected.plan)
    return outputs


def check_items(columns: Sequence[Column], expected: Expectation) -> tuple[Array, ...]:
    """Return the outputs of a kernel that was called once for each loop item."""
    outputs = tuple(_check_column(position, column, expected) for position, column in enumerate(columns))
    _check_unknown_sizes(outputs, expected.plan)
    return outputs


def empty_outputs(expected: Expectation) -> tuple[Array, ...]:
    """Return outputs without any loop item."""
    assert expected.dtypes is not None
    shapes = (tuple(size or 0 for size in output.shape) for output in expected.plan.outputs)
    return tuple(_empty(shape, dtype, expected) for shape, dtype in zip(shapes, expected.dtypes, strict=True))


def cast_output(array: Array, dtype: np.dtype[Any], what: str, expected: Expectation, *, weak: bool = False) -> Array:
    """Return an output as its declared dtype."""
    if expected.xp is np:
        return cast(array, dtype, what, weak=weak, found=expected.found)
    source = numpy_dtype(array.dtype)
    if source != dtype and not may_cast(source, dtype, weak=weak):
        raise does_not_cast(source, dtype, what, found=expected.found)
    if source != dtype and family(source) == family(dtype) == "integer" and 0 not in array.shape:
        _check_integers(array, source, dtype, what, expected)
    return astype(array, dtype, expected.xp)


def broadcast_to(array: Array, shape: tuple[int, ...], xp: Namespace) -> Array:
    """Return a view of `array` with `shape`; a mask is stretched too."""
    if isinstance(array, np.ma.MaskedArray):
        mask = np.broadcast_to(np.ma.getmaskarray(array), shape)
        data = np.broadcast_to(np.ma.getdata(array), shape)
        return np.ma.MaskedArray(data, mask, copy=False, fill_value=array.fill_value, hard_mask=array.hardmask)
    if is_pydata_sparse_array(array) and not hasattr(array, "broadcast_to"):
        array = array.asformat("coo")  # the one format that sparse broadcasts
    return xp.broadcast_to(array, shape)


def _check_output(position: int, value: Any, expected: Expectation) -> Array:
    """Return one output of a kernel that took the whole block."""
    what, output, dtype = expected.name(position), expected.plan.outputs[position], expected.dtype(position)
    array = as_array(value, position, expected)
    array = pad(array, output, dtype, array.dtype, what, expected)
    _check_shape(array.shape, output, expected, what)
    array = _broadcast_loops(array, expected)
    return array if dtype is None else cast_output(array, dtype, what, expected, weak=is_weak(value))


def _check_column(position: int, column: Column, expected: Expectation) -> Array:
    """Return one output of a kernel that was called once for each item."""
    what, output, dtype = expected.name(position), expected.plan.outputs[position], expected.dtype(position)
    stacked = box(column.values) if is_object(dtype) and not output.n_core else _stack(column, position, expected)
    if expected.masked and not isinstance(stacked, np.ma.MaskedArray):  # its type must not depend on the data
        stacked = np.ma.MaskedArray(stacked, copy=False)
    array = expected.xp.reshape(stacked, (*_known(expected.plan.loop_shape), *stacked.shape[1:]))
    if dtype is None:
        return array
    kind = numpy_dtype(stacked.dtype).kind
    may_be_weak = kind == "O" or (kind in "iu" and dtype.kind in "iu")
    return cast_output(array, dtype, what, expected, weak=may_be_weak and _are_weak(column, dtype))


def _stack(column: Column, position: int, expected: Expectation) -> Array:
    """Stack the items of one output; dtypes promote over all of them, whatever their order."""
    what, output, dtype = expected.name(position), expected.plan.outputs[position], expected.dtype(position)
    values, kinds = column.values, column.kinds
    if isinstance(values, np.ndarray) and expected.xp is np and not expected.plan.bounds:
        return values  # rows of the core shape: see `collect_items`
    if not output.n_core and expected.xp is np and kinds <= _NUMBERS:
        return np.asarray(values, _common_dtype(values, kinds, [np.dtype(kind) for kind in kinds - _WEAK], what))
    if kinds == {np.ndarray} and expected.xp is np and not expected.plan.bounds and _are_alike(values, output):
        return np.asarray(values)
    if dtype is None and not output.n_core and _are_strings(values, expected.strings):
        return np.asarray(values, expected.strings)
    arrays = [as_array(value, position, expected, place) for place, value in enumerate(values)]
    common = dtype
    if dtype is None:
        pairs = zip(arrays, values, strict=True)
        strong = [array.dtype for array, value in pairs if not _has_no_dtype(value)]
        common = _common_dtype(values, kinds, strong, what)
    return _stack_arrays(arrays, output, dtype, common, what, expected)


def _are_alike(arrays: Sequence[Array], output: Operand) -> bool:
    """Tell arrays of one dtype, and of the shape that is expected: the usual case, which needs no look at each."""
    kinds = {(array.shape, array.dtype) for array in arrays}
    return len(kinds) == 1 and None not in output.core_shape and kinds.pop()[0] == output.core_shape


def _common_dtype(values: Sequence[Any], kinds: frozenset[type], strong: Sequence[DType], what: str) -> np.dtype[Any]:
    """Return the dtype that holds all items; Python's numbers are weak, as in arithmetic, so far as they fit."""
    weak = kinds & _WEAK
    integers = [value for value in values if type(value) is int] if int in weak else []
    if not strong:
        kinds = weak or frozenset({float})  # all are the constant `numpy.ma.masked`, whose dtype is float
        return _integer_dtype(integers) if kinds == {int} else np.result_type(*map(np.dtype, kinds))
    dtypes = {numpy_dtype(dtype) for dtype in strong}
    try:
        common = np.result_type(*dtypes, *(kind() for kind in weak))
    except TypeError:
        named = " and ".join(sorted({str(dtype) for dtype in dtypes} | {f"Python's {kind.__name__}" for kind in weak}))
        raise OutputDTypeError(f"{what}: kernel returned items of {named}, which have no common dtype") from None
    if (
        integers
        and common.kind in "iu"
        and not np.iinfo(common).min <= min(integers) <= max(integers) <= np.iinfo(common).max
    ):
        return np.result_type(common, _integer_dtype(integers))
    return common


def _integer_dtype(values: Sequence[int]) -> np.dtype[Any]:
    """Return the first dtype that holds all integers; NumPy itself would mix int64 and uint64 to a float."""
    low, high = min(values), max(values)
    fits = (dtype for dtype in (np.int64, np.uint64) if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max)
    return np.dtype(next(fits, object))


def _stack_arrays(
    arrays: Sequence[Array],
    output: Operand,
    dtype: np.dtype[Any] | None,
    common: np.dtype[Any] | None,
    what: str,
    expected: Expectation,
) -> Array:
    """Stack items that are arrays, and have `dtype` if it was declared and will be cast, `common` otherwise."""
    if dtype is None and common is not None:
        arrays = [astype(array, common, expected.xp) for array in arrays]
    padded = [pad(array, output, dtype, common, what, expected) for array in arrays]
    for place, array in enumerate(padded):
        _check_item_shape(array.shape, output, what, place, expected)
        if array.shape != padded[0].shape:
            raise OutputShapeError(_uneven(what, output, padded[0].shape, array.shape, place, expected))
    if any(isinstance(array, np.ma.MaskedArray) for array in padded):
        return np.ma.stack(padded)
    if not output.n_core and any(map(is_pydata_sparse_array, padded)):  # all of a number is its array's fill value
        return expected.xp.asarray(np.stack([array.todense() for array in padded]))
    return expected.xp.stack(padded)


def _uneven(
    what: str, output: Operand, first: tuple[int, ...], other: tuple[int, ...], place: int, expected: Expectation
) -> str:
    axis = next(axis for axis, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
    return (
        f"{what}, core dimension {output.dims[output.n_loop + axis]}: unknown size is {first[axis]} in item "
        f"{expected.item_text(0)} and {other[axis]} in item {expected.item_text(place)}, expected one size for the "
        f"whole call (UpTo(bound) pads)"
    )


def _check_shape(shape: tuple[int, ...], output: Operand, expected: Expectation, what: str) -> None:
    if len(shape) != len(output.shape):
        raise OutputShapeError(_wrong_ndim(shape, output, what))
    for axis, (got, wanted) in enumerate(zip(shape, output.shape, strict=True)):
        is_thin = got == 1 and axis < output.n_loop and expected.thin[axis]
        if wanted is not None and got != wanted and not is_thin:
            cure = _AS_BATCH if axis < output.n_loop else ""
            raise OutputShapeError(
                f"{what}, {_dim_name(output, axis)}: {_expected_got(wanted, got, output.shape, shape)}{cure}"
            )


def _wrong_ndim(shape: tuple[int, ...], output: Operand, what: str) -> str:
    message = f"{what}: kernel returned shape {shape_text(shape)}"
    if output.n_loop:
        message += f" for loop shape {shape_text(output.loop_shape)}"
    if shape[: output.n_loop] == output.loop_shape:
        dims = ",".join(output.dims[output.n_loop :])
        given = f"the core dimensions ({dims})" if dims else "no core dimensions"
        return f"{message}, expected {shape_text(output.shape)}: the signature gives this output {given}"
    if len(shape) < len(output.shape) and output.n_loop:
        return (
            f"{message}: is a core dimension missing from the signature? (expected {shape_text(output.shape)}; a "
            f"kernel that "
            f"takes one item at a time needs vectorize=True)"
        )
    return f"{message}, expected {shape_text(output.shape)}"


def _dim_name(output: Operand, axis: int) -> str:
    kind = "loop" if axis < output.n_loop else "core"
    return f"{kind} dimension {output.dims[axis]}"


def _expected_got(wanted: int, got: int, wanted_shape: Sequence[int | None], shape: Sequence[int]) -> str:
    return f"expected {wanted}, kernel returned {got} (shape {shape_text(shape)}, expected {shape_text(wanted_shape)})"


def _check_item_shape(shape: tuple[int, ...], output: Operand, what: str, place: int, expected: Expectation) -> None:
    wanted_shape = output.core_shape
    if len(shape) != len(wanted_shape):
        raise OutputShapeError(
            f"{what}: kernel returned shape {shape_text(shape)} for one item (item {expected.item_text(place)}), "
            f"expected core shape {shape_text(wanted_shape)}"
        )
    for axis, (got, wanted) in enumerate(zip(shape, wanted_shape, strict=True)):
        if wanted is not None and got != wanted:
            name = _dim_name(output, output.n_loop + axis)
            raise OutputShapeError(
                f"{what}, {name}: {_expected_got(wanted, got, wanted_shape, shape)} in item {expected.item_text(place)}"
            )


def _broadcast_loops(array: Array, expected: Expectation) -> Array:
    """Stretch loop axes that came back with length 1; what another library makes of it is no view."""
    n_loop = expected.plan.n_loop
    sizes = zip(array.shape, expected.plan.loop_shape, strict=False)
    loop_shape = tuple(got if size is None else size for got, size in sizes)
    if array.shape[:n_loop] == loop_shape:
        return array
    stretched = broadcast_to(array, (*loop_shape, *array.shape[n_loop:]), expected.xp)
    return stretched if expected.xp is np else copy_of(stretched)


def _check_unknown_sizes(outputs: Sequence[Array], plan: Plan) -> None:
    """Refuse outputs that give one dim of unknown size several sizes."""
    found: dict[str, tuple[int, int]] = {}
    for position, (array, output) in enumerate(zip(outputs, plan.outputs, strict=True)):
        for axis in range(output.n_loop, len(output.dims)):
            if output.shape[axis] is not None:
                continue
            label, size = output.dims[axis], int(array.shape[axis])
            first, source = found.setdefault(label, (size, position))
            if size != first:
                raise OutputShapeError(
                    f"output {position}, core dimension {label}: unknown size is {size}, but {first} in output "
                    f"{source}; "
                    f"expected one size for the whole call"
                )


def _check_integers(
    array: Array, source: np.dtype[Any], dtype: np.dtype[Any], what: str, expected: Expectation
) -> None:
    """Refuse integers that do not fit; where nobody can look, those that might not."""
    if np.can_cast(source, dtype, "safe"):
        return
    limits = _limits(array, expected)
    if limits is not None:
        check_range(*limits, dtype, what, found=expected.found)
        return
    where = f"on device {expected.device}" if expected.has_values else "while it is traced"
    raise OutputDTypeError(
        f"{what}: kernel returned {source}, and {where} nobody can tell whether the values fit into the "
        f"declared {dtype}: cast them in the kernel, or declare {source}"
    )


def _limits(array: Array, expected: Expectation) -> tuple[int, int] | None:
    """Return the smallest and the largest value; None where the library lets nobody look."""
    if not expected.has_values:
        return None
    try:
        return int(expected.xp.min(array)), int(expected.xp.max(array))
    except (BufferError, RuntimeError, TypeError, ValueError):  # each library has its own refusal
        return None


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], expected: Expectation) -> Array:
    if expected.masked:
        return np.ma.empty(shape, dtype)
    return expected.xp.empty(shape, dtype=library_dtype(dtype, expected.xp), **expected.placement)


def _known(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Return the sizes of a block, which are all known."""
    return tuple(size or 0 for size in shape)


def _are_strings(values: Sequence[Any], strings: np.dtype[Any] | None) -> bool:
    """Tell items of a dtype whose scalars are Python's strings and one object that stands for those missing."""
    missing = getattr(strings, "na_object", "")
    return strings is not None and all(type(value) is str or value is missing for value in values)


def _has_no_dtype(value: object) -> bool:
    return type(value) in _WEAK or value is np.ma.masked


def _are_weak(column: Column, dtype: np.dtype[Any]) -> bool:
    """Tell items that cast to an integer dtype as far as their values do, since nobody chose another."""
    if isinstance(column.values, np.ndarray):
        return False
    if column.kinds <= _NUMBERS:
        return all(kind in (bool, int) or may_cast(np.dtype(kind), dtype) for kind in column.kinds)
    return all(is_weak(value) or _casts(value, dtype) for value in column.values)


def _casts(value: Any, dtype: np.dtype[Any]) -> bool:
    return value is np.ma.masked or (hasattr(value, "dtype") and may_cast(numpy_dtype(value.dtype), dtype))


_AS_BATCH: Final = (
    ": the kernel gets a batch, and works along axis=-1 of it (one that takes one item at a time needs vectorize=True)"
)

_WEAK: Final = frozenset({int, float, complex})
"""Python's numbers, which have no dtype of their own; a bool has that of NumPy's."""

_NUMBERS: Final = _WEAK | {bool, *(np.dtype(code).type for code in np.typecodes["All"] if code not in "OSUVMm")}
"""Types of scalars that `numpy.asarray` stacks by itself."""
