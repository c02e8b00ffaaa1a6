"""Calls in programs that JAX compiled for the CPU, and eager ones: ours, JAX's callbacks and functions, the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import applyufunc as au

from ._calls import seconds_in_turns
from ._family import KERNEL, OURS, Bar, Case, CaseResults, Figures, Measured, Way, Ways
from ._machine import peak_bytes

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure", "square_roots"]

TITLE: Final = "Calls on JAX arrays"

CALLBACK: Final = "pure_callback"
SEQUENTIAL: Final = f"{CALLBACK}, sequential"
BROADCAST_ALL: Final = f"{CALLBACK}, broadcast_all"
BY_HAND: Final = "device_put"

WAYS: Final = (
    OURS,
    CALLBACK,
    SEQUENTIAL,
    BROADCAST_ALL,
    "buffer_callback",
    BY_HAND,
    "jnp.sqrt",
    "jnp.sum",
    "jnp.dot",
    "jnp.linalg.eigvalsh",
    "jnp.vecdot",
    KERNEL,
)

Function: TypeAlias = Callable[..., Any]


def one_element(quick: bool) -> Ways:
    """100 calls of the square root of one `float32`, where nothing counts but the call itself."""
    return square_roots(1, 1 if quick else 100)


def many_elements(quick: bool) -> Ways:
    """100 calls of the square roots of 100,000, which take about as long as the call itself."""
    return square_roots(10 if quick else 100_000, 1 if quick else 100)


def large_array(quick: bool) -> Ways:
    """One call of the square roots of 100 MB, where copies count."""
    return square_roots(100 if quick else 25_000_000, 1)


def eager(quick: bool) -> Ways:
    """100 calls of dot products, `(n),(n)->()`, of two arrays of 100 x 8 `float32`, not compiled."""
    x, y = jnp.linspace(0, 1, 160 if quick else 1600, dtype="f4").reshape(2, -1, 8)
    functions = {
        OURS: _ours(_dot, "(n),(n)->()"),
        CALLBACK: _callback(_dot, x.shape[:-1]),
        BY_HAND: lambda x, y: jax.device_put(_dot(np.asarray(x), np.asarray(y))),
        "jnp.vecdot": jnp.vecdot,
    }
    return _ways(functions, _dot, [x, y], 1 if quick else 100, compiled=False)


def rows(quick: bool) -> Ways:
    """10 calls of the sum of a row, `(n)->()`, under `jax.vmap` over 1,000 rows of 100."""
    x = jnp.ones((10 if quick else 1000, 100), "f4")
    functions = {
        OURS: _ours(_row_sum, "(n)->()"),
        SEQUENTIAL: _callback(_row_sum, vmap_method="sequential"),
        "jnp.sum": jnp.sum,
    }
    return _ways({name: jax.vmap(function) for name, function in functions.items()}, _row_sum, [x], 1 if quick else 10)


def outer_product(quick: bool) -> Ways:
    """One call of dot products, `(n),(n)->()`, of 2,000 vectors of 10 with 2,000 others, under `jax.vmap` twice."""
    x, y = jnp.linspace(0, 1, 400 if quick else 40_000, dtype="f4").reshape(2, -1, 10)
    functions = {
        OURS: _ours(_dot, "(n),(n)->()"),
        BROADCAST_ALL: _callback(_dot, vmap_method="broadcast_all"),
        "jnp.dot": jnp.dot,
    }
    outer = {name: jax.vmap(jax.vmap(function, (None, 0)), (0, None)) for name, function in functions.items()}
    return _ways(outer, _dot, [x, y], 1, lambda x, y: (x[:, None], y))


def devices(quick: bool) -> Ways:
    """10 calls of the eigenvalues of 128 matrices of 24 x 24, `(n,n)->(n)`, which each of 8 virtual devices has."""
    with suppress(RuntimeError):  # JAX has begun with the devices that it found, as in a test
        jax.config.update("jax_num_cpu_devices", 8)
    everywhere = NamedSharding(Mesh(np.asarray(jax.devices()), "devices"), PartitionSpec())
    # Less than 400 kB, from which on pure_callback on several devices hangs with JAX 0.10.
    shape = (8, 4, 4) if quick else (128, 24, 24)
    x = jax.device_put(np.random.default_rng(0).random(shape, "f4"), everywhere)
    functions: Mapping[str, Function] = {
        OURS: _ours(_eigenvalues, "(n,n)->(n)"),
        CALLBACK: _callback(_eigenvalues, shape[:-1]),
        "jnp.linalg.eigvalsh": partial(jnp.linalg.eigvalsh, symmetrize_input=False),
    }
    return _ways(functions, _eigenvalues, [x], 1 if quick else 10)


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "one element": one_element,
        "100,000 elements": many_elements,
        "100 MB": large_array,
        "eager": eager,
        "1,000 rows": rows,
        "outer product": outer_product,
        "8 devices": devices,
    }
)


def measure(way: Way) -> Measured:
    """Work once for what is compiled then, and again and again for a while; the fastest counts."""
    before = peak_bytes()
    outputs = way()
    (seconds,) = seconds_in_turns(way)
    figures = Figures(build=0, compute=seconds, tasks=0, peak=peak_bytes() - before, block=0)
    return Measured(figures, tuple(map(np.asarray, outputs)))


def square_roots(size: int, n_calls: int = 1) -> Ways:
    """Return the ways to take so many square roots, so many times."""
    x = jnp.ones(size, "f4") + 1
    functions = {
        OURS: _ours(np.sqrt, "()->()"),
        CALLBACK: _callback(np.sqrt, x.shape),
        "buffer_callback": buffer_callback(_fill_square_roots, jax.ShapeDtypeStruct(x.shape, "f4")),
        "jnp.sqrt": jnp.sqrt,
    }
    return _ways(functions, np.sqrt, [x], n_calls)


def _bars() -> Sequence[Bar]:
    def of_callback(results: CaseResults) -> float:
        return results[OURS].seconds / results[CALLBACK].seconds

    def of_native(results: CaseResults) -> float:
        return results[OURS].seconds / results["jnp.sqrt"].seconds

    def of_by_hand(results: CaseResults) -> float:
        return results[OURS].seconds / results[BY_HAND].seconds

    def of_ours(results: CaseResults) -> float:
        return results[SEQUENTIAL].seconds / results[OURS].seconds

    return [
        Bar("seconds, of `pure_callback`", "one element", 0.2, of_callback),
        Bar("seconds, of `pure_callback`", "100 MB", 0.4, of_callback),
        Bar("seconds, of `jnp.sqrt`", "100 MB", 1.3, of_native),
        Bar("seconds, of `np.asarray`, the kernel and `jax.device_put`", "eager", 1.5, of_by_hand),
        Bar("`pure_callback`'s seconds with `sequential`, of ours", "1,000 rows", 100, of_ours, is_floor=True),
    ]


BARS: Final = _bars()


def _ours(kernel: Function, signature: str) -> Function:
    return au.gufunc(signature, output_dtypes=np.float32)(kernel)


def _callback(kernel: Function, shape: tuple[int, ...] = (), vmap_method: str | None = None) -> Function:
    result = jax.ShapeDtypeStruct(shape, np.float32)
    return lambda *arrays: jax.pure_callback(kernel, result, *arrays, vmap_method=vmap_method)


def _ways(
    functions: Mapping[str, Function],
    kernel: Function,
    arrays: Sequence[jax.Array],
    n_calls: int,
    arrange: Function = lambda *blocks: blocks,
    *,
    compiled: bool = True,
) -> Ways:
    """Return the ways to call functions, in programs of their own, and the kernel on what it would be given."""
    programs = {name: jax.jit(function) if compiled else function for name, function in functions.items()}
    ways = {name: _repeated(program, arrays, n_calls) for name, program in programs.items()}
    return {**ways, KERNEL: _repeated(kernel, arrange(*map(np.asarray, arrays)), n_calls)}


def _repeated(function: Function, arrays: Sequence[Any], n_calls: int) -> Way:
    def way() -> tuple[Any, ...]:
        for _ in range(n_calls - 1):
            jax.block_until_ready(function(*arrays))
        return (jax.block_until_ready(function(*arrays)),)

    return way


def _fill_square_roots(_context: Any, output: Any, x: Any) -> None:
    np.sqrt(np.asarray(x), out=np.asarray(output))


def _row_sum(x: Any) -> Any:
    return np.sum(x, axis=-1)


def _dot(x: Any, y: Any) -> Any:
    return np.einsum("...n,...n->...", x, y)


def _eigenvalues(x: Any) -> Any:
    return np.linalg.eigvalsh(np.asarray(x))
