"""Blocks that would have been too large: `Excess`, which is also the text of a warning.

In: the blocks of all operands, how loop dims are cut, a number of bytes. Out: the worst of them, if any. Pure
arithmetic that knows no array library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..._explanation import bytes_text
from ._chunk_search import Block, Cut

__all__ = ["Excess", "worst_excess"]


@dataclass(frozen=True, slots=True)
class Excess:
    """An operand whose blocks would have been too large: why, and what came of it."""

    what: str  # "argument 0"
    merged: tuple[str, ...]  # core dims that were in several chunks
    split: tuple[tuple[str, int, int], ...]  # loop dim, or core dim in pieces; its largest chunk before and after
    bytes_given: int | None  # of the largest block in the caller's chunks; None: an output has none
    bytes_unsplit: int  # of the largest block with the core dims whole and the loop dims as they were
    bytes_planned: int
    budget: int  # bytes
    is_enough: bool  # whether the planned block is as small as it has to be

    def __str__(self) -> str:
        """Say what was done, and how to have it otherwise."""
        cause, consequence = self._cause(), self._consequence()
        return f"{cause}, above the budget of {bytes_text(self.budget)}: {consequence}. {_REMEDY}"

    def _cause(self) -> str:
        given = "" if self.bytes_given is None else f" (now {bytes_text(self.bytes_given)})"
        would = f"{self.what} would have blocks of {bytes_text(self.bytes_unsplit)}{given}"
        names = ", ".join(map(repr, self.merged))
        return f"with core dimension(s) {names} merged to one chunk, {would}" if names else would

    def _consequence(self) -> str:
        if not self.split:
            return "one item alone is that large, so no loop dimension was split"
        loop = _narrowed_text(each for each in self.split if each[0].startswith("-"))
        core = _narrowed_text(each for each in self.split if not each[0].startswith("-"))
        kinds = (
            f"loop dimension(s) (from the right) {loop}" if loop else "",
            f"core dimension(s) {core}" if core else "",
        )
        narrowed = " and ".join(filter(None, kinds))
        outcome = f"{narrowed} were split, which makes blocks of {bytes_text(self.bytes_planned)}"
        if not self.is_enough:
            return f"{outcome}: one item alone is that large"
        is_above = self.bytes_planned > self.budget
        return f"{outcome}, no larger than the largest that arguments had" if is_above else outcome


def worst_excess(blocks: Sequence[Block], cuts: Mapping[str, Cut], budget: int) -> Excess | None:
    """Return the block that is, or would have been, furthest above its limit; None where all are within theirs."""
    unsplit = {dim: cut.base.width for dim, cut in cuts.items()}
    over = [block for block in blocks if block.n_bytes(unsplit) > block.limit]
    if not over:
        return None
    widths = {dim: cut.width for dim, cut in cuts.items()}
    worst = max(over, key=lambda block: (block.n_bytes(widths) > block.limit, block.n_bytes(unsplit) / block.limit))
    split = tuple((dim, unsplit[dim], widths[dim]) for dim, cut in cuts.items() if cut.is_split)
    before, after = worst.n_bytes(unsplit), worst.n_bytes(widths)
    return Excess(worst.what, worst.merged, split, worst.bytes_given, before, after, budget, after <= worst.limit)


_REMEDY: Final = (
    "To decide it yourself, rechunk before the call, pass budget= (bytes of the largest block), or core_chunks='refuse'"
)


def _narrowed_text(split: Iterable[tuple[str, int, int]]) -> str:
    return ", ".join(f"{dim} (chunks of up to {before}, now {after})" for dim, before, after in split)
