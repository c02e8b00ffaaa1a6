"""Programs for eight devices: what a call on sharded arrays runs, and where its result lies.

Run as a script, in a process of its own, it prints a line of JSON for each scenario; `test_jax_sharding` says what is
expected. A scenario that hangs ends the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import threading
import traceback

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import applyufunc as au

P = PartitionSpec
LIMIT = 100  # seconds
AUTO, EXPLICIT = (
    jax.make_mesh((4, 2), ("d", "e"), axis_types=(kind,) * 2) for kind in (AxisType.Auto, AxisType.Explicit)
)
X = np.arange(16 * 6 * 5, dtype="f4").reshape(16, 6, 5) / 7
W = np.arange(5, dtype="f4")
calls: list[tuple[tuple[int, ...], ...]] = []
lock = threading.Lock()


def note(*arrays):
    with lock:
        calls.append(tuple(np.shape(array) for array in arrays))


def row_dot(x, w):
    note(x, w)
    return (x * w).sum(-1)


dot = au.gufunc("(n),(n)->()", output_dtypes=np.float32)(row_dot)
expected_dot = (X * W).sum(-1)


def put(array, spec, mesh=AUTO):
    return jax.device_put(array, NamedSharding(mesh, spec))


def run(function, *arrays):
    """Return what the call ran, what it gave, and which collectives its program has."""
    compiled = function.lower(*arrays).compile() if hasattr(function, "lower") else None
    calls.clear()
    result = jax.block_until_ready(function(*arrays))
    ran = sorted(calls)
    text = compiled.as_text() if compiled else ""
    first = jax.tree.leaves(result)[0]
    return {
        "values": jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), result),
        "calls": [len(ran), list(map(list, ran[0])) if ran else []],
        "alike": len(set(ran)) <= 1,
        "spec": str(first.sharding.spec) if isinstance(first.sharding, NamedSharding) else str(first.sharding),
        "collectives": sorted(set(re.findall(r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", text))),
    }
