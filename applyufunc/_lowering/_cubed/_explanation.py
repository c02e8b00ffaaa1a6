"""What cubed would do with a call: `explain`, which builds the operation and reads its costs from cubed's plan.

In: a `Call`, its arrays, and how its outputs are finished. Out: an `Execution`. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cubed

from ..._call import Call
from ..._explanation import ArgumentBlocks, Execution, Rechunking
from ..._plan import Operand
from ..._typing import Array
from ._arrays import is_host
from ._cuts import cut_arguments
from ._operation import build, check_outputs

__all__ = ["explain"]


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Return how a call is cut into blocks, at what cost; `finish` makes its outputs what the caller gets."""
    call = call.with_assumed_dtypes(next(array.dtype for array in arrays if not is_host(array)))
    check_outputs(call)
    cut = cut_arguments(call, arrays)
    plan = cubed.plan(*finish(build(call, cut)))
    return Execution(
        way="blocks",
        loop=cut.loop,
        arguments=tuple(map(_argument_blocks, arrays, cut.operands, cut.arrays)),
        n_tasks=plan.num_tasks,
    )


def _argument_blocks(given: Array, operand: Operand, cut: Array) -> ArgumentBlocks:
    if is_host(given):
        return ArgumentBlocks(cut.chunks, None, in_memory=True)
    if cut is given:
        return ArgumentBlocks(given.chunks)
    changed = [
        dim for dim, before, after in zip(operand.dims, given.chunks, cut.chunks, strict=True) if before != after
    ]
    steps = _added_tasks(given, cut)
    loop = operand.dims[: operand.n_loop]
    rechunking = Rechunking(
        before=given.chunks,
        after=cut.chunks,
        via=None,
        merged=tuple(dim for dim in changed if dim not in loop),
        unified=tuple(dim for dim in changed if dim in loop),
        split=(),
        bytes_moved=given.nbytes * len(steps),
        n_tasks=sum(steps),
        n_steps=len(steps),
    )
    return ArgumentBlocks(cut.chunks, rechunking)


def _added_tasks(given: Array, cut: Array) -> list[int]:
    """Return the number of tasks of each operation that rechunking has added."""
    before, after = given._plan.dag, cut._plan.dag
    operations = (data.get("primitive_op") for name, data in after.nodes(data=True) if name not in before)
    return [operation.num_tasks for operation in operations if operation is not None]
