"""One call becomes blockwise layers of a Dask graph: `plan_whole`.

In: a `Call`, Dask arrays, and NumPy arrays that are held whole. Out: a `Planned`, which makes one lazy Dask array per
output, of these arrays or of others that look the same. A layer is as
large for a million blocks as for one. The kernel runs in one layer; several outputs, and one without core dims, are
picked from its tuples by another. `da` is the front end that the arguments are from, as `_arrays` tells; the few
functions used of it mean the same in all of them.

Labels are strings. Loop dims have the plan's. An output's core dims are ``o0``, ``o1``, … by position, so that a dim
may repeat; each is in one block. All core dims of the arguments, and their loop dims of size 1 that broadcast over
several blocks, share one label of one block: ``o0`` where the layer has it, else `ONE_BLOCK`. Dask would take a loop
label there too, and then lose blocks where a fused producer made the axis by ``new_axes``, as `dask.array.map_blocks`
does with ``new_axis``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import dask
import numpy as np
from dask.array.rechunk import plan_rechunk
from dask.array.utils import meta_from_array
from dask.utils import parse_bytes

from ..._blocks import BlockRunner
from ..._call import Call
from ..._errors import OptionError, UnknownSizeError
from ..._options import Options
from ..._plan import Operand
from ..._transfer import transfer_is_allowed
from ..._typing import Array, Chunks, Namespace, Shape
from ._arrays import from_host, front_end, is_host, richest_meta
from ._chunks import ArgumentChunks, ChunkPlan, Move, OutputCore, plan_chunks, total_size
from ._excess import Excess
from ._identity import call_token, readable_name
from ._keywords import without_large_keywords
from ._layers import (
    ONE_BLOCK,
    Location,
    Operands,
    Sizes,
    Stage,
    carriers,
    in_one_block,
    inner_layer,
    known,
    layer,
    unknown_as_nan,
)
from ._planned import Planned
from ._tasks import Cut, KernelTask, Pick, as_type_of, last
from ._travel import travel_advice

__all__ = [
    "FEW_CHUNKS",
    "budget_bytes",
    "check_meta",
    "check_unknown_outputs",
    "chunks_of",
    "cut_as_planned",
    "kernel_task",
    "output_metas",
    "plan_whole",
    "settings",
    "warnings_of",
]


def plan_whole(call: Call, arrays: Sequence[Array]) -> Planned:
    """Return how a call is cut into blocks that have whole core dims; refuse what cannot be."""
    given = chunks_of(call, arrays)
    cores = tuple(OutputCore(o.core_shape, d.itemsize) for o, d in zip(call.plan.outputs, call.dtypes, strict=True))
    chunk_plan = _plan_chunks(tuple(given), cores, budget_bytes(call.options), call.options.core_chunks != "refuse")
    check_unknown_outputs(call, chunk_plan.n_blocks)
    call, large = without_large_keywords(call)
    n_layers = 1 if len(cores) == 1 else 1 + len(cores)
    return Planned(
        core="whole",
        loop=chunk_plan.loop,
        given=tuple(given),
        arguments=chunk_plan.arguments,
        moves=chunk_plan.moves,
        n_tasks=n_layers * chunk_plan.n_blocks,
        warnings=warnings_of(chunk_plan.excess, call.runner, n_tasks=chunk_plan.n_blocks),
        build=partial(_build, _blueprint(call, arrays, given, chunk_plan, large), given, chunk_plan, large),
    )


def warnings_of(excess: Excess | None, *runners: BlockRunner, n_tasks: int) -> tuple[str, ...]:
    """Return what a call is warned of, for its blocks and for what travels with its tasks."""
    found = (None if excess is None else str(excess), *(travel_advice(runner, n_tasks) for runner in runners))
    return tuple(text for text in found if text is not None)


def chunks_of(call: Call, arrays: Sequence[Array]) -> list[ArgumentChunks]:
    """Return how the arrays of a call are cut."""
    operands = (call.plan.inputs[position] for position in call.runner.array_positions)
    return list(map(_argument_chunks, call.runner.array_positions, operands, arrays))


def _plan_chunks(
    given: tuple[ArgumentChunks, ...], cores: tuple[OutputCore, ...], budget: int | None, merge: bool
) -> ChunkPlan:
    """Return the chunks for a call, remembered where they are few: a library makes the same call again and again."""
    n_chunks = sum(len(chunks) for argument in given for chunks in argument.chunks)
    find = _find_chunks if n_chunks <= FEW_CHUNKS else _find_chunks.__wrapped__
    return find(given, cores, budget, merge, settings())


def settings() -> tuple[object, ...]:
    """Return what Dask is told of how to rechunk."""
    return tuple(dask.config.get(name, None) for name in _STEPS_DEPEND_ON)


@lru_cache(maxsize=256)
def _find_chunks(
    given: tuple[ArgumentChunks, ...],
    cores: tuple[OutputCore, ...],
    budget: int | None,
    merge: bool,
    settings: tuple[object, ...],
) -> ChunkPlan:
    return plan_chunks(given, cores, budget, merge=merge, steps=plan_rechunk)


def _argument_chunks(position: int, operand: Operand | None, array: Array) -> ArgumentChunks:
    assert operand is not None  # of an array
    host = is_host(array)
    chunks = tuple((size,) for size in array.shape) if host else tuple(map(known, array.chunks))
    return ArgumentChunks(position, operand.dims, chunks, operand.n_core, array.dtype.itemsize, in_memory=host)


def budget_bytes(options: Options) -> int | None:
    """Return the bytes that the largest block may have; None: as many as the largest that the caller made."""
    if options.budget == "keep":
        return None
    return int(parse_bytes(dask.config.get("array.chunk-size"))) if options.budget is None else options.budget


def check_unknown_outputs(call: Call, n_blocks: int) -> None:
    """Refuse a size that the kernel will tell, where several blocks could tell different ones."""
    told = {label for label, size in call.runner.output_sizes if size is None}
    if not told or n_blocks <= 1:
        return
    for dim in itertools.chain.from_iterable(call.plan.signature.outputs):
        if told.intersection((dim.label, *dim.names)):
            raise UnknownSizeError(
                f"the size of output dimension {dim.label!r} is unknown until computed (output_sizes has None), and "
                f"each of the {n_blocks} loop blocks could have another: pass UpTo(bound) in output_sizes, "
                f"or rechunk the loop dimensions to one chunk each"
            )


def cut_as_planned(
    da: Namespace,
    arrays: Sequence[Array],
    given: Sequence[ArgumentChunks],
    moves: Sequence[Move],
    planned: Sequence[tuple[Chunks, ...]],
) -> tuple[Array, ...]:
    """Return all arguments as Dask arrays with the planned chunks."""
    vias = (move.via for move in moves)
    return tuple(_rechunked(da, *each) for each in zip(arrays, given, vias, planned, strict=True))


def _rechunked(
    da: Namespace, array: Array, argument: ArgumentChunks, via: tuple[Chunks, ...] | None, chunks: tuple[Chunks, ...]
) -> Array:
    """Return an argument as a Dask array with the planned chunks; one that is so already stays the same object."""
    if argument.in_memory:
        return from_host(da, array)
    merged = [axis for axis in range(argument.n_loop, array.ndim) if len(chunks[axis]) == 1 < array.numblocks[axis]]
    if any(None in argument.chunks[axis] for axis in merged):
        array = _merged(da, array, merged)
    if tuple(map(known, array.chunks)) == chunks:
        return array
    if 0 in array.shape and not any(map(math.isnan, array.shape)):
        return _empty(da, array, chunks)
    if via is not None:
        array = _in_steps(array, via)
    return _in_steps(array, chunks)


def _empty(da: Namespace, array: Array, chunks: tuple[Chunks, ...]) -> Array:
    """Return an array without elements in other chunks; `rechunk` makes NumPy arrays of those, or keeps the chunks."""
    hollow, meta = da.empty(array.shape, chunks=chunks, dtype=array.dtype), array._meta
    return hollow if type(meta) is np.ndarray else hollow.map_blocks(partial(as_type_of, meta=meta), meta=meta)


def _in_steps(array: Array, chunks: tuple[Chunks, ...]) -> Array:
    """Return an array rechunked; of what is planned in several steps, expressions of `dask.array` lose the first."""
    aim = tuple(map(unknown_as_nan, chunks))
    if hasattr(array, "blocks") or any(None in along for along in map(known, array.chunks)):
        return array.rechunk(aim)
    for step in plan_rechunk(array.chunks, aim, array.dtype.itemsize):
        array = array.rechunk(step)
    return array


def _merged(da: Namespace, array: Array, axes: Sequence[int]) -> Array:
    """Return an array with some axes in one chunk each, which may have any size: its blocks are concatenated."""
    grid = {f"o{axis}" if axis in axes else f"a{axis}": chunks for axis, chunks in enumerate(array.chunks)}
    pieces = tuple(label if label.startswith("a") else f"m{axis}" for axis, label in enumerate(grid))
    whole = {f"o{axis}": unknown_as_nan((total_size(known(array.chunks[axis])),)) for axis in axes}
    operands: Operands = [*carriers([*whole]), (array, pieces)]
    return layer(da, last, operands, grid | whole, array._meta, "merge", concatenate=True)


@dataclass(frozen=True, slots=True)
class _Blueprint:
    """All that there is to know of a call's layers before its arrays."""

    task: KernelTask
    labels: tuple[tuple[str, ...], ...]  # of the axes of each array
    loop: Mapping[str, Sizes]
    one_block: str  # the label of what every task sees whole
    needs_label: bool  # whether an operand has it
    outputs: tuple[Operand, ...]

    @property
    def is_single(self) -> bool:
        """Whether the kernel's blocks are those of the only output, with nothing to pick."""
        return self.task.only is not None


