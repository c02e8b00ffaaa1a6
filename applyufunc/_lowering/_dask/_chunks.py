"""How the arguments of a call are cut: core dims in one chunk, loop dims cut alike, no block larger than it may be.

In: the chunks of every argument, the core sizes of every output, a number of bytes. Out: a `ChunkPlan`, which also says
what becomes of each argument, why, and at what cost. Sizes are ints, None where they are unknown until computed. Pure
arithmetic that knows no array library.

The rule: a loop dim takes the chunks that an argument has, or the common refinement of several, whichever costs least
for all loop dims and arguments together (`_chunk_search`). Where arguments agree there is no choice, and nothing is
costed. Chunks are never merged beyond the coarsest that an argument has: their number says how far the caller wants to
go in parallel; an argument in one chunk beside others in several says nothing. They are split only where a block would
pass both the budget and the largest block of its argument.
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..._errors import AlignmentError
from ..._typing import Chunks, Shape
from ._chunk_costs import DEFAULT_COSTS, Costs, Steps, cheapest_route, one_step, total_size
from ._chunk_search import Block, Cut, Mover, cheapest_cuts, width_of
from ._excess import Excess, worst_excess

__all__ = ["ArgumentChunks", "ChunkPlan", "Move", "OutputCore", "plan_chunks", "total_size"]


@dataclass(frozen=True, slots=True)
class ArgumentChunks:
    """One argument: its dims as the plan names them, and how each is cut."""

    position: int  # among all arguments of the call
    dims: tuple[str, ...]
    chunks: tuple[Chunks, ...]
    n_core: int
    itemsize: int  # bytes
    in_memory: bool = False  # a host array: cut like the others, by views that cost nothing
    widths: tuple[int, ...] = field(init=False, compare=False)  # of the largest known chunk along each axis
    sizes: Shape = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Measure once: an axis may have a million chunks."""
        object.__setattr__(self, "widths", tuple(map(width_of, self.chunks)))
        object.__setattr__(self, "sizes", tuple(map(total_size, self.chunks)))

    @property
    def n_loop(self) -> int:
        return len(self.dims) - self.n_core

    @property
    def is_known(self) -> bool:
        return None not in self.sizes

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest block, as far as sizes are known."""
        return self.itemsize * math.prod(self.widths)

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole array, as far as sizes are known."""
        return self.itemsize * math.prod(size or 0 for size in self.sizes)

    @property
    def varying(self) -> dict[str, Chunks]:
        """The loop dims along which the argument does not broadcast."""
        loop = self.loop_chunks.items()
        return {dim: chunks for (dim, chunks), size in zip(loop, self.sizes, strict=False) if size != 1}

    @property
    def loop_chunks(self) -> dict[str, Chunks]:
        return dict(zip(self.dims[: self.n_loop], self.chunks[: self.n_loop], strict=True))

    @property
    def core_chunks(self) -> tuple[tuple[str, Chunks], ...]:
        return tuple(zip(self.dims[self.n_loop :], self.chunks[self.n_loop :], strict=True))


