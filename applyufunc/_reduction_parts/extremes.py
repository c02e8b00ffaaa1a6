"""Parts of reductions to the least and the greatest: their values, where they are, and how many there are.

In: NumPy arrays, core dims last, loop dims first; a piece is empty only where the whole is. Out: arrays, by the
signatures in `reductions`. Knows no chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import ArgumentError, DimensionError
from .._typing import DType
from .sums import NumPyArray, Several, is_nan

__all__ = [
    "find_greatest",
    "find_greatest_number",
    "find_least",
    "find_least_number",
    "first_index",
    "first_number_index",
    "keep_greatest",
    "keep_greatest_number",
    "keep_least",
    "keep_least_number",
    "least_and_greatest",
    "least_and_greatest_number",
    "least_and_greatest_number_of_both",
    "least_and_greatest_of_both",
    "n_greatest",
    "place_state_dtypes",
    "same_dtypes",
    "top_k_chunk",
    "top_k_combine",
    "top_k_dtype",
    "top_k_of",
]


def same_dtypes(dtype: DType) -> tuple[DType, DType]:
    """Return the dtype of the input for two outputs."""
    return dtype, dtype


def least_and_greatest(x: NumPyArray) -> Several:
    """Return minimum and maximum; a NaN is both."""
    return x.min(axis=-1), x.max(axis=-1)


def least_and_greatest_of_both(least: NumPyArray, greatest: NumPyArray, *others: NumPyArray) -> Several:
    """Return minimum and maximum of two pieces."""
    return np.minimum(least, others[0]), np.maximum(greatest, others[1])


def least_and_greatest_number(x: NumPyArray) -> Several:
    """Return minimum and maximum of what is no NaN."""
    return np.fmin.reduce(x, axis=-1), np.fmax.reduce(x, axis=-1)


def least_and_greatest_number_of_both(least: NumPyArray, greatest: NumPyArray, *others: NumPyArray) -> Several:
    """Return minimum and maximum of what is no NaN in two pieces."""
    return np.fmin(least, others[0]), np.fmax(greatest, others[1])


def place_state_dtypes(dtype: np.dtype[Any]) -> tuple[DType, DType]:
    """Return the dtypes of a value and of where it is."""
    return dtype, np.dtype(np.int64)


def find_least(x: NumPyArray, *, offset: Mapping[str, int]) -> Several:
    """Return the minimum and where it is first; a NaN is less than all."""
    return _value_and_place(x, x.argmin(axis=-1), offset["n"])


def find_greatest(x: NumPyArray, *, offset: Mapping[str, int]) -> Several:
    """Return the maximum and where it is first; a NaN is greater than all."""
    return _value_and_place(x, x.argmax(axis=-1), offset["n"])


def keep_least(value: NumPyArray, place: NumPyArray, other: NumPyArray, other_place: NumPyArray) -> Several:
    """Return the lesser value with its place; of two that are equal, the first."""
    return _keep((other < value) | _is_first_nan(other, value), value, place, other, other_place)


def keep_greatest(value: NumPyArray, place: NumPyArray, other: NumPyArray, other_place: NumPyArray) -> Several:
    """Return the greater value with its place; of two that are equal, the first."""
    return _keep((other > value) | _is_first_nan(other, value), value, place, other, other_place)


def first_index(_value: NumPyArray, place: NumPyArray) -> NumPyArray:
    """Return where the value is."""
    return place


def find_least_number(x: NumPyArray, *, offset: Mapping[str, int]) -> Several:
    """Return the minimum of what is no NaN, and where it is first; -1 where all is NaN."""
    return _number_and_place(x, _filled(x, np.inf).argmin(axis=-1), offset["n"])


def find_greatest_number(x: NumPyArray, *, offset: Mapping[str, int]) -> Several:
    """Return the maximum of what is no NaN, and where it is first; -1 where all is NaN."""
    return _number_and_place(x, _filled(x, -np.inf).argmax(axis=-1), offset["n"])


def keep_least_number(value: NumPyArray, place: NumPyArray, other: NumPyArray, other_place: NumPyArray) -> Several:
    """Return the lesser number with its place; of two that are equal, the first."""
    return _keep((other_place >= 0) & ((place < 0) | (other < value)), value, place, other, other_place)


def keep_greatest_number(value: NumPyArray, place: NumPyArray, other: NumPyArray, other_place: NumPyArray) -> Several:
    """Return the greater number with its place; of two that are equal, the first."""
    return _keep((other_place >= 0) & ((place < 0) | (other > value)), value, place, other, other_place)


def first_number_index(_value: NumPyArray, place: NumPyArray) -> NumPyArray:
    """Return where the value is; where all is NaN, raise what `numpy.nanargmin` raises."""
    if (place < 0).any():
        raise ValueError("All-NaN slice encountered")
    return place


def n_greatest(sizes: Mapping[str, int], *, k: int) -> int:
    """Return the size of the output of `top_k`."""
    if not 0 <= k <= sizes["n"]:
        raise DimensionError(f"top_k: k is {k}, expected 0 to {sizes['n']}, the size of core dimension 'n'")
    return k


def top_k_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the dtype of the values, of which the least has to be known."""
    if dtype.kind not in "biuf":
        raise ArgumentError(f"top_k: argument 0 has dtype {dtype}, expected real numbers")
    return dtype


