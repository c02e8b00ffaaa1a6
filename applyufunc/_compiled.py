"""What compiled functions are like as kernels: what Numba's objects say of themselves, and what refusals mean.

In: a function, or what it raised. Out: its `Demands`, or the option that it asks for. Imports no compiler: an object is
known by its type and attributes.
"""

from __future__ import annotations

import functools
import gc
from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["Demands", "advice_for", "compiles_for_dtypes", "demands_of", "is_made_by_numba", "is_numba"]


class Demands(NamedTuple):
    """What a function does or needs that its caller has to provide for."""

    gets_copies: bool = False  # it may write into arrays that are flagged read-only, or refuses them
    needs_contiguous: bool = False  # it refuses arrays that are not in C order
    fills_outputs: bool = False  # it takes arrays for its outputs
    runs_in_parallel: bool = False  # in threads of Numba's own


def demands_of(func: object) -> Demands:
    """Return what a function is known to demand: nothing, but for what Numba has compiled."""
    if isinstance(func, functools.partial):
        return demands_of(func.func)
    if is_made_by_numba(func):
        return Demands(gets_copies=_has_core(func), runs_in_parallel=True)
    if not is_numba(func):
        return _NO_DEMANDS
    arrays = _given_arrays(func)
    return Demands(
        # A gufunc's core writes into what is flagged read-only; types that were given may have no read-only version.
        gets_copies=_has_core(func) or (bool(arrays) and all(any(kind.mutable for kind in own) for own in arrays)),
        needs_contiguous=bool(arrays) and all(any(kind.layout == "C" for kind in own) for own in arrays),
        fills_outputs=getattr(func, "is_dynamic", False) is True,
        # Its layer "workqueue" ends the process when two threads start such functions at once:
        # https://numba.readthedocs.io/en/stable/user/threading-layer.html
        runs_in_parallel=bool(getattr(func, "targetoptions", {}).get("parallel", False)),
    )


def is_numba(func: object) -> bool:
    """Tell what Numba's decorators return, but for those that return a ufunc of NumPy's type."""
    return type(func).__module__.partition(".")[0] == "numba"


def is_made_by_numba(func: object) -> bool:
    """Tell a ufunc of NumPy's type that Numba has made: for ``target="parallel"`` there is nothing around it."""
    return isinstance(func, np.ufunc) and any(type(part).__module__ == "numba" for part in gc.get_referents(func))


def compiles_for_dtypes(func: object) -> bool:
    """Tell a ufunc of Numba's that gets a loop for other dtypes when it is called with them."""
    return is_numba(func) and getattr(func, "_frozen", True) is False


def advice_for(message: str) -> str | None:
    """Return the option for a function that refuses an array for its memory, in these words; None: they say else."""
    text = message.lower()
    if "read-only" in text or "readonly" in text:
        return "writable=True gives the kernel copies to write into"
    if "contiguous" in text:
        return "contiguous=True gives the kernel C-contiguous arrays, with copies where they are needed"
    return None


_NO_DEMANDS: Final = Demands()


def _has_core(func: object) -> bool:
    """Tell a gufunc from a ufunc, whose loop reads scalars."""
    return isinstance(getattr(func, "signature", None), str)


def _given_arrays(func: object) -> list[list[Any]]:
    """Return the types of the array arguments in each signature that a Numba function was compiled for in advance."""
    signatures = () if getattr(func, "_can_compile", True) else getattr(func, "signatures", ())
    arrays = ([kind for kind in signature if hasattr(kind, "layout")] for signature in signatures)
    return [own for own in arrays if own]
