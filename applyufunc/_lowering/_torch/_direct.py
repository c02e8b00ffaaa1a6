"""The kernel called now, on tensors that hold their values: nothing is copied where they are in the host's memory.

In: a block runner, and arrays. Out: tensors that share memory with no argument, and whose memory is in C order.
Knows no gradients and no graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from ..._arguments import is_constant
from ..._blocks import BlockRunner
from ..._call import Lent
from ..._typing import Array
from ._dtypes import as_bits
from ._host import from_numpy, to_numpy
from ._memory import own_memory
from ._values import is_observed

__all__ = ["as_tensors", "call_directly", "device_of", "lend"]


def call_directly(runner: BlockRunner, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a kernel on the whole arrays, on their device."""
    if runner.kernel.arrays == "numpy":
        device = device_of(arrays)
        outputs = runner(*map(to_numpy, arrays))
        return tuple(from_numpy(output, device, f"output {n}") for n, output in enumerate(outputs))
    given = [tensor.detach() for tensor in as_tensors(arrays)]
    return tuple(output.detach() for output in own_memory(runner(*given), given))


def lend(args: Sequence[Any]) -> Lent | None:
    """Return arguments lent to a kernel: tensors on the CPU, and Python scalars; None for what is less plain."""
    if is_observed():
        return None
    look: list[Any] = [torch.get_default_dtype()]
    lent: list[Any] = []
    for arg in args:
        if is_constant(arg):
            look.append(type(arg))
            lent.append(arg)
            continue
        if type(arg) is not torch.Tensor or arg.requires_grad or arg.device != _CPU or as_bits(arg.dtype) is not None:
            return None
        try:
            lent.append(arg.numpy())
        except (RuntimeError, TypeError):  # which the common road tells better: no strides, no such dtype, no values
            return None
        look.append(arg.shape)
        look.append(arg.dtype)
    return Lent(tuple(look), tuple(lent), _give_back)


def device_of(arrays: Sequence[Array]) -> torch.device:
    """Return the device of the arguments; those without dims follow the others, and all follow one without values."""
    tensors = [array for array in arrays if isinstance(array, torch.Tensor)]
    leading: torch.Tensor = min(tensors, key=lambda tensor: (not tensor.is_meta, tensor.ndim == 0))
    return leading.device


def as_tensors(arrays: Sequence[Array]) -> list[Array]:
    """Return NumPy's arrays, which may be read-only, as tensors of their own, and all else as it is."""
    device = device_of(arrays)
    return [
        from_numpy(array.copy(), device, "argument") if isinstance(array, np.ndarray) else array for array in arrays
    ]


def _give_back(output: Array, position: int) -> Array:
    return from_numpy(output, _CPU, f"output {position}")


_CPU: Final = torch.device("cpu")