@dataclass(frozen=True, slots=True)
class OutputCore:
    """What one output's block has beyond the loop dims."""

    shape: Shape
    itemsize: int  # bytes


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one argument's chunks, and why. Figures are None where sizes are unknown."""

    position: int  # among all arguments of the call
    merged: tuple[str, ...]  # core dims that were in several chunks
    unified: tuple[str, ...]  # loop dims that take the chunks of other arguments
    split: tuple[str, ...]  # loop dims that are split, for some operand to stay within the budget
    via: tuple[Chunks, ...] | None  # the chunks to which it is rechunked first, where that takes less
    bytes_before: int | None  # of the largest block
    bytes_after: int | None
    bytes_moved: int | None  # copied into new blocks, estimated
    n_tasks: int | None  # of rechunking alone, estimated
    n_steps: int | None  # of rechunking, as Dask goes by way of other chunks where that takes fewer tasks

    @property
    def is_rechunked(self) -> bool:
        return bool(self.merged or self.unified or self.split)


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a call. An argument whose chunks stay as they were is not touched."""

    loop: tuple[tuple[str, Chunks], ...]  # of the outputs, from the left
    arguments: tuple[tuple[Chunks, ...], ...]  # for each argument in turn, core dims in one chunk
    excess: Excess | None  # the worst, where a block would have passed the budget
    moves: tuple[Move, ...]  # for each argument in turn
    output_bytes: tuple[int | None, ...]  # of the largest block of each output; None: unknown

    @property
    def n_blocks(self) -> int:
        """The number of loop blocks, each of which is one call of the kernel."""
        return math.prod(len(chunks) for _, chunks in self.loop)

    @property
    def n_tasks(self) -> int | None:
        """The number of tasks that the call adds to a graph, estimated: rechunking, and one for each loop block."""
        tasks = [move.n_tasks for move in self.moves]
        known = [n_tasks for n_tasks in tasks if n_tasks is not None]
        return self.n_blocks + sum(known) if len(known) == len(tasks) else None


def plan_chunks(
    arguments: Sequence[ArgumentChunks],
    outputs: Sequence[OutputCore],
    budget: int | None,
    *,
    merge: bool = True,
    costs: Costs = DEFAULT_COSTS,
    steps: Steps = one_step,
) -> ChunkPlan:
    """
    Return the chunks for a call.

    `budget` is in bytes; None: the size of the largest block that an argument has. Without `merge`, a core dim in
    several chunks is refused. `steps` says by way of which chunks an array would be rechunked.
    """
    if not merge:
        _refuse_chunked_cores(arguments)
    n_loop = max((argument.n_loop for argument in arguments), default=0)
    bases = {dim: _bases(dim, arguments) for dim in map(str, range(-n_loop, 0))}
    fixed = {dim for dim in bases if any(total_size(a.loop_chunks.get(dim, ())) is None for a in arguments)}
    least = {dim: width_of(found[0]) if dim in fixed else 1 for dim, found in bases.items()}
    allowed = _kept_bytes(arguments) if budget is None else budget
    output_blocks = _output_blocks(outputs, bases, least, arguments, allowed)
    blocks = [*_argument_blocks(arguments, least, allowed), *filter(None, output_blocks)]
    cuts = cheapest_cuts(bases, fixed, blocks, list(_movers(arguments, allowed)), costs, steps)
    loop = {dim: cut.chunks for dim, cut in cuts.items()}
    planned = tuple(_planned(argument, loop) for argument in arguments)
    excess = worst_excess(blocks, cuts, allowed)
    is_expected = budget is None and excess is not None and excess.is_enough
    pairs = zip(arguments, planned, strict=True)
    moves = (_move(argument, chunks, cuts, allowed, costs, steps) for argument, chunks in pairs)
    widths = {dim: cut.width for dim, cut in cuts.items()}
    largest = tuple(None if block is None else block.n_bytes(widths) for block in output_blocks)
    return ChunkPlan(tuple(loop.items()), planned, None if is_expected else excess, tuple(moves), largest)


_MOST_BASES: Final = 3  # of one dim, but for their refinement


def _refuse_chunked_cores(arguments: Sequence[ArgumentChunks]) -> None:
    for argument in arguments:
        for dim, chunks in argument.core_chunks:
            if len(chunks) > 1:
                raise AlignmentError(
                    f"argument {argument.position}: core dimension {dim!r} is in {len(chunks)} chunks, "
                    f"{_chunks_text(chunks)}, expected one: core_chunks='refuse' (allow_rechunk=False) does not let "
                    f"them be merged; rechunk the argument, or pass core_chunks='merge'"
                )


def _bases(dim: str, arguments: Sequence[ArgumentChunks]) -> tuple[Chunks, ...]:
    """Return the chunkings that a loop dim may take: those of arguments, the largest first, and their refinement."""
    found = [(argument, argument.loop_chunks[dim]) for argument in arguments if dim in argument.loop_chunks]
    varying = [(argument, chunks) for argument, chunks in found if dim in argument.varying]
    if any(total_size(chunks) is None for _, chunks in varying):
        return (_common_unknown(dim, varying),)
    lazy = [(argument, chunks) for argument, chunks in varying or found if not argument.in_memory]
    ordered = sorted(lazy or varying or found, key=lambda pair: (-pair[0].total_bytes, width_of(pair[1])))
    distinct = tuple(dict.fromkeys(chunks for _, chunks in ordered))
    return distinct if len(distinct) == 1 else _with_refinement(distinct)


def _with_refinement(chunkings: Sequence[Chunks]) -> tuple[Chunks, ...]:
    """Return different chunkings and their refinement; one chunk beside several says nothing, and is left out."""
    cleaned = list(dict.fromkeys(map(_without_empty, chunkings)))
    several = [chunks for chunks in cleaned if len(chunks) > 1][:_MOST_BASES]
    return tuple(dict.fromkeys((*several, _refinement(several)))) if several else tuple(cleaned[:1])


def _common_unknown(dim: str, varying: Sequence[tuple[ArgumentChunks, Chunks]]) -> Chunks:
    """Return the chunks along a dim of which an argument does not know the sizes: none can be cut anew."""
    first, expected = varying[0]
    for argument, chunks in varying[1:]:
        if not _may_agree(chunks, expected):
            raise AlignmentError(
                f"loop dimension {dim} (from the right) is in {len(expected)} chunk(s) in argument {first.position}, "
                f"{_chunks_text(expected)}, and in {len(chunks)} in argument {argument.position}, "
                f"{_chunks_text(chunks)}: where a size is unknown (?) chunks cannot be brought together; call "
                f"compute_chunk_sizes(), or rechunk before sizes are lost"
            )
        expected = tuple(b if a is None else a for a, b in zip(expected, chunks, strict=True))
    return expected


def _may_agree(chunks: Chunks, others: Chunks) -> bool:
    """Tell whether two chunkings are equal, as far as their sizes are known."""
    if len(chunks) != len(others):
        return False
    return all(a is None or b is None or a == b for a, b in zip(chunks, others, strict=True))


def _without_empty(chunks: Chunks) -> Chunks:
    return tuple(filter(None, chunks)) or (0,)


def _refinement(chunkings: Sequence[Chunks]) -> Chunks:
    """Return the coarsest chunks of which those of each chunking are made."""
    ends = sorted({0}.union(*(itertools.accumulate(filter(None, chunks)) for chunks in chunkings)))
    return tuple(map(operator.sub, ends[1:], ends))


def _kept_bytes(arguments: Sequence[ArgumentChunks]) -> int:
    """Return the bytes of the largest block that an argument has; if nobody knows, any number will do."""
    given = (argument.largest_bytes for argument in arguments if argument.is_known and not argument.in_memory)
    return max(given, default=0) or sys.maxsize


def _argument_blocks(arguments: Sequence[ArgumentChunks], least: Mapping[str, int], budget: int) -> Iterator[Block]:
    """Yield the blocks of arguments; those of unknown size, or in memory anyway, are nobody's concern."""
    for argument in arguments:
        if argument.in_memory or not argument.is_known:
            continue
        given = argument.largest_bytes
        item = argument.itemsize * math.prod(size or 0 for size in argument.sizes[argument.n_loop :])
        dims = tuple(argument.varying)
        smallest = item * math.prod(least[dim] for dim in dims)
        yield Block(f"argument {argument.position}", dims, item, given, smallest, max(budget, given), _merged(argument))


