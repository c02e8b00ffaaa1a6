"""Derivative kernels: how a rule is run as a kernel itself.

In: a call whose options have rules. Out: `Rule`s, and block runners for them. What a rule returns is checked as the
outputs of any kernel are. Knows no array library, and no transformation that would ask for a derivative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ._blocks import BlockRunner, Selection, input_shapes
from ._call import Call
from ._errors import OutputShapeError
from ._kernel import Kernel, describes_itself, make_kernel
from ._numeric_derivatives import NumericJacobian
from ._option_values import OutputSizes
from ._options import Options
from ._plan import make_plan
from ._returned import kind_text
from ._rules import RULE_KINDS, BoundKernel, RuleKind, inherited, rule_signature, rule_sizes
from ._signature import Signature
from ._typing import Array, KernelFunction, Keywords

__all__ = [
    "Derivatives",
    "Rule",
    "find_derivatives",
    "rule_kernel",
    "rule_runner",
]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A derivative kernel, with the options under which it runs."""

    kind: RuleKind
    kernel: Kernel  # the kernel itself where it is differentiated by calling it
    options: Options  # with the rules for the derivatives of this one
    takes_outputs: bool = False  # whether a vjp gets the outputs, between the arguments and the cotangents
    step: Literal["complex-step", "finite-difference"] | None = None  # how the kernel is differentiated by calling it

    @property
    def gives_all(self) -> bool:
        """Whether all of its outputs are taken: for rules of its own, or since it is a ufunc."""
        has_rules = any(getattr(self.options, kind) is not None for kind in RULE_KINDS)
        return has_rules or (self.step is None and describes_itself(self.kernel.func))


@dataclass(frozen=True, slots=True)
class Derivatives:
    """The rules of a kernel; any of them may be missing."""

    jac: Rule | None = None
    vjp: Rule | None = None
    jvp: Rule | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in (self.jac, self.vjp, self.jvp) if rule is not None)


def find_derivatives(call: Call) -> Derivatives:
    """Return the rules that the options of a call have."""
    given = {kind: getattr(call.options, kind) for kind in RULE_KINDS}
    return Derivatives(**{kind: _read_rule(kind, rule, call) for kind, rule in given.items() if rule is not None})


def rule_kernel(rule: Rule, *, primal: BlockRunner, wanted: tuple[int, ...]) -> Kernel:
    """Return the kernel that gives those outputs of a rule which are wanted, zeros where it returned None."""
    signature = _full_signature(rule, primal)
    if rule.step is not None:
        alone = dataclasses.replace(primal, dtypes=_double_dtypes(primal), found=False, filled_dtypes=None)
        func: KernelFunction = NumericJacobian(alone, rule.step, wanted)
        return Kernel(func, rule.kernel.name)
    if describes_itself(rule.kernel.func):  # a ufunc, which returns arrays, all of them
        return rule.kernel
    constants = dict(primal.constants)
    ignored = frozenset(place for place in wanted if rule.kind != "jvp" and place % primal.signature.nin in constants)
    sizes = rule_sizes(rule.kind, primal.signature, primal.output_sizes)
    func = _RuleFunction(rule.kernel.func, primal.kernel, signature, wanted, ignored, sizes)
    # What picks among a rule's outputs, and fills in zeros, is not compiled: its items are looped over in Python.
    return dataclasses.replace(rule.kernel, func=func, vectorize=bool(rule.kernel.vectorize))


def rule_runner(
    rule: Rule, kernel: Kernel, primal: BlockRunner, wanted: Sequence[int], dtypes: Sequence[np.dtype[Any]]
) -> BlockRunner:
    """Return what runs `kernel`, one that `rule_kernel` made for these outputs of the rule."""
    full = _full_signature(rule, primal)
    constants = primal.constants
    if rule.kind == "jvp":
        nin = primal.signature.nin
        constants += tuple((nin + place, None if value is None else 0.0) for place, value in constants)
    keywords: Keywords = {} if rule.step is not None else {**rule.options.kwargs, **primal.keywords}
    sizes = rule_sizes(rule.kind, primal.signature, primal.output_sizes)
    selected = Selection(full, tuple(wanted))
    return BlockRunner(kernel, _selected(full, wanted), constants, keywords, sizes, tuple(dtypes), selected=selected)


def _read_rule(kind: RuleKind, given: Any, call: Call) -> Rule:
    name = f"{call.kernel.name}: {kind}"
    if isinstance(given, str):
        kernel = dataclasses.replace(call.kernel, name=name, token=None, home=None)
        return Rule(kind, kernel, inherited(call.options), step=given)  # type: ignore[arg-type]  # one of NUMERIC_STEPS
    if isinstance(given, BoundKernel):
        kernel, signature, options = given._parts
        takes_outputs = kind == "vjp" and signature.nin != call.runner.signature.nin + call.runner.signature.nout
        return Rule(kind, dataclasses.replace(kernel, name=name), options, takes_outputs)
    options = inherited(call.options)
    return Rule(kind, dataclasses.replace(make_kernel(given, options), name=name), options)


def _full_signature(rule: Rule, primal: BlockRunner) -> Signature:
    return rule_signature(
        rule.kind,
        primal.signature,
        [label for label, _ in primal.output_sizes],
        takes_outputs=rule.takes_outputs,
        constants=dict(primal.constants),
    )


def _double_dtypes(primal: BlockRunner) -> tuple[np.dtype[Any], ...] | None:
    """Return in which dtypes a kernel is differentiated by calling it; None: those that it returns."""
    if not primal.kernel.fills_outputs or primal.dtypes is None:
        return None
    return tuple(np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype for dtype in primal.dtypes)


def _selected(signature: Signature, wanted: Sequence[int]) -> Signature:
    return Signature(signature.inputs, tuple(signature.outputs[place] for place in wanted))


@dataclass(frozen=True, slots=True, eq=False)
class _RuleFunction:
    """A rule as a function that returns the wanted outputs, each as an array."""

    func: KernelFunction
    primal: Kernel
    signature: Signature  # with all outputs that the function returns
    wanted: tuple[int, ...]
    ignored: frozenset[int]  # outputs for arguments that are no arrays
    output_sizes: OutputSizes

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        with self.primal.guard():  # what is not safe to run twice at once has a state that its derivatives share
            returned = self._unpack(self.func(*args, **keywords))
        values = [None if place in self.ignored else returned[place] for place in self.wanted]
        if any(value is None for value in values):
            values = self._without_none(values, args)
        return values[0] if len(values) == 1 else tuple(values)

    def _unpack(self, returned: Any) -> Sequence[Any]:
        is_sequence = isinstance(returned, tuple) or (isinstance(returned, list) and self.signature.nout > 1)
        values: Sequence[Any] = returned if is_sequence else (returned,)
        if len(values) == self.signature.nout:
            return values
        got = f"a {type(returned).__name__} of {len(returned)}" if is_sequence else kind_text(returned)
        raise OutputShapeError(
            f"derivative kernel returned {got}, expected a tuple of {self.signature.nout}: one array per output of "
            f"{str(self.signature)!r}, None for what is zero"
        )

    def _without_none(self, values: Sequence[Any], args: Sequence[Any]) -> list[Array]:
        """Return zeros in place of what is None."""
        signature = _selected(self.signature, self.wanted)
        shapes_in = input_shapes(args, signature)  # which may be symbolic, and so have no hash
        plan = make_plan.__wrapped__(signature, shapes_in, self.output_sizes)
        shapes = (tuple(size or 0 for size in output.shape) for output in plan.outputs)
        return [np.zeros(shape) if value is None else value for value, shape in zip(values, shapes, strict=True)]
