"""Out of the kernel's reach: outputs and items that no later call, and no other holder, can change.

In: what kernels returned. Out: the same, copied where somebody else has the memory, or may have it. For a NumPy array
that can be told; of another library's array only whether somebody else holds the object.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain, islice
from typing import Any, Final, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_jax_array, is_pydata_sparse_array

from ._casting import is_array
from ._errors import KernelError
from ._expectation import Expectation
from ._plan import Operand
from ._typing import Array

__all__ = ["Items", "collect_items", "copy_of", "own"]

Items: TypeAlias = Sequence[Any] | Array
"""What the kernel returned for each item; if an array, with an item in each row, of the core shape declared."""


def own(outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return outputs that share memory with nothing; the caller must hold them in this tuple alone.

    An array that a kernel has made for this call passes as it is.
    """
    return tuple([_owned(outputs, place) for place in range(len(outputs))])


def collect_items(returned: Iterable[Any], expected: Expectation, n_items: int) -> Items:
    """Return what each item's call gave, as it was then: the next call may write into the same array.

    What is alike goes row by row into one array, which costs less than to stack it later; all else is copied.
    """
    if _are_objects(expected):
        return _checked(list(returned), n_items)  # which are kept themselves, whatever they are
    values = iter(returned)
    first = list(islice(values, 1))
    if not first or type(first[0]) is not np.ndarray or not _is_as_declared(first[0], expected.plan.outputs[0]):
        kept = [value if type(value) in _SCALARS else _kept(value) for value in chain(first, values)]
        return _checked(kept, n_items)
    return _collect_rows(first[0], values, n_items)


def copy_of(array: Array) -> Array:
    """Return a copy of an array of any library; anything else as it is."""
    if isinstance(array, np.ma.mvoid):  # a masked record, which has no `copy` that works
        data, mask = array.data.copy(), array.mask.copy()
        return np.ma.mvoid(data, mask, hardmask=array.hardmask)  # type: ignore[no-untyped-call]
    if isinstance(array, (np.ndarray, np.void)):  # a record may be a view
        return array.copy()
    if isinstance(array, np.generic) or not is_array(array):
        return array
    if is_pydata_sparse_array(array):  # of which `asarray` makes another format, before sparse 0.17
        return deepcopy(array)
    if is_jax_array(array):  # which a device given would commit to it
        return array_namespace(array).asarray(array, copy=True)
    return array_namespace(array).asarray(array, device=device(array), copy=True)


def _checked(values: Sequence[Any], n_items: int) -> Sequence[Any]:
    """Return the values of all items; a StopIteration that the kernel raised looks like the end of the loop."""
    if len(values) < n_items:
        raise KernelError("kernel raised StopIteration")
    return values


def _owned(outputs: tuple[Array, ...], place: int) -> Array:
    is_held = sys.getrefcount(outputs[place]) > _ONE_HOLDER  # asked for before a name here holds it too
    output = outputs[place]
    is_foreign = not isinstance(output, np.ndarray)
    return output if not is_held and (is_foreign or _has_own_memory(output)) else copy_of(output)


def _has_own_memory(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether nothing but this array leads to its memory, where each of its elements has a place of its own."""
    if isinstance(array, np.ma.MaskedArray) and not _has_own_mask(array):
        return False
    is_writable = array.flags.writeable  # what NumPy broadcasts is not, nor are the views that a kernel is given
    while isinstance(array.base, np.ndarray) and sys.getrefcount(array.base) <= _ONE_HOLDER:
        array = array.base
    return is_writable and array.base is None and array.flags.owndata  # else the memory is not NumPy's


def _has_own_mask(array: np.ma.MaskedArray[Any, Any]) -> bool:
    is_held = sys.getrefcount(np.ma.getmask(array)) > _ONE_HOLDER  # asked for before a name here holds it too
    mask = np.ma.getmask(array)
    return not isinstance(mask, np.ndarray) or (not is_held and _has_own_memory(mask))


def _are_objects(expected: Expectation) -> bool:
    """Tell whether every output takes any object for an item."""
    pairs = zip(expected.plan.outputs, expected.dtypes or (), strict=False)
    return expected.dtypes is not None and all(dtype.kind == "O" and not output.n_core for output, dtype in pairs)


def _is_as_declared(array: np.ndarray[Any, Any], output: Operand) -> bool:
    """Tell an array of the core shape, with all sizes known, that the signature says."""
    return array.ndim > 0 and array.shape == output.core_shape


def _collect_rows(first: np.ndarray[Any, Any], others: Iterator[Any], n_items: int) -> Items:
    """Return an array with an item in each row; a list, if some item is not like the first."""
    shape, dtype = first.shape, first.dtype
    rows = np.empty((n_items, *shape), dtype)
    rows[0] = first
    n_rows = 1
    for value in others:
        if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
            return _checked([*rows[:n_rows], *map(_kept, chain((value,), others))], n_items)
        rows[n_rows] = value
        n_rows += 1
    _checked(range(n_rows), n_items)
    return rows


def _kept(value: Any) -> Any:
    """Return a copy of an item, or of what is in it."""
    if isinstance(value, np.ndarray):
        return copy_of(value)
    if isinstance(value, (list, tuple)):
        parts = [part if type(part) in _SCALARS else _kept(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value if is_jax_array(value) else copy_of(value)  # JAX's cannot be written into


_HOLDER: Final = (object(),)
_ONE_HOLDER: Final = sys.getrefcount(_HOLDER[0])
"""What `sys.getrefcount` says of an object that one container, or one attribute, holds."""

_SCALARS: Final = frozenset({bool, int, float, complex, str, bytes, *np.sctypeDict.values()} - {np.void})
"""Types of the usual items without core dims, which nobody can change."""
