"""Building a graph of a million blocks, which nobody computes: what a call costs that only describes work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dask.array as da
import numpy as np

import applyufunc as au

from ._dask import NumPyArray, as_tuple, peak_bytes, settings
from ._family import OURS, Bar, Case, CaseResults, Figures, Measured, Way, Ways

__all__ = ["BARS", "CASES", "TITLE", "measure"]

TITLE: Final = "Building a graph of 1,000,000 blocks"


def one_output(quick: bool) -> Ways:
    """`(n),(n)->()` on two arrays of 1000 x 1000 blocks."""
    return _ways(_dot, "(n),(n)->()", "f8", {}, quick)


def two_outputs(quick: bool) -> Ways:
    """`(n),(n)->(),(p)` on the same."""
    return _ways(_dot_and_ends, "(n),(n)->(),(p)", ("f8", "f8"), {"p": 2}, quick)


CASES: Final[Mapping[str, Case]] = MappingProxyType({"one output": one_output, "two outputs": two_outputs})


def measure(way: Way) -> Measured:
    """Build the graph; five times if it takes no longer than half a second, since little disturbs what is so short."""
    before = peak_bytes()
    with settings():
        outputs, seconds = _built(way)
        if seconds < 0.5:
            seconds = min(seconds, *(_built(way)[1] for _ in range(4)))
        peak = peak_bytes() - before
        values = tuple(map(_values, outputs))
    return Measured(Figures(seconds, 0, 0, peak, 0), values)


def _bars() -> Sequence[Bar]:
    def ratio(results: CaseResults) -> float:
        return results["apply_gufunc"].build / results[OURS].build

    return [Bar("`apply_gufunc`'s seconds, of ours", case, 500, ratio, is_floor=True) for case in CASES]


BARS: Final = _bars()


def _built(way: Way) -> tuple[tuple[da.Array, ...], float]:
    """Return the outputs, and the seconds until they are there; nothing built before makes that faster."""
    begin = time.perf_counter()
    outputs = way()
    return outputs, time.perf_counter() - begin


def _values(output: da.Array) -> NumPyArray:
    """Return what is to be compared: all values, or the shape where there are too many blocks."""
    return np.asarray(output.shape) if output.npartitions > 100 else np.asarray(output)


def _ways(kernel: Any, signature: str, dtypes: Any, output_sizes: Mapping[str, int], quick: bool) -> Ways:
    n_blocks = 10 if quick else 1000
    x, y = (make((2 * n_blocks, 2 * n_blocks, 3), chunks=(2, 2, 3)) for make in (da.ones, da.zeros))

    def ours() -> tuple[Any, ...]:
        return as_tuple(au.apply_ufunc(kernel, signature, x, y, output_dtypes=dtypes, output_sizes=output_sizes))

    def theirs() -> tuple[Any, ...]:
        return as_tuple(da.apply_gufunc(kernel, signature, x, y, output_dtypes=dtypes, output_sizes=output_sizes))

    return {OURS: ours, "apply_gufunc": theirs}


def _dot(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.einsum("...n,...n->...", x, y)  # type: ignore[no-any-return]


def _dot_and_ends(x: NumPyArray, y: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    return _dot(x, y), x[..., [0, -1]]
