"""Calls on PyTorch tensors: directly where values are there and nobody asks for more, else under transformations.

What is compiled gets the kernel as an operator; what autograd or ``torch.func`` sees runs under rules that call
derivative kernels. A kernel of PyTorch's own operations needs neither. Implements the functions of `Lowering`; the
modules below it do one step each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np
import torch

from ..._call import Call
from ..._derivatives import find_derivatives
from ..._errors import OptionError
from ..._explanation import Execution, in_one_block
from ..._kernel import Kernel
from ..._typing import Array, Namespace
from .._plain import look, repeat
from ._direct import as_tensors, call_directly, device_of, lend
from ._dtypes import default_dtype, narrow
from ._entry import convert
from ._host import from_numpy
from ._sites import make_site
from ._staged import stage
from ._traced import call_traced
from ._values import has_values, is_recorded, is_transformed, untraced
from ._values import hinted_shape as shape

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "is_traced",
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


def namespace(array: Array) -> Namespace:
    """Return the module with the library's functions: NumPy's for an argument that was not PyTorch's."""
    return np if isinstance(array, np.ndarray) else array_api_compat.array_namespace(array)


def is_lazy(arrays: Sequence[Array]) -> bool:
    """Tell whether a compiler or a transformation of ``torch.func`` stands between the call and the values."""
    return not all(map(has_values, arrays))


def traces(kernel: Kernel) -> bool:
    """Tell a kernel that PyTorch runs, maps and differentiates itself."""
    return kernel.is_traced_by("torch")


def is_traced(value: object) -> bool:
    """Tell a tensor that stands for what a compiler or a transformation will put there."""
    return isinstance(value, torch.Tensor) and not has_values(value)


def as_block(array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array as a tensor on the device of the arguments, with values while something is compiled too."""
    device = device_of(arrays)
    with untraced():
        return from_numpy(array.copy(), torch.device("cpu") if device.type == "meta" else device, "block")


def block_kind(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return that the blocks are tensors, on which device, and what PyTorch's default dtype is."""
    return torch.Tensor, str(device_of(arrays)), str(torch.get_default_dtype())


def settled(output: Array) -> Array:
    """Return a contiguous tensor, as PyTorch's own functions do."""
    return output.contiguous()


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs: of the kernel called now, or of what transformations make of the call."""
    if traces(call.kernel):
        return _lower_traced(call, arrays)
    if not is_recorded(arrays) and not is_transformed(arrays):
        return call_directly(call.runner, arrays)
    if is_recorded(arrays):
        _fix_sizes(call, arrays)
    return stage(make_site(call, find_derivatives(call), lower), as_tensors(arrays))


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Say that the kernel gets the whole arrays at once."""
    return in_one_block(call.plan, call.runner.array_positions, "traced" if traces(call.kernel) else "direct")


def _fix_sizes(call: Call, arrays: Sequence[Array]) -> None:
    """Have the compiler compile anew for other core sizes, where what was computed from them is fixed by now."""
    if any(callable(size) for _, size in call.options.output_sizes):
        for position, array in zip(call.runner.array_positions, arrays, strict=True):
            n_core = len(call.runner.signature.inputs[position])
            for size in array.shape[array.ndim - n_core :]:
                int(size)


def _lower_traced(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a kernel that PyTorch sees through, unless it has derivative kernels of its own."""
    derivatives = find_derivatives(call)
    if derivatives.jac is not None and derivatives.jac.step is not None:
        raise OptionError(
            f"jac={derivatives.jac.step!r} calls the kernel on NumPy arrays, and kernel {call.kernel.name!r} takes "
            f"those of PyTorch, which differentiates it itself: drop jac"
        )
    tensors = as_tensors(arrays)
    if derivatives.rules:
        return stage(make_site(call, derivatives, lower, is_traced=True), tensors)
    return call_traced(call.runner, tensors)
