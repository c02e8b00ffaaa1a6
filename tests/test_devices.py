"""Arrays on a device that is not there: nothing goes to the host unasked, and results are where the arguments are.

Untried on hardware; see `device_namespace` for what its libraries let through.
"""

from __future__ import annotations

import numpy as np
import pytest
from device_namespace import EXPORTING, GETTING

import applyufunc as au

X = np.arange(6.0).reshape(2, 3)


@pytest.fixture(params=[GETTING, EXPORTING], ids=lambda library: library.__name__)
def xp(request):
    request.param.copies = 0
    return request.param


def on(xp, values, number=1):
    return xp.asarray(np.asarray(values), device=xp.devices[number], copy=True)


def seen(array):
    """Return the values of an array, as no code but the library's own can."""
    return array._values.tolist()


def total(block):
    return block.sum(axis=-1)


def refusal(error, function, *args, **keywords):
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


# A kernel for NumPy arrays


def test_a_numpy_kernel_is_refused_before_any_work(xp):
    calls = []
    for args, keywords, what in [((X, on(xp, X)), {}, "argument 1"), ((X, X), {"w": on(xp, X)}, "keyword w")]:
        message = refusal(
            au.TransferError, au.apply_ufunc, lambda *a, w=0: calls.append(a), "(n),(n)->()", *args, **keywords
        )
        assert message.startswith(f"{what} is a")
        assert f"on device <{xp.__name__} device 1>, and the kernel takes NumPy arrays: pass allow_transfer" in message
    assert (calls, xp.copies) == ([], 0)


@pytest.mark.parametrize("dtypes", [None, "f4", float])
def test_with_leave_each_argument_is_copied_once_and_the_result_goes_back(xp, dtypes):
    got = []
    kernel = lambda x, y: got.append((type(x), type(y), x.flags.writeable)) or (x * y).sum(axis=-1)
    options = {"output_dtypes": dtypes, "allow_transfer": True}
    result = au.apply_ufunc(kernel, "(n),(n)->()", on(xp, X), on(xp, X[0]), **options)
    assert (type(result), result.device, seen(result)) == (xp.array_type, xp.devices[1], [5, 14])
    default = xp.default_dtypes["real floating"]
    assert result.dtype == {None: np.dtype("f8"), "f4": np.dtype("f4"), float: default}[dtypes]
    assert (got, xp.copies) == ([(np.ndarray, np.ndarray, False)], 2)


def test_a_keyword_is_copied_with_leave(xp):
    result = au.apply_ufunc(lambda x, w: x * w, "(n)->(n)", X, w=on(xp, X[0]), allow_transfer=True)
    assert (result.tolist(), xp.copies) == ((X * X[0]).tolist(), 1)


def test_what_is_explained_is_neither_copied_nor_called(xp):
    refusal(au.TransferError, au.explain, total, "(n)->()", on(xp, X))
    au.explain(total, "(n)->()", on(xp, X), allow_transfer=True)
    assert xp.copies == 0


# A kernel for the library's own arrays


SAME = {
    "on a batch": ("(n)->()", total, [X], {}, [3, 12]),
    "item by item": ("(n)->()", total, [X], {"vectorize": True}, [3, 12]),
    "of another dtype": ("(n)->()", total, [X], {"output_dtypes": "f4"}, [3, 12]),
    "into copies": (
        "(n)->(n)",
        lambda x: x.__setitem__((..., 0), 9.0) or x,
        [X],
        {"writable": True},
        [[9, 1, 2], [9, 4, 5]],
    ),
    "its argument": ("(n)->(n)", lambda x: x, [X], {}, X.tolist()),
    "a part that is stretched": ("(),()->()", lambda x, y: y, [X, X[0]], {}, [[0, 1, 2], [0, 1, 2]]),
    "a marked dim": ("(n),(n|1)->()", lambda x, y: total(x * y), [X, [[2.0], [3.0]]], {}, [6, 36]),
    "an absent dim": ("(m?,n),(n,p?)->(m?,p?)", lambda x, y: x @ y, [X, X[0]], {}, [5, 14]),
    "along another axis": ("(n)->()", total, [X], {"axis": 0, "keepdims": True}, [[3, 5, 7]]),
    "padded": ("(n)->(k)", lambda x: x[..., :1], [X], {"output_sizes": {"k": au.UpTo(2, -1)}}, [[0, -1], [3, -1]]),
    "of unknown size": ("(n)->(k)", lambda x: x[..., :1], [X], {"output_sizes": {"k": None}}, [[0], [3]]),
    "numbers": ("(n)->()", lambda x: 2.5, [X], {"vectorize": True}, [2.5, 2.5]),
    "NumPy arrays": ("(n)->()", lambda x: np.ones(2), [X], {}, [1, 1]),
    "nothing": ("(n)->()", total, [np.ones((0, 3))], {"output_dtypes": float}, []),
    "with a scalar": ("(n),()->(n)", lambda x, y: x * y, [X, 2.0], {}, (X * 2).tolist()),
    "without a callback": ("(n)->()", total, [X], {"kernel_arrays": "traced"}, [3, 12]),
    "in another dtype": ("(n)->()", total, [X.astype("f4")], {"compute_dtype": "f8"}, [3, 12]),
}


