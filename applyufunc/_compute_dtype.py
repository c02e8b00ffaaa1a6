"""The dtype that a kernel computes in, where it is not that of the arguments: there, and back again.

In: arrays of any library that a kernel will get, or has returned. Out: the same, cast. A dtype belongs to a family, of
floats, complex numbers or integers, and only arrays of the same family are cast. Knows no kernels and no shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._casting import family, numpy_dtype
from ._errors import ArgumentError, OptionError
from ._typing import DType

__all__ = ["dtype_for_kernel", "dtype_of_results", "read_compute_dtype"]


def read_compute_dtype(value: DType | None) -> np.dtype[Any] | None:
    """Return the option as a dtype of numbers, of one width on every backend."""
    if value is None:
        return None
    if any(value is kind for kind in (bool, int, float, complex)):
        raise OptionError(
            f"compute_dtype takes a dtype of a certain width, such as 'float64', got {value.__name__}, of which every "
            f"array library has its own"
        )
    try:
        dtype = numpy_dtype(value)
    except (TypeError, ValueError):
        raise OptionError(f"compute_dtype takes a dtype, got {value!r}") from None
    if family(dtype) is None:
        raise OptionError(f"compute_dtype takes a dtype of floats, complex numbers or integers, got {dtype}")
    return dtype


def dtype_for_kernel(own: DType, compute: np.dtype[Any], what: str) -> np.dtype[Any] | None:
    """Return the dtype in which a kernel gets an array of dtype `own`; None where it stays as it is."""
    dtype = numpy_dtype(own)
    if family(dtype) != family(compute) or dtype == compute:
        return None
    if family(compute) == "integer" and not np.can_cast(dtype, compute, "safe"):
        raise ArgumentError(
            f"{what} has dtype {dtype}, and the compute_dtype {compute} does not hold all integers of it"
        )
    return compute


def dtype_of_results(output: DType, inputs: Iterable[DType], compute: np.dtype[Any], what: str) -> np.dtype[Any] | None:
    """Return what the kernel's output would have had if nothing had been cast; None where it stays as it is."""
    if family(numpy_dtype(output)) != family(compute):
        return None
    own = list(dict.fromkeys(dtype for dtype in map(numpy_dtype, inputs) if family(dtype) == family(compute)))
    return _common(own, what) if own else None


def _common(dtypes: Sequence[np.dtype[Any]], what: str) -> np.dtype[Any]:
    try:
        return np.result_type(*dtypes)
    except TypeError:
        named = " and ".join(map(str, dtypes))
        raise OptionError(
            f"{what}: with compute_dtype it goes back to the dtype of the arguments, and {named} have no common one: "
            f"pass output_dtypes"
        ) from None
