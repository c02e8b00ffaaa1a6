"""Work that takes from milliseconds to a second, measured again and again in one process.

Knows no array library but NumPy.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from ._family import Figures, Measured, Way
from ._machine import peak_bytes

__all__ = ["measure_work"]

SECONDS: Final = 1.5  # in which the work is done as often as it can be
MOST: Final = 100  # times


def measure_work(way: Way) -> Measured:
    """Work once for what is made at the first call, and then for a while; the fastest counts."""
    before = peak_bytes()
    outputs = way()
    peak = peak_bytes() - before
    end = time.perf_counter() + SECONDS
    seconds = [_seconds(way)]
    while time.perf_counter() < end and len(seconds) < MOST:
        seconds.append(_seconds(way))
    figures = Figures(build=0, compute=min(seconds), tasks=0, peak=peak, block=0)
    return Measured(figures, tuple(map(np.asarray, outputs)))


def _seconds(way: Way) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin
