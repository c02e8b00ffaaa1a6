"""The documentation says what is so: its examples run, and it lists every option."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import applyufunc
from applyufunc._options import OPTION_NAMES

ROOT = Path(__file__).parents[1]

EXAMPLE_FLAGS = doctest.ELLIPSIS  # texts of errors included: they are part of what is documented

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))

PACKAGE = Path(applyufunc.__file__).parent

MODULES = sorted(
    ".".join(("applyufunc", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__")
)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for library in ("dask", "jax"):
        if f">>> import {library}" in text:
            pytest.importorskip(library)
    assert doctest.testfile(str(ROOT / page), module_relative=False, optionflags=EXAMPLE_FLAGS).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(import_or_skip(name), optionflags=EXAMPLE_FLAGS).failed == 0


def import_or_skip(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("applyufunc"):
            raise
        pytest.skip(f"{name} needs {error.name}")


def test_reference_lists_every_option_once() -> None:
    rows = (ROOT / "docs/reference/options.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` ", rows, flags=re.MULTILINE)) == sorted(OPTION_NAMES)


def test_readme_has_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in readme.splitlines() if line.startswith("python3 -m venv ")]
    assert [command.rpartition(" && ")[2].split()[:3] for command in commands] == [
        [".venv/bin/python", "-m", "applyufunc"],
        [".venv/bin/python", "-m", "pytest"],
    ]
