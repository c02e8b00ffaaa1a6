"""One call becomes layers of a Dask graph: `lower`, on top of `dask.array.blockwise` alone.

In: a `Call`, Dask arrays, and NumPy arrays that are held whole. Out: one lazy Dask array per output. A layer is as
large for a million blocks as for one. The kernel runs in one layer; several outputs, and one without core dims, are
picked from its tuples by another.

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
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.layers import ArrayBlockIdDep, ArraySliceDep
from dask.utils import parse_bytes

from ..._call import Call
from ..._errors import OptionError, UnknownSizeError, warn_caller
from ..._options import Options
from ..._plan import Operand
from ..._typing import Array, Shape
from ._arrays import richest_meta
from ._chunks import ArgumentChunks, ChunkPlan, Chunks, OutputCore, plan_chunks, total_size
from ._identity import call_token, readable_name
from ._tasks import KernelTask, Pick, first

__all__ = [
    "budget_bytes",
    "check_unknown_outputs",
    "chunks_of",
    "in_graph",
    "lower",
    "output_metas",
    "rechunked",
    "unknown_as_nan",
]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    given = chunks_of(call, arrays)
    cores = [OutputCore(o.core_shape, d.itemsize) for o, d in zip(call.plan.outputs, call.dtypes, strict=True)]
    chunk_plan = plan_chunks(given, cores, budget_bytes(call.options), merge=call.options.core_chunks != "refuse")
    check_unknown_outputs(call, chunk_plan)
    if chunk_plan.excess is not None:
        warn_caller(str(chunk_plan.excess))
    return _layers(call, list(map(rechunked, arrays, given, chunk_plan.arguments)), given, chunk_plan)


_Labels: TypeAlias = tuple[str, ...]
_Operands: TypeAlias = list[tuple[Any, _Labels]]
_Sizes: TypeAlias = tuple[Any, ...]
"""Chunks of one axis as Dask writes them: NaN for an unknown size."""

_ONE_BLOCK: Final = "c"
_CARRIER: Final = ArrayBlockIdDep(((1,),))


def chunks_of(call: Call, arrays: Sequence[Array]) -> list[ArgumentChunks]:
    operands = (call.plan.inputs[position] for position in call.runner.array_positions)
    return list(map(_argument_chunks, call.runner.array_positions, operands, arrays))


def _argument_chunks(position: int, operand: Operand | None, array: Array) -> ArgumentChunks:
    assert operand is not None  # of an array
    is_host = _is_host(array)
    chunks = tuple((size,) for size in array.shape) if is_host else tuple(map(_known, array.chunks))
    return ArgumentChunks(position, operand.dims, chunks, operand.n_core, array.dtype.itemsize, in_memory=is_host)


def _is_host(array: Array) -> bool:
    """Tell an argument that came from the host: part of the graph in one piece, of which every block sees its part."""
    return isinstance(array, np.ndarray)


def _known(chunks: Sequence[float]) -> Chunks:
    return tuple(None if math.isnan(size) else int(size) for size in chunks)


def unknown_as_nan(chunks: Chunks) -> _Sizes:
    return tuple(math.nan if size is None else size for size in chunks)


def budget_bytes(options: Options) -> int:
    """Return the bytes that the largest block may have."""
    budget = dask.config.get("array.chunk-size") if options.budget is None else options.budget
    try:
        return int(parse_bytes(budget))
    except ValueError as error:
        raise OptionError(f"budget takes bytes, or text such as '128 MiB', got {budget!r}: {error}") from None


def check_unknown_outputs(call: Call, chunk_plan: ChunkPlan) -> None:
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


def rechunked(array: Array, argument: ArgumentChunks, chunks: tuple[Chunks, ...]) -> Array:
    """Return an argument with the planned chunks; one that has them already stays the same object."""
    if any(len(core) > 1 and None in core for _, core in argument.core_chunks):
        array = _merged(array, argument)
    if argument.in_memory or tuple(map(_known, array.chunks)) == chunks:
        return array
    if array.ndim and not any(array.shape):  # of which Dask's rechunk keeps the chunks, whatever is asked
        return array.blocks[tuple(slice(len(axis)) for axis in chunks)]
    return array.rechunk(tuple(map(unknown_as_nan, chunks)))


def _merged(array: Array, argument: ArgumentChunks) -> Array:
    """Return an array with its core dims in one chunk each, which may have any size: its blocks are concatenated."""
    loop = dict(zip(argument.dims[: argument.n_loop], array.chunks, strict=False))
    core_shape = tuple(map(total_size, (chunks for _, chunks in argument.core_chunks)))
    pieces = tuple(f"m{axis}" for axis in range(argument.n_core))
    return _layer(first, [(array, (*loop, *pieces))], loop, core_shape, array._meta, "merge", concatenate=True)


def _layers(
    call: Call, arrays: Sequence[Array], given: Sequence[ArgumentChunks], chunk_plan: ChunkPlan
) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut as planned."""
    outputs, name, metas = call.plan.outputs, readable_name(call.kernel), output_metas(call, arrays)
    loop = {dim: unknown_as_nan(chunks) for dim, chunks in chunk_plan.loop}
    whole = [_whole_axes(array, argument, loop) for array, argument in zip(arrays, given, strict=True)]
    needs_label = any(map(any, whole))
    is_single = len(outputs) == 1 and (outputs[0].n_core > 0 or not needs_label)
    operands = _operands(arrays, given, whole, loop, "o0" if is_single else _ONE_BLOCK)
    task = _task(call, given, chunk_plan, metas, only=0 if is_single else None)
    if is_single:
        return (_layer(task, operands, loop, outputs[0].core_shape, metas[0], name),)
    shared = {_ONE_BLOCK: (1,)} if needs_label else {}
    tuples = _layer(task, operands, loop | shared, (), np.empty((0,) * (len(loop) + len(shared)), object), name)
    places = range(len(outputs))
    return tuple(_picked(tuples, place, outputs[place], loop, metas[place], f"{name}-{place}") for place in places)


