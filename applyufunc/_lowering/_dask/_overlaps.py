"""An `Overlap` along core dims in chunks: each block gets the edges of its neighbours, and gives them back trimmed.

In: a call, its halos. Out: one lazy Dask array per output, in the chunks of the arguments, merged where they are
smaller than a halo. The number of layers does not depend on the number of blocks: a layer takes the edge of every
block, the layer of edges is shifted by one block, and a block is joined with the two that then lie beside it. Only
edges, not blocks, wait or travel for the sake of their neighbours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._call import Call
from ..._core_chunks import Halo, Overlap, concat
from ..._errors import UnknownSizeError
from ..._typing import Array, Chunks, Namespace
from ._chunks import ArgumentChunks
from ._graph import chunks_of, kernel_task
from ._layers import ONE_BLOCK, Location, Operands, in_one_block, labels_of, layer, unknown_as_nan
from ._pieces import Pieces, are_chunked, block_range, of_size_one, picked, plan_cuts, tuple_layer
from ._planned import Planned
from ._tasks import KernelTask, noted, piece_text

__all__ = ["plan_overlap"]


def plan_overlap(call: Call, arrays: Sequence[Array]) -> Planned | None:
    """Return how a stencil is cut; None for a call that is no stencil along a core dim in several chunks."""
    rule = call.options.core_chunks
    if not isinstance(rule, Overlap):
        return None
    halos = rule.halos(call.plan.signature)
    if not are_chunked(call, arrays, [halo.dim for halo in halos]):
        return None
    _check_known(halos, chunks_of(call, arrays))
    widest = {halo.dim: halo.widest for halo in halos}
    # Of both edges along each dim: cut, shifted and put together for every argument, and joined.
    n_layers = 1 + len(call.plan.outputs) + 5 * len(halos) * len(arrays)
    planned = plan_cuts(call, arrays, widest, "overlap", partial(_overlap, halos), n_layers=n_layers)
    pairs = zip(planned.given, planned.arguments, strict=True)
    return dataclasses.replace(planned, joined=tuple(_joined(argument, chunks, halos) for argument, chunks in pairs))


def _joined(argument: ArgumentChunks, chunks: tuple[Chunks, ...], halos: Sequence[Halo]) -> tuple[Chunks, ...]:
    """Return the chunks of an argument whose blocks have the edges of their neighbours."""
    core = {halo.dim: halo for halo in halos if halo.dim in argument.dims[argument.n_loop :]}
    pairs = zip(argument.dims, chunks, strict=True)
    return tuple(_with_edges(along, core[dim]) if dim in core else along for dim, along in pairs)


def _with_edges(chunks: Chunks, halo: Halo) -> Chunks:
    last = len(chunks) - 1
    edges = ((halo.before if place else 0) + (halo.after if place < last else 0) for place in range(len(chunks)))
    return tuple(None if size is None else size + edge for size, edge in zip(chunks, edges, strict=True))


def _overlap(halos: tuple[Halo, ...], pieces: Pieces) -> tuple[Array, ...]:
    """Return the outputs of a stencil, core dims last."""
    grid = pieces.grid
    operands: Operands = [
        (_with_halos(pieces, place, halos), labels_of(array, argument.dims, grid))
        for place, (array, argument) in enumerate(zip(pieces.arrays, pieces.arguments, strict=True))
    ]
    location = (Location(tuple(grid.values())), tuple(grid))
    operands += in_one_block(pieces.shared)
    kernel = kernel_task(pieces.call, pieces.arguments, pieces.loop_chunks, pieces.metas, len(pieces.shared))
    task = OverlapTask(kernel, halos, _trimmed_axes(pieces, halos))
    if any(ONE_BLOCK in labels for _, labels in operands):
        grid[ONE_BLOCK] = (1,)
    return picked(pieces, tuple_layer(pieces, task, [location, *operands], grid), tuple(grid))


@dataclass(frozen=True, slots=True)
class OverlapTask:
    """The kernel on one block of every array argument with its halo, which the outputs lose again."""

    task: KernelTask
    halos: tuple[Halo, ...]
    axes: tuple[tuple[int, ...], ...]  # for each output, the axis of each halo, from the right

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return self.task.name

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays; Dask adds those of the blocks."""
        halos = tuple((halo.dim, halo.before, halo.after) for halo in self.halos)
        return "applyufunc.OverlapTask", self.task.__dask_tokenize__(), halos, self.axes

    def __call__(self, _no_dim: Any, location: Sequence[slice], *operands: Array) -> tuple[Array, ...]:
        """Return the outputs for where blocks lie in the loop and along the halos' dims, and the blocks."""
        task, blocks = self.task.filled(operands)
        loop, parts = location[: self.task.n_loop], location[self.task.n_loop :]
        dims = [halo.dim for halo in self.halos]
        with noted(
            f"in the piece {piece_text(dims, parts)}, with its halo, for which the kernel has to return values too"
        ):
            outputs = task.runner(*task.arrange(blocks, loop), location=loop)
        return self.task.finish([self._trimmed(*each, parts) for each in zip(outputs, self.axes, strict=True)])

    def _trimmed(self, output: Array, axes: tuple[int, ...], parts: Sequence[slice]) -> Array:
        index = [slice(None)] * output.ndim
        for axis, halo, part in zip(axes, self.halos, parts, strict=True):
            start = halo.before if part.start else 0
            index[axis] = slice(start, start + part.stop - part.start)
        return output[tuple(index)]


