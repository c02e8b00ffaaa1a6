"""Calls on Dask arrays: lazy, in layers whose size does not depend on the number of blocks.

One source for three front ends: `dask.array`, its expressions (``array.query-planning``), and the package `dask_array`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_chunks` decides how the arguments are cut,
`_graph` builds the layers, `_tasks` is what runs in them, `_identity` names them, `_explanation` tells of all that.
"""

from ._arrays import as_block, block_kind, convert, default_dtype, is_lazy, namespace, narrow, shape, untraced
from ._explanation import explain
from ._graph import lower

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "lower",
    "namespace",
    "narrow",
    "shape",
    "untraced",
]
