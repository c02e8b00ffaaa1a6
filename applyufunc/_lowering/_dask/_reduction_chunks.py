"""Where a core dim is reduced: in the chunks in which it lies, or after it has been brought to one.

In: the chunks of every argument, which core dims may stay in chunks, the states' sizes, a number of bytes. Out: a
`ReductionPlan`, which says why. Loop dims are cut by the rule of `_chunks`, and so are the core dims that stay in
chunks: to it they are loop dims. Pure arithmetic that knows no array library.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..._typing import Shape
from ._chunk_costs import Steps, one_step
from ._chunks import ArgumentChunks, Chunks, Excess, Move, plan_chunks, total_size

__all__ = ["ReductionPlan", "StateCore", "plan_reduction"]


@dataclass(frozen=True, slots=True)
class StateCore:
    """What one array of the states has beyond the loop dims."""

    dims: tuple[str, ...]
    shape: Shape  # of the whole call
    itemsize: int  # bytes


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The chunks of a call whose core dims may be reduced where they lie."""

    loop: tuple[tuple[str, Chunks], ...]  # from the left
    independent: tuple[tuple[str, Chunks], ...]  # core dims of the outputs that stay in chunks
    reduced: tuple[tuple[str, Chunks], ...]  # core dims that are reduced in their chunks, through a tree of states
    arguments: tuple[tuple[Chunks, ...], ...]  # for each argument in turn, all other core dims in one chunk
    merged: tuple[str, ...]  # core dims in several chunks that are brought to one, although they could be reduced
    reason: str  # why they are; "" where none is
    state_bytes: int | None  # of the largest state of a block; None where sizes are unknown, or nothing is reduced
    block_bytes: int | None  # of the blocks of all arguments that it comes from
    excess: Excess | None  # as in `ChunkPlan`
    moves: tuple[Move, ...]  # as in `ChunkPlan`: for each argument in turn

    @property
    def is_tree(self) -> bool:
        """Whether core dims stay in chunks at all; otherwise the call is as any other."""
        return any(len(chunks) > 1 for _, chunks in self.independent + self.reduced)

    @property
    def n_outputs(self) -> int:
        """The number of blocks that each output has."""
        return math.prod(len(chunks) for _, chunks in self.loop + self.independent)


def plan_reduction(
    arguments: Sequence[ArgumentChunks],
    reduced: Sequence[str],
    independent: Sequence[str],
    states: Sequence[StateCore],
    budget: int | None,
    *,
    needs_sizes: bool = False,
    steps: Steps = one_step,
) -> ReductionPlan:
    """
    Return the chunks for a call.

    With `needs_sizes`, unknown chunks of a reduced dim are merged. `budget` and `steps` are as in `plan_chunks`.
    """
    apart = tuple(dim for dim in independent if not _why_not(dim, arguments))
    chunked = tuple(dim for dim in reduced if any(len(chunks) > 1 for chunks in _chunks_along(dim, arguments)))
    reasons = [_why_not(dim, arguments, needs_sizes=needs_sizes) for dim in chunked]
    reason = next(filter(None, reasons), "")
    if not reason:
        plan = _planned(arguments, apart, reduced, states, budget, steps)
        reason = _why_states_are_too_large(plan)
        if not reason or not chunked:
            return plan
    merged = _planned(arguments, apart, (), states, budget, steps)
    return dataclasses.replace(merged, merged=chunked, reason=reason)


def _chunks_along(dim: str, arguments: Sequence[ArgumentChunks]) -> list[Chunks]:
    """Return the chunks that every argument has along a core dim; size 1 broadcasts."""
    found = [chunks for argument in arguments for label, chunks in argument.core_chunks if label == dim]
    return [chunks for chunks in found if total_size(chunks) != 1] or found


def _why_not(dim: str, arguments: Sequence[ArgumentChunks], *, needs_sizes: bool = False) -> str:
    """Say why a core dim cannot stay in chunks; "" where it can."""
    along = _chunks_along(dim, arguments)
    if not any(None in chunks for chunks in along):
        return ""
    if needs_sizes:
        return f"the sizes of the chunks along {dim!r} are unknown until computed, and offset=True needs them"
    if any(len(chunks) != len(along[0]) for chunks in along):
        return f"the sizes of the chunks along {dim!r} are unknown until computed, and their numbers differ"
    return ""


