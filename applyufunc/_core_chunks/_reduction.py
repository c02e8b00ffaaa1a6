"""`Reduction`: a kernel in three parts, so that a core dim can be reduced piece by piece.

In: three functions, the signature of the first, what else is to be known of them. Out: a frozen value, checked, with
the signatures of all three. Runs none of them, and knows no arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from .._errors import OptionError, SignatureError
from .._kernel import parameters_of
from .._option_values import CoreChunksRule
from .._signature import CoreDim, Signature
from .._typing import KernelFunction

__all__ = ["Reduction", "aggregate_signature", "check_kernel", "combine_signature"]


@dataclass(frozen=True, slots=True)
class Reduction(CoreChunksRule):
    """
    A kernel in three parts, for `core_chunks`: core dimensions are reduced where their chunks lie.

    `chunk` makes a state from a piece of the arguments, `combine` makes one state from two, `aggregate` makes the
    outputs from the last state. Every backend runs these three in place of the kernel, so that results agree; Dask runs
    `chunk` on every block and combines the states in a tree, without bringing a core dimension to one chunk.

    All core dimensions of the arguments that no state has are reduced, but for those of fixed size and those that one
    argument has twice. All three functions follow the conventions of kernels: core dimensions last, loop dimensions
    first, inputs read-only, a tuple for several arrays. With ``vectorize=True`` each takes one item, unless it is a
    NumPy ufunc.

    Parameters
    ----------
    chunk : callable
        ``chunk(*pieces) -> state``: the state of one piece, as one array or a tuple of arrays.
    combine : callable or numpy.ufunc
        ``combine(*state, *following_state) -> state``: the state of two pieces, the first of which lies before the
        second. It has to be associative. A binary ufunc combines each array of the states with its counterpart.
    aggregate : callable, optional
        ``aggregate(*state) -> outputs``. By default the last state is the outputs.
    state : str or Signature
        The signature of `chunk`: the inputs of the kernel's own, and the core dimensions of each array of the state,
        such as ``"(n)->(),()"``. Their sizes are those of the inputs, fixed, or given by `output_sizes`.
    state_dtypes : dtype, sequence of dtypes, or callable, optional
        As `output_dtypes`, for the arrays of the state; enforced for kernels that take NumPy arrays. By default a state
        has the dtypes that `chunk` returns.
    offset : bool, default False
        `chunk` gets the keyword `offset`: a dict with the position at which its piece begins, for each core dimension
        that is reduced. Where Dask does not know the sizes of chunks, the core dimension is then merged in place of
        reduced in chunks.
    independent : str or sequence of str, default ()
        Core dimensions along which every item of the states and outputs depends on the same item of the inputs alone,
        such as ``m`` and ``p`` in ``"(m,n),(n,p)->(m,p)"``. Dask keeps their chunks.

    Raises
    ------
    OptionError
        If a value is none that a parameter takes, or nothing is left to reduce.
    SignatureError
        If `state` does not follow the grammar.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> def count_and_sum(x):
    ...     return np.full(x.shape[:-1], x.shape[-1]), x.sum(axis=-1)
    >>> def mean(count, total):
    ...     return total / count
    >>> by_parts = au.Reduction(count_and_sum, np.add, mean, state="(n)->(),()")
    >>> by_parts.reduced
    ('n',)
    >>> au.apply_ufunc(np.mean, "(n)->()", np.arange(12.0).reshape(3, 4), core_chunks=by_parts)
    array([1.5, 5.5, 9.5])
    """

    chunk: KernelFunction
    combine: KernelFunction
    aggregate: KernelFunction | None = None
    _: KW_ONLY
    state: str | Signature
    state_dtypes: Any = None
    offset: bool = False
    independent: str | Iterable[str] = ()

    def __post_init__(self) -> None:
        _check_functions(self.chunk, self.combine, self.aggregate)
        if not isinstance(self.offset, bool):
            raise OptionError(f"Reduction: offset takes True or False, got {self.offset!r}")
        signature = self.state if isinstance(self.state, Signature) else Signature.parse(self.state)
        object.__setattr__(self, "state", signature)
        object.__setattr__(self, "independent", _names(self.independent))
        if isinstance(self.state_dtypes, list):
            object.__setattr__(self, "state_dtypes", tuple(self.state_dtypes))
        _check_independent(self.independent_dims, signature)
        if not self.reduced:
            raise OptionError(f"Reduction: the states of {str(signature)!r} keep every core dimension: none is reduced")
        parameters = parameters_of(self.chunk, signature.nin)
        if self.offset and "offset" not in parameters.names and not parameters.open_ended:
            raise OptionError("Reduction: with offset=True, chunk has to take the keyword 'offset'")

    @property
    def signature(self) -> Signature:
        """The signature of `chunk`, parsed."""
        assert isinstance(self.state, Signature)  # since __post_init__
        return self.state

    @property
    def independent_dims(self) -> tuple[str, ...]:
        """The labels in `independent`."""
        assert isinstance(self.independent, tuple)  # since __post_init__
        return self.independent

    @property
    def reduced(self) -> tuple[str, ...]:
        """Labels of the core dimensions that are reduced."""
        return _reduced_dims(self.signature)


def combine_signature(reduction: Reduction) -> Signature:
    """Return the signature of `combine`: two states to one."""
    state = _as_inputs(reduction.signature)
    return Signature(state + state, state, reduction.signature.always_tuple)


def aggregate_signature(reduction: Reduction, signature: Signature) -> Signature:
    """Return the signature of `aggregate` for a kernel with this signature: a state to the outputs."""
    return Signature(_as_inputs(reduction.signature), signature.outputs, signature.always_tuple)


def check_kernel(reduction: Reduction, signature: Signature) -> None:
    """Refuse a kernel whose inputs or outputs the parts do not fit."""
    state = reduction.signature
    if state.inputs != signature.inputs:
        raise SignatureError(
            f"core_chunks: the Reduction's state has the signature {str(state)!r}, whose inputs are not those of the "
            f"kernel's {str(signature)!r}: use the same names of dimensions in both"
        )
    if reduction.aggregate is None and state.outputs != signature.outputs:
        raise SignatureError(
            f"core_chunks: a Reduction without aggregate gives its state {str(state)!r} as the outputs, which are "
            f"others in {str(signature)!r}"
        )
    for label in reduction.independent_dims:
        _check_in_every(label, signature, "output")


def _check_functions(chunk: object, combine: object, aggregate: object) -> None:
    for name, part in (("chunk", chunk), ("combine", combine), ("aggregate", aggregate)):
        if not callable(part) and not (name == "aggregate" and part is None):
            raise OptionError(f"Reduction: {name} takes a function, got {part!r}")
    if isinstance(combine, np.ufunc) and (combine.nin, combine.nout) != (2, 1):
        raise OptionError(f"Reduction: combine takes a ufunc of two arguments and one output, got {combine!r}")


def _names(independent: Any) -> tuple[str, ...]:
    names = (independent,) if isinstance(independent, str) else tuple(independent)
    if not all(isinstance(name, str) for name in names):
        raise OptionError(f"Reduction: independent takes names of core dimensions, got {independent!r}")
    return names


def _check_independent(labels: Iterable[str], signature: Signature) -> None:
    inputs = signature.input_labels
    for label in labels:
        if all(label not in dims for dims in inputs) or any(dims.count(label) > 1 for dims in inputs):
            raise OptionError(
                f"Reduction: independent names {label!r}, which has to be a core dimension of the inputs of "
                f"{str(signature)!r}, once in each that has it"
            )
        _check_in_every(label, signature, "state")


def _check_in_every(label: str, signature: Signature, what: str) -> None:
    """Refuse an independent dim that is lost, or paired with others."""
    uses = [Counter(name for dim in dims for name in (dim.names or (dim.label,))) for dims in signature.outputs]
    if any(label not in dims or names[label] != 1 for dims, names in zip(signature.output_labels, uses, strict=True)):
        raise OptionError(
            f"Reduction: independent names {label!r}, which every {what} in {str(signature)!r} has to have once"
        )


def _reduced_dims(signature: Signature) -> tuple[str, ...]:
    kept = {name for dims in signature.outputs for dim in dims for name in (dim.label, *dim.names)}
    twice = {label for dims in signature.input_labels for label, n in Counter(dims).items() if n > 1}
    found = dict.fromkeys(dim.label for dims in signature.inputs for dim in dims if dim.size is None)
    return tuple(label for label in found if label not in kept | twice)


def _as_inputs(signature: Signature) -> tuple[tuple[CoreDim, ...], ...]:
    """Return the arrays of a state as inputs, which are there: their dims are names and fixed sizes alone."""
    return tuple(tuple(CoreDim(dim.label, dim.size) for dim in dims) for dims in signature.outputs)
