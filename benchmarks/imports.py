"""What importing costs in a process that has NumPy already: ours, and the libraries that ours must not import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from ._family import OURS, Bar, Case, CaseResults, Figures, Measured, Way, Ways

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Importing"

WAYS: Final = (OURS, "array_api_extra", "xarray", "dask.array", "jax")

ALLOWED: Final = 0.015  # seconds

PROGRAM: Final = "import time, numpy; begin = time.process_time(); import {}; print(time.process_time() - begin)"


def fresh(quick: bool) -> Ways:
    """Seconds of the processor in a fresh process, after `import numpy`; the least of many."""
    there = [name for name in WAYS if find_spec(name.partition(".")[0])]
    return {name: partial(_import, name, 1 if quick else 4) for name in there}


CASES: Final[Mapping[str, Case]] = MappingProxyType({"fresh process": fresh})


def measure(way: Way) -> Measured:
    """Return the least of the seconds that a way found; there is nothing to compare."""
    return Measured(Figures(build=0, compute=min(way()), tasks=0, peak=0, block=0), ())


def _bars() -> Sequence[Bar]:
    def of_allowed(results: CaseResults) -> float:
        return results[OURS].seconds / ALLOWED

    return [Bar(f"seconds beyond `import numpy`, of {ALLOWED}", "fresh process", 1, of_allowed)]


BARS: Final = _bars()


def _import(module: str, n_times: int) -> tuple[Any, ...]:
    """Return the seconds that an import took, each time in a process of its own."""
    command = [sys.executable, "-c", PROGRAM.format(module)]
    # Who installs a package has its bytecode; here the first process may have to write it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return tuple(float(subprocess.check_output(command, env=environment)) for _ in range(n_times))