def top_k_chunk(x: NumPyArray, *, k: int) -> NumPyArray:
    """Return the `k` greatest values in any order; where there are fewer, with values that are no greater than any."""
    n = x.shape[-1]
    if n < k:
        padding = np.full((*x.shape[:-1], k - n), _lowest(x.dtype))
        return np.concatenate([x, padding], axis=-1)
    return _greatest(x, k)


def top_k_combine(greatest: NumPyArray, other: NumPyArray) -> NumPyArray:
    """Return the greatest values of two pieces."""
    return _greatest(np.concatenate([greatest, other], axis=-1), greatest.shape[-1])


def top_k_of(greatest: NumPyArray) -> NumPyArray:
    """Return the values in order, the greatest first; NaN is greater than all."""
    return np.sort(greatest, axis=-1)[..., ::-1]


def _value_and_place(x: NumPyArray, index: NumPyArray, start: int) -> Several:
    return np.take_along_axis(x, index[..., None], axis=-1)[..., 0], index + start


def _keep(
    takes_other: NumPyArray, value: NumPyArray, place: NumPyArray, other: NumPyArray, other_place: NumPyArray
) -> Several:
    return np.where(takes_other, other, value), np.where(takes_other, other_place, place)


def _is_first_nan(other: NumPyArray, value: NumPyArray) -> NumPyArray:
    """Tell a NaN, or a NaT, that follows none."""
    return np.not_equal(other, other) & np.equal(value, value)


def _number_and_place(x: NumPyArray, index: NumPyArray, start: int) -> Several:
    """Return a number and its place; the index may be that of a NaN that was filled, where all else is infinite."""
    value, place = _value_and_place(x, index, 0)
    valid = ~is_nan(x)
    first = np.where(valid.any(axis=-1), valid.argmax(axis=-1), -1)
    index = np.where(is_nan(value), first, place)
    value = np.where(index < 0, value, _value_and_place(x, np.maximum(index, 0), 0)[0])
    return value, np.where(index < 0, -1, index + start)


def _filled(x: NumPyArray, fill: float) -> NumPyArray:
    return np.where(np.isnan(x), x.dtype.type(fill), x) if x.dtype.kind in "fc" else x


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min)
    return dtype.type(False if dtype.kind == "b" else -np.inf)


def _greatest(x: NumPyArray, k: int) -> NumPyArray:
    n = x.shape[-1]
    return x[..., n - k :] if k in (0, n) else np.partition(x, n - k, axis=-1)[..., n - k :]
