"""Calls on JAX arrays: directly where the values are there, as one callback, or one per shard, where they are traced.

Eager and lazy are JAX's own: inside ``jit`` a call is staged even if its arguments are concrete, as calls of JAX's
functions are. Implements the functions of `Lowering`; the modules below it do one step each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._call import Call
from ..._typing import Array, Namespace, Shape
from ._callback import call_back, call_on_shards
from ._direct import call_directly, is_concrete, is_spread, untraced
from ._dtypes import canonical, default_dtype, narrow
from ._entry import convert

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "is_lazy",
    "is_traced",
    "lower",
    "namespace",
    "narrow",
    "shape",
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
    """Return the outputs: of the kernel itself, or of callbacks that will run it."""
    if not is_concrete(arrays):
        return call_back(call, arrays)
    return call_on_shards(call, arrays) if is_spread(arrays) else call_directly(call, arrays)
