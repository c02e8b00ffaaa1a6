"""A mapped axis is one more loop dim of the same call: one call for a batch, however ``vmap`` is nested.

In: arrays, and where the mapped axis of each is. Out: arrays of which those that are mapped have it first, such that
loop dims broadcast from the right; nothing is stretched in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._typing import Array

__all__ = ["mapped_first"]


def mapped_first(arrays: Sequence[Array], in_dims: Sequence[int | None], n_core: Sequence[int]) -> list[Array]:
    """Return arrays with their mapped axis in front of all loop dims that any of them has."""
    placed = list(zip(arrays, in_dims, n_core, strict=True))
    n_loop = max(array.ndim - (axis is not None) - n for array, axis, n in placed)
    return [array if axis is None else _first(array, axis, n_loop + n) for array, axis, n in placed]


def _first(array: Array, axis: int, ndim: int) -> Array:
    """Return an array with one axis in front of `ndim` others, some of them new."""
    moved = array.movedim(axis, 0)
    return moved[(slice(None), *(None,) * (ndim - (moved.ndim - 1)))]
