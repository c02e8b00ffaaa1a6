"""`Planned`: a call before its layers are built, as `lower` builds them and `explain` tells of them.

In: what the modules that plan have found. Out: chunks, costs, warnings, and what builds the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..._explanation import CoreWay
from ..._typing import Array, Chunks
from ._chunks import ArgumentChunks, Move

__all__ = ["Planned"]


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
    build: Callable[[Sequence[Array]], tuple[Array, ...]]  # outputs, core dims last, of arrays that look like these
    kept: tuple[tuple[str, Chunks], ...] = ()  # core dims that stay in chunks
    joined: tuple[tuple[Chunks, ...], ...] = ()  # for each argument in turn, with the edges of neighbours; (): none has
    reason: str = ""  # why core dims are merged, although they could be reduced where they lie
    state_bytes: int | None = None  # of the largest state of a block that is reduced
