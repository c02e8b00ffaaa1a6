"""A mapped axis is one more loop dim of the same call: one call for a batch, however ``vmap`` is nested.

In: a function of arrays that broadcasts their loop dims from the right. Out: the same function, under that rule. An
argument that is not mapped stays as it is, of lower rank, so that nothing is stretched in memory.

Names of JAX: `jax.custom_batching.custom_vmap` (tried with 0.10.2 and 0.12.0), which has no rule for derivatives of its
own here: those stand outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from ..._blocks import BlockRunner
from ..._typing import Array, Staged

__all__ = ["batch_in_one_call"]


def batch_in_one_call(function: Staged, runner: BlockRunner) -> Staged:
    """Return `function`, taking the axis of ``vmap`` as a loop dim in front of the others."""
    n_core = [len(runner.signature.inputs[position]) for position in runner.array_positions]
    mapped = custom_vmap(function)

    @mapped.def_vmap
    def rule(size: int, is_mapped: Sequence[bool], *arrays: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
        n_loop = [array.ndim - is_new - n for array, is_new, n in zip(arrays, is_mapped, n_core, strict=True)]
        triples = zip(arrays, is_mapped, n_loop, strict=True)
        outputs = mapped(*(_behind_first(a, max(n_loop) - n) if is_new else a for a, is_new, n in triples))
        return outputs, (True,) * len(outputs)

    return mapped


def _behind_first(array: Array, n_missing: int) -> Array:
    """Return an array with axes of length 1 behind its first one, for the loop dims that others have there."""
    return jnp.expand_dims(array, tuple(range(1, 1 + n_missing))) if n_missing else array
