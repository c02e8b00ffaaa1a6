"""One array to the dtype that was declared: `cast` follows NumPy's ``same_kind`` and loses nothing in silence.

In: an array that a kernel returned, a NumPy dtype, words that name the output. Out: an array of that dtype, or an
error. Of arrays of any library it knows what their dtypes are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from ._errors import OutputDTypeError, OutputRangeError
from ._typing import Array, DType, Namespace

__all__ = [
    "astype",
    "cast",
    "check_range",
    "does_not_cast",
    "family",
    "library_dtype",
    "may_cast",
    "numpy_dtype",
]


def cast(array: Array, dtype: np.dtype[Any], what: str, *, weak: bool = False, found: bool = False) -> Array:
    """Return a NumPy array as `dtype`; what does not fit is refused in the name of `what`.

    Values are `weak` where they came as Python numbers, which have no dtype of their own: integers then cast to any
    that holds them, unsigned ones too. A number too large for a float becomes inf, with NumPy's warning. The dtype was
    `found` where nobody declared it.
    """
    if array.dtype == dtype:
        return array
    if weak and _are_large_integers(array, dtype):
        return _cast_large_integers(array, dtype, what, found=found)
    if not may_cast(array.dtype, dtype, weak=weak):
        raise does_not_cast(array.dtype, dtype, what, found=found)
    if family(array.dtype) == family(dtype) == "integer" and array.size:
        values = array.compressed() if isinstance(array, np.ma.MaskedArray) else array
        if values.size:
            check_range(int(values.min()), int(values.max()), dtype, what, found=found)
    if array.dtype.names and dtype.names:
        return _cast_fields(array, dtype, what, found=found)
    if any(array.dtype.kind in kinds and dtype.kind in kinds for kinds in _CUTTING_KINDS):
        return _cast_uncut(array, dtype, what, found=found)
    return array.astype(dtype)


def may_cast(source: np.dtype[Any], target: np.dtype[Any], *, weak: bool = False) -> bool:
    """Tell whether values of one dtype may become another's, if they fit."""
    if weak and source.kind in "iu" and target.kind in "iu":
        return True
    if target.kind in "SU" and source.kind not in "SU":  # same_kind would cut the text of a number
        return np.can_cast(source, target, "safe")
    return np.can_cast(_plain(source), _plain(target), "same_kind")


def check_range(low: int, high: int, dtype: np.dtype[Any], what: str, *, found: bool = False) -> None:
    """Refuse integers that an integer dtype cannot hold."""
    lowest, highest = _limits(dtype)
    if low < lowest or high > highest:
        value = _integer_text(low if low < lowest else high)
        raise OutputRangeError(
            f"{what}: kernel returned {value}, which {_named(dtype, found)} cannot hold ({lowest} to {highest})"
            f"{_cure(dtype, found)}"
        )


def does_not_cast(source: object, dtype: np.dtype[Any], what: str, *, found: bool = False) -> OutputDTypeError:
    """Return the refusal of values of one dtype where another is wanted."""
    return OutputDTypeError(
        f"{what}: kernel returned {source}, which does not cast to {_named(dtype, found)} (rule: same_kind)"
        f"{_cure(dtype, found)}"
    )


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype for a dtype of any library: itself, or the one of the same name."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        found = np.dtype(str(dtype).rpartition(".")[2])
    return found


def family(dtype: np.dtype[Any]) -> Literal["float", "complex", "integer"] | None:
    """Return which numbers a dtype has, those of ml_dtypes included, such as bfloat16 and int4; None for no numbers."""
    return _FAMILIES.get(_plain(dtype).kind)


def astype(array: Array, dtype: np.dtype[Any], xp: Namespace) -> Array:
    """Return an array of any library as a dtype that it casts to."""
    if xp is np:
        return array if array.dtype == dtype else array.astype(dtype)
    wanted = library_dtype(dtype, xp)
    return array if array.dtype == wanted else xp.astype(array, wanted)


