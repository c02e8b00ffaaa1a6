"""Arrays of `sparse`: what takes them gets them, what does not is refused, and with leave they are made dense."""

from __future__ import annotations

import numpy as np
import pytest

import applyufunc as au

sparse = pytest.importorskip("sparse")

X = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
FORMATS = {"COO": sparse.COO.from_numpy, "GCXS": sparse.GCXS.from_numpy, "DOK": sparse.DOK.from_numpy}


@pytest.fixture(params=FORMATS)
def put(request):
    return FORMATS[request.param]


def coo(values):
    return sparse.COO.from_numpy(np.asarray(values))


def total(block):
    return block.sum(axis=-1)


def lazy(values=X, chunks=(1, 2), put=coo):
    da = pytest.importorskip("dask.array")
    return da.from_array(values, chunks=chunks).map_blocks(put, meta=put(np.empty((0,) * values.ndim, values.dtype)))


# A kernel for NumPy arrays


def test_what_would_be_made_dense_is_refused_by_name_before_any_work(put):
    calls = []
    kernel = lambda x, w=1: calls.append(1) or x
    for args, keywords, what in [((put(X),), {}, "argument 0"), ((X,), {"w": put(X)}, "keyword w")]:
        with pytest.raises(au.TransferError) as caught:
            au.apply_ufunc(kernel, "(n)->(n)", *args, **keywords)
        assert str(caught.value) == (
            f"{what} is a sparse.{type(put(X)).__name__} that would be made dense, and the kernel takes NumPy arrays: "
            f"pass allow_transfer=True, or use `with applyufunc.allow_transfer():`, to copy it to the host"
        )
    assert calls == []


def test_with_leave_the_kernel_gets_dense_arrays_and_the_result_is_coo(put):
    got = []
    kernel = lambda x: got.append((type(x), x.flags.writeable)) or x + 1
    result = au.apply_ufunc(kernel, "(n)->(n)", put(X), allow_transfer=True)
    assert (type(result), got) == (sparse.COO, [(np.ndarray, False)])
    np.testing.assert_array_equal(result.todense(), X + 1)


def test_a_keyword_is_made_dense_with_leave(put):
    result = au.apply_ufunc(lambda x, w: x * w, "(n)->(n)", X, w=put(X), allow_transfer=True)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, X * X)


# A kernel for sparse arrays


SAME = {
    "on a batch": ("(n)->()", total, [X], {}, [3, 3]),
    "item by item": ("(n)->()", total, [X * [[1], [2]]], {"vectorize": True}, [3, 6]),
    "items of items": ("(n)->(n)", lambda x: x * 2, [X], {"vectorize": True}, X * 2),
    "of another dtype": ("(n)->()", total, [X], {"output_dtypes": "f4"}, [3, 3]),
    "of its argument": ("(n)->(n)", lambda x: x, [X], {}, X),
    "on copies": ("(n)->(n)", lambda x: x * 2, [X], {"writable": True}, X * 2),
    "of two loop ranks": ("(n),(n)->(n)", lambda x, y: x * y, [X, X[0]], {}, X * X[0]),
    "of a part that is stretched": ("(),()->()", lambda x, y: y, [X, X[0]], {}, [X[0], X[0]]),
    "of a marked dim": ("(n),(n|1)->()", lambda x, y: total(x * y), [X, np.ones((2, 1))], {}, [3, 3]),
    "along another axis": ("(n)->()", total, [X], {"axis": 0, "keepdims": True}, [[3, 1, 2]]),
    "without dims": ("(n)->()", total, [X[0]], {}, 3),
    "padded": ("(n)->(k)", lambda x: x[..., :2], [X], {"output_sizes": {"k": au.UpTo(3)}}, X * [1, 1, 0]),
    "without items": ("(n)->()", total, [np.ones((0, 3))], {"output_dtypes": float}, np.ones(0)),
    "with integers that fit": ("(n)->()", total, [X.astype(int)], {"output_dtypes": "i2"}, [3, 3]),
}


@pytest.mark.parametrize("what", SAME)
def test_coo_stays_coo_in_and_out(what):
    signature, kernel, args, options, expected = SAME[what]
    got = []
    noted = lambda *blocks: got.extend(map(type, blocks)) or kernel(*blocks)
    result = au.apply_ufunc(noted, signature, *map(coo, args), kernel_arrays="same", **options)
    assert type(result) is sparse.COO
    assert set(got) <= {sparse.COO}
    assert result.dtype == options.get("output_dtypes", args[0].dtype)
    np.testing.assert_array_equal(result.todense(), expected)


def test_other_formats_reach_the_kernel_as_they_are(put):
    got = []
    kernel = lambda x, w: got.append((type(x), type(w))) or x
    options = {"kernel_arrays": "same", "w": put(X)}
    for more in ({}, {"writable": True}):
        result = au.apply_ufunc(kernel, "(n)->(n)", put(X), **options, **more)
        assert type(result) is type(put(X))
        np.testing.assert_array_equal(result.todense(), X)
    assert set(got) == {(type(put(X)), type(put(X)))}


def test_what_other_formats_cannot_do_is_done_as_coo(put):
    result = au.apply_ufunc(lambda x, y: y, "(),()->()", put(X), put(X[0]), kernel_arrays="same")
    np.testing.assert_array_equal(result.todense(), [X[0], X[0]])


