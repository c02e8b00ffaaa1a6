"""Results of a labelled call as the caller gets them: dims in their places, coordinates on new ones.

In: what xarray made of a call's outputs, and its arguments. Out: the same objects, transposed and with coordinates.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from ._dim_names import DimNames
from ._explanation import ExplainedOperand, Explanation
from ._labelled_arguments import Kinds, dims_of, dims_of_variables, first_group
from ._options import Options

__all__ = ["finish", "with_names"]

Dims: TypeAlias = tuple[Hashable, ...]


def finish(output: Any, position: int, args: Sequence[Any], kinds: Kinds, names: DimNames, options: Options) -> Any:
    """Return one output with every dim that an argument has in its place, new dims last, and with its coordinates."""
    core = names.outputs[position]
    if not core:
        return output
    if not names.new.issuperset(core):
        output = _in_place(output, args, kinds, names.new)
    given = {dim: _along(dim, coord) for dim, coord in options.output_coords if dim in core}
    return output.assign_coords(given) if given and not isinstance(output, kinds.variable) else output


def with_names(explanation: Explanation, args: Sequence[Any], kinds: Kinds, names: DimNames) -> Explanation:
    """Return an explanation in which dims have their names."""
    core = names.core
    dims = dict.fromkeys(dim for arg in args for dim in dims_of(arg, kinds))
    loop = [dim for dim in dims if dim not in core]
    mapping = {str(axis): str(dim) for axis, dim in zip(range(-len(loop), 0), loop, strict=True)}
    mapping |= {label: str(dim) for label, dim in names.labels}
    return replace(
        explanation,
        arguments=tuple(_renamed_operand(operand, mapping) for operand in explanation.arguments),
        outputs=tuple(_renamed_operand(operand, mapping) for operand in explanation.outputs),
        loop=tuple((mapping[dim], chunks) for dim, chunks in explanation.loop),
        kept=tuple((mapping[dim], chunks) for dim, chunks in explanation.kept),
    )


def _in_place(output: Any, args: Sequence[Any], kinds: Kinds, new: frozenset[Hashable]) -> Any:
    """Return an output, or a Dataset's variables, with dims in the order in which arguments have them."""
    examples = [first_group(arg, kinds) for arg in args]
    if not isinstance(output, kinds.dataset):
        order = _order(output.dims, tuple(dims_of(arg, kinds) for arg in examples), new)
        coords = {"transpose_coords": False} if isinstance(output, kinds.array) else {}
        return output if order == output.dims else output.transpose(*order, **coords)
    known = [dims_of_variables(arg) if isinstance(arg, kinds.dataset) else dims_of(arg, kinds) for arg in examples]
    moved = {}
    for name, own in dims_of_variables(output).items():
        order = _order(own, tuple(dims.get(name, ()) if isinstance(dims, dict) else dims for dims in known), new)
        if order != own:
            moved[name] = output.variables[name].transpose(*order)
    return output.assign(moved) if moved else output


def _along(dim: Hashable, coord: Any) -> Any:
    """Return a coordinate that lies along `dim`, whatever its own dim is called."""
    is_renamed = hasattr(coord, "dims") and tuple(coord.dims) != (dim,)
    return (dim, coord.data, coord.attrs) if is_renamed else coord


@lru_cache(maxsize=1024)
def _order(dims: Dims, of_args: tuple[Dims, ...], new: frozenset[Hashable]) -> Dims:
    """Return dims in the order in which arguments first show them; others, such as a group's, stay, new ones are last.

    >>> _order(("x", "y", "time", "k"), (("x", "time", "y"),), frozenset({"k"}))
    ('x', 'time', 'y', 'k')
    """
    rank = {dim: place for place, dim in enumerate(dict.fromkeys(dim for own in of_args for dim in own))}
    known = iter(sorted((dim for dim in dims if dim in rank), key=rank.__getitem__))
    old = [next(known) if dim in rank else dim for dim in dims if dim not in new]
    return (*old, *(dim for dim in dims if dim in new))


def _renamed_operand(operand: ExplainedOperand, mapping: Mapping[str, str]) -> ExplainedOperand:
    blocks = operand.blocks
    if blocks is not None and blocks.rechunking is not None:
        changed = blocks.rechunking
        merged, unified, split = (
            tuple(mapping[dim] for dim in dims) for dims in (changed.merged, changed.unified, changed.split)
        )
        blocks = replace(blocks, rechunking=replace(changed, merged=merged, unified=unified, split=split))
    return replace(operand, dims=tuple(mapping[dim] for dim in operand.dims), blocks=blocks)
