"""A class for every family that can run, made of its cases and ways: asv measures what `python -m benchmarks` does.

Nothing is said here that a family says. With APPLYUFUNC_SMALL_BENCHMARKS in the environment, the arrays are small.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

sys.path.append(str(Path(__file__).parents[2]))  # at the end: applyufunc is the one that is installed

from benchmarks._families import family, installed
from benchmarks._machine import limit_threads

if TYPE_CHECKING:
    from benchmarks._family import Figures

__all__ = ["FamilyBenchmark", "make_classes"]

limit_threads()


class FamilyBenchmark:
    """What asv runs of a family: each way of each case in a process of its own."""

    name: ClassVar[str]
    params: ClassVar[tuple[list[str], list[str]]]
    param_names = ("case", "way")
    unit = "seconds"  # of what is tracked
    timeout = 600  # seconds
    is_small = "APPLYUFUNC_SMALL_BENCHMARKS" in os.environ

    def setup(self, case: str, way: str) -> None:
        """Tell asv what to skip: a case has some of its family's ways."""
        if way not in family(self.name).CASES[case](True):
            raise NotImplementedError

    def track_seconds(self, case: str, way: str) -> float:
        """Return the seconds from the call to the values."""
        return self._measured(case, way).seconds

    def peakmem_run(self, case: str, way: str) -> None:
        """Do the same, for the most memory that the process has."""
        self._measured(case, way)

    def _measured(self, case: str, way: str) -> Figures:
        from benchmarks._runs import Run, measured  # and with them NumPy, whose threads are limited by then

        return measured(Run(self.name, case, way, quick=self.is_small)).figures


def make_classes() -> dict[str, type[FamilyBenchmark]]:
    """Return the classes by their names, which are those of the families as classes are written."""
    return {name.title().replace("_", ""): _make_class(name) for name in installed()}


def _make_class(name: str) -> type[FamilyBenchmark]:
    cases = family(name)
    content = {"name": name, "params": (list(cases.CASES), list(cases.WAYS)), "__doc__": cases.TITLE}
    return type(name.title().replace("_", ""), (FamilyBenchmark,), content)


globals().update(make_classes())
