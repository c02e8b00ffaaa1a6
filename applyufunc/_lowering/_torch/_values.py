"""What is known of tensors: whether their values are here, and whether some transformation is to see the call.

Names of PyTorch that this relies on beyond the documented ones, seen in 2.13:
`torch._C._are_functorch_transforms_active`, `torch._C._functorch.is_functorch_wrapped_tensor`,
`torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack`,
`torch._subclasses.fake_tensor.is_fake`, `torch.autograd.forward_ad._current_level`,
`torch.utils._python_dispatch._disable_current_modes`,
`_len_torch_dispatch_stack`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from ..._typing import Array, Shape

__all__ = ["has_values", "hinted_shape", "is_observed", "is_recorded", "is_transformed", "untraced"]


def has_values(array: Array) -> bool:
    """Tell whether the values can be read, from the array itself."""
    if isinstance(array, np.ndarray):
        return True
    return not (_is_wrapped(array) or _is_symbolic(array))


def is_transformed(arrays: Sequence[Array]) -> bool:
    """Tell whether a gradient, or a transformation of ``torch.func``, has to see the call."""
    if _is_mapped():
        return True
    return torch.is_grad_enabled() and any(array.requires_grad for array in arrays if isinstance(array, torch.Tensor))


def is_observed() -> bool:
    """Tell whether something looks on at whatever is called, with or without a gradient."""
    return _is_mapped() or _is_dispatched()


def is_recorded(arrays: Sequence[Array]) -> bool:
    """Tell whether a graph is made of operators, or their results are only asked for types."""
    return _is_dispatched() or any(_is_symbolic(array) for array in arrays if isinstance(array, torch.Tensor))


def hinted_shape(array: Array) -> Shape:
    """Return the shape; of a symbolic size the one that it has in the call that is compiled, None where it has none.

    What is decided by these sizes alone has to be decided again when the program runs.
    """
    return tuple(size if type(size) is int else _hint(size) for size in array.shape)


@contextmanager
def untraced() -> Iterator[None]:
    """Let PyTorch's functions work on values at once, whatever is being traced or transformed."""
    with _disable_current_modes(), temporarily_clear_interpreter_stack(), torch.no_grad():
        yield


def _is_mapped() -> bool:
    return bool(torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0)


def _is_dispatched() -> bool:
    return bool(torch._C._len_torch_dispatch_stack() > 0)


def _is_wrapped(tensor: Array) -> bool:
    """Tell what a transformation of ``torch.func`` puts in the place of a tensor."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _is_symbolic(tensor: Array) -> bool:
    """Tell a tensor that has a shape and a dtype alone, under whatever transformations."""
    if tensor.device.type == "meta":
        return True
    is_plain = type(tensor) in _PLAIN and not _is_wrapped(tensor)  # whose types are the same
    return not is_plain and is_fake(tensor)


def _hint(size: Any) -> int | None:
    hint = size.node.hint
    return hint if hint is None else int(hint)


_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
