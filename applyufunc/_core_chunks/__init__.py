"""What `core_chunks` takes beyond words: how a core dim in several chunks is worked on piece by piece.

Knows kernels, signatures and the block engine; no array library beyond what those know, no chunks and no graphs.
"""

from ._piecewise import EmptyPiece, PiecewiseKernel, ReductionRunner, State, in_pieces, piecewise_kernel
from ._reduction import Reduction

__all__ = ["EmptyPiece", "PiecewiseKernel", "Reduction", "ReductionRunner", "State", "in_pieces", "piecewise_kernel"]
