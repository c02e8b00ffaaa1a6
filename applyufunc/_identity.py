"""What tells objects and values apart where ``==`` does not.

`IdentityMap`: by which object it is. `is_plain`, `is_plain_dtype`: whether a text does.

A kernel may have an ``__eq__`` of its own, by which two that do different things are equal; and 1, 1.0 and True are
equal too. Knows neither kernels nor arrays.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["IdentityMap", "is_plain", "is_plain_dtype"]

V = TypeVar("V")


class IdentityMap(Generic[V]):
    """A value for each of some objects, told apart by identity; it goes when its object does. Threads may share it."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}
        self._lock = threading.RLock()  # a callback below may run in the middle of a method, in the same thread

    def __len__(self) -> int:
        return len(self._entries)

    def setdefault(self, key: object, value: V) -> V:
        """Return the value of `key`, from now on `value` where it has none; TypeError if it takes no weak reference."""
        entry = weakref.ref(key, partial(self._forget, id(key))), value
        with self._lock:
            kept = self._entries.setdefault(id(key), entry)
            if kept[0]() is not key:  # one that had this id before, and is being forgotten
                kept = self._entries[id(key)] = entry
            return kept[1]

    def _forget(self, identity: int, reference: weakref.ref[Any]) -> None:
        with self._lock:
            if self._entries.get(identity, (None,))[0] is reference:
                del self._entries[identity]


def is_plain(value: object) -> bool:
    """Tell a value that nobody can change and whose text says all about it."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def is_plain_dtype(dtype: np.dtype[Any]) -> bool:
    """Tell a dtype that is the same as whichever equals it, as records and dtypes with metadata may not be."""
    return dtype.kind in "biufcmMSU" and dtype.metadata is None
