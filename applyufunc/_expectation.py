"""What the outputs of one block have to be: `Expectation`, a value that every check of a result reads.

Knows plans and dtypes; looks at no array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._plan import Plan
from ._typing import Namespace

__all__ = ["Expectation"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the outputs have to be."""

    plan: Plan
    dtypes: tuple[np.dtype[Any], ...] | None  # None: whatever is returned
    thin: tuple[bool, ...]  # loop axes that a batch may return with length 1, since some array argument came so
    xp: Namespace  # the library that the outputs belong to
    device: Any = None  # of that library, for arrays made here; None: its default
    masked: bool = False  # whether an argument is a masked array
    strings: np.dtype[Any] | None = None  # an argument's StringDType, whose scalars are Python's strings

    def dtype(self, position: int) -> np.dtype[Any] | None:
        """Return the declared dtype of one output."""
        return None if self.dtypes is None else self.dtypes[position]

    @property
    def placement(self) -> dict[str, Any]:
        """Keywords that put a new array where the outputs belong."""
        return {} if self.device is None else {"device": self.device}
