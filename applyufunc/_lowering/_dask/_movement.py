"""Dask arrays with their axes moved, added and dropped, whether or not their sizes are known.

Stands in for an array-API namespace at the door of a call: the functions of Dask's front ends need every size, and some
are missing where `dask.array` builds expressions (``array.query-planning``).
"""

from __future__ import annotations

from typing import Any

from ..._typing import Array

__all__ = ["expand_dims", "permute_dims", "reshape", "squeeze"]


def permute_dims(array: Array, axes: tuple[int, ...]) -> Array:
    """Return the array with its axes in another order."""
    return array.transpose(axes)


def expand_dims(array: Array, *, axis: int) -> Array:
    """Return the array with an axis of length 1 that ends up at `axis`."""
    index: list[Any] = [slice(None)] * array.ndim
    index.insert(axis if axis >= 0 else array.ndim + 1 + axis, None)
    return array[tuple(index)]


def squeeze(array: Array, *, axis: int) -> Array:
    """Return the array without an axis of length 1."""
    index: list[Any] = [slice(None)] * array.ndim
    index[axis] = 0
    return array[tuple(index)]


def reshape(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array with another shape."""
    return array.reshape(shape)
