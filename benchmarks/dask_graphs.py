"""Building a graph, of a million blocks or of ten, which nobody computes: a call that only describes work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dask.array as da
import numpy as np

import applyufunc as au

from ._calls import seconds_in_turns
from ._dask import NumPyArray, settings
from ._family import OURS, PEERS, Bar, Case, CaseResults, Figures, Measured, Way, Ways, as_tuple
from ._machine import peak_bytes

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure", "ways_to_build"]

TITLE: Final = "Building a graph"

WAYS: Final = (OURS, PEERS[0])


def one_output(quick: bool) -> Ways:
    """`(n),(n)->()` on two arrays of 1000 x 1000 blocks."""
    return ways_to_build(10 if quick else 1_000_000)


def two_outputs(quick: bool) -> Ways:
    """`(n),(n)->(),(p)` on the same."""
    n_blocks = 10 if quick else 1_000_000
    return _ways(_dot_and_ends, "(n),(n)->(),(p)", n_blocks, output_dtypes=("f8", "f8"), output_sizes={"p": 2})


def few_blocks(_quick: bool) -> Ways:
    """`(n),(n)->()` on two arrays of 10 blocks, the everyday call, again and again."""
    return ways_to_build(10)


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {"one output": one_output, "two outputs": two_outputs, "10 blocks": few_blocks}
)


def measure(way: Way) -> Measured:
    """Build the graph; again and again if that takes less than half a second, since little disturbs so short a time."""
    before = peak_bytes()
    with settings():
        outputs, seconds = _built(way)
        if seconds < 0.5:
            seconds = min(seconds, *seconds_in_turns(way))
        peak = peak_bytes() - before
        values = tuple(map(_values, outputs))
    return Measured(Figures(seconds, 0, 0, peak, 0), values)


def ways_to_build(n_blocks: int) -> Ways:
    """Return the ways to build the graph of dot products of two arrays, in a grid of blocks as square as it can be."""
    return _ways(_dot, "(n),(n)->()", n_blocks, output_dtypes="f8")


def _bars() -> Sequence[Bar]:
    def ratio(results: CaseResults) -> float:
        return results["apply_gufunc"].build / results[OURS].build

    def of_peer(results: CaseResults) -> float:
        return results[OURS].build / results["apply_gufunc"].build

    many = "one output", "two outputs"
    return [
        *(Bar("`apply_gufunc`'s seconds, of ours", case, 500, ratio, is_floor=True) for case in many),
        Bar("seconds, of `apply_gufunc`", "10 blocks", 0.5, of_peer),
    ]


BARS: Final = _bars()


def _built(way: Way) -> tuple[tuple[da.Array, ...], float]:
    """Return the outputs, and the seconds until they are there; nothing built before makes that faster."""
    begin = time.perf_counter()
    outputs = way()
    return outputs, time.perf_counter() - begin


def _values(output: da.Array) -> NumPyArray:
    """Return what is to be compared: all values, or the shape where there are too many blocks."""
    return np.asarray(output.shape) if output.npartitions > 100 else np.asarray(output)


def _ways(kernel: Any, signature: str, n_blocks: int, **declared: Any) -> Ways:
    n_rows = 10 ** (int(np.log10(n_blocks)) // 2)
    x, y = (make((2 * n_rows, 2 * n_blocks // n_rows, 3), chunks=(2, 2, 3)) for make in (da.ones, da.zeros))

    def ours() -> tuple[Any, ...]:
        return as_tuple(au.apply_ufunc(kernel, signature, x, y, **declared))

    def theirs() -> tuple[Any, ...]:
        return as_tuple(da.apply_gufunc(kernel, signature, x, y, **declared))

    return {OURS: ours, "apply_gufunc": theirs}


def _dot(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.einsum("...n,...n->...", x, y)  # type: ignore[no-any-return]


def _dot_and_ends(x: NumPyArray, y: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    return _dot(x, y), x[..., [0, -1]]
