"""How often the `chunk` of a reduction is called for the blocks of a call, before there are any.

In: a `PiecewiseKernel`, the plan of the whole call, the chunks along every dim that is cut. Out: a number.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

from .._plan import Plan
from ._piecewise import PiecewiseKernel, cut_in_pieces

__all__ = ["count_chunk_calls"]


def count_chunk_calls(
    piecewise: PiecewiseKernel, plan: Plan, itemsize: int, grid: Mapping[str, tuple[int | None, ...]]
) -> int | None:
    """Return the number of calls; `itemsize`: bytes of the widest argument's items. None: sizes are unknown."""
    reduced = piecewise.reduction.reduced
    if any(sum(size or 0 for size in chunks) == 0 for dim, chunks in grid.items() if dim in reduced):
        grid = {dim: (0,) if dim in reduced else chunks for dim, chunks in grid.items()}  # asked once, for nothing
    elif any(0 in chunks for dim, chunks in grid.items()):
        grid = {dim: tuple(size for size in chunks if size != 0) for dim, chunks in grid.items()}
    whole = {str(axis - plan.n_loop): size for axis, size in enumerate(plan.loop_shape)} | dict(plan.sizes)
    kinds = [Counter(chunks).items() for chunks in grid.values()]
    if any(None in chunks for chunks in grid.values()) or math.prod(map(len, kinds)) > _MOST_KINDS:
        return None
    total = 0
    for kind in itertools.product(*kinds):
        sizes = whole | dict(zip(grid, (size for size, _ in kind), strict=True))
        total += math.prod(number for _, number in kind) * _calls_of_block(piecewise, plan, itemsize, sizes)
    return total


_MOST_KINDS: Final = 10_000  # of blocks, by their shape


def _calls_of_block(piecewise: PiecewiseKernel, plan: Plan, itemsize: int, sizes: Mapping[str, int | None]) -> int:
    loop = {dim: sizes[dim] or 0 for dim in map(str, range(-plan.n_loop, 0))}
    core = {dim: sizes[dim] or 0 for dim in piecewise.reduction.reduced}
    n_items = math.prod(loop.values())
    if n_items == 0:
        return 0
    (_, loop_slices), (_, core_slices) = cut_in_pieces(loop, core, itemsize * n_items * _core_items(plan, sizes))
    return len(core_slices) * (n_items if piecewise.chunk.vectorize else len(loop_slices))


def _core_items(plan: Plan, sizes: Mapping[str, int | None]) -> int:
    """Return the elements that one item of the loop has in all arguments; size 1 broadcasts."""
    operands = (operand for operand in plan.inputs if operand is not None)
    cores = (zip(o.dims[o.n_loop :], o.core_shape, strict=True) for o in operands)
    return sum(math.prod(1 if size == 1 else sizes[dim] or 0 for dim, size in core) for core in cores)
