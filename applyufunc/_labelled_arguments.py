"""What labelled arguments are, and what no call can take of them: kinds, dims and sizes, held against `DimNames`.

In: arguments as the caller gave them. Out: their dims, or a refusal that names the argument, the variable and the dim.
Runs nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ._arguments import is_constant
from ._dim_mapping import listed
from ._dim_names import DimNames
from ._errors import ArgumentError, DimensionError, OptionError
from ._options import Options, nearest

__all__ = [
    "Kinds",
    "check_arguments",
    "dims_of",
    "dims_of_variables",
    "find_kinds",
    "first_group",
    "fit_at_sight",
    "import_xarray",
    "kind_of",
    "size_conflict",
    "unknown_size",
]

_Dims: TypeAlias = tuple[Hashable, ...]


class Kinds(NamedTuple):
    """The classes of xarray's labelled objects."""

    array: type[Any]
    variable: type[Any]
    dataset: type[Any]
    group_by: type[Any]
    tree: type[Any]


def find_kinds(args: Sequence[Any]) -> Kinds | None:
    """Return the classes if an argument is of one of them; costs next to nothing where xarray is not loaded."""
    if sys.modules.get("xarray") is None:
        return None
    for arg in args:
        if kind_of(arg) is not None:
            return _import_kinds()
    return None


def kind_of(arg: Any) -> type[Any] | None:
    """Return which of `Kinds` an argument is one of; None where it has no labels."""
    return _kind_of_class(arg.__class__)


def import_xarray() -> Any:
    """Return xarray, which an argument is from."""
    import xarray

    return xarray


def check_arguments(args: Sequence[Any], kinds: Kinds, names: DimNames, options: Options) -> None:
    """Refuse what xarray would take wrongly, and dims that do not fit, which it may see after the kernel has run."""
    for position, arg in enumerate(args):
        _check_kind(arg, f"argument {position}", kinds, options)
    examples = [first_group(arg, kinds) for arg in args]
    joined = _joined_names([example for example in examples if isinstance(example, kinds.dataset)], options)
    for position, example in enumerate(examples):
        for name, dims in _variables(example, kinds, joined):
            if names.core.intersection(dims) != names.input_sets[position]:
                what = f"argument {position}" if name is None else f"variable {name!r} of argument {position}"
                may_lack = name is not None and options.on_missing_core_dim in ("copy", "drop")
                _refuse_dims(what, dims, position, names, may_lack=may_lack)


def fit_at_sight(args: Sequence[Any], kinds: Kinds, names: DimNames) -> bool:
    """Tell the usual arguments, constants and variables of known sizes with the right core dims, from all others."""
    for arg, own in zip(args, names.input_sets, strict=True):
        if arg.__class__ is kinds.array or arg.__class__ is kinds.variable:
            fits = names.core.intersection(arg.dims) == own and not math.isnan(sum(arg.shape))
        elif arg.__class__ is kinds.dataset:
            orders = set(dims_of_variables(arg).values())
            fits = all(names.core.intersection(dims) == own for dims in orders)
            fits = fits and not math.isnan(sum(arg.sizes.values()))
        else:
            fits = is_constant(arg)
        if not fits:
            return False
    return True


def first_group(arg: Any, kinds: Kinds) -> Any:
    """Return the first group of what is grouped, and anything else as it is."""
    return next(iter(arg))[1] if isinstance(arg, kinds.group_by) else arg


def dims_of(arg: Any, kinds: Kinds) -> _Dims:
    """Return the dims of an argument that is a single variable; () of others, and where there are no labels."""
    return tuple(arg.dims) if isinstance(arg, (kinds.array, kinds.variable)) else ()


def dims_of_variables(dataset: Any) -> dict[Hashable, _Dims]:
    """Return the dims of the variables of a Dataset by their names."""
    variables = dataset.variables
    return {name: variables[name].dims for name in dataset.data_vars}


def size_conflict(args: Sequence[Any], kinds: Kinds, names: DimNames) -> str | None:
    """Say which dim has two sizes that no labels could align, if one has."""
    sized = {
        position: arg
        for position, arg in enumerate(args)
        if isinstance(arg, (kinds.array, kinds.variable, kinds.dataset))
    }
    for (first, one), (second, other) in combinations(sized.items(), 2):
        for dim in [dim for dim in one.sizes if dim in other.sizes and dim not in names.excluded]:
            are_indexed = all(dim in getattr(arg, "coords", ()) for arg in (one, other))
            if one.sizes[dim] != other.sizes[dim] and not are_indexed:
                kind = "core" if dim in names.core else "loop"
                return (
                    f"{kind} dimension {dim!r} is {one.sizes[dim]} in argument {first} and {other.sizes[dim]} in "
                    f"argument {second}: labelled dimensions do not broadcast"
                )
    return None


