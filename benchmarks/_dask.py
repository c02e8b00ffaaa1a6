"""Dask's side of a benchmark: arrays that cost little to make, the same kernel through Dask alone, what a run costs.

Everything runs on the threaded scheduler, with a thread for each core.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask.array.core import PerformanceWarning
from dask.base import compute
from dask.callbacks import Callback

import applyufunc as au

from ._family import PEERS, Figures, Measured, Way, as_tuple
from ._machine import n_cores, peak_bytes

__all__ = ["Watched", "measure", "peers", "settings", "source"]

NumPyArray: TypeAlias = np.ndarray[Any, Any]


def source(shape: tuple[int, ...], chunks: Any, dtype: str = "f4") -> da.Array:
    """Return an array whose blocks are written anew whenever they are needed, at the cost of a copy."""
    zeros = da.zeros(shape, chunks=chunks, dtype=dtype)
    noise: da.Array = da.map_blocks(_noise, zeros, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))
    return noise


@dataclass(frozen=True, slots=True)
class Watched:
    """A kernel whose arguments and results count for the largest block."""

    func: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return str(getattr(self.func, "__name__", "kernel"))

    def __call__(self, *blocks: NumPyArray) -> Any:
        """Return the kernel's own result."""
        _BLOCKS.extend(block.nbytes for block in blocks)
        return self.func(*blocks)


def peers(
    kernel: Callable[..., Any],
    signature: str,
    arrays: Sequence[da.Array],
    dtypes: Any,
    output_sizes: Mapping[str, int] | None = None,
) -> dict[str, Way]:
    """Return the ways to apply a kernel with Dask alone: to the arrays as they are, and with core dimensions merged."""
    how = {"output_dtypes": dtypes, "output_sizes": output_sizes, "allow_rechunk": True}
    n_cores_of = [len(dims) for dims in au.Signature.parse(signature).inputs]

    def as_they_are() -> tuple[da.Array, ...]:
        return as_tuple(da.apply_gufunc(Watched(kernel), signature, *arrays, **how))

    def merged() -> tuple[da.Array, ...]:
        whole = [a.rechunk(dict.fromkeys(range(-n, 0), -1)) for a, n in zip(arrays, n_cores_of, strict=True)]
        return as_tuple(da.apply_gufunc(Watched(kernel), signature, *whole, **how))

    return dict(zip(PEERS, (as_they_are, merged), strict=True))


def measure(way: Way) -> Measured:
    """Build the graph and compute it."""
    _BLOCKS.clear()
    n_tasks: list[int] = []
    before = peak_bytes()
    with settings():
        begin = time.perf_counter()
        lazy = way()
        built = time.perf_counter()
        with _watch(n_tasks):
            outputs = compute(*lazy)
        computed = time.perf_counter()
    peak = peak_bytes() - before
    return Measured(Figures(built - begin, computed - built, sum(n_tasks), peak, max(_BLOCKS)), outputs)


@contextmanager
def settings() -> Iterator[None]:
    """Give all ways the same threads; warnings of many or large chunks are what is to be measured."""
    with warnings.catch_warnings(), dask.config.set(scheduler="threads", num_workers=n_cores()):
        warnings.simplefilter("ignore", PerformanceWarning)
        warnings.simplefilter("ignore", au.ApplyUfuncWarning)
        yield


def _watch(n_tasks: list[int]) -> Any:
    """Return what notes the number of tasks of each graph that is run, and the bytes of what they return."""

    def start(graph: Mapping[Any, Any]) -> None:
        n_tasks.append(len(graph))

    def posttask(_key: Any, result: Any, *_state: Any) -> None:
        _BLOCKS.append(_nbytes(result))

    return Callback(start=start, posttask=posttask)


def _nbytes(result: Any) -> int:
    if isinstance(result, tuple | list):
        return max(map(_nbytes, result), default=0)
    return int(getattr(result, "nbytes", 0))


def _noise(block: NumPyArray, block_id: tuple[int, ...]) -> NumPyArray:
    """Return numbers that differ from block to block."""
    values = np.roll(_NOISE, 7 * sum(block_id)).astype(block.dtype)
    filled: NumPyArray = np.resize(values, block.shape)
    _BLOCKS.append(filled.nbytes)
    return filled


_NOISE: Final = np.random.default_rng(0).uniform(0.5, 1.5, 1021)  # a prime: it ends anywhere in a chunk

_BLOCKS: Final[list[int]] = []
"""Bytes of the blocks that this process has seen; appending is safe in all threads."""
