"""Core dims that stay in chunks: arguments cut alike along them, and outputs put together from pieces.

In: a call, its arrays, the labels of core dims. Out: `Pieces`. `tuple_layer` and `picked` build the layers;
`block_range` takes some blocks of an array.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.array.rechunk import plan_rechunk

from ..._call import Call
from ..._explanation import CoreWay
from ..._plan import Operand
from ..._typing import Array, Chunks, Namespace
from ._arrays import from_host, front_end, is_host
from ._chunk_costs import DEFAULT_COSTS, cheapest_route
from ._chunk_search import width_of
from ._chunks import ArgumentChunks, Move, OutputCore
from ._graph import budget_bytes, check_unknown_outputs, chunks_of, cut_as_planned, output_metas, warnings_of
from ._identity import readable_name
from ._keywords import without_large_keywords
from ._layers import Operands, Sizes, carriers, layer, unknown_as_nan
from ._piece_chunks import PiecePlan, plan_pieces
from ._planned import Planned
from ._tasks import Pick

__all__ = ["Pieces", "are_chunked", "block_range", "of_size_one", "picked", "plan_cuts", "tuple_layer"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A call whose arguments are cut, some core dims too."""

    da: Namespace
    call: Call
    arrays: tuple[Array, ...]
    arguments: tuple[ArgumentChunks, ...]  # as the arrays were given
    loop_chunks: tuple[tuple[str, Chunks], ...]
    kept: tuple[tuple[str, Chunks], ...]  # core dims of the outputs that stay in chunks
    metas: tuple[Array, ...]  # of the outputs
    shared: tuple[Array, ...]  # large arrays of the kernel's keywords, which the call has no more

    @property
    def name(self) -> str:
        return readable_name(self.call.kernel)

    @property
    def loop(self) -> dict[str, Sizes]:
        """Chunks of the loop dims, as Dask writes them."""
        return {dim: unknown_as_nan(chunks) for dim, chunks in self.loop_chunks}

    @property
    def grid(self) -> dict[str, Sizes]:
        """Chunks of the loop dims and of the core dims that stay in chunks, as Dask writes them."""
        return self.loop | {dim: unknown_as_nan(chunks) for dim, chunks in self.kept}

    def axis(self, argument: int, dim: str) -> int | None:
        """Return the axis of a kept dim in an argument that is cut along it."""
        dims = self.arguments[argument].dims
        axis = dims.index(dim) if dim in dims[self.arguments[argument].n_loop :] else None
        is_cut = axis is not None and self.arrays[argument].numblocks[axis] > 1
        return axis if is_cut else None


def are_chunked(call: Call, arrays: Sequence[Array], dims: Iterable[str]) -> bool:
    """Tell whether an array has one of these core dims in several chunks, other than empty ones."""
    given = chunks_of(call, arrays)
    found = (chunks for argument in given for dim, chunks in argument.core_chunks if dim in dims)
    return any(sum(size != 0 for size in chunks) > 1 for chunks in found)


def plan_cuts(
    call: Call,
    arrays: Sequence[Array],
    halos: Mapping[str, int],
    core: CoreWay,
    build: Callable[[Pieces], tuple[Array, ...]],
    *,
    n_layers: int,
) -> Planned:
    """Return how arguments are cut alike along core dims and loop dims; no piece is smaller than its dim's halo."""
    da, dims = front_end(arrays), tuple(halos)

    def lazy(arrays: Sequence[Array]) -> list[Array]:
        return [_lazy(da, array, operand, dims) for array, operand in zip(arrays, _operands(call), strict=True)]

    given = tuple(chunks_of(call, lazy(arrays)))
    plan = _plan(call, given, halos)
    check_unknown_outputs(call, plan.n_blocks)
    call, large = without_large_keywords(call)

    def built(arrays: Sequence[Array]) -> tuple[Array, ...]:
        cut = cut_as_planned(da, lazy(arrays), given, plan.moves, plan.arguments)
        shared = tuple(from_host(da, array) for array in large)
        return build(Pieces(da, call, cut, given, plan.loop, plan.kept, output_metas(call, cut), shared))

    return Planned(
        core=core,
        loop=plan.loop,
        kept=plan.kept,
        given=given,
        arguments=plan.arguments,
        moves=plan.moves,
        n_tasks=n_layers * plan.n_blocks,
        warnings=warnings_of(plan.excess, call.runner, n_tasks=plan.n_blocks),
        build=built,
    )


def tuple_layer(pieces: Pieces, func: Any, operands: Operands, grid: Mapping[str, Sizes]) -> Array:
    """Return an array whose blocks are what `func` returns, of any type: one for each block of `grid`."""
    return layer(pieces.da, func, operands, of_size_one(grid), np.empty((0,) * len(grid), object), pieces.name)


