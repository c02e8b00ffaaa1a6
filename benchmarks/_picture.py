"""The pictures of the benchmarks: how many times our seconds and our memory the other ways take, and what grows how.

Drawn without a display; only here is matplotlib imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from ._families import family, installed, library
from ._family import KERNEL, OURS, CaseResults, Figures
from ._growth import Curves, Grown, Growth, declared, slope
from ._runs import Results

__all__ = ["draw", "draw_growth"]

OWN: Final = "the library's own function"
OWN_NAMES: Final = ("da.", "jnp.", "np.", "torch.", "xr.")  # what the names of such functions begin with

Measure: TypeAlias = Callable[[Figures], float]

Styles: TypeAlias = Mapping[str, tuple[str, str]]
"""Colour and marker of each way, in the order of the legend."""

# Colours of Okabe and Ito, told apart with any colour vision, and shapes too.
FIXED: Final[Styles] = {OURS: ("0.35", ""), OWN: ("#009E73", "^"), KERNEL: ("#000000", "D")}
OTHERS: Final = (
    ("#D55E00", "o"),
    ("#0072B2", "s"),
    ("#CC79A7", "P"),
    ("#E69F00", "v"),
    ("#56B4E9", "X"),
    ("#F0E442", "p"),
)

LITTLE: Final = 16 << 20  # bytes; what is less tells nothing of arrays, and would be divided by


def draw(path: Path, of: str, results: Results) -> None:
    """Write the picture of all cases of a library that were computed."""
    groups = [(family(name).TITLE, _computed(name, results)) for name in installed() if library(name) == of]
    groups = [(title, cases) for title, cases in groups if cases]
    styles = _styles(way for _, cases in groups for ways in cases.values() for way in ways)
    n_rows = [len(cases) for _, cases in groups]
    measures = _measures([cases for _, cases in groups])
    layout: Any = {"sharex": "col", "sharey": "row", "height_ratios": n_rows, "squeeze": False}
    with _figure(path, height=1.6 + 0.27 * sum(n_rows)) as figure:
        panels = figure.subplots(len(groups), len(measures), **layout)
        for (title, cases), row in zip(groups, panels, strict=True):
            for axes, measure in zip(row, measures.values(), strict=True):
                _draw_panel(axes, cases, measure, styles)
            row[0].set_title(title.replace("`", ""))
            row[0].set_yticks(range(len(cases)), [_label(*each) for each in cases.items()])
            row[0].set_ylim(len(cases) - 0.5, -0.5)
        for axes, what in zip(panels[-1], measures, strict=True):
            axes.set_xlabel(f"{what}, times ours")
            _set_ticks(axes)
        figure.legend(handles=_legend(styles), loc="outside upper center", ncols=5, frameon=False)


def draw_growth(path: Path, grown: Grown) -> None:
    """Write the picture of all that grows, with both axes logarithmic, and the slope of every curve."""
    styles = _styles(way for curves in grown.values() for way in curves)
    with _figure(path, height=2 * len(grown)) as figure:
        panels = figure.subplots(len(grown), 1, squeeze=False)
        for (name, curves), (axes,) in zip(grown.items(), panels, strict=True):
            _draw_curves(axes, declared()[name], curves, styles)
            axes.set_title(f"{name}: {declared()[name].cost}")


def _computed(name: str, results: Results) -> dict[str, CaseResults]:
    return {case: ways for (of, case), ways in results.items() if of == name and ways[OURS].compute > 0}


def _measures(groups: Iterable[Mapping[str, CaseResults]]) -> Mapping[str, Measure]:
    """Return what the panels of a row are about: memory only where a way took any that tells something."""
    measures: dict[str, Measure] = {"seconds": lambda figures: figures.seconds}
    if any(figures.peak > LITTLE for cases in groups for ways in cases.values() for figures in ways.values()):
        measures["peak memory"] = lambda figures: max(figures.peak, LITTLE)
    return measures


def _styles(ways: Iterable[str]) -> Styles:
    """Return what each way looks like; those of no fixed look take the next one that is left."""
    looks = dict.fromkeys(_look(way) for way in ways)
    others = (look for look in looks if look not in FIXED)
    free = itertools.cycle(OTHERS)
    fixed = {look: style for look, style in FIXED.items() if look in looks}
    return fixed | {look: next(free) for look in others}


def _look(way: str) -> str:
    """Return under which name the legend has a way."""
    return OWN if way.startswith(OWN_NAMES) else way.partition(",")[0]


@contextmanager
def _figure(path: Path, height: float) -> Iterator[Figure]:
    """Make a figure, and write it when all is drawn."""
    settings: Any = {"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "svg.hashsalt": "applyufunc"}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8.6, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Any, cases: dict[str, CaseResults], of: Measure, styles: Styles) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1, color=FIXED[OURS][0], linewidth=1.5, zorder=1)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for row, ways in enumerate(cases.values()):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="0.965", zorder=0)
        for way, figures in ways.items():
            if way != OURS:
                colour, marker = styles[_look(way)]
                times = of(figures) / of(ways[OURS])
                axes.plot(times, row, marker, color=colour, markersize=6.5, markeredgecolor="w", zorder=3)


def _set_ticks(axes: Any) -> None:
    """Mark as many numbers as there is room for; the panels above share them."""
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 1000 * least else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())


def _label(case: str, ways: CaseResults) -> str:
    ours = ways[OURS]
    seconds = f"{ours.seconds:.2g} s" if ours.seconds >= 1e-3 else f"{ours.seconds * 1e6:.2g} µs"
    return f"{case}   {seconds}{f', {ours.peak / 2**20:,.0f} MiB' if ours.peak >= 2**20 else ''}"


def _draw_curves(axes: Any, what: Growth, curves: Curves, styles: Styles) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(what.size)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for way, curve in curves.items():
        colour, marker = styles[_look(way)]
        label = f"{way}, slope {slope(curve):z.2f}"
        axes.plot(*zip(*curve, strict=True), marker=marker, color=colour, markersize=4, label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)


def _legend(styles: Styles) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="" if marker else "-", linewidth=1.5, label=look)
        for look, (colour, marker) in styles.items()
    ]
