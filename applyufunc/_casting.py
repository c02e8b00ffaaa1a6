"""One array to the dtype that was declared: `cast` follows NumPy's ``same_kind`` and loses nothing in silence.

In: an array that a kernel returned, a NumPy dtype, words that name the output. Out: an array of that dtype, or an
error.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ._errors import OutputDTypeError, OutputRangeError
from ._typing import Array, DType, Namespace

__all__ = ["astype", "cast", "check_range", "library_dtype", "may_cast", "numpy_dtype"]


def cast(array: Array, dtype: np.dtype[Any], what: str, *, weak: bool = False) -> Array:
    """Return a NumPy array as `dtype`; what does not fit is refused in the name of `what`.

    Values are `weak` where they came as Python numbers, which have no dtype of their own: integers then cast to any
    that holds them, unsigned ones too.
    """
    if array.dtype == dtype:
        return array
    if not may_cast(array.dtype, dtype, weak=weak):
        raise OutputDTypeError(
            f"{what}: kernel returned {array.dtype}, which does not cast to the declared {dtype} (rule: same_kind)"
        )
    if array.dtype.kind in "iu" and dtype.kind in "iu" and array.size:
        values = array.compressed() if isinstance(array, np.ma.MaskedArray) else array
        if values.size:
            check_range(int(values.min()), int(values.max()), dtype, what)
    if array.dtype.names and dtype.names:
        return _cast_fields(array, dtype, what)
    if any(array.dtype.kind in kinds and dtype.kind in kinds for kinds in _CUTTING_KINDS):
        return _cast_uncut(array, dtype, what)
    with np.errstate(over="ignore"):  # a float too large for a narrower one becomes inf, as in NumPy
        return array.astype(dtype)


def may_cast(source: np.dtype[Any], target: np.dtype[Any], *, weak: bool = False) -> bool:
    """Tell whether values of one dtype may become another's, if they fit."""
    if weak and source.kind in "iu" and target.kind in "iu":
        return True
    if target.kind in "SU" and source.kind not in "SU":  # same_kind would cut the text of a number
        return np.can_cast(source, target, "safe")
    return np.can_cast(_plain(source), _plain(target), "same_kind")


def check_range(low: int, high: int, dtype: np.dtype[Any], what: str) -> None:
    """Refuse integers that an integer dtype cannot hold."""
    limits = np.iinfo(dtype)
    if low < limits.min or high > limits.max:
        value = low if low < limits.min else high
        raise OutputRangeError(
            f"{what}: kernel returned {value}, which the declared {dtype} cannot hold ({limits.min} to {limits.max})"
        )


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype for a dtype of any library: itself, or the one of the same name."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        found = np.dtype(str(dtype).rpartition(".")[2])
    return found


def astype(array: Array, dtype: np.dtype[Any], xp: Namespace) -> Array:
    """Return an array of any library as a dtype that it casts to."""
    if xp is np:
        return array if array.dtype == dtype else array.astype(dtype)
    wanted = library_dtype(dtype, xp)
    return array if array.dtype == wanted else xp.astype(array, wanted)


def library_dtype(dtype: np.dtype[Any], xp: Namespace) -> DType:
    """Return the library's own dtype of the same name; its namespace may know it by another, such as ``bool_``."""
    return dtype if xp is np else getattr(xp, dtype.name, dtype)


_CUTTING_KINDS: Final = ("SU", "M", "m")
"""Kinds between which ``same_kind`` cuts: text to fewer characters, times to a coarser unit or past its limits."""


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of the same kind in place of bfloat16, int4 and their like, which NumPy files under void."""
    if dtype.kind != "V" or dtype.names or dtype.type is np.void:
        return dtype
    return np.dtype(np.int8 if "int" in dtype.name else np.float32)


def _cast_fields(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Cast every field by itself, so that each is checked."""
    result = np.ma.empty(array.shape, dtype) if isinstance(array, np.ma.MaskedArray) else np.empty(array.shape, dtype)
    for source, target in zip(array.dtype.names or (), dtype.names or (), strict=True):
        result[target] = cast(array[source], dtype[target].base, f"{what}, field {target}")
    return result


def _cast_uncut(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Cast, and compare values with what is left of them on the way back: it finds times past a unit's limits too."""
    try:
        result = array.astype(dtype)
        kept = result.astype(array.dtype) == array
    except OverflowError:  # NumPy from 2.5 on; earlier ones wrap around
        result, kept = array, np.array(False)
    if array.dtype.kind in "mM":
        kept = kept | (np.isnat(array) & np.isnat(result))
    if not np.ma.filled(kept, True).all():
        raise OutputRangeError(f"{what}: kernel returned {array.dtype} values that the declared {dtype} would cut")
    return result
