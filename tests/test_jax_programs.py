"""Programs that outlive the process that made them: exported ones, and those in JAX's cache of compiled programs."""

from __future__ import annotations

import pytest
from fresh_process import run

pytest.importorskip("jax")

KERNELS = """
import jax, jax.numpy as jnp, numpy as np
import applyufunc as au

def total(x):
    return x.sum(axis=-1)

def largest(x):
    return x.max(axis=-1)

total_of, largest_of = (au.gufunc("(n)->()", output_dtypes=float)(kernel) for kernel in (total, largest))
x = jnp.arange(12.0).reshape(4, 3)
"""


def test_an_exported_program_runs_in_a_process_that_knows_its_calls(tmp_path):
    pytest.importorskip("flatbuffers")  # by which JAX writes programs
    start = f"""{KERNELS}
from pathlib import Path
from jax import export

path = Path({str(tmp_path / "program")!r})
(size,) = export.symbolic_shape("b")
rows = jax.ShapeDtypeStruct((size, 3), "float32")
"""
    run(f"""{start}
leave = [export.DisabledSafetyCheck.custom_call("applyufunc.call")]
program = jax.jit(lambda x: total_of(x) - largest_of(x))
path.write_bytes(export.export(program, disabled_checks=leave)(rows).serialize())
""")
    # Calls are told apart by their kernels, not by the order in which they come.
    words = run(f"""{start}
jax.jit(lambda x: largest_of(x) + total_of(x)).lower(rows)
print(*np.asarray(jax.jit(export.deserialize(path.read_bytes()).call)(x)))
""")
    assert words == ["1.0", "7.0", "13.0", "19.0"]


def test_compiled_programs_are_found_again_and_call_their_own_kernels(tmp_path):
    program = f"""{KERNELS}
import os
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
first, last = ORDER
n_before = len(os.listdir({str(tmp_path)!r}))
found = {{function.__name__: jax.jit(function)(x) for function in (first, last)}}
n_after = len(os.listdir({str(tmp_path)!r}))
print(*np.asarray(found["total"]), *np.asarray(found["largest"]), n_after > n_before)
"""
    values = ["3.0", "12.0", "21.0", "30.0", "2.0", "5.0", "8.0", "11.0"]
    assert run(program.replace("ORDER", "total_of, largest_of")) == [*values, "True"]
    assert run(program.replace("ORDER", "largest_of, total_of")) == [*values, "False"]
