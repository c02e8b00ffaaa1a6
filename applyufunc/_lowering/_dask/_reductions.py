"""A core dim that is reduced where its chunks lie: states of blocks, combined in a tree.

In: a `Call` whose option `core_chunks` says how its kernel works piece by piece, and arrays as in `_graph`. Out: one
lazy Dask array per output. Layers: a state for every block; the front end's `reduction` along each reduced dim, the
last first, so that states stay in order; one pick for every output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from dask.array.rechunk import plan_rechunk

from ..._call import Call, input_dtype
from ..._core_chunks import PiecewiseKernel, ReductionRunner, piecewise_kernel
from ..._dtypes import discovered_dtypes
from ..._plan import make_plan
from ..._typing import Array, Keywords, Namespace
from ._arrays import as_block, block_kind, from_host, front_end
from ._graph import (
    budget_bytes,
    check_unknown_outputs,
    chunks_of,
    cut_as_planned,
    kernel_task,
    output_metas,
    plan_whole,
    warnings_of,
)
from ._identity import call_token
from ._keywords import has_stand_ins, without_large_keywords
from ._layers import ONE_BLOCK, Location, Operands, carriers, in_one_block, labels_of, layer, unknown_as_nan
from ._pieces import Pieces, of_size_one, picked, tuple_layer
from ._planned import Planned
from ._reduction_chunks import ReductionPlan, StateCore, plan_reduction
from ._reduction_tasks import AggregateTask, CombineTask, PieceTask, keep
from ._travel import travel_advice

__all__ = ["plan_reduced"]


def plan_reduced(call: Call, arrays: Sequence[Array], *, may_try: bool) -> Planned | None:
    """Return how a reduction is cut; None for a call that is none, or whose core dims are in one chunk anyway."""
    piecewise = piecewise_kernel(call.kernel, call.runner.signature, call.options)
    if piecewise is None:
        return None
    plan = _reduction_plan(call, arrays, piecewise, may_try)
    if not plan.is_tree:
        return dataclasses.replace(plan_whole(call, arrays), reason=plan.reason) if plan.merged else None
    check_unknown_outputs(call, plan.n_outputs)
    lighter, large = without_large_keywords(call)
    parts = _Parts(_runner(lighter, arrays, piecewise), call.runner.keywords)
    return Planned(
        core="reduction",
        loop=plan.loop,
        kept=plan.independent + plan.reduced,
        reason=plan.reason,
        state_bytes=plan.state_bytes,
        given=tuple(chunks_of(call, arrays)),
        arguments=plan.arguments,
        moves=plan.moves,
        # States, a third as many tasks that combine them, and the tuples' outputs.
        n_tasks=plan.n_pieces * 4 // 3 + (1 + len(call.plan.outputs)) * plan.n_outputs,
        warnings=_warnings(lighter, piecewise, parts, plan),
        build=partial(_build, lighter, parts, plan, large),
    )


def _reduction_plan(call: Call, arrays: Sequence[Array], piecewise: PiecewiseKernel, may_try: bool) -> ReductionPlan:
    """Return how a call's arguments are cut, and which core dims are reduced in their chunks, or why not."""
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


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a reduction, and where their large keywords come from."""

    runner: ReductionRunner  # without large keywords
    keywords: Keywords  # of the call, all of them

    @property
    def combining(self) -> ReductionRunner:
        """The runner for tasks that combine states, to which the front ends' `reduction` gives no other operands."""
        if not has_stand_ins(self.runner.combine.keywords):
            return self.runner
        whole = self.runner.with_keywords(self.keywords).combine
        return dataclasses.replace(self.runner, combine=whole)

    @property
    def aggregate_is_apart(self) -> bool:
        """Whether a layer of its own gives `aggregate` its large keywords."""
        return has_stand_ins(self.runner.aggregate.keywords)


def _warnings(call: Call, piecewise: PiecewiseKernel, parts: _Parts, plan: ReductionPlan) -> tuple[str, ...]:
    """Return what a call is warned of, for its kernel and for `combine` where the kernel has another one, or none."""
    found, combine = warnings_of(plan.excess, call.runner, n_tasks=plan.n_pieces), parts.combining.combine
    if piecewise is call.kernel.func and combine is parts.runner.combine:
        return found
    advice = travel_advice(combine, max(plan.n_outputs, plan.n_pieces // (_SPLIT_EVERY - 1)), _SHARE_NOT)
    return found if advice is None else (*found, advice)


_SHARE_NOT: Final = "tasks that combine states cannot share it: let chunk or aggregate take it in place of combine"


def _build(
    call: Call, parts: _Parts, plan: ReductionPlan, large: tuple[Array, ...], arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut as planned."""
    da, given, metas = front_end(arrays), tuple(chunks_of(call, arrays)), output_metas(call, arrays)
    cut = cut_as_planned(da, arrays, given, plan.moves, plan.arguments)
    shared = tuple(from_host(da, array) for array in large)
    pieces = Pieces(da, call, cut, given, plan.loop, plan.independent, metas, shared)
    task = _piece_task(pieces, plan, parts.runner)
    last = CombineTask(task, parts.combining, finishes=not parts.aggregate_is_apart)
    combined = _combined(da, _states(pieces, task, plan), len(pieces.grid), len(plan.reduced), last)
    if parts.aggregate_is_apart:
        return _aggregated(pieces, combined, task)
    return picked(pieces, combined, tuple(pieces.grid))


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
    location = (Location(tuple(blocks.values())), tuple(blocks))
    operands: Operands = [*carriers([ONE_BLOCK]), location, *zip(pieces.arrays, labels, strict=True)]
    operands += in_one_block(pieces.shared)
    grid = pieces.grid | of_size_one(reduced) | {ONE_BLOCK: (1,)}
    return layer(pieces.da, task, operands, grid, _no_states(len(grid)), f"{pieces.name}-state")


def _no_states(ndim: int) -> Array:
    return np.empty((0,) * ndim, object)


def _combined(da: Namespace, states: Array, n_fixed: int, n_reduced: int, last: CombineTask) -> Array:
    """Return an array with what `last` returns in every block, without the reduced axes and the one-block axis."""
    combine = dataclasses.replace(last, finishes=False)
    for axis in reversed(range(n_fixed + 1, n_fixed + n_reduced)):
        states = _combined_along(da, states, (axis,), combine, combine)
    axes = (n_fixed, n_fixed + 1) if n_reduced else (n_fixed,)
    return _combined_along(da, states, axes, combine, last)


def _combined_along(
    da: Namespace, states: Array, axes: tuple[int, ...], combine: CombineTask, last: CombineTask
) -> Array:
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
        name=last.task.__name__,
    )


def _aggregated(pieces: Pieces, states: Array, task: PieceTask) -> tuple[Array, ...]:
    """Return the outputs of a call whose `aggregate` takes large arrays, out of an array of states."""
    labels = (*pieces.grid, ONE_BLOCK)
    operands: Operands = [*carriers([ONE_BLOCK]), (states, tuple(pieces.grid)), *in_one_block(pieces.shared)]
    tuples = tuple_layer(pieces, AggregateTask(task), operands, pieces.grid | {ONE_BLOCK: (1,)})
    return picked(pieces, tuples, labels)
