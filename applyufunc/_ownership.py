"""Out of the kernel's reach: outputs and items that no later call, and no other holder, can change.

In: what kernels returned. Out: the same, copied where somebody else has the memory, or may have it. For a NumPy array
that can be told; of another library's array only whether somebody else holds the object.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any, Final

import numpy as np
from array_api_compat import array_namespace, device, is_jax_array, is_pydata_sparse_array

from ._arrays import is_array
from ._typing import Array

__all__ = ["SCALARS", "copy_of", "kept", "own"]


SCALARS: Final = frozenset({bool, int, float, complex, str, bytes, *np.sctypeDict.values()} - {np.void})
"""Types of the usual items without core dims, which nobody can change."""


def own(outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return outputs that share memory with nothing; the caller must hold them in this tuple alone.

    An array that a kernel has made for this call passes as it is.
    """
    return tuple([_owned(outputs, place) for place in range(len(outputs))])


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


def kept(value: Any) -> Any:
    """Return a copy of an item, or of what is in it."""
    if type(value) in SCALARS:
        return value
    if isinstance(value, np.ndarray):
        return copy_of(value)
    if isinstance(value, (list, tuple)):
        parts = [kept(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value if is_jax_array(value) else copy_of(value)  # JAX's cannot be written into


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


_HOLDER: Final = (object(),)
_ONE_HOLDER: Final = sys.getrefcount(_HOLDER[0])
"""What `sys.getrefcount` says of an object that one container, or one attribute, holds."""