def _blueprint(
    call: Call, arrays: Sequence[Array], given: Sequence[ArgumentChunks], chunk_plan: ChunkPlan, large: Sequence[Array]
) -> _Blueprint:
    outputs = call.plan.outputs
    loop = {dim: unknown_as_nan(chunks) for dim, chunks in chunk_plan.loop}
    whole = [_whole_axes(*each, loop) for each in zip(given, chunk_plan.arguments, strict=True)]
    needs_label = any(map(any, whole)) or any(array.ndim for array in large)
    is_single = len(outputs) == 1 and (outputs[0].n_core > 0 or not needs_label)
    one_block = "o0" if is_single else ONE_BLOCK
    labels = tuple(
        tuple(one_block if is_whole else dim for dim, is_whole in zip(argument.dims, axes, strict=True))
        for argument, axes in zip(given, whole, strict=True)
    )
    metas = output_metas(call, arrays)
    task = kernel_task(call, given, chunk_plan.loop, metas, len(large), only=0 if is_single else None)
    return _Blueprint(task, labels, loop, one_block, needs_label, outputs)


def _build(
    blueprint: _Blueprint,
    given: Sequence[ArgumentChunks],
    chunk_plan: ChunkPlan,
    large: Sequence[Array],
    arrays: Sequence[Array],
) -> tuple[Array, ...]:
    """Return the outputs of a call on arrays that are cut as planned; all its tasks share `large`, of keywords."""
    da = front_end(arrays)
    planned = cut_as_planned(da, arrays, given, chunk_plan.moves, chunk_plan.arguments)
    task, loop, outputs = blueprint.task, blueprint.loop, blueprint.outputs
    location: Operands = [(Location(tuple(loop.values())), tuple(loop))] if loop else []
    shared = in_one_block([from_host(da, array) for array in large], blueprint.one_block)
    operands = [*location, *zip(planned, blueprint.labels, strict=True), *shared]
    if blueprint.is_single:
        return (_layer(da, task, operands, loop, outputs[0].core_shape, task.metas[0], task.name),)
    grid = {**loop, ONE_BLOCK: (1,)} if blueprint.needs_label else loop
    tuples = inner_layer(da, task, operands, grid, task.name)
    return tuple(_picked(da, tuples, blueprint, place) for place in range(len(outputs)))


