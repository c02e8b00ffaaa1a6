"""The core dims of a signature as dims of labelled arrays: `name_dims`, by their own names or by the option `dims`.

In: a `Signature`, options. Out: `DimNames`, hashable, and options in which coordinates give sizes. Knows no array
library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from ._errors import DimensionError, OptionError
from ._option_values import DimMapping
from ._options import Options, nearest
from ._signature import CoreDim, Signature

__all__ = ["DimNames", "check_dims", "listed", "name_dims", "sized_by_coords"]


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
        may_be_absent=any(dim.optional or dim.stretches for dim in _core_dims(signature)),
    )


def check_dims(options: Options, signature: Signature) -> None:
    """Refuse names of dims, and coordinates, for what the signature does not have."""
    _read_mapping(signature, options.dims)
    for dim, _ in options.output_coords:
        _labels_of_coord(dim, options, signature)


def sized_by_coords(options: Options, signature: Signature) -> Options:
    """Return options in which an output dim that is given a coordinate has the coordinate's size."""
    if not options.output_coords:
        return options
    sizes = dict(options.output_sizes)
    for dim, coord in options.output_coords:
        sizes |= dict.fromkeys(_labels_of_coord(dim, options, signature), len(coord))
    return dataclasses.replace(options, output_sizes=tuple(sizes.items()))


def listed(names: Iterable[Hashable]) -> str:
    """Write names one after the other."""
    return ", ".join(map(repr, names)) or "none"


def _core_dims(signature: Signature) -> Iterator[CoreDim]:
    return (dim for operand in signature.inputs + signature.outputs for dim in operand)


def _names_by_label(signature: Signature, dims: DimMapping) -> dict[str, Hashable]:
    mapping = _read_mapping(signature, dims)
    for dim in _core_dims(signature):
        is_name = dim.size is None and dim.expression is None
        if dim.label not in mapping and not is_name:
            raise OptionError(
                f"core dimension {dim.label!r} of signature {signature.text!r} is no name of a dimension, which "
                f"labelled arguments need: pass dims={{{dim.label!r}: ...}}"
            )
        mapping.setdefault(dim.label, dim.label)
    return mapping


def _read_mapping(signature: Signature, dims: DimMapping) -> dict[str, Hashable]:
    """Return names of dims by label, as far as they are given."""
    labels = list(dict.fromkeys(dim.label for dim in _core_dims(signature)))
    if isinstance(dims, str):
        if len(labels) != 1:
            raise OptionError(
                f"dims={dims!r} names one dimension, and the core dimensions of signature {signature.text!r} are "
                f"{listed(labels)}: pass a mapping, such as dims={{{(labels or ['n'])[0]!r}: {dims!r}}}"
            )
        return {labels[0]: dims}
    for label, _ in dims:
        if label not in labels:
            raise OptionError(
                f"dims names core dimension {label!r}, which signature {signature.text!r} does not have; its core "
                f"dimensions: {listed(labels)}{nearest(label, labels)}"
            )
    return dict(dims)


def _labels_of_coord(dim: Hashable, options: Options, signature: Signature) -> list[str]:
    """Return the labels of the output dims that a coordinate is for."""
    mapping = _read_mapping(signature, options.dims)
    of_outputs = {core.label: mapping.get(core.label, core.label) for dims in signature.outputs for core in dims}
    labels = [label for label, name in of_outputs.items() if name == dim]
    if not labels:
        raise OptionError(
            f"output_coords names dimension {dim!r}, which no output has; their core dimensions: "
            f"{listed(of_outputs.values())}"
        )
    for label in labels:
        if label in dict(options.output_sizes):
            raise OptionError(
                f"output_coords[{dim!r}] says the size of dimension {label!r}, and so does output_sizes: pass one of "
                f"them"
            )
    return labels


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
    old, of_inputs = ({dim.label for dim in _core_dims(s)} for s in (signature, Signature(inputs, ())))
    new = {dim.label for dim in _core_dims(written)} - old
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
