"""Outputs in memory of their own, in C order: what is done about those that show a part of some other tensor.

In: the outputs of a kernel that takes tensors, and its arguments, under whatever transformations. Out: the outputs.

Names of PyTorch that this relies on beyond the documented ones, seen in 2.13: `get_unwrapped` and
`is_functorch_wrapped_tensor` of `torch._C._functorch`, `_cdata` of storages, `torch.Tensor._is_view`, which inference
mode keeps no account of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..._typing import Array
from ._values import has_values

__all__ = ["own_memory"]


def own_memory(outputs: Sequence[Array], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return outputs of which none shows the memory of an argument, or a part of a tensor that the kernel may keep."""
    places = {_place(array) for array in map(_innermost, arrays) if _has_one_place(array)}
    return tuple(_owned(output, places) for output in outputs)


def _owned(output: Array, places: set[int]) -> Array:
    inner = _innermost(output)
    if not _has_one_place(inner):
        return output
    is_borrowed = inner._is_view() or _place(inner) in places
    return output.clone(memory_format=torch.contiguous_format) if is_borrowed else output.contiguous()


def _innermost(tensor: Array) -> Array:
    """Return the tensor that the transformations of ``torch.func`` have wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _has_one_place(tensor: Array) -> bool:
    """Tell a tensor whose elements are in one piece of memory, as those of a sparse one are not."""
    return tensor.layout is torch.strided


def _place(tensor: Array) -> int:
    """Return where the memory of a tensor begins, whatever part it shows; without values, what stands for it."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() if has_values(tensor) else storage._cdata  # type: ignore[no-any-return]
