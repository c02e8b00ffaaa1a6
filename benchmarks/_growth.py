"""How cost grows with what there is more of: the same work at several sizes, and the slope of its logarithm.

In: what the module `growth` declares. Out: points, for tables and a picture. Knows no array library but NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ._families import growth
from ._family import Way, Ways

__all__ = ["Curves", "Grown", "Growth", "Points", "declared", "points", "slope"]

Points: TypeAlias = tuple[tuple[int, float], ...]
"""Sizes and what was measured there."""

Curves: TypeAlias = Mapping[str, Points]
"""By the name of each way."""

Grown: TypeAlias = Mapping[str, Curves]
"""By the name of each `Growth`."""

LONG: Final = 2  # seconds at one size, after which a way is measured at no greater one


@dataclass(frozen=True, slots=True)
class Growth:
    """What is measured, of which ways, at which sizes."""

    size: str  # what there is more and more of
    cost: str  # what is measured, with its unit
    sizes: tuple[int, ...]
    names: tuple[str, ...]  # of the ways, ours first
    ways: Callable[[int], Ways]
    measure: Callable[[Way], float]


def declared() -> Mapping[str, Growth]:
    """Return all that is to be measured, by name."""
    return growth().growths()  # type: ignore[no-any-return]


def points(name: str, way: str, quick: bool) -> Points:
    """Measure one way in this process, at sizes as far as it goes within seconds; three sizes if quick."""
    what = declared()[name]
    what.measure(what.ways(what.sizes[0])[way])  # for what is imported or cached at the first call
    found: list[tuple[int, float]] = []
    for size in what.sizes[:3] if quick else what.sizes:
        begin = time.perf_counter()
        found.append((size, what.measure(what.ways(size)[way])))
        if time.perf_counter() - begin > LONG:
            break
    return tuple(found)


def slope(curve: Points) -> float:
    """Return the exponent of a power of the size, fitted to the larger sizes, where what is constant counts least.

    Larger are those above the geometric mean of the least and the greatest; NaN where there are not two of them.
    """
    sizes, costs = np.log(np.asarray(curve, float)).T
    is_large = sizes >= (sizes[0] + sizes[-1]) / 2
    if np.count_nonzero(is_large) < 2:
        return np.nan
    return float(np.polyfit(sizes[is_large], costs[is_large], deg=1)[0])
