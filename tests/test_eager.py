"""Calls on arrays of an array-API library: type, device and dtype of results, and leave to transfer."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import applyufunc as au

xp = pytest.importorskip("array_api_strict")

CPU, OTHER = xp.Device("CPU_DEVICE"), xp.Device("device1")
ROWS = np.arange(6.0).reshape(2, 3)


def total(x):
    return x.sum(axis=-1)


def on(device, values=ROWS):
    return xp.asarray(values, device=device, copy=True)


def values(array):
    return np.from_dlpack(array, device="cpu", copy=True).tolist()


def refusal(error, function, *args, **keywords):
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


def test_a_numpy_kernel_gets_read_only_numpy_arrays():
    got = []
    x = on(CPU)
    result = au.apply_ufunc(lambda a: got.append(a) or a.sum(axis=-1), "(n)->()", x)
    assert (type(got[0]), got[0].flags.writeable) == (np.ndarray, False)
    assert (type(result), result.dtype, values(result)) == (type(x), xp.float64, [3, 12])


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("other", [ROWS, ROWS[0], 2.5, [1.0, 2.0, 3.0], np.float32(2)], ids=str)
def test_numpy_arrays_and_scalars_join_the_library_of_the_others(other, vectorize):
    got = []
    kernel = lambda a, b: got.append((type(a), type(b))) or a * b
    signature = "(n),(n)->(n)" if np.ndim(other) else "(n),()->(n)"
    for arrays, expected in (("numpy", (np.ndarray, np.generic)), ("same", (type(on(CPU)), float))):
        result = au.apply_ufunc(kernel, signature, on(CPU), other, vectorize=vectorize, kernel_arrays=arrays)
        assert (type(result), values(result)) == (type(on(CPU)), (ROWS * np.asarray(other)).tolist())
        assert got[-1][0] is expected[0]


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("device", [CPU, OTHER])
def test_a_kernel_that_takes_the_librarys_arrays_stays_on_the_device(device, vectorize):
    got = []
    kernel = lambda a: got.append(a) or xp.sum(a, axis=-1)
    result = au.apply_ufunc(kernel, "(n)->()", on(device), kernel_arrays="same", vectorize=vectorize)
    assert {(type(a), a.device) for a in got} == {(type(result), device)}
    assert [a.shape for a in got] == ([(3,), (3,)] if vectorize else [(2, 3)])
    assert (result.device, values(result)) == (device, [3, 12])


@pytest.mark.parametrize("returned", [2.5, [2.5, 2.5], np.array([2.5, 2.5])], ids=str)
def test_what_becomes_an_array_is_put_on_the_device(returned):
    vectorize = isinstance(returned, float)
    kernel = lambda a: returned
    result = au.apply_ufunc(kernel, "(n)->()", on(OTHER), kernel_arrays="same", vectorize=vectorize)
    assert (result.device, values(result)) == (OTHER, [2.5, 2.5])


@pytest.mark.parametrize("kernel_arrays", ["numpy", "same"])
def test_an_empty_batch_is_on_the_device(kernel_arrays):
    x = on(OTHER, np.ones((0, 3)))
    options = {"kernel_arrays": kernel_arrays, "allow_transfer": True}
    for dtypes in ("f4", None):
        kernel = lambda a: xp.astype(a, xp.float32) if kernel_arrays == "same" else a.astype("f4")
        result = au.apply_ufunc(kernel, "(n)->(n)", x, output_dtypes=dtypes, **options)
        assert (result.device, result.shape, result.dtype) == (OTHER, (0, 3), xp.float32)


def test_a_numpy_kernel_is_refused_off_the_host_before_any_work():
    calls = []
    message = refusal(au.TransferError, au.apply_ufunc, calls.append, "(n),(n)->()", ROWS, on(OTHER))
    assert message == (
        "argument 1 is an array_api_strict.Array on device array_api_strict.Device('device1'), and the kernel takes "
        "NumPy arrays: pass "
        "allow_transfer=True, or use `with applyufunc.allow_transfer():`, to copy it to the host"
    )
    assert calls == []


@pytest.mark.parametrize(("option", "context"), [(True, contextlib.nullcontext), (False, au.allow_transfer)])
@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "c16"])
def test_with_leave_the_result_goes_back_to_the_device(option, context, dtype):
    x = on(OTHER, ROWS.astype(dtype))
    with context():
        result = au.apply_ufunc(lambda a: a[..., 0], "(n)->()", x, allow_transfer=option)
    assert (result.device, values(result)) == (OTHER, ROWS.astype(dtype)[:, 0].tolist())


def test_arrays_of_two_devices_do_not_mix():
    message = refusal(
        au.ArgumentError, au.apply_ufunc, lambda a, b: a, "(n),(n)->(n)", on(CPU), on(OTHER), kernel_arrays="same"
    )
    assert "argument 0 is on device" in message
    assert message.endswith("arrays of two devices do not mix; move them to one")


def test_keywords_are_converted_as_arguments_are():
    got = []
    kernel = lambda a, w: got.append(w) or (a * w).sum(axis=-1)
    result = au.apply_ufunc(kernel, "(n)->()", on(CPU), w=on(CPU, ROWS[0]))
    assert (type(got[0]), got[0].flags.writeable, values(result)) == (np.ndarray, False, [5, 14])
    kernel = lambda a, w: got.append(w) or xp.sum(a * w, axis=-1)
    for w in (ROWS[0], on(OTHER, ROWS[0])):
        result = au.apply_ufunc(kernel, "(n)->()", on(OTHER), w=w, kernel_arrays="same")
        assert (got[-1].device, values(result)) == (OTHER, [5, 14])


def test_a_keyword_off_the_host_is_refused_without_leave():
    call = lambda **options: au.apply_ufunc(lambda a, w: a * w, "(n)->(n)", ROWS, w=on(OTHER, ROWS[0]), **options)
    assert refusal(au.TransferError, call).startswith("keyword w is an array_api_strict.Array on device")
    assert call(allow_transfer=True).tolist() == (ROWS * ROWS[0]).tolist()


@pytest.mark.parametrize("vectorize", [False, True])
def test_casts_are_numpys(vectorize):
    call = lambda x, dtype: au.apply_ufunc(
        lambda a: a, "(n)->(n)", on(CPU, x), output_dtypes=dtype, kernel_arrays="same", vectorize=vectorize
    )
    assert call(ROWS, "f4").dtype == xp.float32
    assert call(ROWS.astype(int), "f4").dtype == xp.float32
    assert call(ROWS.astype(int), "i1").dtype == xp.int8
    assert call(ROWS, float).dtype == xp.float64
    assert "does not cast to the declared int64" in refusal(au.OutputDTypeError, call, ROWS, "i8")
    assert "returned 500, which the declared int8 cannot hold" in refusal(
        au.OutputRangeError, call, (100 * ROWS).astype(int), "i1"
    )


@pytest.mark.parametrize(
    ("kind", "dtype"), [(float, "float64"), (int, "int64"), (complex, "complex128"), (bool, "bool")]
)
def test_the_default_dtype_of_a_kind_is_the_librarys(kind, dtype):
    result = au.apply_ufunc(lambda a: a > 1, "()->()", on(CPU), output_dtypes=kind)
    assert result.dtype == getattr(xp, dtype)


def test_items_promote_as_on_numpy():
    kernel = lambda a: xp.astype(a, xp.int64) if float(a[0]) < 1 else a
    result = au.apply_ufunc(kernel, "(n)->(n)", on(CPU), kernel_arrays="same", vectorize=True)
    assert (result.dtype, values(result)) == (xp.float64, ROWS.tolist())


def test_padding_promotes_as_on_numpy():
    kernel = lambda a: xp.astype(a[..., :2], xp.int64)
    options = {"kernel_arrays": "same", "output_sizes": {"k": au.UpTo(3, float("nan"))}}
    for vectorize in (False, True):
        result = au.apply_ufunc(kernel, "(n)->(k)", on(OTHER), vectorize=vectorize, **options)
        assert (result.device, result.dtype, result.shape) == (OTHER, xp.float64, (2, 3))


def test_results_share_nothing_with_inputs():
    x, y = on(CPU), on(CPU, ROWS[0])
    same = au.apply_ufunc(lambda a: a, "(n)->(n)", x, kernel_arrays="same")
    same[0, 0] = 99.0
    assert values(x) == ROWS.tolist()
    stretched = au.apply_ufunc(lambda a, b: b, "(),()->()", x, y, kernel_arrays="same")
    stretched[0, 0] = 99.0
    assert (values(stretched), values(y)) == ([[99, 1, 2], [0, 1, 2]], [0, 1, 2])


def test_a_kernel_that_writes_does_not_reach_the_callers_numpy_arrays():
    y, w = ROWS.copy(), ROWS.copy()

    def kernel(a, b, w):
        b[...] = 99.0
        w[...] = 99.0
        return a + b

    result = au.apply_ufunc(kernel, "(n),(n)->(n)", on(CPU), y, w=w, kernel_arrays="same")
    assert (values(result), y.tolist(), w.tolist()) == ((ROWS + 99).tolist(), ROWS.tolist(), ROWS.tolist())


@pytest.mark.parametrize("vectorize", [False, True])
def test_writable_gives_private_copies(vectorize):
    x, y = on(CPU, np.zeros((3, 2))), on(CPU, np.zeros(2))

    def kernel(a, b):
        a[..., 0] = a[..., 0] + 1
        b[..., 0] = b[..., 0] + 1
        return a + b

    options = {"kernel_arrays": "same", "writable": True, "vectorize": vectorize}
    result = au.apply_ufunc(kernel, "(n),(n)->(n)", x, y, **options)
    assert values(result) == [[2, 0]] * 3
    assert values(x) + values(y) == [[0, 0]] * 3 + [0, 0]


def test_marked_core_dims_are_stretched():
    kernel = lambda a, b: xp.sum(a * b, axis=-1)
    result = au.apply_ufunc(kernel, "(n),(n|1)->()", on(CPU), on(CPU, [[2.0], [3.0]]), kernel_arrays="same")
    assert values(result) == [6, 36]


@pytest.mark.parametrize(("kernel_arrays", "product"), [("numpy", np.matmul), ("same", xp.matmul)])
def test_core_dims_move_and_optional_ones_come_and_go(kernel_arrays, product):
    call = au.gufunc("(m?,n),(n,p?)->(m?,p?)", kernel_arrays=kernel_arrays)(product)
    assert values(call(on(CPU), on(CPU, ROWS[0]))) == [5, 14]
    assert values(call(on(CPU, ROWS[0]), on(CPU, ROWS[0]))) == 5
    assert values(call(on(CPU), on(CPU), axes=[(0, 1), (1, 0), (1, 0)])) == (ROWS @ ROWS.T).T.tolist()


def test_0d_results_are_what_the_librarys_sum_gives():
    result = au.apply_ufunc(total, "(n)->()", on(CPU, ROWS[0]))
    assert (type(result), result.shape) == (type(xp.sum(on(CPU))), ())


def test_a_masked_array_is_refused_next_to_a_library_that_keeps_no_masks():
    message = refusal(au.ArgumentError, au.apply_ufunc, lambda a, b: a, "(),()->()", on(CPU), np.ma.ones(3))
    assert message.startswith("argument 1 is a masked array, whose mask array_api_strict arrays cannot keep")


def test_a_dtype_that_the_library_does_not_have_is_refused_by_name():
    calls = []

    def kernel(row):
        calls.append(row)
        return np.full(row.shape[:-1], None)

    rows = on(CPU, ROWS)
    with pytest.raises(au.OutputDTypeError) as caught:
        au.apply_ufunc(kernel, "(n)->()", rows)
    assert str(caught.value) == (
        "output 0: kernel returned object, which array_api_strict arrays cannot hold: pass output_dtypes"
    )
    calls.clear()
    for dtype in (object, "f2", "M8[s]", "U3"):
        for kernel_arrays in ("numpy", "same"):
            for given in (rows, rows[:0, :]):
                with pytest.raises(au.OptionError) as caught:
                    au.apply_ufunc(kernel, "(n)->()", given, output_dtypes=dtype, kernel_arrays=kernel_arrays)
                named = f"output_dtypes has {np.dtype(dtype)}, which array_api_strict arrays cannot hold"
                assert str(caught.value) == named
    with pytest.raises(
        au.ArgumentError, match="argument 1 has dtype object, which array_api_strict arrays cannot hold"
    ):
        au.apply_ufunc(kernel, "(n),()->()", rows, np.array([None, None]), kernel_arrays="same")
    assert calls == []
