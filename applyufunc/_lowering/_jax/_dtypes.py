"""JAX's dtypes, asked for at every call, since ``enable_x64`` holds for a part of a program.

In: Python's types, NumPy's dtypes. Out: the NumPy dtypes of what JAX holds in their place. Knows no arrays.

Names of JAX: `jax.dtypes.canonicalize_dtype` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import OptionError, OutputDTypeError
from ..._typing import Array

__all__ = ["canonical", "default_dtype", "is_held", "narrow", "narrowing_texts"]


def default_dtype(kind: type, arrays: Sequence[Array]) -> np.dtype[Any]:
    """Return the dtype that JAX takes for Python's bool, int, float or complex."""
    return np.dtype(jnp.result_type(kind))


def narrow(dtype: np.dtype[Any], *, declared: bool) -> np.dtype[Any]:
    """Return the dtype that JAX holds in place of `dtype`."""
    if not is_held(dtype):
        if declared:
            raise OptionError(f"output_dtypes has {dtype}, which JAX arrays cannot hold")
        raise OutputDTypeError(f"kernel returned {dtype}, which JAX arrays cannot hold: pass output_dtypes")
    return canonical(dtype)


def narrowing_texts(wanted: Sequence[np.dtype[Any]], held: Sequence[np.dtype[Any]]) -> tuple[str, ...]:
    """Return what `jax.numpy.zeros` warns of, word for word, for each dtype in whose place another one is held."""
    return tuple(_narrowing_text(*pair) for pair in zip(wanted, held, strict=True) if pair[0] != pair[1])


def canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in native byte order, of 32 bits unless x64 is enabled."""
    native = dtype.newbyteorder("=") if dtype.kind in "iufc" else dtype
    return np.dtype(jax.dtypes.canonicalize_dtype(native))


@lru_cache(maxsize=128)
def is_held(dtype: np.dtype[Any]) -> bool:
    """Tell whether JAX has arrays of this dtype: numbers and bool, with the short floats of ml_dtypes."""
    if issubclass(dtype.type, (np.longdouble, np.clongdouble, np.timedelta64)):
        return False
    return dtype == np.bool_ or bool(jnp.issubdtype(dtype, np.number))


def _narrowing_text(dtype: np.dtype[Any], narrowed: np.dtype[Any]) -> str:
    return (
        f"Explicitly requested dtype {dtype} in output_dtypes is not available, and will be truncated to dtype "
        f"{narrowed}. To enable more dtypes, set the jax_enable_x64 configuration option or the JAX_ENABLE_X64 shell "
        f"environment variable."
    )
