"""What compiled functions are like as kernels: what Numba's objects say of themselves, and what refusals mean.

In: a function, or what it raised. Out: whether it ignores or refuses read-only arrays, needs contiguous ones, fills its
outputs, runs in threads of its own. Imports no compiler: an object is known by its type and attributes.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = [
    "advice_for",
    "compiles_for_dtypes",
    "fills_outputs",
    "ignores_read_only",
    "is_made_by_numba",
    "is_numba",
    "needs_contiguous",
    "refuses_read_only",
    "runs_in_parallel",
]


def is_numba(func: object) -> bool:
    """Tell what Numba's decorators return, but for those that return a ufunc of NumPy's type."""
    return type(func).__module__.partition(".")[0] == "numba"


def is_made_by_numba(func: object) -> bool:
    """Tell a ufunc of NumPy's type that Numba has made: for ``target="parallel"`` there is nothing around it."""
    return isinstance(func, np.ufunc) and any(type(part).__module__ == "numba" for part in gc.get_referents(func))


def ignores_read_only(func: object) -> bool:
    """Tell a gufunc of Numba's, whose core may write into arguments that are flagged read-only."""
    return (is_numba(func) or is_made_by_numba(func)) and isinstance(getattr(func, "signature", None), str)


def refuses_read_only(func: object) -> bool:
    """Tell a Numba function whose types were given, and that by them has no version for read-only arrays."""
    return any(map(bool, _given_arrays(func))) and all(
        any(kind.mutable for kind in arrays) for arrays in _given_arrays(func)
    )


def needs_contiguous(func: object) -> bool:
    """Tell a Numba function whose types were given, and that by them has no version for arrays with strides."""
    return any(map(bool, _given_arrays(func))) and all(
        any(kind.layout == "C" for kind in arrays) for arrays in _given_arrays(func)
    )


def fills_outputs(func: object) -> bool:
    """Tell a gufunc of Numba's that is compiled at its first call, for its outputs too."""
    return is_numba(func) and getattr(func, "is_dynamic", False) is True


def compiles_for_dtypes(func: object) -> bool:
    """Tell a ufunc of Numba's that gets a loop for other dtypes when it is called with them."""
    return is_numba(func) and getattr(func, "_frozen", True) is False


def runs_in_parallel(func: object) -> bool:
    """
    Tell a function that Numba runs in threads of its own, ``parallel=True`` or ``target="parallel"``.

    Numba's layer "workqueue" ends the process when two threads start such functions at once
    (https://numba.readthedocs.io/en/stable/user/threading-layer.html).
    """
    if isinstance(func, functools.partial):
        return runs_in_parallel(func.func)
    if is_numba(func):
        return bool(getattr(func, "targetoptions", {}).get("parallel", False))
    return is_made_by_numba(func)


def advice_for(error: BaseException) -> str | None:
    """Return what to pass to a compiled function that refuses an array for its memory; None: it is something else."""
    text = str(error).lower()
    if "read-only" in text or "readonly" in text:
        return "its arguments are read-only; writable=True gives the kernel copies of its own"
    if "contiguous" in text:
        return "contiguous=True gives the kernel C-contiguous arrays, with copies where they are needed"
    return None


def _given_arrays(func: object) -> Iterator[list[Any]]:
    """Yield the types of the array arguments in each signature that a Numba function was compiled for in advance."""
    if is_numba(func) and not getattr(func, "_can_compile", True):
        for signature in getattr(func, "signatures", ()):
            yield [kind for kind in signature if hasattr(kind, "layout")]
