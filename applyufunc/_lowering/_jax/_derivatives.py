"""What JAX's transformations do with a call beyond batching: its derivative kernels, or a refusal by name.

In: a function of traced arrays that runs a kernel. Out: the same function, under rules that run derivative kernels as
calls of their own. Knows nothing of callbacks: what runs a call comes in as a function.

Names of JAX: `jax.custom_jvp`, `jax.custom_derivatives.SymbolicZero`, ``zero_from_primal``; `jax.interpreters.ad.Zero`,
``instantiate_zeros`` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, zero_from_primal
from jax.interpreters import ad

from ..._blocks import BlockRunner, input_shapes
from ..._call import Call
from ..._derivatives import Derivatives, Rule, rule_kernel, rule_runner
from ..._errors import ArgumentError
from ..._kernel import Kernel
from ..._numeric_derivatives import NumericJacobian
from ..._plan import make_plan
from ..._typing import Array, Staged
from ._tangents import push_tangents
from ._unbroadcast import unbroadcast

__all__ = ["Run", "differentiable"]

Run: TypeAlias = Callable[[Call, Sequence[Array]], tuple[Array, ...]]
"""What runs a call, traced or not."""


def differentiable(function: Staged, runner: BlockRunner, derivatives: Derivatives, run: Run) -> Staged:
    """Return `function`, which runs the kernel of `runner`, under its derivative rules."""
    guarded = jax.custom_jvp(function)
    linear = _Linear(runner, derivatives, run)

    def rule(given: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        primals = tuple(map(jnp.asarray, given))  # an eager call hands over Python floats as they are
        active = tuple(place for place, pair in enumerate(zip(primals, tangents, strict=True)) if _has_tangent(*pair))
        outputs = guarded(*primals)
        results = list(map(zero_from_primal, outputs))
        if active and linear.smooth_outputs:
            found = linear.tangents(primals, outputs, [jnp.asarray(tangents[place]) for place in active], active)
            for position, tangent in zip(linear.smooth_outputs, found, strict=True):
                results[position] = tangent
        return outputs, tuple(results)

    guarded.defjvp(rule, symbolic_zeros=True)
    return guarded


def _has_tangent(primal: Array, tangent: Any) -> bool:
    return type(tangent) is not SymbolicZero and _is_smooth(primal.dtype)


class _Linear:
    """The derivative of a kernel as a linear map between tangents, and back; places are those among the arrays."""

    def __init__(self, runner: BlockRunner, derivatives: Derivatives, run: Run) -> None:
        assert runner.dtypes is not None
        self._runner = runner
        self._derivatives = derivatives
        self._run = run
        self._dtypes = runner.dtypes
        self._kernel = lru_cache(maxsize=32)(partial(_kernel_of, runner))  # JAX knows a function again
        self.n_core_inputs = runner.n_core_inputs
        self.n_core_outputs = tuple(map(len, runner.signature.outputs))
        self.smooth_outputs = tuple(place for place, dtype in enumerate(self._dtypes) if _is_smooth(dtype))

    def __repr__(self) -> str:
        return f"<derivative of {self._runner.kernel.name}>"

    def tangents(
        self, primals: Sequence[Array], outputs: Sequence[Array], tangents: Sequence[Array], active: tuple[int, ...]
    ) -> Sequence[Array]:
        """Return the tangents of the smooth outputs, such that JAX can turn them round as far as there are rules."""
        if isinstance(self._runner.kernel.func, NumericJacobian):
            raise self._refusal(
                f"is found by jac={self._runner.kernel.func.step!r}, which gives first derivatives alone: for others, "
                f"give the kernel itself a kernel for jac=, vjp= or jvp=, which may have rules of its own"
            )
        if not self._derivatives.rules:
            raise self._refusal(
                f"runs on the host and has no derivative, but is differentiated with respect to argument(s) "
                f"{self._named(active)}: give gufunc or apply_ufunc a kernel for jac=, vjp= or jvp= (a derivative "
                f"takes them as a gufunc object), or apply jax.lax.stop_gradient to what is held fixed"
            )
        has_jac_alone = self._derivatives.vjp is None and self._derivatives.jvp is None
        push = self.push if has_jac_alone else partial(push_tangents, self)
        return push(primals, outputs, tangents, active)

    def push(
        self, primals: Sequence[Array], outputs: Sequence[Array], tangents: Sequence[Array], active: tuple[int, ...]
    ) -> Sequence[Array]:
        """Return the tangents of the smooth outputs, for those of the arguments at the places `active`."""
        given = dict(zip(active, tangents, strict=True))
        if self._derivatives.jvp is not None:
            found = self._jvp(self._derivatives.jvp, primals, given)
        elif self._derivatives.jac is not None:
            found = self._contract(self._jacobian(self._derivatives.jac, primals, active), given)
        else:
            raise self._refusal(
                f"has a vjp alone, which gives no forward mode (jvp, jacfwd, linearize), asked for with respect to "
                f"argument(s) {self._named(active)}: give it a jvp or a jac too"
            )
        return [jnp.broadcast_to(found[place], outputs[place].shape) for place in self.smooth_outputs]

    def pull(
        self, primals: Sequence[Array], outputs: Sequence[Array], cotangents: Sequence[Array], targets: dict[int, Any]
    ) -> dict[int, Array]:
        """Return the cotangents of the arguments that `targets` has types for."""
        if self._derivatives.vjp is not None:
            found = self._vjp(self._derivatives.vjp, primals, outputs, cotangents, tuple(targets))
        elif self._derivatives.jac is not None:
            jacobian = self._jacobian(self._derivatives.jac, primals, tuple(targets))
            found = self._transpose(jacobian, outputs, cotangents, targets)
        else:
            raise self._refusal(
                f"has a jvp alone, which gives no reverse mode (grad, vjp, jacrev), asked for with respect to "
                f"argument(s) {self._named(tuple(targets))}: give it a vjp or a jac too"
            )
        return {place: unbroadcast(found[place], target) for place, target in targets.items()}

    def _jvp(self, rule: Rule, primals: Sequence[Array], tangents: dict[int, Array]) -> dict[int, Array]:
        """Return the tangents of the smooth outputs by the jvp kernel."""
        pairs = enumerate(zip(primals, self.n_core_inputs, strict=True))
        filled = [tangents[place] if place in tangents else _zeros(*pair) for place, pair in pairs]
        dtypes = [_tangent_dtype(dtype) for dtype in self._dtypes]
        return self._outputs_of(rule, self.smooth_outputs, dtypes, [*primals, *filled])

    def _vjp(
        self,
        rule: Rule,
        primals: Sequence[Array],
        outputs: Sequence[Array],
        cotangents: Sequence[Array],
        wanted: tuple[int, ...],
    ) -> dict[int, Array]:
        """Return the cotangents of the wanted arguments by the vjp kernel, with all loop dims of the call."""
        given = dict(zip(self.smooth_outputs, cotangents, strict=True))
        pairs = enumerate(zip(outputs, self.n_core_outputs, strict=True))
        filled = [given[place] if place in given else _zeros(*pair) for place, pair in pairs]
        positions = self._runner.array_positions
        arrays = [*primals, *(outputs if rule.takes_outputs else ()), *filled]
        dtypes = self._input_dtypes(primals)
        found = self._outputs_of(rule, tuple(positions[place] for place in wanted), dtypes, arrays)
        return {place: found[positions[place]] for place in wanted}

    def _jacobian(self, rule: Rule, primals: Sequence[Array], active: tuple[int, ...]) -> _Jacobian:
        """Return the derivatives of each smooth output by each active argument."""
        if rule.step is not None:
            self._check_real(rule.step, primals, active)
        nin, positions = self._runner.signature.nin, self._runner.array_positions
        pairs = [(output, place) for output in self.smooth_outputs for place in active]
        wanted = tuple(output * nin + positions[place] for output, place in pairs)
        by_output = [_tangent_dtype(dtype) for dtype in self._dtypes]
        dtypes = [_common(output, argument) for output in by_output for argument in self._input_dtypes(primals)]
        found = self._outputs_of(rule, wanted, dtypes, primals)
        return {pair: found[place] for pair, place in zip(pairs, wanted, strict=True)}

    def _contract(self, jacobian: _Jacobian, tangents: dict[int, Array]) -> dict[int, Array]:
        """Return the tangents of the smooth outputs, in operations that JAX differentiates itself."""
        terms: dict[int, list[Array]] = {}
        for (output, place), derivative in jacobian.items():
            n_output, n_input = self.n_core_outputs[output], self.n_core_inputs[place]
            tangent = tangents[place]
            n_loop = tangent.ndim - n_input
            product = derivative * jnp.expand_dims(tangent, tuple(range(n_loop, n_loop + n_output)))
            term = jnp.sum(product, axis=tuple(range(product.ndim - n_input, product.ndim)))
            terms.setdefault(output, []).append(term if _is_complex(self._dtypes[output]) else jnp.real(term))
        return {output: reduce(jnp.add, parts).astype(self._dtypes[output]) for output, parts in terms.items()}

    def _transpose(
        self, jacobian: _Jacobian, outputs: Sequence[Array], cotangents: Sequence[Array], targets: dict[int, Any]
    ) -> dict[int, Array]:
        """Return the cotangents of the arguments that `targets` has types for, by the transposed Jacobian."""

        def push(*tangents: Array) -> list[Array]:
            found = self._contract(jacobian, dict(zip(targets, tangents, strict=True)))
            return [jnp.broadcast_to(found[place], outputs[place].shape) for place in self.smooth_outputs]

        # Zeros of the whole type: what lies or varies otherwise than the argument has another transpose.
        _, pull = jax.vjp(push, *(ad.instantiate_zeros(ad.Zero(target)) for target in targets.values()))
        return dict(zip(targets, pull(list(cotangents)), strict=True))

    def _outputs_of(
        self, rule: Rule, wanted: tuple[int, ...], dtypes: Sequence[np.dtype[Any]], arrays: Sequence[Array]
    ) -> dict[int, Array]:
        """Return the outputs of a rule at the wanted positions; `dtypes` are those of all."""
        positions = tuple(range(len(dtypes))) if rule.gives_all else wanted
        kernel = self._kernel(rule, positions)
        runner = rule_runner(rule, kernel, self._runner, positions, [dtypes[position] for position in positions])
        shapes = input_shapes(runner.insert_constants(arrays), runner.signature)
        plan = make_plan(runner.signature, shapes, runner.output_sizes)
        assert runner.dtypes is not None
        call = Call(runner, plan, rule.options, dtypes_from="declared", wanted=runner.dtypes)
        return dict(zip(positions, self._run(call, arrays), strict=True))

    def _input_dtypes(self, primals: Sequence[Array]) -> list[np.dtype[Any]]:
        """Return the dtypes of all arguments' cotangents; those of constants, which nobody asks for, are made up."""
        dtypes = [_tangent_dtype(np.dtype(bool))] * self._runner.signature.nin
        for position, primal in zip(self._runner.array_positions, primals, strict=True):
            dtypes[position] = _tangent_dtype(primal.dtype)
        return dtypes

    def _check_real(self, step: str, primals: Sequence[Array], active: tuple[int, ...]) -> None:
        """Refuse complex numbers, among which one small step does not say all."""
        strange = tuple(place for place in active if _is_complex(primals[place].dtype))
        if strange or (step == "complex-step" and any(map(_is_complex, self._dtypes))):
            what = f"argument(s) {self._named(strange)}" if strange else "an output"
            raise self._refusal(
                f"has jac={step!r}, which is for real numbers, but {what} is complex: give it a kernel for jac, vjp or "
                f"jvp"
            )

    def _refusal(self, what: str) -> ArgumentError:
        runner = self._runner
        return ArgumentError(f"kernel {runner.kernel.name!r} with signature {str(runner.signature)!r} {what}")

    def _named(self, places: tuple[int, ...]) -> str:
        return ", ".join(str(self._runner.array_positions[place]) for place in places)


_Jacobian: TypeAlias = dict[tuple[int, int], Array]
"""Derivatives by the position of the output and the place of the argument."""


def _kernel_of(primal: BlockRunner, rule: Rule, wanted: tuple[int, ...]) -> Kernel:
    """Return the kernel that gives the wanted outputs of a rule, one that JAX traces where it would trace the rule."""
    kernel = rule_kernel(rule, primal=primal, wanted=wanted)
    return dataclasses.replace(kernel, arrays="traced") if rule.kernel.is_traced_by("jax") else kernel


def _is_smooth(dtype: np.dtype[Any]) -> bool:
    return bool(jnp.issubdtype(dtype, np.inexact))


def _is_complex(dtype: np.dtype[Any]) -> bool:
    return bool(jnp.issubdtype(dtype, np.complexfloating))


def _tangent_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of tangents as derivative kernels get them: those of whole numbers are zeros of floats."""
    return dtype if _is_smooth(dtype) else np.dtype(jnp.result_type(float))


def _common(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(jnp.promote_types(*dtypes))


def _zeros(array: Array, n_core: int) -> Array:
    """Return the tangent of what does not change, without loop dims."""
    return jnp.zeros(array.shape[array.ndim - n_core :], _tangent_dtype(array.dtype))
