"""What it costs to rechunk one argument: tasks and bytes.

In: the chunks of an array before and after, and a callable that knows the steps which Dask would take between them.
Out: a `Work`. Pure arithmetic on known sizes; knows neither Dask, nor arguments, nor budgets.

The count is that of Dask's rechunk by tasks: one for every piece of an old block that is not all of it, and one for
every new block. A new block of one piece is a view, so that only those of several pieces move bytes.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ..._typing import Chunks

__all__ = [
    "DEFAULT_COSTS",
    "Costs",
    "Steps",
    "Work",
    "cheapest_route",
    "known_size",
    "one_step",
    "rechunk_work",
    "remembered",
    "total_size",
]

_Found = TypeVar("_Found")

Steps: TypeAlias = Callable[[tuple[Chunks, ...], tuple[Chunks, ...], int], Sequence[tuple[Chunks, ...]]]
"""From chunks before, chunks after, and the size of an item in bytes: the chunks after each step, the last included."""


@dataclass(frozen=True, slots=True)
class Costs:
    """
    What work costs, in seconds. Only ratios matter: between plans that fit the budget the cheapest is taken.

    Measured with threads on two cores. The number of workers is not that of the machine, so that a plan, and with it
    the name of a Dask array, is the same everywhere.
    """

    task: float = 4e-4  # for one task
    moved: float = 1 / 1.5e9  # for one byte that is copied into a new block
    computed: float = 1 / 0.7e9  # for one byte that a kernel reads
    held: float = 0.5e-9  # for one byte of a block, on every worker
    n_workers: int = 2


DEFAULT_COSTS: Final = Costs()


@dataclass(frozen=True, slots=True)
class Work:
    """What rechunking an array takes; estimated, as Dask joins and drops tasks later."""

    n_tasks: int = 0
    bytes_moved: int = 0  # copied into new blocks, once for each step that does
    n_steps: int = 0

    def seconds(self, costs: Costs) -> float:
        return self.n_tasks * costs.task + self.bytes_moved * costs.moved

    def __add__(self, other: Work) -> Work:
        return Work(self.n_tasks + other.n_tasks, self.bytes_moved + other.bytes_moved, self.n_steps + other.n_steps)


def cheapest_route(
    before: tuple[Chunks, ...],
    via: tuple[Chunks, ...] | None,
    after: tuple[Chunks, ...],
    itemsize: int,
    costs: Costs,
    steps: Steps,
) -> tuple[tuple[Chunks, ...] | None, Work]:
    """Return `via` where it is cheaper to rechunk to it first, else None, and the work of that.

    Blocks that are larger than those before and after have to be held, which counts against it.
    """
    direct = rechunk_work(before, after, itemsize, steps)
    if via is None or not direct.n_tasks or via in (before, after):
        return None, direct
    detour = rechunk_work(before, via, itemsize, steps) + rechunk_work(via, after, itemsize, steps)
    larger = _block_bytes(via, itemsize) - max(_block_bytes(before, itemsize), _block_bytes(after, itemsize))
    held = max(0, larger) * costs.n_workers * costs.held
    return (via, detour) if detour.seconds(costs) + held < direct.seconds(costs) else (None, direct)


def rechunk_work(before: tuple[Chunks, ...], after: tuple[Chunks, ...], itemsize: int, steps: Steps) -> Work:
    """Return the work between two chunkings of one array, all sizes known; `itemsize` in bytes."""
    if before == after or not all(map(total_size, before)):
        return Work()
    is_long = sum(map(len, before)) + sum(map(len, after)) > _LONGEST_PLANNED
    stages = [before, *(one_step if is_long else steps)(before, after, itemsize)]
    works = (_step_work(list(map(_crossing, old, new)), itemsize) for old, new in itertools.pairwise(stages))
    return sum(works, start=Work())


def _block_bytes(chunks: tuple[Chunks, ...], itemsize: int) -> int:
    """Return the bytes of the largest block."""
    return itemsize * math.prod(max(filter(None, along), default=0) for along in chunks)


def one_step(before: tuple[Chunks, ...], after: tuple[Chunks, ...], itemsize: int) -> list[tuple[Chunks, ...]]:
    """Go there at once: the steps of one who knows no better."""
    return [after]


def remembered(function: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    """Return a function of the chunks along one axis that remembers what it found; long ones would fill the memory.

    To find a thousand chunks again takes a tenth of the time that it takes to go through them.
    """
    found = functools.lru_cache(maxsize=64)(function)

    @functools.wraps(function)
    def find(chunks: Any) -> _Found:
        return function(chunks) if len(chunks) > _LONGEST_PLANNED else found(chunks)

    return find


@remembered
def total_size(chunks: Chunks) -> int | None:
    """Return the size of an axis in these chunks; None: unknown."""
    return None if None in chunks else known_size(chunks)


def known_size(chunks: Chunks) -> int:
    """Return the size of an axis as far as it is known."""
    return sum(filter(None, chunks))  # a long axis has a million chunks: no loop in Python, here and below


_LONGEST_PLANNED: Final = 20_000
"""Chunks together, before and after, beyond which steps are not asked for, nor pieces counted one by one."""


class _Crossing(NamedTuple):
    """How the chunks of one axis, old and new, cut each other."""

    size: int
    n_pieces: int
    n_new: int
    n_whole: int  # old chunks that lie within one new chunk
    single_size: int  # of the new chunks that lie within one old chunk, together


def _step_work(crossings: Sequence[_Crossing], itemsize: int) -> Work:
    """Return the work of one step: what is true of a block is true of its chunk along each axis."""
    n_slices = math.prod(along.n_pieces for along in crossings) - math.prod(along.n_whole for along in crossings)
    merged_size = math.prod(along.size for along in crossings) - math.prod(along.single_size for along in crossings)
    return Work(n_slices + math.prod(along.n_new for along in crossings), merged_size * itemsize, 1)


def _crossing(old: Chunks, new: Chunks) -> _Crossing:
    if old == new:
        return _Crossing(known_size(new), len(new), len(new), len(new), known_size(new))
    return _rough_crossing(old, new) if len(old) + len(new) > _LONGEST_PLANNED else _exact_crossing(old, new)


@functools.lru_cache(maxsize=64)
def _exact_crossing(old: Chunks, new: Chunks) -> _Crossing:
    size, old_ends, new_ends = known_size(new), _ends(old), _ends(new)
    broken_old, broken_new = _broken(old_ends, new_ends), _broken(new_ends, old_ends)
    broken_size = sum(_size_of(new_ends, chunk) for chunk in broken_new)
    n_pieces = len({*old_ends, *new_ends})
    return _Crossing(size, n_pieces, len(new), len(old_ends) - len(broken_old), size - broken_size)


def _rough_crossing(old: Chunks, new: Chunks) -> _Crossing:
    """Return how long axes cut each other, as if every cut went through another chunk."""
    size, old_ends, new_ends = known_size(new), set(_ends(old)), set(_ends(new))
    n_whole = max(0, len(old_ends) - len(new_ends - old_ends))
    n_single = max(0, len(new_ends) - len(old_ends - new_ends))
    return _Crossing(size, len(old_ends | new_ends), len(new), n_whole, size * n_single // max(1, len(new_ends)))


def _ends(chunks: Chunks) -> list[int]:
    return list(itertools.accumulate(filter(None, chunks)))


def _broken(ends: Sequence[int], cuts: Sequence[int]) -> set[int]:
    """Return which of the chunks that end here a cut goes through, an end being no cut of its chunk."""
    return {bisect.bisect_left(ends, cut) for cut in set(cuts).difference(ends)}


def _size_of(ends: Sequence[int], chunk: int) -> int:
    return ends[chunk] - (ends[chunk - 1] if chunk else 0)
