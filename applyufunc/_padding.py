"""Output dims of which only a bound is known, filled up to it.

In: one array that a kernel returned, the operand that it has to be. Out: the array with its bounded dims padded.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ._casting import astype, numpy_dtype
from ._errors import OptionError, OutputShapeError
from ._expectation import Expectation
from ._option_values import UpTo
from ._plan import Operand
from ._typing import Array, DType

__all__ = ["pad"]


def pad(
    array: Array,
    output: Operand,
    declared: np.dtype[Any] | None,
    found: DType,
    what: str,
    expected: Expectation,
) -> Array:
    """Fill the output dims that are known by a bound up to it."""
    bounds = dict(expected.plan.bounds)
    if not bounds or array.ndim < output.n_core:
        return array
    for axis, label in enumerate(output.dims[output.n_loop :], start=array.ndim - output.n_core):
        if label in bounds:
            name = f"{what}, core dimension {label}"
            dtype = _filler_dtype(bounds[label].fill_value, declared, numpy_dtype(found), name)
            array = _pad_axis(array, axis, bounds[label], dtype, name, expected)
    return array


def _filler_dtype(fill: Any, declared: np.dtype[Any] | None, found: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return the dtype of the padding: the output's, or a wider one for the fill value where none is declared."""
    if _holds(declared or found, fill):
        return declared or found
    if declared is None and np.asarray(fill).dtype.kind in _FILLS.get(found.kind, "") + "c":
        wider = np.result_type(found, np.asarray(fill).dtype)
        if _holds(wider, fill):
            return wider
    raise OptionError(f"{what}: UpTo has fill_value {fill!r}, which the dtype {declared or found} cannot hold")


def _holds(dtype: np.dtype[Any], fill: Any) -> bool:
    """Tell whether a dtype has the fill value itself, or a float close to it."""
    source = np.asarray(fill).dtype
    if dtype.kind == "O":
        return True
    if source.kind not in _FILLS.get(dtype.kind, ""):
        return dtype == source
    try:
        with np.errstate(all="ignore"):
            filled = np.full((), fill, dtype)
    except (TypeError, ValueError, OverflowError):  # a NaN as an integer, a number out of range
        return False
    if dtype.kind in "fcV":
        return bool(np.isfinite(filled) == np.isfinite(fill))
    return (dtype.kind == "M" and source.kind == "U") or bool(filled == fill or (filled != filled and fill != fill))  # noqa: PLR0124


def _pad_axis(array: Array, axis: int, upto: UpTo, dtype: np.dtype[Any], what: str, expected: Expectation) -> Array:
    size = array.shape[axis]
    if size > upto.bound:
        raise OutputShapeError(f"{what}: expected at most {upto.bound} (UpTo), kernel returned {size}")
    shape = (*array.shape[:axis], upto.bound - size, *array.shape[axis + 1 :])
    filler = np.full(shape, upto.fill_value, dtype)
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.concatenate([array, filler], axis=axis)  # type: ignore[no-untyped-call]
    if expected.xp is np:
        return np.concat([array, filler], axis=axis)
    common = np.result_type(numpy_dtype(array.dtype), dtype)
    parts = [astype(part, common, expected.xp) for part in (array, expected.xp.asarray(filler, **expected.placement))]
    return expected.xp.concat(parts, axis=axis)


_FILLS: Final = {
    "b": "biu",
    "i": "biuf",
    "u": "biuf",
    "f": "biuf",
    "c": "biufc",
    "V": "biuf",
    "S": "S",
    "U": "U",
    "m": "m",
    "M": "MU",
}
"""Kinds of fill values that can be cast to a dtype of each kind."""
