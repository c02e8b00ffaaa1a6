"""Derivative kernels: their signatures, derived from the kernel's own, and how each is run as a kernel itself.

In: a kernel's signature and options. Out: `Rule`s, and block runners for them. A rule is one of three::

    jac: I -> O+I     for each output, for each argument: core dims of the output, then of the argument
    vjp: I,O -> I     the arguments and one cotangent for each output; I,O,O -> I gets the outputs before them
    jvp: I,I -> O     the arguments and one tangent for each

What a rule returns is checked as the outputs of any kernel are. Knows no array library, and no transformation that
would ask for a derivative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ._blocks import BlockRunner, Selection, input_shapes
from ._call import Call
from ._casting import family
from ._compute_dtype import read_compute_dtype
from ._errors import OptionError, OutputShapeError
from ._kernel import Kernel, describes_itself, make_kernel
from ._numeric_derivatives import NumericJacobian
from ._option_values import OutputSize, OutputSizes, SizeRule, UpTo
from ._options import Options
from ._plan import make_plan
from ._returned import kind_text
from ._signature import CoreDim, Signature
from ._typing import Array, KernelFunction, Keywords

__all__ = [
    "RULE_KINDS",
    "BoundKernel",
    "Derivatives",
    "Rule",
    "RuleKind",
    "check_rules",
    "find_derivatives",
    "rule_kernel",
    "rule_options",
    "rule_runner",
    "rule_signature",
]

RuleKind: TypeAlias = Literal["jac", "vjp", "jvp"]

RULE_KINDS: Final[tuple[RuleKind, ...]] = ("jac", "vjp", "jvp")


class BoundKernel:
    """What a gufunc object is here: a kernel bound to a signature and to options, among them rules of its own."""

    __slots__ = ()

    @property
    def _parts(self) -> tuple[Kernel, Signature, Options]:
        """The kernel, its signature and its options."""
        raise NotImplementedError


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


def check_rules(options: Options, signature: Signature) -> None:
    """Refuse rules that no call could use: gufunc objects whose signature does not fit the kernel's."""
    for kind in RULE_KINDS:
        rule = getattr(options, kind)
        if isinstance(rule, BoundKernel):
            _check_signature(kind, rule, signature)
    if isinstance(options.jac, str):
        _check_step(options)


def rule_signature(
    kind: RuleKind,
    signature: Signature,
    sized: Collection[str],
    *,
    takes_outputs: bool = False,
    constants: Collection[int] = (),
) -> Signature:
    """
    Return the signature of a rule for a kernel with this signature.

    `sized` are the labels whose sizes in the outputs are given by `output_sizes`. A dim that an output resizes or
    computes is another one than the inputs', and gets a name of its own where it has to stand beside them. The
    arguments at `constants` are no arrays, and what is returned for them has no core dims.
    """
    renamed = _renamed(signature, sized)
    arguments = tuple(
        () if position in constants else tuple(dataclasses.replace(dim, stretches=False) for dim in dims)
        for position, dims in enumerate(signature.inputs)
    )
    if kind == "jvp":
        return Signature(signature.inputs * 2, signature.outputs)
    if kind == "vjp":
        outputs = tuple(tuple(renamed.get(dim.label) or _as_input(dim) for dim in dims) for dims in signature.outputs)
        return Signature(signature.inputs + outputs * (2 if takes_outputs else 1), arguments)
    resized = {label: dim for label, dim in renamed.items() if label in sized}
    of_outputs = (tuple(resized.get(dim.label, dim) for dim in dims) for dims in signature.outputs)
    return Signature(signature.inputs, tuple(dims + own for dims in of_outputs for own in arguments))


def rule_options(kind: RuleKind, options: Options, signature: Signature) -> Options:
    """Return the options of a rule that inherits those of its kernel, for calls of it by itself."""
    sizes = _rule_sizes(kind, signature, options.output_sizes)
    return dataclasses.replace(_inherited(options), output_sizes=sizes)


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
    sizes = _rule_sizes(rule.kind, primal.signature, primal.output_sizes)
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
    sizes = _rule_sizes(rule.kind, primal.signature, primal.output_sizes)
    selected = Selection(full, tuple(wanted))
    return BlockRunner(kernel, _selected(full, wanted), constants, keywords, sizes, tuple(dtypes), selected=selected)


