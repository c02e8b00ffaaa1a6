"""What runs where, one feature after the other: a kernel of few lines, values written out, every backend."""

from __future__ import annotations

import numpy as np
import pytest
from array_api_compat import array_namespace
from backends import BACKENDS

import applyufunc as au

X = np.array([[1.0, 0.0, 3.0], [0.0, 5.0, 2.0]])


def evens(row):
    return row[row % 2 == 0]


def own_sum(block):
    """Sum a block with the functions of its own library."""
    return array_namespace(block).sum(block, axis=-1)


def in_pieces(backend, array):
    """Return an array whose core dim is in chunks, where the backend has those."""
    put = backend.put(array)
    return backend.rechunk(put, (1, 2)) if backend.has_chunks else put


def called_in_pieces(backend, kernel, signature, options):
    """Return the result of a call whose core dim is in chunks, or see it refused where none stays in its chunks."""
    if backend.works_on_pieces:
        return backend.get(backend.call(kernel, signature, [in_pieces(backend, X)], options))
    with pytest.raises(au.AlignmentError, match="in 2 chunks"):
        backend.call(kernel, signature, [in_pieces(backend, X)], options)
    return None


@pytest.mark.covers("resized dimensions")
@pytest.mark.parametrize("size", [2, 5])
def test_a_dim_of_input_and_output_may_change_its_size(backend, size):
    kernel = lambda x: np.resize(x, (*x.shape[:-1], size))
    options = {"output_sizes": {"n": size}, "output_dtypes": float, "vectorize": True}
    result = backend.get(backend.call(kernel, "(n)->(n)", [backend.put(X)], options))
    np.testing.assert_array_equal(result, [np.resize(row, size) for row in X])


@pytest.mark.covers("core dimensions of size 1, `n|1`")
def test_a_marked_core_dim_of_size_1_is_stretched(backend):
    kernel = lambda x, y: (x * y).sum(axis=-1)
    args = backend.put(X), backend.put(np.array([[2.0], [3.0]]))
    result = backend.get(backend.call(kernel, "(n),(n|1)->()", args, {"output_dtypes": float}))
    np.testing.assert_array_equal(result, [8, 21])


@pytest.mark.covers("optional dimensions, `n?`")
def test_an_optional_dim_may_be_absent(backend):
    call = lambda *arrays: backend.call(
        np.matmul, "(m?,n),(n,p?)->(m?,p?)", [backend.put(array) for array in arrays], {"output_dtypes": float}
    )
    np.testing.assert_array_equal(backend.get(call(X, X.T)), X @ X.T)
    np.testing.assert_array_equal(backend.get(call(X, X[0])), X @ X[0])
    np.testing.assert_array_equal(backend.get(call(X[0], X.T)), X[0] @ X.T)


@pytest.mark.covers("`axis`, `axes`, `keepdims`", "xarray", "xarray-dask", refused=True)
@pytest.mark.parametrize("name", ["xarray", "xarray-dask"])
@pytest.mark.parametrize("option", [{"axis": 0}, {"axes": [(0,)]}, {"keepdims": True}])
def test_core_dims_with_names_are_not_taken_by_their_place(name, option):
    x = BACKENDS[name]().put(X).rename(dim_0="n")
    with pytest.raises(au.OptionError, match=f"^{next(iter(option))}=.* is not taken with labelled arguments"):
        au.apply_ufunc(own_sum, "(n)->()", x, output_dtypes=float, **option)


@pytest.mark.covers("unknown sizes", refused_without="takes_unknown_sizes")
def test_a_size_may_be_unknown_until_the_kernel_has_run(backend):
    options = {"output_sizes": {"k": None}, "output_dtypes": float}
    call = lambda: backend.call(lambda x: x[..., :2], "(n)->(k)", [backend.put(X)], options)
    if not backend.takes_unknown_sizes:
        with pytest.raises(au.UnknownSizeError, match=r"'k'.*UpTo\(bound\)"):
            call()
        return
    np.testing.assert_array_equal(backend.get(call()), X[:, :2])


