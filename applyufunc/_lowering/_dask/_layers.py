"""Blockwise layers of which nothing is left for Dask to guess, and how they write chunks.

In: a function for blocks, operands with a label for each axis, the chunks along every label. Out: one lazy Dask array.
Knows neither kernels nor calls; `da` is the front end that the arrays are from.

On `dask.array` as it is by default a layer is made of Dask's own parts. ``da.blockwise`` would spend three quarters of
the time on what is known here: it looks for the chunks, tokenizes all it gets, and makes an array even of what only the
next layer sees.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from dask.array.core import Array as HighLevelArray
from dask.base import normalize_token, tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayBlockIdDep, ArraySliceDep

from ..._identity import is_plain
from ..._typing import Array, Chunks, Namespace
from ._chunk_costs import remembered
from ._identity import dtype_text

__all__ = [
    "ONE_BLOCK",
    "Location",
    "Operands",
    "Sizes",
    "Stage",
    "carriers",
    "in_one_block",
    "inner_layer",
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


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks that only other layers see: what these ask of an array."""

    name: str
    numblocks: tuple[int, ...]
    graph: HighLevelGraph

    def __dask_graph__(self) -> HighLevelGraph:
        """Return all layers, as Dask asks of its collections."""
        return self.graph

    def __dask_layers__(self) -> tuple[str, ...]:
        """Return the name of the last one."""
        return (self.name,)


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
    operands = [(_NO_DIM, ()), *operands]
    if da.Array is HighLevelArray:
        stage = _stage(func, operands, chunks, meta, name, concatenate)
        return HighLevelArray(stage.graph, stage.name, tuple(chunks.values()), meta=meta)
    return da.blockwise(
        func,
        tuple(chunks),
        *itertools.chain.from_iterable(operands),
        adjust_chunks=_Grid(chunks),
        align_arrays=False,
        concatenate=concatenate,
        dtype=meta.dtype,
        meta=meta,
        token=name,
    )


def inner_layer(da: Namespace, func: Any, operands: Operands, grid: Mapping[str, Sizes], name: str) -> Array | Stage:
    """Return blocks for other layers, of any type: what `func` returns for each block of `grid`, whatever its sizes."""
    meta = np.empty((0,) * len(grid), object)
    if da.Array is HighLevelArray:
        return _stage(func, [(_NO_DIM, ()), *operands], grid, meta, name, None)
    return layer(da, func, operands, grid, meta, name)


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


def _stage(
    func: Any, operands: Operands, chunks: Mapping[str, Sizes], meta: Array, name: str, concatenate: bool | None
) -> Stage:
    """Return a layer on top of those of its operands."""
    arrays = [operand for operand, _ in operands if not isinstance(operand, BlockwiseDep)]
    key = f"{name}-{_layer_token(func, operands, chunks, meta, concatenate)}"
    named = ((operand if isinstance(operand, BlockwiseDep) else operand.name, labels) for operand, labels in operands)
    numblocks = {array.name: array.numblocks for array in arrays}
    blocks = blockwise(
        func, key, tuple(chunks), *itertools.chain.from_iterable(named), numblocks=numblocks, concatenate=concatenate
    )
    graph = HighLevelGraph.from_collections(key, blocks, dependencies=arrays)
    return Stage(key, tuple(map(len, chunks.values())), graph)


def _layer_token(
    func: Any, operands: Operands, chunks: Mapping[str, Sizes], meta: Array, concatenate: bool | None
) -> str:
    """Return what stands for all that a layer is made of."""
    own = func.__dask_tokenize__() if hasattr(func, "__dask_tokenize__") else None
    named = [(normalize_token(each) if isinstance(each, BlockwiseDep) else each.name, at) for each, at in operands]
    kind = type(meta).__module__, type(meta).__qualname__, dtype_text(meta.dtype)
    what = tokenize(func) if own is None or not is_plain(own) else own
    return _hashed((what, named, _grid_token(chunks), kind, concatenate))


class _Nowhere(ArrayBlockIdDep):
    """An operand that is there for its labels, or for its place, alone."""


class _Grid(dict[str, Sizes]):
    """The chunks along every label. Dask would tokenize every number, which takes longer than all else in a call."""


@normalize_token.register(_Grid)  # type: ignore[untyped-decorator]
def _grid_token(grid: Mapping[str, Sizes]) -> tuple[str, tuple[tuple[str, str], ...]]:
    return "applyufunc.Grid", tuple((label, _digest(sizes)) for label, sizes in grid.items())


@normalize_token.register(Location)  # type: ignore[untyped-decorator]
def _location_token(location: Location) -> tuple[str, tuple[str, ...]]:
    return "applyufunc.Location", tuple(map(_digest, location.chunks))


@normalize_token.register(_Nowhere)  # type: ignore[untyped-decorator]
def _nowhere_token(nowhere: _Nowhere) -> tuple[str, str]:
    return "applyufunc.Nowhere", repr(nowhere.chunks)


@remembered
def _digest(sizes: Sizes) -> str:
    return _hashed(sizes)


def _hashed(value: object) -> str:
    """Return a digest of a value's text."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


_CARRIER: Final = _Nowhere(((1,),))
_NO_DIM: Final = _Nowhere(())
