"""A primitive for the tangents of a call: forward by one kernel, backward by another.

JAX has no public way to give a function both rules, nor to let one that has only a vjp say what it lacks
(https://github.com/jax-ml/jax/issues/3996). In: a `LinearMap`, arrays, tangents of some of them. Out: tangents of the
outputs. Knows no kernels and no signatures, only how many core dims each array has.

The primal outputs are operands too: their types, with shardings and varying axes, are those of the tangents. XLA drops
what computes them where nothing else needs it.

Names of JAX: `jax.extend.core.Primitive`; `jax.interpreters.ad.instantiate_zeros`, ``is_undefined_primal``,
``primitive_jvps``, ``primitive_transposes``; ``batching.primitive_batchers``; ``mlir.lower_fun``,
``register_lowering``; ``to_tangent_aval`` of abstract values (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..._typing import Array

__all__ = ["LinearMap", "push_tangents"]


class LinearMap(Protocol):
    """What maps tangents of arguments to those of outputs, and cotangents back, at given arguments."""

    @property
    def n_core_inputs(self) -> tuple[int, ...]:
        """Numbers of core dims of the arguments."""

    @property
    def n_core_outputs(self) -> tuple[int, ...]:
        """Numbers of core dims of the outputs."""

    @property
    def smooth_outputs(self) -> tuple[int, ...]:
        """Positions of the outputs that have tangents."""

    def push(
        self, primals: Sequence[Array], outputs: Sequence[Array], tangents: Sequence[Array], active: tuple[int, ...]
    ) -> Sequence[Array]:
        """Return the tangents of the smooth outputs, for those of the arguments at the positions `active`."""

    def pull(
        self, primals: Sequence[Array], outputs: Sequence[Array], cotangents: Sequence[Array], targets: dict[int, Any]
    ) -> dict[int, Array]:
        """Return the cotangents of some arguments, by position, of the types that `targets` has there."""


def push_tangents(
    linear: LinearMap,
    primals: Sequence[Array],
    outputs: Sequence[Array],
    tangents: Sequence[Array],
    active: tuple[int, ...],
) -> list[Array]:
    """Return the tangents of the smooth outputs, for those of the arguments at the positions `active`."""
    return _tangents_p.bind(*primals, *outputs, *tangents, linear=linear, active=active)  # type: ignore[no-any-return]


def _split(operands: Sequence[Any], linear: LinearMap) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return the arguments, the outputs, and the tangents of the active arguments."""
    n_inputs, n_outputs = len(linear.n_core_inputs), len(linear.n_core_outputs)
    return operands[:n_inputs], operands[n_inputs : n_inputs + n_outputs], operands[n_inputs + n_outputs :]


def _push(*operands: Array, linear: LinearMap, active: tuple[int, ...]) -> list[Array]:
    primals, outputs, tangents = map(_as_arrays, _split(operands, linear))
    return list(linear.push(primals, outputs, tangents, active))


def _as_arrays(operands: Sequence[Any]) -> list[Array]:
    """Return the operands as arrays: an eager gradient keeps scalars as a kind of Python float."""
    return list(map(jnp.asarray, operands))


def _output_types(*operands: Any, linear: LinearMap, active: tuple[int, ...]) -> list[Any]:
    outputs = _split(operands, linear)[1]
    return [outputs[position].to_tangent_aval() for position in linear.smooth_outputs]


def _differentiate(
    operands: Sequence[Array], tangents: Sequence[Any], *, linear: LinearMap, active: tuple[int, ...]
) -> tuple[Sequence[Array], Sequence[Array]]:
    """Differentiate the forward kernel, which has rules of its own or refuses."""

    def push(*operands: Array) -> list[Array]:
        return _push(*operands, linear=linear, active=active)

    pushed = jax.jvp(push, tuple(operands), tuple(map(ad.instantiate_zeros, tangents)))
    return pushed[0], pushed[1]


def _transpose(
    cotangents: Sequence[Any], *operands: Any, linear: LinearMap, active: tuple[int, ...]
) -> list[Array | None]:
    primals, outputs, tangents = _split(operands, linear)
    wanted = {
        position: tangent.aval
        for position, tangent in zip(active, tangents, strict=True)
        if ad.is_undefined_primal(tangent)
    }
    given = list(map(ad.instantiate_zeros, cotangents))
    found = linear.pull(_as_arrays(primals), _as_arrays(outputs), given, wanted)
    return [None] * (len(primals) + len(outputs)) + [found.get(position) for position in active]


def _batch(
    operands: Sequence[Array], axes: Sequence[int | None], *, linear: LinearMap, active: tuple[int, ...]
) -> tuple[list[Array], list[int]]:
    """Make the mapped axis one more loop dim, in front, of every operand that has it, and of all outputs."""
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes, strict=True) if axis is not None)
    n_inputs = len(linear.n_core_inputs)
    placed = list(zip(operands, axes, strict=True))
    for place in range(n_inputs, n_inputs + len(linear.n_core_outputs)):  # their types are those of the results
        operand, axis = placed[place]
        placed[place] = (jnp.broadcast_to(operand, (size, *operand.shape)), 0) if axis is None else (operand, axis)
    n_core = (*linear.n_core_inputs, *linear.n_core_outputs, *(linear.n_core_inputs[position] for position in active))
    n_loop = placed[n_inputs][0].ndim - 1 - linear.n_core_outputs[0]
    moved = [_mapped_first(operand, axis, n_loop + n) for (operand, axis), n in zip(placed, n_core, strict=True)]
    results = _tangents_p.bind(*moved, linear=linear, active=active)
    return results, [0] * len(results)


def _mapped_first(operand: Array, axis: int | None, ndim: int) -> Array:
    """Return an operand with its mapped axis in front of `ndim` others, some of them new; as it is if it has none."""
    if axis is None:
        return operand
    moved = jnp.moveaxis(operand, axis, 0)
    return jnp.expand_dims(moved, tuple(range(1, 1 + ndim - (moved.ndim - 1))))


# The name is for the eye: JAX tells primitives apart as objects, so that two copies of this package do not collide.
_tangents_p: Final = Primitive(f"{__name__}.tangents")
_tangents_p.multiple_results = True
_tangents_p.def_impl(_push)
_tangents_p.def_abstract_eval(_output_types)
mlir.register_lowering(_tangents_p, mlir.lower_fun(_push, multiple_results=True))
ad.primitive_jvps[_tangents_p] = _differentiate
ad.primitive_transposes[_tangents_p] = _transpose
batching.primitive_batchers[_tangents_p] = _batch
