"""PyTorch's dtypes and NumPy's, which have the same names where both have them.

In: dtypes of either, Python's types. Out: the other's. Knows no shapes and no values.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch

from ..._casting import numpy_dtype
from ..._errors import ArgumentError, OptionError, OutputDTypeError
from ..._typing import Array

__all__ = ["as_bits", "check_numpy_has", "default_dtype", "is_smooth", "narrow", "torch_dtype"]


@cache
def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return PyTorch's dtype of the same name; None where it has none."""
    found = getattr(torch, dtype.name, None)
    return found if isinstance(found, torch.dtype) else None


def default_dtype(kind: type, arrays: Sequence[Array]) -> np.dtype[Any]:
    """Return the dtype that PyTorch takes for Python's bool, int, float or complex."""
    if kind in (bool, int):
        return np.dtype(kind)
    floats = torch.get_default_dtype()
    return numpy_dtype(floats if kind is float else floats.to_complex())


def narrow(dtype: np.dtype[Any], *, declared: bool) -> np.dtype[Any]:
    """Return `dtype` in native byte order; one that PyTorch does not have is refused."""
    if torch_dtype(dtype) is not None:
        return dtype.newbyteorder("=")
    if declared:
        raise OptionError(f"output_dtypes has {dtype}, which torch arrays cannot hold")
    raise OutputDTypeError(f"kernel returned {dtype}, which torch arrays cannot hold: pass output_dtypes")


def check_numpy_has(dtype: torch.dtype, what: str) -> None:
    """Refuse a dtype that NumPy does not have, by itself or by ml_dtypes, which is imported for it."""
    name = str(dtype).removeprefix("torch.")
    if name not in _NUMPYS and not (name.startswith(_SHORT_FLOATS) and _import_short_floats()):
        cure = (
            "install ml_dtypes, which has it for NumPy, or cast it first"
            if name.startswith(_SHORT_FLOATS)
            else "cast it"
        )
        raise ArgumentError(f"{what} has dtype {name}, which NumPy arrays cannot hold: {cure}")


def as_bits(dtype: torch.dtype) -> torch.dtype | None:
    """Return the integers as which a tensor goes to NumPy and back, bit by bit; None where it goes as it is."""
    return _BITS[dtype.itemsize] if str(dtype).removeprefix("torch.").startswith(_SHORT_FLOATS) else None


def is_smooth(dtype: torch.dtype) -> bool:
    """Tell a dtype that has derivatives."""
    return bool(dtype.is_floating_point or dtype.is_complex)


@cache
def _import_short_floats() -> bool:
    """Let NumPy know the short floats by their names; tell whether it does."""
    try:
        importlib.import_module("ml_dtypes")
    except ImportError:
        return False
    return True


_NUMPYS: Final = frozenset({"bool", *(np.dtype(code).name for code in "bhilqBHILQefdFD")})

_SHORT_FLOATS: Final = ("bfloat16", "float8_")

_BITS: Final = {1: torch.uint8, 2: torch.int16}  # by bytes
