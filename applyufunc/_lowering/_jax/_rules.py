"""What JAX's transformations do with a call, beyond batching: so far, that a kernel has no derivative.

In: a function of traced arrays. Out: the same function, under rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, zero_from_primal

from ..._blocks import BlockRunner
from ..._errors import ArgumentError
from ..._typing import Array

__all__ = ["Staged", "refuse_derivatives"]

Staged: TypeAlias = Callable[..., tuple[Array, ...]]
"""A function of arrays, traced or not, that JAX's transformations see."""


def refuse_derivatives(function: Staged, runner: BlockRunner) -> Staged:
    """Return `function`, refusing by name to be differentiated with respect to any of its arguments."""
    guarded = jax.custom_jvp(function)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, Any]:
        _check_not_differentiated(primals, tangents, runner)
        outputs = guarded(*primals)
        return outputs, tuple(map(zero_from_primal, outputs))

    guarded.defjvp(rule, symbolic_zeros=True)
    return guarded


def _check_not_differentiated(primals: Sequence[Array], tangents: Sequence[Any], runner: BlockRunner) -> None:
    """Refuse tangents that are not zero by their kind, unless every output is of whole numbers, and so constant."""
    assert runner.dtypes is not None
    operands = zip(runner.array_positions, primals, tangents, strict=True)
    active = [str(position) for position, primal, tangent in operands if _has_tangent(primal, tangent)]
    if active and any(jnp.issubdtype(dtype, np.inexact) for dtype in runner.dtypes):
        raise ArgumentError(
            f"kernel {runner.kernel.name!r} with signature {str(runner.signature)!r} runs on the host and has no "
            f"derivative, but is differentiated with respect to argument(s) {', '.join(active)}: apply "
            f"jax.lax.stop_gradient to what is held fixed"
        )


def _has_tangent(primal: Array, tangent: Any) -> bool:
    return type(tangent) is not SymbolicZero and bool(jnp.issubdtype(jnp.result_type(primal), np.inexact))
