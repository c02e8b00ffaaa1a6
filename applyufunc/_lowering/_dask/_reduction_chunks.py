"""Where a core dim is reduced: in the chunks in which it lies, or after it has been brought to one.

In: the chunks of every argument, which core dims may stay in chunks, the states' sizes, a number of bytes. Out: a
`ReductionPlan`, which says why. Pure arithmetic that knows no array library.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..._typing import Shape
from ._chunk_costs import Steps, one_step
from ._chunks import ArgumentChunks, Chunks, Excess, Move, total_size
from ._piece_chunks import plan_pieces

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

    @property
    def n_pieces(self) -> int:
        """The number of pieces that a state is made of."""
        return self.n_outputs * math.prod(len(chunks) for _, chunks in self.reduced)


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
    # No output is larger than the states that it comes from, and those are a part of a block.
    pieces = plan_pieces(arguments, (*independent, *reduced), (), budget, steps=steps)
    stay, tree = pieces.kept[: len(independent)], pieces.kept[len(independent) :]
    state_bytes = _state_bytes(states, pieces.loop, stay) if tree else None
    block_bytes = _block_bytes(arguments, pieces.arguments) if tree else None
    sizes = state_bytes, block_bytes
    return ReductionPlan(pieces.loop, stay, tree, pieces.arguments, (), "", *sizes, pieces.excess, pieces.moves)


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
