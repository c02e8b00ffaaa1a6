"""The pictures of the benchmarks: how many times our seconds and our memory the other ways take.

Drawn without a display; only here is matplotlib imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from ._family import KERNEL, OURS, OURS_BY_PARTS, PEERS, CaseResults, Figures
from ._runs import FAMILIES, Results, family, library

__all__ = ["draw"]

OWN: Final = "the library's own function"

Styles: TypeAlias = Mapping[str, tuple[str, str]]
"""Colour and marker of each way."""

STYLES: Final[Mapping[str, Styles]] = {  # colours of Okabe and Ito, told apart with any colour vision, and shapes too
    "dask": {
        OURS_BY_PARTS: ("#000000", "D"),
        PEERS[0]: ("#D55E00", "o"),
        PEERS[1]: ("#0072B2", "s"),
        OWN: ("#009E73", "^"),
    },
    "jax": {
        KERNEL: ("#000000", "D"),
        "pure_callback": ("#D55E00", "o"),
        "buffer_callback": ("#0072B2", "s"),
        OWN: ("#009E73", "^"),
    },
}

LITTLE: Final = 16 << 20  # bytes; what is less tells nothing of arrays, and would be divided by


def draw(path: Path, of: str, results: Results) -> None:
    """Write the picture of all cases of a library that were computed."""
    groups = [(family(name).TITLE, _computed(name, results)) for name in FAMILIES if library(name) == of]
    groups = [(title, cases) for title, cases in groups if cases]
    settings: Any = {"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "svg.hashsalt": "applyufunc"}
    n_rows = [len(cases) for _, cases in groups]
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8.6, 1.6 + 0.27 * sum(n_rows)), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(len(groups), 2, sharex="col", sharey="row", height_ratios=n_rows, squeeze=False)
        for (title, cases), (left, right) in zip(groups, panels, strict=True):
            _draw_panel(left, cases, lambda figures: figures.seconds, STYLES[of])
            _draw_panel(right, cases, lambda figures: max(figures.peak, LITTLE), STYLES[of])
            left.set_title(title.replace("`", ""))
            left.set_yticks(range(len(cases)), [_label(*each) for each in cases.items()])
            left.set_ylim(len(cases) - 0.5, -0.5)
        for axes, what in zip(panels[-1], ("seconds", "peak memory"), strict=True):
            axes.set_xlabel(f"{what}, times ours")
            _set_ticks(axes)
        figure.legend(handles=_legend(STYLES[of]), loc="outside upper center", ncols=5, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _computed(name: str, results: Results) -> dict[str, CaseResults]:
    return {case: ways for (of, case), ways in results.items() if of == name and ways[OURS].compute > 0}


def _draw_panel(axes: Any, cases: dict[str, CaseResults], of: Callable[[Figures], float], styles: Styles) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1, color="0.35", linewidth=1.5, zorder=1)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for row, ways in enumerate(cases.values()):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="0.965", zorder=0)
        for way, figures in ways.items():
            if way != OURS:
                colour, marker = styles.get(way.partition(",")[0], styles[OWN])
                times = of(figures) / of(ways[OURS])
                axes.plot(times, row, marker, color=colour, markersize=6.5, markeredgecolor="w", zorder=3)


def _set_ticks(axes: Any) -> None:
    """Mark as many numbers as there is room for; the panels above share them."""
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 1000 * least else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())


def _label(case: str, ways: CaseResults) -> str:
    ours = ways[OURS]
    return f"{case}   {ours.seconds:.2g} s, {ours.peak / 2**20:,.0f} MiB"


def _legend(styles: Styles) -> list[Line2D]:
    ours = Line2D([], [], color="0.35", linewidth=1.5, label=OURS)
    others = [Line2D([], [], color=c, marker=m, linestyle="", label=way) for way, (c, m) in styles.items()]
    return [ours, *others]
