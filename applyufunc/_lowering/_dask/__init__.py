"""Calls on Dask arrays: lazy, in layers whose size does not depend on the number of blocks.

One source for three front ends: `dask.array`, its expressions (``array.query-planning``), and the package `dask_array`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_chunks` decides how the arguments are cut,
`_graph` builds the layers with `_layers`, `_tasks` is what runs in them, `_identity` names them. Where core dims stay
in chunks, `_reductions`, `_scans` and `_overlaps` stand in place of `_graph`, each with the tasks that are its own;
what they share is in `_pieces`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._call import Call
from ..._typing import Array
from ._arrays import as_block, block_kind, convert, default_dtype, is_lazy, namespace, narrow, shape, traces, untraced
from ._graph import lower as lower_whole
from ._overlaps import is_overlapped, overlap
from ._reductions import reduced
from ._scans import is_scanned, scan

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "is_lazy",
    "lower",
    "namespace",
    "narrow",
    "shape",
    "traces",
    "untraced",
]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    if is_scanned(call, arrays):
        return scan(call, arrays)
    if is_overlapped(call, arrays):
        return overlap(call, arrays)
    outputs = reduced(call, arrays)
    return lower_whole(call, arrays) if outputs is None else outputs
