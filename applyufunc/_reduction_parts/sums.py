"""Parts of reductions that add: sums, products, exponentials, counts.

In: NumPy arrays, core dims last, loop dims first; a piece is empty only where the whole is. Out: arrays, by the
signatures in `reductions`. Knows no chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from .._errors import ArgumentError
from .._lexer import shortened
from .._typing import DType

__all__ = [
    "NumPyArray",
    "Several",
    "dot_chunk",
    "dot_state_dtype",
    "histogram_chunk",
    "is_nan",
    "logsumexp_chunk",
    "logsumexp_combine",
    "logsumexp_dtype",
    "logsumexp_of",
    "logsumexp_state_dtypes",
    "n_bins",
    "sum_chunk",
    "sum_dtype",
    "sum_of_numbers",
    "sum_state_dtype",
    "wide",
]

NumPyArray: TypeAlias = np.ndarray[Any, Any]
Several: TypeAlias = tuple[NumPyArray, ...]

_SHORT: Final = 32  # products; one call of BLAS for each item, as `numpy.vecdot` makes, costs more than adding so few


def sum_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the dtype of `numpy.sum`: the default integer for short ones."""
    if dtype.kind == "u":
        return np.dtype(np.uint64)
    return int if dtype.kind in "bi" else dtype


def sum_state_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the dtype that sums are kept in: of 64 bits at least."""
    return wide(dtype) if dtype.kind in "fc" else sum_dtype(dtype)


def sum_chunk(x: NumPyArray) -> NumPyArray:
    """Return the sum; of short floats in 64 bits, of others pairwise, as NumPy does."""
    if x.dtype.kind in "fc" and wide(x.dtype) != x.dtype:
        return np.einsum("...n->...", x, dtype=wide(x.dtype))  # type: ignore[no-any-return]
    return x.sum(axis=-1)  # type: ignore[no-any-return]


def sum_of_numbers(x: NumPyArray) -> NumPyArray:
    """Return the sum without NaNs."""
    return sum_chunk(_zero_for_nan(x))


def dot_state_dtype(dtype: np.dtype[Any], other: np.dtype[Any]) -> DType:
    """Return the dtype that products are summed in from piece to piece."""
    common = np.result_type(dtype, other)
    return wide(common) if common.kind in "fc" else common


def dot_chunk(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    """Return the sum of products, without conjugating as `numpy.vecdot` does."""
    if x.shape[-1] < _SHORT:
        return np.einsum("...n,...n->...", x, y)  # type: ignore[no-any-return]
    return np.vecdot(x.conj() if x.dtype.kind == "c" else x, y)  # type: ignore[no-any-return]


def logsumexp_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the dtype of a logarithm of real numbers."""
    if dtype.kind == "c":
        raise ArgumentError(f"logsumexp: argument 0 has dtype {dtype}, expected real numbers")
    return dtype if dtype.kind == "f" else float


def logsumexp_state_dtypes(dtype: np.dtype[Any]) -> DType:
    """Return the dtype of maxima and sums: of 64 bits at least."""
    return wide(dtype) if dtype.kind == "f" else float


def logsumexp_chunk(x: NumPyArray) -> Several:
    """Return the maximum, and the sum of exponentials relative to it."""
    x = x.astype(wide(x.dtype) if x.dtype.kind == "f" else np.float64)
    greatest = x.max(axis=-1, initial=-np.inf)
    return greatest, np.exp(x - _finite(greatest)[..., None]).sum(axis=-1)


def logsumexp_combine(greatest: NumPyArray, total: NumPyArray, other: NumPyArray, other_total: NumPyArray) -> Several:
    """Return the same of two pieces."""
    both = np.maximum(greatest, other)
    return both, _relative_to(both, greatest) * total + _relative_to(both, other) * other_total


def logsumexp_of(greatest: NumPyArray, total: NumPyArray) -> NumPyArray:
    """Return the logarithm of the sum."""
    with np.errstate(divide="ignore"):  # of nothing but zeros
        return np.log(total) + _finite(greatest)


def n_bins(_sizes: Mapping[str, int], *, edges: Any) -> int:
    """Return the size of the output of `histogram`."""
    given = np.asarray(edges)
    if given.ndim != 1 or given.size < 2 or (given[:-1] > given[1:]).any():
        text = shortened(repr(given.tolist()))
        raise ArgumentError(f"histogram: keyword 'edges' takes at least two numbers in ascending order, got {text}")
    return given.size - 1


def histogram_chunk(x: NumPyArray, *, edges: Any) -> NumPyArray:
    """Return how many values lie in each bin; the last is closed on both sides, as those of `numpy.histogram`."""
    edges = np.asarray(edges)
    n_rows, n = int(np.prod(x.shape[:-1])), edges.size - 1
    bins = np.searchsorted(edges, x, side="right").reshape(n_rows, x.shape[-1]) - 1
    bins[(x == edges[-1]).reshape(bins.shape)] = n - 1
    rows = np.broadcast_to(np.arange(n_rows)[:, None], bins.shape)
    inside = (bins >= 0) & (bins < n)
    counts = np.bincount(rows[inside] * n + bins[inside], minlength=n_rows * n)
    return counts.reshape(*x.shape[:-1], n)


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a float dtype of 64 bits at least."""
    return np.result_type(dtype, np.float64)


def is_nan(x: NumPyArray) -> NumPyArray:
    """Tell NaNs; there are none but among floats."""
    return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)


def _zero_for_nan(x: NumPyArray) -> NumPyArray:
    return np.where(is_nan(x), x.dtype.type(0), x) if x.dtype.kind in "fc" else x


def _finite(greatest: NumPyArray) -> NumPyArray:
    """Return what exponents are taken relative to."""
    return np.where(np.isfinite(greatest), greatest, 0)


def _relative_to(both: NumPyArray, greatest: NumPyArray) -> NumPyArray:
    """Return the factor for a sum that was taken relative to `greatest`; one that is 0, inf or NaN stays."""
    return np.where(np.isfinite(greatest), np.exp(_finite(greatest) - _finite(both)), 1)
