"""Which families there are, by name, and which of them can run with what is installed.

Imports none before it is asked for, so that the command can limit NumPy's threads before NumPy is there.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from ._family import Family

__all__ = ["FAMILIES", "GROWTH", "family", "growth", "installed", "library", "missing"]

FAMILIES: Final = (
    "numpy_calls",
    "numpy_loops",
    "numpy_blocks",
    "dask_graphs",
    "dask_chunks",
    "dask_reductions",
    "jax_calls",
    "labelled_calls",
    "torch_calls",
    "imports",
)
"""Modules beside this one, in the order in which the documentation shows them; a new family is a line here."""

GROWTH: Final = "growth"
"""The module that says what grows with what, which the command knows by the same name."""


def family(name: str) -> Family:
    """Return the module of a family."""
    return cast("Family", _module(name))


def growth() -> ModuleType:
    """Return the module that says what grows with what."""
    return _module(GROWTH)


def library(name: str) -> str:
    """Return the library whose arrays a family is about."""
    return name.partition("_")[0]


@cache
def missing(name: str) -> str:
    """Return the module that a family needs and that is not installed; "" if it can run."""
    try:
        _module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __package__:
            raise
        return error.name
    return ""


def installed() -> tuple[str, ...]:
    """Return the families that can run."""
    return tuple(name for name in FAMILIES if not missing(name))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")