@pytest.mark.covers("bounded sizes, `UpTo`")
def test_a_size_that_is_bounded_is_padded(backend):
    options = {"output_sizes": {"k": au.UpTo(3, fill_value=-1)}, "output_dtypes": float, "vectorize": True}
    result = backend.get(backend.call(evens, "(n)->(k)", [backend.put(X)], options))
    np.testing.assert_array_equal(result, [[0, -1, -1], [0, 2, -1]])


@pytest.mark.covers('`kernel_arrays="same"`')
@pytest.mark.parametrize("vectorize", [False, True])
def test_a_kernel_may_take_concrete_arrays_of_the_blocks_own_library(backend, vectorize):
    got = []
    x, w = backend.put(X), np.array([1.0, 2.0, 3.0])

    def kernel(x, y, *, w):
        got.extend([x, y, w])
        return own_sum(x * y * w)

    options = {"kernel_arrays": "same", "vectorize": vectorize, "output_dtypes": float, "w": w}
    result = backend.get(backend.call(kernel, "(n),(n)->()", [x, backend.put(w)], options))
    np.testing.assert_array_equal(result, (X * w**2).sum(axis=-1))
    assert got
    assert all(map(backend.is_own, got))


@pytest.mark.parametrize("name", ["numpy", "dask"])
def test_masked_arrays_are_the_librarys_own(name):
    backend, got = BACKENDS[name](), []
    kernel = lambda x, *, w: got.extend([type(x), type(w)]) or (x * w).sum(axis=-1)
    masked = np.ma.masked_equal(X, 0)
    options = {"kernel_arrays": "same", "output_dtypes": float, "w": masked[0]}
    result = backend.get(backend.call(kernel, "(n)->()", [backend.put(masked)], options))
    assert (type(result), set(got)) == (np.ma.MaskedArray, {np.ma.MaskedArray})
    assert result.tolist() == [10, 6]


@pytest.mark.covers('`kernel_arrays="traced"`')
def test_a_kernel_may_be_code_that_the_library_runs_itself(backend):
    options = {"kernel_arrays": "traced", "output_dtypes": float}
    result = backend.get(backend.call(own_sum, "(n)->()", [backend.put(X)], options))
    np.testing.assert_array_equal(result, [4, 7])


@pytest.mark.covers("transfer without leave", refused=True, needs="needs_leave")
@pytest.mark.covers("transfer with leave", needs="needs_leave")
def test_arrays_get_to_the_host_with_leave_alone(backend):
    if not backend.needs_leave:
        pytest.skip("moved by the library itself")
    calls, x = [], backend.put(X)

    def kernel(x, w=1.0):
        calls.append(type(x))
        return (x * w).sum(axis=-1)

    lacking = {"output_dtypes": float, "allow_transfer": False}
    for args, keywords, what in [((x,), {}, "argument 0"), ((X,), {"w": _concrete(backend, X[0])}, "keyword w")]:
        with pytest.raises(au.TransferError, match=rf"^{what} is a.*pass allow_transfer=True, or use"):
            backend.call(kernel, "(n)->()", args, lacking | keywords)
    assert calls == []
    with au.allow_transfer():
        result = backend.call(kernel, "(n)->()", [x], lacking)
    np.testing.assert_array_equal(backend.get(result), [4, 7])  # computed outside of the block, where that is later
    assert set(calls) == {np.ndarray}


def _concrete(backend, array):
    """Return an array of the library that a block has."""
    return backend.put(array).compute(scheduler="sync") if backend.has_chunks else backend.put(array)


@pytest.mark.covers("`explain`", needs="has_explain")
def test_a_call_is_explained_without_the_kernel(backend):
    if not backend.has_explain:
        pytest.skip("a call, not a program, is explained")
    found = []

    def kernel(x):
        raise AssertionError("called")

    names = {"dims": "dim_1"} if backend.named else {}  # xarray's own names of axes without any

    def explain(x):
        found.append(au.explain(kernel, "(n)->()", x, output_dtypes=float, **names, **backend.options))
        return x

    backend.run(explain, [backend.put(X)])
    assert "kernel" in str(found[0])
    assert found[0].n_calls >= 1


