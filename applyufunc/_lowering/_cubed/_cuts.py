"""How the arguments of a call are cut: core dims in one chunk, loop dims alike; cubed itself rechunks them.

In: a `Call`, cubed arrays, and NumPy arrays. Out: `Cut`, with cubed arrays of which each block goes with one block of
the outputs. Computes nothing. cubed's chunks are regular, so that one width says all about a dim; where arguments
differ it is the smallest, as when cubed itself brings arrays together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import cubed
import numpy as np

from ..._call import Call
from ..._errors import AlignmentError
from ..._plan import Operand
from ..._typing import Array
from ._arrays import is_host

__all__ = ["Cut", "KnownChunks", "cut_arguments", "spec_of"]

KnownChunks: TypeAlias = tuple[int, ...]
"""Sizes of the chunks along one axis."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The arguments of a call, cut as its kernel takes them."""

    loop: tuple[tuple[str, KnownChunks], ...]  # of the outputs, from the left
    operands: tuple[Operand, ...]  # for each array argument in turn
    arrays: tuple[Array, ...]


def cut_arguments(call: Call, arrays: Sequence[Array]) -> Cut:
    """Return the arguments of a call as its kernel takes them; refuse core dims that may not be merged."""
    operands = tuple(_operands(call))
    _check_cores(call, operands, arrays)
    widths = _loop_widths(call, operands, arrays)
    spec = spec_of(arrays)
    cut = (
        _from_host(array, _chunk_sizes(operand, widths), spec)
        if is_host(array)
        else _rechunked(array, operand, _chunk_sizes(operand, widths), position)
        for position, operand, array in zip(call.runner.array_positions, operands, arrays, strict=True)
    )
    sizes = zip(widths.items(), call.plan.loop_shape, strict=True)
    loop = tuple((dim, _regular(size or 0, width)) for (dim, width), size in sizes)
    return Cut(loop, operands, tuple(cut))


def spec_of(arrays: Sequence[Array]) -> Any:
    """Return where the cubed arrays among these are stored, and what memory there is to work on them."""
    return next(array.spec for array in arrays if not is_host(array))


MOST_IN_PLAN: Final = 10**6  # bytes of an array that cubed lets every task carry


def _operands(call: Call) -> Iterator[Operand]:
    for position in call.runner.array_positions:
        operand = call.plan.inputs[position]
        assert operand is not None  # of an array
        yield operand


def _check_cores(call: Call, operands: Sequence[Operand], arrays: Sequence[Array]) -> None:
    """Refuse core dims in several chunks, unless they may be merged."""
    rule = call.options.core_chunks
    if rule == "merge":
        return
    for position, operand, array in zip(call.runner.array_positions, operands, arrays, strict=True):
        for dim, n_blocks in zip(_core_dims(operand), _core_blocks(operand, array), strict=True):
            if n_blocks > 1:
                raise AlignmentError(
                    f"argument {position}: core dimension {dim!r} is in {n_blocks} chunks, expected one: "
                    f"{_why_not_merged(rule)}; rechunk the argument, or pass core_chunks='merge'"
                )


def _why_not_merged(rule: Any) -> str:
    if rule == "refuse":
        return "core_chunks='refuse' (allow_rechunk=False) does not let them be merged"
    kind = getattr(rule, "__name__", type(rule).__name__)
    return f"core_chunks={kind} works on the pieces of Dask arrays, not on those of cubed arrays"


def _core_dims(operand: Operand) -> tuple[str, ...]:
    return operand.dims[operand.n_loop :]


def _core_blocks(operand: Operand, array: Array) -> tuple[int, ...]:
    """Return the number of chunks along each core dim."""
    return (1,) * operand.n_core if is_host(array) else array.numblocks[operand.n_loop :]


def _loop_widths(call: Call, operands: Sequence[Operand], arrays: Sequence[Array]) -> dict[str, int]:
    """Return the chunk size along each loop dim; what broadcasts, and what is in one chunk, has no say."""
    widths: dict[str, int] = {str(axis - call.plan.n_loop): size or 0 for axis, size in enumerate(call.plan.loop_shape)}
    for operand, array in zip(operands, arrays, strict=True):
        if not is_host(array):
            for dim, chunks in zip(operand.dims[: operand.n_loop], array.chunks, strict=False):
                if len(chunks) > 1:
                    widths[dim] = min(widths[dim], max(chunks))
    return widths


def _chunk_sizes(operand: Operand, widths: Mapping[str, int]) -> tuple[int, ...]:
    """Return the chunk size along each axis of an argument; cubed writes that of an empty axis as 1."""
    loop = (min(size or 0, widths[dim]) for dim, size in zip(operand.dims, operand.loop_shape, strict=False))
    return tuple(max(size or 0, 1) for size in (*loop, *operand.core_shape))


def _from_host(array: np.ndarray[Any, Any], sizes: tuple[int, ...], spec: Any) -> Array:
    """Return a NumPy array, as it is now, as a cubed array."""
    make = cubed.asarray if array.nbytes <= MOST_IN_PLAN else cubed.from_array
    return make(array.copy(), chunks=sizes, spec=spec)


def _rechunked(array: Array, operand: Operand, sizes: tuple[int, ...], position: int) -> Array:
    """Return an argument with chunks of these sizes; one that is so already stays the same object."""
    chunks = tuple(_regular(size, width) for size, width in zip(array.shape, sizes, strict=True))
    if array.chunks == chunks:
        return array
    if 0 in array.shape:  # of which there is nothing to move
        return cubed.zeros(array.shape, dtype=array.dtype, chunks=sizes, spec=array.spec)
    try:
        return array.rechunk(sizes)
    except ValueError as error:
        cores = zip(_core_dims(operand), _core_blocks(operand, array), strict=True)
        merged = [repr(dim) for dim, n_blocks in cores if n_blocks > 1]
        why = f"for core dimension {' and '.join(merged)} to be in one chunk" if merged else "as other arguments are"
        raise AlignmentError(
            f"argument {position} of shape {array.shape}, in chunks of {array.chunksize}, cannot be rechunked to "
            f"{sizes} {why}: cubed says {str(error)!r}; rechunk its loop dimensions to smaller chunks first, "
            f"or give its arrays a Spec with more allowed_mem"
        ) from error


def _regular(size: int, width: int) -> KnownChunks:
    """Return chunks of one width that make up a size; the last may be smaller."""
    if size <= width:
        return (size,)
    return (width,) * (size // width) + ((size % width,) if size % width else ())
