"""What runs on the workers: `KernelTask` on the blocks of one loop block, `Pick` on what it gave, `first` on one block.

Picklable objects with a name and a token of their own, as Dask asks of functions. In: blocks, as the schedulers hand
them. Out: blocks. Knows nothing of graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from ..._blocks import BlockRunner
from ..._errors import DimensionError
from ..._typing import Array
from .._host import to_host

__all__ = ["Alike", "Cut", "KernelTask", "Pick", "as_type_of", "first", "location_text", "own"]


Cut: TypeAlias = tuple[int | None, ...]
"""For each axis of an argument that is there whole, the loop axis that a block is cut by; None: the whole axis."""

Alike: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
"""A loop dim of unknown size, and the (argument, axis) pairs that have to agree on it."""


@dataclass(frozen=True, slots=True)
class KernelTask:
    """The kernel on one block of every array argument; says in which block it failed."""

    runner: BlockRunner
    name: str
    token: str
    metas: tuple[Array, ...]  # of the outputs
    cuts: tuple[Cut, ...]  # for each argument
    alike: tuple[Alike, ...]
    n_loop: int
    only: int | None = None  # the one output to return; None: all, in a tuple

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return self.name

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays; Dask adds those of the blocks."""
        types = tuple((type(meta).__module__, type(meta).__qualname__, meta.dtype) for meta in self.metas)
        return "applyufunc.KernelTask", self.token, types, self.cuts, self.alike, self.only

    def __call__(self, *operands: Any) -> Any:
        """Return the outputs for blocks, followed by where they lie in the loop, and by what only carries a dim."""
        blocks, location = self.arrange(operands)
        outputs = self.runner(*blocks, location=location_text(location))
        finished = tuple(own(as_type_of(output, meta)) for output, meta in zip(outputs, self.metas, strict=True))
        return finished if self.only is None else finished[self.only]

    def arrange(self, operands: Sequence[Any]) -> tuple[list[Array], Sequence[slice]]:
        """Return the blocks as the kernel takes them, checked against each other, and where they lie in the loop."""
        location = operands[len(self.cuts)] if self.n_loop else ()
        blocks = [_cut(block, axes, location) for block, axes in zip(operands, self.cuts, strict=False)]
        for dim, places in self.alike:
            self._check_alike(dim, [(argument, blocks[argument].shape[axis]) for argument, axis in places], location)
        return _for_kernel(blocks, self.runner), location

    def _check_alike(self, dim: str, sizes: Sequence[tuple[int, int]], location: Sequence[slice]) -> None:
        if len({size for _, size in sizes}) > 1:
            positions = self.runner.array_positions
            found = " and ".join(f"{size} in argument {positions[argument]}" for argument, size in sizes)
            raise DimensionError(
                f"loop dimension {dim} (from the right), of a size unknown until computed, is {found} in block "
                f"{location_text(location)}, for kernel {self.runner.kernel.name!r}"
            )


@dataclass(frozen=True, slots=True)
class Pick:
    """One output from the tuple of all."""

    position: int

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return "pick"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the pick in the names of arrays."""
        return "applyufunc.Pick", self.position

    def __call__(self, outputs: Any, *_carriers: Any) -> Array:
        """Return the output; along a dim of one block that is summed over, the tuple comes in a list."""
        if isinstance(outputs, list):
            (outputs,) = outputs
        return outputs[self.position]


def first(block: Array, *carriers: Any) -> Array:
    """Return the block, leaving aside what only carries a dim."""
    return block


def as_type_of(array: Array, meta: Array) -> Array:
    """Return a plain NumPy array as the type of `meta`; any other array as it is."""
    if type(array) is not np.ndarray or type(meta) is np.ndarray:
        return array
    if isinstance(meta, np.ma.MaskedArray):
        return np.ma.asarray(array)
    return array if isinstance(meta, np.ndarray) else array_api_compat.array_namespace(meta).asarray(array)


def own(output: Array) -> Array:
    """Return a block that shares nothing with another: what the kernel passed through is still flagged read-only."""
    return output.copy() if isinstance(output, np.ndarray) and not output.flags.writeable else output


def location_text(location: Sequence[slice], what: str = " of the loop dimensions") -> str:
    """Write which part of the loop dims a block is."""
    if not location:
        return ""
    parts = (f"{_bound_text(part.start)}:{_bound_text(part.stop)}" for part in location)
    return f"[{', '.join(parts)}]{what}"


def _cut(block: Array, axes: Cut, location: Sequence[slice]) -> Array:
    """Return a view of the part of a whole array that belongs to a loop block."""
    if all(axis is None for axis in axes):
        return block
    return block[tuple(slice(None) if axis is None else location[axis] for axis in axes)]


def _for_kernel(blocks: Sequence[Array], runner: BlockRunner) -> list[Array]:
    """Return the blocks as NumPy arrays, or all of one library, as the kernel takes them."""
    if runner.kernel.arrays == "numpy":
        return [to_host(block) for block in blocks]
    foreign = next((block for block in blocks if not isinstance(block, np.ndarray | np.generic)), None)
    return list(blocks) if foreign is None else [as_type_of(block, foreign) for block in blocks]


def _bound_text(bound: float) -> str:
    return "?" if math.isnan(bound) else str(bound)
