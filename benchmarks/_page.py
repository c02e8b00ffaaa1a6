"""What was measured, as Markdown: bars, then a table for each family. Writes it into a page between two marks.

In: `Results` and `Grown`. Out: text, and the page. Knows no array library.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ._families import FAMILIES, family, growth, installed, library, missing
from ._family import OURS, Bar, CaseResults, Figures
from ._growth import Curves, Grown, Growth, declared, slope
from ._machine import describe_machine
from ._runs import Results

__all__ = ["GROWTH_PICTURE", "all_bars", "bars_table", "growth_table", "pictures", "table", "write_page"]

GROWTH_PICTURE: Final = "_static/benchmarks-growth.svg"

BEGIN: Final = "<!-- measured: begin; written by python -m benchmarks -->"
END: Final = "<!-- measured: end -->"


def write_page(page: Path, results: Results, grown: Grown, n_rounds: int) -> None:
    """Put what was measured between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n\n".join(_measured(results, grown, n_rounds))
    page.write_text("\n\n".join([before + BEGIN, text, END + after]), encoding="utf-8")


def pictures(results: Results) -> Mapping[str, str]:
    """Return where the pictures are in the documentation, by library: of each that computed something."""
    libraries = [library(name) for (name, _), ways in results.items() if ways[OURS].compute > 0]
    return {each: f"_static/benchmarks-{each}.svg" for each in libraries}


def all_bars(results: Results) -> Iterator[tuple[Bar, CaseResults]]:
    """Yield every bar with the figures that it is for."""
    for name in installed():
        for bar in family(name).BARS:
            if (name, bar.case) in results:
                yield bar, results[name, bar.case]


def bars_table(results: Results) -> str:
    """Return what every bar came to, one line for those that say the same of several cases."""
    rows = [["ours, as a share", "has to be", "is"], [":--", ":--", ":--"]]
    for (text, limit, is_floor), bars in itertools.groupby(all_bars(results), key=lambda each: _what(each[0])):
        rows.append([text, f"{'at least' if is_floor else 'at most'} {limit:g}", ", ".join(_verdict(*b) for b in bars)])
    return _lines(rows)


def table(name: str, results: Results) -> str:
    """Return the figures of a family, one line for each way."""
    rows = [_HEADER, *(row for (of, case), ways in results.items() if of == name for row in _rows(case, ways))]
    used = [any(cell not in _UNUSED for cell in cells) for cells in zip(*rows[1:], strict=True)]
    return _aligned([list(itertools.compress(row, used)) for row in rows])


def growth_table(grown: Grown) -> str:
    """Return the least and the greatest of every curve, and the slope."""
    header = ["what", "way", "least", "greatest", "at the least", "at the greatest", "slope"]
    rows = [row for name, curves in grown.items() for row in _growth_rows(declared()[name], curves)]
    return _aligned([header, *rows])


_ALT: Final = "{}: how many times what applyufunc takes the other ways take, in every case."
_GROWTH_ALT: Final = "How seconds and bytes grow with blocks, elements and arguments, for applyufunc and other ways."
_LIBRARIES: Final = {
    "dask": "Dask",
    "imports": "Importing",
    "jax": "JAX",
    "labelled": "xarray",
    "numpy": "NumPy",
    "torch": "PyTorch",
}
_PACKAGES: Final = ("numpy", "dask", "jax", "torch", "xarray", "array-api-extra", "applyufunc")

_WORDS: Final = ("case", "way", "what")
_HEADER: Final = (
    *("case", "way", "seconds", "one call, µs", "beyond the kernel, µs", "times ours"),
    *("build, s", "compute, s", "tasks", "peak memory, MiB", "largest block, MiB"),
)
_UNUSED: Final = ("", "0")  # a column of these is left out


def _measured(results: Results, grown: Grown, n_rounds: int) -> Iterator[str]:
    yield f"Measured on {describe_machine(*_PACKAGES)}; the best of {n_rounds} rounds."
    if absent := {name: missing(name) for name in FAMILIES if missing(name)}:
        yield f"Not measured, for want of a library: {', '.join(f'`{name}` ({of})' for name, of in absent.items())}."
    yield bars_table(results)
    for of, picture in pictures(results).items():
        yield f"![{_ALT.format(_LIBRARIES.get(of, of))}](../{picture})"
    for name in dict.fromkeys(name for name, _ in results):
        yield from (f"## {family(name).TITLE}", _cases_list(name), table(name, results))
    if grown:
        yield from (f"## {growth().TITLE}", f"![{_GROWTH_ALT}](../{GROWTH_PICTURE})", growth_table(grown))


def _verdict(bar: Bar, ways: CaseResults) -> str:
    return f"{bar.case} {_number(bar.ratio(ways))}{'' if bar.is_reached(ways) else ' (missed)'}"


def _what(bar: Bar) -> tuple[str, float, bool]:
    return bar.text, bar.limit, bar.is_floor


def _cases_list(name: str) -> str:
    return "\n".join(f"- **{case}**: {inspect.getdoc(function)}" for case, function in family(name).CASES.items())


def _rows(case: str, ways: CaseResults) -> Iterator[list[str]]:
    for place, (way, figures) in enumerate(ways.items()):
        times = _number(figures.seconds / ways[OURS].seconds)
        yield [f"**{case}**" if place == 0 else "", way, *_times(figures), times, *_cells(figures)]


def _times(figures: Figures) -> Sequence[str]:
    """Return the columns of seconds: of work, or of one call and of what it costs beyond its kernel."""
    if figures.overhead is not None:
        return "", _number(figures.seconds * 1e6), _number(figures.overhead * 1e6)
    return (_number(figures.seconds) if figures.compute > 0 else ""), "", ""


def _cells(figures: Figures) -> Sequence[str]:
    """Return the other columns; "" for what was not measured."""
    is_built, is_computed = figures.build > 0, figures.compute > 0
    return (
        _number(figures.build) if is_built else "",
        _number(figures.compute) if is_built and is_computed else "",
        f"{figures.tasks:,}" if figures.tasks else "",
        f"{figures.peak / 2**20:,.0f}",
        f"{figures.block / 2**20:,.1f}" if figures.block else "",
    )


def _growth_rows(what: Growth, curves: Curves) -> Iterator[list[str]]:
    for place, (way, curve) in enumerate(curves.items()):
        (least, first), (most, last) = curve[0], curve[-1]
        label = f"**{what.cost}**, by {what.size}" if place == 0 else ""
        yield [label, way, f"{least:,}", f"{most:,}", f"{first:.2g}", f"{last:.2g}", f"{slope(curve):z.2f}"]


def _number(value: float) -> str:
    """Return two or three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    marks = [":--" if cell in _WORDS else "--:" for cell in rows[0]]
    return _lines([rows[0], marks, *rows[1:]])


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
