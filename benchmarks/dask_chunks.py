"""Core dimensions in several chunks, for kernels that need them whole: what planning all arguments together saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes

import applyufunc as au

from ._dask import NumPyArray, Watched, measure, peers, source
from ._family import OURS, OURS_BY_PARTS, PEERS, Bar, Case, CaseResults, Figures, Ways, as_tuple, best

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Kernels that need core dimensions whole"

WAYS: Final = (OURS, *PEERS, OURS_BY_PARTS, "da.std", "da.einsum")


def series_by_step(quick: bool) -> Ways:
    """Standard deviation along time of 1600 x 1600 x 96 `float32`, one chunk for each step of time."""
    x = source((60, 60, 12), (60, 60, 1)) if quick else source((1600, 1600, 96), (1600, 1600, 1))
    return _deviation_ways(x)


def series_in_tiles(quick: bool) -> Ways:
    """The same array in tiles of 400 x 400 x 8."""
    x = source((60, 60, 12), (20, 20, 3)) if quick else source((1600, 1600, 96), (400, 400, 8))
    return _deviation_ways(x)


def unlike_chunks(quick: bool) -> Ways:
    """Dot products of two arrays of 1600 x 1600 x 48 `float32`, whose chunks lie across each other."""
    if quick:
        return _dot_ways(source((64, 64, 12), (16, 64, 3)), source((64, 64, 12), (64, 12, 12)))
    return _dot_ways(source((1600, 1600, 48), (400, 1600, 12)), source((1600, 1600, 48), (1600, 300, 48)))


def matrices(quick: bool) -> Ways:
    """64 matrices of 1024 x 1024 `float64` times vectors, chunked along both core dimensions."""
    if quick:
        x, y = source((8, 32, 32), (4, 8, 8), "f8"), source((8, 32), (8, 16), "f8")
    else:
        x, y = source((64, 1024, 1024), (8, 256, 256), "f8"), source((64, 1024), (16, 512), "f8")
    signature = "(m,n),(n)->(m)"
    by_parts = au.Reduction(_matvec, np.add, state=signature, state_dtypes=float, independent="m")
    return {
        **_ways(_matvec, signature, x, y),
        OURS_BY_PARTS: lambda: (au.apply_ufunc(_matvec, signature, x, y, core_chunks=by_parts, output_dtypes=float),),
        "da.einsum": lambda: (da.einsum("...mn,...n->...m", x, y),),
    }


def broadcast(quick: bool) -> Ways:
    """Dot products of 6 series with 800 x 800 others of 400 `float32`, in chunks of 20 along time."""
    if quick:
        return _dot_ways(source((6, 1, 1, 40), (1, 1, 1, 40)), source((1, 40, 40, 40), (1, 40, 40, 5)))
    return _dot_ways(source((6, 1, 1, 400), (1, 1, 1, 400)), source((1, 800, 800, 400), (1, 800, 800, 20)))


def ragged(quick: bool) -> Ways:
    """Dot products of two arrays of 800 x 900 x 365 `float32`: months and ragged tiles against chunks of 100 days."""
    if quick:
        x = source((8, 9, 60), ((5, 3), (1, 4, 4), (31, 29)))
        return _dot_ways(x, source((8, 9, 60), ((3, 3, 2), (5, 4), (25, 25, 10))))
    months = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    x = source((800, 900, 365), ((500, 300), (123, 377, 400), months))
    return _dot_ways(x, source((800, 900, 365), ((256, 256, 256, 32), (450, 450), (100, 100, 100, 65))))


def many_small(quick: bool) -> Ways:
    """Dot products of 200 x 200 series of 400 `float64` with one, in 1000 small chunks."""
    n = 10 if quick else 200
    x = source((400, n, n), (40, n, 2), "f8").transpose(2, 1, 0)
    return _dot_ways(x, source((400,), (100,), "f8"))


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "C1": series_by_step,
        "C1b": series_in_tiles,
        "C2": unlike_chunks,
        "C3": matrices,
        "C4": broadcast,
        "C5": ragged,
        "C6": many_small,
    }
)


def _bars() -> Sequence[Bar]:
    budget = parse_bytes(dask.config.get("array.chunk-size"))

    def any_kernel(results: CaseResults) -> float:
        return results[OURS].seconds / best(results, _seconds, PEERS)

    def known_kernel(results: CaseResults) -> float:
        return best(results, _seconds, [OURS, OURS_BY_PARTS]) / best(results, _seconds)

    def of_budget(results: CaseResults) -> float:
        return results[OURS].block / budget

    return [
        *(Bar("seconds, of the faster of `apply_gufunc` and `rechunk`", case, 1.15, any_kernel) for case in CASES),
        *(Bar("seconds, the best of ours, of the fastest other way", case, 1.15, known_kernel) for case in CASES),
        *(Bar("largest block, of the budget", case, 1, of_budget) for case in CASES),
    ]


def _seconds(figures: Figures) -> float:
    return figures.seconds


BARS: Final = _bars()


def _deviation_ways(x: da.Array) -> Ways:
    return {
        **_ways(_std, "(t)->()", x),
        OURS_BY_PARTS: lambda: (da.sqrt(au.reductions.mean_var(x)[1]),),
        "da.std": lambda: (da.std(x, axis=-1),),
    }


def _dot_ways(x: da.Array, y: da.Array) -> Ways:
    return {
        **_ways(_dot, "(n),(n)->()", x, y),
        OURS_BY_PARTS: lambda: (au.reductions.dot(x, y),),
        "da.einsum": lambda: (da.einsum("...n,...n->...", x, y),),
    }


def _ways(kernel: Callable[..., NumPyArray], signature: str, *arrays: da.Array) -> Ways:
    dtype = arrays[0].dtype

    def ours() -> tuple[Any, ...]:
        return as_tuple(au.apply_ufunc(Watched(kernel), signature, *arrays, output_dtypes=dtype))

    return {OURS: ours, **peers(kernel, signature, arrays, dtype)}


def _std(x: NumPyArray) -> NumPyArray:
    return x.std(axis=-1)  # type: ignore[no-any-return]


def _dot(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.einsum("...n,...n->...", x, y)  # type: ignore[no-any-return]


def _matvec(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.einsum("...mn,...n->...m", x, y)  # type: ignore[no-any-return]
