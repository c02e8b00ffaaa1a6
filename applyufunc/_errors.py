"""The error family: every error of this library is an `ApplyUfuncError` and the builtin that NumPy would raise.

Messages are written where the error is raised. Every class takes one message, so that each pickles. Warnings are given
here, at the line outside of the package that called it.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Final

__all__ = [
    "AlignmentError",
    "ApplyUfuncError",
    "ApplyUfuncWarning",
    "ArgumentError",
    "AxisError",
    "DimensionError",
    "KernelError",
    "OptionError",
    "OutputDTypeError",
    "OutputRangeError",
    "OutputShapeError",
    "SignatureError",
    "TransferError",
    "UnknownDTypeError",
    "UnknownSizeError",
    "warn_caller",
]


class ApplyUfuncError(Exception):
    """The base of every error that this library raises on its own account."""


class SignatureError(ApplyUfuncError, ValueError):
    """A signature that does not follow the grammar, or that does not fit what it is used for."""


class OptionError(ApplyUfuncError, TypeError):
    """A keyword that nobody knows, that two know, or that has a value it cannot have."""


class ArgumentError(ApplyUfuncError, TypeError):
    """An argument of a type that cannot be taken, too many or too few arguments, or a mixture of array libraries."""


class DimensionError(ApplyUfuncError, ValueError):
    """Shapes that do not fit the signature or each other."""


class AxisError(ApplyUfuncError, ValueError, IndexError):
    """An axis that the array does not have, or that is given twice; as builtins, what NumPy's `AxisError` is."""


class AlignmentError(ApplyUfuncError, ValueError):
    """Chunks that cannot be brought together as the options demand."""


class UnknownSizeError(ApplyUfuncError, ValueError):
    """A size that has to be known before the kernel runs, and is not."""


class UnknownDTypeError(ApplyUfuncError, TypeError):
    """Output dtypes that could not be found without `output_dtypes`."""


class TransferError(ApplyUfuncError, TypeError):
    """An array that would have to be moved to the host or densified without leave."""


class OutputShapeError(ApplyUfuncError, ValueError):
    """A kernel that returned another number of outputs, or another shape, than its signature declares."""


class OutputDTypeError(ApplyUfuncError, TypeError):
    """A kernel that returned a dtype that does not cast to the declared one."""


class OutputRangeError(ApplyUfuncError, OverflowError):
    """A kernel that returned values that the declared dtype cannot hold."""


class KernelError(ApplyUfuncError, RuntimeError):
    """A kernel's exception where only its text can travel (inside ``jax.jit``)."""


class ApplyUfuncWarning(UserWarning):
    """A result that is right, at a cost that the caller may not expect."""


def warn_caller(message: str, category: type[Warning] = ApplyUfuncWarning) -> None:
    """Warn, as from the first line outside of the package, and of xarray between two of its calls, that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE) or str(frame.f_globals.get("__name__")).startswith("xarray.")
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_PACKAGE: Final = os.path.dirname(__file__) + os.sep

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type):  # tracebacks and pickles name what users import
        _value.__module__ = __package__
