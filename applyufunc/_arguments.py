"""A block's arguments as a kernel sees them: `arrange` makes a batch of them, `walk_all` the items of a loop.

In: blocks of any library and constants, a plan for them, how the kernel takes arrays. Out: views that are read-only, or
copies that are the kernel's own. Nothing is copied in order to broadcast. Calls no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ._casting import astype
from ._compute_dtype import dtype_for_kernel
from ._kernel import Kernel
from ._ownership import copy_of
from ._plan import Operand, Plan
from ._results import broadcast_to
from ._signature import CoreDim
from ._typing import Array, Namespace

__all__ = ["arrange", "count_items", "is_constant", "library_of", "read_only", "walk_all"]


def is_constant(arg: object) -> bool:
    """Tell whether an argument reaches the kernel as it is: a Python scalar, or None."""
    return arg is None or type(arg) in (bool, int, float, complex)


def arrange(args: Sequence[Any], plan: Plan, kernel: Kernel) -> list[Any]:
    """Return the arguments as the kernel sees them: equal loop rank, ``|1`` dims stretched, read-only or private."""
    sizes = {label: size or 0 for label, size in plan.sizes}  # all are known where blocks are
    return [
        arg if operand is None or is_constant(arg) else _protect(_align(arg, operand, dims, plan.n_loop, sizes), kernel)
        for arg, operand, dims in zip(_computable(args, kernel), plan.inputs, plan.signature.inputs, strict=True)
    ]


def walk_all(args: Sequence[Any], plan: Plan, kernel: Kernel) -> list[Iterator[Any]]:
    """Return an iterator over the items of each argument, core dims only."""
    loop_shape, n_items = tuple(size or 0 for size in plan.loop_shape), count_items(plan)
    return [repeat(arg, n_items) if is_constant(arg) else _walk(arg, loop_shape, n_items, kernel) for arg in args]


def count_items(plan: Plan) -> int:
    return math.prod(size or 0 for size in plan.loop_shape)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view that refuses writing."""
    if isinstance(array, np.ma.MaskedArray):
        return _read_only_masked(array)  # type: ignore[no-any-return]
    view = array.view()
    view.flags.writeable = False
    return view


def library_of(blocks: Sequence[Array]) -> Namespace:
    return np if all(isinstance(block, np.ndarray | np.generic) for block in blocks) else array_namespace(*blocks)


def _computable(args: Sequence[Any], kernel: Kernel) -> Sequence[Any]:
    """Return the arguments in the dtype that the kernel computes in."""
    compute = kernel.compute_dtype
    if compute is None:
        return args
    return [
        arg if is_constant(arg) else _in_dtype(arg, dtype_for_kernel(arg.dtype, compute, f"argument {position}"))
        for position, arg in enumerate(args)
    ]


def _in_dtype(array: Array, dtype: np.dtype[Any] | None) -> Array:
    return array if dtype is None else astype(array, dtype, library_of([array]))


def _align(array: Array, operand: Operand, dims: Sequence[CoreDim], n_loop: int, sizes: Mapping[str, int]) -> Array:
    """Return a view with `n_loop` loop dims, and ``|1`` dims stretched."""
    if operand.n_loop < n_loop:
        array = array[(None,) * (n_loop - operand.n_loop) + (...,)]
    if any(dim.stretches for dim in dims):
        array = _stretch(array, (*array.shape[:n_loop], *(sizes[dim.label] for dim in dims)))
    return array


def _stretch(array: Array, shape: tuple[int, ...]) -> Array:
    if array.shape == shape:
        return array
    return broadcast_to(array, shape, library_of([array]))


def _protect(array: Array, kernel: Kernel) -> Array:
    """Return a NumPy array that the kernel cannot harm; other libraries' arrays only where it asked to write."""
    if kernel.writable:
        return array if kernel.vectorize else copy_of(array)  # the loop copies each item
    if not isinstance(array, np.ndarray):
        return array
    if kernel.gets_copies:
        return array.copy()
    return read_only(array if kernel.vectorize or not kernel.needs_contiguous else _contiguous(array))


def _contiguous(array: Any) -> Any:
    """Return an item, or a whole array, in C order; what is so already is passed on."""
    if not isinstance(array, np.ndarray) or (array.flags.c_contiguous and array.flags.aligned):
        return array
    return read_only(array.copy())


def _read_only_masked(array: Any) -> Any:
    """Return a masked view whose data refuse writing, and whose mask is its own."""
    data, mask = np.ma.getdata(array).view(), np.ma.getmask(array)
    view = np.ma.MaskedArray(data, mask, copy=False, fill_value=array.fill_value, hard_mask=array.hardmask)
    view.flags.writeable = False
    view.unshare_mask()
    return view


def _walk(array: Array, loop_shape: tuple[int, ...], n_items: int, kernel: Kernel) -> Iterator[Any]:
    """Return an iterator over the items of one argument; NumPy's are scalars where there are no core dims."""
    n_loop, is_numpy = len(loop_shape), isinstance(array, np.ndarray)
    items: Iterator[Any]
    if all(size == 1 for size in array.shape[:n_loop]):
        first = (0,) * n_loop
        items = repeat(array[first if is_numpy else (*first, ...)], n_items)
    else:
        stretched = _stretch(array, (*loop_shape, *array.shape[n_loop:]))
        items = _walk_rows(stretched, n_loop) if is_numpy else (stretched[(*i, ...)] for i in np.ndindex(loop_shape))
    if kernel.writable:
        return map(copy_of, items)
    return map(_contiguous, items) if kernel.needs_contiguous else items


def _walk_rows(array: np.ndarray[Any, Any], n_loop: int) -> Iterator[Any]:
    if n_loop == 1:
        return iter(array)
    rows = _flat_rows(array, n_loop)
    return chain.from_iterable(_walk_rows(row, n_loop - 1) for row in array) if rows is None else iter(rows)


def _flat_rows(array: np.ndarray[Any, Any], n_loop: int) -> np.ndarray[Any, Any] | None:
    """Return a view with one loop dim in place of several; None where there is none."""
    if type(array) is not np.ndarray:
        return None
    try:
        return array.reshape((-1, *array.shape[n_loop:]), copy=False)
    except ValueError:
        return None
