"""Calls on JAX arrays that several devices share: one per shard, and a result that is shared alike."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

LIMIT = 200  # seconds; the scripts end themselves before, and show where they hang
HERE = Path(__file__).parent

# What the kernel was called with, and how often; the mesh axes of the result's axes; operations between devices.
BY_D = "8 x (4, 6, 5) (1, 1, 5)", "d", ""
BY_BOTH = "8 x (4, 3, 5) (1, 1, 5)", "d e", ""
ON_ONE = "1 x (16, 6, 5) (1, 1, 5)", "one device", ""
GATHERED = "f32 all-gather"
STATES = "u8 all-gather"  # bytes of states, and no data, which are floats

EXPECTED = {
    "loop dim": BY_D,
    "both loop dims": BY_BOTH,
    "loop dim along both axes": ("8 x (2, 6, 5) (1, 1, 5)", "d+e", ""),
    "second loop dim": ("8 x (16, 3, 5) (1, 1, 5)", "- e", ""),
    "replicated": ("8 x (4, 3, 5) (1, 1, 5)", "", GATHERED),
    "eager": BY_D,
    "eager replicated": ("8 x (4, 3, 5) (1, 1, 5)", "", ""),
    "eager vmap": BY_D,
    "vmap of vmap": BY_BOTH,
    "vmap over the second axis": ("8 x (6, 4, 5) (1, 1, 5)", "- d", ""),
    "outer product by vmap": ("8 x (4, 1, 5) (1, 6, 5)", "d", ""),
    "core dim": ("8 x (4, 6, 8) (1, 1, 8)", "d", GATHERED),
    "core dim alone": ("8 x (4, 3, 8) (1, 1, 8)", "", f"{GATHERED}, f32 all-to-all"),
    "no loop dim": ("8 x (8,) (8,)", "", GATHERED),
    "scan": ("24 x (4, 6, 5) (1, 1, 5)", "d", ""),
    "cond and checkpoint": BY_D,
    "out_shardings": BY_D,
    "length that does not divide": ("8 x (13, 3, 5) (1, 1, 5)", "", GATHERED),
    "one device": ON_ONE,
    "empty loop dim": ("0 x ", "", ""),
    "empty core dim": ("8 x (4, 3, 0) (1, 1, 0)", "", GATHERED),
    "set_mesh": BY_D,
    "bfloat16": ("8 x (4, 6, 5)", "d", ""),
    "dtypes not given": BY_D,
    "no jit at all": ON_ONE,
    "result in use": BY_D,
    "result of pure_callback in use": ("1 x (16, 6, 5) (1, 1, 5)", "", ""),
    "pmap": ("8 x (6, 5) (1, 5)", "", ""),
    "pure_callback": ("1 x (16, 6, 5) (1, 1, 5)", "", f"{GATHERED}, f32 all-reduce"),
    "eager pure_callback": ON_ONE,
    "shard_map": BY_BOTH,
    "shard_map without types": BY_BOTH,
    "shard_map over one axis": BY_BOTH,
    "shard_map with vmap inside": BY_D,
    "shard_map with pure_callback": BY_BOTH,
    "shard_map over one axis with pure_callback": BY_BOTH,
    "vmap of shard_map": ("8 x (6, 4, 5) (1, 1, 5)", "d", ""),
    "forward derivative": BY_D,
    "reduction": ("8 x (4, 6, 4) (1, 1, 4)", "d", STATES),
    "reduction along both axes": ("8 x (16, 6, 1) (1, 1, 1)", "", STATES),
    "eager reduction": ("8 x (4, 6, 4) (1, 1, 4)", "d", ""),
    "reduction of a loop that is cut": ("8 x (4, 6, 8) (1, 1, 8)", "d", ""),
    "reduction under vmap": ("8 x (6, 16, 2) (1, 1, 2)", "", STATES),
    "reduction with offset": ("8 x (8, 6, 2)", "e", STATES),
    "reduction of two dims in order": ("8 x (16, 3, 2)", "", STATES),
    "reduction with an independent dim": ("8 x (6, 4, 4)", "- d", STATES),
}

# The kernel runs once for each shard, and so does its derivative; cotangents of what is everywhere are summed.
BY_JAC = "16 x (4, 6, 5) (1, 1, 5)"
BY_VJP = "16 x (4, 6, 5) (1, 1, 5) or (4, 6, 5) (1, 1, 5) (4, 6)"
for calls, rules in ((BY_JAC, "jac"), (BY_VJP, "vjp"), (BY_JAC, "jac and jvp")):
    for scenario in ("gradient", "gradient of vmap", "gradient of shard_map"):
        EXPECTED[f"{scenario} by {rules}"] = calls, "d", ""
    for scenario in ("gradient of what is everywhere", "gradient of shard_map of what is everywhere"):
        EXPECTED[f"{scenario} by {rules}"] = calls, "", "f32 all-reduce"

# The kernel and its rule get core dims whole; where types say how an argument is cut, its cotangent is cut alike.
CORE_BY_JAC = "16 x (16, 3, 8) (1, 1, 8)"
CORE_BY_VJP = f"{CORE_BY_JAC} or (16, 3, 8) (1, 1, 8) (16, 3)"
for calls, rules in ((CORE_BY_JAC, "jac"), (CORE_BY_VJP, "vjp"), (CORE_BY_JAC, "jac and jvp")):
    EXPECTED[f"gradient along a core dim by {rules}"] = calls, "- e", GATHERED

# Types say where an array lies, and so what its results are; a callback of JAX's runs for each shard then, too.
EXPECTED_WITH_TYPES = {
    "gradient along a core dim by jac": (CORE_BY_JAC, "- e d", GATHERED),
    "gradient along a core dim by vjp": (CORE_BY_VJP, "- e d", GATHERED),
    "gradient along a core dim by jac and jvp": (CORE_BY_JAC, "- e d", GATHERED),
    "core dim alone": ("8 x (4, 3, 8) (1, 1, 8)", "", GATHERED),
    "empty core dim": ("8 x (4, 6, 0) (1, 1, 0)", "d", ""),
    "pure_callback": BY_D,
    "shard_map over one axis": BY_D,
    "shard_map over one axis with pure_callback": BY_D,
}


def start(script, *arguments):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    try:
        output, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def test_every_device_calls_the_kernel_once_for_its_own_shard(subtests):
    found = finish(start("shards.py"))
    refusals, lifetime = found.pop("refusals"), found.pop("lifetime")
    for scenario, (right, calls, layout, collectives, type_layout) in found.items():
        name, kind = scenario.split(", ")
        has_types = kind == "Explicit"
        expected = EXPECTED | (EXPECTED_WITH_TYPES if has_types else {})
        with subtests.test(scenario):
            assert (calls, layout, collectives) == expected[name]
            assert right
            assert type_layout == (layout if has_types else "")
    assert {scenario.split(", ")[0] for scenario in found} == set(EXPECTED)
    with subtests.test("a program keeps its kernel alive, and no longer than it lives"):
        assert lifetime == {"while": True, "after": False}
    with subtests.test("what does not go together is refused by name"):
        assert "dimension -2 is cut along axis 'd' in one argument and axis 'e' in another" in refusals["two layouts"]
        assert "dimensions -2 and -1 are both cut along axis 'd'" in refusals["one axis twice"]
        assert "argument 1 lies on mesh {'a': 8}: arrays of two meshes do not mix" in refusals["two meshes"]
        assert "argument 1 is on cpu:3: arrays of two devices do not mix" in refusals["two devices"]
        assert refusals["eager error"] == "ZeroDivisionError: division by zero"


def test_two_processes_call_for_their_own_shards_and_both_have_right_values(subtests):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [start("shards_of_processes.py", str(number), address) for number in range(2)]
    found = [finish(process) for process in processes]
    own = [[[2, 2, 4], [1, 1, 4]]] * 2  # shapes of both arguments, for each of two devices
    parts = [[[8, 2, 1], [1, 1, 1]]] * 2
    expected = dict.fromkeys(("jit", "explicit", "eager", "vmap", "core dim", "replicated"), own) | {"reduction": parts}
    for scenario in found[0]:
        outcomes = [each[scenario] for each in found]
        with subtests.test(scenario):
            assert all(outcome["right"] for outcome in outcomes)
            if scenario == "pure_callback":  # gathered: one of them calls for both
                assert sorted(outcome["calls"] for outcome in outcomes) == [[], [[[8, 2, 4], [1, 1, 4]]]]
            else:
                assert [outcome["calls"] for outcome in outcomes] == [expected[scenario]] * 2
