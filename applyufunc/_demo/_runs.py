"""One kernel on each backend: what came out, how often the kernel ran, on which shapes, and how long that took.

In: the data, and the name of a backend. Out: a `Run`, its results as NumPy arrays.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._gufunc import GUFunc
from ._sea import Sea
from ._trend import bind, robust_trend

__all__ = ["INSTALL", "Run", "difference", "is_installed", "run_on"]

Trend = GUFunc[Any, tuple[Any, Any]]
Shapes = tuple[tuple[int, ...], ...]
Outcome = tuple[
    str, str, int, NDArray[np.float64], NDArray[np.float64]
]  # type of the result, how, blocks, slope, p-value

# How to get what a backend needs.
INSTALL: Final[Mapping[str, str]] = MappingProxyType({"dask": "pip install 'dask[array]'", "jax": "pip install jax"})


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What one backend did."""

    backend: str
    result_type: str
    how: str  # it came about; empty where there is nothing to say
    n_blocks: int  # pieces that the engine got, of one or more series each
    n_calls: int  # of the kernel
    shapes: frozenset[Shapes]  # of the arguments that the kernel saw, one tuple for each call that differs
    seconds: float  # wall time; tracing and compiling included
    slope: NDArray[np.float64]  # (lat, lon): °C per year; NaN over land
    p_value: NDArray[np.float64]  # (lat, lon)


def is_installed(backend: str) -> bool:
    """Whether the library of a backend can be imported."""
    return find_spec(backend) is not None


def run_on(backend: str, sea: Sea, chunks: tuple[int, ...]) -> Run:
    """Apply the kernel to the data on one backend; `chunks` are those of Dask's input (time, lat, lon)."""
    seen: list[Shapes] = []
    trend = bind(_counted(robust_trend, seen))
    module, run = _RUNNERS[backend]
    library = importlib.import_module(module)
    begin = time.perf_counter()
    result_type, how, n_blocks, slope, p_value = run(library, trend, sea, chunks)
    seconds = time.perf_counter() - begin
    return Run(backend, result_type, how, n_blocks, len(seen), frozenset(seen), seconds, slope, p_value)


def difference(run: Run, reference: Run) -> float:
    """Return the largest difference between two runs in any output; infinite if shapes or NaN do not match."""
    pairs = ((run.slope, reference.slope), (run.p_value, reference.p_value))
    return max(_largest_difference(result, expected) for result, expected in pairs)


def _counted(kernel: Callable[..., tuple[float, float]], seen: list[Shapes]) -> Callable[..., tuple[float, float]]:
    """Return the kernel, so wrapped that it notes the shapes of each call."""

    @functools.wraps(kernel)
    def counted(*arrays: NDArray[np.float64]) -> tuple[float, float]:
        seen.append(tuple(array.shape for array in arrays))  # from many threads: append is atomic
        return kernel(*arrays)

    return counted


def _on_numpy(_: Any, trend: Trend, sea: Sea, chunks: tuple[int, ...]) -> Outcome:  # noqa: ARG001  # as the others
    slope, p_value = trend(sea.years, sea.anomalies, axis=0)
    return _type_name(slope), "", 1, slope, p_value


def _on_dask(da: Any, trend: Trend, sea: Sea, chunks: tuple[int, ...]) -> Outcome:
    anomalies = da.from_array(sea.anomalies, chunks=chunks)
    slope, p_value = trend(sea.years, anomalies, axis=0)
    n_times = anomalies.numblocks[0]
    merged = "time is merged, the map keeps its chunks" if n_times > 1 else "nothing is rechunked"
    how = f"input chunks {anomalies.npartitions}, along time {n_times}: {merged}"
    return _type_name(slope), how, slope.npartitions, *da.compute(slope, p_value)


def _on_jax(jax: Any, trend: Trend, sea: Sea, chunks: tuple[int, ...]) -> Outcome:  # noqa: ARG001  # as the others
    trend_map = jax.jit(jax.vmap(jax.vmap(trend, in_axes=(None, 1)), in_axes=(None, 1)))  # over latitudes, longitudes
    with _double_precision(jax):
        n_callbacks = str(jax.make_jaxpr(trend_map)(sea.years, sea.anomalies)).count("pure_callback[")
        slope, p_value = trend_map(sea.years, sea.anomalies)
        how = f"under jit(vmap(vmap(...))), {n_callbacks} callback for the whole batch"
        return "jax.Array", how, n_callbacks, np.asarray(slope), np.asarray(p_value)


@contextmanager
def _double_precision(jax: Any) -> Iterator[None]:
    """Let JAX compute in float64 as the others do, in all threads: JAX 0.10's callbacks do not see `jax.enable_x64`."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


# The module that a backend needs, and what runs the kernel with it.
_RUNNERS: Final[Mapping[str, tuple[str, Callable[[Any, Trend, Sea, tuple[int, ...]], Outcome]]]] = MappingProxyType(
    {"numpy": ("numpy", _on_numpy), "dask": ("dask.array", _on_dask), "jax": ("jax", _on_jax)}
)


def _type_name(array: object) -> str:
    """Return where a user finds the type: `dask.array.Array`, not the module that defines it."""
    package = type(array).__module__.partition(".")[0]
    return f"{package}.array.{type(array).__name__}" if package == "dask" else f"{package}.{type(array).__name__}"


def _largest_difference(result: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    if result.shape != expected.shape or not np.array_equal(np.isnan(result), np.isnan(expected)):
        return np.inf
    return float(np.max(np.abs(np.nan_to_num(result) - np.nan_to_num(expected)), initial=0.0))
