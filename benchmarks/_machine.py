"""The machine: what the figures depend on, in words that name neither it nor its folders, and what a process used."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version

__all__ = ["describe_machine", "limit_threads", "n_cores", "peak_bytes"]


def n_cores() -> int:
    """Return the number of cores, which is that of Dask's threads."""
    return os.cpu_count() or 1


def limit_threads() -> None:
    """Give linear algebra one thread, as Dask's documentation advises; NumPy reads that when it is imported."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"


def describe_machine(*packages: str) -> str:
    """Return cores, memory and versions of those packages that are installed, in a sentence's words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"{package} {found}" for package in packages if (found := _version(package))]
    system = f"{platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    return f"{n_cores()} cores, {memory:.0f} GiB of memory, {system}, {', '.join(versions)}"


def peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
