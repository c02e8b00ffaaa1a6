"""A core dim that is reduced where its chunks lie: states of blocks, combined in a tree.

In: a `Call` whose option `core_chunks` says how its kernel works piece by piece, and arrays as in `_graph`. Out: one
lazy Dask array per output. Layers: a state for every block; `dask.array.reduction` along each reduced dim, the last
first, so that states stay in order; one pick for every output. A call whose core dims are in one chunk, or better
brought to one, goes to `_graph`.

Labels are those of `_graph`, and ``core n`` for a core dim that stays in chunks.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import dask.array as da
import numpy as np
from dask.layers import ArrayBlockIdDep, ArraySliceDep

from ..._call import Call, input_dtype
from ..._core_chunks import PiecewiseKernel, ReductionRunner, piecewise_kernel
from ..._dtypes import discovered_dtypes
from ..._errors import warn_caller
from ..._plan import Operand, make_plan
from ..._typing import Array
from . import _graph
from ._arrays import as_block
from ._chunks import ArgumentChunks, ChunkPlan, total_size
from ._graph import budget_bytes, check_unknown_outputs, chunks_of, in_graph, output_metas, rechunked, unknown_as_nan
from ._identity import call_token, readable_name
from ._reduction_chunks import ReductionPlan, StateCore, plan_reduction
from ._reduction_tasks import CombineTask, PieceTask, keep
from ._tasks import Cut, KernelTask, Pick

__all__ = ["lower", "reduction_plan"]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    piecewise = piecewise_kernel(call.kernel, call.runner.signature, call.options)
    if piecewise is None:
        return _graph.lower(call, arrays)
    plan = reduction_plan(call, arrays, piecewise)
    if not plan.is_tree:
        return _graph.lower(call, arrays)
    check_unknown_outputs(call, ChunkPlan(plan.loop + plan.independent, (), None))
    if plan.excess is not None:
        warn_caller(str(plan.excess))
    return _layers(call, arrays, piecewise, plan)


def reduction_plan(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel) -> ReductionPlan:
    """Return how a call's arguments are cut, and which core dims are reduced in their chunks, and why not."""
    reduction = piecewise.reduction
    return plan_reduction(
        chunks_of(call, arrays),
        reduction.reduced,
        reduction.independent_dims,
        _state_cores(call, arrays, piecewise),
        budget_bytes(call.options),
        needs_sizes=reduction.offset,
    )


_Sizes: TypeAlias = tuple[Any, ...]
_Chunked: TypeAlias = Mapping[str, _Sizes]
"""Chunks as Dask writes them, by label."""

_SPLIT_EVERY: Final = 4  # states that one task combines
_ONE_BLOCK: Final = "c"
_CARRIER: Final = ArrayBlockIdDep(((1,),))


def _state_cores(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel) -> list[StateCore]:
    runner = _runner(call, arrays, piecewise)
    plan = make_plan(runner.chunk.signature, tuple(o and o.shape for o in call.plan.inputs), runner.chunk.output_sizes)
    dtypes = runner.chunk.dtypes or _discovered(call, arrays, runner)
    sizes = [8] * len(plan.outputs) if dtypes is None else [dtype.itemsize for dtype in dtypes]
    return [StateCore(o.dims[o.n_loop :], o.core_shape, size) for o, size in zip(plan.outputs, sizes, strict=True)]


def _discovered(call: Call, arrays: Sequence[Array], runner: ReductionRunner) -> tuple[np.dtype[Any], ...] | None:
    """Return the states' dtypes as those of outputs are found; None where the caller wants nothing to be called."""
    if call.options.output_dtypes is not None or call.options.meta is not None:
        return None
    chunk = runner.chunk_at(dict.fromkeys(runner.reduced, 0))
    plan = make_plan(chunk.signature, tuple(o and o.shape for o in call.plan.inputs), chunk.output_sizes)
    args = call.runner.insert_constants(arrays)
    return discovered_dtypes(
        chunk,
        plan,
        tuple(map(input_dtype, args)),
        lambda array: array if call.kernel.arrays == "numpy" else as_block(array, arrays),
    )


def _runner(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel) -> ReductionRunner:
    own = call.runner
    input_dtypes = tuple(map(input_dtype, own.insert_constants(arrays)))
    return piecewise.runner(call.plan, own.constants, own.keywords, own.output_sizes, input_dtypes, call.dtypes)


