"""Forward mode of a level of ``torch.func``, computed at the level below it, so that the levels below see it.

PyTorch turns forward mode off while it runs the rule of a `torch.autograd.Function`, at all levels: a rule of a rule
would never be asked for, and second derivatives would be zeros. In: a function of tensors, and tensors. Out: what it
returns, at their level.

Names of PyTorch that this relies on beyond the documented ones, seen in 2.13:
`torch._C._are_functorch_transforms_active`, `_unwrap_for_grad` and `_wrap_for_grad` of `torch._C._functorch`,
`torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter`,
`torch.autograd.forward_ad._set_fwd_grad_enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.autograd import forward_ad

from ..._typing import Array

__all__ = ["call_below"]

_Tensors: TypeAlias = Sequence[Array | None]


def call_below(function: Callable[[_Tensors, _Tensors], _Tensors], first: _Tensors, second: _Tensors) -> _Tensors:
    """Return what a function gives for two rows of tensors, some of which may be missing."""
    if not torch._C._are_functorch_transforms_active():
        return function(first, second)
    interpreter = retrieve_current_functorch_interpreter()
    level = interpreter.level()
    with forward_ad._set_fwd_grad_enabled(True), interpreter.lower():
        results = function(_unwrap(first, level), _unwrap(second, level))
    return tuple(each if each is None else torch._C._functorch._wrap_for_grad(each, level) for each in results)


def _unwrap(tensors: _Tensors, level: int) -> _Tensors:
    return [each if each is None else torch._C._functorch._unwrap_for_grad(each, level) for each in tensors]
