"""How arguments are cut along core dims that stay in chunks: by the rule of `_chunks`, as if these were loop dims.

In: the chunks of every argument, the labels of such core dims. Out: a `PiecePlan`, in the arguments' own labels and
order of axes. Pure arithmetic that knows no array library.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..._typing import Chunks
from ._chunk_costs import Steps, one_step
from ._chunks import ArgumentChunks, Move, OutputCore, plan_chunks
from ._excess import Excess

__all__ = ["PiecePlan", "plan_pieces"]


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """The chunks of a call some of whose core dims stay in chunks."""

    loop: tuple[tuple[str, Chunks], ...]  # from the left
    kept: tuple[tuple[str, Chunks], ...]  # core dims
    arguments: tuple[tuple[Chunks, ...], ...]  # for each argument in turn, all other core dims in one chunk
    moves: tuple[Move, ...]  # as in `ChunkPlan`
    excess: Excess | None  # as in `ChunkPlan`

    @property
    def n_blocks(self) -> int:
        """The number of blocks along all these dims together."""
        return math.prod(len(chunks) for _, chunks in self.loop + self.kept)


def plan_pieces(
    arguments: Sequence[ArgumentChunks],
    kept: Sequence[str],
    outputs: Sequence[OutputCore],
    budget: int | None,
    *,
    steps: Steps = one_step,
) -> PiecePlan:
    """Return the chunks for a call; `outputs` have no `kept` dims, and all else is as in `plan_chunks`."""
    n_loop = max((argument.n_loop for argument in arguments), default=0)
    names = {dim: str(-n_loop - 1 - place) for place, dim in enumerate(kept)}
    as_loops = [_as_loops(argument, names) for argument in arguments]
    everywhere = _everywhere([*names.values()], n_loop)
    plan = plan_chunks([*as_loops, everywhere], outputs, budget, steps=steps)
    along = dict(plan.loop)
    loop = tuple((dim, along[dim]) for dim in map(str, range(-n_loop, 0)))
    pieces = tuple((dim, along[names[dim]]) for dim in kept)
    # What was planned last is nobody's.
    cut = tuple(_in_own_order(*each, names) for each in zip(arguments, plan.arguments, strict=False))
    moves = tuple(_own_move(*each, names) for each in zip(arguments, plan.moves, strict=False))
    return PiecePlan(loop, pieces, cut, moves, _own_excess(plan.excess, names))


def _as_loops(argument: ArgumentChunks, names: Mapping[str, str]) -> ArgumentChunks:
    """Return an argument with the core dims that stay in chunks as loop dims, in front."""
    order = _order(argument, names)
    dims = tuple(names.get(argument.dims[axis], argument.dims[axis]) for axis in order)
    chunks = tuple(argument.chunks[axis] for axis in order)
    n_core = argument.n_core - sum(dim in names for dim in argument.dims)
    return dataclasses.replace(argument, dims=dims, chunks=chunks, n_core=n_core)


def _order(argument: ArgumentChunks, names: Mapping[str, str]) -> list[int]:
    return sorted(range(len(argument.dims)), key=lambda axis: argument.dims[axis] not in names)  # stable


def _everywhere(names: Sequence[str], n_loop: int) -> ArgumentChunks:
    """Return an argument of size 1 that has all dims, so that the planner counts them; it costs nothing."""
    dims = (*reversed(names), *map(str, range(-n_loop, 0)))
    return ArgumentChunks(-1, dims, ((1,),) * len(dims), 0, 0, in_memory=True)


def _in_own_order(argument: ArgumentChunks, chunks: tuple[Chunks, ...], names: Mapping[str, str]) -> tuple[Chunks, ...]:
    by_axis = dict(zip(_order(argument, names), chunks, strict=True))
    return tuple(by_axis[axis] for axis in range(len(chunks)))


def _own_move(argument: ArgumentChunks, move: Move, names: Mapping[str, str]) -> Move:
    labels = {name: dim for dim, name in names.items()}
    unified, split = (tuple(labels.get(dim, dim) for dim in dims) for dims in (move.unified, move.split))
    via = None if move.via is None else _in_own_order(argument, move.via, names)
    return dataclasses.replace(move, unified=unified, split=split, via=via)


def _own_excess(excess: Excess | None, names: Mapping[str, str]) -> Excess | None:
    if excess is None:
        return None
    labels = {name: dim for dim, name in names.items()}
    split = tuple((labels.get(dim, dim), before, after) for dim, before, after in excess.split)
    return dataclasses.replace(excess, split=split)
