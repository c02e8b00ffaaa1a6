"""What the door asks of Dask arrays: conversion, shapes, dtypes, blocks to try a kernel on, and where they come from.

In: arguments as they were given. Out: Dask arrays as they are, and NumPy arrays for all that is on the host; those
become part of a graph when it is built, where the other arguments' chunks are known. Computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import array_api_compat
import numpy as np

from ..._arguments import is_constant
from ..._errors import ArgumentError
from ..._kernel import Kernel
from ..._options import Options
from ..._typing import Array, Namespace, Shape
from .._host import as_numpy, check_transfer, library_name
from . import _movement
from ._tasks import as_type_of

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "from_host",
    "front_end",
    "is_host",
    "is_lazy",
    "namespace",
    "richest_meta",
    "shape",
]


def convert(args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
    """Return Dask arrays as they are, all else as NumPy arrays; blocks that may not be moved are refused."""
    if kernel.arrays == "numpy":
        for position, arg in enumerate(args):
            if _is_dask(arg):
                check_transfer(_meta_of(arg), options.allow_transfer, f"argument {position}")
    converted = tuple(_convert(arg, position) for position, arg in enumerate(args))
    _refuse_masked({position: _meta_of(arg) for position, arg in enumerate(converted) if not is_constant(arg)})
    return converted


def namespace(array: Array) -> Namespace:
    """Return a module with the functions that move axes."""
    return np if is_host(array) else _movement


def shape(array: Array) -> Shape:
    """Return the shape, None for a size that Dask writes as NaN."""
    return tuple(None if math.isnan(size) else int(size) for size in array.shape)


def is_lazy(arrays: Sequence[Array]) -> bool:
    """Tell that results are computed later."""
    return True


def as_block(array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array as the type that the blocks of `arrays` have."""
    return as_type_of(array, richest_meta(arrays))


def block_kind(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return the type of those blocks."""
    return (type(richest_meta(arrays)),)


def front_end(arrays: Sequence[Array]) -> Namespace:
    """Return the module that the Dask arrays are from: `dask.array`, in either of its modes, or `dask_array`."""
    array = next(array for array in arrays if not is_host(array))
    if array_api_compat.is_dask_array(array):
        import dask.array

        return cast(Namespace, dask.array)
    import dask_array

    return cast(Namespace, dask_array)


def is_host(array: Array) -> bool:
    """Tell an argument that came from the host: part of the graph in one piece, of which every block sees its part."""
    return isinstance(array, np.ndarray)


def from_host(da: Namespace, array: Array) -> Array:
    """Return a host array as a Dask array of one block."""
    return da.from_array(array, chunks=array.shape)


def richest_meta(arrays: Sequence[Array]) -> Array:
    """Return the first meta that is more than a plain NumPy array, such as a sparse or a masked one; else the first."""
    metas = [_meta_of(array) for array in arrays]
    return next((meta for meta in metas if type(meta) is not np.ndarray), metas[0])


def _is_dask(arg: Any) -> bool:
    """Tell an array of any front end; what else has a graph was refused before."""
    return hasattr(arg, "__dask_graph__")


def _meta_of(array: Array) -> Array:
    """Return an empty array of the type of an array's blocks."""
    return array if is_host(array) else array._meta


def _refuse_masked(metas: Mapping[int, Array]) -> None:
    """Refuse masked blocks beside those of a library that keeps no masks."""
    foreign = next((meta for meta in metas.values() if not isinstance(meta, np.ndarray)), None)
    for position, meta in metas.items():
        if foreign is not None and isinstance(meta, np.ma.MaskedArray):
            raise ArgumentError(
                f"argument {position} is a masked array, whose mask {library_name(foreign)} arrays cannot keep: fill "
                f"it first"
            )


def _convert(arg: Any, position: int) -> Any:
    return arg if is_constant(arg) or _is_dask(arg) else as_numpy(arg, f"argument {position}")
