"""The operator that stands for a call in graphs, with what PyTorch asks of one: types, a batch, a gradient.

Its name has the path of this package in it, so that two copies live in one process; it is made when this module is
imported, with the first call that a graph sees. What a call is is found by the name that the operator is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from ..._typing import Array
from ._batching import mapped_first
from ._direct import call_directly
from ._gradients import keep, pull
from ._sites import find_site
from ._types import empty_outputs

__all__ = ["call_operator"]


def _run(arrays: Sequence[Array], site: str) -> list[Array]:
    return list(call_directly(find_site(site).runner, arrays))


def _outputs(arrays: Sequence[Array], site: str) -> list[Array]:
    return empty_outputs(find_site(site).runner, arrays)


def _batch(info: Any, in_dims: Any, arrays: Sequence[Array], site: str) -> tuple[list[Array], list[int]]:
    outputs = call_operator(mapped_first(arrays, in_dims[0], find_site(site).linear.n_core_inputs), site)
    return outputs, [0] * len(outputs)


def _keep(ctx: Any, inputs: tuple[Sequence[Array], str], output: Sequence[Array]) -> None:
    keep(ctx, find_site(inputs[1]), inputs[0], output)


def _pull(ctx: Any, cotangents: Sequence[Array | None]) -> tuple[list[Array | None], None]:
    return pull(ctx, cotangents, ctx.needs_input_grad[0]), None


call_operator: Final = torch.library.custom_op(
    f"{__package__.replace('.', '_')}::call", _run, mutates_args=(), schema="(Tensor[] arrays, str site) -> Tensor[]"
)
call_operator.register_fake(_outputs)
call_operator.register_vmap(_batch)
call_operator.register_autograd(_pull, setup_context=_keep)
