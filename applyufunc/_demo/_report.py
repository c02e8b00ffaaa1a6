"""The text of the main job: lines out of the data and the runs. It prints nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ._runs import Run, difference
from ._sea import Sea

__all__ = ["SIGNIFICANT", "TOLERANCE", "agree", "describe_data", "describe_trend", "describe_verdict", "table"]

# Every backend runs the same SciPy code on the same float64 series, so only a wrong series could make a difference.
TOLERANCE: Final = 1e-12
SIGNIFICANT: Final = 0.05

HEADER: Final = ("backend", "result", "calls", "blocks", "the kernel saw", "seconds", "difference")
LEFT: Final = frozenset({"backend", "result", "the kernel saw"})  # the other columns are numbers


def describe_data(sea: Sea) -> list[str]:
    """Say what the data are, where they come from, and what is done to them."""
    is_sea = np.isfinite(sea.anomalies).all(axis=0)
    return [
        f"Sea-surface temperature of the Pacific, winters {_winter(sea.years[0])} to {_winter(sea.years[-1])}",
        f"  data       anomalies (°C), means of November to March, {int(is_sea.sum())} of {is_sea.size} pixels are sea",
        f"  source     {sea.source}",
        f"  array      {sea.anomalies.dtype}, shape {sea.anomalies.shape}: time, latitude, longitude",
        "  kernel     scipy.stats.theilslopes and kendalltau, on one series: slope, p-value",
        "  signature  (t),(t)->(),()",
    ]


def table(runs: Sequence[Run]) -> list[str]:
    """Return a header, one line for each run, and how it came about; the others are compared with the first run."""
    rows = [HEADER, *(_cells(run, runs[0]) for run in runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(_justify(cells, widths)).rstrip() for cells in rows]
    notes = [f"{run.backend}: {run.how}" for run in runs if run.how]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], *notes]


def agree(runs: Sequence[Run]) -> bool:
    """Whether all runs give what the first one gives, within `TOLERANCE`."""
    return all(difference(run, runs[0]) <= TOLERANCE for run in runs)


def describe_verdict(runs: Sequence[Run]) -> str:
    """Say whether all runs agree, and which do not."""
    if len(runs) == 1:
        return "Only NumPy ran, so there is nothing to compare."
    wrong = [run.backend for run in runs if not difference(run, runs[0]) <= TOLERANCE]
    if wrong:
        return f"They do NOT agree: more than {TOLERANCE:g} from {runs[0].backend}: {', '.join(wrong)}."
    return f"All agree: {', '.join(run.backend for run in runs)} (slopes and p-values, to {TOLERANCE:g})."


def describe_trend(run: Run) -> str:
    """Say what was found, in a sentence."""
    slopes = run.slope[np.isfinite(run.slope)]
    if not slopes.size:
        return "There is no sea among these pixels."
    return (
        f"Warming in {int((slopes > 0).sum())} of {slopes.size} pixels, "
        f"median slope {10 * np.median(slopes):+.2f} °C per decade; "
        f"p < {SIGNIFICANT:g} in {int((run.p_value < SIGNIFICANT).sum())}."
    )


def _winter(year: float) -> str:
    """Return the winter around the beginning of a year, as 1962/63."""
    end = round(year)
    return f"{end - 1}/{end % 100:02d}"


def _cells(run: Run, reference: Run) -> tuple[str, ...]:
    shapes = " or ".join(sorted(" ".join(map(str, shapes)) for shapes in run.shapes))
    compared = "reference" if run is reference else f"{difference(run, reference):.2g}"
    return (run.backend, run.result_type, str(run.n_calls), str(run.n_blocks), shapes, f"{run.seconds:.2f}", compared)


def _justify(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if name in LEFT else cell.rjust(width)
        for cell, width, name in zip(cells, widths, HEADER, strict=True)
    ]
