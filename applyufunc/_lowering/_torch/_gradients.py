"""What is kept of a call for its gradient, and the gradient: the same for the operator and for eager calls.

In: PyTorch's context of a call. Out: gradients, None where there is none. Knows no kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..._typing import Array
from ._derivatives import OutputType
from ._dtypes import is_smooth
from ._levels import call_below
from ._sites import Site

__all__ = ["keep", "pull", "push"]


def keep(ctx: Any, site: Site, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Keep the arguments, and the outputs where a derivative kernel gets them."""
    kept = (*arrays, *(outputs if site.linear.takes_outputs else ()))
    ctx.save_for_backward(*kept)
    ctx.save_for_forward(*kept)
    ctx.site, ctx.n_arrays = site, len(arrays)
    ctx.types = tuple(OutputType(output.shape, output.dtype) for output in outputs)
    ctx.mark_non_differentiable(*(output for output in outputs if not is_smooth(output.dtype)))
    ctx.set_materialize_grads(False)


def pull(ctx: Any, cotangents: Sequence[Array | None], needed: Sequence[bool]) -> list[Array | None]:
    """Return the gradient of each argument that needs one."""
    kept = ctx.saved_tensors
    arrays, outputs = kept[: ctx.n_arrays], kept[ctx.n_arrays :]
    triples = enumerate(zip(arrays, needed, strict=True))
    wanted = tuple(place for place, (array, needs) in triples if needs and is_smooth(array.dtype))
    given = _given(cotangents, ctx.types)
    found = ctx.site.linear.pull(arrays, outputs, ctx.types, given, wanted) if given and wanted else {}
    return [found.get(place) for place in range(ctx.n_arrays)]


def push(ctx: Any, tangents: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """Return the tangent of each output."""
    return tuple(call_below(partial(_push, ctx), ctx.saved_tensors[: ctx.n_arrays], tangents))


def _push(ctx: Any, arrays: Sequence[Any], tangents: Sequence[Array | None]) -> list[Array | None]:
    given = {
        place: tangent
        for place, (tangent, array) in enumerate(zip(tangents, arrays, strict=True))
        if tangent is not None and is_smooth(array.dtype)
    }
    found = ctx.site.linear.push(arrays, ctx.types, given) if given else {}
    return [found.get(place) for place in range(len(ctx.types))]


def _given(cotangents: Sequence[Array | None], types: Sequence[OutputType]) -> dict[int, Array]:
    pairs = enumerate(zip(cotangents, types, strict=True))
    return {place: cotangent for place, (cotangent, output) in pairs if cotangent is not None and output.is_smooth}
