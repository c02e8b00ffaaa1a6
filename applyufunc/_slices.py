"""Slices of a block's loop dims, so that what a kernel is given at once, and what it makes of it, stays in cache.

In: a plan, bytes per element, and how many bytes a slice may have; later what the kernel returned for one slice after
the other. Out: where to cut; later the outputs for the whole block. Calls no kernel but by taking the next outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ._casting import astype, numpy_dtype
from ._errors import OutputDTypeError, OutputShapeError
from ._plan import Operand, Plan
from ._typing import Array, Namespace, Shape

__all__ = ["Cut", "assemble", "count_slices", "cut_loop", "slice_of", "slice_sizes", "within"]

Cut: TypeAlias = tuple[slice, ...]
"""A part of each loop dim, from the left."""


def slice_sizes(plan: Plan, itemsizes: Sequence[int | None], limit: int) -> tuple[int, ...]:
    """Return the sizes along the loop dims of slices that have at most `limit` bytes in all operands together.

    `itemsizes` are those of the inputs, None for what is no array, and of the outputs. The first dims are cut first, so
    that what is one behind the other in memory stays so; a slice has one item at least.
    """
    operands = [
        _Extent(operand.loop_shape, itemsize * math.prod(size or 0 for size in operand.core_shape))
        for operand, itemsize in zip((*plan.inputs, *plan.outputs), itemsizes, strict=True)
        if operand is not None and itemsize is not None
    ]
    sizes = [size or 0 for size in plan.loop_shape]
    for axis, size in enumerate(sizes):
        fixed = sum(operand.bytes_of(sizes) for operand in operands if not operand.varies(axis - len(sizes)))
        moving = sum(operand.bytes_of(sizes) for operand in operands if operand.varies(axis - len(sizes)))
        if fixed + moving <= limit:
            break
        if moving:
            fitting = max(1, (limit - fixed) * size // moving)
            sizes[axis] = math.ceil(size / math.ceil(size / fitting))  # slices of about one size
    return tuple(sizes)


def cut_loop(plan: Plan, sizes: Sequence[int]) -> list[Cut]:
    """Return the slices of such sizes, in the order of the loop."""
    return list(
        itertools.product(*(_cut(whole or 0, size) for whole, size in zip(plan.loop_shape, sizes, strict=True)))
    )


def count_slices(plan: Plan, sizes: Sequence[int]) -> int:
    """Count the slices of such sizes."""
    pairs = zip(plan.loop_shape, sizes, strict=True)
    return math.prod(math.ceil((whole or 0) / size) if size else 0 for whole, size in pairs)


def slice_of(block: Array, operand: Operand, cut: Cut) -> Array:
    """Return what one slice has of an input; an axis of length 1 is that of every slice."""
    own = cut[len(cut) - operand.n_loop :]
    index = (slice(None) if size == 1 else part for size, part in zip(operand.loop_shape, own, strict=True))
    return block[(*index, ...)]


def within(location: Sequence[slice], cut: Cut) -> Sequence[slice]:
    """Return which part of the whole loop a slice is of the block that is at `location`."""
    if len(location) < len(cut):
        return cut
    starts = [part.start for part in location]
    inner = zip(starts, cut, strict=False)  # what comes after the loop dims are core dims in pieces
    return (*(slice(start + part.start, start + part.stop) for start, part in inner), *location[len(cut) :])


def assemble(parts: Iterable[tuple[Cut, tuple[Array, ...]]], plan: Plan, xp: Namespace) -> tuple[Array, ...]:
    """Return the outputs for the whole block from those for its slices, which come in the order of the loop."""
    if xp is not np:
        return _joined(list(parts), plan, xp)
    wholes = [_Whole(n, operand) for n, operand in enumerate(plan.outputs)]
    for cut, outputs in parts:
        for whole, output in zip(wholes, outputs, strict=True):
            whole.put(cut, output)
    return tuple(whole.array for whole in wholes)


@dataclass(frozen=True, slots=True)
class _Extent:
    """What of an operand changes with the size of a slice."""

    loop_shape: Shape
    item_bytes: int

    def varies(self, axis: int) -> bool:
        """Tell whether the operand has that axis, from the right, and more than one item along it."""
        return len(self.loop_shape) >= -axis and self.loop_shape[axis] != 1

    def bytes_of(self, sizes: Sequence[int]) -> int:
        """Return the bytes that a slice of such sizes has of the operand."""
        own = zip(self.loop_shape, sizes[len(sizes) - len(self.loop_shape) :], strict=True)
        return self.item_bytes * math.prod(1 if whole == 1 else size for whole, size in own)


def _cut(whole: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, whole)) for start in range(0, whole, size or 1))


class _Whole:
    """One output of NumPy's, which is filled slice by slice; its dtype and core shape are those that come."""

    def __init__(self, position: int, operand: Operand) -> None:
        self._position, self._operand = position, operand
        self.array: Any = None

    def put(self, cut: Cut, part: Array) -> None:
        """Copy what a slice gave to where it belongs."""
        if self.array is None:
            self.array = self._make(part)
        _check_core(part, self.array, self._position, self._operand)
        if part.dtype != self.array.dtype:
            self.array = self.array.astype(_common(part.dtype, self.array.dtype, self._position))
        if isinstance(part, np.ma.MaskedArray) and not isinstance(self.array, np.ma.MaskedArray):
            self.array = np.ma.MaskedArray(self.array, copy=False)
        self.array[cut] = part

    def _make(self, first: Array) -> Array:
        loop_shape = tuple(size or 0 for size in self._operand.loop_shape)
        shape = (*loop_shape, *first.shape[len(loop_shape) :])
        if not isinstance(first, np.ma.MaskedArray):
            return np.empty(shape, first.dtype)
        return np.ma.MaskedArray(np.empty(shape, first.dtype), fill_value=first.fill_value)


