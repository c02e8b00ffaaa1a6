"""The outputs of a kernel before it has run, as JAX describes arrays.

In: a block runner whose dtypes are known, and arrays or types of arrays. Out: shapes and dtypes. Knows no traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..._blocks import BlockRunner

__all__ = ["output_types"]


def output_types(runner: BlockRunner, arrays: Sequence[Any]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the types of the outputs for such arrays."""
    assert runner.dtypes is not None
    declared = zip(runner.plan(arrays).outputs, runner.dtypes, strict=True)
    return tuple(jax.ShapeDtypeStruct(output.shape, dtype) for output, dtype in declared)
