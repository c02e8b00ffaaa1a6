"""The outputs' dtypes as the caller declares them: one for all, one for each, or a callable of the inputs' dtypes.

In: what was declared, and the inputs' dtypes. Out: one NumPy dtype per output. Knows no backend but by its default
dtypes, and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ._casting import numpy_dtype
from ._errors import OptionError
from ._typing import DType

__all__ = ["InputDType", "check_declared", "declared_dtypes"]

InputDType: TypeAlias = Any
"""A NumPy dtype, the Python type of a weak scalar, or None for a None argument."""


def declared_dtypes(
    output_dtypes: Any,
    input_dtypes: Sequence[InputDType],
    nout: int,
    default_dtype: Callable[[type], np.dtype[Any]],
) -> tuple[np.dtype[Any], ...]:
    """Return the NumPy dtype of every output as the caller declared it: one for all, one per output, or a callable."""
    if _is_rule(output_dtypes):
        output_dtypes = _called_rule(output_dtypes, [dtype for dtype in input_dtypes if dtype is not None])
    each = output_dtypes if isinstance(output_dtypes, (list, tuple)) else (output_dtypes,) * nout
    if len(each) != nout:
        raise OptionError(f"output_dtypes has {len(each)} dtype(s), expected {nout}: one per output, or one for all")
    return tuple(_read_dtype(dtype, default_dtype) for dtype in each)


def check_declared(output_dtypes: Any, nout: int) -> None:
    """Refuse what is wrong with declared dtypes whatever the inputs are; a name may belong to a library to come."""
    if output_dtypes is None or _is_rule(output_dtypes):
        return
    each = output_dtypes if isinstance(output_dtypes, (list, tuple)) else (output_dtypes,)
    known = [np.dtype(bool) if _may_be_registered(dtype) else dtype for dtype in each]
    declared_dtypes(known if each is output_dtypes else known[0], (), nout, np.dtype)


def _is_rule(output_dtypes: Any) -> bool:
    """Tell a callable of dtypes from a dtype that can be called, as types can."""
    if isinstance(output_dtypes, (type, np.dtype)) or not callable(output_dtypes):
        return False
    return not hasattr(output_dtypes, "dtype")  # jax.numpy.float32 and its like


def _called_rule(rule: Callable[..., Any], dtypes: Sequence[InputDType]) -> Any:
    try:
        return rule(*dtypes)
    except Exception as error:
        error.add_note(f"in the callable given as output_dtypes, called with {', '.join(map(str, dtypes))}")
        raise


def _read_dtype(dtype: DType, default_dtype: Callable[[type], np.dtype[Any]]) -> np.dtype[Any]:
    if any(dtype is kind for kind in (bool, int, float, complex)):  # by identity: numpy.dtype("f8") == float
        return default_dtype(dtype)
    if dtype is None:
        raise OptionError("output_dtypes has None for one output, expected a dtype")
    try:
        found = numpy_dtype(dtype)
    except (TypeError, ValueError):
        raise OptionError(f"output_dtypes has {dtype!r}, which is no dtype") from None
    if found in (np.dtype("M8"), np.dtype("m8")):
        raise OptionError(f"output_dtypes has {found} without a unit, expected one such as '{found}[s]'")
    return found


def _may_be_registered(dtype: DType) -> bool:
    """Tell the name of a number's dtype, such as ``bfloat16``, which NumPy knows once ml_dtypes is imported."""
    name = str(dtype).rpartition(".")[2]
    kinds = ("bfloat", "float", "int", "uint", "complex")
    return any(name.startswith(kind) and name[len(kind) : len(kind) + 1].isdecimal() for kind in kinds)
