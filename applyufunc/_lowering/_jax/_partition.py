"""The fast call in a program for several devices: one call per shard, wherever the arrays happen to lie.

In: a block runner with its identity. Out: a function of traced arrays. XLA decides on layouts when the program is
compiled, and is told by a rule, made of the signature, which dims may stay cut. Arguments that are the same on every
device are split among the devices, since else each would do all the work.

Names of JAX: `jax.experimental.custom_partitioning.custom_partitioning` and ``SdyShardingRule`` with ``ArrayMapping``,
`jax.lax.optimization_barrier`, `jax.sharding.NamedSharding`, ``Sharding._device_assignment``,
``jax_use_shardy_partitioner`` of `jax.config` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import Mesh, NamedSharding

from ..._blocks import BlockRunner
from ..._plan import Operand, Plan
from ..._typing import Array, Staged
from .._identity import Identified
from ._cuts import Cut, Wish, array_operands, cut_as_wished, cut_evenly, independent_sizes, reduced_dims, wishes
from ._foreign import Program, find_call, foreign_call
from ._states import run_on_shard
from ._types import output_types

__all__ = ["call_per_shard"]


def call_per_shard(identified: Identified) -> Staged:
    """Return the function that calls the kernel once for each shard of the arrays that it is given."""
    if not jax.config.jax_use_shardy_partitioner:  # type: ignore[attr-defined]
        return partial(_call, identified, Program())  # the older one takes no rule, and has each device do all the work
    partitioned = custom_partitioning(partial(_call, identified), static_argnums=(0,))
    rule = partial(_sharding_rule, identified.runner)
    partitioned.def_partition(partial(_partition, identified), decode_shardings=True, sharding_rule=rule)

    def call(*arrays: Array) -> tuple[Array, ...]:
        # What comes from a callback of JAX's has a layout that `custom_partitioning` cannot read.
        return tuple(partitioned(Program(), *jax.lax.optimization_barrier(arrays)))

    return call


def _call(identified: Identified, program: Program, *arrays: Array) -> tuple[Array, ...]:
    return foreign_call(identified, output_types(identified.runner, arrays), *arrays)


def _call_and_keep(program: Program, identified: Identified, *arrays: Array) -> tuple[Array, ...]:
    """Run a kernel in a part of a program: JAX lowers that by itself, and then forgets what was to be kept alive."""
    types = output_types(identified.runner, arrays)
    program.calls.add(find_call(identified, arrays, types))
    return foreign_call(identified, types, *arrays)


def _partition(
    identified: Identified, program: Program, mesh: Mesh, arguments: Sequence[Any], results: Sequence[Any]
) -> tuple[Mesh, Callable[..., Any], tuple[NamedSharding, ...], tuple[NamedSharding, ...]]:
    """Return what runs on each device, and the layouts that it takes and gives, near to those that XLA proposes."""
    runner = identified.runner
    plan = runner.plan(arguments)
    if mesh.empty:  # the program's layouts are of a kind that names no axes
        mesh = Mesh(np.array(results[0].sharding._device_assignment, dtype=object), ("devices",))
    inputs = array_operands(runner, plan)
    wished = [
        wish
        for operand, array in (*zip(plan.outputs, results, strict=True), *zip(inputs, arguments, strict=True))
        for wish in wishes(operand, array.sharding.spec if isinstance(array.sharding, NamedSharding) else ())
    ]
    cut = _fit_cut(runner, plan, wished, mesh)
    run = partial(run_on_shard, partial(_call_and_keep, program), identified, plan, cut)
    takes, gives = (tuple(NamedSharding(mesh, cut.spec(o)) for o in operands) for operands in (inputs, plan.outputs))
    return mesh, run, gives, takes


def _fit_cut(runner: BlockRunner, plan: Plan, wished: Sequence[Wish], mesh: Mesh) -> Cut:
    """Return the cut along the mesh axes that are wished for; where nothing is cut, along all that there are."""
    cut = cut_as_wished(runner, plan, wished, mesh.shape)
    return cut if cut.axes else cut_evenly(cut, independent_sizes(runner, plan), mesh.shape, mesh.axis_names)


def _sharding_rule(
    runner: BlockRunner, program: Program, mesh: Mesh, arguments: Sequence[Any], results: Sequence[Any]
) -> SdyShardingRule:
    """Return, for XLA, that dims of one label are cut alike, and that those of no label that may be cut are whole."""
    plan = runner.plan(arguments)
    labels = [*independent_sizes(runner, plan), *reduced_dims(runner)]
    factors = {label: f"cut{place}" for place, label in enumerate(labels)}
    whole = map("whole{}".format, count())

    def mapping(operand: Operand) -> ArrayMapping:
        pairs = zip(operand.dims, operand.shape, strict=True)
        return ArrayMapping(
            *(factors[label] if label in factors and size != 1 else next(whole) for label, size in pairs)
        )

    takes, gives = (tuple(map(mapping, operands)) for operands in (array_operands(runner, plan), plan.outputs))
    kept_whole = tuple(name for names in (*takes, *gives) for name in names if name not in factors.values())
    return SdyShardingRule(takes, gives, need_replication_factors=kept_whole)