def of_size_one(grid: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Return as many chunks as `grid` has, all of size 1, for blocks whose true size is nobody's concern.

    Where a size is unknown, or an axis has no more than one element, Dask's `concatenate` would rechunk.
    """
    return {label: (1,) * len(chunks) for label, chunks in grid.items()}


def picked(pieces: Pieces, tuples: Array, labels: tuple[str, ...]) -> tuple[Array, ...]:
    """Return the outputs out of an array of tuples; its axes are loop dims, kept dims, and what `ONE_BLOCK` labels."""
    n_outputs = len(pieces.metas)
    names = [pieces.name] if n_outputs == 1 else [f"{pieces.name}-{place}" for place in range(n_outputs)]
    return tuple(_picked(pieces, tuples, labels, place, name) for place, name in enumerate(names))


def block_range(array: Array, axis: int, first: int, last: int) -> Array:
    """Return the blocks of an array from `first` up to, without, `last` along an axis, and all of the other axes."""
    index = [slice(None)] * array.ndim
    if hasattr(array, "blocks"):
        index[axis] = slice(first, last)
        return array.blocks[tuple(index)]
    ends = [0, *itertools.accumulate(array.chunks[axis])]  # expressions of `dask.array` have no blocks
    index[axis] = slice(ends[first], ends[last])
    return array[tuple(index)]


def _operands(call: Call) -> list[Operand]:
    found = (call.plan.inputs[position] for position in call.runner.array_positions)
    return [operand for operand in found if operand is not None]


def _lazy(da: Namespace, array: Array, operand: Operand, dims: Sequence[str]) -> Array:
    """Return an array that can be cut along core dims."""
    has_dim = any(dim in dims for dim in operand.dims[operand.n_loop :])
    return from_host(da, array) if is_host(array) and has_dim else array


def _plan(call: Call, given: Sequence[ArgumentChunks], halos: Mapping[str, int]) -> PiecePlan:
    """Return the chunks of a call, of which no piece is smaller than its dim's halo."""
    dims = tuple(halos)
    unknown = {dim for argument in given for dim, chunks in argument.core_chunks if None in chunks}
    cleaned = [_without_empty(argument, set(dims) - unknown) for argument in given]
    cores = zip(call.plan.outputs, call.dtypes, strict=True)
    outputs = [_output_core(output, dtype.itemsize, dims) for output, dtype in cores]
    plan = plan_pieces(cleaned, dims, outputs, budget_bytes(call.options), steps=plan_rechunk)
    kept = {dim: _at_least(chunks, halos[dim]) for dim, chunks in plan.kept}
    aims = tuple(_aim(argument, chunks, plan, kept) for argument, chunks in zip(given, plan.arguments, strict=True))
    moves = tuple(map(_moved, plan.moves, given, cleaned, plan.arguments, aims))
    return dataclasses.replace(plan, kept=tuple(kept.items()), arguments=aims, moves=moves)


def _without_empty(argument: ArgumentChunks, dims: Iterable[str]) -> ArgumentChunks:
    """Return an argument without empty chunks along these dims."""
    pairs = zip(argument.dims, argument.chunks, strict=True)
    chunks = tuple((tuple(filter(None, along)) or (0,)) if dim in dims else along for dim, along in pairs)
    return dataclasses.replace(argument, chunks=chunks)


def _output_core(output: Operand, itemsize: int, dims: Sequence[str]) -> OutputCore:
    cores = zip(output.dims[output.n_loop :], output.core_shape, strict=True)
    return OutputCore(tuple(size for dim, size in cores if dim not in dims), itemsize)


def _at_least(chunks: Chunks, least: int) -> Chunks:
    """Return chunks merged with those that follow, until none is smaller than `least`."""
    merged: list[int | None] = []
    for size in chunks:
        if merged and size is not None and (merged[-1] or 0) < least:
            merged[-1] = (merged[-1] or 0) + size
        else:
            merged.append(size)
    if len(merged) > 1 and (merged[-1] or 0) < least:
        merged[-2:] = [(merged[-2] or 0) + (merged[-1] or 0)]
    return tuple(merged)


def _aim(
    argument: ArgumentChunks, planned: tuple[Chunks, ...], plan: PiecePlan, kept: Mapping[str, Chunks]
) -> tuple[Chunks, ...]:
    """Return the chunks that an argument takes: the planned ones, but for pieces that are too small."""
    common, pairs = dict(plan.kept), zip(argument.dims, planned, strict=True)
    return tuple(kept[dim] if dim in kept and chunks == common[dim] else chunks for dim, chunks in pairs)


def _moved(
    move: Move,
    argument: ArgumentChunks,
    cleaned: ArgumentChunks,
    planned: tuple[Chunks, ...],
    aim: tuple[Chunks, ...],
) -> Move:
    """Return what becomes of an argument whose chunks are not those that were planned with, or for."""
    if not argument.is_known or (argument.chunks == cleaned.chunks and aim == planned):
        return move
    via, work = cheapest_route(argument.chunks, move.via, aim, argument.itemsize, DEFAULT_COSTS, plan_rechunk)
    return dataclasses.replace(
        move,
        via=via,
        bytes_after=argument.itemsize * math.prod(map(width_of, aim)),
        bytes_moved=work.bytes_moved,
        n_tasks=work.n_tasks,
        n_steps=work.n_steps,
    )


def _picked(pieces: Pieces, tuples: Array, labels: tuple[str, ...], place: int, name: str) -> Array:
    output = pieces.call.plan.outputs[place]
    core = {f"o{axis}": dim for axis, dim in enumerate(output.dims[output.n_loop :])}
    kept = dict(pieces.kept)
    label_of = {dim: label for label, dim in core.items() if dim in kept}
    sizes = (kept.get(dim, (size,)) for dim, size in zip(core.values(), output.core_shape, strict=True))
    grid = pieces.loop | dict(zip(core, map(unknown_as_nan, sizes), strict=True))
    one_block = [label for label, dim in core.items() if dim not in kept]
    operands = [*carriers(one_block), (tuples, tuple(label_of.get(label, label) for label in labels))]
    return layer(pieces.da, Pick(place), operands, grid, pieces.metas[place], name)
