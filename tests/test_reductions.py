"""The ready-made reductions give what NumPy's functions give, on every backend and in every chunking."""

from __future__ import annotations

import dataclasses
import pickle
import warnings

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import applyufunc as au
from applyufunc import reductions
from applyufunc._core_chunks import _piecewise

EDGES = (-2.0, -1.0, 0.0, 0.5, 0.5, 2.0)


def quiet(func, *args, **keywords):
    """NumPy's function without its warnings of empty slices and the like."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return func(*args, **keywords)


def nan_place(find, x):
    """`numpy.nanargmin` without its slip where all values but NaNs are infinite."""
    fill = np.inf if find is np.argmin else -np.inf
    rows = [np.flatnonzero(~np.isnan(row)) for row in x]
    return np.array(
        [valid[find(np.where(np.isnan(row), fill, row)[valid])] for valid, row in zip(rows, x, strict=True)], int
    )


@dataclasses.dataclass
class Case:
    """A reduction of two-dimensional arrays along their last axis, and NumPy's answer."""

    func: object
    oracle: object
    keywords: dict = dataclasses.field(default_factory=dict)
    needs_values: bool = False  # NumPy refuses an empty row
    needs_numbers: bool = False  # NumPy refuses a row of NaNs


CASES = {
    "sum": Case(reductions.sum, lambda x: x.sum(-1)),
    "nansum": Case(reductions.nansum, lambda x: np.nansum(x, -1)),
    "mean_var": Case(reductions.mean_var, lambda x: (x.mean(-1), x.var(-1))),
    "mean_var ddof": Case(reductions.mean_var, lambda x: (x.mean(-1), x.var(-1, ddof=2)), {"ddof": 2}),
    "nanmean_var": Case(reductions.nanmean_var, lambda x: (np.nanmean(x, -1), np.nanvar(x, -1))),
    "nanmean_var ddof": Case(
        reductions.nanmean_var, lambda x: (np.nanmean(x, -1), np.nanvar(x, -1, ddof=2)), {"ddof": 2}
    ),
    "min_max": Case(reductions.min_max, lambda x: (x.min(-1), x.max(-1)), needs_values=True),
    "nanmin_max": Case(reductions.nanmin_max, lambda x: (np.nanmin(x, -1), np.nanmax(x, -1)), needs_values=True),
    "argmin": Case(reductions.argmin, lambda x: x.argmin(-1), needs_values=True),
    "argmax": Case(reductions.argmax, lambda x: x.argmax(-1), needs_values=True),
    "nanargmin": Case(reductions.nanargmin, lambda x: nan_place(np.argmin, x), needs_values=True, needs_numbers=True),
    "nanargmax": Case(reductions.nanargmax, lambda x: nan_place(np.argmax, x), needs_values=True, needs_numbers=True),
    "logsumexp": Case(reductions.logsumexp, lambda x: np.logaddexp.reduce(x, axis=-1)),
    "histogram": Case(
        reductions.histogram,
        lambda x: np.array([np.histogram(row, EDGES)[0] for row in x], int).reshape(len(x), len(EDGES) - 1),
        {"edges": EDGES},
    ),
    "top_k": Case(reductions.top_k, lambda x: np.sort(x, -1)[:, ::-1][:, :1], {"k": 1}, needs_values=True),
}

FLOATS = [-np.inf, -2.0, -1.5, -0.0, 0.0, 0.5, 1.0, 1.0, 3.25, np.inf, np.nan]


