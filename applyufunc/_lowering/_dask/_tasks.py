"""What runs on the workers: `KernelTask` on the blocks of one loop block, `Pick` on what it gave, `last` on one block.

Picklable objects with a name and a token of their own, as Dask asks of functions. In: blocks, as the schedulers hand
them. Out: blocks. Knows nothing of graphs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import array_api_compat
import numpy as np

from ..._blocks import BlockRunner, add_note, location_text
from ..._errors import DimensionError
from ..._typing import Array
from .._host import as_numpy, like, refuse_transfer, to_host
from ._identity import dtype_text
from ._keywords import put_back

__all__ = ["Alike", "Cut", "KernelTask", "Pick", "as_type_of", "last", "noted", "piece_text"]


Cut: TypeAlias = tuple[int | None, ...]
"""For each axis of an argument that is there whole, the axis of the location that cuts it; None: a block sees all."""

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
    n_shared: int = 0  # arrays of keywords, which come last
    allow_transfer: bool = False  # whether leave was given when the graph was built
    only: int | None = None  # the one output to return; None: all, in a tuple

    @property
    def __name__(self) -> str:
        """What Dask shows."""
        return self.name

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what stands for the task in the names of arrays; Dask adds those of the blocks."""
        types = tuple((type(meta).__module__, type(meta).__qualname__, dtype_text(meta.dtype)) for meta in self.metas)
        return "applyufunc.KernelTask", self.token, types, self.cuts, self.alike, self.allow_transfer, self.only

    def __call__(self, *operands: Any) -> Any:
        """Return the outputs for: what only carries a dim, where the blocks lie in the loop, blocks, shared arrays."""
        task, operands = self.filled(operands)
        start = len(operands) - len(self.cuts)
        location = operands[start - 1] if self.n_loop else ()
        finished = task.finish(task.runner(*task.arrange(operands[start:], location), location=location))
        return finished if self.only is None else finished[self.only]

    def filled(self, operands: tuple[Any, ...]) -> tuple[KernelTask, tuple[Any, ...]]:
        """Return the task with all of its keywords, and the operands without those arrays, which come last."""
        if not self.n_shared:
            return self, operands
        end = len(operands) - self.n_shared
        keywords = put_back(self.runner.keywords, operands[end:])
        return dataclasses.replace(self, runner=dataclasses.replace(self.runner, keywords=keywords)), operands[:end]

    def arrange(self, blocks: Sequence[Array], location: Sequence[slice]) -> list[Array]:
        """Return the blocks as the kernel takes them, cut, and checked against each other.

        What `location` has beyond the loop dims are core dims in pieces.
        """
        blocks = [_cut(block, axes, location) for block, axes in zip(blocks, self.cuts, strict=True)]
        loop = location[: self.n_loop]
        for dim, places in self.alike:
            self._check_alike(dim, [(argument, blocks[argument].shape[axis]) for argument, axis in places], loop)
        return self._for_kernel(blocks, loop)

    def finish(self, outputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return outputs of the types that were announced."""
        return tuple(map(as_type_of, outputs, self.metas))

    def _check_alike(self, dim: str, sizes: Sequence[tuple[int, int]], location: Sequence[slice]) -> None:
        if len({size for _, size in sizes}) > 1:
            positions = self.runner.array_positions
            found = " and ".join(f"{size} in argument {positions[argument]}" for argument, size in sizes)
            raise DimensionError(
                f"loop dimension {dim} (from the right), of a size unknown until computed, is {found} in block "
                f"{location_text(location)}, for kernel {self.runner.kernel.name!r}"
            )

    def _for_kernel(self, blocks: Sequence[Array], location: Sequence[slice]) -> list[Array]:
        """Return the blocks as NumPy arrays, or all of one library, as the kernel takes them."""
        if self.runner.kernel.arrays == "numpy":
            return [
                block if type(block) in _HOST_TYPES else self._on_host(block, position, location)
                for position, block in zip(self.runner.array_positions, blocks, strict=True)
            ]
        foreign = next((block for block in blocks if not isinstance(block, np.ndarray | np.generic)), None)
        return list(blocks) if foreign is None else [as_type_of(block, foreign) for block in blocks]

    def _on_host(self, block: Any, position: int, location: Sequence[slice]) -> np.ndarray[Any, Any]:
        """Return a block that is something else than its array's meta says, by the rules for arguments."""
        what = f"argument {position}{f', block {location_text(location)},' if location else ''}"
        if not array_api_compat.is_array_api_obj(block) or isinstance(block, np.ndarray | np.generic):
            return as_numpy(block, what)
        if not self.allow_transfer:  # whatever leave there is where the block is computed
            refuse_transfer(block, what)
        return to_host(block)


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

    def __call__(self, *operands: Any) -> Array:
        """Return the output; along a dim of one block that is summed over, the tuple comes in a list."""
        outputs = operands[-1]
        if isinstance(outputs, list):
            (outputs,) = outputs
        return outputs[self.position]


def last(*operands: Any) -> Array:
    """Return the block, which follows what only carries a dim."""
    return operands[-1]


@contextmanager
def noted(what: str) -> Iterator[None]:
    """Say, in a note on whatever is raised, where it was."""
    try:
        yield
    except Exception as error:
        add_note(error, what)
        raise


def piece_text(dims: Sequence[str], parts: Sequence[slice]) -> str:
    """Write which part of some core dims a block is."""
    pairs = zip(dims, parts, strict=True)
    return " and ".join(location_text((part,), f"core dimension {dim!r}") for dim, part in pairs)


def as_type_of(array: Array, meta: Array) -> Array:
    """Return a plain NumPy array as the type of `meta`; any other array as it is."""
    if type(array) is not np.ndarray or type(meta) is np.ndarray:
        return array
    if isinstance(meta, np.ma.MaskedArray):
        return np.ma.asarray(array)
    return array if isinstance(meta, np.ndarray) else like(array, meta)


def _cut(block: Array, axes: Cut, location: Sequence[slice]) -> Array:
    """Return a view of the part of a whole array that belongs to a loop block."""
    if all(axis is None for axis in axes):
        return block
    return block[tuple(slice(None) if axis is None else location[axis] for axis in axes)]


_HOST_TYPES: Final = (np.ndarray, np.ma.MaskedArray)
