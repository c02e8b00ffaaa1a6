"""Parts of reductions to means, variances and covariances.

Two pieces are brought together as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances" (1979): deviations are taken from the mean of each piece, and no difference of large sums is formed.
In: NumPy arrays, core dims last, loop dims first; a piece is empty only where the whole is. Out: arrays, by the
signatures in `reductions`. Knows no chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import DType
from .sums import NumPyArray, Several, is_nan, sum_chunk, sum_of_numbers, wide

__all__ = [
    "covariance_chunk",
    "covariance_combine",
    "covariance_dtype",
    "covariance_of",
    "covariance_state_dtypes",
    "mean_var_dtypes",
    "mean_var_of",
    "mean_var_of_numbers",
    "mean_var_state_dtypes",
    "moments",
    "moments_of_both",
    "moments_of_numbers",
]


def mean_var_dtypes(dtype: np.dtype[Any]) -> tuple[DType, DType]:
    """Return the dtypes of `numpy.mean` and `numpy.var`."""
    return (dtype, _real(dtype)) if dtype.kind in "fc" else (float, float)


def mean_var_state_dtypes(dtype: np.dtype[Any]) -> tuple[DType, DType, DType]:
    """Return the dtypes of the number of values, their mean, and the sum of squared deviations.

    The mean has 64 bits, since deviations are taken from it. For short floats the rest has 32, as the result has.
    """
    mean = wide(dtype) if dtype.kind in "fc" else np.dtype(float)
    real = _real(mean)
    short = np.dtype(np.float32) if dtype.kind in "fc" and mean != dtype else real
    return short, mean, short


def moments(x: NumPyArray) -> Several:
    """Return the number of values, their mean, and the sum of squared deviations from it."""
    n = x.shape[-1]
    mean = _mean(sum_chunk(x), n)
    with np.errstate(invalid="ignore"):  # infinities
        deviations = x - mean[..., None]
    return np.broadcast_to(np.float64(n), mean.shape), mean, _squares(deviations)


def moments_of_numbers(x: NumPyArray) -> Several:
    """Return the same of the values that are no NaN; the mean of none is 0."""
    valid = ~is_nan(x)
    n = valid.sum(axis=-1).astype(np.float64)
    mean = _mean(sum_of_numbers(x), np.maximum(n, 1))
    with np.errstate(invalid="ignore"):
        deviations = np.where(valid, x - mean[..., None], 0)
    return n, mean, _squares(deviations)


def moments_of_both(
    n: NumPyArray, mean: NumPyArray, squares: NumPyArray, other_n: NumPyArray, other_mean: NumPyArray, other: NumPyArray
) -> Several:
    """Return the moments of two pieces."""
    both, own_share, share = _shares(n, other_n, mean.real.dtype)
    with np.errstate(invalid="ignore"):  # infinities
        delta = other_mean - mean
        return both, own_share * mean + share * other_mean, squares + other + _square(delta) * (n * share)


def mean_var_of(n: NumPyArray, mean: NumPyArray, squares: NumPyArray, *, ddof: float = 0) -> Several:
    """Return mean and variance."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, mean, np.nan), squares / np.maximum(n - ddof, 0)


def mean_var_of_numbers(n: NumPyArray, mean: NumPyArray, squares: NumPyArray, *, ddof: float = 0) -> Several:
    """Return mean and variance, NaN for too few values."""
    mean, var = mean_var_of(n, mean, squares, ddof=ddof)
    return mean, np.where(n > ddof, var, np.nan)


def covariance_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the dtype of `numpy.cov`: of 64 bits at least."""
    return np.result_type(dtype, np.float64)


def covariance_state_dtypes(dtype: np.dtype[Any]) -> tuple[DType, DType, DType]:
    """Return the dtypes of the number of observations, the means, and the sums of products."""
    wide = covariance_dtype(dtype)
    return _real(wide), wide, wide


def covariance_chunk(x: NumPyArray) -> Several:
    """Return the number of observations, the means, and the sums of products of deviations."""
    n = x.shape[-2]
    x = x.astype(np.result_type(x.dtype, np.float64))
    mean = _mean(x.sum(axis=-2), n)
    x -= mean[..., None, :]
    return np.broadcast_to(np.float64(n), mean.shape[:-1]), mean, np.swapaxes(x, -1, -2) @ x.conj()


def covariance_combine(
    n: NumPyArray,
    mean: NumPyArray,
    products: NumPyArray,
    other_n: NumPyArray,
    other_mean: NumPyArray,
    other: NumPyArray,
) -> Several:
    """Return the same of two pieces."""
    both, own_share, share = (part[..., None] for part in _shares(n, other_n, mean.real.dtype))
    delta = other_mean - mean
    between = delta[..., :, None] * delta[..., None, :].conj()
    products = products + other + between * (n[..., None, None] * share[..., None])
    return both[..., 0], own_share * mean + share * other_mean, products


def covariance_of(n: NumPyArray, _mean: NumPyArray, products: NumPyArray, *, ddof: float = 1) -> NumPyArray:
    """Return the covariance of every pair of variables."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return products / np.maximum(n - ddof, 0)[..., None, None]


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype


def _mean(total: NumPyArray, n: Any) -> NumPyArray:
    with np.errstate(invalid="ignore"):  # of nothing
        return total / n  # type: ignore[no-any-return]


def _squares(deviations: NumPyArray) -> NumPyArray:
    """Return the sum of absolute squares, without an array of them."""
    if deviations.dtype.kind == "c":
        return _squares(deviations.real) + _squares(deviations.imag)
    return np.einsum("...n,...n->...", deviations, deviations)  # type: ignore[no-any-return]


def _shares(n: NumPyArray, other: NumPyArray, dtype: np.dtype[Any]) -> Sequence[NumPyArray]:
    """Return how many values two pieces have, and the share of each; none of none."""
    both = n + other
    at_least = np.maximum(both, 1)
    return both, np.true_divide(n, at_least, dtype=dtype), np.true_divide(other, at_least, dtype=dtype)


def _square(x: NumPyArray) -> NumPyArray:
    return x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
