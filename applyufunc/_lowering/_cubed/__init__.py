"""Calls on cubed arrays: lazy, one operation of cubed's own for the kernel, on top of its `general_blockwise`.

Implements the functions of `Lowering`: `_arrays` answers the door, `_cuts` decides how the arguments are cut and has
cubed rechunk them, `_operation` makes cubed's operation of that, `_tasks` is what runs in it, and `_explanation` reads
from cubed's plan what a call costs. Storage, executors and the limit on memory are cubed's.
"""

from __future__ import annotations

from .._plain import default_dtype, lend, look, narrow, repeat, settled, traces, untraced
from ._arrays import as_block, block_kind, convert, is_lazy, namespace, shape
from ._explanation import explain
from ._operation import lower

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
