"""The derivative of a kernel as a linear map between tangents, and back, by calls of its derivative kernels.

In: tensors, which a transformation may see, and tangents of arguments or cotangents of outputs. Out: the others. What
a call does comes in as a function. PyTorch's gradient of a complex number is the conjugate of a cotangent as derivative
kernels have them, which know no conjugates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch

from ..._blocks import BlockRunner, input_shapes
from ..._call import Call
from ..._casting import numpy_dtype
from ..._derivatives import Derivatives, Rule, rule_kernel, rule_runner
from ..._errors import ArgumentError
from ..._plan import make_plan
from ..._typing import Array
from ._dtypes import is_smooth, torch_dtype
from ._values import hinted_shape

__all__ = ["Linear", "OutputType", "Run"]

Run: TypeAlias = Callable[[Call, Sequence[Array]], tuple[Array, ...]]
"""What runs a call, whatever sees it."""

_ByPlace: TypeAlias = dict[int, Array]
"""Arrays by the place of an argument among those that are arrays, or by that of an output."""


@dataclass(frozen=True, slots=True)
class OutputType:
    """What an output is, without its values."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def is_smooth(self) -> bool:
        """Whether it has derivatives."""
        return is_smooth(self.dtype)


class Linear:
    """The derivative of the kernel of one call; places are those among the arrays."""

    def __init__(self, runner: BlockRunner, derivatives: Derivatives, run: Run) -> None:
        self.derivatives = derivatives
        self._runner = runner
        self._run = run
        self._positions = runner.array_positions
        self.n_core_inputs = runner.n_core_inputs
        self._n_core_outputs = tuple(map(len, runner.signature.outputs))
        self._kernel = lru_cache(maxsize=32)(self._kernel_of)  # the same function again for the same rule

    @property
    def takes_outputs(self) -> bool:
        """Whether a derivative kernel gets what the kernel itself has returned."""
        return self.derivatives.vjp is not None and self.derivatives.vjp.takes_outputs

    def push(self, primals: Sequence[Array], types: Sequence[OutputType], tangents: _ByPlace) -> _ByPlace:
        """Return the tangents of the smooth outputs."""
        if not self.derivatives.rules:
            self._refuse_without_rules(tuple(tangents))
        if self.derivatives.jvp is not None:
            found = self._jvp(self.derivatives.jvp, primals, types, tangents)
        elif self.derivatives.jac is not None:
            found = self._contract(self._jacobian(self.derivatives.jac, primals, types, tuple(tangents)), tangents)
        else:
            self._refuse(
                f"has a vjp alone, which gives no forward mode (jvp, jacfwd, hessian), asked for with respect to "
                f"argument(s) {self._named(tuple(tangents))}: give it a jvp or a jac too"
            )
        return {place: _as_type(found[place], types[place]) for place in found}

    def pull(
        self,
        primals: Sequence[Array],
        outputs: Sequence[Array],
        types: Sequence[OutputType],
        cotangents: _ByPlace,
        wanted: tuple[int, ...],
    ) -> _ByPlace:
        """Return the gradients of the wanted arguments, of their shapes and dtypes."""
        if not self.derivatives.rules:
            self._refuse_without_rules(wanted)
        plain = {place: cotangent.conj() for place, cotangent in cotangents.items()}
        if self.derivatives.vjp is not None:
            found = self._vjp(self.derivatives.vjp, primals, outputs, types, plain, wanted)
        elif self.derivatives.jac is not None:
            found = self._transpose(self._jacobian(self.derivatives.jac, primals, types, wanted), plain)
        else:
            self._refuse(
                f"has a jvp alone, which gives no reverse mode (backward, grad, jacrev), asked for with respect to "
                f"argument(s) {self._named(wanted)}: give it a vjp or a jac too"
            )
        return {place: _as_argument(found[place], primals[place]).conj() for place in wanted}

    def _jvp(self, rule: Rule, primals: Sequence[Array], types: Sequence[OutputType], tangents: _ByPlace) -> _ByPlace:
        """Return the tangents of the smooth outputs by the jvp kernel."""
        shapes = (primal.shape for primal in primals)
        filled = self._filled(tangents, shapes, [primal.dtype for primal in primals], self.n_core_inputs, primals[0])
        dtypes = [_tangent_dtype(output.dtype) for output in types]
        return self._outputs_of(rule, _smooth(types), dtypes, [*primals, *filled])

    def _vjp(
        self,
        rule: Rule,
        primals: Sequence[Array],
        outputs: Sequence[Array],
        types: Sequence[OutputType],
        cotangents: _ByPlace,
        wanted: tuple[int, ...],
    ) -> _ByPlace:
        """Return the cotangents of the wanted arguments by the vjp kernel, with all loop dims of the call."""
        shapes = (output.shape for output in types)
        filled = self._filled(cotangents, shapes, [output.dtype for output in types], self._n_core_outputs, primals[0])
        arrays = [*primals, *(outputs if rule.takes_outputs else ()), *filled]
        positions = tuple(self._positions[place] for place in wanted)
        found = self._outputs_of(rule, positions, self._input_dtypes(primals), arrays)
        return {place: found[self._positions[place]] for place in wanted}

    def _filled(
        self,
        given: _ByPlace,
        shapes: Any,
        dtypes: Sequence[torch.dtype],
        n_core: Sequence[int],
        like: Array,
    ) -> list[Array]:
        """Return a tangent for each operand; of what does not change, zeros without loop dims."""
        return [
            given[place]
            if place in given
            else like.new_zeros(shape[len(shape) - n :], dtype=_torch_tangent_dtype(dtype))
            for place, (shape, dtype, n) in enumerate(zip(shapes, dtypes, n_core, strict=True))
        ]

    def _jacobian(
        self, rule: Rule, primals: Sequence[Array], types: Sequence[OutputType], active: tuple[int, ...]
    ) -> _Jacobian:
        """Return the derivatives of each smooth output by each active argument."""
        if rule.step is not None:
            self._check_real(rule.step, primals, types, active)
        nin = self._runner.signature.nin
        pairs = [(output, place) for output in _smooth(types) for place in active]
        wanted = tuple(output * nin + self._positions[place] for output, place in pairs)
        by_output = [_tangent_dtype(output.dtype) for output in types]
        dtypes = [_common(output, own) for output in by_output for own in self._input_dtypes(primals)]
        found = self._outputs_of(rule, wanted, dtypes, primals)
        return {pair: found[place] for pair, place in zip(pairs, wanted, strict=True)}

    def _contract(self, jacobian: _Jacobian, tangents: _ByPlace) -> _ByPlace:
        """Return the tangents of the smooth outputs, in operations that PyTorch differentiates itself."""
        terms: dict[int, list[Array]] = {}
        for (output, place), derivative in jacobian.items():
            n_output, n_input = self._n_core_outputs[output], self.n_core_inputs[place]
            tangent = _with_axes(tangents[place], n_output, tangents[place].ndim - n_input)
            terms.setdefault(output, []).append(_sum(derivative * tangent, _last(n_input)))
        return {output: reduce(torch.add, parts) for output, parts in terms.items()}

    def _transpose(self, jacobian: _Jacobian, cotangents: _ByPlace) -> _ByPlace:
        """Return the cotangents of the arguments, with all loop dims of the call."""
        terms: dict[int, list[Array]] = {}
        for (output, place), derivative in jacobian.items():
            if output in cotangents:
                n_output, n_input = self._n_core_outputs[output], self.n_core_inputs[place]
                cotangent = _with_axes(cotangents[output], n_input, cotangents[output].ndim)
                terms.setdefault(place, []).append(_sum(derivative * cotangent, _last(n_output, n_input)))
        return {place: reduce(torch.add, parts) for place, parts in terms.items()}

    def _outputs_of(
        self, rule: Rule, wanted: tuple[int, ...], dtypes: Sequence[np.dtype[Any]], arrays: Sequence[Array]
    ) -> _ByPlace:
        """Return the outputs of a rule at the wanted positions; `dtypes` are those of all."""
        positions = tuple(range(len(dtypes))) if rule.gives_all else wanted
        kernel = self._kernel(rule, positions)
        runner = rule_runner(rule, kernel, self._runner, positions, [dtypes[position] for position in positions])
        shapes = input_shapes(runner.insert_constants(arrays), runner.signature, hinted_shape)
        plan = make_plan(runner.signature, shapes, runner.output_sizes)
        call = Call(runner, plan, rule.options, dtypes_from="declared", wanted=runner.dtypes or ())
        return dict(zip(positions, self._run(call, arrays), strict=True))

    def _kernel_of(self, rule: Rule, wanted: tuple[int, ...]) -> Any:
        return rule_kernel(rule, primal=self._runner, wanted=wanted)

    def _input_dtypes(self, primals: Sequence[Array]) -> list[np.dtype[Any]]:
        """Return the dtypes of all arguments' cotangents; those of constants, which nobody asks for, are made up."""
        dtypes = [_tangent_dtype(torch.bool)] * self._runner.signature.nin
        for position, primal in zip(self._positions, primals, strict=True):
            dtypes[position] = _tangent_dtype(primal.dtype)
        return dtypes

    def _check_real(
        self, step: str, primals: Sequence[Array], types: Sequence[OutputType], active: tuple[int, ...]
    ) -> None:
        """Refuse complex numbers, among which one small step does not say all."""
        strange = tuple(place for place in active if primals[place].is_complex())
        if strange or (step == "complex-step" and any(output.dtype.is_complex for output in types)):
            what = f"argument(s) {self._named(strange)}" if strange else "an output"
            self._refuse(
                f"has jac={step!r}, which is for real numbers, but {what} is complex: give it a kernel for jac, vjp or "
                f"jvp"
            )

    def _refuse_without_rules(self, places: tuple[int, ...]) -> NoReturn:
        self._refuse(
            f"takes {self._runner.kernel.arrays} arrays, in which PyTorch sees no derivative, but is differentiated "
            f"with respect to argument(s) {self._named(places)}: give gufunc or apply_ufunc a kernel for jac=, vjp= or "
            f"jvp= (a derivative takes them as a gufunc object), or detach() what is held fixed"
        )

    def _refuse(self, what: str) -> NoReturn:
        runner = self._runner
        raise ArgumentError(f"kernel {runner.kernel.name!r} with signature {str(runner.signature)!r} {what}")

    def _named(self, places: tuple[int, ...]) -> str:
        return ", ".join(str(self._positions[place]) for place in places)