@pytest.mark.covers("`lazy_apply`", refused_without="has_lazy_apply")
@pytest.mark.parametrize("as_numpy", [False, True])
def test_a_function_may_take_whole_arrays_without_a_signature(backend, as_numpy):
    function = (lambda x: x * 2) if as_numpy else (lambda x: x + x)
    apply = lambda x: au.lazy_apply(function, x, as_numpy=as_numpy, allow_transfer=backend.needs_leave)
    if not backend.has_lazy_apply:
        with pytest.raises(au.ArgumentError, match=r"pass its \.data"):
            backend.run(apply, [backend.put(X)])
        return
    result = backend.run(apply, [backend.put(X)])
    np.testing.assert_array_equal(backend.get(result), X * 2)


@pytest.mark.covers("merged")
def test_a_core_dim_in_chunks_is_merged(backend):
    result = backend.call(lambda x: x.sum(axis=-1), "(n)->()", [in_pieces(backend, X)], {"output_dtypes": float})
    np.testing.assert_array_equal(backend.get(result), [4, 7])


@pytest.mark.covers("`Reduction`", refused_without="works_on_pieces")
@pytest.mark.parametrize("arrays", ["numpy", "same"])
def test_a_core_dim_in_chunks_is_reduced_where_the_chunks_lie(backend, arrays):
    total = own_sum if arrays == "same" else (lambda x: x.sum(axis=-1))
    rule = au.Reduction(total, lambda state, following: state + following, state="(n)->()")
    options = {"core_chunks": rule, "kernel_arrays": arrays, "output_dtypes": float}
    result = called_in_pieces(backend, total, "(n)->()", options)
    assert result is None or result.tolist() == [4, 7]


@pytest.mark.covers("`Scan`", refused_without="works_on_pieces")
def test_a_carry_goes_along_a_core_dim_in_chunks(backend):
    def running_total(x, total):
        sums = np.cumsum(x, axis=-1) + total[..., None]
        return sums, sums[..., -1]

    options = {"core_chunks": au.Scan(initial=0.0), "output_dtypes": float}
    result = called_in_pieces(backend, running_total, "(n)->(n)", options)
    assert result is None or result.tolist() == np.cumsum(X, axis=-1).tolist()


@pytest.mark.covers("`Overlap`", refused_without="works_on_pieces")
def test_chunks_of_a_core_dim_get_some_of_their_neighbours(backend):
    kernel = lambda x: x * 2
    options = {"core_chunks": au.Overlap(1), "output_dtypes": float}
    result = called_in_pieces(backend, kernel, "(n)->(n)", options)
    assert result is None or result.tolist() == (X * 2).tolist()


@pytest.mark.covers("derivatives", "jax", "jax-jit", "jax-vmap")
@pytest.mark.parametrize("way", ["jax", "jax-jit", "jax-vmap"])
def test_a_kernels_derivative_is_a_kernel(way):
    jax = pytest.importorskip("jax")
    kernel, derivative = (lambda x: (x**2).sum(axis=-1)), (lambda x: 2 * x)
    squares = au.gufunc("(n)->()", jac=derivative, output_dtypes=float)(kernel)
    gradient = jax.grad(lambda x: squares(x).sum())
    transforms = {"jax": lambda f: f, "jax-jit": jax.jit, "jax-vmap": jax.vmap}
    np.testing.assert_array_equal(transforms[way](gradient)(X.astype("f4")), 2 * X)


@pytest.mark.covers("derivatives", "torch", "torch-compile", "torch-vmap")
@pytest.mark.parametrize("way", ["torch", "torch-compile", "torch-vmap"])
def test_the_same_derivative_serves_pytorch(way):
    torch = pytest.importorskip("torch")
    squares = au.gufunc("(n)->()", jac=lambda x: 2 * x, output_dtypes=float)(lambda x: (x**2).sum(axis=-1))
    transforms = {
        "torch": lambda f: f,
        "torch-compile": lambda f: torch.compile(f, fullgraph=True, backend="aot_eager"),
        "torch-vmap": torch.vmap,
    }
    x = torch.tensor(X, requires_grad=True)
    transforms[way](squares)(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
