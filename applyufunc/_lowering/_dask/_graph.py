"""One call becomes layers of a Dask graph: `lower`, on top of ``da.blockwise`` alone.

In: a `Call`, Dask arrays, and NumPy arrays that are held whole. Out: one lazy Dask array per output. A layer is as
large for a million blocks as for one. The kernel runs in one layer; several outputs, and one without core dims, are
picked from its tuples by another. `da` is the front end that the arguments are from, as `_arrays` tells; the few
functions used of it mean the same in all of them.

Labels are strings. Loop dims have the plan's. An output's core dims are ``o0``, ``o1``, … by position, so that a dim
may repeat; each is in one block, which a `dask.layers.ArrayBlockIdDep` carries. All core dims of the arguments,
and their loop dims of size 1 that broadcast over several blocks, share one label of one block: ``o0`` where the layer
has it, else ``c``. Dask would take a loop label there too, and then lose blocks where a fused producer made the axis
by ``new_axes``, as `dask.array.map_blocks` does with ``new_axis``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import dask
import numpy as np
from dask.array.rechunk import plan_rechunk
from dask.array.utils import meta_from_array
from dask.layers import ArrayBlockIdDep, ArraySliceDep
from dask.utils import parse_bytes

from ..._call import Call
from ..._errors import OptionError, UnknownSizeError, warn_caller
from ..._options import Options
from ..._plan import Operand
from ..._transfer import transfer_is_allowed
from ..._typing import Array, Namespace, Shape
from ._arrays import front_end, is_host, richest_meta
from ._chunks import ArgumentChunks, ChunkPlan, Chunks, OutputCore, plan_chunks, total_size
from ._identity import call_token, readable_name
from ._tasks import KernelTask, Pick, last

__all__ = ["build_layers", "lower", "plan_blocks"]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    given, chunk_plan = plan_blocks(call, arrays)
    if chunk_plan.excess is not None:
        warn_caller(str(chunk_plan.excess))
    return build_layers(call, arrays, given, chunk_plan)


def plan_blocks(call: Call, arrays: Sequence[Array]) -> tuple[list[ArgumentChunks], ChunkPlan]:
    """Return how the arguments are cut, and how they will be; refuse what cannot be."""
    given = _chunks_of(call, arrays)
    cores = [OutputCore(o.core_shape, d.itemsize) for o, d in zip(call.plan.outputs, call.dtypes, strict=True)]
    merge = call.options.core_chunks == "merge"
    chunk_plan = plan_chunks(given, cores, _budget(call.options), merge=merge, steps=plan_rechunk)
    _check_unknown_outputs(call, chunk_plan)
    return given, chunk_plan


def build_layers(
    call: Call, arrays: Sequence[Array], given: Sequence[ArgumentChunks], chunk_plan: ChunkPlan
) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are to be cut as planned."""
    da = front_end(arrays)
    vias = [move.via for move in chunk_plan.moves]
    planned = [_rechunked(da, *each) for each in zip(arrays, given, vias, chunk_plan.arguments, strict=True)]
    return _layers(da, call, planned, given, chunk_plan)


_Labels: TypeAlias = tuple[str, ...]
_Operands: TypeAlias = list[tuple[Any, _Labels]]
_Sizes: TypeAlias = tuple[Any, ...]
"""Chunks of one axis as Dask writes them: NaN for an unknown size."""

_ONE_BLOCK: Final = "c"
_CARRIER: Final = ArrayBlockIdDep(((1,),))
_NO_DIM: Final = ArrayBlockIdDep(())


def _chunks_of(call: Call, arrays: Sequence[Array]) -> list[ArgumentChunks]:
    operands = (call.plan.inputs[position] for position in call.runner.array_positions)
    return list(map(_argument_chunks, call.runner.array_positions, operands, arrays))


def _argument_chunks(position: int, operand: Operand | None, array: Array) -> ArgumentChunks:
    assert operand is not None  # of an array
    host = is_host(array)
    chunks = tuple((size,) for size in array.shape) if host else tuple(map(_known, array.chunks))
    return ArgumentChunks(position, operand.dims, chunks, operand.n_core, array.dtype.itemsize, in_memory=host)


def _known(chunks: Sequence[float]) -> Chunks:
    return tuple(None if math.isnan(size) else int(size) for size in chunks)


def _unknown_as_nan(chunks: Chunks) -> _Sizes:
    return tuple(math.nan if size is None else size for size in chunks)


