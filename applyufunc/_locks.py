"""Locks for functions that must not run twice at once: `lock_of`, found by a key in every thread of a process.

Must not know: what a kernel is.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["lock_of"]


def lock_of(key: Hashable) -> AbstractContextManager[Any]:
    """Return the lock that has this key."""
    with _finding_lock:
        return _locks.setdefault(key, threading.RLock())


def _forget_locks() -> None:
    """Give a forked process locks of its own: nobody there will release those that other threads held."""
    global _finding_lock  # noqa: PLW0603  # it may be held as well
    _finding_lock = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)

_finding_lock = threading.Lock()
# Weak, since a lock that nobody holds is as good as a new one.
_locks: MutableMapping[Hashable, AbstractContextManager[Any]] = weakref.WeakValueDictionary()