def _why_states_are_too_large(plan: ReductionPlan) -> str:
    state, block = plan.state_bytes, plan.block_bytes
    if state is None or block is None or 2 * state <= block:
        return ""
    return f"the state of a block would have {state:,} bytes, more than half of the block's {block:,}"


def _planned(
    arguments: Sequence[ArgumentChunks],
    independent: Sequence[str],
    reduced: Sequence[str],
    states: Sequence[StateCore],
    budget: int | None,
    steps: Steps,
) -> ReductionPlan:
    n_loop = max((argument.n_loop for argument in arguments), default=0)
    kept = (*independent, *reduced)
    names = {dim: str(-n_loop - 1 - place) for place, dim in enumerate(kept)}
    as_loops = [_as_loops(argument, names) for argument in arguments]
    # No output is larger than the states that it comes from, and those are a part of a block.
    chunk_plan = plan_chunks([*as_loops, _everywhere([*names.values()], n_loop)], (), budget, steps=steps)
    along = dict(chunk_plan.loop)
    planned = tuple(
        _in_own_order(argument, names, chunks)
        for argument, chunks in zip(arguments, chunk_plan.arguments, strict=False)  # the last is nobody's
    )
    loop = tuple((dim, along[dim]) for dim in map(str, range(-n_loop, 0)))
    stay, tree = (tuple((dim, along[names[dim]]) for dim in dims) for dims in (independent, reduced))
    state_bytes = _state_bytes(states, loop, stay) if tree else None
    block_bytes = _block_bytes(arguments, planned) if tree else None
    excess = _in_own_words(chunk_plan.excess, names)
    moves = tuple(_own_move(*each, names) for each in zip(arguments, chunk_plan.moves, strict=False))
    return ReductionPlan(loop, stay, tree, planned, (), "", state_bytes, block_bytes, excess, moves)


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


def _in_own_order(argument: ArgumentChunks, names: Mapping[str, str], chunks: tuple[Chunks, ...]) -> tuple[Chunks, ...]:
    by_axis = dict(zip(_order(argument, names), chunks, strict=True))
    return tuple(by_axis[axis] for axis in range(len(chunks)))


def _in_own_words(excess: Excess | None, names: Mapping[str, str]) -> Excess | None:
    """Return what became too large, with the core dims by their own labels."""
    if excess is None:
        return None
    labels = {name: dim for dim, name in names.items()}
    split = tuple((labels.get(dim, dim), before, after) for dim, before, after in excess.split)
    return dataclasses.replace(excess, split=split)


def _own_move(argument: ArgumentChunks, move: Move, names: Mapping[str, str]) -> Move:
    """Return what becomes of an argument, with its axes in their order, and the core dims by their own labels."""
    labels = {name: dim for dim, name in names.items()}
    unified, split = (tuple(labels.get(dim, dim) for dim in dims) for dims in (move.unified, move.split))
    via = None if move.via is None else _in_own_order(argument, names, move.via)
    return dataclasses.replace(move, unified=unified, split=split, via=via)


def _state_bytes(
    states: Sequence[StateCore], loop: Sequence[tuple[str, Chunks]], independent: Sequence[tuple[str, Chunks]]
) -> int:
    """Return the bytes of the largest state, with unknown sizes of loop dims counted as 1."""
    widths = {dim: _width(chunks) for dim, chunks in independent}
    cores = (
        state.itemsize
        * math.prod(widths.get(dim, size or 1) for dim, size in zip(state.dims, state.shape, strict=True))
        for state in states
    )
    return sum(cores) * math.prod(_width(chunks) for _, chunks in loop)


def _block_bytes(arguments: Sequence[ArgumentChunks], planned: Sequence[tuple[Chunks, ...]]) -> int | None:
    """Return the bytes of the largest blocks of all arguments, as `_state_bytes` counts; None: nobody knows."""
    if any(None in chunks for argument in arguments for _, chunks in argument.core_chunks):
        return None
    pairs = zip(arguments, planned, strict=True)
    return sum(a.itemsize * math.prod(map(_width, chunks)) for a, chunks in pairs if not a.in_memory)


def _width(chunks: Chunks) -> int:
    return max((size for size in chunks if size is not None), default=1)
