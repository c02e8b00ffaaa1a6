"""The kernel called now, on tensors that hold their values: nothing is copied where they are in the host's memory.

In: a block runner, and arrays. Out: tensors that share memory with no argument, and whose memory is in C order.
Knows no gradients and no graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..._blocks import BlockRunner
from ..._typing import Array
from ._host import from_numpy, to_numpy
from ._memory import own_memory

__all__ = ["as_tensors", "call_directly", "device_of"]


def call_directly(runner: BlockRunner, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a kernel on the whole arrays, on their device."""
    if runner.kernel.arrays == "numpy":
        device = device_of(arrays)
        outputs = runner(*map(to_numpy, arrays))
        return tuple(from_numpy(output, device, f"output {n}") for n, output in enumerate(outputs))
    given = [tensor.detach() for tensor in as_tensors(arrays)]
    return tuple(output.detach() for output in own_memory(runner(*given), given))


def device_of(arrays: Sequence[Array]) -> torch.device:
    """Return the device of the arguments; those without dims follow the others."""
    devices = [(array.ndim == 0, array.device) for array in arrays if isinstance(array, torch.Tensor)]
    return min(devices, key=lambda pair: pair[0])[1]


def as_tensors(arrays: Sequence[Array]) -> list[Array]:
    """Return NumPy's arrays, which may be read-only, as tensors of their own, and all else as it is."""
    device = device_of(arrays)
    return [
        from_numpy(array.copy(), device, "argument") if isinstance(array, np.ndarray) else array for array in arrays
    ]
