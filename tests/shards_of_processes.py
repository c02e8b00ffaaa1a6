"""One of two processes with two devices each, as `test_jax_sharding` starts it: calls on arrays that both share.

Prints, for each scenario, whether this process's part of the result is right, and with which shapes its kernels ran.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import applyufunc as au

P = PartitionSpec
LIMIT = 60  # seconds
X = np.arange(8 * 2 * 4, dtype="f4").reshape(8, 2, 4) / 7
W = np.arange(4, dtype="f4")
EXPECTED = (X * W).sum(-1)
calls = []
lock = threading.Lock()


@au.gufunc("(n),(n)->()", output_dtypes=np.float32)
def dot(x, w):
    with lock:
        calls.append([x.shape, w.shape])
    return (x * w).sum(-1)


def chunk(x, w):
    with lock:
        calls.append([x.shape, w.shape])
    return (x * w).sum(-1)


def put(array, spec, kind=AxisType.Auto):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def run(function, x):
    calls.clear()
    result = jax.block_until_ready(function(x, W))
    parts = ((np.asarray(shard.data), EXPECTED[shard.index]) for shard in result.addressable_shards)
    return {"right": all(a.shape == b.shape and np.allclose(a, b) for a, b in parts), "calls": sorted(calls)}


def main(process, address):
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    jax.distributed.initialize(address, 2, int(process))
    reduced = dot.with_options(core_chunks=au.Reduction(chunk, np.add, state="(n),(n)->()"))
    gathered = dot.with_options(callback="pure_callback")
    outcome = {
        "jit": run(jax.jit(dot), put(X, P("d"))),
        "explicit": run(jax.jit(dot), put(X, P("d"), AxisType.Explicit)),
        "eager": run(dot, put(X, P("d"))),
        "vmap": run(jax.vmap(dot, (0, None)), put(X, P("d"))),
        "core dim": run(jax.jit(dot), put(X, P(None, None, "d"))),
        "replicated": run(jax.jit(dot), put(X, P())),
        "reduction": run(jax.jit(reduced), put(X, P(None, None, "d"))),
        "pure_callback": run(jax.jit(gathered), put(X, P("d"))),
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
