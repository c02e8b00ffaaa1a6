"""What grows with the number of blocks, of elements and of arguments, beside the same of peers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from ._calls import measure_call, seconds_in_turns
from ._dask import settings
from ._family import KERNEL, OURS, Way, Ways
from ._growth import Growth
from .dask_graphs import WAYS as WAYS_TO_BUILD
from .dask_graphs import ways_to_build
from .jax_calls import CALLBACK, square_roots
from .numpy_calls import LAZY_APPLY, VECTORIZE, XARRAY, ways_to_call

__all__ = ["TITLE", "growths"]

TITLE: Final = "How cost grows"

BLOCKS: Final = tuple(10**n for n in range(1, 7))
ELEMENTS: Final = tuple(10**n for n in range(2, 9))
ARGUMENTS: Final = (1, 2, 4, 8, 16)

LEAST: Final = 1e-9  # seconds; what is measured as less has no logarithm


def growths() -> Mapping[str, Growth]:
    """Return all that is measured, by name."""
    build = partial(Growth, "blocks", sizes=BLOCKS, names=WAYS_TO_BUILD, ways=ways_to_build)
    call = partial(Growth, "elements", sizes=ELEMENTS)
    of_jax = (OURS, CALLBACK, "buffer_callback", "jnp.sqrt", KERNEL)
    of_arguments = (OURS, LAZY_APPLY, XARRAY, VECTORIZE)
    return {
        "Dask, build": build(cost="seconds to build a graph", measure=_seconds_to_build),
        "Dask, pickle": build(cost="bytes of a pickled graph", measure=_pickled_bytes),
        "NumPy, elements": call(
            cost="seconds of a call", names=(OURS, LAZY_APPLY, KERNEL), ways=_square_roots, measure=_seconds
        ),
        "JAX, elements": call(cost="seconds of a call in a program", names=of_jax, ways=square_roots, measure=_seconds),
        "NumPy, arguments": Growth(
            "arguments", "seconds beyond the bare kernel", ARGUMENTS, of_arguments, _ends, _overhead
        ),
    }


def _seconds_to_build(way: Way) -> float:
    with settings():
        return _seconds(way)


def _pickled_bytes(way: Way) -> float:
    with settings():
        return len(pickle.dumps(way()))


def _square_roots(size: int) -> Ways:
    return ways_to_call(np.sqrt, "()->()", [np.ones(size, "f4")])


def _seconds(way: Way) -> float:
    (seconds,) = seconds_in_turns(way)
    return seconds


def _ends(n_arguments: int) -> Ways:
    arrays = np.random.default_rng(0).random((n_arguments, 100, 8))
    return ways_to_call(_dot_ends, f"{','.join(n_arguments * ['(n)'])}->()", list(arrays))


def _dot_ends(*arrays: Any) -> Any:
    return np.vecdot(arrays[0], arrays[-1])


def _overhead(way: Way) -> float:
    return max(LEAST, measure_call(way).figures.beyond_kernel)