def output_metas(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return an empty array of the type, dtype and number of dims of each output's blocks."""
    outputs, meta = call.plan.outputs, call.options.meta
    each = meta if isinstance(meta, (list, tuple)) else (richest_meta(arrays) if meta is None else meta,) * len(outputs)
    ndims = (len(output.dims) for output in outputs)
    return tuple(_meta(*each) for each in zip(each, ndims, call.dtypes, strict=True))


def _meta(like: Array, ndim: int, dtype: np.dtype[Any]) -> Array:
    """Return an empty array in memory of its own: `meta_from_array` may return a view, which plans would keep alive."""
    if type(like) is np.ndarray:
        return np.empty((0,) * ndim, dtype)
    meta = meta_from_array(like, ndim=ndim, dtype=dtype)
    return meta.copy() if isinstance(meta, np.ndarray) else meta


def check_meta(call: Call) -> None:
    """Refuse metas that are not one per output."""
    meta, n_outputs = call.options.meta, len(call.plan.outputs)
    if isinstance(meta, (list, tuple)) and len(meta) != n_outputs:
        raise OptionError(f"meta has {len(meta)} array(s), expected {n_outputs}: one per output, or one for all")


def kernel_task(
    call: Call,
    given: Sequence[ArgumentChunks],
    along: Sequence[tuple[str, Chunks]],
    metas: tuple[Array, ...],
    n_shared: int,
    only: int | None = None,
) -> KernelTask:
    """Return the kernel on the blocks of a call; `along`: the dims that locate a block, loop dims first."""
    cuts = tuple(_cut_axes(argument, along) if argument.in_memory else () for argument in given)
    alike = tuple((dim, _varying(dim, given)) for dim, _ in along if _is_unknown(dim, given))
    name, token = readable_name(call.kernel), call_token(call.runner)
    leave = transfer_is_allowed(call.options.allow_transfer)
    return KernelTask(call.runner, name, token, metas, cuts, alike, call.plan.n_loop, n_shared, leave, only)


def _cut_axes(argument: ArgumentChunks, along: Sequence[tuple[str, Chunks]]) -> Cut:
    """Return, for each axis of an array that is there whole, the axis of its location along which a block is cut."""
    axes = {dim: axis for axis, (dim, chunks) in enumerate(along) if len(chunks) > 1}
    pairs = zip(argument.dims, argument.chunks, strict=True)
    return tuple(None if chunks == (1,) else axes.get(dim) for dim, chunks in pairs)


def _is_unknown(dim: str, given: Sequence[ArgumentChunks]) -> bool:
    return any(None in argument.loop_chunks.get(dim, ()) for argument in given)


def _varying(dim: str, given: Sequence[ArgumentChunks]) -> tuple[tuple[int, int], ...]:
    """Return (argument, axis) wherever a loop dim is, but for those of size 1, which broadcast."""
    found = [(index, argument) for index, argument in enumerate(given) if dim in argument.loop_chunks]
    return tuple((index, a.dims.index(dim)) for index, a in found if total_size(a.loop_chunks[dim]) != 1)


def _whole_axes(argument: ArgumentChunks, chunks: Sequence[Chunks], loop: Mapping[str, Sizes]) -> list[bool]:
    """Tell for each axis whether every block sees all of it, so that it takes the label of one block."""
    if argument.in_memory:
        return [False] * argument.n_loop + [True] * argument.n_core
    thin = [len(loop[dim]) > len(along) for dim, along in zip(argument.loop_chunks, chunks, strict=False)]
    return thin + [True] * argument.n_core


def _picked(da: Namespace, tuples: Array | Stage, blueprint: _Blueprint, place: int) -> Array:
    """Return one output out of blocks of tuples, whose last axis may be the one block of all core dims."""
    task, loop, output = blueprint.task, blueprint.loop, blueprint.outputs[place]
    one_block = ("o0" if output.n_core else ONE_BLOCK,) if blueprint.needs_label else ()
    name = f"{task.name}-{place}"
    return _layer(da, Pick(place), [(tuples, (*loop, *one_block))], loop, output.core_shape, task.metas[place], name)


def _layer(
    da: Namespace,
    func: Any,
    operands: Operands,
    loop: Mapping[str, Sizes],
    core_shape: Shape,
    meta: Array,
    name: str,
) -> Array:
    """Return a layer with one block along each core dim of an output."""
    core = {f"o{axis}": unknown_as_nan((size,)) for axis, size in enumerate(core_shape)}
    return layer(da, func, [*carriers([*core]), *operands], {**loop, **core}, meta, name)


FEW_CHUNKS: Final = 1000  # to compare more takes as long as to plan anew
_STEPS_DEPEND_ON: Final = ("array.chunk-size", "array.rechunk.method", "array.rechunk.threshold")
"""Settings of Dask's that `plan_rechunk` reads."""
