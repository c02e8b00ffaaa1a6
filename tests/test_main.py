"""The main job: what it runs and says, what it refuses, and that it can fail."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from applyufunc import __version__
from applyufunc.__main__ import main

PNG = b"\x89PNG\r\n\x1a\n"

# Every third pixel in both directions: 6 latitudes, 10 longitudes.
SMALL = ("--stride", "3")


@pytest.fixture
def demo_installed() -> None:
    pytest.importorskip("eofs")
    pytest.importorskip("scipy")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "applyufunc", *arguments], capture_output=True, text=True, check=False, encoding="utf-8"
    )


def cells(report: str, backend: str) -> list[str]:
    """The cells of a backend's line in the table."""
    (line,) = [line for line in report.splitlines() if line.startswith(f"{backend} ")]
    return [cell.strip() for cell in line.split("  ") if cell]


@pytest.mark.usefixtures("demo_installed")
def test_dask_agrees_with_numpy_and_runs_the_kernel_once_per_pixel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dask")
    assert main([*SMALL, "--backends", "dask", "--chunks", "20", "2", "5", "--no-picture"]) == 0
    report = capsys.readouterr().out
    assert "All agree: numpy, dask " in report
    assert cells(report, "numpy")[:5] == ["numpy", "numpy.ndarray", "60", "1", "(50,) (50,)"]
    assert cells(report, "dask")[:5] == ["dask", "dask.array.Array", "60", "6", "(50,) (50,)"]


