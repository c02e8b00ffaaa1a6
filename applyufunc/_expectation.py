"""What the outputs of one block have to be: `Expectation`, a value that every check of a result reads.

Knows plans and dtypes; looks at no array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._plan import Plan, shape_text
from ._typing import Namespace

__all__ = ["Expectation"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the outputs have to be."""

    plan: Plan
    dtypes: tuple[np.dtype[Any], ...] | None  # None: whatever is returned
    found: bool  # whether the dtypes are those that a call on made-up values gave
    thin: tuple[bool, ...]  # loop axes that a batch may return with length 1, since some array argument came so
    xp: Namespace  # the library that the outputs belong to
    device: Any = None  # of that library, for arrays made here; None: its default
    masked: bool = False  # whether an argument is a masked array
    objects: bool = False  # whether an argument is an array of objects, so that any object may be an item
    has_values: bool = True  # whether the outputs can be looked at; not where JAX traces the kernel
    strings: np.dtype[Any] | None = None  # an argument's StringDType, whose scalars are Python's strings
    places: tuple[int, ...] | None = None  # of the outputs among all that the function returns; None: these are all

    def dtype(self, position: int) -> np.dtype[Any] | None:
        """Return the declared dtype of one output."""
        return None if self.dtypes is None else self.dtypes[position]

    def name(self, position: int) -> str:
        """Name an output as whoever wrote the function counts them."""
        return f"output {position if self.places is None else self.places[position]}"

    def takes_objects(self, position: int) -> bool:
        """Tell whether what is no array may be an item of one output."""
        return self.objects if self.dtypes is None else self.dtypes[position].kind == "O"

    def item_text(self, place: int) -> str:
        """Write which loop item is at a place in the order of the loop: a number, or an index of several."""
        index = np.unravel_index(place, [size or 0 for size in self.plan.loop_shape])
        return str(index[0]) if len(index) == 1 else shape_text(map(int, index))

    @property
    def placement(self) -> dict[str, Any]:
        """Keywords that put a new array where the outputs belong."""
        return {} if self.device is None else {"device": self.device}
