"""A call explained instead of run: the same road as `evaluate`, up to where something would run.

In: a kernel, a signature, options, the arguments as the caller gave them. Out: an `Explanation`. Never calls the
kernel, not for its dtypes either; computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ._call import Call, input_dtype
from ._evaluate import prepare
from ._explanation import ArgumentBlocks, Execution, ExplainedOperand, Explanation
from ._kernel import Kernel
from ._options import Options
from ._plan import Operand
from ._signature import Signature

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
        n_calls=_count_calls(call, execution),
        vectorize=kernel.vectorize,
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
    loop = (chunks for _, chunks in execution.loop)
    return ArgumentBlocks((*loop, *((size,) for size in operand.core_shape)))


def _count_calls(call: Call, execution: Execution) -> int | None:
    """Count the calls of the kernel: for each item, or each block that has one; None: unknown."""
    if call.kernel.vectorize:
        return None if None in call.plan.loop_shape else math.prod(size or 0 for size in call.plan.loop_shape)
    return math.prod(sum(size != 0 for size in chunks) for _, chunks in execution.loop)