@pytest.mark.parametrize("what", SAME)
def test_a_kernel_for_the_librarys_arrays_stays_on_the_device(xp, what):
    signature, kernel, args, options, expected = SAME[what]
    got = []

    def noted(*blocks):
        got.extend(block for block in blocks if not isinstance(block, float))
        return kernel(*blocks)

    arrays = [arg if isinstance(arg, float) else on(xp, arg) for arg in args]
    result = au.apply_ufunc(noted, signature, *arrays, **{"kernel_arrays": "same", **options})
    assert (type(result), result.device, seen(result)) == (xp.array_type, xp.devices[1], expected)
    assert {(type(block), block.device) for block in got} <= {(xp.array_type, xp.devices[1])}
    assert xp.copies == 0
    assert [seen(array) for array in arrays if not isinstance(array, float)] == [
        np.asarray(arg).tolist() for arg in args if not isinstance(arg, float)
    ]


@pytest.mark.parametrize("w", ["NumPy", "own"])
def test_keywords_are_on_the_device_of_the_arguments(xp, w):
    got = []
    kernel = lambda x, w: got.append(w.device) or x * w
    keyword = X[0] if w == "NumPy" else on(xp, X[0])
    result = au.apply_ufunc(kernel, "(n)->(n)", on(xp, X), w=keyword, kernel_arrays="same")
    assert (seen(result), got, xp.copies) == ((X * X[0]).tolist(), [xp.devices[1]], 0)


def test_a_call_is_on_one_device(xp):
    x, elsewhere = on(xp, X), on(xp, X, number=0)
    names = f"<{xp.__name__} device 1>", f"<{xp.__name__} device 0>"
    message = (
        f"is on device {names[0]} and {{}} on device {names[1]}: arrays of two devices do not mix; move them to one"
    )
    kernel = lambda x, y=0, w=0: x
    for options in ({"kernel_arrays": "same"}, {"allow_transfer": True}):
        text = refusal(au.ArgumentError, au.apply_ufunc, kernel, "(n),(n)->(n)", x, elsewhere, **options)
        assert text == "argument 0 " + message.format("argument 1")
        text = refusal(au.ArgumentError, au.apply_ufunc, kernel, "(n),()->(n)", x, elsewhere[0, 0], **options)
        assert text == "argument 0 " + message.format("argument 1")
    text = refusal(au.ArgumentError, au.apply_ufunc, kernel, "(n)->(n)", x, w=elsewhere, kernel_arrays="same")
    assert text == "an argument " + message.format("keyword w")
    assert xp.copies == 0


def test_a_result_on_another_device_is_refused(xp):
    kernel = lambda x: on(xp, [1.0, 2.0], number=0)
    message = refusal(au.TransferError, au.apply_ufunc, kernel, "(n)->()", on(xp, X), kernel_arrays="same")
    assert message == (
        f"output 0: kernel returned an array on device <{xp.__name__} device 0>, expected one on device "
        f"<{xp.__name__} device 1>, as the arguments: move it in the kernel"
    )


def test_a_result_of_another_library_is_refused(xp):
    other = EXPORTING if xp is GETTING else GETTING
    kernel = lambda x: on(other, [1.0, 2.0])
    message = refusal(au.OutputShapeError, au.apply_ufunc, kernel, "(n)->()", on(xp, X), kernel_arrays="same")
    assert message.endswith("is of another library")


def test_integers_that_nobody_may_look_at_are_not_narrowed(xp):
    x = on(xp, X.astype("i8"))
    call = lambda dtype: au.apply_ufunc(total, "(n)->()", x, kernel_arrays="same", output_dtypes=dtype)
    assert call("f4").dtype == "f4"
    message = refusal(au.OutputDTypeError, call, "i2")
    assert message.startswith(
        f"output 0: kernel returned int64, and on device <{xp.__name__} device 1> nobody can tell"
    )


def test_a_list_of_such_arrays_is_refused(xp):
    message = refusal(au.ArgumentError, au.apply_ufunc, total, "(n)->()", [on(xp, X)], kernel_arrays="same")
    assert message.startswith("argument 0 is a list, which does not become an array: implicit conversion")


