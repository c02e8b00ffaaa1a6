"""Which dims of a call are cut into shards, and along which axes of a mesh.

In: a plan, what shardings say of its operands, the sizes of a mesh's axes. Out: a `Cut`, and what it makes of each
operand. Loop dims can be cut, and a `Reduction`'s core dims; all other core dims come whole. Knows neither arrays nor
programs.

Names of JAX: `jax.sharding.PartitionSpec` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jax.sharding import PartitionSpec

from ..._blocks import BlockRunner
from ..._core_chunks import PiecewiseKernel
from ..._plan import Operand, Plan

__all__ = [
    "Cut",
    "Names",
    "Wish",
    "array_operands",
    "cut_as_wished",
    "cut_evenly",
    "independent_sizes",
    "reduced_dims",
    "wishes",
]

Names: TypeAlias = tuple[str, ...]
"""Axes of a mesh, the outermost first."""

Wish: TypeAlias = tuple[str, Names]
"""The label of a dim, and the mesh axes along which an operand has it cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Mesh axes of the dims that are cut."""

    axes: tuple[Wish, ...] = ()

    def along(self, label: str) -> Names:
        """Return the mesh axes along which a dim is cut; none where it is whole."""
        return dict(self.axes).get(label, ())

    def spec(self, operand: Operand) -> PartitionSpec:
        """Return how an operand is laid out; an axis of length 1 is everywhere."""
        pairs = zip(operand.dims, operand.shape, strict=True)
        names = [self.along(label) if size != 1 else () for label, size in pairs]
        return PartitionSpec(*(each[0] if len(each) == 1 else each or None for each in names))


def array_operands(runner: BlockRunner, plan: Plan) -> tuple[Operand, ...]:
    """Return what the plan says of the arguments that are arrays."""
    operands = (plan.inputs[position] for position in runner.array_positions)
    return tuple(operand for operand in operands if operand is not None)


def independent_sizes(runner: BlockRunner, plan: Plan) -> dict[str, int]:
    """Return the sizes of the dims whose shards have nothing to do with each other."""
    kernel = runner.kernel.func
    independent = kernel.reduction.independent_dims if isinstance(kernel, PiecewiseKernel) else ()
    loop = {str(axis - plan.n_loop): size or 0 for axis, size in enumerate(plan.loop_shape)}
    return loop | {label: size or 0 for label, size in plan.sizes if label in independent}


def reduced_dims(runner: BlockRunner) -> tuple[str, ...]:
    """Return the labels of the core dims that can be reduced shard by shard."""
    kernel = runner.kernel.func
    return kernel.reduction.reduced if isinstance(kernel, PiecewiseKernel) else ()


def wishes(operand: Operand, spec: Iterable[str | Names | None]) -> list[Wish]:
    """Return how an operand of that layout has its dims cut."""
    named = zip(operand.dims, operand.shape, spec, strict=False)  # a spec leaves out what is whole at the end
    return [
        (label, (names,) if isinstance(names, str) else tuple(names))
        for label, size, names in named
        if names and size != 1
    ]


def cut_as_wished(runner: BlockRunner, plan: Plan, wished: Sequence[Wish], mesh: Mapping[str, int]) -> Cut:
    """Return the cut that grants, in their order, all wishes that go together; those for reduced dims come last."""
    independent = independent_sizes(runner, plan)
    sizes = independent | {label: size or 0 for label, size in plan.sizes if label in reduced_dims(runner)}
    axes: dict[str, Names] = {}
    used: set[str] = set()
    for label, names in sorted(wished, key=lambda wish: wish[0] not in independent):
        size = sizes.get(label, 0)
        if label not in axes and used.isdisjoint(names) and size and not size % _n_shards(names, mesh):
            axes[label] = names
            used.update(names)
    return Cut(tuple(axes.items()))


def cut_evenly(cut: Cut, sizes: Mapping[str, int], mesh: Mapping[str, int], names: Iterable[str]) -> Cut:
    """Return `cut` with more mesh axes, the longest first, each along the dim that is longest by then, if it fits."""
    left = {label: size // _n_shards(cut.along(label), mesh) for label, size in sizes.items()}
    axes = dict(cut.axes)
    for name in sorted(names, key=lambda name: (-mesh[name], name)):
        fitting = [label for label, size in left.items() if size and not size % mesh[name]]
        if fitting and mesh[name] > 1:
            longest = max(fitting, key=left.__getitem__)
            left[longest] //= mesh[name]
            axes[longest] = (*axes.get(longest, ()), name)
    return Cut(tuple(axes.items()))


def _n_shards(names: Names, mesh: Mapping[str, int]) -> int:
    return math.prod(mesh[name] for name in names)
