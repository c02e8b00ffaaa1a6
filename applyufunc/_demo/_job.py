"""The main job from the data to the picture: what is done, in which order, and what is said of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ._report import agree, describe_data, describe_trend, describe_verdict, table
from ._runs import INSTALL, Run, is_installed, run_on
from ._sea import Sea, read_sea

__all__ = ["Job", "run_job"]


@dataclass(frozen=True, slots=True)
class Job:
    """What to run, and on how much of the data."""

    backends: tuple[str, ...]  # NumPy first: the others are compared with it
    chunks: tuple[int, ...]  # of Dask's input: winters, latitudes, longitudes
    stride: int  # between pixels
    picture: Path | None  # None: draw none


def run_job(job: Job) -> int:
    """Run the job, print the report, and return the exit status: 0 if all agree and the picture is written, else 1."""
    sea = read_sea(job.stride)
    print(*describe_data(sea), "", sep="\n", flush=True)
    runs = [run_on(backend, sea, job.chunks) for backend in job.backends if is_installed(backend)]
    print(*table(runs), sep="\n")
    for backend in job.backends:
        if not is_installed(backend):
            print(f"{backend}: skipped, it is not installed: {INSTALL[backend]}")
    print("", describe_verdict(runs), describe_trend(runs[0]), sep="\n")
    is_drawn = job.picture is None or _write_picture(sea, runs[0], job.picture)
    return 0 if agree(runs) and is_drawn else 1


def _write_picture(sea: Sea, run: Run, path: Path) -> bool:
    """Draw the picture, and return whether nothing went wrong; without matplotlib it is left out."""
    if find_spec("matplotlib") is None:
        print("picture: skipped, matplotlib is not installed: pip install matplotlib")
        return True
    from ._picture import draw

    try:
        draw(sea, run, path)
    except OSError as error:
        print(f"applyufunc: error: the picture was not written: {error}", file=sys.stderr)
        return False
    print(f"Picture: {path}")
    return True
