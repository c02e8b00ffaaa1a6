"""Apply a function on small arrays to large ones, by a gufunc signature.

On arrays of NumPy, Dask, cubed, JAX, PyTorch, sparse and other array-API libraries, and on xarray objects.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
from ._gufunc import GUFunc, gufunc
from ._option_values import UpTo
from ._signature import CoreDim, Signature

if TYPE_CHECKING:
    from . import reductions
    from ._apply import apply_ufunc, explain
    from ._core_chunks import Overlap, Reduction, Scan
    from ._explanation import Explanation
    from ._failures import reraise
    from ._lazy_apply import lazy_apply
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


def __getattr__(name: str) -> Any:
    """Return what is imported when it is first asked for: all but what it takes to decorate a kernel."""
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_IMPORTED_LATER[name], __name__)
    value = globals()[name] = module if name == "reductions" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_IMPORTED_LATER: Final = {
    "Explanation": "._explanation",
    "Overlap": "._core_chunks",
    "Reduction": "._core_chunks",
    "Scan": "._core_chunks",
    "allow_transfer": "._transfer",
    "apply_ufunc": "._apply",
    "explain": "._apply",
    "lazy_apply": "._lazy_apply",
    "reductions": ".reductions",
    "reraise": "._failures",
}
