"""Kernels of PyTorch's own operations: it differentiates, maps and compiles them itself.

In: a call, and tensors of any kind. Out: tensors. A kernel that takes loop dims is called once with all of them; one
that takes an item is mapped by one `torch.vmap` for each loop dim, from the innermost, so that nothing is broadcast
before it has to be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce

import torch

from ..._blocks import BlockRunner
from ..._plan import Plan
from ..._typing import Array, Staged
from ._memory import own_memory

__all__ = ["call_traced"]


def call_traced(runner: BlockRunner, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of the kernel, called with the tensors themselves."""
    plan = runner.plan(arrays)
    whole = _on_whole_blocks(runner)
    if plan.is_empty:
        return _empty(whole, plan, arrays)
    outputs = _map_items(whole, plan, arrays) if runner.kernel.vectorize else whole(*arrays)
    return own_memory(outputs, arrays)


def _on_whole_blocks(runner: BlockRunner) -> BlockRunner:
    """Return a runner that calls the kernel once: with a batch, or, inside `torch.vmap`, with one item."""
    kernel = dataclasses.replace(runner.kernel, arrays="traced", vectorize=False)
    return dataclasses.replace(runner, kernel=kernel)


def _empty(runner: BlockRunner, plan: Plan, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return outputs without items; of undeclared dtypes, those that the kernel has for an item of ones."""
    if runner.dtypes is not None:
        return runner(*arrays)
    items = runner(*map(_item_of_ones, arrays, runner.n_core_inputs))
    return tuple(item.new_empty((*plan.loop_shape, *item.shape)) for item in items)


def _item_of_ones(array: Array, n_core: int) -> Array:
    return array.new_ones(array.shape[array.ndim - n_core :])


def _map_items(runner: BlockRunner, plan: Plan, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a kernel of one item on every item of the loop."""
    n_core = runner.n_core_inputs
    function: Staged = runner
    single = []
    for axis in range(-1, -1 - plan.n_loop, -1):
        in_dims = tuple(0 if _varies(array, axis - n) else None for array, n in zip(arrays, n_core, strict=True))
        if any(in_dim == 0 for in_dim in in_dims):
            function = torch.vmap(function, in_dims)
        else:
            single.append(plan.n_loop + axis)
    outputs = function(*map(_without_single, arrays, n_core))
    return tuple(reduce(torch.unsqueeze, sorted(single), output) for output in outputs)


def _varies(array: Array, axis: int) -> bool:
    return bool(array.ndim >= -axis and array.shape[axis] != 1)


def _without_single(array: Array, n_core: int) -> Array:
    """Return an array without its loop dims of length 1."""
    return array.squeeze(tuple(axis for axis in range(array.ndim - n_core) if array.shape[axis] == 1))
