"""Aliases that annotations share; imports no array library when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

__all__ = [
    "Array",
    "Chunks",
    "DType",
    "KernelFunction",
    "Keywords",
    "Namespace",
    "OneOutput",
    "SeveralOutputs",
    "Shape",
    "Staged",
]

Array: TypeAlias = Any
"""An array of any library; no static type covers them all."""

Chunks: TypeAlias = tuple[int | None, ...]
"""Sizes of the chunks along one axis; None: unknown until computed."""

DType: TypeAlias = Any
"""A dtype of any library."""

Namespace: TypeAlias = Any
"""An array-API namespace, the module that holds a library's functions."""

Shape: TypeAlias = tuple[int | None, ...]
"""Sizes of an array's axes; None: unknown until computed."""

KernelFunction: TypeAlias = Callable[..., Any]
"""The user's function."""

Keywords: TypeAlias = Mapping[str, Any]
"""Keyword arguments of a kernel."""

Staged: TypeAlias = Callable[..., tuple[Array, ...]]
"""A function of arrays that a library's transformations may see."""


class _Subtracts(Protocol):
    """A number or an array; what a tuple has not is what tells one output from several."""

    def __sub__(self, other: Any, /) -> Any: ...


OneOutput: TypeAlias = _Subtracts | list[Any] | str | bytes
"""What a kernel with one output returns. Where overloads overlap static checkers give up, so a tuple is none."""

SeveralOutputs: TypeAlias = tuple[Any, ...]
"""What a kernel with several outputs returns, and what a call gives then."""
