"""Large pages of memory for large outputs, which XLA does not ask for: in small ones, most of the time goes into pages.

In: an array that is to be filled. Out: nothing. NumPy asks for its own arrays in the same way, from the same size on:
https://numpy.org/doc/stable/reference/global_state.html. It is a hint; where the system takes none, nothing changes.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any, Final

import numpy as np

__all__ = ["LARGE", "ask_for_large_pages"]

LARGE: Final = 1 << 22  # bytes


def ask_for_large_pages(array: np.ndarray[Any, Any]) -> None:
    """Have the memory of a contiguous array, which nobody has written to yet, come in large pages."""
    advise, advice = _madvise(), getattr(mmap, "MADV_HUGEPAGE", None)  # on Linux alone
    if advise is None or advice is None:
        return
    address: int = array.__array_interface__["data"][0]
    start = address + -address % mmap.PAGESIZE
    advise(start, address + array.nbytes - start, advice)


@cache
def _madvise() -> Any:
    """Return the system's function; None where it has none."""
    try:
        return _AdviseFunction(("madvise", ctypes.CDLL(None)))
    except (AttributeError, OSError, TypeError):
        return None


_AdviseFunction: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
