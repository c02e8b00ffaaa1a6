"""What tells one block runner from another, so that JAX sees the same function again and does not compile it anew.

In: a runner. Out: a hashable value that is equal for runners which do the same. Knows no arrays and no traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import numpy as np

from ..._blocks import BlockRunner

__all__ = ["Identified", "identify"]


@dataclass(frozen=True, slots=True)
class Identified:
    """A block runner with what tells it from others, which its own equality does not: 1 == True, 0.0 == -0.0."""

    identity: tuple[Any, ...]
    runner: BlockRunner = field(compare=False)


def identify(runner: BlockRunner) -> Identified:
    """Return a runner that can be looked up; one with a list, dict or array among its keywords is new at each call."""
    return Identified(_identity(runner), runner)


def _identity(runner: BlockRunner) -> tuple[Any, ...]:
    kernel = runner.kernel
    how = (kernel.name, kernel.vectorize, kernel.arrays, kernel.writable, kernel.thread_safe, kernel.token)
    constants = tuple((position, _identity_of(value)) for position, value in runner.constants)
    keywords = tuple((name, _identity_of(value)) for name, value in runner.keywords.items())
    sizes = tuple((label, repr(size)) for label, size in runner.output_sizes)
    return _identity_of(kernel.func), how, runner.signature, constants, keywords, sizes, runner.dtypes


def _identity_of(value: Any) -> Any:
    """Return what tells a value from every other: its text where that says all, else which object it is."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return type(value), repr(value)
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if type(value) is tuple:
        return tuple(map(_identity_of, value))
    if isinstance(value, MethodType):  # a new object at each look-up
        return MethodType, id(value.__func__), id(value.__self__)
    return id(value)  # stays its own, since the runner holds the object