def _read_rule(kind: RuleKind, given: Any, call: Call) -> Rule:
    name = f"{call.kernel.name}: {kind}"
    if isinstance(given, str):
        kernel = dataclasses.replace(call.kernel, name=name, token=None, home=None)
        return Rule(kind, kernel, _inherited(call.options), step=given)  # type: ignore[arg-type]  # one of NUMERIC_STEPS
    if isinstance(given, BoundKernel):
        kernel, signature, options = given._parts
        takes_outputs = kind == "vjp" and signature.nin != call.runner.signature.nin + call.runner.signature.nout
        return Rule(kind, dataclasses.replace(kernel, name=name), options, takes_outputs)
    options = _inherited(call.options)
    return Rule(kind, dataclasses.replace(make_kernel(given, options), name=name), options)


def _inherited(options: Options) -> Options:
    """Return what of a kernel's options holds for its derivatives; the keywords come with each call."""
    inherited = {name: getattr(options, name) for name in _INHERITED}
    return Options(**inherited | {"vectorize": bool(options.vectorize)})


def _check_signature(kind: RuleKind, rule: BoundKernel, signature: Signature) -> None:
    """Refuse a gufunc object that has other operands than a rule has, or whose operands have other numbers of dims."""
    _, own, options = rule._parts
    variants = [False, True] if kind == "vjp" else [False]
    fitting = [rule_signature(kind, signature, (), takes_outputs=takes_outputs) for takes_outputs in variants]
    if _numbers(own) not in map(_numbers, fitting):
        expected = " or ".join(repr(str(fit)) for fit in fitting)
        raise OptionError(
            f"{kind} is a gufunc object with signature {str(own)!r}, expected one such as {expected}: that of a {kind} "
            f"for {str(signature)!r}"
        )
    if options.axes is not None or options.axis is not None or options.keepdims is not False:
        raise OptionError(f"{kind} is a gufunc object with axes, axis or keepdims bound: its core dimensions are last")


def _check_step(options: Options) -> None:
    """Refuse small steps where the kernel does not get them."""
    if options.kernel_arrays not in (None, "numpy"):
        raise OptionError(f"jac={options.jac!r} calls the kernel on NumPy arrays: it takes kernel_arrays='numpy'")
    compute = read_compute_dtype(options.compute_dtype)
    if compute is not None and family(compute) != "integer" and not np.can_cast(np.float64, compute):
        raise OptionError(f"jac={options.jac!r} takes steps that are lost in a compute_dtype of {compute}")


def _numbers(signature: Signature) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(map(len, signature.inputs)), tuple(map(len, signature.outputs))


def _renamed(signature: Signature, sized: Collection[str]) -> Mapping[str, CoreDim]:
    """Return the dims that outputs resize or compute, by label, each under a name that no other dim has."""
    of_inputs = {dim.label for dims in signature.inputs for dim in dims}
    taken = of_inputs | {name for dims in signature.outputs for dim in dims for name in (dim.label, *dim.names)}
    renamed: dict[str, CoreDim] = {}
    for dim in (dim for dims in signature.outputs for dim in dims):
        if dim.label not in renamed and (dim.expression is not None or (dim.label in of_inputs and dim.label in sized)):
            stem = "out" if dim.expression is not None or dim.size is not None else f"{dim.label}_out"
            name = next(name for name in chain((stem,), (f"{stem}{n}" for n in count(2))) if name not in taken)
            taken.add(name)
            renamed[dim.label] = CoreDim(name)
    return renamed


def _as_input(dim: CoreDim) -> CoreDim:
    return CoreDim(dim.label, dim.size, dim.optional)


def _rule_sizes(
    kind: RuleKind, signature: Signature, sizes: tuple[tuple[str, SizeRule], ...]
) -> tuple[tuple[str, Any], ...]:
    """Return the sizes of dims in the outputs of a rule; the padding of a derivative is zero."""
    if kind == "vjp":
        return ()
    renamed = _renamed(signature, [label for label, _ in sizes]) if kind == "jac" else {}
    labels = {label: dim.label for label, dim in renamed.items()}
    return tuple((labels.get(label, label), _padded_with_zero(size)) for label, size in sizes)


def _padded_with_zero(size: SizeRule | OutputSize) -> SizeRule | OutputSize:
    return UpTo(size.bound) if isinstance(size, UpTo) else size


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


_INHERITED: Final = (
    "vectorize",
    "kernel_arrays",
    "callback",
    "allow_transfer",
    "writable",
    "contiguous",
    "thread_safe",
    "threads",
    "block_bytes",
    "compute_dtype",
)
"""What of a kernel's options holds for its derivative kernels too."""
