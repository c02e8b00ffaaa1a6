"""Reductions in the chunks in which an array lies: ours, the same kernel on whole core dimensions, Dask's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dask.array as da
import numpy as np

import applyufunc as au
from applyufunc import reductions

from ._dask import measure, peers, source
from ._family import OURS, PEERS, Bar, Case, CaseResults, Way, Ways, as_tuple

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Reductions"

WAYS: Final = (
    OURS,
    *PEERS,
    "da.mean, da.var",
    "da.einsum",
    "da.cov",
    "da.sum",
    "da.min, da.max",
    "da.argmax",
    "da.topk",
    "da.histogram",
)


def mean_var(quick: bool) -> Ways:
    """Mean and variance along time of 1600 x 1600 x 96 `float32` in tiles of 400 x 400 x 8."""
    x = source((60, 60, 12), (20, 20, 3)) if quick else source((1600, 1600, 96), (400, 400, 8))
    native = {"da.mean, da.var": lambda: (da.mean(x, axis=-1), da.var(x, axis=-1))}
    return _ways(reductions.mean_var, [x], native, dtypes=("f4", "f4"))


def dot(quick: bool) -> Ways:
    """Dot products of two arrays of 1000 x 1000 x 96 `float32` in chunks of 500 x 1000 x 4."""
    shape, chunks = ((50, 50, 12), (25, 50, 2)) if quick else ((1000, 1000, 96), (500, 1000, 4))
    x, y = source(shape, chunks), source(shape, chunks)
    native = {"da.einsum": lambda: (da.einsum("...n,...n->...", x, y),)}
    return _ways(reductions.dot, [x, y], native, dtypes="f4")


def covariance(quick: bool) -> Ways:
    """Covariance of 50 variables in 2,000,000 observations, `float64`, in chunks of 100,000."""
    x = source((2000, 5), (200, 5), "f8") if quick else source((2_000_000, 50), (100_000, 50), "f8")
    return _ways(reductions.covariance, [x], {"da.cov": lambda: (da.cov(x, rowvar=False),)}, dtypes="f8")


def total(quick: bool) -> Ways:
    """Sum along time of 1000 x 1000 x 96 `float32` in tiles of 250 x 250 x 8."""
    x = _tiles(quick)
    return _ways(reductions.sum, [x], {"da.sum": lambda: (da.sum(x, axis=-1),)}, dtypes="f4")


def min_max(quick: bool) -> Ways:
    """Minimum and maximum of the same array."""
    x = _tiles(quick)
    native = {"da.min, da.max": lambda: (da.min(x, axis=-1), da.max(x, axis=-1))}
    return _ways(reductions.min_max, [x], native, dtypes=("f4", "f4"))


def argmax(quick: bool) -> Ways:
    """Place of the maximum in the same array."""
    x = _tiles(quick)
    return _ways(reductions.argmax, [x], {"da.argmax": lambda: (da.argmax(x, axis=-1),)}, dtypes=np.intp)


def top_k(quick: bool) -> Ways:
    """Five greatest of each series of 400 x 400 x 400 `float32` in tiles of 100 x 100 x 100."""
    x = source((20, 20, 40), (10, 10, 20)) if quick else source((400, 400, 400), (100, 100, 100))
    native = {"da.topk": lambda: (da.topk(x, 5, axis=-1),)}
    return _ways(reductions.top_k, [x], native, dtypes="f4", output_sizes={"k": 5}, k=5)


def histogram(quick: bool) -> Ways:
    """Histogram in 50 bins of 20,000,000 `float32` in chunks of 1,000,000."""
    x = source((2000,), (100,)) if quick else source((20_000_000,), (1_000_000,))
    edges = tuple(np.linspace(0.5, 1.5, 51).tolist())
    native = {"da.histogram": lambda: (da.histogram(x, bins=edges)[0],)}
    return _ways(reductions.histogram, [x], native, dtypes=np.int64, output_sizes={"b": 50}, edges=edges)


def logsumexp(quick: bool) -> Ways:
    """Logarithm of the sum of exponentials along time of 1000 x 1000 x 96 `float32` in tiles of 250 x 250 x 8."""
    return _ways(reductions.logsumexp, [_tiles(quick)], {}, dtypes="f4")


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "mean and variance": mean_var,
        "dot": dot,
        "covariance": covariance,
        "sum": total,
        "minimum and maximum": min_max,
        "argmax": argmax,
        "top-k": top_k,
        "histogram": histogram,
        "logsumexp": logsumexp,
    }
)


def _bars() -> Sequence[Bar]:
    def memory(results: CaseResults) -> float:
        return results[OURS].peak / results["rechunk"].peak

    def seconds(results: CaseResults) -> float:
        return results[OURS].seconds / results["rechunk"].seconds

    def native_seconds(results: CaseResults) -> float:
        return results[OURS].seconds / results["da.mean, da.var"].seconds

    return [
        Bar("peak memory, of `rechunk`", "mean and variance", 0.4, memory),
        Bar("seconds, of `da.mean` and `da.var`", "mean and variance", 1, native_seconds),
        Bar("seconds, of `rechunk`", "dot", 0.5, seconds),
        Bar("seconds, of `rechunk`", "covariance", 0.5, seconds),
    ]


BARS: Final = _bars()


def _tiles(quick: bool) -> da.Array:
    return source((60, 60, 12), (20, 20, 3)) if quick else source((1000, 1000, 96), (250, 250, 8))


def _ways(
    reduction: au.GUFunc[Any, Any],
    arrays: Sequence[da.Array],
    native: Mapping[str, Way],
    *,
    dtypes: Any,
    output_sizes: Mapping[str, int] | None = None,
    **keywords: Any,
) -> Ways:
    """Return the ways to reduce arrays; the peers get the function that the reduction is written as, in NumPy."""

    def ours() -> tuple[Any, ...]:
        return as_tuple(reduction(*arrays, **keywords))

    kernel = functools.partial(reduction.__wrapped__, **keywords)
    return {OURS: ours, **peers(kernel, str(reduction.signature), arrays, dtypes, output_sizes), **native}
