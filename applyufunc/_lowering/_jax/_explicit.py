"""A call inside a ``shard_map`` of ours where the types of its arguments say how they are cut.

In: what runs a kernel, a block runner with its identity. Out: a function of traced arrays. In a mesh with Explicit axes
the result's type has to say how it is cut, and in a ``shard_map`` of the caller's that leaves some axes to JAX, a
callback cannot be: both are given to each device on its own. Elsewhere the function is what it was.

Names of JAX: `jax.shard_map`, `jax.typeof`, `jax.sharding.reshard`, `jax.sharding.get_abstract_mesh`,
`jax.sharding.AxisType`, `jax.sharding.NamedSharding`; ``sharding`` of types, ``manual_axes`` and ``auto_axes`` of
meshes (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ..._blocks import BlockRunner
from ..._errors import ArgumentError
from ..._plan import Plan
from ..._typing import Array
from .._identity import Identified
from ._cuts import Cut, Wish, array_operands, cut_as_wished, cut_evenly, independent_sizes, wishes
from ._states import RunIdentified, run_on_shard

__all__ = ["call_on_typed_shards"]


def call_on_typed_shards(run: RunIdentified, identified: Identified, *arrays: Array) -> tuple[Array, ...]:
    """Return the outputs of a call for each shard, where types have shards; of a call on whole arrays elsewhere."""
    runner = identified.runner
    plan = runner.plan(arrays)
    mesh = _mesh(arrays, runner)
    cut = _cut(runner, plan, arrays, mesh)
    takes, gives = (tuple(map(cut.spec, operands)) for operands in (array_operands(runner, plan), plan.outputs))
    arrays = _laid_out(arrays, mesh, takes)
    is_whole = not cut.axes and not _is_partly_manual(mesh)
    if is_whole or not any(array.size for array in arrays):  # XLA loses track of a shard_map of empty arrays
        return _laid_out(run(identified, *arrays), mesh, gives)
    mapped = jax.shard_map(
        partial(run_on_shard, run, identified, plan, cut),
        mesh=mesh,
        in_specs=takes,
        out_specs=gives,
        check_vma=False,  # what a callback returns is of no type that says along what it varies
    )
    return tuple(mapped(*arrays))


def _mesh(arrays: Sequence[Array], runner: BlockRunner) -> Any:
    """Return the abstract mesh of the arguments, else the one that is set; it may be empty. Two are refused by name."""
    pairs = zip(runner.array_positions, (jax.typeof(array).sharding.mesh for array in arrays), strict=True)
    meshes = {position: mesh for position, mesh in pairs if not mesh.empty}
    if len({mesh.shape_tuple for mesh in meshes.values()}) > 1:
        named = ", ".join(f"argument {position} lies on mesh {dict(mesh.shape)}" for position, mesh in meshes.items())
        raise ArgumentError(
            f"kernel {runner.kernel.name!r}: {named}: arrays of two meshes do not mix; move them to one with "
            f"jax.device_put"
        )
    return next(iter(meshes.values()), jax.sharding.get_abstract_mesh())


def _is_partly_manual(mesh: Any) -> bool:
    """Tell a mesh inside a ``shard_map`` that leaves some of its axes alone."""
    return bool(mesh.manual_axes) and len(mesh.manual_axes) < len(mesh.axis_names)


def _cut(runner: BlockRunner, plan: Plan, arrays: Sequence[Array], mesh: Any) -> Cut:
    """Return the cut that the types say; in a partly manual mesh, along the axes that are left to JAX, too."""
    sizes = independent_sizes(runner, plan)
    wished = [
        wish
        for operand, array in zip(array_operands(runner, plan), arrays, strict=True)
        for wish in wishes(operand, jax.typeof(array).sharding.spec)
    ]
    _check_agreement(list(dict.fromkeys(wish for wish in wished if wish[0] in sizes)), runner)
    cut = cut_as_wished(runner, plan, wished, mesh.shape)
    return cut_evenly(cut, sizes, mesh.shape, mesh.auto_axes) if _is_partly_manual(mesh) else cut


def _check_agreement(wished: Sequence[Wish], runner: BlockRunner) -> None:
    """Refuse a dim that arguments have cut in two ways, and a mesh axis along which two dims are cut."""
    for place, (label, names) in enumerate(wished):
        for other, found in wished[:place]:
            if label == other:
                what = f"dimension {label} is cut along {_named(found)} in one argument and {_named(names)} in another"
            elif set(names) & set(found):
                what = f"dimensions {other} and {label} are both cut along {_named(sorted(set(names) & set(found)))}"
            else:
                continue
            raise ArgumentError(
                f"kernel {runner.kernel.name!r}: {what} of the mesh: pass one through jax.sharding.reshard"
            )


def _named(names: Sequence[str]) -> str:
    return " and ".join(f"axis {name!r}" for name in names)


def _laid_out(arrays: Sequence[Array], mesh: Any, specs: Sequence[PartitionSpec]) -> tuple[Array, ...]:
    """Return arrays of types with these layouts, where types have any."""
    if AxisType.Explicit not in mesh.axis_types:
        return tuple(arrays)
    pairs = zip(arrays, specs, strict=True)
    return tuple(jax.sharding.reshard(array, NamedSharding(mesh, spec)) for array, spec in pairs)
