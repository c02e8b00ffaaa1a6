"""One array to the dtype that was declared: `cast` follows NumPy's ``same_kind`` and loses nothing in silence.

In: an array that a kernel returned, a NumPy dtype, words that name the output. Out: an array of that dtype, or an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import OutputDTypeError, OutputRangeError
from ._typing import Array

__all__ = ["cast", "numpy_dtype"]


def cast(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Return a NumPy array as `dtype`; what does not fit is refused in the name of `what`."""
    if array.dtype == dtype:
        return array
    if not _may_cast(array.dtype, dtype):
        raise OutputDTypeError(f"{what}: kernel returned {array.dtype}, which does not cast to the declared {dtype} (rule: same_kind)")
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        _check_range(array, dtype, what)
    with np.errstate(over="ignore"):  # a float too large for a narrower one becomes inf, as in NumPy
        result = array.astype(dtype)
    if dtype.kind in _CUTTING_KINDS and not np.array_equal(result, array, equal_nan=dtype.kind in "mM"):
        raise OutputRangeError(f"{what}: kernel returned {array.dtype} values that the declared {dtype} would cut")
    return result


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype for a dtype of any library: itself, or the one of the same name."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return np.dtype(str(dtype).rpartition(".")[2])


_CUTTING_KINDS = "SUmM"
"""Kinds that ``same_kind`` casts by cutting: text to fewer characters, times to a coarser unit."""


def _may_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    if _is_extended_float(source) or _is_extended_float(target):
        return np.can_cast(_plain(source), _plain(target), "same_kind")
    if source.kind == "U" and target.kind == "S":
        return False
    return np.can_cast(source, target, "same_kind")


def _is_extended_float(dtype: np.dtype[Any]) -> bool:
    """Tell bfloat16 and its like, which NumPy files under void."""
    return dtype.kind == "V" and dtype.names is None and dtype.type is not np.void


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if _is_extended_float(dtype) else dtype


def _check_range(array: Array, dtype: np.dtype[Any], what: str) -> None:
    limits = np.iinfo(dtype)
    if array.size == 0 or np.can_cast(array.dtype, dtype, "safe"):
        return
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        raise OutputRangeError(f"{what}: kernel returned {low if low < limits.min else high}, which the declared {dtype} cannot hold")
