"""What a call costs inside ``jax.jit`` on the CPU, beside its peers in one run: one function for each case.

Each function returns seconds per call by name. ``python benchmarks/jax_calls.py`` prints them with the bars, which are
ratios, since a time is that of a machine. Peers: `jax.pure_callback`, `jax.experimental.buffer_callback`, the same
function of JAX's own, and the kernel itself on NumPy arrays.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

import applyufunc as au

__all__ = ["BARS", "hundred_megabytes", "hundred_thousand_elements", "one_element", "thousand_rows"]

BARS: Final = {
    ("one_element", "pure_callback"): 0.2,
    ("hundred_megabytes", "pure_callback"): 0.4,
    ("hundred_megabytes", "native"): 1.3,
    ("thousand_rows", "sequential"): 0.01,
}
"""What a call of ours may cost at most, as a part of what a peer's costs."""


def one_element() -> dict[str, float]:
    """Time a square root of one number, where nothing counts but the call itself."""
    return _compare(1, number=20, rounds=300)


def hundred_thousand_elements() -> dict[str, float]:
    """Time square roots that take about as long as the call itself."""
    return _compare(100_000, number=5, rounds=100)


def hundred_megabytes() -> dict[str, float]:
    """Time square roots of 100 MB, where copies count."""
    return _compare(25_000_000, number=1, rounds=9)


def thousand_rows() -> dict[str, float]:
    """Time a batch of 1,000 rows against a callback for each row."""
    rows = jax.block_until_ready(jnp.ones((1000, 100)) + 1)
    result = jax.ShapeDtypeStruct((), np.float32)

    def sequential(row: jax.Array) -> Any:
        return jax.pure_callback(_row_sum, result, row, vmap_method="sequential")

    ours: Callable[[jax.Array], Any] = au.gufunc("(n)->()", output_dtypes=float)(_row_sum)
    ways = {"ours": ours, "sequential": sequential}
    return _best({name: partial(jax.jit(jax.vmap(way)), rows) for name, way in ways.items()}, number=1, rounds=10)


def _compare(size: int, *, number: int, rounds: int) -> dict[str, float]:
    array = jax.block_until_ready(jnp.ones(size) + 1)
    result = jax.ShapeDtypeStruct((size,), np.float32)
    ways: dict[str, Callable[[jax.Array], Any]] = {
        "ours": au.gufunc("()->()", output_dtypes=float)(np.sqrt),
        "ours, new array": au.gufunc("()->()", output_dtypes=float)(lambda x: np.sqrt(x)),  # noqa: PLW0108  # no ufunc
        "pure_callback": lambda x: jax.pure_callback(np.sqrt, result, x),
        "buffer_callback": buffer_callback(_fill, result),
        "native": jnp.sqrt,
    }
    calls: dict[str, Callable[[], Any]] = {name: partial(jax.jit(way), array) for name, way in ways.items()}
    return _best(calls | {"bare kernel": partial(np.sqrt, np.asarray(array))}, number=number, rounds=rounds)


def _best(calls: Mapping[str, Callable[[], Any]], *, number: int, rounds: int) -> dict[str, float]:
    """Return the least time of each call, in seconds, over rounds in which they take turns; two rounds do not count."""
    timers = {name: timeit.Timer(partial(_wait_for, call)) for name, call in calls.items()}
    times = [{name: timer.timeit(number) / number for name, timer in timers.items()} for _ in range(rounds + 2)]
    return {name: min(one[name] for one in times[2:]) for name in calls}


def _wait_for(call: Callable[[], Any]) -> None:
    jax.block_until_ready(call())


def _fill(_: Any, output: Any, array: Any) -> None:
    np.sqrt(np.asarray(array), out=np.asarray(output))


def _row_sum(row: Any) -> Any:
    return np.sum(row, axis=-1)


def _report(case: Callable[[], dict[str, float]]) -> None:
    times = case()
    print(case.__name__)
    for name, seconds in times.items():
        bar = BARS.get((case.__name__, name))
        ratio = times["ours"] / seconds
        verdict = "" if bar is None else f", bar {bar}: {'kept' if ratio <= bar else 'missed'}"
        print(f"  {name:16} {seconds * 1e6:12.1f} us, ours takes {ratio:.3g} of it{verdict}")


if __name__ == "__main__":
    print(f"jax {jax.__version__}")
    for benchmark in (one_element, hundred_thousand_elements, hundred_megabytes, thousand_rows):
        _report(benchmark)
