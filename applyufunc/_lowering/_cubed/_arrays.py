"""What the door asks of cubed arrays: conversion, shapes, dtypes, blocks to try a kernel on.

In: arguments as they were given. Out: cubed arrays as they are, and NumPy arrays for all that is on the host; those
become cubed arrays when the chunks of the others are known. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import cubed.array_api
import numpy as np
import zarr.dtype
from cubed.backend_array_api import numpy_array_to_backend_array

from ..._arguments import is_constant
from ..._errors import ArgumentError
from ..._kernel import Kernel
from ..._options import Options
from ..._typing import Array, Namespace, Shape
from .._host import as_numpy, check_transfer

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "is_host",
    "is_lazy",
    "is_storable",
    "namespace",
    "shape",
]


def convert(args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
    """Return cubed arrays as they are, all else as NumPy arrays; blocks that may not be moved are refused."""
    if kernel.arrays == "numpy":
        for position, arg in enumerate(args):
            if _is_cubed(arg):
                check_transfer(_backend_array(np.empty(0)), options.allow_transfer, f"argument {position}")
    return tuple(_convert(arg, position) for position, arg in enumerate(args))


def namespace(array: Array) -> Namespace:
    """Return the module with the functions that move axes."""
    return np if is_host(array) else cast(Namespace, cubed.array_api)


def shape(array: Array) -> Shape:
    """Return the shape; cubed knows every size."""
    return tuple(array.shape)


def is_lazy(arrays: Sequence[Array]) -> bool:
    """Tell that results are computed later."""
    return True


def as_block(array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array in the library that cubed has its blocks in."""
    return _backend_array(array)


def block_kind(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return the type of those blocks."""
    return (type(_backend_array(np.empty(0))),)


def is_host(array: Array) -> bool:
    """Tell an argument that came from the host."""
    return isinstance(array, np.ndarray)


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Tell whether cubed can put arrays of a dtype into its storage, where those between two operations are."""
    try:
        zarr.dtype.parse_dtype(dtype, zarr_format=3)
    except ValueError:
        return False
    return dtype.names is None  # of which cubed writes each field from an array of its own


def _is_cubed(arg: Any) -> bool:
    return isinstance(arg, cubed.Array)


def _backend_array(array: np.ndarray[Any, Any]) -> Array:
    """Return an array as cubed hands it to the functions that it runs: NumPy's, unless the environment says another."""
    return numpy_array_to_backend_array(array)


def _convert(arg: Any, position: int) -> Any:
    if is_constant(arg) or _is_cubed(arg):
        return arg
    array = as_numpy(arg, f"argument {position}")
    if not is_storable(array.dtype):
        raise ArgumentError(f"argument {position} has dtype {array.dtype}, which cubed arrays cannot hold")
    return array
