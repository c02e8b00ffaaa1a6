"""Arrays of any library, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from array_api_compat import array_namespace

from .._typing import Array

__all__ = ["concat"]


def concat(arrays: Sequence[Array], axis: int) -> Array:
    """Return arrays of one library as one along an axis; a mask is kept."""
    if len(arrays) == 1:
        return arrays[0]
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        return np.ma.concatenate(arrays, axis=axis)  # type: ignore[no-untyped-call]
    if all(isinstance(array, np.ndarray) for array in arrays):
        return np.concatenate(arrays, axis=axis)
    return array_namespace(*arrays).concat(arrays, axis=axis)