def _budget(options: Options) -> int | None:
    """Return the bytes that the largest block may have; None: as many as the largest that the caller made."""
    if options.budget == "keep":
        return None
    return int(parse_bytes(dask.config.get("array.chunk-size"))) if options.budget is None else options.budget


def _check_unknown_outputs(call: Call, chunk_plan: ChunkPlan) -> None:
    """Refuse a size that the kernel will tell, where several blocks could tell different ones."""
    told = {label for label, size in call.runner.output_sizes if size is None}
    if not told or chunk_plan.n_blocks <= 1:
        return
    for dim in itertools.chain.from_iterable(call.plan.signature.outputs):
        if told.intersection((dim.label, *dim.names)):
            raise UnknownSizeError(
                f"the size of output dimension {dim.label!r} is unknown until computed (output_sizes has None), and "
                f"each of the {chunk_plan.n_blocks} loop blocks could have another: pass UpTo(bound) in output_sizes, "
                f"or rechunk the loop dimensions to one chunk each"
            )


def _rechunked(
    da: Namespace, array: Array, argument: ArgumentChunks, via: tuple[Chunks, ...] | None, chunks: tuple[Chunks, ...]
) -> Array:
    """Return an argument as a Dask array with the planned chunks; one that is so already stays the same object."""
    if argument.in_memory:
        return da.from_array(array, chunks=array.shape)
    if any(len(core) > 1 and None in core for _, core in argument.core_chunks):
        array = _merged(da, array, argument)
    if tuple(map(_known, array.chunks)) == chunks:
        return array
    if array.ndim and not any(array.shape):  # of which `rechunk` may keep the chunks, whatever is asked
        return da.empty_like(array, chunks=chunks)
    if via is not None:
        array = array.rechunk(via)
    return array.rechunk(tuple(map(_unknown_as_nan, chunks)))


def _merged(da: Namespace, array: Array, argument: ArgumentChunks) -> Array:
    """Return an array with its core dims in one chunk each, which may have any size: its blocks are concatenated."""
    loop = dict(zip(argument.dims[: argument.n_loop], array.chunks, strict=False))
    core_shape = tuple(map(total_size, (chunks for _, chunks in argument.core_chunks)))
    pieces = tuple(f"m{axis}" for axis in range(argument.n_core))
    return _layer(da, last, [(array, (*loop, *pieces))], loop, core_shape, array._meta, "merge", concatenate=True)


def _layers(
    da: Namespace, call: Call, arrays: Sequence[Array], given: Sequence[ArgumentChunks], chunk_plan: ChunkPlan
) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut as planned."""
    outputs, name, metas = call.plan.outputs, readable_name(call.kernel), _output_metas(call, arrays)
    loop = {dim: _unknown_as_nan(chunks) for dim, chunks in chunk_plan.loop}
    whole = [_whole_axes(array, argument, loop) for array, argument in zip(arrays, given, strict=True)]
    needs_label = any(map(any, whole))
    is_single = len(outputs) == 1 and (outputs[0].n_core > 0 or not needs_label)
    operands = _operands(arrays, given, whole, loop, "o0" if is_single else _ONE_BLOCK)
    task = _task(call, given, chunk_plan, metas, only=0 if is_single else None)
    if is_single:
        return (_layer(da, task, operands, loop, outputs[0].core_shape, metas[0], name),)
    shared = {_ONE_BLOCK: (1,)} if needs_label else {}
    tuples = _layer(da, task, operands, loop | shared, (), np.empty((0,) * (len(loop) + len(shared)), object), name)
    places = range(len(outputs))
    return tuple(_picked(da, tuples, place, outputs[place], loop, metas[place], f"{name}-{place}") for place in places)


def _output_metas(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return an empty array of the type, dtype and number of dims of each output's blocks."""
    outputs, meta = call.plan.outputs, call.options.meta
    each = meta if isinstance(meta, (list, tuple)) else (richest_meta(arrays) if meta is None else meta,) * len(outputs)
    if len(each) != len(outputs):
        raise OptionError(f"meta has {len(each)} array(s), expected {len(outputs)}: one per output, or one for all")
    ndims = (len(output.dims) for output in outputs)
    return tuple(meta_from_array(m, ndim=ndim, dtype=d) for m, ndim, d in zip(each, ndims, call.dtypes, strict=True))


