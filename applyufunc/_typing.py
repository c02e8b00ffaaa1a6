"""Aliases that annotations share; imports no array library when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["Array", "DType", "KernelFunction", "Keywords", "Namespace", "Shape"]

Array: TypeAlias = Any
"""An array of any library; no static type covers them all."""

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
