"""What families of benchmarks are made of, and what is measured of one way.

Knows no array library but NumPy, and not how runs are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

__all__ = [
    "KERNEL",
    "OURS",
    "OURS_BY_PARTS",
    "PEERS",
    "Bar",
    "Case",
    "CaseResults",
    "Family",
    "Figures",
    "Measured",
    "Way",
    "Ways",
    "as_tuple",
    "best",
]

Way: TypeAlias = Callable[[], tuple[Any, ...]]
"""Does the work of a case and returns its outputs, lazy ones where the library is lazy."""

Ways: TypeAlias = Mapping[str, Way]
"""By name: `OURS`, `OURS_BY_PARTS`, peers that call the same kernel, and a native function, which has its own name."""

Case: TypeAlias = Callable[[bool], Ways]
"""Makes the arrays, small ones where its argument is True. Its docstring is what the documentation says of it."""

OURS: Final = "applyufunc"
OURS_BY_PARTS: Final = "with core_chunks"  # ours, told how the kernel works piece by piece
PEERS: Final = ("apply_gufunc", "rechunk")  # the same kernel through Dask alone
KERNEL: Final = "bare kernel"  # called on NumPy arrays, without any library


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one way."""

    build: float  # seconds until the outputs are there, lazily; 0, as below: not measured
    compute: float  # seconds from there until they are computed
    tasks: int  # of the optimised graph
    peak: int  # bytes of memory that the process had more than before
    block: int  # bytes of the largest array that a task returned or a kernel was given
    overhead: float | None = None  # seconds of one call beyond the kernel's; None: not one call was measured, but work

    @property
    def seconds(self) -> float:
        """From the call to the values."""
        return self.build + self.compute

    @property
    def beyond_kernel(self) -> float:
        """The overhead, where it was measured."""
        if self.overhead is None:
            raise ValueError("the overhead of this way was not measured")
        return self.overhead


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One run: what was measured, and what came out, for comparison with the other ways."""

    figures: Figures
    outputs: tuple[np.ndarray[Any, Any], ...]


CaseResults: TypeAlias = Mapping[str, Figures]
"""By the name of each way."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio that has to be reached in one run on one machine."""

    text: str
    case: str
    limit: float
    ratio: Callable[[CaseResults], float]
    is_floor: bool = False  # the ratio has to be the limit or more, not the limit or less

    def is_reached(self, results: CaseResults) -> bool:
        """Whether a case's figures are good enough."""
        ratio = self.ratio(results)
        return ratio >= self.limit if self.is_floor else ratio <= self.limit


class Family(Protocol):
    """A module of cases that are measured alike."""

    TITLE: str
    WAYS: Sequence[str]  # the names of all ways of all cases, which are known before a case makes its arrays
    CASES: Mapping[str, Case]
    BARS: Sequence[Bar]

    def measure(self, way: Way) -> Measured:
        """Run one way, in this process."""
        ...


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return one output as the only one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def best(results: CaseResults, of: Callable[[Figures], float], names: Sequence[str] | None = None) -> float:
    """Return the least figure among some ways; by default, among all that are not ours."""
    others = [name for name in results if name not in (OURS, OURS_BY_PARTS)]
    return min(of(results[name]) for name in results if name in (others if names is None else names))
