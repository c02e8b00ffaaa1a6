"""A call explained instead of run: the same road as `evaluate`, up to where something would run.

In: a kernel, a signature, options, the arguments as the caller gave them. Out: an `Explanation`. Never calls the
kernel, not for its dtypes either; computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ._call import Call, input_dtype
from ._core_chunks import count_chunk_calls, piecewise_kernel
from ._evaluate import prepare
from ._explanation import ArgumentBlocks, Execution, ExplainedOperand, Explanation
from ._kernel import Kernel
from ._options import Options
from ._plan import Operand
from ._signature import Signature
from ._typing import Array, Chunks

__all__ = ["explain_call"]


def explain_call(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Explanation:
    """Return what `evaluate` would do with the same arguments; refuse what it would refuse before the kernel runs."""
    prepared = prepare(kernel, signature, args, options, may_try=False)
    call = prepared.call
    execution = prepared.lowering.explain(call, prepared.arrays, prepared.finish)
    return Explanation(
        kernel=kernel.name,
        signature=str(signature),
        arguments=tuple(_arguments(call, prepared.args, execution)),
        outputs=tuple(_outputs(call, execution)),
        way=execution.way,
        loop=execution.loop,
        core=execution.core,
        kept=execution.kept,
        reason=execution.reason,
        state_bytes=execution.state_bytes,
        n_calls=_count_calls(kernel, call, prepared.arrays, execution),
        vectorize=bool(kernel.vectorize),
        dtypes_from=call.dtypes_from,
        n_tasks=execution.n_tasks,
        n_tasks_is_estimate=execution.n_tasks_is_estimate,
        warnings=execution.warnings,
    )


def _arguments(call: Call, args: Sequence[Any], execution: Execution) -> Iterator[ExplainedOperand]:
    of_arrays = dict(zip(call.runner.array_positions, execution.arguments, strict=True))
    for position, (arg, operand) in enumerate(zip(args, call.plan.inputs, strict=True)):
        name, blocks = f"argument {position}", of_arrays.get(position)
        if operand is None or blocks is None:
            yield ExplainedOperand(name, (), (), 0, None if arg is None else type(arg), None)
        else:
            yield ExplainedOperand(name, operand.dims, operand.shape, operand.n_core, input_dtype(arg), blocks)


def _outputs(call: Call, execution: Execution) -> Iterator[ExplainedOperand]:
    dtypes = call.runner.dtypes or (None,) * len(call.plan.outputs)
    for position, (operand, dtype) in enumerate(zip(call.plan.outputs, dtypes, strict=True)):
        blocks = _output_blocks(operand, execution)
        yield ExplainedOperand(f"output {position}", operand.dims, operand.shape, operand.n_core, dtype, blocks)


def _output_blocks(operand: Operand, execution: Execution) -> ArgumentBlocks:
    loop, kept = (chunks for _, chunks in execution.loop), dict(execution.kept)
    cores = zip(operand.dims[operand.n_loop :], operand.core_shape, strict=True)
    return ArgumentBlocks((*loop, *(kept.get(dim, (size,)) for dim, size in cores)))


def _count_calls(kernel: Kernel, call: Call, arrays: Sequence[Array], execution: Execution) -> int | None:
    """Count the calls of the kernel: for each item, or each block that has one; None: unknown."""
    piecewise = piecewise_kernel(call.kernel, call.runner.signature, call.options)
    if piecewise is not None and (execution.core == "reduction" or piecewise is call.kernel.func):
        widest = max((input_dtype(array).itemsize for array in arrays), default=0)
        return count_chunk_calls(piecewise, call.plan, widest, dict(execution.loop + execution.kept))
    if execution.way == "traced":
        return int(not call.plan.is_empty)
    n_pieces = math.prod(_n_filled(chunks) for _, chunks in execution.kept)
    if kernel.vectorize:
        sizes = call.plan.loop_shape
        return None if None in sizes else n_pieces * math.prod(size or 0 for size in sizes)
    return n_pieces * math.prod(_n_filled(chunks) for _, chunks in execution.loop)


def _n_filled(chunks: Chunks) -> int:
    """Count the chunks that are not empty, or may not be."""
    return len(chunks) - chunks.count(0)
