"""Results that vary, inside ``shard_map``, along the mesh axes along which the arguments do.

In: arrays, traced or not. Out: the same values. JAX takes what a callback or a foreign call returns for one and the
same on every device, whatever it was given: a wrong derivative, and a result that is one shard's, would pass for right.

Names of JAX: `jax.typeof`, `jax.lax.pcast`; ``manual_axis_type.varying`` of types (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..._typing import Array

__all__ = ["vary_alike"]


def vary_alike(outputs: Sequence[Array], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs, varying along every mesh axis along which one of `arrays` does."""
    wanted = frozenset[str]().union(*map(_varying, arrays))
    return tuple(_vary(output, wanted - _varying(output)) for output in outputs)


def _varying(array: Array) -> frozenset[str]:
    return frozenset(jax.typeof(array).manual_axis_type.varying)


def _vary(array: Array, names: frozenset[str]) -> Array:
    return jax.lax.pcast(array, tuple(sorted(names)), to="varying") if names else array
