"""`compute_dtype=`: what dtype a kernel gets, which one comes back, and integers that a short dtype cannot hold."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import applyufunc as au

ml_dtypes = pytest.importorskip("ml_dtypes")


def recorded(func=lambda *args: args[0]):
    """Return a kernel, and what it notes of the dtypes that it gets."""
    seen = []

    def kernel(*args):
        seen.append(tuple(str(getattr(arg, "dtype", type(arg).__name__)).rpartition(".")[2] for arg in args))
        return func(*args)

    return kernel, seen


CASES = {
    "float32 as float64": (["float32"], "float64", ["float64"], "float32"),
    "float64 as float32": (["float64"], "float32", ["float32"], "float64"),
    "two floats": (["float32", "float64"], "float32", ["float32", "float32"], "float64"),
    "integers beside floats": (["float32", "int32"], "float64", ["float64", "int32"], "float32"),
    "integers": (["int8", "uint8"], "int32", ["int32", "int32"], "int16"),
    "complex numbers": (["complex64", "float32"], "complex128", ["complex128", "float32"], "complex64"),
    "nothing of the family": (["int32"], "float64", ["int32"], "int32"),
}


@pytest.mark.covers("`compute_dtype`")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_kernel_computes_in_one_dtype_and_results_have_that_of_the_arguments(backend, case, vectorize, declared):
    given, compute, expected, result_dtype = CASES[case]
    kernel, seen = recorded()
    args = tuple(backend.put(np.ones((2, 3), dtype)) for dtype in given)
    signature = f"{','.join(['(n)'] * len(given))}->(n)"
    options = {"compute_dtype": compute, "vectorize": vectorize}
    options |= {"output_dtypes": result_dtype} if declared else {}
    result = backend.call(kernel, signature, args, options)
    value = backend.get(result)
    backend.check_type(result)
    assert set(seen) == {tuple(expected)}
    assert value.dtype == result_dtype
    np.testing.assert_array_equal(value, np.ones((2, 3)))


@pytest.mark.parametrize("short", ["bfloat16", "float16", "float8_e4m3fn"])
def test_short_floats_are_computed_as_long_ones_on_every_backend(backend, short):
    if not backend.has_short_floats:
        pytest.skip("the library has no short floats")
    kernel, seen = recorded(lambda x, y: x * 3 / y)
    x = np.arange(1, 4).astype(short)
    result = backend.call(kernel, "(),()->()", (backend.put(x), backend.put(x)), {"compute_dtype": "float32"})
    value = backend.get(result)
    assert set(seen) == {("float32", "float32")}
    assert value.dtype == short
    np.testing.assert_array_equal(value.astype("f4"), [3, 3, 3])


def test_intermediate_values_are_not_rounded():
    x = np.full(2000, 1, "float16")
    total = au.gufunc("(n)->()", compute_dtype="float64")(lambda x: (x * 1000).sum(axis=-1) / 1000)
    assert total(x).dtype == "float16"
    assert total(x) == 2000


def test_python_scalars_and_keywords_stay_as_they_are(backend):
    kernel, seen = recorded(lambda x, factor, w: x * factor * w.sum())
    result = backend.call(
        lambda x, factor, *, w: kernel(x, factor, w),
        "(),()->()",
        (backend.put(np.ones(2, "f4")), 0.1),
        {"compute_dtype": "float64", "w": np.ones(2, "f4")},
    )
    # An argument of a function that is traced is no scalar of Python's any more.
    assert set(seen) == {("float64", "float64" if backend.traces else "float", "float32")}
    assert backend.get(result).dtype == "float32"


def test_scalar_beside_a_short_float_is_not_rounded_first():
    jax = pytest.importorskip("jax")
    got = []
    f = au.gufunc("(),()->()", compute_dtype="float64")(lambda x, factor: got.append(factor) or x * factor)
    assert f(jax.numpy.ones(2, "bfloat16"), 0.1).dtype == "bfloat16"
    assert got == [0.1]


@pytest.mark.parametrize("transform", ["eager", "jit", "vmap"])
def test_host_kernel_computes_in_64_bits_where_jax_has_32(transform):
    jax = pytest.importorskip("jax")
    way = {"eager": lambda f: f, "jit": jax.jit, "vmap": jax.vmap}[transform]
    f = au.gufunc("()->()", compute_dtype="float64")(lambda x: (x + 1e-12 - 1) * 1e12)
    with jax.enable_x64(False):
        result = way(f)(jax.numpy.ones(2))
    assert result.dtype == "float32"
    np.testing.assert_allclose(result, 1, rtol=1e-3)


@pytest.mark.parametrize("transform", ["eager", "jit", "vmap"])
def test_traced_kernel_computes_in_the_dtype_too(transform):
    jax = pytest.importorskip("jax")
    way = {"eager": lambda f: f, "jit": jax.jit, "vmap": jax.vmap}[transform]
    kernel, seen = recorded()
    result = way(au.gufunc("()->()", compute_dtype="float32", kernel_arrays="traced")(kernel))(
        jax.numpy.ones(2, "bfloat16")
    )
    assert (result.dtype, set(seen)) == ("bfloat16", {("float32",)})


def test_numba_gufunc_takes_short_floats_through_it():
    numba = pytest.importorskip("numba")

    @numba.guvectorize("(n)->()")
    def total(x, out):
        out[0] = x.sum()

    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    f = au.gufunc("(n)->()", output_dtypes=ml_dtypes.bfloat16, compute_dtype="float32")(total)
    assert f(x).dtype == ml_dtypes.bfloat16
    assert f(x).tolist() == [3, 12]


def test_masked_arrays_keep_their_mask():
    x = np.ma.masked_equal(np.array([1, 2, 3], "f4"), 2)
    result = au.apply_ufunc(lambda x: x * 2, "()->()", x, compute_dtype="float64")
    assert result.dtype == "float32"
    assert result.mask.tolist() == [False, True, False]


def test_private_copies_stay_private():
    x = np.ones(3, "f4")

    def kernel(x):
        x += 1
        return x

    for dtype in ("f4", "f8"):
        np.testing.assert_array_equal(au.apply_ufunc(kernel, "()->()", x, compute_dtype=dtype, writable=True), 2)
    with pytest.raises(ValueError, match="read-only"):
        au.apply_ufunc(kernel, "()->()", x, compute_dtype="f8")
    np.testing.assert_array_equal(x, 1)


def test_message_says_what_the_kernel_got_and_what_was_given():
    with pytest.raises(KeyError) as caught:
        au.apply_ufunc(lambda x: {}[0], "()->()", np.ones(3, "f4"), compute_dtype="f8")
    assert caught.value.__notes__[0].endswith("called with float64(3,), for arguments float32(3,)")


def test_calls_that_differ_by_the_dtype_alone_are_told_apart():
    f = au.gufunc("()->()", output_dtypes="i4")(lambda x: np.full(x.shape, x.dtype.itemsize))
    both = [f.with_options(compute_dtype=dtype) for dtype in ("f4", "f8")]
    x = np.ones(2, "f4")
    with contextlib.suppress(ImportError):
        import dask.array as da

        lazy = [each(da.from_array(x)) for each in both]
        assert lazy[0].name != lazy[1].name
        assert [int(each.compute()[0]) for each in lazy] == [4, 8]
    with contextlib.suppress(ImportError):
        import jax

        assert [int(jax.jit(each)(jax.numpy.asarray(x))[0]) for each in both] == [4, 8]


# Refused


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (float, "compute_dtype takes a dtype of a certain width, such as 'float64', got float"),
        ("flaot32", "compute_dtype takes a dtype, got 'flaot32'"),
        ("U3", "compute_dtype takes a dtype of floats, complex numbers or integers, got <U3"),
        (bool, "compute_dtype takes a dtype of a certain width"),
        ("bool", "compute_dtype takes a dtype of floats, complex numbers or integers, got bool"),
    ],
)
def test_what_is_no_dtype_of_numbers_is_refused_when_it_is_bound(dtype, message):
    with pytest.raises(au.OptionError, match=message):
        au.gufunc("()->()", compute_dtype=dtype)(np.sin)


def test_integers_that_may_not_fit_are_refused_before_any_work(backend):
    args = (backend.put(np.ones(2, "int64")),)
    with pytest.raises(au.ArgumentError, match="argument 0 has dtype int64, and the compute_dtype int32 does not hold"):
        backend.call(lambda x: 1 / 0, "()->()", args, {"compute_dtype": "int32"})


def test_dtypes_without_a_common_one_to_go_back_to_are_refused():
    x = np.ones(2, ml_dtypes.bfloat16), np.ones(2, "float16")
    with pytest.raises(au.OptionError, match="bfloat16 and float16 have no common one: pass output_dtypes"):
        au.apply_ufunc(np.add, None, *x, compute_dtype="float32")
    assert au.apply_ufunc(np.add, None, *x, compute_dtype="float32", output_dtypes="f4").dtype == "float32"


@pytest.mark.parametrize("rule", [au.Scan(initial=0.0), np.add])
def test_rules_with_states_between_pieces_are_refused(rule):
    with pytest.raises(au.OptionError, match=r"compute_dtype='float64' is for kernels, and core_chunks=(Scan|add)"):
        au.apply_ufunc(lambda x: x.sum(-1), "(n)->()", np.ones(3, "f4"), compute_dtype="float64", core_chunks=rule)


# Integers of a few bits


@pytest.mark.parametrize(
    ("dtype", "fits", "value"), [("int4", [-8, 7], 8), ("uint4", [0, 15], 16), ("int4", [0], -9), ("int2", [-2, 1], 2)]
)
def test_integers_that_a_short_dtype_cannot_hold_are_refused(dtype, fits, value):
    dtype = np.dtype(getattr(ml_dtypes, dtype))
    source = "u1" if dtype.name.startswith("u") else "i8"

    def call(values):
        kernel = lambda x: np.resize(np.array(values, source), x.shape)
        return au.apply_ufunc(kernel, "()->()", np.ones(len(values)), output_dtypes=dtype)

    assert call(fits).astype(int).tolist() == fits
    with pytest.raises(au.OutputRangeError, match=f"kernel returned {value}, which the declared {dtype} cannot hold"):
        call([value])


def test_short_integers_are_computed_as_long_ones():
    x = np.array([7, -8]).astype(ml_dtypes.int4)
    halved = au.gufunc("(),()->()", compute_dtype="int32")(lambda x, y: (x + y) // 2)
    result = halved(x, x)
    assert result.dtype == ml_dtypes.int4
    assert result.astype(int).tolist() == [7, -8]
    with pytest.raises(au.OutputRangeError, match="kernel returned -16, which the declared int4 cannot hold"):
        au.apply_ufunc(np.add, None, x, x, compute_dtype="int32")
