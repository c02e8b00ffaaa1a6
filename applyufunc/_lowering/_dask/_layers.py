"""Blockwise layers of which nothing is left for Dask to guess, and how they write chunks.

In: a function for blocks, operands with a label for each axis, the chunks along every label. Out: one lazy Dask array.
Knows neither kernels nor calls; `da` is the front end that the arrays are from.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from dask.base import normalize_token
from dask.layers import ArrayBlockIdDep, ArraySliceDep

from ..._typing import Array, Chunks, Namespace
from ._chunk_costs import remembered

__all__ = [
    "ONE_BLOCK",
    "Location",
    "Operands",
    "Sizes",
    "carriers",
    "in_one_block",
    "known",
    "labels_of",
    "layer",
    "unknown_as_nan",
]

Operands: TypeAlias = list[tuple[Any, tuple[str, ...]]]
Sizes: TypeAlias = tuple[Any, ...]
"""Chunks of one axis as Dask writes them: NaN for an unknown size."""

ONE_BLOCK: Final = "1"  # no dim has a positive number for a name
"""The label of what is in one block."""


class Location(ArraySliceDep):
    """An operand that says where each block lies, as slices. Its token is made as that of `_Grid`."""


def layer(
    da: Namespace,
    func: Any,
    operands: Operands,
    chunks: Mapping[str, Sizes],
    meta: Array,
    name: str,
    *,
    concatenate: bool | None = None,
) -> Array:
    """Return what `func` makes of the operands' blocks, in chunks of which neither number nor size is guessed.

    What is no array comes first, and there always is something: `dask_array` then does not cut the operands for a
    slice of the result, at which it fails where an operand has one block for many, or the slice is empty.
    """
    return da.blockwise(
        func,
        tuple(chunks),
        *itertools.chain.from_iterable([(_NO_DIM, ()), *operands]),
        adjust_chunks=_Grid(chunks),
        align_arrays=False,
        concatenate=concatenate,
        dtype=meta.dtype,
        meta=meta,
        token=name,
    )


def carriers(labels: Sequence[str]) -> Operands:
    """Return operands that give labels their one block, where no array has them."""
    return [(_CARRIER, (label,)) for label in labels]


def in_one_block(arrays: Sequence[Array], label: str = ONE_BLOCK) -> Operands:
    """Return operands that every task sees whole."""
    return [(array, (label,) * array.ndim) for array in arrays]


def labels_of(array: Array, dims: Sequence[str], grid: Mapping[str, Sizes]) -> tuple[str, ...]:
    """Return the label of each axis of an operand: its dim where it is cut as `grid` is, else `ONE_BLOCK`."""
    n_blocks = zip(dims, array.numblocks, strict=True)
    return tuple(dim if len(grid.get(dim, ())) == n else ONE_BLOCK for dim, n in n_blocks)


@remembered
def known(chunks: tuple[float, ...]) -> Chunks:
    """Return chunks as they are planned: None for an unknown size."""
    if not math.isnan(sum(chunks)):  # of a million chunks: no loop in Python
        return tuple(map(int, chunks))
    return tuple(None if math.isnan(size) else int(size) for size in chunks)


def unknown_as_nan(chunks: Chunks) -> Sizes:
    """Return chunks as Dask writes them."""
    if None not in chunks:
        return chunks
    return tuple(math.nan if size is None else size for size in chunks)


class _Grid(dict[str, Sizes]):
    """The chunks along every label. Dask would tokenize every number, which takes longer than all else in a call."""


@normalize_token.register(_Grid)  # type: ignore[untyped-decorator]
def _grid_token(grid: _Grid) -> tuple[str, tuple[tuple[str, str], ...]]:
    return "applyufunc.Grid", tuple((label, _digest(sizes)) for label, sizes in grid.items())


@normalize_token.register(Location)  # type: ignore[untyped-decorator]
def _location_token(location: Location) -> tuple[str, tuple[str, ...]]:
    return "applyufunc.Location", tuple(map(_digest, location.chunks))


@remembered
def _digest(sizes: Sizes) -> str:
    return hashlib.sha256(repr(sizes).encode()).hexdigest()


_CARRIER: Final = ArrayBlockIdDep(((1,),))
_NO_DIM: Final = ArrayBlockIdDep(())