def _joined(parts: Sequence[tuple[Cut, tuple[Array, ...]]], plan: Plan, xp: Namespace) -> tuple[Array, ...]:
    """Return outputs of a library whose arrays may be such that nobody can write into them."""
    numbers = [len({cut[axis].start for cut, _ in parts}) for axis in range(plan.n_loop)]
    return tuple(
        _joined_output([outputs[n] for _, outputs in parts], numbers, n, operand, xp)
        for n, operand in enumerate(plan.outputs)
    )


def _joined_output(
    pieces: list[Array], numbers: Sequence[int], position: int, operand: Operand, xp: Namespace
) -> Array:
    common = numpy_dtype(pieces[0].dtype)
    for piece in pieces:
        _check_core(piece, pieces[0], position, operand)
        common = _common(numpy_dtype(piece.dtype), common, position)
    pieces = [astype(piece, common, xp) for piece in pieces]
    for axis in reversed(range(len(numbers))):
        rows = _rows(pieces, numbers[axis])
        pieces = [row[0] if len(row) == 1 else xp.concat(row, axis=axis) for row in rows]
    return pieces[0]


def _rows(pieces: Sequence[Array], length: int) -> Iterator[Sequence[Array]]:
    return (pieces[start : start + length] for start in range(0, len(pieces), length))


def _check_core(part: Array, other: Array, position: int, operand: Operand) -> None:
    """Refuse two sizes of one dim, which only slices can have."""
    core, wanted = tuple(part.shape[operand.n_loop :]), tuple(other.shape[operand.n_loop :])
    for label, got, first in zip(operand.dims[operand.n_loop :], core, wanted, strict=True):
        if got != first:
            raise OutputShapeError(
                f"output {position}, core dimension {label}: unknown size is {first} in one slice and {got} in "
                f"another, expected one size for the whole call: drop block_bytes, or pass UpTo(bound), which pads"
            )


def _common(dtype: np.dtype[Any], other: np.dtype[Any], position: int) -> np.dtype[Any]:
    """Return the dtype that holds what two slices gave."""
    try:
        return np.result_type(dtype, other)
    except TypeError:
        raise OutputDTypeError(
            f"output {position}: kernel returned {other} for one slice and {dtype} for another, which have no common "
            f"dtype: pass output_dtypes"
        ) from None
