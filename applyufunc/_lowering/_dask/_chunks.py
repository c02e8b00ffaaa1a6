"""How the arguments of a call are cut: core dims in one chunk, loop dims cut alike, no block larger than it may be.

In: the chunks of every argument, the core sizes of every output, a number of bytes. Out: a `ChunkPlan`. Sizes are ints,
None where they are unknown until computed. Pure arithmetic that knows no array library: another rule takes this one's
place by keeping `plan_chunks`. The rule here: a loop dim takes the finest chunking that an argument has, and is split
further only where a block would pass both the budget and the largest block that the caller's own chunks make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..._errors import AlignmentError
from ..._typing import Shape

__all__ = ["ArgumentChunks", "ChunkPlan", "Chunks", "Excess", "OutputCore", "plan_chunks", "total_size"]

Chunks: TypeAlias = tuple[int | None, ...]
"""Sizes of the chunks along one axis; None: unknown."""


@dataclass(frozen=True, slots=True)
class ArgumentChunks:
    """One argument: its dims as the plan names them, and how each is cut."""

    position: int  # among all arguments of the call
    dims: tuple[str, ...]
    chunks: tuple[Chunks, ...]
    n_core: int
    itemsize: int  # bytes
    in_memory: bool = False  # a host array: cut like the others, by views that cost nothing

    @property
    def n_loop(self) -> int:
        return len(self.dims) - self.n_core

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
class Excess:
    """An operand whose blocks would have been too large: why, and what came of it."""

    what: str  # "argument 0"
    merged: tuple[str, ...]  # core dims that were in several chunks
    split: tuple[tuple[str, int, int], ...]  # loop dim, its largest chunk before and after
    bytes_given: int | None  # of the largest block in the caller's chunks; None: an output has none
    bytes_unsplit: int  # of the largest block with the core dims whole and the loop dims as they were
    bytes_planned: int
    budget: int  # bytes
    is_enough: bool  # whether the planned block is as small as it has to be

    def __str__(self) -> str:
        """Say what was done, and how to have it otherwise."""
        cause, consequence = self._cause(), self._consequence()
        return f"{cause}, above the budget of {_bytes_text(self.budget)}: {consequence}. {_REMEDY}"

    def _cause(self) -> str:
        given = "" if self.bytes_given is None else f" (now {_bytes_text(self.bytes_given)})"
        would = f"{self.what} would have blocks of {_bytes_text(self.bytes_unsplit)}{given}"
        names = ", ".join(map(repr, self.merged))
        return f"with core dimension(s) {names} merged to one chunk, {would}" if names else would

    def _consequence(self) -> str:
        if not self.split:
            return "one item alone is that large, so no loop dimension was split"
        narrowed = ", ".join(f"{dim} (chunks of up to {before}, now {after})" for dim, before, after in self.split)
        blocks = f"blocks of {_bytes_text(self.bytes_planned)}"
        outcome = f"loop dimension(s) (from the right) {narrowed} were split, which makes {blocks}"
        return outcome if self.is_enough else f"{outcome}: one item alone is that large"


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a call. An argument whose chunks stay as they were is not touched."""

    loop: tuple[tuple[str, Chunks], ...]  # of the outputs, from the left
    arguments: tuple[tuple[Chunks, ...], ...]  # for each argument in turn, core dims in one chunk
    excess: Excess | None  # the worst, where a block would have passed the budget

    @property
    def n_blocks(self) -> int:
        """The number of loop blocks, each of which is one call of the kernel."""
        return math.prod(len(chunks) for _, chunks in self.loop)


