"""A call that transformations see: its gradients, forward and back, and its batches, under autograd and ``torch.func``.

In: a call, and tensors of any kind. Out: tensors of that kind. Where a graph is made, the kernel becomes an operator
in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._typing import Array
from ._batching import mapped_first
from ._direct import call_directly
from ._gradients import keep, pull, push
from ._sites import Site, name_site
from ._traced import call_traced
from ._values import is_recorded

__all__ = ["stage"]


def stage(site: Site, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a call."""
    if is_recorded(arrays) and not site.is_traced:
        site = name_site(site)[1]  # whose derivative kernels have names already
    return _StagedCall.apply(site, *arrays)  # type: ignore[no-any-return]


class _StagedCall(torch.autograd.Function):  # type: ignore[misc]  # of a class that nobody types here
    @staticmethod
    def forward(site: Site, *arrays: Array) -> tuple[Array, ...]:
        if site.is_traced:
            return call_traced(site.runner, arrays)
        if not is_recorded(arrays):
            return call_directly(site.runner, arrays)
        from ._operator import call_operator  # which is registered when it is first needed

        return tuple(call_operator(list(arrays), name_site(site)[0]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Array, ...]) -> None:
        keep(ctx, inputs[0], inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Array | None) -> tuple[Array | None, ...]:
        return (None, *pull(ctx, cotangents, ctx.needs_input_grad[1:]))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Array | None) -> tuple[Array | None, ...]:
        return push(ctx, tangents)

    @staticmethod
    def vmap(_: Any, in_dims: Sequence[int | None], site: Site, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
        outputs = stage(site, mapped_first(arrays, in_dims[1:], site.linear.n_core_inputs))
        return outputs, (0,) * len(outputs)
