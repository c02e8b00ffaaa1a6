"""Runs of all ways of all cases, each in a process of its own, in rounds: other work on the machine meets all alike.

In: cases, and how often. Out: the `Figures` of their ways. What the ways give is compared, or no figure is believed.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final, TypeAlias

import numpy as np

from ._families import FAMILIES, GROWTH, family, installed
from ._family import OURS, CaseResults, Figures, Measured
from ._growth import Grown, declared, points

__all__ = [
    "CaseName",
    "Results",
    "Run",
    "check_equal",
    "contenders",
    "grow_all",
    "measured",
    "run_all",
    "select",
]

CaseName: TypeAlias = tuple[str, str]
"""Family and case."""

Results: TypeAlias = Mapping[CaseName, CaseResults]

FAR_BEHIND: Final = 3  # times the seconds of the fastest
LONG: Final = 3  # seconds
SHORT: Final = 1  # seconds


@dataclass(frozen=True, slots=True)
class Run:
    """One way of one case."""

    family: str
    case: str
    way: str
    quick: bool


def measured(run: Run) -> Measured:
    """Measure in this process: small arrays first, for what is imported or cached at the first call."""
    module = family(run.family)
    small = module.measure(module.CASES[run.case](True)[run.way])
    if run.quick:
        return small
    large = module.measure(module.CASES[run.case](False)[run.way])
    return Measured(large.figures, small.outputs + large.outputs)


def select(names: Sequence[str]) -> list[CaseName]:
    """Return the cases of these names, or of families of these names; without names, all that can run."""
    known = [(name, case) for name in installed() for case in family(name).CASES]
    unknown = set(names) - {GROWTH, *FAMILIES} - {case for _, case in known}
    if unknown:
        raise ValueError(f"there is no family and no case {min(unknown)!r}; the families are {', '.join(FAMILIES)}")
    return [each for each in known if not names or set(each).intersection(names)]


def run_all(cases: Sequence[CaseName], n_rounds: int, *, quick: bool, say: Callable[[str], None]) -> Results:
    """Run every way of some cases `n_rounds` times, but for those that are far behind."""
    found: dict[CaseName, dict[str, list[Figures]]] = {
        (name, case): {way: [] for way in family(name).CASES[case](True)} for name, case in cases
    }
    with _processes(quick) as executor:
        for n_round in range(n_rounds):
            for (name, case), ways in found.items():
                say(f"round {n_round + 1} of {n_rounds}, {name}: {case}")
                for _ in range(_n_turns(ways)):
                    _run_all_once(executor, [Run(name, case, way, quick) for way in contenders(ways)], ways)
    return {each: {way: _best(runs) for way, runs in ways.items()} for each, ways in found.items()}


def grow_all(*, quick: bool, say: Callable[[str], None]) -> Grown:
    """Measure all that grows; the ways are those of families, and their outputs are compared there."""
    grown = {}
    with _processes(quick) as executor:
        for name, growth in declared().items():
            say(f"{GROWTH}: {name}")
            found = {way: executor.submit(points, name, way, quick) for way in growth.names}
            grown[name] = {way: future.result() for way, future in found.items()}
    return grown


def _processes(quick: bool) -> Executor:
    """Return what starts a process for each run: a copy of one that has imported all it needs, and run nothing.

    One runs after the other, but where nobody looks at the figures.
    """
    context = get_context("forkserver")
    # Dask's rechunk imports distributed, where it is installed, and torch.compile its compiler.
    modules = (f"{__package__}.{name}" for name in installed())
    context.set_forkserver_preload(["distributed", "torch._dynamo", *modules])
    n_processes = os.cpu_count() or 1 if quick else 1
    return ProcessPoolExecutor(max_workers=n_processes, mp_context=context, max_tasks_per_child=1)


def _n_turns(ways: Mapping[str, Sequence[Figures]]) -> int:
    """Return how often all run in a round: what is short is easily disturbed, and costs little to run again."""
    return 2 if _fastest(ways) < SHORT else 1


def _fastest(ways: Mapping[str, Sequence[Figures]]) -> float:
    return min(map(_least, ways.values()))


def _least(runs: Sequence[Figures]) -> float:
    return min((figures.seconds for figures in runs), default=np.inf)


def contenders(ways: Mapping[str, Sequence[Figures]]) -> list[str]:
    """Return the ways to run in a round: no noise brings one to the front that is far behind, and that takes long."""
    most = max(LONG, FAR_BEHIND * _fastest(ways))
    return [way for way, runs in ways.items() if way == OURS or not runs or _least(runs) <= most]


def _run_all_once(executor: Executor, runs: Sequence[Run], ways: Mapping[str, list[Figures]]) -> None:
    """Run each way once; the first one's outputs are those that the others have to give."""
    expected: tuple[np.ndarray[Any, Any], ...] | None = None
    for run, future in [(run, executor.submit(measured, run)) for run in runs]:
        result = future.result()
        expected = result.outputs if expected is None else expected
        check_equal(result.outputs, expected, f"{run.case}, {run.way}")
        ways[run.way].append(result.figures)


def check_equal(outputs: Sequence[np.ndarray[Any, Any]], expected: Sequence[np.ndarray[Any, Any]], what: str) -> None:
    """Raise if outputs differ by more than the order of a sum."""
    for output, other in zip(outputs, expected, strict=True):
        tolerance = 1e-4 if output.dtype.itemsize <= 4 else 1e-9  # of the greatest value
        atol = tolerance * float(np.abs(other).max(initial=0))
        np.testing.assert_allclose(output, other, rtol=tolerance, atol=atol, err_msg=what)
        if output.dtype != other.dtype:
            raise AssertionError(f"{what}: {output.dtype}, expected {other.dtype}")


def _best(runs: Sequence[Figures]) -> Figures:
    """Return the figures of the fastest run, with the median of the peaks, which depend on the order of tasks."""
    fastest = min(runs, key=lambda figures: figures.seconds)
    return dataclasses.replace(fastest, peak=int(statistics.median(figures.peak for figures in runs)))
