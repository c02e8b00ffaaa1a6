"""The end of the process, which waits for kernels that XLA's threads are still calling, or are about to call.

A program for several devices may go on when its caller has all that it wanted: a result that is the same everywhere is
there as soon as one device has it, and one that is dropped is computed all the same. Python ends a thread that asks for
its lock when it is too late; XLA then waits for that thread for ever, or ends the process with a failure.

In: the threads that run a kernel. Out: nothing. XLA does not say what it has still to do, so that a moment of silence
among them has to do. On one device a call returns when all is done; only a thread that nobody waits for may be in one.
A thread that calls again and again is never silent, and is left behind, as Python leaves it.

Names of JAX: `jax.live_arrays`, `jax.local_devices`, `jax.process_count` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import atexit
import time
from contextlib import suppress
from functools import cache
from typing import Final

import jax

__all__ = ["running", "wait_at_exit"]

running: Final[dict[int, object]] = {}
"""Threads, by identity, that run a kernel at the moment, each with an object that is this call's alone."""


@cache
def wait_at_exit() -> None:
    """Have the process wait when it ends, before JAX, which is imported already, takes its devices down."""
    atexit.register(_wait)


def _wait() -> None:
    is_one_device = len(jax.local_devices(backend="cpu")) == 1
    if not is_one_device and jax.process_count() == 1:  # of several, one that has failed would wait for the others
        with suppress(Exception):  # of a kernel, which nobody has asked for
            jax.block_until_ready(jax.live_arrays())
    end = time.monotonic() + _PATIENCE
    _wait_for_calls(end)
    if not is_one_device:
        _wait_for_silence(end)


def _wait_for_calls(end: float) -> None:
    """Wait until the calls that are under way now are over."""
    calls = list(running.items())
    while time.monotonic() < end and any(running.get(thread) is call for thread, call in calls):
        time.sleep(0.01)


def _wait_for_silence(end: float) -> None:
    """Wait until no kernel has run for a moment."""
    silent_since = time.monotonic()
    while silent_since < end and time.monotonic() - silent_since < _SILENCE:
        time.sleep(0.01)
        if running:
            silent_since = time.monotonic()


_SILENCE: Final = 0.2  # seconds
_PATIENCE: Final = 60  # seconds
