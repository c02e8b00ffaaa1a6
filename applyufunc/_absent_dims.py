"""Dims that the signature lets be absent (``n?``), or stretch (``n|1``), in a labelled call: `leave_out`.

xarray knows core dims that every operand has. What an operand lacks is left out of what xarray is told, and its array
gets an axis of length 1 in that place.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ._dim_names import DimNames
from ._labelled_arguments import Kinds, first_group
from ._signature import Signature

__all__ = ["Fitted", "leave_out"]

Index: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Arguments, and the core dims that they have."""

    args: tuple[Any, ...]
    names: DimNames
    inserts: tuple[Index, ...] = ()  # for each input what gives its array an axis for what it lacks; none: all is there
    drops: tuple[Index, ...] = ()  # for each output what takes it away again


def leave_out(args: Sequence[Any], kinds: Kinds, names: DimNames, signature: Signature) -> Fitted:
    """Return what is there of the arguments' core dims."""
    if not names.may_be_absent:
        return Fitted(tuple(args), names)
    own = [_lacking(position, args, kinds, names, signature) for position in range(len(args))]
    optional = {dim.label for dims in signature.inputs for dim in dims if dim.optional}
    absent = {dim for dims in own for dim in dims if names.label(dim) in optional}  # lost in one is lost in all
    lacking = [dims | absent for dims in own]
    inputs = tuple(tuple(d for d in dims if d not in out) for dims, out in zip(names.inputs, lacking, strict=True))
    outputs = tuple(tuple(d for d in dims if d not in absent) for dims in names.outputs)
    left = replace(names, inputs=inputs, outputs=outputs)
    return Fitted(
        tuple(_squeezed(arg, kinds, dims) for arg, dims in zip(args, own, strict=True)),
        replace(left, excluded=names.excluded & left.core),
        tuple(_index(dims, out, None) for dims, out in zip(names.inputs, lacking, strict=True)),
        tuple(_index(dims, absent, 0) for dims in names.outputs),
    )


def _lacking(position: int, args: Sequence[Any], kinds: Kinds, names: DimNames, signature: Signature) -> set[Hashable]:
    """Return the dims that an argument lacks by right, and those that stretch from size 1."""
    arg = first_group(args[position], kinds)
    if not isinstance(arg, (kinds.array, kinds.variable, kinds.dataset)):
        return set()
    dims = zip(names.inputs[position], signature.inputs[position], strict=True)
    return {
        name
        for name, dim in dims
        if (name not in arg.sizes and (dim.optional or dim.stretches))
        or (dim.stretches and arg.sizes.get(name) == 1 and _is_wider_elsewhere(name, args, kinds, names))
    }


def _is_wider_elsewhere(name: Hashable, args: Sequence[Any], kinds: Kinds, names: DimNames) -> bool:
    """Tell whether another argument may give a dim a size other than 1; what has no labels always may."""
    return any(
        name in dims and getattr(arg, "sizes", {}).get(name) != 1
        for arg, dims in zip(args, names.inputs, strict=True)
        if not isinstance(arg, kinds.group_by)
    )


def _squeezed(arg: Any, kinds: Kinds, dims: Collection[Hashable]) -> Any:
    """Return a labelled argument without dims of size 1 that stretch."""
    present = dict.fromkeys((dim for dim in dims if dim in getattr(arg, "sizes", ())), 0)
    if not present or isinstance(arg, kinds.group_by):
        return arg
    return arg.isel(present) if isinstance(arg, kinds.variable) else arg.isel(present, drop=True)


def _index(dims: Sequence[Hashable], absent: AbstractSet[Hashable], entry: int | None) -> Index:
    """Return what inserts, or takes away, the axes of absent dims; () where there are none."""
    if absent.isdisjoint(dims):
        return ()
    return (Ellipsis, *(entry if dim in absent else slice(None) for dim in dims))
