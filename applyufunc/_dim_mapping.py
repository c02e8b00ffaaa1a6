"""The options `dims` and `output_coords` against a signature: which dims they name, and which sizes they give.

In: a `Signature`, options. Out: names by label, and options in which coordinates give sizes. Knows no array library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator

from ._errors import OptionError
from ._option_values import DimMapping
from ._options import Options, nearest
from ._signature import CoreDim, Signature

__all__ = ["check_dims", "core_dims", "listed", "read_mapping", "sized_by_coords"]


def check_dims(options: Options, signature: Signature) -> None:
    """Refuse names of dims, and coordinates, for what the signature does not have."""
    read_mapping(signature, options.dims)
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


def read_mapping(signature: Signature, dims: DimMapping) -> dict[str, Hashable]:
    """Return names of dims by label, as far as they are given."""
    labels = list(dict.fromkeys(dim.label for dim in core_dims(signature)))
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


def core_dims(signature: Signature) -> Iterator[CoreDim]:
    return (dim for operand in signature.inputs + signature.outputs for dim in operand)


def listed(names: Iterable[Hashable]) -> str:
    """Write names one after the other."""
    return ", ".join(map(repr, names)) or "none"


def _labels_of_coord(dim: Hashable, options: Options, signature: Signature) -> list[str]:
    """Return the labels of the output dims that a coordinate is for."""
    mapping = read_mapping(signature, options.dims)
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