# `lazy_apply`


def test_lazy_apply_follows_the_library_without_leave(xp):
    x = on(xp, X)
    result = au.lazy_apply(xp.sort, x)
    assert (result.device, seen(result)) == (xp.devices[1], X.tolist())
    refusal(TypeError, au.lazy_apply, np.sort, x, as_numpy=True)
    refusal(au.TransferError, au.lazy_apply, np.sort, x, as_numpy=True, shape=(2, au.UpTo(4)))
    assert xp.copies == 0


def test_lazy_apply_moves_with_leave(xp):
    for shape in (None, (2, au.UpTo(3))):
        result = au.lazy_apply(np.sort, on(xp, -X), as_numpy=True, shape=shape, allow_transfer=True)
        assert (result.device, seen(result)) == (xp.devices[1], np.sort(-X).tolist())
    with au.allow_transfer():
        result = au.lazy_apply(np.sort, on(xp, -X), as_numpy=True)
    assert (seen(result), xp.copies) == (np.sort(-X).tolist(), 3)


# In the blocks of a Dask array


@pytest.fixture
def lazy(xp):
    da = pytest.importorskip("dask.array")
    put = lambda values: on(xp, values)
    return lambda values, chunks: da.from_array(values, chunks=chunks).map_blocks(
        put, meta=put(np.empty((0,) * values.ndim))
    )


def test_blocks_are_refused_when_the_call_is_made(xp, lazy):
    message = refusal(au.TransferError, au.apply_ufunc, total, "(n)->()", lazy(X, (1, 2)), output_dtypes=float)
    assert message.startswith("argument 0 is a")
    assert xp.copies == 0


def test_with_leave_blocks_are_copied_when_they_are_computed_and_results_go_back(xp, lazy):
    result = au.apply_ufunc(total, "(n)->()", lazy(X, (1, 2)), output_dtypes=float, allow_transfer=True)
    assert (type(result._meta), xp.copies) == (xp.array_type, 0)
    value = result.compute(scheduler="sync")
    assert (type(value), value.device, seen(value), xp.copies) == (xp.array_type, xp.devices[1], [3, 12], 2)


BLOCKS = {
    "on a batch": ("(n)->()", total, {}, [3, 12]),
    "item by item": ("(n)->()", total, {"vectorize": True}, [3, 12]),
    "dtypes found out": ("(n)->()", total, {"output_dtypes": None}, [3, 12]),
    "with a NumPy keyword": ("(n)->()", lambda x, w: total(x * w), {"w": X[0]}, [5, 14]),
    "reduced": ("(n)->()", total, {"core_chunks": au.Reduction(total, lambda a, b: a + b, state="(n)->()")}, [3, 12]),
    "overlapping": ("(n)->(n)", lambda x: x * 2, {"core_chunks": au.Overlap(1)}, (X * 2).tolist()),
}


@pytest.mark.parametrize("what", BLOCKS)
def test_a_kernel_for_the_librarys_arrays_runs_on_the_blocks_themselves(xp, lazy, what):
    signature, kernel, options, expected = BLOCKS[what]
    options = {"kernel_arrays": "same", "output_dtypes": float, **options}
    result = au.apply_ufunc(kernel, signature, lazy(X, (1, 2)), **options)
    assert type(result._meta) is xp.array_type
    value = result.compute(scheduler="sync")
    assert (type(value), value.device, seen(value), xp.copies) == (xp.array_type, xp.devices[1], expected, 0)


def test_numpy_arrays_beside_such_blocks_go_to_their_device(xp, lazy):
    kernel = lambda x, y: x[..., :, None] * y[..., None, :]
    y = np.arange(8.0).reshape(2, 4)
    for other in (y, lazy(y, (1, 3))):
        result = au.apply_ufunc(
            kernel, "(i),(j)->(i,j)", lazy(X, (1, 2)), other, kernel_arrays="same", output_dtypes=float
        )
        value = result.compute(scheduler="sync")
        assert (value.device, seen(value)) == (xp.devices[1], (X[:, :, None] * y[:, None, :]).tolist())
    assert xp.copies == 0


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_blocks_without_elements_are_of_the_library_too(xp, lazy, shape):
    got = []
    kernel = lambda x: got.append(type(x)) or total(x)
    result = au.apply_ufunc(
        kernel,
        "(n)->()",
        lazy(np.ones((2, 3)), (1, 2))[: shape[0], : shape[1]],
        kernel_arrays="same",
        output_dtypes=float,
    )
    value = result.compute(scheduler="sync")
    assert (type(result._meta), type(value), seen(value)) == (xp.array_type, xp.array_type, [0.0] * shape[0])
    assert set(got) <= {xp.array_type}
