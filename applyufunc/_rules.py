"""Rules: kernels for derivatives as they are declared, with signatures derived from the kernel's own.

In: a kernel's signature and options. Out: the signature and the options of a rule, or a refusal. A rule is one of
three::

    jac: I -> O+I     for each output, for each argument: core dims of the output, then of the argument
    vjp: I,O -> I     the arguments and one cotangent for each output; I,O,O -> I gets the outputs before them
    jvp: I,I -> O     the arguments and one tangent for each

Knows no array library, and runs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from itertools import chain, count
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ._casting import family
from ._compute_dtype import read_compute_dtype
from ._errors import OptionError
from ._kernel import Kernel
from ._option_values import OutputSize, SizeRule, UpTo
from ._options import Options
from ._signature import CoreDim, Signature

__all__ = [
    "RULE_KINDS",
    "BoundKernel",
    "RuleKind",
    "check_rules",
    "inherited",
    "rule_options",
    "rule_signature",
    "rule_sizes",
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
    sizes = rule_sizes(kind, signature, options.output_sizes)
    return dataclasses.replace(inherited(options), output_sizes=sizes)


def inherited(options: Options) -> Options:
    """Return what of a kernel's options holds for its derivatives; the keywords come with each call."""
    inherited = {name: getattr(options, name) for name in _INHERITED}
    return Options(**inherited | {"vectorize": bool(options.vectorize)})


def rule_sizes(
    kind: RuleKind, signature: Signature, sizes: tuple[tuple[str, SizeRule], ...]
) -> tuple[tuple[str, Any], ...]:
    """Return the sizes of dims in the outputs of a rule; the padding of a derivative is zero."""
    if kind == "vjp":
        return ()
    renamed = _renamed(signature, [label for label, _ in sizes]) if kind == "jac" else {}
    labels = {label: dim.label for label, dim in renamed.items()}
    return tuple((labels.get(label, label), _padded_with_zero(size)) for label, size in sizes)


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


def _padded_with_zero(size: SizeRule | OutputSize) -> SizeRule | OutputSize:
    return UpTo(size.bound) if isinstance(size, UpTo) else size


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