def _layers(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel, plan: ReductionPlan) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut as planned."""
    given, metas, name = chunks_of(call, arrays), output_metas(call, arrays), readable_name(call.kernel)
    cut = [_cut_as_planned(*each) for each in zip(arrays, given, plan.arguments, strict=True)]
    task = _piece_task(call, given, plan, _runner(call, arrays, piecewise), metas)
    loop = {dim: unknown_as_nan(chunks) for dim, chunks in plan.loop}
    independent = {_label(dim): unknown_as_nan(chunks) for dim, chunks in plan.independent}
    reduced = {_label(dim): unknown_as_nan(chunks) for dim, chunks in plan.reduced}
    states = _states(task, cut, given, loop | independent | reduced, tuple(reduced), name)
    last = _combined(states, len(loop) + len(independent), len(reduced), task, name)
    names = [name] if len(metas) == 1 else [f"{name}-{place}" for place in range(len(metas))]
    return tuple(
        _picked(last, place, output, loop, independent, metas[place], names[place])
        for place, output in enumerate(call.plan.outputs)
    )


def _label(dim: str) -> str:
    return f"core {dim}"


def _cut_as_planned(array: Array, argument: ArgumentChunks, chunks: tuple[Any, ...]) -> Array:
    whole = dataclasses.replace(argument, n_core=0)  # no core dim of unknown size is merged here
    return in_graph(rechunked(array, whole, chunks))


def _piece_task(
    call: Call,
    given: Sequence[ArgumentChunks],
    plan: ReductionPlan,
    runner: ReductionRunner,
    metas: tuple[Array, ...],
) -> PieceTask:
    along = plan.loop + plan.independent + plan.reduced
    axes = {dim: axis for axis, (dim, chunks) in enumerate(along) if len(chunks) > 1}
    cuts = tuple(_cut_axes(argument, axes) if argument.in_memory else () for argument in given)
    unknown = (dim for dim, _ in plan.loop if any(None in a.loop_chunks.get(dim, ()) for a in given))
    alike = tuple((dim, _varying(dim, given)) for dim in unknown)
    name = readable_name(call.kernel)
    arranged = KernelTask(call.runner, name, call_token(call.runner), metas, cuts, alike, len(along))
    tokens = tuple(map(call_token, (runner.chunk, runner.combine, runner.aggregate)))
    core_axes = tuple((dim, len(plan.loop) + axis) for axis, (dim, _) in enumerate(plan.independent + plan.reduced))
    return PieceTask(arranged, runner, tokens, core_axes)


def _cut_axes(argument: ArgumentChunks, axes: Mapping[str, int]) -> Cut:
    """Return, for each axis of an array that is there whole, the axis of the location along which it is cut."""
    pairs = zip(argument.dims, argument.chunks, strict=True)
    return tuple(None if chunks == (1,) else axes.get(dim) for dim, chunks in pairs)


def _varying(dim: str, given: Sequence[ArgumentChunks]) -> tuple[tuple[int, int], ...]:
    """Return (argument, axis) wherever a loop dim is, but for those of size 1, which broadcast."""
    found = [(index, argument) for index, argument in enumerate(given) if dim in argument.loop_chunks]
    return tuple((index, a.dims.index(dim)) for index, a in found if total_size(a.loop_chunks[dim]) != 1)


def _states(
    task: PieceTask,
    arrays: Sequence[Array],
    given: Sequence[ArgumentChunks],
    chunks: _Chunked,
    reduced: Sequence[str],
    name: str,
) -> Array:
    """Return an array with one state for every block; all else is along an axis of one block."""
    operands = [(array, _labels(array, argument, chunks)) for array, argument in zip(arrays, given, strict=True)]
    places = (ArraySliceDep(tuple(chunks.values())), tuple(chunks))
    sizes = {label: (1,) * len(along) if label in reduced else along for label, along in chunks.items()}
    layer = sizes | {_ONE_BLOCK: (1,)}
    return _layer(task, [*operands, places, (_CARRIER, (_ONE_BLOCK,))], layer, _no_states(len(layer)), f"{name}-state")


def _labels(array: Array, argument: ArgumentChunks, chunks: _Chunked) -> tuple[str, ...]:
    """Return a label for every axis: its own where it is cut as the layer is, else that of one block."""
    labels = [dim if axis < argument.n_loop else _label(dim) for axis, dim in enumerate(argument.dims)]
    is_cut = [len(chunks.get(label, ())) == n for label, n in zip(labels, array.numblocks, strict=True)]
    return tuple(label if cut else _ONE_BLOCK for label, cut in zip(labels, is_cut, strict=True))


def _no_states(ndim: int) -> Array:
    return np.empty((0,) * ndim, object)


def _combined(states: Array, n_fixed: int, n_reduced: int, task: PieceTask, name: str) -> Array:
    """Return an array with the tuple of all outputs in every block, without the reduced axes and the one-block axis."""
    for axis in reversed(range(n_fixed + 1, n_fixed + n_reduced)):
        states = _combined_along(states, (axis,), task, name, finishes=False)
    last = (n_fixed, n_fixed + 1) if n_reduced else (n_fixed,)
    return _combined_along(states, last, task, name, finishes=True)


def _combined_along(states: Array, axes: tuple[int, ...], task: PieceTask, name: str, *, finishes: bool) -> Array:
    combine, last = CombineTask(task, finishes=False), CombineTask(task, finishes=finishes)
    return da.reduction(
        states,
        chunk=keep,
        combine=combine,
        aggregate=last,
        axis=axes,
        keepdims=False,
        concatenate=False,
        split_every=dict.fromkeys(axes, _SPLIT_EVERY),
        dtype=object,
        meta=_no_states(states.ndim - len(axes)),
        name=name,
    )


def _picked(
    outputs: Array, place: int, output: Operand, loop: _Chunked, independent: _Chunked, meta: Array, name: str
) -> Array:
    """Return one output out of an array of tuples."""
    core: dict[str, _Sizes] = {}
    for axis, (dim, size) in enumerate(zip(output.dims[output.n_loop :], output.core_shape, strict=True)):
        chunks = independent.get(_label(dim))
        core |= {f"o{axis}": unknown_as_nan((size,))} if chunks is None else {_label(dim): chunks}
    carriers = [(_CARRIER, (label,)) for label in core if label not in independent]
    return _layer(Pick(place), [(outputs, (*loop, *independent)), *carriers], {**loop, **core}, meta, name)


def _layer(
    func: Any, operands: Sequence[tuple[Any, tuple[str, ...]]], chunks: _Chunked, meta: Array, name: str
) -> Array:
    """Return a blockwise layer of which nothing is left for Dask to guess: neither chunks, nor dtype, nor type."""
    return da.blockwise(
        func,
        tuple(chunks),
        *itertools.chain.from_iterable(operands),
        adjust_chunks=dict(chunks),
        align_arrays=False,
        dtype=meta.dtype,
        meta=meta,
        token=name,
    )
