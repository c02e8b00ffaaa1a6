"""What a call leaves behind, and what it copies: nothing but caches that are bounded, and nothing."""

from __future__ import annotations

import gc
import os
import sys
import weakref

import numpy as np
import pytest

import applyufunc as au

N_CALLS = int(os.environ.get("APPLYUFUNC_CALLS", "0"))
"""Calls of each kind in place of those below; 100,000 take an hour."""

X = np.arange(12.0).reshape(4, 3)


def row_sum(x):
    return x.sum(axis=-1)


def numpy_direct():
    function = au.gufunc("(n),(n)->()")(np.vecdot)
    return lambda: function(X, X)


def numpy_unbound():
    return lambda: au.apply_ufunc(row_sum, "(n)->()", X, axis=0)


def numpy_remembered():
    return lambda: au.apply_ufunc(np.vecdot, "(n),(n)->()", X, X)


def numpy_loop():
    function = au.gufunc("(n)->(n),()", vectorize=True)(lambda row: (row * 2, row[0]))
    return lambda: function(X)


def numpy_threads():
    function = au.gufunc("(n)->()", vectorize=True, threads=2)(row_sum)
    return lambda: function(X)


def numpy_slices():
    function = au.gufunc("(n)->()", block_bytes=50)(row_sum)
    return lambda: function(X)


def numpy_refusal():
    function = au.gufunc("(n)->(n)")(row_sum)

    def call():
        with pytest.raises(au.OutputShapeError):
            function(X)

    return call


def strict_arrays():
    x = pytest.importorskip("array_api_strict").asarray(X)
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: function(x)


def torch_eager():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: function(x)


def torch_vmap():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: torch.vmap(function)(x)


def xarray_labelled():
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(X, dims=("row", "n"))
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: function(x)


def dask_graph():
    da = pytest.importorskip("dask.array")
    x = da.from_array(X, chunks=(2, 3))
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: function(x)


def dask_values():
    build = dask_graph()
    return lambda: build().compute(scheduler="sync")


def cubed_built():
    cubed = pytest.importorskip("cubed")
    x = cubed.asarray(X, chunks=(2, 3), spec=cubed.Spec(allowed_mem="100MB"))
    function = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    return lambda: function(x)


def jax_eager():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.asarray(X)
    function = au.gufunc("(n)->()", output_dtypes=np.float32)(row_sum)
    return lambda: function(x)


def jax_vmap():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    function = au.gufunc("(n)->()", output_dtypes=np.float32)(row_sum)
    return lambda: jax.block_until_ready(jax.vmap(function)(x))


def jax_jit(callback):
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    function = jax.jit(au.gufunc("(n)->()", output_dtypes=np.float32, callback=callback)(row_sum))
    return lambda: jax.block_until_ready(function(x))


def jax_refusal():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    function = jax.jit(au.gufunc("(n)->(n)", output_dtypes=np.float32, callback="ffi")(row_sum))

    def call():
        with pytest.raises(Exception, match="output 0"):
            jax.block_until_ready(function(x))

    return call


CALLS = {
    "NumPy, direct": (numpy_direct, 100_000),
    "NumPy, unbound": (numpy_unbound, 600),
    "NumPy, unbound and remembered": (numpy_remembered, 10_000),
    "NumPy, items": (numpy_loop, 600),
    "NumPy, items in threads": (numpy_threads, 200),
    "NumPy, slices": (numpy_slices, 400),
    "NumPy, refused": (numpy_refusal, 600),
    "array-api-strict": (strict_arrays, 300),
    "PyTorch, eager": (torch_eager, 200),
    "PyTorch, vmap": (torch_vmap, 150),
    "xarray": (xarray_labelled, 200),
    "Dask, built": (dask_graph, 150),
    "Dask, computed": (dask_values, 200),
    "cubed, built": (cubed_built, 40),
    "JAX, eager": (jax_eager, 300),
    "JAX, vmap": (jax_vmap, 150),
    "JAX, jit": (lambda: jax_jit("ffi"), 1000),
    "JAX, pure_callback": (lambda: jax_jit("pure_callback"), 300),
    "JAX, refused": (jax_refusal, 100),
}


