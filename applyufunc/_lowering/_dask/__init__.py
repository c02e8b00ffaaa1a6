"""Calls on Dask arrays: lazy, in layers whose size does not depend on the number of blocks.

That holds for the layers that are ours. Those that `dask.array` makes of its own `rechunk`, `reduction`, `concatenate`
and `blocks` have every task written out.

One source for three front ends: `dask.array`, its expressions (``array.query-planning``), and the package `dask_array`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_chunks` decides how the arguments are cut,
`_graph` makes a `Planned` of that and builds its layers with `_layers`, `_tasks` is what runs in them, `_identity`
names them. `_keywords` keeps large arrays out of the tasks, and `_travel` looks at what else they carry to worker
processes. Where core dims stay in chunks, `_reductions`, `_scans` and `_overlaps` stand in place of `_graph`, each with
the tasks that are its own; what they share is in `_pieces`. `_roads` chooses among them, and `_explanation` tells of
what they planned. Where a call looks like an earlier one, `look` finds the plan of that, and `repeat` goes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from dask.array.core import Array as HighLevelArray

from ..._call import Call
from ..._errors import warn_caller
from ..._identity import is_plain_dtype
from ..._kernel import Kernel
from ..._transfer import transfer_is_allowed
from ..._typing import Array
from .._plain import default_dtype, lend, narrow, settled, traces, untraced
from ._arrays import as_block, block_kind, convert, is_lazy, namespace, shape
from ._explanation import explain
from ._graph import FEW_CHUNKS, settings
from ._identity import known_identity
from ._roads import plan
from ._travel import destination

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "lend",
    "look",
    "lower",
    "namespace",
    "narrow",
    "repeat",
    "settled",
    "shape",
    "traces",
    "untraced",
]


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call, core dims last."""
    return repeat(call, arrays)(arrays)


def look(args: Sequence[Any], kernel: Kernel) -> Hashable | None:
    """Return chunks and dtypes, and what else decides on layers and their names, of arrays of the usual kind."""
    if not all(map(_is_usual, args)):
        return None
    if sum(map(sum, (arg.numblocks for arg in args))) > FEW_CHUNKS:
        return None
    identity = known_identity(kernel)
    if identity is None:
        return None
    of_arrays = tuple((arg.chunks, arg.dtype) for arg in args)
    return of_arrays, identity, settings(), destination(), transfer_is_allowed(False)


def repeat(call: Call, arrays: Sequence[Array]) -> Callable[[Sequence[Array]], tuple[Array, ...]]:
    """Return what `lower` does with a call, for further arrays of the same look."""
    planned = plan(call, arrays)

    def lower_again(arrays: Sequence[Array]) -> tuple[Array, ...]:
        for text in planned.warnings:
            warn_caller(text)
        return planned.build(arrays)

    return lower_again


def _is_usual(arg: Any) -> bool:
    """Tell an array whose chunks and dtype say all."""
    return type(arg) is HighLevelArray and type(arg._meta) is np.ndarray and is_plain_dtype(arg.dtype)
