"""What tells one block runner from another, so that a compiler sees the same function again and compiles nothing anew.

In: a runner. Out: a hashable value that is equal for runners which do the same, for as long as one of them is held.
Knows no traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from types import MethodType
from typing import Any

import numpy as np

from .._blocks import BlockRunner
from .._derivatives import Derivatives, Rule
from .._identity import is_plain
from .._kernel import Kernel
from .._options import Options
from .._rules import RULE_KINDS, BoundKernel

__all__ = ["Identified", "identify", "identity_of"]


@dataclass(frozen=True, slots=True)
class Identified:
    """A block runner with what tells it from others, which its own equality does not: 1 == True, 0.0 == -0.0."""

    identity: tuple[Any, ...]
    runner: BlockRunner = field(compare=False)  # keeps alive what the identity only points to
    derivatives: Derivatives = field(compare=False)

    @property
    def holds_data(self) -> bool:
        """Whether arrays or other objects are among the keywords, which may be large, or others at each call."""
        return not all(is_plain(value) or isinstance(value, np.generic) for value in self.runner.keywords.values())


def identify(runner: BlockRunner, derivatives: Derivatives) -> Identified:
    """
    Return a runner that can be looked up.

    Keywords are told apart by their values where they are text, numbers or tuples of them, or NumPy arrays, which are
    copies that nobody changes. An array in a tuple is the caller's own, and told apart by the memory that it shows; all
    else by which object it is: an equal list, dict or JAX array is another.
    """
    rules = tuple(_rule_identity(rule) for rule in derivatives.rules)
    return Identified((*_identity(runner), rules), runner, derivatives)


def identity_of(value: Any) -> Any:
    """Return what tells a value from every other: its text where that says all, else which object it is."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return type(value), repr(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if type(value) is tuple:
        return tuple(map(identity_of, value))
    if isinstance(value, MethodType):  # a new object at each look-up
        return MethodType, id(value.__func__), id(value.__self__)
    if type(value) is np.ndarray:  # a new view at each call
        return np.ndarray, value.__array_interface__["data"][0], value.shape, value.strides, value.dtype
    return id(value)


def _identity(runner: BlockRunner) -> tuple[Any, ...]:
    constants = tuple((position, identity_of(value)) for position, value in runner.constants)
    keywords = tuple((name, _keyword_identity(value)) for name, value in runner.keywords.items())
    sizes = tuple((label, repr(size)) for label, size in runner.output_sizes)
    dtypes = runner.dtypes, runner.found, runner.filled_dtypes
    return _kernel_identity(runner.kernel), runner.signature, constants, keywords, sizes, dtypes


def _kernel_identity(kernel: Kernel) -> Any:
    """Return the caller's own word for the function, else which object it is, and how it is called."""
    function = identity_of(kernel.func) if kernel.token is None else ("token", kernel.token)
    arrays = kernel.arrays, kernel.arrays_by_type, kernel.writable, kernel.compute_dtype
    how = kernel.vectorize, kernel.is_filling, kernel.contiguous, kernel.block_bytes
    return function, kernel.name, how, arrays, kernel.thread_safe, kernel.threads


def _rule_identity(rule: Rule) -> Any:
    """Return what tells a derivative kernel, with the rules that it has itself, from every other."""
    return _kernel_identity(rule.kernel), rule.takes_outputs, rule.step, _bound_identity(rule.options)


def _bound_identity(options: Options) -> Any:
    """Return what tells the keywords and rules of a derivative kernel from every other's."""
    keywords = tuple((name, _keyword_identity(value)) for name, value in options.kwargs.items())
    return keywords, tuple(_given_identity(getattr(options, kind)) for kind in RULE_KINDS)


def _given_identity(given: Any) -> Any:
    """Return what tells a derivative kernel, as an option has it, from every other."""
    if not isinstance(given, BoundKernel):
        return identity_of(given)
    kernel, signature, options = given._parts
    return _kernel_identity(kernel), signature, _bound_identity(options)


def _keyword_identity(value: Any) -> Any:
    """Return what tells a keyword from every other."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "T":  # whose strings are kept elsewhere
        return _array_identity(value)
    return identity_of(value)


def _array_identity(array: np.ndarray[Any, Any]) -> Any:
    """Return what tells the values of an array, a new copy at each call; of objects, which ones they are."""
    parts = [np.ma.getdata(array)]
    fill: Any = None
    if isinstance(array, np.ma.MaskedArray):
        parts.append(np.ma.getmaskarray(array))
        fill = repr(array.fill_value), array.hardmask
    digests = tuple(blake2b(part.tobytes(), digest_size=16).digest() for part in parts)
    return type(array), array.shape, array.dtype, fill, digests
