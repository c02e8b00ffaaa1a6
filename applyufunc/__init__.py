"""Apply a function on small arrays to large ones, by a gufunc signature, on NumPy, Dask, JAX and array-API arrays."""

from . import reductions
from ._apply import apply_ufunc, explain
from ._core_chunks import Overlap, Reduction, Scan
from ._errors import (
    AlignmentError,
    ApplyUfuncError,
    ApplyUfuncWarning,
    ArgumentError,
    AxisError,
    DimensionError,
    KernelError,
    OptionError,
    OutputDTypeError,
    OutputRangeError,
    OutputShapeError,
    SignatureError,
    TransferError,
    UnknownDTypeError,
    UnknownSizeError,
)
from ._explanation import Explanation
from ._failures import reraise
from ._gufunc import GUFunc, gufunc
from ._lazy_apply import lazy_apply
from ._option_values import UpTo
from ._signature import CoreDim, Signature
from ._transfer import allow_transfer

__all__ = [
    "AlignmentError",
    "ApplyUfuncError",
    "ApplyUfuncWarning",
    "ArgumentError",
    "AxisError",
    "CoreDim",
    "DimensionError",
    "Explanation",
    "GUFunc",
    "KernelError",
    "OptionError",
    "OutputDTypeError",
    "OutputRangeError",
    "OutputShapeError",
    "Overlap",
    "Reduction",
    "Scan",
    "Signature",
    "SignatureError",
    "TransferError",
    "UnknownDTypeError",
    "UnknownSizeError",
    "UpTo",
    "allow_transfer",
    "apply_ufunc",
    "explain",
    "gufunc",
    "lazy_apply",
    "reductions",
    "reraise",
]

__version__ = "0.1.0"
