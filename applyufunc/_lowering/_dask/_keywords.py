"""Large arrays among a kernel's keywords: `take_out` of every task, `put_back` on the workers.

In: keywords. Out: keywords with a `StandIn` for each large array, and those arrays, which become operands that all
tasks share; a task that held them would carry them to its worker each time. Knows nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..._blocks import read_only
from ..._typing import Array, Keywords

__all__ = ["LARGE", "StandIn", "put_back", "take_out"]

LARGE: Final = 1_000_000
"""Bytes beyond which a value is too large for every task to carry its own."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """What is in the keywords in place of a large array."""

    place: int  # of the array among those taken out

    def __dask_tokenize__(self) -> tuple[str, int]:
        """Return what stands for the place in the names of arrays; Dask adds that of the array."""
        return "applyufunc.StandIn", self.place


def take_out(keywords: Keywords) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """Return keywords without their large arrays, and those arrays; lists, tuples and dicts are looked into."""
    arrays: list[Array] = []
    kept = {name: _without(keywords[name], arrays) for name in sorted(keywords)}  # equal keywords, equal places
    return {name: kept[name] for name in keywords}, tuple(arrays)


def put_back(keywords: Keywords, arrays: Sequence[Array]) -> dict[str, Any]:
    """Return keywords with their large arrays, which other tasks may be reading: the kernel cannot write into them."""
    return {name: _restored(value, arrays) for name, value in keywords.items()}


def _without(value: Any, arrays: list[Array]) -> Any:
    """Return a value with stand-ins for its large arrays, which are added to `arrays`; itself where it has none."""
    if type(value) in (np.ndarray, np.ma.MaskedArray) and value.nbytes > LARGE:
        arrays.append(value)
        return StandIn(len(arrays) - 1)
    n_before = len(arrays)
    parts = _parts(value)
    changed = [_without(part, arrays) for part in parts]
    return value if len(arrays) == n_before else _rebuilt(value, changed)


def _restored(value: Any, arrays: Sequence[Array]) -> Any:
    if type(value) is StandIn:
        return read_only(arrays[value.place])
    parts = _parts(value)
    restored = [_restored(part, arrays) for part in parts]
    same = all(new is old for new, old in zip(restored, parts, strict=True))
    return value if same else _rebuilt(value, restored)


def _parts(value: Any) -> Sequence[Any]:
    """Return what a plain container holds; nothing for any other value."""
    if type(value) is dict:
        return list(value.values())
    return value if type(value) in (list, tuple) else ()


def _rebuilt(value: Any, parts: Sequence[Any]) -> Any:
    return dict(zip(value, parts, strict=True)) if type(value) is dict else type(value)(parts)