@pytest.mark.usefixtures("demo_installed")
def test_jax_agrees_with_numpy_and_calls_back_once(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert main([*SMALL, "--backends", "jax", "--no-picture"]) == 0
    report = capsys.readouterr().out
    assert "All agree: numpy, jax " in report
    assert cells(report, "jax")[:5] == ["jax", "jax.Array", "60", "1", "(50,) (50,)"]


@pytest.mark.usefixtures("demo_installed")
def test_slopes_and_p_values_are_those_of_scipy_pixel_by_pixel() -> None:
    from scipy import stats

    from applyufunc._demo._runs import run_on
    from applyufunc._demo._sea import read_sea

    sea = read_sea(stride=4)
    run = run_on("numpy", sea, ())
    assert run.slope.shape == run.p_value.shape == (5, 8)
    latitude, longitude = 2, 3  # 17.5°N 177.5°E, in the open sea
    series = sea.anomalies[:, latitude, longitude]
    assert run.slope[latitude, longitude] == stats.theilslopes(series, sea.years).slope
    assert run.p_value[latitude, longitude] == stats.kendalltau(sea.years, series).pvalue


@pytest.mark.usefixtures("demo_installed")
def test_data_are_fifty_winters_with_nan_over_land() -> None:
    import numpy as np

    from applyufunc._demo._sea import read_sea

    sea = read_sea()
    assert sea.anomalies.shape == (50, 18, 30)
    assert (sea.latitudes[0], sea.latitudes[-1], sea.longitudes[0], sea.longitudes[-1]) == (-22.5, 62.5, 117.5, 262.5)
    assert np.round(sea.years[[0, -1]], 2).tolist() == [1963.04, 2012.04]  # the middle of January
    assert np.isnan(sea.anomalies).all(axis=0).sum() == 90
    assert np.nanmax(np.abs(sea.anomalies)) < 10  # °C: the fill value is gone


@pytest.mark.usefixtures("demo_installed")
def test_report_says_where_the_data_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--backends", "numpy", "--no-picture"]) == 0
    report = capsys.readouterr().out
    assert "eofs/examples/example_data/sst_ndjfm_anom.nc" in report
    assert "shape (50, 6, 10)" in report
    assert "nothing to compare" in report


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.parametrize("fault", ["other values", "NaN elsewhere", "other shape"])
def test_backend_that_disagrees_fails_the_job(
    fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dask")
    import numpy as np

    from applyufunc._demo import _job

    broken = {
        "other values": lambda slope: slope + 1e-9,
        "NaN elsewhere": np.nan_to_num,
        "other shape": lambda slope: slope[1:],
    }[fault]
    run_on = _job.run_on

    def run_on_broken_dask(backend, sea, chunks):
        run = run_on("numpy", sea, chunks)
        return run if backend == "numpy" else dataclasses.replace(run, backend=backend, slope=broken(run.slope))

    monkeypatch.setattr(_job, "run_on", run_on_broken_dask)
    assert main([*SMALL, "--backends", "dask", "--no-picture"]) == 1
    report = capsys.readouterr().out
    assert "They do NOT agree: more than 1e-12 from numpy: dask." in report
    assert "All agree" not in report


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.parametrize(("backend", "install"), [("dask", "pip install 'dask[array]'"), ("jax", "pip install jax")])
def test_backend_that_is_not_installed_is_skipped_and_says_how_to_get_it(
    backend: str, install: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, backend, None)
    assert main([*SMALL, "--backends", backend, "--no-picture"]) == 0
    assert f"{backend}: skipped, it is not installed: {install}\n" in capsys.readouterr().out


@pytest.mark.usefixtures("demo_installed")
def test_picture_is_skipped_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    picture = tmp_path / "trend.png"
    assert main([*SMALL, "--backends", "numpy", "--picture", str(picture)]) == 0
    assert "picture: skipped, matplotlib is not installed: pip install matplotlib\n" in capsys.readouterr().out
    assert not picture.exists()


@pytest.mark.parametrize("library", ["eofs", "scipy"])
def test_job_without_its_data_or_kernel_says_how_to_get_them(
    library: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["--no-picture"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("applyufunc: error: it needs ")
    assert library in line.partition("pip install ")[2]


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.parametrize("stride", ["1", "18", "30"])  # all; two pixels; one pixel
def test_picture_is_a_png(stride: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "trend.png"
    assert main(["--stride", stride, "--backends", "numpy", "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(PNG)
    assert f"Picture: {picture}\n" in capsys.readouterr().out


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.parametrize("stride", [1, 3, 6, 9, 18, 30])
def test_picture_cuts_no_label_and_shows_sea_as_sea(stride: int, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    import numpy as np

    from applyufunc._demo._picture import LAND, draw
    from applyufunc._demo._runs import run_on
    from applyufunc._demo._sea import read_sea

    sea = read_sea(stride)
    draw(sea, run_on("numpy", sea, ()), tmp_path / "trend.png")
    pixels = image.imread(tmp_path / "trend.png")[:, :, :3]
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()  # white
    is_grey = (np.abs(pixels - float(LAND)) < 0.01).all(axis=-1)
    has_land = np.isnan(sea.anomalies).any()
    assert is_grey.mean() > 0.01 if has_land else is_grey.mean() < 0.002


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.parametrize("stride", [1, 30])
def test_pixels_of_the_picture_are_as_wide_as_their_distance(stride: int) -> None:
    pytest.importorskip("matplotlib")
    import numpy as np

    from applyufunc._demo._picture import _edges
    from applyufunc._demo._sea import read_sea

    sea = read_sea(stride)
    for centres in (sea.latitudes, sea.longitudes):
        edges = _edges(centres, sea.spacing)
        np.testing.assert_allclose(np.diff(edges), 5 * stride)
        np.testing.assert_allclose((edges[1:] + edges[:-1]) / 2, centres)


@pytest.mark.usefixtures("demo_installed")
def test_picture_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "trend.png"
    folder.mkdir()
    assert main([*SMALL, "--backends", "numpy", "--picture", str(folder)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("applyufunc: error: the picture was not written: ")


@pytest.mark.usefixtures("demo_installed")
@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
def test_reader_that_has_gone_ends_the_job_in_silence() -> None:
    arguments = [sys.executable, "-m", "applyufunc", "--stride", "18", "--backends", "numpy", "--no-picture"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        job.stdout.close()
        assert job.stderr.read() == b""
    assert job.returncode == 141  # as a shell says it of a command that SIGPIPE ended


def test_version_is_that_of_the_package() -> None:
    shown = command("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"applyufunc {__version__}\n", "")


def test_help_names_every_option_and_gives_examples() -> None:
    shown = command("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    for option in ("--backends", "--chunks", "--stride", "--picture", "--no-picture", "--version"):
        assert option in shown.stdout
    for heading in ("examples:", "exit status:"):
        assert heading in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backends", "numpi"], "invalid choice: 'numpi'"),
        (["--chunks", "10", "9"], "argument --chunks: expected 3 arguments"),
        (["--chunks", "10", "0", "9"], "argument --chunks: expected a whole number from 1, got '0'"),
        (["--stride", "2.5"], "argument --stride: expected a whole number from 1, got '2.5'"),
        (
            ["--picture", "trend.jpg"],
            "argument --picture: expected a name that ends in .pdf, .png, .svg, got 'trend.jpg'",
        ),
        (["--picture", "no-such-folder/trend.png"], "argument --picture: there is no folder 'no-such-folder'"),
        (["--strides", "2"], "unrecognized arguments: --strides 2"),
    ],
)
def test_bad_arguments_get_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("applyufunc: error: ")
    assert says in line


def test_bad_arguments_are_refused_by_the_command_too() -> None:
    refused = command("--stride", "0")
    assert refused.returncode == 2
    assert refused.stderr == (
        "applyufunc: error: argument --stride: expected a whole number from 1, got '0' (see applyufunc --help)\n"
    )


def test_command_line_is_read_before_anything_heavy_is_imported() -> None:
    code = "import json, sys; import applyufunc.__main__; print(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = {name.partition(".")[0] for name in json.loads(printed)}
    assert loaded & {"dask", "eofs", "jax", "matplotlib", "scipy"} == set()