def library_dtype(dtype: np.dtype[Any], xp: Namespace) -> DType:
    """Return the library's own dtype of the same name; its namespace may know it by another, such as ``bool_``."""
    return dtype if xp is np else getattr(xp, dtype.name, dtype)


_FAMILIES: Final[Mapping[str, Literal["float", "complex", "integer"]]] = {
    "f": "float",
    "c": "complex",
    "i": "integer",
    "u": "integer",
}

_CUTTING_KINDS: Final = ("SU", "M", "m")
"""Kinds between which ``same_kind`` cuts: text to fewer characters, times to a coarser unit or past its limits."""


_NUMBERS_THAT_FIT: Final = {
    "i": frozenset({bool, int}),
    "u": frozenset({bool, int}),
    "f": frozenset({bool, int, float}),
    "c": frozenset({bool, int, float, complex}),
}
"""Python's numbers that a dtype of each kind takes."""


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest integer of a dtype; of int4 and its like by their name."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    n_bits = int(dtype.name.lstrip("uint"))
    return (0, 2**n_bits - 1) if dtype.name.startswith("u") else (-(2 ** (n_bits - 1)), 2 ** (n_bits - 1) - 1)


def _integer_text(value: int) -> str:
    """Write an integer; Python itself refuses to write one of thousands of digits."""
    return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"


def _named(dtype: np.dtype[Any], found: bool) -> str:
    return str(dtype) if found else f"the declared {dtype}"


def _cure(dtype: np.dtype[Any], found: bool) -> str:
    return f"; {dtype} is what a call on made-up values gave: pass output_dtypes" if found else ""


def _are_large_integers(array: Array, dtype: np.dtype[Any]) -> bool:
    """Tell Python's numbers of which NumPy makes objects, since some are integers of more than 64 bits."""
    if array.dtype.kind != "O" or dtype.kind not in _NUMBERS_THAT_FIT:
        return False
    kinds = set(map(type, array.flat)) - _NUMBERS_THAT_FIT[dtype.kind]
    return all(issubclass(kind, np.generic) and may_cast(np.dtype(kind), dtype, weak=True) for kind in kinds)


def _cast_large_integers(array: Array, dtype: np.dtype[Any], what: str, *, found: bool) -> Array:
    if dtype.kind in "iu":
        check_range(min(array.flat, default=0), max(array.flat, default=0), dtype, what, found=found)
        return array.astype(dtype)
    try:
        return cast(array.astype(np.result_type(dtype, np.float64)), dtype, what)
    except OverflowError:
        raise OutputRangeError(
            f"{what}: kernel returned an integer that {_named(dtype, found)} cannot hold{_cure(dtype, found)}"
        ) from None


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of the same kind in place of bfloat16, int4 and their like, which NumPy files under void."""
    if dtype.kind != "V" or dtype.names or dtype.type is np.void:
        return dtype
    return np.dtype(np.int8 if "int" in dtype.name else np.float32)


def _cast_fields(array: Array, dtype: np.dtype[Any], what: str, *, found: bool) -> Array:
    """Cast every field by itself, so that each is checked."""
    result = np.ma.empty(array.shape, dtype) if isinstance(array, np.ma.MaskedArray) else np.empty(array.shape, dtype)
    for source, target in zip(array.dtype.names or (), dtype.names or (), strict=True):
        result[target] = cast(array[source], dtype[target].base, f"{what}, field {target}", found=found)
    return result


def _cast_uncut(array: Array, dtype: np.dtype[Any], what: str, *, found: bool) -> Array:
    """Cast, and compare values with what is left of them on the way back: it finds times past a unit's limits too."""
    try:
        result = array.astype(dtype)
        kept = result.astype(array.dtype) == array
    except OverflowError:  # NumPy from 2.5 on; earlier ones wrap around
        result, kept = array, np.array(False)
    if array.dtype.kind in "mM":
        kept = kept | (np.isnat(array) & np.isnat(result))
    if not np.ma.filled(kept, True).all():
        raise OutputRangeError(
            f"{what}: kernel returned {array.dtype} values that {_named(dtype, found)} would cut{_cure(dtype, found)}"
        )
    return result
