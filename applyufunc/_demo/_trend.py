"""The kernel of the main job, a SciPy function with no counterpart in Dask or JAX, and its one signature."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._gufunc import gufunc

__all__ = ["bind", "robust_trend"]

bind: Final = gufunc("(t),(t)->(),()", output_dtypes=float, vectorize=True)


def robust_trend(years: NDArray[np.float64], series: NDArray[np.float64]) -> tuple[float, float]:
    """Return the Theil-Sen slope of one series, and the p-value of Kendall's test for a trend; NaN over land."""
    if np.isnan(series).any():
        return np.nan, np.nan
    return stats.theilslopes(series, years).slope, stats.kendalltau(years, series).pvalue