def _output_blocks(
    outputs: Sequence[OutputCore],
    bases: Mapping[str, Sequence[Chunks]],
    least: Mapping[str, int],
    arguments: Sequence[ArgumentChunks],
    budget: int,
) -> list[Block | None]:
    """Return the blocks of outputs, which may be as large as the largest that the caller made; None: unknown."""
    limit = max(budget, *(argument.largest_bytes for argument in arguments if not argument.in_memory), 0)
    is_known = not any(total_size(chunks) is None for chunkings in bases.values() for chunks in chunkings)
    found: list[Block | None] = []
    for position, output in enumerate(outputs):
        item = output.itemsize * math.prod(size or 0 for size in output.shape)
        block = Block(f"output {position}", tuple(bases), item, None, item * math.prod(least.values()), limit)
        found.append(block if is_known and None not in output.shape else None)
    return found


def _movers(arguments: Sequence[ArgumentChunks], budget: int) -> Iterator[Mover]:
    for argument in arguments:
        if argument.is_known and not argument.in_memory:
            loop, core = tuple(argument.varying.items()), tuple(chunks for _, chunks in argument.core_chunks)
            may_merge_first = _via(argument, budget) is not None
            yield Mover(loop, core, argument.itemsize, argument.total_bytes, may_merge_first)


