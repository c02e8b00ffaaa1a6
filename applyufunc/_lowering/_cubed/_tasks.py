"""What runs on the workers: `KernelTask` on the blocks of one loop block, and `BlockKeys`, which says what these are.

Picklable objects. In: blocks, as cubed reads them from its storage. Out: the block of every output. Knows nothing of
plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cubed.backend_array_api import numpy_array_to_backend_array
from cubed.primitive.blockwise import ChunkKey, FunctionArgs

from ..._blocks import BlockRunner
from ..._typing import Array
from .._host import to_host
from ._cuts import KnownChunks

__all__ = ["BlockKeys", "KernelTask"]


@dataclass(frozen=True, slots=True)
class BlockKeys:
    """The key of one block of every argument, for the key of a block of the outputs."""

    names: tuple[str, ...]  # of the arrays, as cubed knows them
    numbers: tuple[tuple[int, ...], ...]  # of blocks, along the loop dims of each array
    n_core: tuple[int, ...]  # axes of each array that are in one block
    n_loop: int

    def __call__(self, key: ChunkKey) -> FunctionArgs:
        """Return the keys; an axis of one block broadcasts."""
        return FunctionArgs(*self._keys(key.coords[: self.n_loop]), output_name=key.name)

    def _keys(self, place: Sequence[int]) -> Iterator[ChunkKey]:
        for name, numbers, n_core in zip(self.names, self.numbers, self.n_core, strict=True):
            own = place[self.n_loop - len(numbers) :]
            loop = (0 if number == 1 else index for number, index in zip(numbers, own, strict=True))
            yield ChunkKey(name, (*loop, *(0,) * n_core))


@dataclass(frozen=True, slots=True)
class KernelTask:
    """The kernel on one block of every array argument; says in which block it failed."""

    runner: BlockRunner
    loop: tuple[KnownChunks, ...]  # the chunks of the outputs' loop dims
    paddings: tuple[int, ...]  # for each output, the axes of length 1 that make all have the same number of dims

    def __call__(self, *blocks: Array, block_id: tuple[int, ...]) -> Array | tuple[Array, ...]:
        """Return the block of the output, or a tuple of those of all outputs, at a place of the outputs' grid."""
        if self.runner.kernel.arrays == "numpy":
            blocks = tuple(map(to_host, blocks))
        outputs = self.runner(*blocks, location=self._location(block_id))
        padded = tuple(self._pad(output, n) for output, n in zip(outputs, self.paddings, strict=True))
        return padded if len(padded) > 1 else padded[0]

    def _location(self, block_id: Sequence[int]) -> tuple[slice, ...]:
        """Return which part of each loop dim a block is."""
        ends = (tuple(itertools.accumulate(chunks, initial=0)) for chunks in self.loop)
        return tuple(slice(along[place], along[place + 1]) for along, place in zip(ends, block_id, strict=False))

    def _pad(self, output: Array, n_axes: int) -> Array:
        """Return an output in the library of cubed's blocks, with axes of length 1 behind the loop dims."""
        n_loop = len(self.loop)
        if n_axes:
            output = output[(slice(None),) * n_loop + (None,) * n_axes]
        return numpy_array_to_backend_array(output)
