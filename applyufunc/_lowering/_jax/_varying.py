"""Results that vary, inside ``shard_map``, along the mesh axes along which the arguments do.

In: arrays, traced or not. Out: the same values. JAX takes what a callback or a foreign call returns for one and the
same on every device, whatever it was given: a wrong derivative, and a result that is one shard's, would pass for right.

Names of JAX: `jax.typeof`, `jax.lax.pcast`; ``manual_axis_type.varying`` of types (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..._typing import Array

__all__ = ["vary", "vary_alike", "varying_axes"]


def vary_alike(outputs: Sequence[Array], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs, varying along every mesh axis along which one of `arrays` does."""
    wanted = frozenset[str]().union(*(varying_axes(jax.typeof(array)) for array in arrays))
    return tuple(vary(output, wanted) for output in outputs)


def varying_axes(type_: Any) -> frozenset[str]:
    """Return the mesh axes along which an array of this type varies; none outside ``shard_map``."""
    return frozenset(type_.manual_axis_type.varying)


def vary(array: Array, names: frozenset[str]) -> Array:
    """Return an array that varies along these mesh axes too."""
    missing = names - varying_axes(jax.typeof(array))
    return jax.lax.pcast(array, tuple(sorted(missing)), to="varying") if missing else array
