"""The cheapest chunks of all loop dims together: `cheapest_cuts`, a bounded search.

In: for every loop dim the chunkings that it may take, the blocks that must not become too large, the arguments that
would have to move. Out: one `Cut` for every loop dim. Pure arithmetic on known sizes; knows neither Dask, nor what a
caller asked for, nor how a result is told.

Chunks are taken as one of the arguments has them, or as their common refinement. Only where no such choice keeps all
blocks within their limits are they split: every loop dim in turn is cut just enough, for a few widths of each other.
What that finds is costed roughly; what is best of it is costed again by all the steps that Dask would take.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..._typing import Chunks
from ._chunk_costs import Costs, Steps, Work, cheapest_route, known_size, remembered

__all__ = ["Block", "Cut", "Mover", "cheapest_cuts", "width_of"]


@dataclass(frozen=True, slots=True)
class Block:
    """The largest block of one operand, as a function of the widths of the loop dims."""

    what: str  # "argument 0"
    dims: tuple[str, ...]  # loop dims along which it varies
    bytes_per_item: int
    bytes_given: int | None  # of the largest block in the caller's chunks; None: an output has none
    bytes_least: int  # of the smallest block that can be: one item, where every loop dim can be split
    limit: int  # bytes
    merged: tuple[str, ...] = ()  # core dims that were in several chunks

    def n_bytes(self, widths: Mapping[str, int]) -> int:
        return self.bytes_per_item * math.prod(widths[dim] for dim in self.dims)

    @property
    def reachable(self) -> int:
        """The limit, or what cannot be gone below."""
        return max(self.limit, self.bytes_least)


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: long chunks take long to hash
class Mover:
    """A lazy argument of known size."""

    loop: tuple[tuple[str, Chunks], ...]  # the loop dims along which it varies
    core: tuple[Chunks, ...]
    itemsize: int  # bytes
    n_bytes: int  # of the whole array
    may_merge_first: bool  # whether its blocks stay within their limit while only core dims are merged


@dataclass(frozen=True, eq=False)  # hashed by identity, as movers are; without slots, for the cached property
class Base:
    """A chunking that a loop dim may take."""

    chunks: Chunks
    width: int  # of the widest chunk

    @functools.cached_property
    def numbers(self) -> Counter[int]:
        """Each size of chunk, and how many chunks have it."""
        return Counter(size or 0 for size in self.chunks)


@dataclass(frozen=True, slots=True)
class Cut:
    """Chunks of one loop dim: a base, of which the larger chunks may be split evenly."""

    base: Base
    width: int  # of the widest chunk
    n_chunks: int

    @property
    def chunks(self) -> Chunks:
        if not self.is_split:
            return self.base.chunks
        pieces = {size: _even_pieces(size or 0, self.width) for size in set(self.base.chunks)}
        return tuple(itertools.chain.from_iterable(map(pieces.__getitem__, self.base.chunks)))

    @property
    def is_split(self) -> bool:
        return self.n_chunks > len(self.base.chunks)


def cheapest_cuts(
    bases: Mapping[str, Sequence[Chunks]],
    fixed: Collection[str],
    blocks: Sequence[Block],
    movers: Sequence[Mover],
    costs: Costs,
    steps: Steps,
) -> Mapping[str, Cut]:
    """Return the cut of every loop dim with which all blocks fit, at the least cost; `fixed` dims cannot be split."""
    dims = tuple(bases)
    unsplit: list[_Cuts] = [dict(zip(dims, chosen, strict=True)) for chosen in _combinations(bases)]
    fitting = [cuts for cuts in unsplit if _fits(_widths(cuts), blocks)]
    if len(fitting) == 1:
        return fitting[0]
    candidates = fitting or _split(unsplit, [dim for dim in dims if dim not in fixed], blocks)
    misfits = _misfits(movers, unsplit)
    rough = functools.partial(_rough_seconds, blocks=blocks, movers=movers, misfits=misfits, costs=costs)
    exact = functools.partial(_exact_seconds, blocks=blocks, movers=movers, costs=costs, steps=steps)
    finalists = heapq.nsmallest(_n_finalists(bases), candidates, key=rough)
    return min(finalists, key=exact) if len(finalists) > 1 else finalists[0]


@remembered
def width_of(chunks: Chunks) -> int:
    """Return the size of the largest chunk that is known."""
    return max(filter(None, chunks), default=0)


_Cuts: TypeAlias = Mapping[str, Cut]
_Misfits: TypeAlias = Mapping[tuple[Mover, Base], int]

_MOST_COMBINATIONS: Final = 256  # of bases; by far the most calls have fewer than ten
_MOST_SPLITS: Final = 2000  # which take about 20 ms
_MOST_FINALISTS: Final = 8
_CHUNKS_OF_FINALISTS: Final = 50_000  # all together, which take about 50 ms


def _even_pieces(size: int, width: int) -> list[int]:
    n_pieces = -(-size // width) or 1
    quotient, remainder = divmod(size, n_pieces)
    return [quotient + 1] * remainder + [quotient] * (n_pieces - remainder)


def _combinations(bases: Mapping[str, Sequence[Chunks]]) -> Iterator[tuple[Cut, ...]]:
    """Return one cut for each dim, in all ways; of the first chunkings only, where that would be too many ways."""
    kept = [list(map(_uncut, chunkings)) for chunkings in bases.values()]
    while math.prod(map(len, kept)) > _MOST_COMBINATIONS:
        max(kept, key=len).pop()
    return itertools.product(*kept)


def _uncut(chunks: Chunks) -> Cut:
    """Return chunks as they are."""
    base = Base(chunks, width_of(chunks))
    return Cut(base, base.width, len(chunks))


def _widths(cuts: _Cuts) -> dict[str, int]:
    return {dim: cut.width for dim, cut in cuts.items()}


def _fits(widths: Mapping[str, int], blocks: Sequence[Block]) -> bool:
    return all(block.n_bytes(widths) <= block.reachable for block in blocks)


def _split(unsplit: Sequence[_Cuts], dims: Sequence[str], blocks: Sequence[Block]) -> list[_Cuts]:
    """Return the ways to split these chunks along these dims until all blocks fit, each way once."""
    per_start = _MOST_SPLITS / (len(unsplit) * max(1, len(dims)))
    n_widths = max(1, int(per_start ** (1 / max(1, len(dims) - 1))))
    narrow = functools.cache(_narrow)
    ways = {
        tuple(narrow(cut.base, widths[dim]) for dim, cut in cuts.items()): None
        for cuts in unsplit
        for widths in _fitting_widths(_widths(cuts), dims, blocks, n_widths)
    }
    return [dict(zip(unsplit[0], way, strict=True)) for way in ways]


def _fitting_widths(
    widths: Mapping[str, int], dims: Sequence[str], blocks: Sequence[Block], n_widths: int
) -> Iterator[Mapping[str, int]]:
    """Yield widths with which all blocks fit: one dim as wide as may be, the others at a few widths each."""
    for last in sorted(dims, key=widths.__getitem__, reverse=True):  # where costs are equal the widest is split
        others = [dim for dim in dims if dim != last]
        for chosen in itertools.product(*(_some_widths(widths[dim], n_widths) for dim in others)):
            narrowed = {**widths, **dict(zip(others, chosen, strict=True))}
            narrowed[last] = min(widths[last], _widest(last, narrowed, blocks))
            if _fits(narrowed, blocks):
                yield narrowed
    yield _narrowed_in_turn(widths, dims, blocks)


def _some_widths(width: int, number: int) -> list[int]:
    """Return the width and even parts of it, down to 1, not more than `number`."""
    doubled = itertools.chain.from_iterable((2**power, 3 * 2**power // 2) for power in range(width.bit_length()))
    found = sorted({-(-width // parts) for parts in doubled if 0 < parts <= width} | {min(1, width)}, reverse=True)
    if len(found) <= number:
        return found
    return [found[index * (len(found) - 1) // max(1, number - 1)] for index in range(number)]


def _widest(dim: str, widths: Mapping[str, int], blocks: Sequence[Block]) -> int:
    """Return the largest width of a dim with which all blocks that vary along it fit; at least 1."""
    others = {**widths, dim: 1}
    sizes = ((block.reachable, block.n_bytes(others)) for block in blocks if dim in block.dims)
    return max(1, min((limit // n_bytes for limit, n_bytes in sizes if n_bytes), default=widths[dim]))


def _narrowed_in_turn(widths: Mapping[str, int], dims: Sequence[str], blocks: Sequence[Block]) -> dict[str, int]:
    """Return widths with which all blocks fit for certain: the widest dim of each is narrowed until it does."""
    narrowed = dict(widths)
    for block in blocks:
        while (n_bytes := block.n_bytes(narrowed)) > block.reachable:
            widest = max((dim for dim in block.dims if dim in dims), key=narrowed.__getitem__)
            narrowed[widest] = max(1, narrowed[widest] * block.reachable // n_bytes)
    return narrowed


def _narrow(base: Base, width: int) -> Cut:
    """Return chunks of at most `width`, by even cuts inside those that are larger."""
    if width >= base.width:
        return Cut(base, base.width, len(base.chunks))
    pieces = [-(-size // width) or 1 for size in base.numbers]
    widest = max(-(-size // n_pieces) for size, n_pieces in zip(base.numbers, pieces, strict=True))
    return Cut(base, widest, sum(map(operator.mul, base.numbers.values(), pieces)))


def _misfits(movers: Sequence[Mover], unsplit: Sequence[_Cuts]) -> _Misfits:
    """Return how many ends of an argument's chunks are inside chunks of a base, for all of both."""
    bases = {cut.base: dim for cuts in unsplit for dim, cut in cuts.items()}
    ends = {base: _ends(base.chunks) for base in bases}
    found: dict[tuple[Mover, Base], int] = {}
    for mover in movers:
        own = {dim: _ends(chunks) for dim, chunks in mover.loop}
        found.update({(mover, base): len(own[dim] - ends[base]) for base, dim in bases.items() if dim in own})
    return found


