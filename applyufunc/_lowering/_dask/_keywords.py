"""Large arrays among a kernel's keywords: `without_large_keywords` for every task, `put_back` on the workers.

In: a call, or keywords. Out: keywords with a `StandIn` for each large array, and those arrays, which become operands
that all tasks share; a task that held them would carry them to its worker each time. Knows nothing of graphs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ..._arguments import read_only
from ..._call import Call
from ..._typing import Array, Keywords

__all__ = ["LARGE", "Opened", "StandIn", "has_stand_ins", "put_back", "take_out", "without_large_keywords"]

LARGE: Final = 1_000_000
"""Bytes beyond which a value is too large for every task to carry its own."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """What is in the keywords in place of a large array."""

    place: int  # of the array among those taken out

    def __dask_tokenize__(self) -> tuple[str, int]:
        """Return what stands for the place in the names of arrays; Dask adds that of the array."""
        return "applyufunc.StandIn", self.place


class Opened(NamedTuple):
    """What is in the keywords in place of a container that had a large array; `_identity` reads it as a tuple."""

    kind: type
    keys: tuple[Any, ...]  # of a dict
    parts: tuple[Any, ...]

    def closed(self) -> Any:
        """Return the container with these parts."""
        return dict(zip(self.keys, self.parts, strict=True)) if self.kind is dict else self.kind(self.parts)


def without_large_keywords(call: Call) -> tuple[Call, tuple[Array, ...]]:
    """Return a call without the large arrays of its keywords, and these, which all its tasks share."""
    keywords, large = take_out(call.runner.keywords)
    if not large:
        return call, ()
    runner = dataclasses.replace(call.runner, keywords=keywords)
    return dataclasses.replace(call, runner=runner), large


def has_stand_ins(keywords: Keywords) -> bool:
    """Tell keywords from which something was taken out."""
    return any(type(value) in (StandIn, Opened) for value in keywords.values())


def take_out(keywords: Keywords) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """Return keywords without their large arrays, and those arrays; lists, tuples and dicts are looked into."""
    arrays: list[Array] = []
    kept = {name: _without(keywords[name], arrays) for name in sorted(keywords)}  # equal keywords, equal places
    return {name: kept[name] for name in keywords}, tuple(arrays)


def put_back(keywords: Keywords, arrays: Sequence[Array]) -> dict[str, Any]:
    """Return keywords with their large arrays, which other tasks may be reading: the kernel cannot write into them."""
    return {name: _restored(value, arrays) for name, value in keywords.items()}


def _without(value: Any, arrays: list[Array]) -> Any:
    """Return what stands for a value, without its large arrays, which are added to `arrays`; itself if it has none."""
    if type(value) in _ARRAYS and value.nbytes > LARGE:
        arrays.append(value)
        return StandIn(len(arrays) - 1)
    if type(value) not in _CONTAINERS:
        return value
    n_before = len(arrays)
    given = value.values() if type(value) is dict else value
    # A list of a million numbers is no reason to call anything a million times.
    parts = tuple(_without(part, arrays) if type(part) in _LOOKED_AT else part for part in given)
    if len(arrays) == n_before:
        return value
    return Opened(type(value), tuple(value) if type(value) is dict else (), parts)


def _restored(value: Any, arrays: Sequence[Array]) -> Any:
    if type(value) is StandIn:
        return read_only(arrays[value.place])
    if type(value) is not Opened:  # other containers hold no large array, and are not walked through in every task
        return value
    return value._replace(parts=tuple(_restored(part, arrays) for part in value.parts)).closed()


_ARRAYS: Final = (np.ndarray, np.ma.MaskedArray)
_CONTAINERS: Final = (dict, list, tuple)
_LOOKED_AT: Final = frozenset((*_ARRAYS, *_CONTAINERS))
