"""A core dim that is reduced where its chunks lie: states of blocks, combined in a tree.

In: a `Call` whose option `core_chunks` says how its kernel works piece by piece, and arrays as in `_graph`. Out: one
lazy Dask array per output. Layers: a state for every block; the front end's `reduction` along each reduced dim, the
last first, so that states stay in order; one pick for every output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from dask.array.rechunk import plan_rechunk
from dask.layers import ArraySliceDep

from ..._call import Call, input_dtype
from ..._core_chunks import PiecewiseKernel, ReductionRunner, piecewise_kernel
from ..._dtypes import discovered_dtypes
from ..._plan import make_plan
from ..._typing import Array, Namespace
from ._arrays import as_block, block_kind, front_end
from ._graph import (
    budget_bytes,
    check_unknown_outputs,
    chunks_of,
    kernel_task,
    output_metas,
    plan_whole,
    rechunked,
    warnings_of,
)
from ._identity import call_token
from ._layers import ONE_BLOCK, Operands, carriers, in_one_block, labels_of, layer, unknown_as_nan
from ._pieces import Pieces, of_size_one, picked
from ._planned import Planned, as_operands, without_large_keywords
from ._reduction_chunks import ReductionPlan, StateCore, plan_reduction
from ._reduction_tasks import CombineTask, PieceTask, keep

__all__ = ["plan_reduced", "reduction_plan"]


def plan_reduced(call: Call, arrays: Sequence[Array], *, may_try: bool) -> Planned | None:
    """Return how a reduction is cut; None for a call that is none, or whose core dims are in one chunk anyway."""
    piecewise = piecewise_kernel(call.kernel, call.runner.signature, call.options)
    if piecewise is None:
        return None
    plan = reduction_plan(call, arrays, piecewise, may_try=may_try)
    if not plan.is_tree:
        return dataclasses.replace(plan_whole(call, arrays), reason=plan.reason) if plan.merged else None
    check_unknown_outputs(call, plan.n_outputs)
    lighter, large = without_large_keywords(call)
    runner = _runner(call, arrays, piecewise).with_keywords(lighter.runner.keywords)
    parts = (runner.chunk, runner.combine, runner.aggregate)
    return Planned(
        "reduction",
        plan.loop,
        tuple(chunks_of(call, arrays)),
        plan.arguments,
        plan.moves,
        # States, a third as many tasks that combine them, and the tuples' outputs.
        plan.n_pieces * 4 // 3 + (1 + len(call.plan.outputs)) * plan.n_outputs,
        warnings_of(plan.excess, *parts, n_tasks=plan.n_pieces),
        partial(_build, lighter, arrays, runner, plan, large),
        plan.independent + plan.reduced,
        plan.reason,
        plan.state_bytes,
    )


def reduction_plan(
    call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel, *, may_try: bool = True
) -> ReductionPlan:
    """Return how a call's arguments are cut, and which core dims are reduced in their chunks, and why not."""
    reduction = piecewise.reduction
    return plan_reduction(
        chunks_of(call, arrays),
        reduction.reduced,
        reduction.independent_dims,
        _state_cores(call, arrays, piecewise, may_try),
        budget_bytes(call.options),
        needs_sizes=reduction.offset,
        steps=plan_rechunk,
    )


_SPLIT_EVERY: Final = 4  # states that one task combines


def _state_cores(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel, may_try: bool) -> list[StateCore]:
    runner = _runner(call, arrays, piecewise)
    plan = make_plan(runner.chunk.signature, tuple(o and o.shape for o in call.plan.inputs), runner.chunk.output_sizes)
    dtypes = runner.chunk.dtypes or _discovered(call, arrays, runner, may_try)
    sizes = [8] * len(plan.outputs) if dtypes is None else [dtype.itemsize for dtype in dtypes]
    return [StateCore(o.dims[o.n_loop :], o.core_shape, size) for o, size in zip(plan.outputs, sizes, strict=True)]