def _ends(chunks: Chunks) -> set[int]:
    return set(itertools.accumulate(filter(None, chunks)))


def _n_finalists(bases: Mapping[str, Sequence[Chunks]]) -> int:
    n_chunks = sum(len(chunks) for chunkings in bases.values() for chunks in chunkings)
    return max(1, min(_MOST_FINALISTS, _CHUNKS_OF_FINALISTS // max(1, n_chunks)))


def _rough_seconds(
    cuts: _Cuts, *, blocks: Sequence[Block], movers: Sequence[Mover], misfits: _Misfits, costs: Costs
) -> float:
    return _seconds(cuts, [_rough_work(mover, cuts, misfits) for mover in movers], blocks, movers, costs)


def _rough_work(mover: Mover, cuts: _Cuts, misfits: _Misfits) -> Work:
    """Return the work of one step, by the numbers of chunks alone."""
    pairs = [(len(chunks), cuts[dim].n_chunks, misfits[mover, cuts[dim].base]) for dim, chunks in mover.loop]
    n_cores, n_blocks = math.prod(map(len, mover.core)), math.prod(n_chunks for _, n_chunks, _ in pairs)
    if n_cores == 1 and all(n_given == n_chunks and not n_misfits for n_given, n_chunks, n_misfits in pairs):
        return Work()
    n_loop_pieces = math.prod(n_chunks + n_misfits for _, n_chunks, n_misfits in pairs)
    n_pieces, moved = n_cores * n_loop_pieces, mover.n_bytes if n_cores * n_loop_pieces > n_blocks else 0
    if mover.may_merge_first:
        n_pieces = min(n_pieces, math.prod(n_given for n_given, _, _ in pairs) + n_loop_pieces)
    return Work(n_pieces + n_blocks, moved, 1)


def _exact_seconds(
    cuts: _Cuts, *, blocks: Sequence[Block], movers: Sequence[Mover], costs: Costs, steps: Steps
) -> float:
    chunks = {dim: cut.chunks for dim, cut in cuts.items()}
    return _seconds(cuts, [_exact_work(mover, chunks, costs, steps) for mover in movers], blocks, movers, costs)


def _exact_work(mover: Mover, chunks: Mapping[str, Chunks], costs: Costs, steps: Steps) -> Work:
    loop, core = tuple(own for _, own in mover.loop), tuple((known_size(own),) for own in mover.core)
    after = (*(chunks[dim] for dim, _ in mover.loop), *core)
    via = (*loop, *core) if mover.may_merge_first else None
    return cheapest_route((*loop, *mover.core), via, after, mover.itemsize, costs, steps)[1]


def _seconds(
    cuts: _Cuts, works: Sequence[Work], blocks: Sequence[Block], movers: Sequence[Mover], costs: Costs
) -> float:
    """Return what tasks, copies, the kernel's rounds over all workers, and large blocks cost together."""
    n_blocks, widths = max(1, math.prod(cut.n_chunks for cut in cuts.values())), _widths(cuts)
    rechunked = sum(work.seconds(costs) for work in works)
    computed = sum(mover.n_bytes for mover in movers) * -(-n_blocks // costs.n_workers) / n_blocks
    held = sum(block.n_bytes(widths) for block in blocks) * costs.n_workers
    return rechunked + n_blocks * costs.task + computed * costs.computed + held * costs.held
