"""A cotangent with all loop dims of a call made one of an argument that had fewer: what was broadcast is summed.

In: an array, and the type of the argument. Out: an array of that type. Knows no kernels.

Names of JAX: `jax.typeof`, `jax.lax.psum`, `jax.sharding.reshard`, `sharding` of types (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from ..._typing import Array
from ._varying import vary, varying_axes

__all__ = ["unbroadcast"]


def unbroadcast(cotangent: Array, target: Any) -> Array:
    """Return a cotangent of the shape and dtype of `target`, the type of an argument."""
    n_new = cotangent.ndim - target.ndim
    sizes = enumerate(zip(cotangent.shape[n_new:], target.shape, strict=True), n_new)
    axes = (*range(n_new), *(axis for axis, (size, wanted) in sizes if wanted == 1 != size))
    if axes:
        cotangent = jnp.squeeze(jnp.sum(cotangent, axes, keepdims=True), tuple(range(n_new)))
    return _sum_over_shards(_laid_out_alike(cotangent.astype(target.dtype), target), target)


def _laid_out_alike(cotangent: Array, target: Any) -> Array:
    """Return a cotangent of the argument's layout, where types say it: core dims come whole from a rule."""
    is_typed = AxisType.Explicit in target.sharding.mesh.axis_types
    return jax.sharding.reshard(cotangent, target.sharding) if is_typed else cotangent


def _sum_over_shards(cotangent: Array, target: Any) -> Array:
    """Sum over the mesh axes, inside ``shard_map``, along which the argument was one and the same."""
    wanted = varying_axes(target)
    shared = varying_axes(jax.typeof(cotangent)) - wanted
    return vary(jax.lax.psum(cotangent, tuple(sorted(shared))) if shared else cotangent, wanted)