def plan_chunks(
    arguments: Sequence[ArgumentChunks], outputs: Sequence[OutputCore], budget: int, *, merge: bool = True
) -> ChunkPlan:
    """Return the chunks for a call; `budget` in bytes; without `merge`, a core dim in several chunks is refused."""
    if not merge:
        _refuse_chunked_cores(arguments)
    n_loop = max((argument.n_loop for argument in arguments), default=0)
    loop = {dim: _common_chunks(dim, arguments) for dim in map(str, range(-n_loop, 0))}
    blocks = [*_argument_blocks(arguments, budget), *_output_blocks(outputs, loop, arguments, budget)]
    widths = {dim: _width(chunks) for dim, chunks in loop.items()}
    narrowed = _narrow_all(widths, blocks)
    split = {dim: _split(chunks, narrowed[dim]) for dim, chunks in loop.items()}
    planned = tuple(_planned(argument, split) for argument in arguments)
    excess = _worst_excess(blocks, widths, {dim: _width(chunks) for dim, chunks in split.items()}, budget)
    return ChunkPlan(tuple(split.items()), planned, excess)


def total_size(chunks: Chunks) -> int | None:
    """Return the size of an axis in these chunks; None: unknown."""
    known = [size for size in chunks if size is not None]
    return sum(known) if len(known) == len(chunks) else None


_REMEDY: Final = (
    "To decide it yourself, rechunk before the call, pass budget= (bytes of the largest block), or core_chunks='refuse'"
)


def _refuse_chunked_cores(arguments: Sequence[ArgumentChunks]) -> None:
    for argument in arguments:
        for dim, chunks in argument.core_chunks:
            if len(chunks) > 1:
                raise AlignmentError(
                    f"argument {argument.position}: core dimension {dim!r} is in {len(chunks)} chunks, "
                    f"{_chunks_text(chunks)}, expected one: core_chunks='refuse' (allow_rechunk=False) does not let "
                    f"them be merged; rechunk the argument, or pass core_chunks='merge'"
                )


def _common_chunks(dim: str, arguments: Sequence[ArgumentChunks]) -> Chunks:
    """Return the chunking that all arguments take along a loop dim: the finest that one of them has."""
    found = [(argument, argument.loop_chunks[dim]) for argument in arguments if dim in argument.loop_chunks]
    varying = [(argument, chunks) for argument, chunks in found if total_size(chunks) != 1]
    if any(None in chunks for _, chunks in varying):
        return _common_unknown(dim, varying)
    own = [chunks for argument, chunks in varying or found if not argument.in_memory]
    distinct = list(dict.fromkeys(own or [chunks for _, chunks in varying or found]))
    return distinct[0] if len(distinct) == 1 else _without_empty(min(distinct, key=_fineness))


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


def _fineness(chunks: Chunks) -> tuple[int, int]:
    """Order chunkings: the smallest largest chunk first, then the fewest chunks."""
    return _width(chunks), len(chunks)


def _width(chunks: Chunks) -> int:
    return max((size for size in chunks if size is not None), default=0)


def _without_empty(chunks: Chunks) -> Chunks:
    return tuple(size for size in chunks if size != 0) or (0,)


@dataclass(frozen=True, slots=True)
class _Block:
    """The largest block of one operand, as a function of the loop dims' widths."""

    what: str
    dims: tuple[str, ...]  # loop dims along which it varies
    bytes_per_item: int
    bytes_given: int | None
    limit: int  # bytes
    merged: tuple[str, ...] = ()

    def n_bytes(self, widths: Mapping[str, int]) -> int:
        return self.bytes_per_item * math.prod(widths[dim] for dim in self.dims)


def _argument_blocks(arguments: Sequence[ArgumentChunks], budget: int) -> Iterator[_Block]:
    """Yield the blocks of arguments; those of unknown size, or in memory anyway, are nobody's concern."""
    for argument in arguments:
        if argument.in_memory or any(None in chunks for chunks in argument.chunks):
            continue
        given = _given_bytes(argument)
        core = math.prod(total_size(chunks) or 0 for _, chunks in argument.core_chunks)
        dims = tuple(dim for dim, chunks in argument.loop_chunks.items() if total_size(chunks) != 1)
        merged = tuple(dict.fromkeys(dim for dim, chunks in argument.core_chunks if len(chunks) > 1))
        yield _Block(f"argument {argument.position}", dims, core * argument.itemsize, given, max(budget, given), merged)


