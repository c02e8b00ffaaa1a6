"""What was measured, as Markdown: bars, then a table for each family. Writes it into a page between two marks.

In: `Results`. Out: text, and the page. Knows no array library.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ._family import Bar, CaseResults, Figures
from ._machine import describe_machine
from ._runs import Results, family, runnable

__all__ = ["PICTURES", "all_bars", "measured_text", "table", "write_page"]

PICTURES: Final = {"dask": "_static/benchmarks.svg", "jax": "_static/benchmarks-jax.svg"}
"""By library, where they are in the documentation."""

BEGIN: Final = "<!-- measured: begin; written by python -m benchmarks -->"
END: Final = "<!-- measured: end -->"


def write_page(page: Path, results: Results, n_rounds: int) -> None:
    """Put what was measured between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n\n".join([before + BEGIN, measured_text(results, n_rounds), END + after]), encoding="utf-8")


def measured_text(results: Results, n_rounds: int) -> str:
    """Return everything as Markdown."""
    machine = describe_machine("numpy", "dask", "jax", "applyufunc")
    parts = [
        f"Measured on {machine}; the best of {n_rounds} rounds.",
        _bars_table(results),
        *(f"![{_ALT.format(_NAMES[of])}](../{picture})" for of, picture in PICTURES.items()),
    ]
    for name in runnable():
        parts += [f"## {family(name).TITLE}", _cases_list(name), table(name, results)]
    return "\n\n".join(parts)


def all_bars(results: Results) -> Iterator[tuple[Bar, CaseResults]]:
    """Yield every bar with the figures that it is for."""
    for name in runnable():
        for bar in family(name).BARS:
            if (name, bar.case) in results:
                yield bar, results[name, bar.case]


def table(name: str, results: Results) -> str:
    """Return the figures of a family, one line for each way."""
    rows = [_HEADER, *(row for (of, case), ways in results.items() if of == name for row in _rows(case, ways))]
    used = [any(cells) for cells in zip(*rows[1:], strict=True)]
    kept = [list(itertools.compress(row, used)) for row in rows]
    aligned = [":--" if cell in _WORDS else "--:" for cell in kept[0]]
    return _lines([kept[0], aligned, *kept[1:]])


_ALT: Final = "For every case on {}, how many times the seconds and the peak memory of applyufunc the other ways take."
_NAMES: Final = {"dask": "Dask", "jax": "JAX"}

_WORDS: Final = ("case", "way")
_HEADER: Final = (*_WORDS, "seconds", "build, s", "compute, s", "tasks", "peak memory, MiB", "largest block, MiB")


def _bars_table(results: Results) -> str:
    rows = [["ours, as a share", "has to be", "is"], [":--", ":--", ":--"]]
    for (text, limit, is_floor), bars in itertools.groupby(all_bars(results), key=lambda each: _what(each[0])):
        rows.append([text, f"{'at least' if is_floor else 'at most'} {limit:g}", ", ".join(_verdict(*b) for b in bars)])
    return _lines(rows)


def _verdict(bar: Bar, ways: CaseResults) -> str:
    return f"{bar.case} {_number(bar.ratio(ways))}{'' if bar.is_reached(ways) else ' (missed)'}"


def _what(bar: Bar) -> tuple[str, float, bool]:
    return bar.text, bar.limit, bar.is_floor


def _cases_list(name: str) -> str:
    return "\n".join(f"- **{case}**: {inspect.getdoc(function)}" for case, function in family(name).CASES.items())


def _rows(case: str, ways: CaseResults) -> Iterator[list[str]]:
    for place, (way, figures) in enumerate(ways.items()):
        yield [f"**{case}**" if place == 0 else "", way, *_cells(figures)]


def _cells(figures: Figures) -> Sequence[str]:
    """Return the columns of figures; "" for what was not measured."""
    is_built, is_computed = figures.build > 0, figures.compute > 0
    return (
        _number(figures.seconds) if is_computed else "",
        _number(figures.build) if is_built else "",
        _number(figures.compute) if is_built and is_computed else "",
        f"{figures.tasks:,}" if figures.tasks else "",
        f"{figures.peak / 2**20:,.0f}",
        f"{figures.block / 2**20:,.1f}" if figures.block else "",
    )


def _number(value: float) -> str:
    """Return two or three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
