"""Arguments as JAX would take them, converted before JAX sees them: inside a trace it would be too late.

In: arguments as the caller gave them. Out: JAX arrays, traced or not; NumPy arrays of dtypes that JAX has; Python
scalars and None as they are. A NumPy array stays one, since a kernel that is called directly reads it where it is.

Names of JAX: `jax.dtypes.extended`; ``weak_type`` of arrays (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._arguments import is_constant
from ..._errors import ArgumentError
from ..._kernel import Kernel
from ..._options import Options
from ..._typing import Array
from .._host import as_numpy, is_jax_literal
from ._dtypes import canonical, is_held

__all__ = ["convert"]


def convert(args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
    """Return each argument as an array, or as it is where it is a Python scalar or None."""
    converted = [_convert(arg, f"argument {position}") for position, arg in enumerate(args)]
    return _strengthen(converted, keep_floats=kernel.compute_dtype is not None)


def _convert(arg: Any, what: str) -> Any:
    if isinstance(arg, jax.Array):
        return _check_extended(arg, what)
    if is_jax_literal(arg):
        return jnp.asarray(arg)
    if hasattr(type(arg), "__jax_array__"):  # before __array__, which fails on what is traced
        return _convert_result(arg, what)
    return arg if is_constant(arg) else _canonical_numpy(as_numpy(arg, what), what)


def _check_extended(array: Array, what: str) -> Array:
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        raise ArgumentError(f"{what} is a JAX array of dtype {array.dtype}: pass jax.random.key_data(...) of a key")
    return array


def _convert_result(arg: Any, what: str) -> Array:
    result = arg.__jax_array__()
    if isinstance(result, jax.Array):
        return _check_extended(result, what)
    if isinstance(result, (np.ndarray, np.generic)):
        return _canonical_numpy(as_numpy(result, what), what)
    kind, returned = type(arg).__qualname__, type(result).__qualname__
    raise ArgumentError(f"{what}: {kind}.__jax_array__() returned a {returned}, expected an array")


def _canonical_numpy(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """Return a NumPy array with the dtype that it would have as a JAX array."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{what} is a masked array, whose mask JAX arrays cannot keep: fill it first")
    if not is_held(array.dtype):
        raise ArgumentError(f"{what} has dtype {array.dtype}, which JAX arrays cannot hold: cast it first")
    narrowed = canonical(array.dtype)
    _check_integers(array, narrowed, what)
    with np.errstate(over="ignore"):  # as JAX converts
        return array.astype(narrowed, copy=False)


def _check_integers(array: np.ndarray[Any, Any], narrowed: np.dtype[Any], what: str) -> None:
    """Refuse integers of 64 bits that 32 do not hold, which JAX itself would wrap around."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize <= narrowed.itemsize or not array.size:
        return
    limits = np.iinfo(narrowed)
    for value in (int(array.min()), int(array.max())):
        if not limits.min <= value <= limits.max:
            raise ArgumentError(
                f"{what} has {value}, which {narrowed}, what JAX arrays of {array.dtype} are without jax_enable_x64, "
                f"cannot hold ({limits.min} to {limits.max})"
            )


def _strengthen(args: Sequence[Any], *, keep_floats: bool) -> tuple[Any, ...]:
    """Cast what is weakly typed, as a Python scalar that was traced is, to the common dtype of what is not."""
    strong = [arg.dtype for arg in args if not is_constant(arg) and not _is_weak(arg)]
    if not strong or not any(_is_weak(arg) or type(arg) is float for arg in args):
        return tuple(args)
    dtype = jnp.result_type(*strong)
    return tuple(arg if keep_floats and type(arg) is float else _cast_weak(arg, dtype) for arg in args)


def _cast_weak(arg: Any, dtype: np.dtype[Any]) -> Any:
    if type(arg) is float and _is_short_float(dtype):  # which NumPy would promote to float32
        return np.asarray(arg, dtype)
    return arg.astype(jnp.result_type(dtype, arg)) if _is_weak(arg) else arg


def _is_weak(arg: Any) -> bool:
    return isinstance(arg, jax.Array) and arg.weak_type


def _is_short_float(dtype: np.dtype[Any]) -> bool:
    """Tell bfloat16 and its like, for which NumPy knows no weak scalars."""
    return dtype.kind == "V" and bool(jnp.issubdtype(dtype, np.floating))
