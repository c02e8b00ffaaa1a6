"""Calls on JAX arrays: directly where the values are there, as one callback, or one per shard, where they are traced.

A kernel that JAX can trace needs neither. Eager and lazy are JAX's own: inside ``jit`` a call is staged even if its
arguments are concrete, as calls of JAX's functions are. Implements the functions of `Lowering`; the modules below it
do one step each.

Names of JAX: `jax.core.Tracer` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._call import Call
from ..._errors import warn_caller
from ..._explanation import Execution, Way, in_one_block
from ..._kernel import Kernel
from ..._typing import Array, Namespace, Shape
from .._plain import look, repeat, settled
from ._callback import call_back, call_on_shards, find_route, is_gathered
from ._direct import call_directly, common_device, is_concrete, is_spread, lend, untraced
from ._dtypes import canonical, default_dtype, narrow, narrowing_texts
from ._entry import convert
from ._traced import check_whole, trace

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "is_traced",
    "lend",
    "look",
    "lower",
    "namespace",
    "narrow",
    "repeat",
    "settled",
    "shape",
    "traces",
    "untraced",
]


def namespace(array: Array) -> Namespace:
    """Return the module with the library's functions: NumPy's for an argument that was not JAX's."""
    return np if isinstance(array, np.ndarray) else jnp


def shape(array: Array) -> Shape:
    """Return the shape; every size is known, under a trace too."""
    return tuple(array.shape)


def is_lazy(arrays: Sequence[Array]) -> bool:
    """Tell whether the call is traced: by a transformation, or since each device is to work on its own shards."""
    return not is_concrete(arrays) or is_spread(arrays)


def traces(kernel: Kernel) -> bool:
    """Tell a kernel that JAX runs itself, batches, differentiates and shards."""
    return kernel.is_traced_by("jax")


def is_traced(value: object) -> bool:
    """Tell a value that stands for what a transformation will put there."""
    return isinstance(value, jax.core.Tracer)


def as_block(array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array as a JAX array on the default device, concrete inside a trace too."""
    with untraced():
        return jnp.asarray(array)


def block_kind(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return that the blocks are JAX's, and what 64-bit dtypes become now."""
    return jax.Array, canonical(np.dtype(np.float64))


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs: of the kernel itself, traced or called, or of callbacks that will run it."""
    for text in _warnings(call):
        warn_caller(text, UserWarning)  # the category of JAX's own
    if traces(call.kernel):
        return trace(call, arrays, lower)
    if _is_direct(call, arrays):
        return call_directly(call, arrays)
    return call_on_shards(call, arrays, lower) if is_concrete(arrays) else call_back(call, arrays, lower)


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Say that the kernel gets the whole arrays, directly, traced, or in a callback."""
    if traces(call.kernel):
        check_whole(call)
        return in_one_block(call.plan, call.runner.array_positions, "traced", _warnings(call))
    if is_concrete(arrays):
        common_device(arrays, call.runner)
    else:
        find_route(call, arrays)
    way: Way = "direct" if _is_direct(call, arrays) else "callback"
    return in_one_block(call.plan, call.runner.array_positions, way, _warnings(call))


def _is_direct(call: Call, arrays: Sequence[Array]) -> bool:
    """Tell a call of the kernel on the whole arrays, now."""
    return is_concrete(arrays) and (not is_spread(arrays) or is_gathered(call, arrays))


def _warnings(call: Call) -> tuple[str, ...]:
    """Return what a call is warned of: dtypes that the caller asked for, and JAX does not hold."""
    return narrowing_texts(call.wanted, call.dtypes) if call.dtypes_from == "declared" else ()