@st.composite
def rows(draw, case):
    """Draw a two-dimensional float array with few distinct values, so that there are ties, NaNs and infinities."""
    shape = (draw(st.integers(0, 3)), draw(st.integers(1 if case.needs_values else 0, 7)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    x = draw(hnp.arrays(dtype, shape, elements=st.sampled_from(FLOATS).map(dtype)))
    if case.needs_numbers:
        x[np.isnan(x).all(-1), 0] = 1
    return x


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's own, for infinities of both signs
@pytest.mark.parametrize("name", CASES)
def test_reduction_gives_what_numpy_gives(name, backend):
    case = CASES[name]

    @examples(backend.examples // 5)
    @given(data=st.data())
    def check(data):
        x = data.draw(rows(case))
        result = call(backend, case, backend.put(x, data if backend.works_on_pieces else None))
        compare(backend, result, quiet(case.oracle, x))

    check()


def call(backend, case, *args, **keywords):
    """Call a gufunc object as the backend calls kernels."""
    func = case.func
    options = {"core_chunks": func._options.core_chunks, "output_dtypes": func._options.output_dtypes}
    sizes = {"output_sizes": dict(func._options.output_sizes)}
    return backend.call(func.__wrapped__, func.signature, args, {**options, **sizes, **case.keywords, **keywords})


def compare(backend, result, expected):
    results, expected = (each if isinstance(each, tuple) else (each,) for each in (result, expected))
    for got, wanted in zip(results, expected, strict=True):
        backend.check_type(got)
        values = backend.get(got)
        assert values.shape == wanted.shape
        assert values.dtype == wanted.dtype
        tolerance = 1e-5 if wanted.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(values, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["argmin", "argmax", "min_max", "nanmin_max", "nanargmin", "nanargmax"])
def test_reduction_without_identity_refuses_empty_rows(name, backend):
    def compute():
        result = call(backend, CASES[name], backend.put(np.ones((2, 0))))
        return [backend.get(each) for each in (result if isinstance(result, tuple) else (result,))]

    with pytest.raises((ValueError, RuntimeError), match=r"zero-size|empty"):
        compute()


@pytest.mark.parametrize("name", ["nanargmin", "nanargmax"])
def test_place_of_a_number_refuses_a_row_of_nans(name):
    with pytest.raises(ValueError, match="All-NaN slice"):
        CASES[name].func(np.array([[1.0, 2.0], [np.nan, np.nan]]))


def test_place_of_a_number_is_never_that_of_a_nan():
    x = np.array([[np.nan, np.inf], [np.nan, -np.inf]])
    assert reductions.nanargmin(x).tolist() == reductions.nanargmax(x).tolist() == [1, 1]


@examples(50)
@given(st.data())
def test_covariance_is_numpys(data):
    n, p = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 3))
    x = data.draw(hnp.arrays(np.float64, (n, p), elements=st.floats(-5, 5)))
    expected = np.cov(x, rowvar=False).reshape(p, p)
    np.testing.assert_allclose(reductions.covariance(x), expected, atol=1e-12)


def test_covariance_of_complex_numbers_is_numpys():
    x = np.random.default_rng(0).normal(size=(7, 3)) + 1j * np.random.default_rng(1).normal(size=(7, 3))
    np.testing.assert_allclose(reductions.covariance(x, ddof=0), np.cov(x, rowvar=False, ddof=0))


@examples(50)
@given(st.data())
def test_covariance_in_chunks_is_that_of_the_whole(data):
    da = pytest.importorskip("dask.array")
    x = np.random.default_rng(0).normal(3, 1, (2, 9, 4))
    chunks = tuple(data.draw(splits(size)) for size in x.shape)
    result = reductions.covariance(da.from_array(x, chunks=chunks), ddof=0)
    expected = np.stack([np.cov(each, rowvar=False, ddof=0) for each in x])
    np.testing.assert_allclose(result.compute(scheduler="sync"), expected)


def splits(size):
    """Chunk sizes that add up to `size`; some are 0."""
    cuts = st.lists(st.integers(0, size), max_size=4).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))


@examples(50)
@given(st.data())
def test_dot_in_chunks_is_that_of_the_whole(data):
    da = pytest.importorskip("dask.array")
    dtypes = st.sampled_from([np.int16, np.float32, np.complex64, np.float64, np.bool_])
    x = np.arange(21).reshape(3, 7).astype(data.draw(dtypes))
    y = np.arange(7)[::-1].astype(data.draw(dtypes))
    lazy = da.from_array(x, chunks=tuple(map(data.draw, map(splits, x.shape))))
    other = da.from_array(y, chunks=(data.draw(splits(7)),)) if data.draw(st.booleans()) else y
    result = reductions.dot(lazy, other)
    expected = np.dot(x, y)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.compute(scheduler="sync"), expected, rtol=1e-6)


@examples(60)
@given(st.data())
def test_top_k_in_chunks_is_the_end_of_numpys_sort(data):
    da = pytest.importorskip("dask.array")
    dtype = data.draw(st.sampled_from([np.int8, np.uint16, np.bool_, np.float16, np.float64]))
    x = data.draw(hnp.arrays(dtype, (2, data.draw(st.integers(0, 8)))))
    k = data.draw(st.integers(0, x.shape[1]))
    lazy = da.from_array(x, chunks=tuple(map(data.draw, map(splits, x.shape))))
    result = reductions.top_k(lazy, k=k)
    assert result.shape == (2, k)
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.sort(x, -1)[:, ::-1][:, :k])


