"""Functions of `Lowering` for libraries with nothing special to say: no traces, NumPy's dtypes, nothing to lend.

A lowering takes from here what holds for its library. Knows no array library but NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np

from .._call import Call
from .._kernel import Kernel
from .._typing import Array

__all__ = ["default_dtype", "lend", "look", "narrow", "repeat", "settled", "traces", "untraced"]


def traces(kernel: Kernel) -> bool:
    """Tell that a kernel runs, whatever it is."""
    return False


def default_dtype(kind: type, arrays: Sequence[Array]) -> np.dtype[Any]:
    """Return NumPy's dtype for Python's bool, int, float or complex."""
    return np.dtype(kind)


def narrow(dtype: np.dtype[Any], *, declared: bool) -> np.dtype[Any]:
    """Return `dtype`: nothing is narrowed."""
    return dtype


def untraced() -> nullcontext[None]:
    """Return what does nothing: there are no traces."""
    return nullcontext()


def lend(args: Sequence[Any]) -> None:
    """Return nothing: the values are not there, or need no lending."""


def look(args: Sequence[Any], kernel: Kernel) -> None:
    """Return nothing: a call is lowered anew each time."""


def repeat(call: Call, arrays: Sequence[Array]) -> NoReturn:
    """Refuse: nothing has a look."""
    raise NotImplementedError


def settled(output: Array) -> Array:
    """Return the output: its axes may be moved by a view."""
    return output