def _given_bytes(argument: ArgumentChunks) -> int:
    return argument.itemsize * math.prod(map(_width, argument.chunks))


def _output_blocks(
    outputs: Sequence[OutputCore], loop: Mapping[str, Chunks], arguments: Sequence[ArgumentChunks], budget: int
) -> Iterator[_Block]:
    """Yield the blocks of outputs, which may be as large as the largest that the caller made."""
    if any(None in chunks for chunks in loop.values()):
        return
    own = [argument for argument in arguments if not argument.in_memory]
    limit = max(budget, *map(_given_bytes, own)) if own else budget
    for position, output in enumerate(outputs):
        if None not in output.shape:
            item = output.itemsize * math.prod(size or 0 for size in output.shape)
            yield _Block(f"output {position}", tuple(loop), item, None, limit)


def _narrow_all(widths: Mapping[str, int], blocks: Sequence[_Block]) -> dict[str, int]:
    narrowed = dict(widths)
    for block in blocks:
        _narrow(narrowed, block)
    return narrowed


def _narrow(widths: dict[str, int], block: _Block) -> None:
    """Narrow the widest loop dims of one operand, each just enough, until its block fits or is one item."""
    while (n_bytes := block.n_bytes(widths)) > block.limit:
        widest = max(block.dims, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= 1:
            return
        widths[widest] = max(1, widths[widest] * block.limit // n_bytes)


def _split(chunks: Chunks, width: int) -> Chunks:
    """Return chunks of at most `width`, by even cuts inside those that are larger."""
    if _width(chunks) <= width:
        return chunks
    return tuple(piece for size in chunks for piece in _even_pieces(size or 0, width))


def _even_pieces(size: int, width: int) -> Iterator[int]:
    n_pieces = max(1, -(-size // width))
    quotient, remainder = divmod(size, n_pieces)
    yield from (quotient + (piece < remainder) for piece in range(n_pieces))


def _planned(argument: ArgumentChunks, loop: Mapping[str, Chunks]) -> tuple[Chunks, ...]:
    if argument.in_memory:
        return argument.chunks
    loops = (_planned_loop(chunks, loop[dim]) for dim, chunks in argument.loop_chunks.items())
    cores = (chunks if len(chunks) == 1 else (total_size(chunks),) for _, chunks in argument.core_chunks)
    return (*loops, *cores)


def _planned_loop(chunks: Chunks, common: Chunks) -> Chunks:
    if None in chunks:
        return chunks
    if total_size(chunks) == 1 and total_size(common) != 1:
        return (1,)  # broadcast
    return chunks if None in common else common


def _worst_excess(
    blocks: Sequence[_Block], widths: Mapping[str, int], narrowed: Mapping[str, int], budget: int
) -> Excess | None:
    over = [block for block in blocks if block.n_bytes(widths) > block.limit]
    if not over:
        return None
    worst = max(over, key=lambda block: block.n_bytes(widths) / block.limit)
    split = tuple((dim, widths[dim], narrowed[dim]) for dim in widths if narrowed[dim] < widths[dim])
    unsplit, planned = worst.n_bytes(widths), worst.n_bytes(narrowed)
    is_enough = planned <= worst.limit
    return Excess(worst.what, worst.merged, split, worst.bytes_given, unsplit, planned, budget, is_enough)


def _chunks_text(chunks: Chunks) -> str:
    """Write chunks as sizes, ``?`` for unknown; the middle of many is left out."""
    sizes = ["?" if size is None else str(size) for size in chunks]
    shown = sizes if len(sizes) <= 8 else [*sizes[:4], "...", *sizes[-2:]]
    return f"({', '.join(shown)}{',' if len(sizes) == 1 else ''})"


def _bytes_text(n_bytes: int) -> str:
    size, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"
