"""Calls on Dask arrays: lazy, in layers whose size does not depend on the number of blocks.

That holds for the layers that are ours. Those that `dask.array` makes of its own `rechunk`, `reduction`, `concatenate`
and `blocks` have every task written out.

One source for three front ends: `dask.array`, its expressions (``array.query-planning``), and the package `dask_array`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_chunks` decides how the arguments are cut,
`_graph` makes a `Planned` of that and builds its layers with `_layers`, `_tasks` is what runs in them, `_identity`
names them. `_keywords` keeps large arrays out of the tasks, and `_travel` looks at what else they carry to worker
processes. Where core dims stay in chunks, `_reductions`, `_scans` and `_overlaps` stand in place of `_graph`, each with
the tasks that are its own; what they share is in `_pieces`. `_roads` chooses among them, and `_explanation` tells of
what they planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._call import Call
from ..._errors import warn_caller
from ..._typing import Array
from .._plain import default_dtype, lend, narrow, settled, traces, untraced
from ._arrays import as_block, block_kind, convert, is_lazy, namespace, shape
from ._explanation import explain
from ._roads import plan

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "lend",
    "lower",
    "namespace",
    "narrow",
    "settled",
    "shape",
    "traces",
    "untraced",
]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    planned = plan(call, arrays)
    for text in planned.warnings:
        warn_caller(text)
    return planned.build()
