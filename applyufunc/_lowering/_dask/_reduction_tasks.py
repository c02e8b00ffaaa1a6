"""What runs on the workers for a reduction: `PieceTask` on blocks, `CombineTask` on states.

Picklable objects with a name and a token of their own, as those of `_tasks`. In: blocks, or states, as the schedulers
hand them. Out: states, in the end a tuple of outputs. Knows nothing of graphs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..._core_chunks import EmptyPiece, ReductionRunner, State
from ..._typing import Array
from ._tasks import KernelTask, noted, piece_text

__all__ = ["CombineTask", "PieceTask", "keep"]

PieceState: TypeAlias = State | EmptyPiece


@dataclass(frozen=True, slots=True)
class PieceTask:
    """The state of one block of every array argument; says in which block it failed."""

    arranged: KernelTask  # that would run the kernel on these blocks; its location has core dims after loop dims
    runner: ReductionRunner
    tokens: tuple[str, ...]  # of the parts
    core_dims: tuple[str, ...]  # of the location, behind the loop dims

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return self.arranged.name

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays; Dask adds those of the blocks."""
        how = (self.runner.reduced, self.runner.takes_offset, self.core_dims)
        return "applyufunc.PieceTask", self.tokens, how, self.arranged.__dask_tokenize__()

    def __call__(self, *operands: Any) -> PieceState:
        """Return the state, or the blocks where there is nothing to reduce; operands come as for `KernelTask`."""
        arranged, operands = self.arranged.filled(operands)
        start, n_loop = len(operands) - len(arranged.cuts), arranged.n_loop
        location = operands[start - 1]
        blocks = arranged.arrange(operands[start:], location)
        if not self.runner.has_elements(blocks):
            return EmptyPiece(tuple(blocks), arranged.runner.keywords)
        parts = location[n_loop:]
        pairs = zip(self.core_dims, parts, strict=True)
        starts = {dim: part.start for dim, part in pairs} if self.runner.takes_offset else {}
        with noted(f"in the piece {piece_text(self.core_dims, parts)}"), arranged.runner.kernel.guard():
            return self.runner.with_keywords(arranged.runner.keywords).state(blocks, starts, location[:n_loop])


@dataclass(frozen=True, slots=True)
class CombineTask:
    """The state of several pieces that follow each other, or the outputs where they are all."""

    task: PieceTask
    finishes: bool

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return f"{self.task.arranged.name}-{'aggregate' if self.finishes else 'combine'}"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays."""
        return "applyufunc.CombineTask", self.task.__dask_tokenize__(), self.finishes

    def __call__(self, states: Any, computing_meta: bool = False, **_how: Any) -> Any:
        """Return the state of all; Dask passes them in nested lists, and first an empty array."""
        if computing_meta or isinstance(states, np.ndarray):
            return states
        with self.task.arranged.runner.kernel.guard():
            state = functools.reduce(self._combined, _flat(states))
            return self._outputs(state) if self.finishes else state

    def _combined(self, state: PieceState, following: PieceState) -> PieceState:
        if isinstance(state, EmptyPiece):
            return following
        return state if isinstance(following, EmptyPiece) else self.task.runner.combined(state, following)

    def _outputs(self, state: PieceState) -> tuple[Array, ...]:
        if isinstance(state, EmptyPiece):
            whole = dataclasses.replace(self.task.arranged.runner, keywords=state.keywords)
            return self.task.arranged.finish(whole(*state.blocks))
        return self.task.arranged.finish(self.task.runner.outputs(state))


def keep(states: Any, **_how: Any) -> Any:
    """Return the states: what Dask's `reduction` would do to each block has been done."""
    return states


def _flat(states: Any) -> Iterator[PieceState]:
    if isinstance(states, list):
        for each in states:
            yield from _flat(each)
    else:
        yield states
