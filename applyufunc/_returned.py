"""One value that a kernel returned, made into an array of the outputs' library; what is none is refused by name.

In: the value, which output it is, what is expected of that. Out: an array whose shape and dtype nobody has checked yet.
Knows nothing of the other outputs and items.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any, Final

import numpy as np
from array_api_compat import array_namespace, device

from ._arrays import is_array
from ._casting import cast
from ._errors import OutputRangeError, OutputShapeError, TransferError
from ._expectation import Expectation
from ._plan import Plan, shape_text
from ._typing import Array, Shape

__all__ = ["as_array", "box", "is_object", "is_weak", "kind_text", "unpack"]


def as_array(value: Any, position: int, expected: Expectation, place: int | None = None) -> Array:
    """Return what the kernel returned as an array of the outputs' library; `place`: for which item."""
    dtype = expected.dtype(position)
    if _is_lazy(value):
        raise OutputShapeError(
            f"{expected.name(position)}: kernel returned a lazy {type(value).__module__.partition('.')[0]}."
            f"{type(value).__name__}, expected an array that holds its values"
        )
    if expected.xp is np and _is_item(value, position, expected, place):
        return box([value]).reshape(())
    if value is np.ma.masked:
        return np.ma.masked_all((), dtype or float)  # type: ignore[no-untyped-call]
    if isinstance(value, np.ma.MaskedArray) and expected.xp is np:
        return value
    try:
        array = _converted(value, dtype, expected.name(position), expected)
    except (TypeError, ValueError) as error:
        raise _not_an_array(value, position, expected, place, f": {error}") from None
    if not _has_meaning(value, array, position, expected, place):
        raise _not_an_array(value, position, expected, place)
    _check_device(array, position, expected)
    return array


def box(values: Sequence[Any]) -> Array:
    """Return the values themselves in an array, whatever they are."""
    stacked = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        stacked[place] = value
    return stacked


def unpack(returned: Any, plan: Plan) -> Sequence[Any]:
    """Return what the kernel returned as one value per output."""
    signature = plan.signature
    if signature.nout == 1 and not signature.always_tuple:
        if isinstance(returned, tuple):
            raise OutputShapeError(
                f"kernel returned a tuple of {len(returned)}, expected one array: the signature {str(signature)!r} "
                f"has one output"
            )
        return (returned,)
    is_sequence = isinstance(returned, (tuple, list))
    if not is_sequence or len(returned) != signature.nout:
        got = f"{kind_text(returned)}{f' of {len(returned)}' if is_sequence else ''}"
        raise OutputShapeError(
            f"kernel returned {got}, expected a tuple of {signature.nout}: one array per output of {str(signature)!r}"
        )
    return returned  # type: ignore[no-any-return]  # narrowed through is_sequence


def is_object(dtype: np.dtype[Any] | None) -> bool:
    """Tell that any object may be an item."""
    return dtype is not None and dtype.kind == "O"


def is_weak(value: object) -> bool:
    """Tell integers whose dtype nobody chose: Python's own, alone or in a list."""
    return type(value) in (bool, int, list, tuple)


def kind_text(value: object) -> str:
    """Return what a value is, with the first thing in a list that is no number."""
    if value is None:
        return "None"
    name = type(value).__name__
    text = f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    if not isinstance(value, (list, tuple)):
        return text
    strange = next((part for part in value if not isinstance(part, _USUAL_PARTS)), 0)
    is_usual = isinstance(strange, _USUAL_PARTS) or hasattr(type(strange), "__array__")
    return text if is_usual else f"{text} with {kind_text(strange)} in it"


def _is_lazy(value: Any) -> bool:
    """Tell what Dask would compute in order to make an array of it."""
    is_collection = hasattr(type(value), "__dask_graph__")  # an object may answer to every name
    return is_collection and value.__dask_graph__() is not None  # as `dask.is_dask_collection` asks


def _is_item(value: Any, position: int, expected: Expectation, place: int | None) -> bool:
    """Tell an object that is an item by itself, whatever NumPy would make of it."""
    if is_object(expected.dtype(position)):
        return not isinstance(value, (np.ndarray, list, tuple))
    has_no_core = place is not None and not expected.plan.outputs[position].n_core
    return has_no_core and type(value) is list and expected.takes_objects(position)


def _converted(value: Any, dtype: np.dtype[Any] | None, what: str, expected: Expectation) -> Array:
    if expected.xp is not np:
        return _to_library(value, dtype, what, expected)
    strings = expected.strings if dtype is None and type(value) is str else None
    return np.asarray(value, object if is_object(dtype) else strings)


def _to_library(value: Any, dtype: np.dtype[Any] | None, what: str, expected: Expectation) -> Array:
    """Return an array of a library other than NumPy; one that is there already is itself, on its device."""
    if is_array(value) and not isinstance(value, np.ndarray | np.generic):
        return value if array_namespace(value) is expected.xp else expected.xp.asarray(value, **expected.placement)
    if value is None:  # of which some make a NaN
        raise TypeError(f"{expected.xp.__name__} has no array of it")
    try:
        return expected.xp.asarray(value, **expected.placement)
    except OverflowError as error:
        if dtype is None:
            raise OutputRangeError(f"{what}: kernel returned an integer of more than 64 bits: {error}") from None
        host = cast(np.asarray(value), dtype, what, weak=is_weak(value), found=expected.found)
        return expected.xp.asarray(host, **expected.placement)


def _has_meaning(value: Any, array: Array, position: int, expected: Expectation, place: int | None) -> bool:
    """Tell whether an array is more than a box that NumPy has put around something else, and text an item."""
    if isinstance(value, (str, bytes)) and _wanted_shape(position, expected, place):
        return False
    is_box = expected.xp is np and array.dtype.kind == "O" and not hasattr(type(value), "__array__")
    return (
        not is_box
        or expected.takes_objects(position)
        or all(isinstance(part, (Number, np.generic)) for part in array.flat)
    )


def _check_device(array: Array, position: int, expected: Expectation) -> None:
    """Refuse an array of the outputs' library that is somewhere else than the arguments."""
    if expected.device is not None and device(array) != expected.device:
        raise TransferError(
            f"output {position}: kernel returned an array on device {device(array)}, expected one on device "
            f"{expected.device}, as the arguments: move it in the kernel"
        )


def _wanted_shape(position: int, expected: Expectation, place: int | None) -> Shape:
    """Return the shape that the kernel has to return for a batch, or for one item."""
    output = expected.plan.outputs[position]
    return output.shape if place is None else output.core_shape


def _not_an_array(
    value: Any, position: int, expected: Expectation, place: int | None, reason: str = ""
) -> OutputShapeError:
    item = "" if place is None else f" for item {expected.item_text(place)}"
    shape = _wanted_shape(position, expected, place)
    cure = "" if shape or expected.xp is not np else " (output_dtypes=object takes any object for an item)"
    return OutputShapeError(
        f"{expected.name(position)}: kernel returned {kind_text(value)}{item}, expected an array of shape "
        f"{shape_text(shape)}{cure}{reason}"
    )


_USUAL_PARTS: Final = (Number, np.generic, str, bytes, list, tuple)
