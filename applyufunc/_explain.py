"""A call explained instead of run: the same road as `evaluate`, up to where something would run.

In: a kernel, a signature, options, the arguments as the caller gave them. Out: an `Explanation`. Never calls the
kernel, not for its dtypes either; computes nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ._call import Call, input_dtype
from ._core_chunks import count_chunk_calls, piecewise_kernel
from ._evaluate import prepare
from ._explanation import ArgumentBlocks, Execution, ExplainedOperand, Explanation
from ._kernel import Kernel
from ._options import Options
from ._plan import Operand, Plan, make_plan
from ._signature import Signature
from ._slices import count_slices, slice_sizes
from ._typing import Array, Chunks, Shape

__all__ = ["explain_call"]


def explain_call(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Explanation:
    """Return what `evaluate` would do with the same arguments; refuse what it would refuse before the kernel runs."""
    prepared = prepare(kernel, signature, args, options, may_try=False)
    call = prepared.call
    execution = prepared.lowering.explain(call, prepared.arrays, prepared.finish)
    sliced = _Sliced(call, prepared.arrays, execution)
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
        slices=sliced.sizes(),
        state_bytes=execution.state_bytes,
        n_calls=sliced.count() if sliced.is_cut else _count_calls(kernel, call, prepared.arrays, execution),
        vectorize=bool(kernel.vectorize),
        dtypes_from=call.dtypes_from,
        n_tasks=execution.n_tasks,
        n_tasks_is_estimate=execution.n_tasks_is_estimate,
        warnings=execution.warnings,
    )


@dataclass(frozen=True, slots=True)
class _Sliced:
    """The slices in which a kernel gets the blocks of a call."""

    call: Call
    arrays: Sequence[Array]
    execution: Execution

    @property
    def is_cut(self) -> bool:
        """Whether the kernel gets blocks in slices, if they are large."""
        return self.call.kernel.block_bytes is not None

    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Return the sizes in the largest block; none where it is not cut, or nobody knows its size."""
        chunks = [along for _, along in self.execution.loop]
        if not self.is_cut or any(None in along for along in chunks):
            return ()
        largest = tuple(max(filter(None, along), default=0) for along in chunks)
        sizes = self._of_block(largest)[1]
        return (
            ()
            if sizes == largest
            else tuple((dim, size) for (dim, _), size in zip(self.execution.loop, sizes, strict=True))
        )

    def count(self) -> int | None:
        """Count the slices of all blocks; None: unknown."""
        kinds = [Counter(along).items() for _, along in self.execution.loop]
        if any(size is None for along in kinds for size, _ in along) or math.prod(map(len, kinds)) > _MOST_KINDS:
            return None
        blocks = itertools.product(*kinds)
        return sum(self._count_in(block) for block in blocks)

    def _count_in(self, block: Sequence[tuple[int | None, int]]) -> int:
        """Count the slices of all blocks of one shape; an empty one has none."""
        number = math.prod(n for _, n in block)
        return number * count_slices(*self._of_block([size or 0 for size, _ in block]))

    def _of_block(self, loop_shape: Sequence[int]) -> tuple[Plan, tuple[int, ...]]:
        """Return the plan for a block, and the sizes of its slices."""
        runner, limit = self.call.runner, self.call.kernel.block_bytes
        shapes = (None if operand is None else _cut_shape(operand, loop_shape) for operand in self.call.plan.inputs)
        plan = make_plan(runner.signature, tuple(shapes), runner.output_sizes)
        itemsizes = runner.itemsizes([input_dtype(array) for array in self.arrays])
        return plan, slice_sizes(plan, itemsizes, limit or 0)


_MOST_KINDS: Final = 10_000  # of blocks, by their shape


def _cut_shape(operand: Operand, loop_shape: Sequence[int]) -> Shape:
    own = zip(operand.loop_shape, loop_shape[len(loop_shape) - operand.n_loop :], strict=True)
    return (*(1 if whole == 1 else size for whole, size in own), *operand.core_shape)


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