def unknown_size(args: Sequence[Any], kinds: Kinds, names: DimNames) -> str | None:
    """Say which dim has a size that is unknown and that xarray compares, itself or with an output's, if one has."""
    compared = {dim for dims in names.outputs for dim in dims}
    for position, arg in enumerate(args):
        if isinstance(arg, (kinds.array, kinds.variable, kinds.dataset)):
            unknown = [dim for dim, size in arg.sizes.items() if math.isnan(size) and dim not in names.excluded]
            for dim in unknown:
                if dim in compared or dim not in names.core:
                    return (
                        f"dimension {dim!r} of argument {position} has a size that is unknown until computed, which "
                        f"xarray takes in no result: call compute_chunk_sizes() on its Dask array first, or pass its "
                        f".data, without labels"
                    )
            compared.update(unknown)
    return None


@lru_cache(maxsize=256)
def _kind_of_class(own: type[Any]) -> type[Any] | None:
    """Return which of `Kinds` a class is; isinstance is slow for those that are abstract, and for whatever is none."""
    return next((kind for kind in _import_kinds() if issubclass(own, kind)), None)


@cache
def _import_kinds() -> Kinds:
    import xarray
    from xarray.core.groupby import GroupBy  # which has no public name

    return Kinds(xarray.DataArray, xarray.Variable, xarray.Dataset, GroupBy, xarray.DataTree)


def _check_kind(arg: Any, what: str, kinds: Kinds, options: Options) -> None:
    """Refuse what xarray does not do as it is asked to."""
    if isinstance(arg, np.ma.MaskedArray):
        raise ArgumentError(f"{what} is a masked array, whose mask labelled arrays cannot keep: fill it first")
    if not isinstance(arg, kinds) and hasattr(arg, "keys"):  # which xarray would take for a Dataset
        cure = "an xarray.Dataset of it" if isinstance(arg, dict) else "an xarray.DataArray of it, or a NumPy array"
        raise ArgumentError(f"{what} is a {type(arg).__name__}: make {cure}")
    if not isinstance(arg, kinds.group_by):
        return
    if len(arg.groupers) > 1:
        raise ArgumentError(
            f"{what} is grouped by {len(arg.groupers)} variables, and xarray.apply_ufunc takes one: use its .map with "
            f"a function that makes this call"
        )
    if options.on_missing_core_dim not in (None, "raise"):
        raise OptionError(
            f"on_missing_core_dim={options.on_missing_core_dim!r} is not taken with {what}, a {type(arg).__name__}: "
            f"xarray drops it on the way to groups"
        )


def _joined_names(datasets: Sequence[Any], options: Options) -> Collection[Hashable]:
    """Return the names of the variables that a call takes from Datasets."""
    names = [list(dataset.data_vars) for dataset in datasets] or [[]]
    if options.dataset_join in ("left", "right"):
        return names[0 if options.dataset_join == "left" else -1]
    joined = set(names[0])
    return joined.intersection(*names) if options.dataset_join == "inner" else joined.union(*names)


def _variables(arg: Any, kinds: Kinds, joined: Collection[Hashable]) -> Iterator[tuple[Hashable, _Dims]]:
    """Yield the names of a Dataset's variables, or None for a single one, with their dims."""
    if isinstance(arg, kinds.dataset):
        yield from ((name, dims) for name, dims in dims_of_variables(arg).items() if name in joined)
    elif isinstance(arg, (kinds.array, kinds.variable)):
        yield None, dims_of(arg, kinds)


def _refuse_dims(what: str, dims: _Dims, position: int, names: DimNames, *, may_lack: bool) -> None:
    """Refuse dims that lack a core dim, or have one of another operand, over which no call could loop."""
    missing = [dim for dim in names.inputs[position] if dim not in dims]
    if missing and not may_lack:
        raise DimensionError(_missing(what, dims, missing[0], names))
    foreign = [dim for dim in dims if dim in names.core and dim not in names.inputs[position]]
    if foreign and not missing:
        owners = [f"argument {place}" for place, own in enumerate(names.inputs) if foreign[0] in own]
        raise DimensionError(
            f"{what} has dimension {foreign[0]!r}, a core dimension of {[*owners, 'an output'][0]} but not of argument "
            f"{position}: a call loops over no core dimension; give it to argument {position} too, or rename it"
        )


def _missing(what: str, dims: _Dims, missing: Hashable, names: DimNames) -> str:
    """Say what is not there, what is, and what to write."""
    label = names.label(missing)
    given = "" if label == missing else f", which dims gives core dimension {label!r}"
    alike = nearest(str(missing), [dim for dim in dims if isinstance(dim, str)])
    cure = alike or f"; dims={{{label!r}: ...}} gives it another name"
    skip = " (on_missing_core_dim='copy' or 'drop' passes over such variables)" if what.startswith("variable") else ""
    return f"{what} has no dimension {missing!r}{given}; its dimensions: {listed(dims)}{cure}{skip}"
