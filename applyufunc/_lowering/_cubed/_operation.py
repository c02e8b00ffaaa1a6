"""One call becomes one operation of a cubed plan: `lower`, and `operation_of`, which finds it again.

In: a `Call`, cubed arrays, and NumPy arrays. Out: one lazy cubed array per output. All outputs of an operation have the
same grid of blocks, so that one with fewer core dims gets axes of length 1, which a further operation drops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cubed
import numpy as np
from cubed.core.ops import general_blockwise

from ..._call import Call
from ..._errors import AlignmentError, OptionError, UnknownSizeError
from ..._explanation import bytes_text
from ..._plan import Operand
from ..._typing import Array, Shape
from ._arrays import is_storable
from ._cuts import Cut, KnownChunks, cut_arguments, spec_of
from ._tasks import BlockKeys, KernelTask

__all__ = ["build", "check_outputs", "lower", "operation_of"]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    check_outputs(call)
    return build(call, cut_arguments(call, arrays))


def check_outputs(call: Call) -> None:
    """Refuse outputs that cubed cannot announce: of unknown sizes, or of dtypes that it cannot store."""
    unknown = call.plan.unknown_output_dims
    if unknown:
        raise UnknownSizeError(
            f"the size of output dimension {unknown[0]!r} is unknown until computed (output_sizes has None), and cubed "
            f"arrays know their sizes: pass UpTo(bound) in output_sizes"
        )
    for position, dtype in enumerate(call.dtypes):
        if not is_storable(dtype):
            raise OptionError(
                f"output {position} has dtype {dtype}, which cubed arrays cannot hold: pass output_dtypes"
            )


def build(call: Call, cut: Cut) -> tuple[Array, ...]:
    """Return the outputs of a call whose arguments are cut; an empty batch is answered from the signature."""
    spec = spec_of(cut.arrays)
    if call.plan.is_empty:
        pairs = zip(call.plan.outputs, call.dtypes, strict=True)
        return tuple(cubed.zeros(_known(output.shape), dtype=dtype, spec=spec) for output, dtype in pairs)
    return _operation(call, cut)


def operation_of(array: Array) -> Any:
    """Return the operation that an array is an output of, before cubed fuses it with others."""
    dag = array._plan.dag
    return dag.nodes[next(dag.predecessors(array.name))]["primitive_op"]


def _known(shape: Shape) -> tuple[int, ...]:
    """Return sizes that are all known, as those of cubed's arrays and of checked outputs are."""
    return tuple(size or 0 for size in shape)


def _operation(call: Call, cut: Cut) -> tuple[Array, ...]:
    """Return the outputs of the operation, each without the axes that only made the grids alike."""
    outputs, n_loop = call.plan.outputs, call.plan.n_loop
    deepest = max(output.n_core for output in outputs)
    paddings = tuple(deepest - output.n_core for output in outputs)
    loop = tuple(chunks for _, chunks in cut.loop)
    chunks = [_chunks(loop, n_axes, output) for n_axes, output in zip(paddings, outputs, strict=True)]
    made = general_blockwise(
        KernelTask(call.runner, loop, paddings),
        _keys(cut, n_loop),
        *cut.arrays,
        shapes=[tuple(map(sum, each)) for each in chunks],
        dtypes=list(call.dtypes),
        chunkss=chunks,
        target_stores=[None] * len(outputs) if len(outputs) > 1 else None,
        extra_projected_mem=call.options.extra_projected_mem + _held_bytes(call, cut, chunks),
        op_name=call.kernel.name,
    )
    made = made if isinstance(made, tuple) else (made,)
    _check_memory(call, made[0])
    return tuple(_without(array, n_loop, n_axes) for array, n_axes in zip(made, paddings, strict=True))


def _chunks(loop: tuple[KnownChunks, ...], n_axes: int, output: Operand) -> tuple[KnownChunks, ...]:
    """Return the chunks of an output with axes of length 1 between its loop dims and its core dims."""
    return (*loop, *((1,),) * n_axes, *((size or 0,) for size in output.core_shape))


def _keys(cut: Cut, n_loop: int) -> BlockKeys:
    pairs = list(zip(cut.operands, cut.arrays, strict=True))
    return BlockKeys(
        names=tuple(array.name for array in cut.arrays),
        numbers=tuple(array.numblocks[: operand.n_loop] for operand, array in pairs),
        n_core=tuple(operand.n_core for operand in cut.operands),
        n_loop=n_loop,
    )


def _held_bytes(call: Call, cut: Cut, chunks: Sequence[tuple[KnownChunks, ...]]) -> int:
    """Return the bytes that a task holds beside what cubed knows of: the inputs, and the largest of the outputs."""
    outputs = [
        dtype.itemsize * math.prod(max(along, default=0) for along in each)
        for each, dtype in zip(chunks, call.dtypes, strict=True)
    ]
    kernel = call.kernel
    has_copies = kernel.writable or kernel.gets_copies or kernel.compute_dtype is not None
    copies = sum(_copied_bytes(array, kernel.compute_dtype) for array in cut.arrays) if has_copies else 0
    return sum(outputs) - max(outputs) + copies


def _copied_bytes(array: Array, compute: np.dtype[Any] | None) -> int:
    """Return the bytes of a block's private copy, which may be in a wider dtype than the block."""
    itemsize = max(array.dtype.itemsize, 0 if compute is None else compute.itemsize)
    return int(itemsize * math.prod(array.chunksize))


def _check_memory(call: Call, output: Array) -> None:
    """Refuse at once what cubed would refuse when it computes."""
    operation = operation_of(output)
    if operation.projected_mem > operation.allowed_mem:
        raise AlignmentError(
            f"kernel {call.kernel.name!r}: cubed projects {bytes_text(operation.projected_mem)} of memory for one "
            f"block, more than the allowed_mem of {bytes_text(operation.allowed_mem)} in the Spec of its arrays "
            f"({bytes_text(operation.reserved_mem)} of both are reserved): rechunk the loop dimensions to smaller "
            f"chunks, or allow more"
        )


def _without(array: Array, start: int, n_axes: int) -> Array:
    return cubed.squeeze(array, axis=tuple(range(start, start + n_axes))) if n_axes else array
