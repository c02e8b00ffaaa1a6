"""`plan`: by which road a call goes, and how it is cut on it.

In: a call and its arrays. Out: `Planned`, which nobody has built yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._call import Call
from ..._typing import Array
from ._graph import plan_whole
from ._overlaps import plan_overlap
from ._planned import Planned
from ._reductions import plan_reduced
from ._scans import plan_scan

__all__ = ["plan"]


def plan(call: Call, arrays: Sequence[Array], *, may_try: bool = True) -> Planned:
    """Return how a call is cut; without `may_try` no function is called for the dtypes of its states."""
    return (
        plan_scan(call, arrays)
        or plan_overlap(call, arrays)
        or plan_reduced(call, arrays, may_try=may_try)
        or plan_whole(call, arrays)
    )