def output_metas(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
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
    return KernelTask(call.runner, name, token, metas, cuts, alike, len(chunk_plan.loop), only)


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
    """Return what the kernel's task is called with: blocks, and where they lie in the loop."""
    labels = [
        tuple(one_block if is_whole else dim for dim, is_whole in zip(argument.dims, axes, strict=True))
        for argument, axes in zip(given, whole, strict=True)
    ]
    operands: _Operands = [(in_graph(array), own) for array, own in zip(arrays, labels, strict=True)]
    return [*operands, (ArraySliceDep(tuple(loop.values())), tuple(loop))] if loop else operands


def in_graph(array: Array) -> Array:
    return da.from_array(array, chunks=array.shape) if _is_host(array) else array


def _picked(tuples: Array, place: int, output: Operand, loop: Mapping[str, _Sizes], meta: Array, name: str) -> Array:
    """Return one output out of an array of tuples, whose last axis may be the one block of all core dims."""
    one_block = () if tuples.ndim == len(loop) else ("o0" if output.n_core else _ONE_BLOCK,)
    return _layer(Pick(place), [(tuples, (*loop, *one_block))], loop, output.core_shape, meta, name)


def _layer(
    func: Any,
    operands: _Operands,
    loop: Mapping[str, _Sizes],
    core_shape: Shape,
    meta: Array,
    name: str,
    *,
    concatenate: bool | None = None,
) -> Array:
    """Return a blockwise layer of which nothing is left for Dask to guess: neither chunks, nor dtype, nor type."""
    core = {f"o{axis}": unknown_as_nan((size,)) for axis, size in enumerate(core_shape)}
    carriers = [(_CARRIER, (label,)) for label in core]
    return da.blockwise(
        func,
        (*loop, *core),
        *itertools.chain.from_iterable([*operands, *carriers]),
        adjust_chunks={**loop, **core},
        align_arrays=False,
        concatenate=concatenate,
        dtype=meta.dtype,
        meta=meta,
        token=name,
    )