def _via(argument: ArgumentChunks, budget: int) -> tuple[Chunks, ...] | None:
    """Return an argument's chunks with core dims merged and nothing else, if there are any and blocks then fit."""
    core = argument.sizes[argument.n_loop :]
    via = (*argument.loop_chunks.values(), *((size,) for size in core))
    n_bytes = argument.itemsize * math.prod(argument.widths[: argument.n_loop]) * math.prod(size or 0 for size in core)
    return via if via != argument.chunks and n_bytes <= max(budget, argument.largest_bytes) else None


def _merged(argument: ArgumentChunks) -> tuple[str, ...]:
    """Return the core dims in several chunks."""
    return tuple(dict.fromkeys(dim for dim, chunks in argument.core_chunks if len(chunks) > 1))


def _planned(argument: ArgumentChunks, loop: Mapping[str, Chunks]) -> tuple[Chunks, ...]:
    if argument.in_memory:
        return argument.chunks
    varying = argument.varying
    loops = (_planned_loop(chunks, loop[dim], dim in varying) for dim, chunks in argument.loop_chunks.items())
    cores = (chunks if len(chunks) == 1 else (total_size(chunks),) for _, chunks in argument.core_chunks)
    return (*loops, *cores)


def _planned_loop(chunks: Chunks, common: Chunks, varies: bool) -> Chunks:
    if not varies:
        return common if total_size(common) == 1 else (1,)
    return chunks if total_size(chunks) is None else common


def _move(
    argument: ArgumentChunks,
    planned: tuple[Chunks, ...],
    cuts: Mapping[str, Cut],
    budget: int,
    costs: Costs,
    steps: Steps,
) -> Move:
    """Return what becomes of one argument; one in memory is cut by views."""
    position, before = argument.position, argument.largest_bytes if argument.is_known else None
    if argument.in_memory:
        return Move(position, (), (), (), None, before, before, 0, 0, 0)
    split = tuple(dim for dim in argument.varying if cuts[dim].is_split)
    aimed = (cuts[dim].base.chunks if dim in split else own for dim, own in zip(argument.dims, planned, strict=True))
    pairs = zip(argument.loop_chunks.items(), aimed, strict=False)
    unified = tuple(dim for (dim, chunks), own in pairs if chunks != own)
    if not argument.is_known:
        return Move(position, _merged(argument), unified, split, None, None, None, None, None, None)
    via, work = cheapest_route(argument.chunks, _via(argument, budget), planned, argument.itemsize, costs, steps)
    after = argument.itemsize * math.prod(map(width_of, planned))
    figures = work.bytes_moved, work.n_tasks, work.n_steps
    return Move(position, _merged(argument), unified, split, via, before, after, *figures)


def _chunks_text(chunks: Chunks) -> str:
    """Write chunks as sizes, ``?`` for unknown; the middle of many is left out."""
    sizes = ["?" if size is None else str(size) for size in chunks]
    shown = sizes if len(sizes) <= 8 else [*sizes[:4], "...", *sizes[-2:]]
    return f"({', '.join(shown)}{',' if len(sizes) == 1 else ''})"
