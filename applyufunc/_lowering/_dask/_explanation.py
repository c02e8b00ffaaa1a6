"""What Dask would do with a call: `explain`, which builds the graph where that is quick, and counts its tasks.

In: a `Call`, its arrays, and how its outputs are finished. Out: an `Execution`. Computes nothing, and warns of nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dask import base

from ..._call import Call
from ..._explanation import ArgumentBlocks, Execution, Rechunking
from ..._typing import Array, Chunks
from ._arrays import is_host, richest_meta
from ._chunks import ArgumentChunks, Move, total_size
from ._planned import Planned
from ._roads import plan

__all__ = ["explain"]


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Return how a call is cut into blocks, at what cost; `finish` makes its outputs what the caller gets."""
    planned = plan(call.with_assumed_dtypes(richest_meta(arrays).dtype), arrays, may_try=False)
    n_tasks = _estimated_tasks(arrays, planned)
    is_estimate = n_tasks > MOST_COUNTED
    return Execution(
        way="blocks",
        loop=planned.loop,
        arguments=tuple(map(_argument_blocks, planned.given, planned.moves, planned.joined or planned.arguments)),
        core=planned.core,
        kept=planned.kept,
        reason=planned.reason,
        state_bytes=planned.state_bytes,
        n_tasks=n_tasks if is_estimate else _count_tasks(finish(planned.build(arrays))),
        n_tasks_is_estimate=is_estimate,
        warnings=planned.warnings,
    )


MOST_COUNTED: Final = 10_000  # tasks before optimisation, which takes a quarter of a millisecond for each


def _estimated_tasks(arrays: Sequence[Array], planned: Planned) -> int:
    """Return the tasks before optimisation: of the arguments, of rechunking, and of the call's own layers."""
    made = dict(itertools.chain.from_iterable(_layer_tasks(array) for array in arrays if not is_host(array)))
    return sum(made.values()) + sum(move.n_tasks or 0 for move in planned.moves) + planned.n_tasks


def _layer_tasks(array: Array) -> Iterator[tuple[str, int]]:
    """Yield the name of each layer of an argument, and how many tasks it has, without making them."""
    if hasattr(array, "expr"):  # each expression is a layer, with a task for each block
        yield from ((node._name, math.prod(node.numblocks)) for node in array.expr.walk() if hasattr(node, "numblocks"))
    else:
        yield from ((name, len(layer)) for name, layer in array.__dask_graph__().layers.items())


def _count_tasks(outputs: Sequence[Array]) -> int:
    """Count the tasks in the optimised graph of all outputs, as `dask.compute` makes it."""
    of_any_version: Any = base
    if hasattr(base, "collections_to_expr"):
        return len(of_any_version.collections_to_expr(outputs).optimize().__dask_graph__())
    return len(of_any_version.collections_to_dsk(outputs, optimize_graph=True))  # the older name


def _argument_blocks(given: ArgumentChunks, move: Move, after: tuple[Chunks, ...]) -> ArgumentBlocks:
    if not move.is_rechunked and after == given.chunks:
        return ArgumentBlocks(after, None, given.in_memory)
    rechunking = Rechunking(
        before=given.chunks,
        after=after,
        via=move.via,
        merged=move.merged,
        unified=move.unified,
        split=move.split,
        bytes_moved=_plus(move.bytes_moved, given, after),
        n_tasks=move.n_tasks,
        n_steps=move.n_steps,
    )
    return ArgumentBlocks(after, rechunking, given.in_memory)


def _plus(moved: int | None, given: ArgumentChunks, after: tuple[Chunks, ...]) -> int | None:
    """Return the bytes moved with those that are copied to join blocks with the edges of their neighbours."""
    sizes = [total_size(along) for along in after]
    if moved is None or None in sizes:
        return None
    is_joined = any(size != total_size(along) for size, along in zip(sizes, given.chunks, strict=True))
    return moved + (given.itemsize * math.prod(size or 0 for size in sizes) if is_joined else 0)
