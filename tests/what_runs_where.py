"""The table of what runs where, read off the tests: `python tests/what_runs_where.py` writes its page anew.

A test says which cells it covers by `@pytest.mark.covers(feature, *backends)`. Without backends they are all of
`BACKENDS`, and the test takes the fixture `backend`. With ``refused=True`` it shows that the call is refused by name;
``refused_without="attribute"`` says that of the backends whose class has that attribute false, and
``needs="attribute"`` leaves those out. Marks are read, not run, so that the page does not depend on what is installed;
`conftest` fails a test that covers a cell and is skipped for anything else than a library that is not there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends import BACKENDS

__all__ = ["FEATURES", "PAGE", "Cell", "cells", "page_text"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "what-runs-where.md"

FEATURES: Final = {
    "Signatures": [
        "loop and core dimensions",
        "several outputs",
        "new dimensions",
        "resized dimensions",
        "sizes from a function",
        "core dimensions of size 1, `n|1`",
        "optional dimensions, `n?`",
        "fixed sizes",
        "`axis`, `axes`, `keepdims`",
        "unknown sizes",
        "bounded sizes, `UpTo`",
        "empty batches",
    ],
    "Kernels": [
        "`vectorize`",
        "`threads`",
        '`kernel_arrays="numpy"`',
        '`kernel_arrays="same"`',
        '`kernel_arrays="traced"`',
        "`writable`",
        "`compute_dtype`",
        "keywords",
        "Python scalars",
        "masked arrays",
        "output dtypes that are found out",
        "NumPy's own gufuncs",
    ],
    "Around a call": [
        "wrong calls refused before any work",
        "wrong results refused",
        "exceptions of the kernel",
        "transfer with leave",
        "transfer without leave",
        "`explain`",
        "derivatives",
        "`lazy_apply`",
    ],
    "Core dimensions in chunks": ["merged", "`Reduction`", "`Scan`", "`Overlap`"],
}
"""The rows, under their headings."""


@dataclass(frozen=True, order=True)
class Cell:
    """What a test shows."""

    feature: str
    backend: str
    is_refused: bool


def cells() -> dict[Cell, list[str]]:
    """Return what the tests show, and which tests do."""
    found: dict[Cell, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for test, mark in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            for cell in _covered(test, mark):
                found.setdefault(cell, []).append(f"{path.name}::{test.name}")
    return found


def page_text() -> str:
    """Return the page."""
    shown = cells()
    columns = {name: backend.title for name, backend in BACKENDS.items()}
    tables = "\n\n".join(_table(heading, rows, columns, shown) for heading, rows in FEATURES.items())
    return f"{_INTRODUCTION}\n{tables}\n"


_INTRODUCTION: Final = """\
# What runs where

This page is generated from the marks of the tests, by `python tests/what_runs_where.py`: a cell says what a test
shows. **yes**: the call gives what NumPy gives. **refused**: it is refused by name, with an error that says what to do
instead. An empty cell is one that no test is marked with, whatever happens there.

"GPU (simulated)" is a small array library of the tests whose arrays go to the host by `get()` alone, as CuPy's do, and
let nothing else see their values. No GPU has run these tests.
"""


def _marks(module: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.Call]]:
    """Return each mark of a module with its test; methods of classes have them too."""
    for node in ast.walk(module):
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers":
                yield node, decorator


def _covered(test: ast.FunctionDef, mark: ast.Call) -> Iterator[Cell]:
    feature, *backends = map(ast.literal_eval, mark.args)
    keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in mark.keywords}
    takes_all = any(argument.arg == "backend" for argument in test.args.args)
    if takes_all == bool(backends) or keywords.keys() - {"refused", "refused_without", "needs"}:
        raise ValueError(f"{test.name}: {ast.unparse(mark)} names backends, or the test takes all by the fixture")
    for name in backends or BACKENDS:
        if _has(BACKENDS[name], keywords.get("needs")):
            is_refused = keywords.get("refused", not _has(BACKENDS[name], keywords.get("refused_without")))
            yield Cell(feature, name, is_refused)


def _has(backend: type, attribute: str | None) -> bool:
    return attribute is None or bool(getattr(backend, attribute))


def _table(heading: str, rows: list[str], columns: dict[str, str], shown: dict[Cell, list[str]]) -> str:
    lines = [f"## {heading}", "", _row(["", *columns.values()]), _row(["---"] * (1 + len(columns)))]
    lines += [_row([row, *(_text(row, column, shown) for column in columns)]) for row in rows]
    return "\n".join(lines)


def _row(parts: list[str]) -> str:
    return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"


def _text(feature: str, backend: str, shown: dict[Cell, list[str]]) -> str:
    answers = {is_refused for is_refused in (False, True) if Cell(feature, backend, is_refused) in shown}
    return {frozenset(): "", frozenset({False}): "yes", frozenset({True}): "refused"}.get(frozenset(answers), "both")


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
