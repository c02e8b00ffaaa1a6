"""The end of the process, which waits for kernels that XLA's threads are still calling, or are about to call.

A program for several devices may go on when its caller has all that it wanted: a result that is the same everywhere is
there as soon as one device has it, and one that is dropped is computed all the same. Python ends a thread that asks for
its lock when it is too late; XLA then waits for that thread for ever, or ends the process with a failure.

In: the threads that run a kernel. Out: nothing. XLA does not say what it has still to do, so that a moment of silence
among them has to do.

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

running: Final[set[int]] = set()
"""Identities of the threads that run a kernel at the moment."""


@cache
def wait_at_exit() -> None:
    """Have the process wait when it ends, before JAX, which is imported already, takes its devices down."""
    atexit.register(_wait)


def _wait() -> None:
    if len(jax.local_devices(backend="cpu")) == 1:  # where a call returns when all is done
        return
    if jax.process_count() == 1:  # of several, one that has failed would wait for the others
        with suppress(Exception):  # of a kernel, which nobody has asked for
            jax.block_until_ready(jax.live_arrays())
    silent_since = time.monotonic()
    while time.monotonic() - silent_since < _SILENCE:
        time.sleep(0.01)
        if running:
            silent_since = time.monotonic()


_SILENCE: Final = 0.2  # seconds
