"""What `core_chunks` takes beyond words: how a core dim in several chunks is worked on piece by piece.

Knows kernels, signatures and the block engine; no array library beyond what those know, no chunks and no graphs.
"""

from __future__ import annotations

from typing import Any

from .._errors import OptionError
from .._kernel import Kernel, function_name
from .._options import Options
from .._signature import Signature
from ._concat import concat
from ._counting import count_chunk_calls
from ._overlap import Halo, Overlap
from ._piecewise import EmptyPiece, PiecewiseKernel, ReductionRunner, State, in_parts, piecewise_kernel
from ._reduction import Reduction
from ._scan import Scan
from ._scan_kernel import Carry, ScanKernel, scanned

__all__ = [
    "Carry",
    "EmptyPiece",
    "Halo",
    "Overlap",
    "PiecewiseKernel",
    "Reduction",
    "ReductionRunner",
    "Scan",
    "ScanKernel",
    "State",
    "concat",
    "count_chunk_calls",
    "in_pieces",
    "piecewise_kernel",
]


def in_pieces(kernel: Kernel, signature: Signature, options: Options) -> Kernel:
    """Return the kernel that runs on whole core dims, if the rule for pieces fits the signature."""
    rule = options.core_chunks
    if options.compute_dtype is not None and not isinstance(rule, str | Overlap):
        raise OptionError(
            f"compute_dtype={str(options.compute_dtype)!r} is for kernels, and core_chunks={_rule_name(rule)} has "
            f"states between its parts, which would be cast from piece to piece: cast in the parts"
        )
    if options.fills_outputs and isinstance(rule, Reduction | Scan):
        raise OptionError(
            f"fills_outputs=True is for a kernel, and core_chunks={_rule_name(rule)} runs parts that return what "
            f"they know"
        )
    if isinstance(rule, Reduction):
        return in_parts(kernel, signature, options)
    if isinstance(rule, Scan):
        return scanned(kernel, signature, options)
    if isinstance(rule, Overlap):
        rule.halos(signature, options.output_sizes)
    return kernel


def _rule_name(rule: Any) -> str:
    return type(rule).__name__ if isinstance(rule, Reduction | Scan) else function_name(rule)