def _task(
    call: Call, given: Sequence[ArgumentChunks], chunk_plan: ChunkPlan, metas: tuple[Array, ...], only: int | None
) -> KernelTask:
    cuts = tuple(_cut_axes(argument, chunk_plan) if argument.in_memory else () for argument in given)
    alike = tuple((dim, _varying(dim, given)) for dim, _ in chunk_plan.loop if _is_unknown(dim, given))
    name, token = readable_name(call.kernel), call_token(call.runner)
    leave = transfer_is_allowed(call.options.allow_transfer)
    return KernelTask(call.runner, name, token, metas, cuts, alike, len(chunk_plan.loop), leave, only)


def _cut_axes(argument: ArgumentChunks, chunk_plan: ChunkPlan) -> tuple[int | None, ...]:
    """Return, for each axis of an array that is there whole, the loop axis along which a block sees a part of it."""
    loop = {dim: axis for axis, (dim, chunks) in enumerate(chunk_plan.loop) if len(chunks) > 1}
    varies = (chunks != (1,) for chunks in argument.loop_chunks.values())
    cores = (None,) * argument.n_core
    return (*(loop.get(dim) if v else None for dim, v in zip(argument.loop_chunks, varies, strict=True)), *cores)


def _is_unknown(dim: str, given: Sequence[ArgumentChunks]) -> bool:
    return any(None in argument.loop_chunks.get(dim, ()) for argument in given)


def _varying(dim: str, given: Sequence[ArgumentChunks]) -> tuple[tuple[int, int], ...]:
    """Return (argument, axis) wherever a loop dim is, but for those of size 1, which broadcast."""
    found = [(index, argument) for index, argument in enumerate(given) if dim in argument.loop_chunks]
    return tuple((index, a.dims.index(dim)) for index, a in found if total_size(a.loop_chunks[dim]) != 1)


def _whole_axes(array: Array, argument: ArgumentChunks, loop: Mapping[str, _Sizes]) -> list[bool]:
    """Tell for each axis whether every block sees all of it, so that it takes the label of one block."""
    if argument.in_memory:
        return [False] * argument.n_loop + [True] * argument.n_core
    thin = [len(loop[dim]) > n_blocks for dim, n_blocks in zip(argument.loop_chunks, array.numblocks, strict=False)]
    return thin + [True] * argument.n_core


def _operands(
    arrays: Sequence[Array],
    given: Sequence[ArgumentChunks],
    whole: Sequence[Sequence[bool]],
    loop: Mapping[str, _Sizes],
    one_block: str,
) -> _Operands:
    """Return what the kernel's task is called with: where the blocks lie in the loop, and the blocks."""
    labels = [
        tuple(one_block if is_whole else dim for dim, is_whole in zip(argument.dims, axes, strict=True))
        for argument, axes in zip(given, whole, strict=True)
    ]
    location: _Operands = [(ArraySliceDep(tuple(loop.values())), tuple(loop))] if loop else []
    return [*location, *zip(arrays, labels, strict=True)]


def _picked(
    da: Namespace, tuples: Array, place: int, output: Operand, loop: Mapping[str, _Sizes], meta: Array, name: str
) -> Array:
    """Return one output out of an array of tuples, whose last axis may be the one block of all core dims."""
    one_block = () if tuples.ndim == len(loop) else ("o0" if output.n_core else _ONE_BLOCK,)
    return _layer(da, Pick(place), [(tuples, (*loop, *one_block))], loop, output.core_shape, meta, name)


def _layer(
    da: Namespace,
    func: Any,
    operands: _Operands,
    loop: Mapping[str, _Sizes],
    core_shape: Shape,
    meta: Array,
    name: str,
    *,
    concatenate: bool | None = None,
) -> Array:
    """Return a blockwise layer of which nothing is left for Dask to guess: neither chunks, nor dtype, nor type.

    What is no array comes first, and there always is something: `dask_array` then does not cut the operands for a
    slice of the result, at which it fails where an operand has one block for many, or the slice is empty.
    """
    core = {f"o{axis}": _unknown_as_nan((size,)) for axis, size in enumerate(core_shape)}
    carriers: _Operands = [(_CARRIER, (label,)) for label in core] or [(_NO_DIM, ())]
    return da.blockwise(
        func,
        (*loop, *core),
        *itertools.chain.from_iterable([*carriers, *operands]),
        adjust_chunks={**loop, **core},
        align_arrays=False,
        concatenate=concatenate,
        dtype=meta.dtype,
        meta=meta,
        token=name,
    )
