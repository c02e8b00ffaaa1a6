"""Tensors as NumPy arrays, and NumPy arrays as tensors: the same memory, where the tensor is in the host's.

In and out: arrays of one library and of the other. Leave to copy has been checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..._casting import numpy_dtype
from ..._errors import ArgumentError, OutputDTypeError
from ..._typing import Array
from ._dtypes import as_bits, narrow, torch_dtype

__all__ = ["from_numpy", "to_numpy"]


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Return a NumPy view of a tensor on the CPU, a copy of any other; NumPy arrays as they are."""
    if isinstance(array, np.ndarray):
        return array
    plain = _detached(array)
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    bits = as_bits(plain.dtype)
    if bits is None:
        return plain.numpy(force=True)  # type: ignore[no-any-return]
    return plain.view(bits).numpy(force=True).view(numpy_dtype(plain.dtype))  # type: ignore[no-any-return]


def from_numpy(array: np.ndarray[Any, Any], device: torch.device, what: str) -> Array:
    """Return a tensor in the memory of an array that nobody else holds, in C order, or a copy on another device."""
    if isinstance(array, np.ma.MaskedArray):
        raise OutputDTypeError(f"{what}: kernel returned a masked array, whose mask torch arrays cannot keep")
    held = np.asarray(array, narrow(array.dtype, declared=False), order="C")
    if min(held.strides, default=0) < 0:  # in C order all the same, along axes of length 1; PyTorch takes none such
        held = held.copy()
    dtype = torch_dtype(held.dtype)
    assert dtype is not None  # or `narrow` had refused
    bits = as_bits(dtype)
    if bits is None:
        return torch.from_numpy(held).to(device)
    return torch.from_numpy(held.view(f"i{held.itemsize}")).view(dtype).to(device)


def _detached(tensor: Array) -> Array:
    """Return a tensor without its history; refuse what only looks like one tensor of values, and is many."""
    try:
        return tensor.detach()
    except RuntimeError as error:
        if "Batching rule" not in str(error):
            raise
        raise ArgumentError(
            "PyTorch's older batching, of is_grads_batched=True and of torch.autograd.functional with vectorize=True, "
            "shows no values to a kernel that takes NumPy arrays: use torch.func (vmap, jacrev, jacfwd, hessian)"
        ) from error
