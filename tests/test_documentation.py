"""The documentation says what is so: its examples run, and it lists every option."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import fresh_process
import pages
import pytest

import applyufunc
from applyufunc._options import OPTION_NAMES

ROOT = Path(__file__).parents[1]

WIDTH = 90  # characters of a code block that a page shows without scrolling

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))

PACKAGE = Path(applyufunc.__file__).parent

MODULES = sorted(
    ".".join(("applyufunc", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__")
)


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for library in ("cubed", "dask", "jax", "matplotlib", "numba", "scipy", "sparse", "torch", "xarray"):
        if re.search(rf"^ *>>> (import|from) {library}\b", text, flags=re.MULTILINE):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)  # for what a page draws
    # JAX takes the number before its first array alone; programs of PyTorch outlive the page that they are part of.
    if "jax_num_cpu_devices" in text or "torch.compile" in text:
        fresh_process.run(f"import pages; pages.run({str(ROOT / page)!r})")
    else:
        pages.run(ROOT / page)
    assert {path.name for path in tmp_path.iterdir()} == drawn_by(text)


@pytest.mark.once
def test_program_of_the_page_on_shards_runs() -> None:
    pytest.importorskip("jax")
    text = (ROOT / "docs/how-to/sharded-arrays.md").read_text(encoding="utf-8")
    program = "".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    printed = " ".join(fresh_process.run(program))
    assert all(words in printed for words in ("(2, 2)", "P('batch',)", "float32[16@batch]"))


def drawn_by(text: str) -> set[str]:
    return set(re.findall(r"savefig\(\"(.*?)\"", text))


@pytest.mark.once
@pytest.mark.parametrize("page", [page for page in PAGES if drawn_by((ROOT / page).read_text(encoding="utf-8"))])
def test_page_shows_the_small_pictures_that_it_draws(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert drawn_by(text) == set(re.findall(r"!\[[^]]*\]\(\.\./_static/(.*?)\)", text))
    assert all((ROOT / "docs/_static" / name).stat().st_size < 100_000 for name in drawn_by(text))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(import_or_skip(name), optionflags=pages.FLAGS).failed == 0


def import_or_skip(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("applyufunc"):
            raise
        pytest.skip(f"{name} needs {error.name}")


@pytest.mark.once
@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_code_of_a_page_fits_its_column_and_ends_without_an_empty_line(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```\w+\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > WIDTH] == []
    assert [block for block in blocks if block.endswith("\n\n")] == []


def test_reference_lists_every_public_name_once() -> None:
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: (?:applyufunc\.)?(\w+)$", text, flags=re.MULTILINE)) == sorted(
        applyufunc.__all__
    )


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
