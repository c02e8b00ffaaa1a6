"""`Scan`: a cumulative kernel, which goes along a core dim and carries something from piece to piece.

In: a function for one piece, what it carries, and what it starts with. Out: a frozen value, checked. Runs nothing.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from .._arguments import read_only
from .._errors import OptionError
from .._option_values import CoreChunksRule, SizeRule
from .._signature import CoreDim, Signature
from .._typing import Array, KernelFunction
from ._kept_dims import check_kept_dim, only_kept_dim

__all__ = ["Scan"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)  # eq: arrays do not compare
class Scan(CoreChunksRule):
    """
    A cumulative kernel, for `core_chunks`: an element of the outputs depends on those before it through a carry.

    The step gets a piece of each argument and the carry that the piece before it left, and returns a piece of each
    output and the carry for the next: ``step(*pieces, *carry) -> (*outputs, *carry)``. On Dask a core dimension in
    several chunks stays so, and the steps along it run one after the other, in parallel over loop blocks. On arrays of
    other libraries, and on one chunk, the same step runs once on the whole, so that results agree.

    The step follows the conventions of kernels: core dimensions last, loop dimensions first, inputs read-only; with
    ``vectorize=True`` it takes one item. It gets the kernel's keywords, and never a piece without elements.

    Parameters
    ----------
    step : callable, optional
        The function for one piece. By default the kernel itself is the step, and takes the carry after its arguments.
        With a step given, every backend runs it in place of the kernel.
    initial : array, scalar, tuple or callable
        The carry before the first piece: a value for each of its arrays (a tuple where there are several), or a
        function ``initial(*pieces) -> carry`` that gets the first piece of each argument, as the step does, and those
        keywords that it has parameters for.
    carry : str, default "()"
        The core dimensions of each array of the carry, as a signature writes them: ``"(k)"``, ``"(),()"``.
    dim : str, optional
        The core dimension to go along; by default the only one that an input and all outputs have.

    Raises
    ------
    OptionError
        If a value is none that a parameter takes.
    SignatureError
        If `carry` does not follow the grammar.

    Notes
    -----
    An array of the carry keeps the dtype that it starts with: one of Python's numbers is NumPy's dtype of its kind.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> @au.gufunc("(n)->(n)", output_dtypes=float, core_chunks=au.Scan(initial=0.0))
    ... def running_total(x, total):
    ...     sums = np.cumsum(x, axis=-1) + total[..., None]
    ...     return sums, sums[..., -1]
    >>> running_total(np.ones((2, 3)))
    array([[1., 2., 3.],
           [1., 2., 3.]])
    """

    step: KernelFunction | None = None
    _: KW_ONLY
    initial: Any
    carry: str = "()"
    dim: str | None = None

    def __post_init__(self) -> None:
        if self.step is not None and not callable(self.step):
            raise OptionError(f"Scan: step takes a function, got {self.step!r}")
        if self.dim is not None and not isinstance(self.dim, str):
            raise OptionError(f"Scan: dim takes the name of a core dimension, got {self.dim!r}")
        _check_carry(self.carry, self.carry_dims)
        if not callable(self.initial):
            object.__setattr__(self, "initial", _initial_values(self.initial, self.carry_dims))

    @property
    def carry_dims(self) -> tuple[tuple[CoreDim, ...], ...]:
        """The core dimensions of each array of the carry."""
        if not isinstance(self.carry, str):
            raise OptionError(f"Scan: carry takes text such as '()' or '(k)', got {self.carry!r}")
        return Signature.parse(f"{self.carry}->()").inputs

    def find_dim(self, signature: Signature, output_sizes: tuple[tuple[str, SizeRule], ...] = ()) -> str:
        """Return the dim that a kernel with this signature goes along; refuse one that it does not fit."""
        dim = only_kept_dim(signature, "Scan") if self.dim is None else self.dim
        check_kept_dim(dim, signature, output_sizes, "Scan")
        if any(dim == carried.label for dims in self.carry_dims for carried in dims):
            raise OptionError(f"Scan: carry {self.carry!r} has core dimension {dim!r}, along which it is carried")
        return dim


def _check_carry(text: str, carry: tuple[tuple[CoreDim, ...], ...]) -> None:
    if not carry:
        raise OptionError("Scan: carry is empty, expected the core dimensions of at least one array, such as '()'")
    if any(dim.optional or dim.stretches for dims in carry for dim in dims):
        raise OptionError(f"Scan: carry takes names and fixed sizes alone, got {text!r}")


def _initial_values(initial: Any, carry: tuple[tuple[CoreDim, ...], ...]) -> tuple[Array, ...]:
    values = initial if isinstance(initial, tuple) else (initial,)
    if len(values) != len(carry):
        raise OptionError(
            f"Scan: initial has {len(values)} value(s), expected {len(carry)}: one per array of the carry"
        )
    pairs = enumerate(zip(values, carry, strict=True))
    return tuple(_initial_value(value, dims, position) for position, (value, dims) in pairs)


def _initial_value(value: Any, dims: tuple[CoreDim, ...], position: int) -> Array:
    if hasattr(value, "__dask_graph__"):
        raise OptionError(f"Scan: initial value {position} is lazy: pass it as an argument, and initial as a function")
    array = read_only(np.array(value))
    written = ",".join(map(str, dims))
    if array.ndim != len(dims) or any(d.size not in (None, s) for d, s in zip(dims, array.shape, strict=True)):
        raise OptionError(
            f"Scan: initial value {position} has shape {array.shape}, expected the core dimensions ({written}) alone"
        )
    return array
