"""Calls on Dask arrays: lazy, in layers whose size does not depend on the number of blocks.

One source for three front ends: `dask.array`, its expressions (``array.query-planning``), and the package `dask_array`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_chunks` decides how the arguments are cut,
`_graph` builds the layers with `_layers`, `_tasks` is what runs in them, `_identity` names them. `_reductions`, with
modules of its own, stands in front of `_graph` where a core dim is reduced in the chunks in which it lies.
"""

from ._arrays import as_block, block_kind, convert, default_dtype, is_lazy, namespace, narrow, shape, untraced
from ._reductions import lower

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
    "untraced",
]