_Jacobian: TypeAlias = Mapping[tuple[int, int], Array]
"""Derivatives by the position of the output and the place of the argument."""


def _smooth(types: Sequence[OutputType]) -> tuple[int, ...]:
    return tuple(place for place, output in enumerate(types) if output.is_smooth)


def _torch_tangent_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of tangents as derivative kernels get them: those of whole numbers are zeros of floats."""
    return dtype if is_smooth(dtype) else torch.get_default_dtype()


def _tangent_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return numpy_dtype(_torch_tangent_dtype(dtype))


def _common(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any]:
    return numpy_dtype(torch.promote_types(torch_dtype(first), torch_dtype(second)))


def _as_type(tangent: Array, output: OutputType) -> Array:
    real = tangent if output.dtype.is_complex or not tangent.is_complex() else tangent.real
    return real.to(output.dtype).broadcast_to(output.shape)


def _as_argument(cotangent: Array, primal: Array) -> Array:
    """Return a cotangent of the shape and dtype of an argument: what was broadcast is summed."""
    real = cotangent if primal.is_complex() or not cotangent.is_complex() else cotangent.real
    n_new = real.ndim - primal.ndim
    axes = tuple(
        axis for axis in range(real.ndim) if axis < n_new or primal.shape[axis - n_new] == 1 != real.shape[axis]
    )
    return _sum(real, axes, keepdim=True).squeeze(tuple(range(n_new))).to(primal.dtype)


def _with_axes(array: Array, number: int, place: int) -> Array:
    """Return an array with so many axes of length 1 before the axis at a place."""
    return array[(slice(None),) * place + (None,) * number]


def _sum(array: Array, axes: tuple[int, ...], *, keepdim: bool = False) -> Array:
    """Return a sum over some axes; PyTorch takes none for all."""
    return array.sum(axes, keepdim=keepdim) if axes else array


def _last(number: int, before: int = 0) -> tuple[int, ...]:
    """Return so many axes, from the right, before so many others."""
    return tuple(range(-number - before, -before))