def test_results_share_nothing_with_arguments(put):
    x = put(X)
    result = au.apply_ufunc(lambda x: x, "(n)->(n)", x, kernel_arrays="same")
    assert result is not x
    if isinstance(x, sparse.DOK):
        result[0, 0] = 9.0
    else:
        result.data[:] = 9.0
    np.testing.assert_array_equal(x.todense(), X)


def test_numpy_arrays_join_as_coo():
    got = []
    kernel = lambda x, y, w: got.extend([type(y), type(w)]) or x * y * w
    result = au.apply_ufunc(kernel, "(n),(n)->(n)", coo(X), X, w=X[0], kernel_arrays="same")
    assert got == [sparse.COO, sparse.COO]
    np.testing.assert_array_equal(result.todense(), X * X * X[0])


def test_a_wrong_result_is_refused():
    with pytest.raises(au.OutputShapeError, match="core dimension n: expected 3, kernel returned 2"):
        au.apply_ufunc(lambda x: x[..., :2], "(n)->(n)", coo(X), kernel_arrays="same")
    with pytest.raises(au.OutputRangeError, match="returned 300"):
        au.apply_ufunc(lambda x: x * 100, "()->()", coo(X.astype(int)), kernel_arrays="same", output_dtypes="i1")


# In the blocks of a Dask array


ADDED = au.Reduction(total, lambda state, following: state + following, state="(n)->()")
BLOCKS = {
    "on a batch": ("(n)->()", total, {}, [3, 3]),
    "item by item": ("(n)->()", total, {"vectorize": True}, [3, 3]),
    "dtypes found out": ("(n)->()", total, {"output_dtypes": None}, [3, 3]),
    "two outputs": ("(n)->(),(n)", lambda x: (total(x), x * 2), {}, [3, 3]),
    "with a sparse keyword": ("(n)->()", lambda x, w: total(x * w), {"w": coo(X[0])}, [5, 0]),
    "with a NumPy keyword": ("(n)->()", lambda x, w: total(x * w), {"w": X[0]}, [5, 0]),
    "reduced": ("(n)->()", total, {"core_chunks": ADDED}, [3, 3]),
    "reduced by a ufunc": ("(n)->()", total, {"core_chunks": np.add}, [3, 3]),
    "overlapping": ("(n)->(n)", lambda x: x * 2, {"core_chunks": au.Overlap(1)}, X * 2),
}


@pytest.mark.parametrize("what", BLOCKS)
def test_blocks_stay_coo_in_and_out(what):
    signature, kernel, options, expected = BLOCKS[what]
    got = []
    noted = lambda x, *args, **keywords: got.append(type(x)) or kernel(x, *args, **keywords)
    options = {"kernel_arrays": "same", "output_dtypes": float, **options}
    results = au.apply_ufunc(noted, signature, lazy(), **options)
    first = results[0] if isinstance(results, tuple) else results
    assert type(first._meta) is sparse.COO
    value = first.compute(scheduler="sync")
    assert (type(value), value.dtype) == (sparse.COO, first.dtype)
    np.testing.assert_array_equal(value.todense(), expected)
    assert set(got) <= {sparse.COO}
    for index in np.ndindex(first.numblocks):
        assert type(first.blocks[index].compute(scheduler="sync")) is sparse.COO


def test_blocks_are_made_dense_with_leave_alone_and_come_back_as_coo():
    got = []
    kernel = lambda x: got.append(type(x)) or total(x)
    with pytest.raises(au.TransferError, match=r"argument 0 is a sparse\.COO that would be made dense"):
        au.apply_ufunc(kernel, "(n)->()", lazy(), output_dtypes=float)
    result = au.apply_ufunc(kernel, "(n)->()", lazy(), output_dtypes=float, allow_transfer=True)
    assert (type(result._meta), got) == (sparse.COO, [])
    value = result.compute(scheduler="threads")
    assert (type(value), set(got)) == (sparse.COO, {np.ndarray})
    np.testing.assert_array_equal(value.todense(), [3, 3])


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_blocks_without_elements_are_sparse(shape):
    got = []
    kernel = lambda x: got.append(type(x)) or total(x)
    empty = lazy()[: shape[0], : shape[1]]
    result = au.apply_ufunc(kernel, "(n)->()", empty, kernel_arrays="same", output_dtypes=float)
    value = result.compute(scheduler="sync")
    assert (type(result._meta), type(value), value.shape) == (sparse.COO, sparse.COO, shape[:1])
    assert set(got) <= {sparse.COO}


def test_masked_blocks_do_not_go_with_sparse_ones():
    masked = np.ma.masked_equal(X, 0)
    for other in (masked, lazy(masked, put=np.ma.asarray)):
        with pytest.raises(au.ArgumentError, match=r"^argument 1 is a masked array, whose mask sparse arrays cannot"):
            au.apply_ufunc(lambda x, y: x, "(n),(n)->(n)", lazy(), other, kernel_arrays="same", output_dtypes=float)


# `lazy_apply`


def test_lazy_apply_gets_sparse_arrays_or_dense_ones_with_leave(put):
    x = put(X)
    np.testing.assert_array_equal(au.lazy_apply(lambda x: x, x).todense(), X)
    with pytest.raises(RuntimeError, match="dense"):
        au.lazy_apply(np.negative, x, as_numpy=True)
    result = au.lazy_apply(np.negative, x, as_numpy=True, allow_transfer=True)
    assert type(result) is sparse.COO
    np.testing.assert_array_equal(result.todense(), -X)
