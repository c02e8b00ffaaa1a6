"""Arguments as tensors: refused first, if they would have to be moved or are no plain tensors.

In: arguments as the caller gave them. Out: tensors, NumPy arrays of dtypes that PyTorch has, Python scalars and None.
A NumPy array stays one for a kernel that takes such: called directly, it reads it where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..._arguments import is_constant
from ..._casting import numpy_dtype
from ..._errors import ArgumentError, TransferError
from ..._kernel import Kernel
from ..._options import Options
from ..._transfer import transfer_is_allowed
from ..._typing import Array
from .._host import as_numpy, check_transfer
from ._direct import as_tensors
from ._dtypes import as_bits, check_numpy_has, torch_dtype

__all__ = ["convert"]


def convert(args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
    """Return each argument as an array, or as it is where it is a Python scalar or None."""
    for position, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            _check_tensor(arg, options, kernel, f"argument {position}")
    _check_one_device(args)
    converted: Sequence[Any] = [_convert(arg, f"argument {position}") for position, arg in enumerate(args)]
    if kernel.compute_dtype is None:
        converted = _strengthen(converted)
    return tuple(converted if kernel.arrays == "numpy" else as_tensors(converted))


def _check_tensor(tensor: Array, options: Options, kernel: Kernel, what: str) -> None:
    """Refuse a tensor that the kernel cannot be given, before any work."""
    if tensor.is_nested or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized"
        raise ArgumentError(f"{what} is a {kind} torch.Tensor, which is no array of numbers: convert it first")
    if kernel.arrays == "numpy":
        check_transfer(tensor.detach(), options.allow_transfer, what)
        _check_layout(tensor, options, what)
    check_numpy_has(tensor.dtype, what)


def _check_layout(tensor: Array, options: Options, what: str) -> None:
    """Refuse to make a sparse tensor dense unless leave was given."""
    if tensor.layout is not torch.strided and not transfer_is_allowed(options.allow_transfer):
        raise TransferError(
            f"{what} is a torch.Tensor of layout {tensor.layout} that would be made dense, and the kernel takes NumPy "
            f"arrays: pass allow_transfer=True, or use `with applyufunc.allow_transfer():`"
        )


def _check_one_device(args: Sequence[Any]) -> None:
    """Refuse arrays of two devices: the result could only be on one of them."""
    devices = {position: arg.device for position, arg in enumerate(args) if isinstance(arg, torch.Tensor) and arg.ndim}
    first = next(iter(devices), 0)
    for position, device in devices.items():
        if device != devices[first]:
            raise ArgumentError(
                f"argument {first} is on device {devices[first]} and argument {position} on device {device}: "
                f"arrays of two devices do not mix; move them to one"
            )


def _convert(arg: Any, what: str) -> Any:
    if is_constant(arg) or isinstance(arg, torch.Tensor):
        return arg
    array = as_numpy(arg, what)
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{what} is a masked array, whose mask torch arrays cannot keep: fill it first")
    if torch_dtype(array.dtype) is None:
        raise ArgumentError(f"{what} has dtype {array.dtype}, which torch arrays cannot hold")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _strengthen(args: Sequence[Any]) -> Sequence[Any]:
    """Return Python's floats beside short floats in their dtype: NumPy, for which those are no numbers, would widen."""
    short = next((arg.dtype for arg in args if isinstance(arg, torch.Tensor) and as_bits(arg.dtype) is not None), None)
    if short is None:
        return args
    return [np.asarray(arg, numpy_dtype(short)) if type(arg) is float else arg for arg in args]
