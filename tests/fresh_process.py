"""JAX programs in processes of their own: with devices that JAX is told of when it starts, and for what may hang."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

__all__ = ["run"]

LIMIT = 120  # seconds; a process that takes longer hangs


def run(program, *, devices=1, paths=()):
    """Return the words that a program prints in a fresh interpreter; `paths` come first where it imports from."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={
            "PATH": "",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, paths), *sys.path])),
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()
