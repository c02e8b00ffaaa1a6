"""A `Scan` along a core dim in chunks: one layer for each chunk, which hands its carry to the next.

In: a call whose kernel is a `ScanKernel`. Out: one lazy Dask array per output, in the chunks of the arguments. A task
of a layer depends on a piece of each argument and on the task before it along the core dim, in its own loop block: loop
blocks run in parallel, pieces come and go. The number of layers is that of chunks along the core dim, for any number of
loop blocks, and Dask copies its dict of layers for each, which makes thousands of chunks slow; a single layer for all
would need a graph written out task by task, which not every front end takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..._blocks import BlockRunner
from ..._call import Call
from ..._core_chunks import Carry, ScanKernel
from ..._errors import UnknownSizeError
from ..._typing import Array
from ._chunks import ArgumentChunks
from ._graph import chunks_of, kernel_task
from ._layers import ONE_BLOCK, Location, Operands, in_one_block, labels_of
from ._pieces import Pieces, are_chunked, block_range, picked, plan_cuts, tuple_layer
from ._planned import Planned
from ._tasks import KernelTask, noted

__all__ = ["plan_scan"]


def plan_scan(call: Call, arrays: Sequence[Array]) -> Planned | None:
    """Return how a scan is cut; None for a call that is no scan along a core dim in several chunks."""
    kernel = call.kernel.func
    if not isinstance(kernel, ScanKernel) or not are_chunked(call, arrays, (kernel.dim,)):
        return None
    _check_unknown_chunks(kernel.dim, chunks_of(call, arrays), arrays)
    return plan_cuts(call, arrays, {kernel.dim: 0}, "scan", _scan, n_layers=2 + len(call.plan.outputs))


def _scan(pieces: Pieces) -> tuple[Array, ...]:
    """Return the outputs of a scan, core dims last."""
    ((dim, chunks),) = pieces.kept
    labels = (*pieces.loop, ONE_BLOCK)
    task = kernel_task(pieces.call, pieces.arguments, pieces.loop_chunks, pieces.metas, len(pieces.shared))
    steps: list[Array] = []
    for position in range(len(chunks)):
        previous = [(steps[-1], labels)] if steps else []
        operands = [*_operands(pieces, dim, position), *previous, *in_one_block(pieces.shared)]
        steps.append(tuple_layer(pieces, ScanTask(task, position), operands, pieces.loop | {ONE_BLOCK: (1,)}))
    tuples = pieces.da.concatenate(steps, axis=-1)
    return picked(pieces, tuples, (*pieces.loop, dim))


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One step on one piece of every array argument: the outputs, and the carry behind them."""

    task: KernelTask
    position: int  # along the core dim

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return self.task.name

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays; Dask adds those of the operands."""
        return "applyufunc.ScanTask", self.task.__dask_tokenize__()

    def __call__(self, _no_dim: Any, *operands: Any) -> tuple[Array, ...]:
        """Return the outputs for where blocks lie in the loop, the blocks, and what the step before them returned."""
        task, operands = self.task.filled(operands)
        location, operands = (operands[0], operands[1:]) if task.n_loop else ((), operands)
        n_blocks = len(task.cuts)
        blocks = task.arrange(operands[:n_blocks], location)
        carry = operands[n_blocks][len(self.task.metas) :] if len(operands) > n_blocks else ()
        if _is_loop_empty(task.runner, blocks):
            return task.finish(task.runner(*blocks))
        with noted(f"in chunk {self.position} of core dimension {self._kernel.dim!r}"):
            outputs, carry = self._advance(task.runner, blocks, carry, location)
        return (*self.task.finish(outputs), *carry)

    @property
    def _kernel(self) -> ScanKernel:
        return cast(ScanKernel, self.task.runner.kernel.func)

    def _advance(
        self, runner: BlockRunner, blocks: Sequence[Array], carry: Carry, location: Sequence[slice]
    ) -> tuple[tuple[Array, ...], Carry]:
        """Return the outputs and the carry; a piece without elements leaves the carry as it is, also where none is."""
        kernel = self._kernel
        args, dtypes = runner.insert_constants(blocks), runner.dtypes
        assert dtypes is not None  # of a lazy call
        if kernel.piece_size(args) == 0:
            return kernel.empty_outputs(args, runner.output_sizes, dtypes), carry
        carry = carry or kernel.start(args, runner.keywords, location)
        return kernel.advance(args, carry, runner.keywords, runner.output_sizes, dtypes, location)


def _check_unknown_chunks(dim: str, given: Sequence[ArgumentChunks], arrays: Sequence[Array]) -> None:
    """Refuse chunks of unknown size where pieces could not be told apart, or not brought together."""
    pairs = zip(given, arrays, strict=True)
    along = [(argument, array, dict(argument.core_chunks).get(dim, ())) for argument, array in pairs]
    unknown = [(argument, array, chunks) for argument, array, chunks in along if None in chunks]
    if not unknown:
        return
    first, array, expected = unknown[0]
    what = f"core dimension {dim!r} of argument {first.position} is in {len(expected)} chunks of unknown size"
    cure = "call compute_chunk_sizes(), or rechunk before sizes are lost"
    if not hasattr(array, "blocks"):
        raise UnknownSizeError(f"{what}, and expressions of dask.array cannot be cut along it: {cure}")
    for other, _, chunks in along:
        if chunks and (other.in_memory or len(chunks) != len(expected)):
            raise UnknownSizeError(
                f"{what}, and in {len(chunks)} chunk(s) in argument {other.position}: they cannot be brought together; "
                f"{cure}"
            )


def _operands(pieces: Pieces, dim: str, position: int) -> Operands:
    """Return where the pieces lie in the loop, and a piece of each argument."""
    loop = pieces.loop
    found: Operands = []
    for place, (array, argument) in enumerate(zip(pieces.arrays, pieces.arguments, strict=True)):
        axis = pieces.axis(place, dim)
        piece = array if axis is None else block_range(array, axis, position, position + 1)
        found.append((piece, labels_of(piece, argument.dims, loop)))
    return [(Location(tuple(loop.values())), tuple(loop)), *found] if loop else found


def _is_loop_empty(runner: BlockRunner, blocks: Sequence[Array]) -> bool:
    n_core = (len(runner.signature.inputs[position]) for position in runner.array_positions)
    return any(0 in block.shape[: block.ndim - n] for block, n in zip(blocks, n_core, strict=True))
