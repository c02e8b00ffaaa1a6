"""Calls so short that many of them make one measurement, and what they cost beyond the kernel that they call.

Knows no array library but NumPy.
"""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ._family import Figures, Measured, Way, as_tuple
from ._machine import peak_bytes

__all__ = ["Call", "measure_call", "seconds_in_turns"]

BUDGET: Final = 0.2  # seconds, in which all is run as often as it can be
LOOP: Final = 1e-3  # seconds, beside which reading the clock takes no time


@dataclass(frozen=True, slots=True)
class Call:
    """A way that is one call, with the same call of the kernel alone."""

    call: Callable[[], Any]
    kernel: Callable[[], Any]

    def __call__(self) -> tuple[Any, ...]:
        """Return the outputs, of which there may be one."""
        return as_tuple(self.call())


def measure_call(way: Way) -> Measured:
    """Make a call again and again, in turns with its kernel, so that what slows one down slows down the other."""
    if not isinstance(way, Call):
        raise TypeError(f"the ways to make a call must be Call objects, not {way!r}")
    before = peak_bytes()
    outputs = tuple(map(np.asarray, way()))
    seconds, of_kernel = seconds_in_turns(way.call, way.kernel)
    overhead = 0.0 if way.call is way.kernel else seconds - of_kernel
    return Measured(Figures(0, seconds, 0, peak_bytes() - before, 0, overhead), outputs)


def seconds_in_turns(*calls: Callable[[], Any]) -> tuple[float, ...]:
    """Return the seconds of one call of each, the least of what many loops came to."""
    timers = [timeit.Timer(call) for call in calls]
    n_calls = [max(1, int(LOOP / timer.timeit(1))) for timer in timers]
    least = [math.inf for _ in timers]
    end = time.perf_counter() + BUDGET
    while time.perf_counter() < end or math.inf in least:
        loops = zip(least, timers, n_calls, strict=True)
        least = [min(seconds, timer.timeit(n) / n) for seconds, timer, n in loops]
    return tuple(least)
