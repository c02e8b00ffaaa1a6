"""The benchmarks run on small arrays: all ways of a case give the same, and the command says what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for library in ("array_api_extra", "dask", "jax", "matplotlib", "xarray"):
    pytest.importorskip(library)

ROOT = Path(__file__).parents[1]

sys.path.append(str(ROOT))  # at the end: applyufunc is the one that is installed

from benchmarks import _families, growth  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks._calls import seconds_in_turns  # noqa: E402
from benchmarks._families import FAMILIES, family, installed, missing  # noqa: E402
from benchmarks._family import KERNEL, OURS, OURS_BY_PARTS, Figures  # noqa: E402
from benchmarks._growth import points, slope  # noqa: E402
from benchmarks._page import growth_table, pictures, table, write_page  # noqa: E402
from benchmarks._picture import draw, draw_growth  # noqa: E402
from benchmarks._runs import Run, check_equal, contenders, measured, select  # noqa: E402
from benchmarks.asv_suite import families as asv_families  # noqa: E402

CASES = select([])


@pytest.mark.once
@pytest.mark.parametrize(("name", "case"), CASES)
def test_all_ways_of_a_case_give_the_same(name: str, case: str) -> None:
    ways = {way: measured(Run(name, case, way, quick=True)) for way in family(name).CASES[case](True)}
    for way, run in ways.items():
        check_equal(run.outputs, ways[OURS].outputs, way)
        assert run.figures.seconds > 0
    assert set(ways) <= set(family(name).WAYS)


@pytest.mark.once
@pytest.mark.parametrize("name", installed())
def test_every_way_that_a_family_names_is_in_a_case(name: str) -> None:
    assert {way for case in family(name).CASES.values() for way in case(True)} == set(family(name).WAYS)


@pytest.mark.once
@pytest.mark.parametrize("name", installed())
def test_asv_has_a_class_for_every_family(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = asv_families.make_classes()[name.title().replace("_", "")]()
    monkeypatch.setattr(type(benchmark), "is_small", True)
    assert benchmark.params == (list(family(name).CASES), list(family(name).WAYS))
    case = benchmark.params[0][0]
    benchmark.setup(case, OURS)
    assert benchmark.track_seconds(case, OURS) > 0


def test_asv_skips_what_a_case_has_no_way_for() -> None:
    with pytest.raises(NotImplementedError):
        asv_families.make_classes()["DaskChunks"]().setup("C1", "da.einsum")


@pytest.mark.once
def test_asv_runs_what_it_finds(tmp_path: Path) -> None:
    pytest.importorskip("asv")
    settings = json.loads((ROOT / "asv.conf.json").read_text())
    settings |= {"benchmark_dir": str(ROOT / settings["benchmark_dir"])}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings))
    paths = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"HOME": str(tmp_path), "ASV_PYTHONPATH": paths, "APPLYUFUNC_SMALL_BENCHMARKS": "1"}
    for command in (["machine", "--yes"], ["run", "--python=same", "--quick", "--bench", ASV_BENCHMARK]):
        done = subprocess.run(
            [sys.executable, "-m", "asv", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:3] == ["two", "arguments", OURS]]
    assert line.split()[-1].endswith("s")


ASV_BENCHMARK = rf"NumpyCalls.track_seconds\('two arguments', '{OURS}'\)"


def test_family_whose_library_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "absent_calls.py").write_text("import no_such_library\n")
    monkeypatch.setattr(sys.modules["benchmarks"], "__path__", [*sys.modules["benchmarks"].__path__, str(tmp_path)])
    monkeypatch.setattr(_families, "FAMILIES", ("absent_calls", "imports"))
    assert missing("absent_calls") == "no_such_library"
    assert installed() == ("imports",)


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
    write_page(page, results, {}, n_rounds=3)
    text = page.read_text()
    assert text.startswith(f"before\n\n{begin}\n")
    assert text.endswith(f"\n{end}\nafter\n")
    assert "old" not in text
    assert "| seconds, of `rechunk` | at most 0.5 | dot 0.25 |" in text
    assert "| **dot** | applyufunc | 0.25 | 1.00 | 3 | 20 | 20.0 |" in text
    assert "(../_static/benchmarks-dask.svg)" in text
    assert "jax" not in text.partition("\n\n|")[2]


def test_figures_that_are_not_measured_have_no_column() -> None:
    ways = {OURS: Figures(0, 0.025, 0, 1 << 20, 0), "pure_callback": Figures(0, 0.25, 0, 3 << 20, 0)}
    assert table("jax_calls", {("jax_calls", "one element"): ways}).splitlines() == [
        "| case | way | seconds | times ours | peak memory, MiB |",
        "| :-- | :-- | --: | --: | --: |",
        "| **one element** | applyufunc | 0.025 | 1.00 | 1 |",
        "|  | pure_callback | 0.25 | 10.00 | 3 |",
    ]


def call(microseconds: float, kernel: float) -> Figures:
    return Figures(0, microseconds * 1e-6, 0, 0, 0, overhead=(microseconds - kernel) * 1e-6)


def test_calls_are_told_in_microseconds_and_judged_by_what_they_cost_beyond_the_kernel() -> None:
    ways = {OURS: call(4, 1), "lazy_apply": call(16, 1), "xarray.apply_ufunc": call(91, 1), KERNEL: call(1, 1)}
    assert table("numpy_calls", {("numpy_calls", "two arguments"): ways}).splitlines() == [
        "| case | way | one call, µs | beyond the kernel, µs | times ours |",
        "| :-- | :-- | --: | --: | --: |",
        "| **two arguments** | applyufunc | 4.00 | 3.00 | 1.00 |",
        "|  | lazy_apply | 16.00 | 15.00 | 4.00 |",
        "|  | xarray.apply_ufunc | 91.00 | 90.00 | 22.75 |",
        "|  | bare kernel | 1.00 | 0 | 0.25 |",
    ]
    bars = [bar for bar in family("numpy_calls").BARS if bar.case == "two arguments"]
    assert [(round(bar.ratio(ways), 3), bar.is_reached(ways)) for bar in bars] == [(0.2, True), (0.033, False)]


def test_overhead_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="the overhead of this way was not measured"):
        _ = figures(1.0).beyond_kernel


def test_calls_in_turns_are_timed_one_by_one() -> None:
    slow, fast = seconds_in_turns(lambda: sum(range(20_000)), lambda: None)
    assert 0 < fast < slow < 1


def test_slope_is_that_of_the_larger_sizes() -> None:
    assert slope(tuple((size, 5.0 if size < 100 else size**2) for size in (10, 50, 200, 400, 800))) == pytest.approx(2)
    assert np.isnan(slope(((10, 1.0),)))


@pytest.mark.once
@pytest.mark.parametrize("name", growth.growths())
def test_growth_is_measured_at_three_sizes(name: str) -> None:
    what = growth.growths()[name]
    curve = points(name, what.names[0], quick=True)
    assert what.names[0] == OURS
    assert [size for size, _ in curve] == list(what.sizes[:3])
    assert all(cost > 0 for _, cost in curve)


@pytest.mark.parametrize("name", growth.growths())
def test_ways_that_grow_are_those_of_a_case(name: str) -> None:
    what = growth.growths()[name]
    assert set(what.names) <= set(what.ways(what.sizes[0]))


def test_growth_is_drawn_and_told_with_its_slopes(tmp_path: Path) -> None:
    curves = {OURS: ((10, 0.5), (100, 0.5), (1000, 0.5)), "apply_gufunc": ((10, 0.01), (100, 0.1), (1000, 1.0))}
    picture = tmp_path / "picture.svg"
    draw_growth(picture, {"Dask, build": curves})
    assert "<!-- Dask, build: seconds to build a graph -->" in picture.read_text()
    assert growth_table({"Dask, build": curves}).splitlines()[2:] == [
        "| **seconds to build a graph**, by blocks | applyufunc | 10 | 1,000 | 0.5 | 0.5 | 0.00 |",
        "|  | apply_gufunc | 10 | 1,000 | 0.01 | 1 | 1.00 |",
    ]


def test_picture_has_a_row_for_every_case(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    draw(picture, "dask", {("dask_reductions", "dot"): {OURS: figures(0.25, 20), "rechunk": figures(1.0, 200)}})
    assert "<!-- dot   0.25 s, 20 MiB -->" in picture.read_text()


def test_library_gets_a_picture_if_a_family_of_its_own_was_computed() -> None:
    built = {OURS: Figures(1.0, 0, 0, 0, 0)}
    computed = {OURS: figures(1.0)}
    results = {("dask_graphs", "one output"): built, ("torch_calls", "one element"): computed}
    assert pictures(results) == {"torch": "_static/benchmarks-torch.svg"}


def test_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no family and no case 'C7'; the families are numpy_calls, "):
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
