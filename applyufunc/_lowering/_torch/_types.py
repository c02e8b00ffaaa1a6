"""The outputs of a call without its values, as graphs are made of: tensors that have a shape and a dtype alone.

In: a block runner, and tensors of any kind. Out: tensors of that kind. Symbolic sizes stay symbolic; where something
depends on one, the compiler learns of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._blocks import BlockRunner
from ..._errors import UnknownDTypeError, UnknownSizeError
from ..._plan import Plan
from ..._typing import Array
from ._direct import device_of
from ._dtypes import torch_dtype

__all__ = ["empty_outputs"]


def empty_outputs(runner: BlockRunner, arrays: Sequence[Array]) -> list[Array]:
    """Return outputs without values."""
    plan = runner.plan(arrays)
    _check_sizes(plan, runner.kernel.name)
    if runner.dtypes is None:
        raise UnknownDTypeError(
            f"the output dtypes of kernel {runner.kernel.name!r} have to be known before it runs: pass output_dtypes"
        )
    like = arrays[0].new_empty((), device=device_of(arrays))
    pairs = zip(plan.outputs, runner.dtypes, strict=True)
    return [like.new_empty(operand.shape, dtype=torch_dtype(dtype)) for operand, dtype in pairs]


def _check_sizes(plan: Plan, name: str) -> None:
    """Refuse sizes that nobody knows before the kernel has run."""
    for label in plan.unknown_output_dims:
        raise UnknownSizeError(
            f"the size of output dimension {label!r} of kernel {name!r} is unknown until it has run, and a compiled "
            f"PyTorch program has to know it before: pass output_sizes={{{label!r}: applyufunc.UpTo(bound)}}, or call "
            f"it outside torch.compile"
        )