def test_top_k_refuses_more_values_than_there_are():
    with pytest.raises(au.DimensionError, match="k is 4, expected 0 to 3"):
        reductions.top_k(np.ones(3), k=4)


def test_histogram_refuses_edges_that_do_not_ascend():
    with pytest.raises(au.ArgumentError, match="ascending"):
        reductions.histogram(np.ones(3), edges=(1, 0))


@pytest.mark.parametrize("name", ["sum", "mean_var", "min_max", "argmin", "argmax", "nansum"])
@pytest.mark.parametrize("code", "?bBhHiIlLefdgFD")
def test_dtypes_are_those_of_numpy(name, code):
    if code == "g" and np.dtype("g") == np.dtype("d"):
        pytest.skip("long double is double here")
    if name.startswith("arg") and code in "FD":
        pytest.skip("the order of complex numbers is nobody's business")
    x = (np.arange(12).reshape(3, 4) % 5).astype(code)
    result, expected = CASES[name].func(x), CASES[name].oracle(x)
    for got, wanted in zip(*(each if isinstance(each, tuple) else (each,) for each in (result, expected)), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-3 if code == "e" else 1e-6)


def test_argmax_of_times_is_numpys():
    times = np.array([["2001-01-01", "2003-01-01", "2003-01-01"], ["NaT", "2001-01-01", "NaT"]], "M8[D]")
    assert reductions.argmax(times).tolist() == times.argmax(-1).tolist()
    assert reductions.argmin(times).tolist() == times.argmin(-1).tolist()


def test_variance_of_large_numbers_loses_no_digits():
    da = pytest.importorskip("dask.array")
    x = (1e9 + np.random.default_rng(0).normal(size=10_000)).reshape(1, -1)
    for given_x in (x, da.from_array(x, chunks=(1, 7))):
        _, var = reductions.mean_var(given_x)
        np.testing.assert_allclose(np.asarray(var), x.var(-1), rtol=1e-6)


def test_sum_of_short_floats_is_that_of_long_ones():
    x = np.full((1, 3_000_001), 0.1, np.float32)
    result = reductions.sum(x)
    assert result.dtype == np.float32
    assert result[0] == np.float32(x.astype(np.float64).sum())


@pytest.mark.parametrize("name", CASES)
def test_pieces_of_a_block_do_not_change_the_result(name, monkeypatch):
    case = CASES[name]
    x = np.random.default_rng(0).choice(
        FLOATS[1:-2] if name in ("sum", "mean_var") else [*FLOATS[1:-2], np.nan], (5, 40)
    )
    expected = case.func(x, **case.keywords)
    monkeypatch.setattr(_piecewise, "PIECE_BYTES", 64)
    result = case.func(x, **case.keywords)
    for got, wanted in zip(*(each if isinstance(each, tuple) else (each,) for each in (result, expected)), strict=True):
        np.testing.assert_allclose(got, wanted)


def test_axis_and_keepdims_are_numpys():
    x = np.arange(24.0).reshape(2, 3, 4)
    mean, var = reductions.mean_var(x, axis=0, keepdims=True)
    np.testing.assert_allclose(mean, x.mean(0, keepdims=True))
    np.testing.assert_allclose(var, x.var(0, keepdims=True))


def test_reductions_pickle_by_name():
    assert all(pickle.loads(pickle.dumps(getattr(reductions, name))) is getattr(reductions, name) for name in names())


def names():
    return reductions.__all__


@pytest.mark.parametrize("name", [n for n in CASES if n != "histogram"])
def test_kernel_itself_says_the_same(name):
    case = CASES[name]
    x = np.array([[1.0, 2.5, -3.0], [0.5, 0.5, 2.0]])
    result, said = case.func(x, **case.keywords), case.func.__wrapped__(x, **case.keywords)
    for got, wanted in zip(*(each if isinstance(each, tuple) else (each,) for each in (result, said)), strict=True):
        np.testing.assert_allclose(got, wanted)


def test_without_x64_dtypes_are_jaxs_own():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6, dtype=jax.numpy.int32).reshape(2, 3)
    mean, var = reductions.mean_var(x)
    assert (mean.dtype, var.dtype, reductions.argmax(x).dtype) == (np.float32, np.float32, np.int32)
    assert reductions.sum(x).tolist() == [3, 12]
