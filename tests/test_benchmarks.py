"""The benchmarks run on small arrays: all ways of a case give the same, and the command says what it measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("jax")
pytest.importorskip("matplotlib")
pytest.importorskip("xarray")

ROOT = Path(__file__).parents[1]

sys.path.append(str(ROOT))  # at the end: applyufunc is the one that is installed

from benchmarks.__main__ import main  # noqa: E402
from benchmarks._family import OURS, OURS_BY_PARTS, Figures  # noqa: E402
from benchmarks._page import table, write_page  # noqa: E402
from benchmarks._picture import draw  # noqa: E402
from benchmarks._runs import FAMILIES, Run, check_equal, contenders, family, measured, select  # noqa: E402

CASES = select([])


@pytest.mark.once
@pytest.mark.parametrize(("name", "case"), CASES)
def test_all_ways_of_a_case_give_the_same(name: str, case: str) -> None:
    ways = {way: measured(Run(name, case, way, quick=True)) for way in family(name).CASES[case](True)}
    for way, run in ways.items():
        check_equal(run.outputs, ways[OURS].outputs, way)
        assert run.figures.seconds > 0


def test_unequal_results_are_refused() -> None:
    with pytest.raises(AssertionError, match="C1, rechunk"):
        check_equal([np.array([1.0, 2.0])], [np.array([1.0, 2.001])], "C1, rechunk")
    with pytest.raises(AssertionError, match="float32, expected float64"):
        check_equal([np.ones(2, "f4")], [np.ones(2)], "C1, rechunk")


def figures(seconds: float, mebibytes: int = 1) -> Figures:
    return Figures(0.0, seconds, tasks=3, peak=mebibytes << 20, block=mebibytes << 20)


def test_ways_far_behind_are_not_run_again_unless_they_are_short() -> None:
    ways = {OURS: [figures(9.0)], "rechunk": [figures(2.0)], "apply_gufunc": [figures(6.5)], "da.std": []}
    assert contenders(ways) == [OURS, "rechunk", "da.std"]
    assert contenders({OURS: [figures(0.1)], "rechunk": [figures(2.9)]}) == [OURS, "rechunk"]


def test_bars_compare_ours_with_the_best_of_the_others() -> None:
    ways = {OURS: figures(1.1), OURS_BY_PARTS: figures(0.5), "rechunk": figures(1.0), "da.std": figures(0.4)}
    any_kernel, known_kernel, block = (bar for bar in family("dask_chunks").BARS if bar.case == "C1")
    assert any_kernel.is_reached(ways)
    assert known_kernel.ratio(ways) == 1.25
    assert not known_kernel.is_reached(ways)
    assert block.ratio(ways) == 1 / 128


def test_page_keeps_its_text_around_what_was_measured(tmp_path: Path) -> None:
    results = {("dask_reductions", "dot"): {OURS: figures(0.25, 20), "rechunk": figures(1.0, 200)}}
    page = tmp_path / "page.md"
    begin, end = "<!-- measured: begin; written by python -m benchmarks -->", "<!-- measured: end -->"
    page.write_text(f"before\n\n{begin}\nold\n{end}\nafter\n")
    write_page(page, results, n_rounds=3)
    text = page.read_text()
    assert text.startswith(f"before\n\n{begin}\n")
    assert text.endswith(f"\n{end}\nafter\n")
    assert "old" not in text
    assert "| seconds, of `rechunk` | at most 0.5 | dot 0.25 |" in text
    assert "| **dot** | applyufunc | 0.25 | 3 | 20 | 20.0 |" in text


def test_figures_that_are_not_measured_have_no_column() -> None:
    ways = {OURS: Figures(0, 0.025, 0, 1 << 20, 0), "pure_callback": Figures(0, 0.25, 0, 3 << 20, 0)}
    assert table("jax_calls", {("jax_calls", "one element"): ways}).splitlines() == [
        "| case | way | seconds | peak memory, MiB |",
        "| :-- | :-- | --: | --: |",
        "| **one element** | applyufunc | 0.025 | 1 |",
        "|  | pure_callback | 0.25 | 3 |",
    ]


def test_picture_has_a_row_for_every_case(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    draw(picture, "dask", {("dask_reductions", "dot"): {OURS: figures(0.25, 20), "rechunk": figures(1.0, 200)}})
    assert "<!-- dot   0.25 s, 20 MiB -->" in picture.read_text()


def test_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no family and no case 'C7'; the families are numpy_loops, "):
        select(["C1", "C7"])


def test_help_lists_the_families(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"families ({', '.join(FAMILIES)})" in shown


@pytest.mark.once
def test_command_prints_what_it_measured() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "dot"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == [OURS, "apply_gufunc", "rechunk", "da.einsum"]
