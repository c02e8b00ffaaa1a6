"""The core dims of a signature as dims of labelled arrays: `name_dims`, by their own names or by the option `dims`.

In: a `Signature`, the value of the option. Out: `DimNames`, hashable. Knows no array library.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from ._dim_mapping import core_dims, read_mapping
from ._errors import DimensionError, OptionError
from ._option_values import DimMapping
from ._signature import CoreDim, Signature

__all__ = ["DimNames", "name_dims"]


@dataclass(frozen=True, slots=True)
class DimNames:
    """The core dims of every operand, by the names of dims."""

    inputs: tuple[tuple[Hashable, ...], ...]
    outputs: tuple[tuple[Hashable, ...], ...]
    labels: tuple[tuple[str, Hashable], ...]  # of the signature, with the names that they have
    excluded: frozenset[Hashable]  # have several sizes in one call, so that they are not aligned
    may_be_absent: bool  # an argument may lack a core dim, or have it with size 1
    input_sets: tuple[frozenset[Hashable], ...] = field(init=False)
    core: frozenset[Hashable] = field(init=False)  # of all operands
    new: frozenset[Hashable] = field(init=False)  # of outputs only

    def __post_init__(self) -> None:
        of_inputs, of_outputs = (frozenset(chain(*operands)) for operands in (self.inputs, self.outputs))
        object.__setattr__(self, "input_sets", tuple(map(frozenset, self.inputs)))
        object.__setattr__(self, "core", of_inputs | of_outputs)
        object.__setattr__(self, "new", of_outputs - of_inputs)

    def label(self, name: Hashable) -> str:
        """Return the signature's own label of a dim."""
        return next(label for label, own in self.labels if own == name)


@lru_cache(maxsize=1024)
def name_dims(signature: Signature, dims: DimMapping, sized: tuple[str, ...]) -> DimNames:
    """Return the names of core dims; those of labels in `sized` have other sizes in outputs than in inputs."""
    names = _names_by_label(signature, dims)
    labels = {dim.label for operand in signature.inputs for dim in operand}
    _refuse_repeated_labels(signature)
    resized = {names[label] for label in labels.intersection(sized)}
    shared = {name for name in names.values() if list(names.values()).count(name) > 1}
    _refuse_shared_in_one(signature, names)
    return DimNames(
        tuple(tuple(names[dim.label] for dim in operand) for operand in signature.inputs),
        tuple(tuple(names[dim.label] for dim in operand) for operand in signature.outputs),
        tuple(names.items()),
        frozenset(resized | shared),
        may_be_absent=any(dim.optional or dim.stretches for dim in core_dims(signature)),
    )


def _names_by_label(signature: Signature, dims: DimMapping) -> dict[str, Hashable]:
    mapping = read_mapping(signature, dims)
    for dim in core_dims(signature):
        is_name = dim.size is None and dim.expression is None
        if dim.label not in mapping and not is_name:
            raise OptionError(
                f"core dimension {dim.label!r} of signature {signature.text!r} is no name of a dimension, which "
                f"labelled arguments need: pass dims={{{dim.label!r}: ...}}"
            )
        mapping.setdefault(dim.label, dim.label)
    return mapping


def _refuse_repeated_labels(signature: Signature) -> None:
    for kind, operands in (("argument", signature.inputs), ("output", signature.outputs)):
        for position, labels in enumerate(tuple(dim.label for dim in dims) for dims in operands):
            if len(set(labels)) < len(labels):
                repeated = next(label for label in labels if labels.count(label) > 1)
                raise DimensionError(
                    f"{kind} {position} has core dimension {repeated!r} twice in signature {signature.text!r}, and a "
                    f"labelled array has a dimension once: {_two_names(signature)}"
                )


def _two_names(signature: Signature) -> str:
    """Say how to write a signature in which no operand has a dim twice."""
    inputs, outputs = (tuple(map(_renamed, operands)) for operands in (signature.inputs, signature.outputs))
    written = Signature(inputs, outputs, signature.always_tuple)
    old, of_inputs = ({dim.label for dim in core_dims(s)} for s in (signature, Signature(inputs, ())))
    new = {dim.label for dim in core_dims(written)} - old
    unsized = sorted(new - of_inputs)
    mapping = ", ".join(f"{label!r}: ..." for label in sorted(new))
    sizes = f", and output_sizes={{{', '.join(f'{label!r}: ...' for label in unsized)}}}" if unsized else ""
    return f"give it two names, as in {written.text!r} with dims={{{mapping}}}{sizes}"


def _renamed(dims: tuple[CoreDim, ...]) -> tuple[CoreDim, ...]:
    """Return the dims of an operand, a second one of the same label by another name."""
    seen: list[CoreDim] = []
    for dim in dims:
        n_before = sum(other.label == dim.label for other in dims[: len(seen)])
        name = dim.label if dim.label.isidentifier() else "n"
        seen.append(CoreDim(f"{name}{n_before + 1}") if n_before else dim)
    return tuple(seen)


def _refuse_shared_in_one(signature: Signature, names: dict[str, Hashable]) -> None:
    """Refuse two labels of one operand that `dims` gives one name."""
    for kind, operands in (("argument", signature.inputs), ("output", signature.outputs)):
        for position, operand in enumerate(operands):
            label_by_name: dict[Hashable, str] = {}
            for dim in operand:
                other = label_by_name.setdefault(names[dim.label], dim.label)
                if other != dim.label:
                    raise DimensionError(
                        f"dims names core dimensions {other!r} and {dim.label!r} of {kind} {position} "
                        f"{names[dim.label]!r}, and a labelled array has a dimension once"
                    )
