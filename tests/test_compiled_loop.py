"""`vectorize="numba"`: a loop that Numba compiles gives what the loop in Python gives, or is refused by name."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

pytest.importorskip("numba")

import numba  # after what skips

from applyufunc import _compiled_loop

pytestmark = pytest.mark.once

X = np.arange(120.0).reshape(4, 5, 6)


def compiled(kernel, signature, **options):
    return au.gufunc(signature, vectorize="numba", **options)(kernel)


# Kernels that both loops run: in NumPy's words, or in loops of their own.


def total(x):
    result = 0.0
    for value in x:
        result += value
    return result


def dot(x, y):
    return (x * y).sum()


def scaled(x, factor):
    return x * factor


def extremes(x, y):
    return x.max() - y, x[::-1] + y


def steps(x):
    return np.arange(3) * x


def apply(matrix, x):
    return matrix @ x


KERNELS = {
    "total": (total, "(n)->()", {}),
    "dot": (dot, "(n),(n)->()", {}),
    "scaled": (scaled, "(n),()->(n)", {}),
    "two outputs": (extremes, "(n),()->(),(n)", {}),
    "new dim": (steps, "()->(k)", {"output_sizes": {"k": 3}}),
    "matrix": (apply, "(m,n),(n)->(m)", {}),
}


@pytest.mark.once
@pytest.mark.parametrize("case", KERNELS)
def test_compiled_loop_gives_what_a_loop_in_python_gives(backend, case):
    kernel, signature, options = KERNELS[case]
    parsed = au.Signature.parse(signature)

    @examples(min(25, backend.examples // 6))
    @given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 3), st.integers(1, 3), st.data())
    def check(loop, m, n, data):
        sizes = {"m": m, "n": n}
        args = []
        for labels in parsed.input_labels:
            own = loop[data.draw(st.integers(0, len(loop))) :]
            own = [data.draw(st.sampled_from([1, size])) for size in own]
            shape = (*own, *(sizes[label] for label in labels))
            values = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 9, shape).astype(float)
            args.append(values)
        chosen = {"output_dtypes": float, **options}
        expected = au.apply_ufunc(kernel, signature, *args, vectorize=True, **chosen)
        result = backend.call(kernel, signature, tuple(map(backend.put, args)), {"vectorize": "numba", **chosen})
        pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (result, expected)), strict=True)
        for got, wanted in pairs:
            backend.check_type(got)
            value = backend.get(got)
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(value, wanted)

    check()


# Dtypes


@pytest.mark.once
@pytest.mark.parametrize("dtype", ["f4", "u1", "c8", "?"])
def test_dtypes_that_nobody_declared_are_those_that_numba_infers(dtype):
    x = np.array([[1, 0], [1, 1]]).astype(dtype)
    first, is_first, number = compiled(lambda row: (row[0], row == row[0], len(row)), "(n)->(),(n),()")(x)
    assert (first.dtype, first.tolist()) == (x.dtype, x[:, 0].tolist())
    assert (is_first.dtype, is_first.tolist()) == (np.bool_, [[True, False], [True, True]])
    assert (number.dtype, number.tolist()) == (np.int64, [2, 2])


def length(row):
    return len(row)


def test_declared_dtypes_are_cast_to_as_in_a_loop_in_python():
    function = compiled(length, "(n)->()", output_dtypes=np.uint8)
    assert function(X).dtype == np.uint8
    with pytest.raises(au.OutputRangeError, match=r"kernel returned 300, which the declared uint8 cannot hold"):
        function(np.ones((2, 300)))
    with pytest.raises(au.OutputDTypeError, match="does not cast to the declared int32"):
        compiled(lambda row: row, "(n)->(n)", output_dtypes=np.int32)(X)


def test_lazy_call_takes_the_inferred_dtype_and_calls_nothing():
    da = pytest.importorskip("dask.array")
    function = compiled(lambda row: row[0] > 1, "(n)->()")
    lazy = function(da.from_array(X, chunks=(2, 5, 6)))
    assert lazy.dtype == bool
    assert function.explain(da.from_array(X, chunks=(2, 5, 6))).dtypes_from == "table"
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), X[..., 0] > 1)


def test_empty_loop_has_the_inferred_dtypes():
    first, second = compiled(lambda row: (row[0], row > 0), "(n)->(),(n)")(np.ones((0, 3), "f4"))
    assert (first.shape, first.dtype, second.shape, second.dtype) == ((0,), np.float32, (0, 3), np.bool_)


def test_compute_dtype_is_what_the_loop_is_compiled_for():
    result = compiled(total, "(n)->()", compute_dtype="f8")(X.astype("f2"))
    assert (result.dtype, result[0, 0]) == (np.float16, 15)


# What a kernel gets


def test_arrays_of_any_layout_are_taken():
    swapped, strided = X.astype(">f8"), np.ones((4, 5, 12))[..., ::-2]
    function = compiled(dot, "(n),(n)->()")
    np.testing.assert_array_equal(function(swapped, strided), X.sum(axis=-1))
    packed = np.zeros((4, 6), [("a", "i1"), ("b", "f8")])
    packed["b"] = X[:, 0]
    np.testing.assert_array_equal(function(np.ones(12)[::-2], packed["b"]), X[:, 0].sum(axis=-1))
    np.testing.assert_array_equal(function(X.T[:, :, :1], np.ones(1)), X.T[:, :, 0])  # length 1: whatever its stride


def test_scalars_none_and_keywords():
    def kernel(x, p, nothing, scale, weights, mode="sum"):
        if nothing is None and mode == "sum":
            return (x * weights).sum() * scale + p
        return 0.0

    function = compiled(kernel, "(n),(),()->()")
    weights = np.arange(6.0)
    expected = (X * weights).sum(axis=-1) * 2 + 1
    np.testing.assert_array_equal(function(X, 1, None, scale=2.0, weights=weights), expected)
    np.testing.assert_array_equal(function(X, 1.0, None, scale=2, weights=weights, mode="sum"), expected)
    assert not function(X, 1, None, scale=2.0, weights=weights, mode="none").any()


def test_marked_and_absent_core_dims():
    np.testing.assert_array_equal(compiled(dot, "(n),(n|1)->()")(X, np.full(1, 2.0)), 2 * X.sum(axis=-1))
    product = compiled(apply, "(m?,n),(n)->(m?)")
    np.testing.assert_array_equal(product(X, np.ones(6)), X @ np.ones(6))
    assert product(np.ones(6), np.ones(6)) == 6


def test_one_output_in_a_tuple():
    (result,) = compiled(lambda row: (row.sum(),), "(n)->(),")(X)
    np.testing.assert_array_equal(result, X.sum(axis=-1))


def test_resized_dim():
    result = compiled(lambda row: row[:2], "(n)->(n)", output_sizes={"n": 2})(X)
    np.testing.assert_array_equal(result, X[..., :2])


def test_writable_items_are_each_the_kernels_own():
    def kernel(x, y):
        y += x
        return y.sum()

    x, y = np.arange(3.0), np.zeros(2)
    assert compiled(kernel, "(),(n)->()", writable=True)(x, y).tolist() == [0, 2, 4]
    assert y.tolist() == [0, 0]


def test_function_that_numba_has_compiled_is_taken_as_it_is():
    kernel = numba.njit(fastmath=True)(total)
    np.testing.assert_array_equal(compiled(kernel, "(n)->()")(X), X.sum(axis=-1))


def test_division_by_zero_is_numpys():
    result = compiled(lambda x, y: x / y, "(),()->()")(np.array([1.0, 0.0]), 0.0)
    assert np.isposinf(result[0])
    assert np.isnan(result[1])


def test_loop_is_compiled_once_for_all_threads():
    calls = []
    before = _compiled_loop._compiled_loop.cache_info().misses
    function = compiled(lambda row: row[0] + row[-1], "(n)->()")
    threads = [threading.Thread(target=lambda: calls.append(function(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    function(np.ones((2, 9)))
    assert len(calls) == 4
    assert _compiled_loop._compiled_loop.cache_info().misses == before + 1


def test_kernel_survives_pickling():
    function = pickle.loads(pickle.dumps(compiled(total, "(n)->()")))
    np.testing.assert_array_equal(function(X), X.sum(axis=-1))


def test_parts_of_a_reduction_are_compiled():
    da = pytest.importorskip("dask.array")
    kernel = compiled(total, "(n)->()", core_chunks=np.add, output_dtypes=float)
    np.testing.assert_array_equal(kernel(da.from_array(X, chunks=(4, 5, 2))).compute(), X.sum(axis=-1))


def test_derivatives_of_a_compiled_kernel():
    jax = pytest.importorskip("jax")
    energy = compiled(lambda x: (x * x).sum(), "(n)->()", output_dtypes=np.float32)
    energy.jac(lambda x: 2 * x)
    gradient = jax.grad(lambda x: energy(x).sum())(jax.numpy.asarray(X, "f4"))
    np.testing.assert_allclose(gradient, 2 * X)


# What is refused


def fails_at(x):
    if x[0] == 42:
        raise ValueError("forty-two")
    return x.sum()


def test_exception_is_the_kernels_own_and_names_the_item():
    with pytest.raises(ValueError, match="forty-two") as caught:
        compiled(fails_at, "(n)->()")(X)
    assert "called with float64(6,) (item (1, 2))" in caught.value.__notes__[0]


def test_shape_of_an_item_is_checked_as_in_python():
    with pytest.raises(au.OutputShapeError) as caught:
        compiled(lambda x: x[:4], "(n)->(n)")(X)
    with pytest.raises(au.OutputShapeError) as expected:
        au.gufunc("(n)->(n)", vectorize=True)(lambda x: x[:4])(X)
    assert str(caught.value) == str(expected.value)


def writes(x):
    x[0] = 1.0
    return x[0]


RETURNED = {
    "an array for a number": (lambda x: x, "(n)->()", "output 0: .* returns .*array.* expected a number"),
    "a number for an array": (lambda x: x[0], "(n)->(n)", "expected an array of 1 dimension"),
    "a list": (lambda x: [1, 2, 3, 4, 5, 6], "(n)->(n)", r"returns list\(int64\)"),
    "nothing": (lambda x: None, "(n)->()", "returns none by Numba's type inference, expected a number"),
    "too few": (lambda x: x[0], "(n)->(),()", "expected a tuple of 2: one array per output"),
}


@pytest.mark.parametrize("case", RETURNED)
def test_outputs_that_do_not_fit_are_refused_when_it_compiles(case):
    kernel, signature, message = RETURNED[case]
    with pytest.raises(au.OutputShapeError, match=message):
        compiled(kernel, signature)(X)


UNCOMPILED = {
    "objects": (total, np.ones(3, object), {}, "does not compile it for object with 0 core dimensions"),
    "a method": (X.sum, X, {}, "it is a builtin_function_or_method, and Numba compiles plain Python functions"),
    "what Numba does not know": (lambda x: globals()[x], X, {}, "Numba does not compile it for float64"),
    "a keyword of another kind": (lambda x, key: x, X, {"kwargs": {"key": {}}}, "keyword 'key' is a dict"),
    "an unknown size": (steps, X, {"output_sizes": {"k": None}}, "the size of output dimension 'k' has to be known"),
    "a bound": (steps, X, {"output_sizes": {"k": au.UpTo(3)}}, "the size of output dimension 'k' has to be known"),
}


@pytest.mark.parametrize("case", UNCOMPILED)
def test_what_is_not_compiled_is_refused_with_a_cure(case):
    kernel, x, options, message = UNCOMPILED[case]
    signature = "()->(k)" if "output_sizes" in options else "()->()"
    with pytest.raises(au.OptionError, match=message) as caught:
        compiled(kernel, signature, **options)(x)
    assert "vectorize='numba' cannot be had for kernel" in str(caught.value)
    assert "pass vectorize=True, which calls it in Python" in str(caught.value)


def test_kernel_that_writes_is_told_how():
    with pytest.raises(au.OptionError, match="it writes into an argument; pass writable=True"):
        compiled(writes, "(n)->()")(X)


def test_masked_arrays_are_refused():
    with pytest.raises(au.ArgumentError, match="Numba knows no masked arrays; fill them, or pass vectorize=True"):
        compiled(total, "(n)->()")(np.ma.MaskedArray(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vectorize": "jit"}, "vectorize takes True, False or 'numba', got 'jit'"),
        ({"vectorize": "numba", "threads": 2}, "threads=2 spreads a loop in Python, and vectorize='numba' has none"),
        ({"vectorize": "numba", "kernel_arrays": "same"}, "vectorize='numba' is for NumPy arrays"),
    ],
)
def test_options_that_do_not_go_with_it_are_refused(options, message):
    with pytest.raises(au.OptionError, match=message):
        au.gufunc("(n)->()", **options)