@dataclass(frozen=True, slots=True)
class Edge:
    """The last elements of a block along an axis, or the first."""

    axis: int
    size: int
    is_last: bool

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return "edge"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the edge in the names of arrays."""
        return "applyufunc.Edge", self.axis, self.size, self.is_last

    def __call__(self, _no_dim: Any, block: Array) -> Array:
        """Return the edge, as a copy that does not keep the block."""
        index = [slice(None)] * block.ndim
        n = block.shape[self.axis]
        index[self.axis] = slice(n - self.size, n) if self.is_last else slice(0, self.size)
        edge = block[tuple(index)]
        return edge.copy() if isinstance(edge, np.ndarray) else edge


@dataclass(frozen=True, slots=True)
class Join:
    """A block with the last elements of the one before it, and the first of the one after it."""

    axis: int
    size: int  # of the whole array
    has_before: bool
    has_after: bool

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return "halo"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the join in the names of arrays; Dask adds those of the blocks."""
        return "applyufunc.Join", self.axis, self.size, self.has_before, self.has_after

    def __call__(self, _no_dim: Any, location: Sequence[slice], block: Array, *edges: Array) -> Array:
        """Return a block with those of its neighbours' edges that there are."""
        (part,) = location
        parts = [edges[0]] if self.has_before and part.start else []
        parts.append(block)
        if self.has_after and part.stop < self.size:
            parts.append(edges[-1])
        return concat(parts, self.axis)


def _check_known(halos: Sequence[Halo], given: Sequence[ArgumentChunks]) -> None:
    dims = {halo.dim for halo in halos}
    for argument in given:
        for dim, chunks in argument.core_chunks:
            if dim in dims and None in chunks:
                raise UnknownSizeError(
                    f"core dimension {dim!r} of argument {argument.position} is in {len(chunks)} chunks of unknown "
                    f"size, and Overlap has to know where they end: call compute_chunk_sizes(), or rechunk before "
                    f"sizes are lost"
                )


def _trimmed_axes(pieces: Pieces, halos: Sequence[Halo]) -> tuple[tuple[int, ...], ...]:
    dims = [output.dims for output in pieces.call.plan.outputs]
    return tuple(tuple(own.index(halo.dim) - len(own) for halo in halos) for own in dims)


def _with_halos(pieces: Pieces, place: int, halos: Sequence[Halo]) -> Array:
    """Return an argument whose blocks have the halo along each dim in turn, so that corners come with the edges."""
    array = pieces.arrays[place]
    for halo in halos:
        axis = pieces.axis(place, halo.dim)
        if axis is not None:
            array = _with_halo(pieces.da, array, axis, halo, dict(pieces.kept)[halo.dim])
    return array


def _with_halo(da: Namespace, array: Array, axis: int, halo: Halo, chunks: Sequence[int | None]) -> Array:
    """Return an array whose blocks have the edges of their neighbours; `chunks`: without any halo."""
    labels = tuple(f"a{place}" for place in range(array.ndim))
    grid = dict(zip(labels, array.chunks, strict=True))
    sizes = unknown_as_nan(tuple(chunks))
    edges = [
        _neighbours(da, array, Edge(axis, width, is_last), labels)
        for width, is_last in ((halo.before, True), (halo.after, False))
        if width
    ]
    located = (Location((sizes,)), (labels[axis],))
    join = Join(axis, int(sum(sizes)), has_before=halo.before > 0, has_after=halo.after > 0)
    joined = unknown_as_nan(_with_edges(tuple(chunks), halo))
    operands: Operands = [located, (array, labels), *((edge, labels) for edge in edges)]
    return layer(da, join, operands, grid | {labels[axis]: joined}, array._meta, "halo")


def _neighbours(da: Namespace, array: Array, edge: Edge, labels: tuple[str, ...]) -> Array:
    """Return an array whose blocks are the edges of those before, or after; at the end, of the block itself."""
    grid = of_size_one(dict(zip(labels, array.chunks, strict=True)))
    edges = layer(da, edge, [(array, labels)], grid, array._meta, "edge")
    n_blocks = array.numblocks[edge.axis]
    first, last = (0, n_blocks - 1) if edge.is_last else (1, n_blocks)
    shifted = block_range(edges, edge.axis, first, last)
    end = block_range(edges, edge.axis, 0, 1) if edge.is_last else block_range(edges, edge.axis, n_blocks - 1, n_blocks)
    return da.concatenate([end, shifted] if edge.is_last else [shifted, end], axis=edge.axis)
