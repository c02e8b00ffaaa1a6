"""What Dask would do with a call: `explain`, which builds the graph where that is quick, and counts its tasks.

In: a `Call`, its arrays, and how its outputs are finished. Out: an `Execution`. Computes nothing, and warns of nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from dask import base

from ..._call import Call
from ..._explanation import ArgumentBlocks, Execution, Rechunking
from ..._typing import Array
from ._arrays import is_host, richest_meta
from ._chunks import ArgumentChunks, Chunks, Move
from ._planned import Planned
from ._roads import plan

__all__ = ["explain"]


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Return how a call is cut into blocks, at what cost; `finish` makes its outputs what the caller gets."""
    planned = plan(_with_dtypes(call, arrays), arrays, may_try=False)
    n_tasks = _estimated_tasks(arrays, planned)
    is_estimate = n_tasks > MOST_COUNTED
    return Execution(
        "blocks",
        planned.loop,
        tuple(map(_argument_blocks, planned.given, planned.moves, planned.arguments)),
        planned.core,
        planned.kept,
        planned.reason,
        planned.state_bytes,
        n_tasks if is_estimate else _count_tasks(finish(planned.build())),
        is_estimate,
        planned.warnings,
    )


MOST_COUNTED: Final = 10_000  # tasks before optimisation, which takes a quarter of a millisecond for each


def _with_dtypes(call: Call, arrays: Sequence[Array]) -> Call:
    """Return the call with dtypes to plan by: like the blocks', numbers as float64 or more, where nobody knows yet."""
    if call.runner.dtypes is not None:
        return call
    dtype = richest_meta(arrays).dtype
    assumed = np.result_type(dtype, np.float64) if dtype.kind in "biufc" else dtype
    runner = dataclasses.replace(call.runner, dtypes=(assumed,) * len(call.plan.outputs))
    return dataclasses.replace(call, runner=runner)


def _estimated_tasks(arrays: Sequence[Array], planned: Planned) -> int:
    """Return the tasks before optimisation: of the arguments, of rechunking, and of the call's own layers."""
    lazy = {array.name: array for array in arrays if not is_host(array)}
    return sum(map(_tasks_of, lazy.values())) + sum(move.n_tasks or 0 for move in planned.moves) + planned.n_tasks


def _tasks_of(array: Array) -> int:
    """Return the tasks of an argument, without making them."""
    if not hasattr(array, "expr"):
        return len(array.__dask_graph__())  # of layers, each of which knows its length
    # In expressions, the blocks of each.
    return sum(math.prod(node.numblocks) for node in array.expr.walk() if hasattr(node, "numblocks"))


def _count_tasks(outputs: Sequence[Array]) -> int:
    """Count the tasks in the optimised graph of all outputs, as `dask.compute` makes it."""
    of_any_version: Any = base
    if hasattr(base, "collections_to_expr"):
        return len(of_any_version.collections_to_expr(outputs).optimize().__dask_graph__())
    return len(of_any_version.collections_to_dsk(outputs, optimize_graph=True))  # the older name


def _argument_blocks(given: ArgumentChunks, move: Move, after: tuple[Chunks, ...]) -> ArgumentBlocks:
    if not move.is_rechunked and after == given.chunks:
        return ArgumentBlocks(after, None, given.in_memory)
    why: dict[str, Any] = {name: getattr(move, name) for name in ("via", "merged", "unified", "split")}
    figures = {name: getattr(move, name) for name in ("bytes_moved", "n_tasks", "n_steps")}
    return ArgumentBlocks(after, Rechunking(given.chunks, after, **why, **figures), given.in_memory)