def _discovered(
    call: Call, arrays: Sequence[Array], runner: ReductionRunner, may_try: bool
) -> tuple[np.dtype[Any], ...] | None:
    """Return the states' dtypes as those of outputs are found; None where the caller wants nothing to be called."""
    if call.options.output_dtypes is not None or call.options.meta is not None:
        return None
    chunk = runner.chunk_at(dict.fromkeys(runner.reduced, 0))
    plan = make_plan(chunk.signature, tuple(o and o.shape for o in call.plan.inputs), chunk.output_sizes)
    args = call.runner.insert_constants(arrays)
    _, dtypes = discovered_dtypes(
        chunk,
        plan,
        tuple(map(input_dtype, args)),
        lambda array: array if call.kernel.arrays == "numpy" else as_block(array, arrays),
        () if call.kernel.arrays == "numpy" else block_kind(arrays),
        may_try=may_try,
    )
    return dtypes


def _runner(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel) -> ReductionRunner:
    own = call.runner
    input_dtypes = tuple(map(input_dtype, own.insert_constants(arrays)))
    return piecewise.runner(call.plan, own.constants, own.keywords, own.output_sizes, input_dtypes, call.dtypes)


def _build(
    call: Call, arrays: Sequence[Array], runner: ReductionRunner, plan: ReductionPlan, large: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut as planned."""
    da, given, metas = front_end(arrays), tuple(chunks_of(call, arrays)), output_metas(call, arrays)
    vias = [move.via for move in plan.moves]
    cut = tuple(rechunked(da, *each) for each in zip(arrays, given, vias, plan.arguments, strict=True))
    pieces = Pieces(da, call, cut, given, plan.loop, plan.independent, metas, as_operands(da, large))
    task = _piece_task(pieces, plan, runner)
    states = _states(pieces, task, plan)
    return picked(pieces, _combined(da, states, len(pieces.grid), len(plan.reduced), task), tuple(pieces.grid))


def _piece_task(pieces: Pieces, plan: ReductionPlan, runner: ReductionRunner) -> PieceTask:
    core = plan.independent + plan.reduced
    tokens = tuple(map(call_token, (runner.chunk, runner.combine, runner.aggregate)))
    arranged = kernel_task(pieces.call, pieces.arguments, plan.loop + core, pieces.metas, len(pieces.shared))
    return PieceTask(arranged, runner, tokens, tuple(dim for dim, _ in core))


def _states(pieces: Pieces, task: PieceTask, plan: ReductionPlan) -> Array:
    """Return an array with one state for every block; all else is along an axis of one block."""
    reduced = {dim: unknown_as_nan(chunks) for dim, chunks in plan.reduced}
    blocks = pieces.grid | reduced
    pairs = zip(pieces.arrays, pieces.arguments, strict=True)
    labels = [labels_of(array, argument.dims, blocks) for array, argument in pairs]
    location = (ArraySliceDep(tuple(blocks.values())), tuple(blocks))
    operands: Operands = [*carriers([ONE_BLOCK]), location, *zip(pieces.arrays, labels, strict=True)]
    operands += in_one_block(pieces.shared)
    grid = pieces.grid | of_size_one(reduced) | {ONE_BLOCK: (1,)}
    return layer(pieces.da, task, operands, grid, _no_states(len(grid)), f"{pieces.name}-state")


def _no_states(ndim: int) -> Array:
    return np.empty((0,) * ndim, object)


def _combined(da: Namespace, states: Array, n_fixed: int, n_reduced: int, task: PieceTask) -> Array:
    """Return an array with the tuple of all outputs in every block, without the reduced axes and the one-block axis."""
    for axis in reversed(range(n_fixed + 1, n_fixed + n_reduced)):
        states = _combined_along(da, states, (axis,), task, finishes=False)
    last = (n_fixed, n_fixed + 1) if n_reduced else (n_fixed,)
    return _combined_along(da, states, last, task, finishes=True)


def _combined_along(da: Namespace, states: Array, axes: tuple[int, ...], task: PieceTask, *, finishes: bool) -> Array:
    return da.reduction(
        states,
        chunk=keep,
        combine=CombineTask(task, finishes=False),
        aggregate=CombineTask(task, finishes=finishes),
        axis=axes,
        keepdims=False,
        concatenate=False,
        split_every=dict.fromkeys(axes, _SPLIT_EVERY),
        dtype=object,
        meta=_no_states(states.ndim - len(axes)),
        name=task.__name__,
    )