def kept_by(call, n_calls):
    """Return how many more objects are alive after some calls than before."""
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(n_calls):
        call()
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.once
@pytest.mark.parametrize("case", CALLS)
def test_calls_keep_nothing_alive(case):
    make, n_calls = CALLS[case]
    n_calls, call = N_CALLS or n_calls, make()
    kept_by(call, n_calls // 2)  # which fills caches
    limit = n_calls / 2  # objects: fewer than there are where every call leaves one
    # Again, where something else was at work, such as a cache that grew by a step.
    assert any(kept_by(call, n_calls) <= limit for _ in range(5))


def test_caches_are_bounded_whatever_they_are_keyed_by():
    function = au.gufunc("(n)->()")(row_sum)

    def call_on_many_shapes():
        for n in range(300):
            function(np.ones((2, 1 + n % 600)))

    call_on_many_shapes()
    for _ in range(3):
        call_on_many_shapes()
    assert len(function._direct._recipes) <= 256


def make_argument(library):
    if library == "numpy":
        return np.ones((4, 3))
    if library == "dask":
        return pytest.importorskip("dask.array").ones((4, 3), chunks=(2, 3))
    return pytest.importorskip("jax.numpy").ones((4, 3))


@pytest.mark.parametrize("options", [{}, {"vectorize": True}, {"block_bytes": 50}], ids=["whole", "items", "slices"])
@pytest.mark.parametrize("library", ["numpy", "dask", "jax"])
def test_arguments_results_and_kernels_go_with_their_last_user(library, options):
    def kernel(x):
        return x.sum(axis=-1)

    argument = make_argument(library)
    result = au.apply_ufunc(kernel, "(n)->()", argument, output_dtypes=np.float32, **options)
    if library == "dask":
        result.compute(scheduler="sync")
    references = [weakref.ref(value) for value in (argument, result, kernel)]
    del argument, result, kernel
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_programs_keep_the_last_kernels_alone():
    jax = pytest.importorskip("jax")
    references = []
    for _ in range(100):

        def kernel(x):
            return x.sum(axis=-1)

        function = au.gufunc("(n)->()", output_dtypes=np.float32)(kernel)
        jax.eval_shape(function, jax.ShapeDtypeStruct((4, 3), "f4"))
        references.append(weakref.ref(kernel))
        del kernel, function
    jax.clear_caches()  # whose programs keep what they call
    gc.collect()
    alive = [reference() is not None for reference in references]
    assert sum(alive) <= 64


# What is copied


WAYS = [{}, {"vectorize": True}, {"block_bytes": 50}, {"vectorize": True, "threads": 2}]


def seen(x, signature="(n)->()", **options):
    """Return the arrays that a kernel gets."""
    arrays = []

    def kernel(block):
        arrays.append(block)
        return block.sum(axis=-1)

    result = au.apply_ufunc(kernel, signature, x, output_dtypes=float, **options)
    if hasattr(result, "compute"):
        result.compute(scheduler="sync")
    return arrays


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "broadcast"])
def test_numpy_arrays_are_not_copied(options, layout):
    x = {
        "contiguous": X,
        "transposed": X.T,
        "strided": np.ones((8, 6))[::2, ::-2],
        "broadcast": np.broadcast_to(X[0], (4, 3)),
    }[layout]
    arrays = seen(x, **options)
    assert arrays
    assert all(np.shares_memory(array, x) for array in arrays)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_axes_are_moved_without_a_copy(options):
    assert all(np.shares_memory(array, X) for array in seen(X, axis=0, **options))


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_host_arrays_beside_lazy_ones_are_copied_once(options):
    da = pytest.importorskip("dask.array")
    arrays = []

    def kernel(block, host):
        arrays.append(host)
        return (block * host).sum(axis=-1)

    lazy = da.ones((4, 3), chunks=(2, 3))
    au.apply_ufunc(kernel, "(n),(n)->()", lazy, X, output_dtypes=float, **options).compute(scheduler="sync")
    assert arrays
    assert all(np.shares_memory(array, arrays[0].base) for array in arrays)  # one copy, made when it was built


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_blocks_of_dask_are_not_copied(options):
    da = pytest.importorskip("dask.array")
    blocks = [np.ones((2, 3)), np.ones((2, 3))]
    name = "blocks-in-memory"
    graph = {(name, place, 0): block for place, block in enumerate(blocks)}
    lazy = da.Array(graph, name, chunks=((2, 2), (3,)), dtype=float)
    arrays = seen(lazy, **options)
    assert arrays
    assert all(any(np.shares_memory(array, block) for block in blocks) for array in arrays)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_arrays_of_jax_on_the_cpu_are_not_copied(options):
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones((4, 3))
    host = np.asarray(x)  # a view
    arrays = []

    def kernel(block):
        arrays.append(block)
        return block.sum(axis=-1)

    au.apply_ufunc(kernel, "(n)->()", x, output_dtypes=np.float32, **options)
    assert arrays
    assert all(np.shares_memory(array, host) for array in arrays)
