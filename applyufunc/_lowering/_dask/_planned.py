"""`Planned`: a call before its layers are built, as `lower` builds them and `explain` tells of them.

In: what the modules that plan have found. Out: chunks, costs, warnings, and what builds the layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from ..._call import Call
from ..._explanation import CoreWay
from ..._typing import Array, Namespace
from ._chunks import ArgumentChunks, Chunks, Move
from ._keywords import take_out

__all__ = ["Planned", "as_operands", "without_large_keywords"]


@dataclass(frozen=True, slots=True)
class Planned:
    """How a call is cut into blocks."""

    core: CoreWay
    loop: tuple[tuple[str, Chunks], ...]  # from the left
    given: tuple[ArgumentChunks, ...]
    arguments: tuple[tuple[Chunks, ...], ...]  # for each argument in turn
    moves: tuple[Move, ...]  # for each argument in turn
    n_tasks: int  # of its own layers, beside those of arguments and of rechunking; an estimate before optimisation
    warnings: tuple[str, ...]
    build: Callable[[], tuple[Array, ...]]  # returns the outputs, core dims last
    kept: tuple[tuple[str, Chunks], ...] = ()  # core dims that stay in chunks
    reason: str = ""  # why core dims are merged, although they could be reduced where they lie
    state_bytes: int | None = None  # of the largest state of a block that is reduced


def without_large_keywords(call: Call) -> tuple[Call, tuple[Array, ...]]:
    """Return a call without the large arrays of its keywords, and these, which all its tasks share."""
    keywords, large = take_out(call.runner.keywords)
    if not large:
        return call, ()
    runner = dataclasses.replace(call.runner, keywords=keywords)
    return dataclasses.replace(call, runner=runner), large


def as_operands(da: Namespace, large: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return each array in one block."""
    return tuple(da.from_array(array, chunks=array.shape) for array in large)
