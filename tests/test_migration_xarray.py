"""What `xarray.apply_ufunc` takes by lists of dims is taken by a signature; each difference is on a page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

xr = pytest.importorskip("xarray")

import applyufunc as au  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs/how-to/move-from-xarray.md"

DIFFERENCES: list[str] = []


def difference(row):
    """Say that a test shows both sides of a row of the migration page."""
    DIFFERENCES.append(row)
    return lambda test: test


def total(x):
    return x.sum(axis=-1)


def anomaly(x):
    return x - x.mean(axis=-1, keepdims=True)


OVER_TIME = {"input_core_dims": [["time"]]}
ALONG_TIME = {**OVER_TIME, "output_core_dims": [["time"]]}


@pytest.fixture
def x():
    return xr.DataArray(np.arange(24.0).reshape(2, 4, 3), dims=("x", "time", "y"), coords={"time": [0, 1, 2, 3]})


@pytest.fixture
def lazy(x):
    pytest.importorskip("dask.array")
    return x.chunk(time=2)


# Another result


@difference("order-of-dims")
def test_core_dims_return_to_their_places(x):
    assert xr.apply_ufunc(anomaly, x, **ALONG_TIME).dims == ("x", "y", "time")
    assert au.apply_ufunc(anomaly, "(time)->(time)", x).dims == ("x", "time", "y")


@difference("dask-unasked")
def test_dask_arrays_stay_lazy_unasked(lazy):
    with pytest.raises(ValueError, match="has not been enabled"):
        xr.apply_ufunc(total, lazy, **OVER_TIME)
    assert au.apply_ufunc(total, "(time)->()", lazy, output_dtypes=float).chunks == ((2,), (3,))


@difference("chunked-core-dims")
def test_core_dims_in_chunks_are_merged(x, lazy):
    with pytest.raises(ValueError, match="consists of multiple chunks"):
        xr.apply_ufunc(total, lazy, dask="parallelized", output_dtypes=[float], **OVER_TIME)
    result = au.apply_ufunc(total, "(time)->()", lazy, output_dtypes=float)
    xr.testing.assert_allclose(result, x.sum("time"))


@difference("dtype-of-items")
def test_dtypes_of_items_promote():
    x = xr.DataArray([0.0, 1.5], dims="x")
    halve = lambda value: 0 if value == 0 else float(value)
    assert xr.apply_ufunc(halve, x, vectorize=True).values.tolist() == [0, 1]
    assert au.apply_ufunc(halve, "()->()", x, vectorize=True).values.tolist() == [0, 1.5]


@difference("no-items")
def test_no_items_are_answered_without_the_kernel(x):
    none = x.isel(x=[])
    with pytest.raises(ValueError, match="size 0"):
        xr.apply_ufunc(np.sum, none, vectorize=True, **OVER_TIME)
    calls = []
    kernel = lambda row: calls.append(row.shape) or row.sum()
    assert au.apply_ufunc(kernel, "(time)->()", none, vectorize=True, output_dtypes=float).shape == (0, 3)
    assert not calls


@difference("ranks-of-arrays")
def test_arrays_have_the_same_number_of_loop_dims(x):
    def shapes(call):
        seen = []
        call(lambda a, b: seen.append((a.shape, b.shape)) or total(a) + total(b))
        return seen[0]

    row = x.isel(x=0, y=0)
    there = shapes(lambda kernel: xr.apply_ufunc(kernel, x, row, input_core_dims=[["time"], ["time"]]))
    here = shapes(lambda kernel: au.apply_ufunc(kernel, "(time),(time)->()", x, row))
    assert (there, here) == (((2, 3, 4), (4,)), ((2, 3, 4), (1, 1, 4)))


@difference("inputs-read-only")
def test_kernel_cannot_change_its_inputs(x):
    def double(values):
        values *= 2
        return values

    changed = x.copy(deep=True)
    xr.apply_ufunc(double, changed)
    assert float(changed.max()) == 46
    with pytest.raises(ValueError, match="read-only"):
        au.apply_ufunc(double, "()->()", x)
    assert float(au.apply_ufunc(double, "()->()", x, writable=True).max()) == 46
    assert float(x.max()) == 23


# Refused


@difference("declared-sizes")
def test_sizes_of_new_dims_are_checked_without_dask_too(x):
    kernel = lambda values: values[..., :2]
    there = {"output_core_dims": [["k"]], "dask_gufunc_kwargs": {"output_sizes": {"k": 3}}}
    assert xr.apply_ufunc(kernel, x, dask="parallelized", **OVER_TIME, **there).sizes["k"] == 2
    with pytest.raises(au.OutputShapeError, match="expected 3, kernel returned 2"):
        au.apply_ufunc(kernel, "(time)->(k)", x, output_sizes={"k": 3})


@difference("core-dims-of-two-sizes")
def test_a_core_dim_has_one_size_and_two_names_have_two(x):
    kernel = lambda a, b: total(a) + total(b)
    short = x.isel(time=[0, 1])
    there = xr.apply_ufunc(kernel, x, short, input_core_dims=[["time"], ["time"]], exclude_dims={"time"})
    with pytest.raises(ValueError, match="cannot align"):
        au.apply_ufunc(kernel, "(time),(time)->()", x, short)
    here = au.apply_ufunc(kernel, "(n),(m)->()", x, short, dims={"n": "time", "m": "time"})
    xr.testing.assert_identical(here, there)


@difference("loop-dims-without-names")
def test_arrays_without_labels_are_refused_before_the_kernel_runs(x):
    calls = []
    kernel = lambda a, b: calls.append(1) or a + b
    with pytest.raises(ValueError, match="unexpected number of dimensions"):
        xr.apply_ufunc(kernel, x, np.ones((5, 2, 4, 3)))
    assert calls.pop()
    with pytest.raises(au.DimensionError, match="argument 1 has no labels"):
        au.apply_ufunc(kernel, "(),()->()", x, np.ones((5, 2, 4, 3)))
    assert not calls


@difference("copies-for-two-outputs")
def test_a_variable_is_not_copied_into_two_outputs(x):
    kernel = lambda values: (total(values), values.max(axis=-1))
    dataset = xr.Dataset({"a": x, "pair": ("q", [1, 2])})
    options = {"on_missing_core_dim": "copy"}
    there = xr.apply_ufunc(kernel, dataset, output_core_dims=[[], []], **OVER_TIME, **options)
    assert [part["pair"].ndim for part in there] == [0, 0]  # each got one of its values
    with pytest.raises(au.OptionError, match="in the place of one output"):
        au.apply_ufunc(kernel, "(time)->(),()", dataset, **options)


@difference("labelled-keywords")
def test_labelled_keywords_are_refused(x):
    seen = []
    kernel = lambda values, w: seen.append(type(w)) or values
    xr.apply_ufunc(kernel, x, kwargs={"w": x})
    assert seen == [xr.DataArray]
    with pytest.raises(au.ArgumentError, match=r"keyword w is an xarray\.DataArray"):
        au.apply_ufunc(kernel, "()->()", x, w=x)


@difference("masks")
def test_masked_arrays_are_refused(x):
    masked = np.ma.MaskedArray(np.ones(3), mask=[True, False, False])
    assert np.isnan(xr.apply_ufunc(np.add, x, masked)).any()
    with pytest.raises(au.ArgumentError, match="masked array"):
        au.apply_ufunc(np.add, "(),()->()", x, masked)


@difference("dicts")
def test_dicts_are_no_datasets(x):
    assert type(xr.apply_ufunc(np.add, x, {"a": x})) is xr.Dataset
    with pytest.raises(au.ArgumentError, match=r"argument 1 is a dict: make an xarray\.Dataset"):
        au.apply_ufunc(np.add, "(),()->()", x, {"a": x})
    series = x.to_series()
    assert type(xr.apply_ufunc(np.add, x, series)) is xr.Dataset
    with pytest.raises(au.ArgumentError, match=r"argument 1 is a Series: make an xarray\.DataArray"):
        au.apply_ufunc(np.add, "(),()->()", x, series)


@difference("dims-of-no-argument")
def test_a_missing_dim_is_named_with_those_that_are_there(x):
    with pytest.raises(ValueError, match="tuple") as there:
        xr.apply_ufunc(total, x, input_core_dims=[["tme"]])
    assert "tme" not in str(there.value)
    with pytest.raises(au.DimensionError, match="did you mean 'time'"):
        au.apply_ufunc(total, "(tme)->()", x)


# Refused there


@difference("optional-dims")
def test_dims_may_be_absent(x):
    row, matrix = x.isel(x=0, y=0), x.isel(x=0)
    with pytest.raises(ValueError, match="tuple"):
        xr.apply_ufunc(
            np.matmul, row, matrix, input_core_dims=[["x", "time"], ["time", "y"]], output_core_dims=[["x", "y"]]
        )
    result = au.apply_ufunc(np.matmul, "(x?,time),(time,y)->(x?,y)", row, matrix)
    xr.testing.assert_allclose(result, xr.dot(row, matrix, dim="time"))


@difference("jit")
def test_numpy_kernels_run_under_jit():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((2, 3))
    kernel = lambda values: np.sum(np.asarray(values), axis=-1)
    over_n = {"input_core_dims": [["n"]]}
    with pytest.raises(jax.errors.TracerArrayConversionError):
        jax.jit(lambda x: xr.apply_ufunc(kernel, xr.DataArray(x, dims=("x", "n")), **over_n).data)(x)
    program = jax.jit(
        lambda x: au.apply_ufunc(kernel, "(n)->()", xr.DataArray(x, dims=("x", "n")), output_dtypes="f4").data
    )
    assert program(x).tolist() == [3, 3]


# The page


def test_the_page_lists_exactly_the_differences_that_are_tested():
    rows = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert Counter(rows) == Counter(DIFFERENCES)
