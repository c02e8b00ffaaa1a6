"""What of xarray's work a call can do without: aligning coordinates that are shared, and rebuilding a Dataset.

In: arguments that fit, and the function on arrays. Out: arguments that ask less of xarray, or the Datasets that it
would have made. Every result is the one of the long way; what is unusual in any way takes that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any

from ._arguments import is_constant
from ._dim_names import DimNames
from ._labelled_arguments import Kinds, import_xarray, kind_of
from ._options import Options

__all__ = ["find_copied", "run_on_copy", "without_shared_coords"]


def without_shared_coords(args: tuple[Any, ...], kinds: Kinds, names: DimNames, options: Options) -> tuple[Any, ...]:
    """Return arguments in which only the first array has coordinates, if no other has any that it does not have.

    xarray aligns and merges the coordinates of all arrays, which takes half of the time of a call on small ones, and
    gives the first one's where all are equal.
    """
    places = [place for place, arg in enumerate(args) if kind_of(arg) is kinds.array]
    only_arrays = len(places) > 1 and not any(kind_of(arg) in (kinds.dataset, kinds.group_by) for arg in args)
    if not only_arrays or names.excluded or not _keeps_attributes(options):
        return args
    coords = args[places[0]].coords
    if not all(_are_among(args[place].coords, coords) for place in places[1:]):
        return args
    return tuple(arg.variable if place in places[1:] else arg for place, arg in enumerate(args))


def find_copied(args: Sequence[Any], kinds: Kinds, names: DimNames, options: Options) -> int | None:
    """Return the position of the Dataset if results are copies of it with other values; None if they may not be.

    So it is where one Dataset has all labels, and every variable keeps its dims and its attributes.
    """
    places = [place for place, arg in enumerate(args) if not is_constant(arg)]
    if len(places) != 1 or type(args[places[0]]) is not kinds.dataset:
        return None
    core, dataset = names.core, args[places[0]]
    are_kept = not names.excluded and all(core == set(dims) for dims in (names.inputs[places[0]], *names.outputs))
    if not are_kept or options.dataset_join is not None or not _keeps_attributes(options):
        return None
    variables = dataset.variables
    for name in dataset.data_vars:
        variable = variables[name]
        dims = variable.dims
        if type(variable) is not kinds.variable or not core.issubset(dims) or len(set(dims)) < len(dims):
            return None
    return places[0]


def run_on_copy(
    args: Sequence[Any], place: int, names: DimNames, on_arrays: Callable[..., tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Return a Dataset for each output of `on_arrays`, which gets the arrays of one variable, core dims last."""
    dataset, given, core = args[place], list(args), names.inputs[place]
    data: tuple[dict[Hashable, Any], ...] = tuple({} for _ in names.outputs)
    for name in dataset.data_vars:
        variable = dataset.variables[name]
        dims = variable.dims
        loop = tuple(dim for dim in dims if dim not in names.core)
        given[place] = variable.data if dims == loop + core else variable.transpose(*loop, *core).data
        outputs = on_arrays(*given)
        for position, own in enumerate(names.outputs):
            output = outputs[position]
            is_moved = loop + own != dims
            data[position][name] = type(variable)(loop + own, output).transpose(*dims).data if is_moved else output
    return tuple(_copied(dataset, values) for values in data)


def _are_among(coords: Any, others: Any) -> bool:
    """Tell whether coordinates are all among others, equal to them at sight or by their indexes."""
    variables, of_others = dict(coords.variables), dict(others.variables)
    for name, variable in variables.items():
        if name not in of_others or of_others[name].dims != variable.dims:
            return False
    indexes, other_indexes = coords.xindexes, others.xindexes
    for name, variable in variables.items():
        index, other = indexes.get(name), other_indexes.get(name)
        if index is None or other is None:
            if index is not other or not _are_equal_at_sight(variable, of_others[name]):
                return False
        elif index is not other and not (type(index) is type(other) is _index_class() and index.equals(other)):
            return False
    return True


def _are_equal_at_sight(one: Any, other: Any) -> bool:
    """Tell equal variables that are one object, or have no dims; xarray compares larger ones, which may be lazy."""
    return one is other or (one.ndim == 0 and one.chunks is None and other.chunks is None and one.equals(other))


def _copied(dataset: Any, data: Mapping[Hashable, Any]) -> Any:
    """Return a Dataset with other values, and without what was said of how a file had the old ones."""
    copied = dataset.copy(data=data)
    for name in data:
        variable = copied.variables[name]
        if variable.encoding:
            variable.encoding = {}
    if copied.encoding:
        copied.encoding = {}
    return copied


def _keeps_attributes(options: Options) -> bool:
    """Tell whether results have the attributes of the first argument, which both ways give them."""
    kept = options.keep_attrs
    if kept is None:
        kept = import_xarray().get_options()["keep_attrs"]
        return _keeps_by_default() if kept == "default" else kept is True
    return kept is True or kept == "override"


@cache
def _keeps_by_default() -> bool:
    """Tell what xarray does unless it is told, which it is not where this is asked; it differs by xarray's version."""
    return bool(import_xarray().apply_ufunc(abs, import_xarray().Variable((), 0, {"is_kept": 1})).attrs)


@cache
def _index_class() -> type[Any]:
    """Return the class of the usual indexes, which are equal where those of pandas are."""
    from xarray.indexes import PandasIndex

    return PandasIndex
