"""Calls on xarray's objects: core dims by name, and all else as `xarray.apply_ufunc` and plain loops have it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

xr = pytest.importorskip("xarray")

import pandas as pd  # noqa: E402  # comes with xarray
from drawn_examples import examples  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import applyufunc as au  # noqa: E402


def total(x):
    return x.sum(axis=-1)


def dot(x, y):
    return np.einsum("...n,...n->...", x, y)


def anomaly(x):
    return x - x.mean(axis=-1, keepdims=True)


def mean_and_anomaly(x):
    return x.mean(axis=-1), anomaly(x)


def outer(x, y):
    return x[..., :, None] * y[..., None, :]


def quartiles(x):
    return np.moveaxis(np.quantile(x, [0.25, 0.5, 0.75], axis=-1), 0, -1)


def refusal(error, function, *args, **keywords):
    """Return the text with which a call is refused."""
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


def outcome(function, *args, **keywords):
    """Return the result of a call, or the text with which it is refused."""
    try:
        return function(*args, **keywords)
    except ValueError as error:
        return str(error)


@pytest.fixture
def field():
    """Temperatures whose core dim lies between two others."""
    values = np.random.default_rng(0).normal(size=(2, 4, 3))
    return xr.DataArray(
        values,
        dims=("x", "time", "y"),
        coords={"time": [0, 1, 2, 3], "x": [10, 20], "height": 2.0, "area": (("x", "y"), np.ones((2, 3)))},
        name="temperature",
        attrs={"units": "K"},
    )


@pytest.fixture
def dataset(field):
    transposed = (2 * field).transpose("y", "x", "time")
    return xr.Dataset({"low": field, "high": transposed.assign_attrs(units="C")}, attrs={"title": "two"})


# Dims by name

KEPT = ("x", "time", "y")


@pytest.mark.parametrize(
    ("signature", "options"),
    [
        ("(time)->(time)", {}),
        ("(n)->(n)", {"dims": {"n": "time"}}),
        ("(n)->(n)", {"dims": {" n ": "time"}}),
        ("(n)->(n)", {"dims": "time"}),
    ],
)
def test_core_dims_are_found_by_name_and_return_to_their_places(field, signature, options):
    result = au.apply_ufunc(anomaly, signature, field, **options)
    xr.testing.assert_identical(result, (field - field.mean("time")).assign_attrs(result.attrs).rename(field.name))
    assert result.dims == KEPT


def test_gufunc_objects_take_labelled_arguments(field):
    mean = au.gufunc("(n)->()", dims="time", output_dtypes=float)(lambda x: x.mean(axis=-1))
    xr.testing.assert_identical(
        mean(field), xr.apply_ufunc(np.mean, field, input_core_dims=[["time"]], kwargs={"axis": -1})
    )
    assert mean(field.to_numpy().swapaxes(1, 2)).shape == (2, 3)


def test_new_dims_go_last_and_get_their_coordinates(field):
    result = au.apply_ufunc(quartiles, "(time)->(quantile)", field, output_coords={"quantile": [0.25, 0.5, 0.75]})
    expected = field.quantile([0.25, 0.5, 0.75], dim="time", keep_attrs=True).transpose(..., "quantile")
    xr.testing.assert_allclose(result.drop_vars("height"), expected)
    assert result.dims == ("x", "y", "quantile")
    assert result.indexes["quantile"].tolist() == [0.25, 0.5, 0.75]


def test_a_coordinate_may_have_attributes_and_be_mapped():
    levels = xr.DataArray([0.25, 0.5, 0.75], dims="q", attrs={"units": "1"})
    x = xr.DataArray(np.arange(8.0).reshape(2, 4), dims=("x", "n"))
    result = au.apply_ufunc(quartiles, "(n)->(k)", x, dims={"k": "q"}, output_coords={"q": levels})
    assert result.coords["q"].attrs == {"units": "1"}
    renamed = au.apply_ufunc(quartiles, "(n)->(k)", x, output_coords={"k": levels})
    assert (renamed.coords["k"].attrs, renamed.indexes["k"].tolist()) == ({"units": "1"}, [0.25, 0.5, 0.75])


def test_the_size_of_a_dim_with_a_coordinate_counts_without_labels_too():
    levels = {"quantile": (0.25, 0.5, 0.75)}
    assert au.apply_ufunc(quartiles, "(n)->(quantile)", np.ones((2, 4)), output_coords=levels).shape == (2, 3)
    two = {"quantile": [0.25, 0.5]}
    assert "expected 2, kernel returned 3" in refusal(
        au.OutputShapeError, au.apply_ufunc, quartiles, "(n)->(quantile)", np.ones((2, 4)), output_coords=two
    )


def test_resized_dims_are_not_aligned_and_lose_their_coordinate(field):
    shorter = field.isel(time=slice(1, None))
    first = au.apply_ufunc(lambda x: x[..., 1:], "(time)->(time)", field, output_sizes={"time": 3}, keep_attrs=True)
    xr.testing.assert_identical(first, shorter.drop_vars("time"))
    again = au.apply_ufunc(
        lambda x: x[..., 1:], "(time)->(time)", field, output_coords={"time": [1, 2, 3]}, keep_attrs=True
    )
    xr.testing.assert_identical(again, shorter)


def test_names_that_share_a_dim_are_not_aligned(field):
    shorter = field.isel(time=slice(2))
    result = au.apply_ufunc(
        lambda x, y: total(x) + total(y), "(n),(m)->()", field, shorter, dims={"n": "time", "m": "time"}
    )
    np.testing.assert_allclose(result, field.sum("time").to_numpy() + shorter.sum("time").to_numpy())


def test_expressions_have_their_names_by_dims(field):
    result = au.apply_ufunc(np.diff, "(n)->(n-1)", field, dims={"n": "time", "n - 1": "bin"})
    np.testing.assert_array_equal(result, np.diff(field.transpose("x", "y", "time")))
    assert result.dims == ("x", "y", "bin")


def test_dims_need_not_be_strings():
    x = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("a", 3))
    assert au.apply_ufunc(total, "(n)->()", x, dims={"n": 3}).values.tolist() == [3, 12]
    assert au.apply_ufunc(total, "(3)->()", x, dims={"3": 3}).values.tolist() == [3, 12]


def test_optional_dims_may_be_absent(field):
    row = field.isel(x=0, y=0, drop=True)
    product = au.gufunc("(m?,n),(n,p?)->(m?,p?)", dims={"n": "time", "m": "x", "p": "y"})(np.matmul)
    matrix = field.isel(y=0, drop=True)
    other = field.isel(x=0, drop=True)
    for x, y in [(row, row), (row, other), (matrix, row), (matrix, other)]:
        xr.testing.assert_allclose(product(x, y), xr.dot(x, y, dim="time"))


def test_a_stretching_dim_has_size_1_or_is_not_there(field):
    weights = xr.DataArray([2.0], dims="time", coords={"time": [77]})
    scaled = au.gufunc("(time),(time|1)->(time)", keep_attrs=True)(lambda x, w: x * w)
    for given_weights in (weights, weights.isel(time=0, drop=True), weights.variable):
        xr.testing.assert_identical(scaled(field, given_weights), (2 * field).assign_attrs(units="K"))
    reverse = au.apply_ufunc(lambda w, x: x * w, "(time|1),(time)->(time)", weights, field.to_numpy()[0, :, 0])
    assert reverse.sizes == {"time": 4}


# As xarray has it


def _coord(draw, name, size):
    kind = draw(st.sampled_from(["none", "index", "times", "pairs"]))
    if kind == "index":
        return {name: np.arange(size) * 10}
    if kind == "times":
        return {name: pd.date_range("2000-01-01", periods=size, unit="ns")}
    if kind == "pairs":
        pairs = pd.MultiIndex.from_arrays([np.arange(size) // 2, np.arange(size) % 2], names=[f"{name}0", f"{name}1"])
        return xr.Coordinates.from_pandas_multiindex(pairs, name)
    return {}


@st.composite
def labelled_arrays(draw, core=("time",), number=2):
    """Draw arrays that all have the core dims, and any others in any order, with any coordinates."""
    sizes = {name: draw(st.integers(0, 3)) for name in ("x", "y", *core)}
    coords = [_coord(draw, name, size) for name, size in sizes.items()]

    def array(position):
        others = draw(st.lists(st.sampled_from("xy"), unique=True))
        dims = draw(st.permutations([*others, *core]))
        shape = [sizes[name] for name in dims]
        values = np.random.default_rng(draw(st.integers(0, 99))).integers(-5, 5, shape).astype(float)
        made = xr.DataArray(values, dims=dims, name=draw(st.sampled_from(["a", "b"])), attrs={"position": position})
        for name, own in zip(sizes, coords, strict=True):
            if name in dims:
                made = made.assign_coords(own)
        if len(dims) > 1 and draw(st.booleans()):
            made = made.assign_coords(area=(dims[:2], np.ones(shape[:2])))
        return made

    return [array(position) for position in range(number)]


@examples(40)
@given(labelled_arrays())
def test_reducing_gives_what_xarray_gives(arrays):
    result = au.apply_ufunc(dot, "(time),(time)->()", *arrays)
    expected = xr.apply_ufunc(dot, *arrays, input_core_dims=[["time"], ["time"]])
    xr.testing.assert_identical(result, expected)
    a, b = (array.drop_vars(array.coords) for array in arrays)
    xr.testing.assert_identical(
        result.drop_vars(result.coords).drop_attrs(), xr.dot(a, b, dim="time").rename(result.name).drop_attrs()
    )


@examples(40)
@given(labelled_arrays(), st.booleans())
def test_keeping_a_dim_gives_what_xarray_gives_in_the_order_of_the_arguments(arrays, is_dataset):
    kernel = lambda x, y: x - 2 * y
    if is_dataset:
        arrays[0] = xr.Dataset({"one": arrays[0], "two": arrays[0].transpose() + 1})
    result = au.apply_ufunc(kernel, "(time),(time)->(time)", *arrays)
    expected = xr.apply_ufunc(
        kernel, *arrays, input_core_dims=[["time"], ["time"]], output_core_dims=[["time"]], keep_attrs=None
    )
    pairs = [(result, expected, arrays[0])]
    if is_dataset:
        pairs = [(result[name], expected[name], arrays[0][name]) for name in expected]
        assert result.attrs == expected.attrs
    for got, wanted, first in pairs:
        order = [*first.dims, *(dim for dim in arrays[1].dims if dim not in first.dims)]
        xr.testing.assert_identical(got, wanted.transpose(*order, transpose_coords=False))
        assert got.dims == tuple(order)


@pytest.mark.parametrize("join", ["inner", "outer", "left", "right", "override", "exact", None])
def test_joins_are_those_of_xarray(field, join):
    other = field.isel(x=[1, 0]) if join == "override" else field.isel(x=[1])
    options = {} if join is None else {"join": join}
    call = lambda: au.apply_ufunc(lambda x, y: x + y, "(),()->()", field, other, **options)
    if join in ("exact", None):
        assert "cannot align objects with join='exact'" in refusal(ValueError, call)
    else:
        xr.testing.assert_identical(call(), xr.apply_ufunc(np.add, field, other, **options))


@pytest.mark.parametrize("keep_attrs", [None, True, False, "drop_conflicts"])
def test_attributes_are_kept_as_xarray_keeps_them(field, keep_attrs):
    other = field.assign_attrs(units="C", source="model")
    result = au.apply_ufunc(dot, "(time),(time)->()", field, other, keep_attrs=keep_attrs)
    expected = xr.apply_ufunc(dot, field, other, input_core_dims=[["time"]] * 2, keep_attrs=keep_attrs)
    xr.testing.assert_identical(result, expected)


def test_variables_come_back_as_variables(field):
    result = au.apply_ufunc(dot, "(time),(time)->()", field.variable, field.coords["time"].variable)
    assert type(result) is xr.Variable
    xr.testing.assert_identical(
        result, xr.apply_ufunc(dot, field.variable, field.coords["time"].variable, input_core_dims=[["time"]] * 2)
    )
    assert type(field.coords["time"].variable) is xr.IndexVariable
    assert au.apply_ufunc(total, "(time)->()", field.coords["time"].variable).item() == 6


def test_several_outputs_are_a_tuple(field, dataset):
    for given_argument in (field, field.variable, dataset):
        mean, rest = au.apply_ufunc(mean_and_anomaly, "(time)->(),(time)", given_argument)
        assert type(mean) is type(rest) is type(given_argument)
    (alone,) = au.apply_ufunc(lambda x: (total(x),), "(time)->(),", field)
    xr.testing.assert_identical(alone, au.apply_ufunc(total, "(time)->()", field))


# With less of xarray's work than its own calls take


class Unlike(xr.Index):
    """An index that is made of variables and leaves them as they are."""

    @classmethod
    def from_variables(cls, variables, *, options):
        return cls()


SHARED = {
    "nothing": lambda x, y: (x.drop_vars(x.coords), y.drop_vars(y.coords)),
    "indexes": lambda x, y: (x.drop_vars(["height", "area"]), y.drop_vars(["height", "area"])),
    "more indexes in the first": lambda x, y: (x, y.drop_vars(["height", "area", "time"])),
    "more indexes in the second": lambda x, y: (x.drop_vars("time"), y),
    "values that differ": lambda x, y: (x, y.assign_coords(height=3.0)),
    "an index in the first": lambda x, y: (x, y.drop_indexes("time")),
    "an index in the second": lambda x, y: (x.drop_indexes("time"), y),
    "numbers of two kinds": lambda x, y: (x, y.assign_coords(time=y.indexes["time"].astype(float))),
    "labels that differ": lambda x, y: (x.drop_vars("area"), y.drop_vars("area").isel(x=[1, 0])),
    "an index of the user in the second": lambda x, _: (x, x.set_xindex("area", Unlike)),
    "attributes that differ": lambda x, y: (_with_units(x, "1"), _with_units(y, "2")),
    "pairs": lambda x, y: (_with_pairs(x), _with_pairs(y)),
    "pairs in the first": lambda x, y: (_with_pairs(x), y.drop_vars("x")),
    "all, as variables of a Dataset": lambda x, y: tuple(xr.Dataset({"one": x, "two": y}).values()),
}


def _with_pairs(x):
    pairs = pd.MultiIndex.from_product([[0, 1], [7]], names=["first", "second"])
    return x.drop_vars("x").assign_coords(xr.Coordinates.from_pandas_multiindex(pairs, "x"))


def _with_units(x, units):
    return x.assign_coords(time=("time", x.indexes["time"], {"units": units}))


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("keep_attrs", [None, True, False, "drop_conflicts"])
def test_coordinates_that_arguments_share_come_out_as_from_xarray(field, shared, keep_attrs):
    x, y = SHARED[shared](field, (field + 1).rename("other").assign_attrs(units="C"))
    options = {"keep_attrs": keep_attrs, "join": "outer"}
    for arguments in ((x, y), (x, y, x), (x.variable, x, y), (x, 2.0, y)):
        core = [["time"] if hasattr(argument, "dims") else [] for argument in arguments]
        signature = ",".join(f"({dims[0]})" if dims else "()" for dims in core) + "->()"
        kernel = lambda *arrays: sum(np.sum(array, axis=-1) if np.ndim(array) else array for array in arrays)
        expected = outcome(xr.apply_ufunc, kernel, *arguments, input_core_dims=core, **options)
        result = outcome(au.apply_ufunc, kernel, signature, *arguments, **options)
        if isinstance(expected, str):  # older versions refuse some
            assert result == expected
        else:
            xr.testing.assert_identical(result, expected)
            assert list(result.xindexes) == list(expected.xindexes)


@pytest.mark.parametrize("join", ["inner", "outer", "left", "right"])
def test_what_one_of_three_arguments_alone_has_aligns_all(field, join):
    field = field.drop_vars("area")
    arguments = [field, field + 1, field.isel(x=[1, 0])]
    result = au.apply_ufunc(lambda x, y, z: x + 10 * y + 100 * z, "(),(),()->()", *arguments, join=join)
    expected = xr.apply_ufunc(lambda x, y, z: x + 10 * y + 100 * z, *arguments, join=join)
    xr.testing.assert_identical(result, expected)


def test_xarray_is_not_asked_to_align_what_is_shared(field, monkeypatch):
    asked = []
    native = xr.apply_ufunc
    monkeypatch.setattr(
        xr, "apply_ufunc", lambda f, *args, **options: asked.append(args) or native(f, *args, **options)
    )
    arguments = xr.Dataset({"one": field, "two": field + 1}).values()
    for keep_attrs in (True, False):
        au.apply_ufunc(dot, "(time),(time)->()", *arguments, keep_attrs=keep_attrs)
    assert [tuple(map(type, args)) for args in asked] == [(xr.DataArray, xr.Variable), (xr.DataArray, xr.DataArray)]


def test_a_dataset_that_keeps_its_dims_is_what_xarray_makes_of_it(dataset, monkeypatch):
    dataset["low"].encoding = dataset.encoding = {"zlib": True}
    before = dataset.copy(deep=True)
    kernel = lambda x, factor: (anomaly(x) * factor, x < 0)
    shapes = []
    options = {"input_core_dims": [["time"], []], "output_core_dims": [["time"], ["time"]], "keep_attrs": True}
    expected = xr.apply_ufunc(kernel, dataset, 2.0, **options)
    monkeypatch.delattr(xr, "apply_ufunc")  # no use is made of it here
    counted = lambda x, factor: shapes.append(x.shape) or kernel(x, factor)
    results = au.apply_ufunc(counted, "(time),()->(time),(time)", dataset, 2.0, keep_attrs=True)
    assert shapes == [(2, 3, 4), (3, 2, 4)]
    for result, wanted in zip(results, expected, strict=True):
        xr.testing.assert_identical(result, wanted.transpose("x", "time", "y").assign(high=result["high"]))
        np.testing.assert_array_equal(result["high"], wanted["high"].transpose("y", "x", "time"))
        assert (result.encoding, result["low"].encoding, result["high"].dims) == ({}, {}, ("y", "x", "time"))
    xr.testing.assert_identical(dataset, before)
    assert dataset["low"].encoding == {"zlib": True}


@examples(40)
@given(labelled_arrays(), st.sampled_from([None, True, False]))
def test_datasets_of_any_dims_come_out_as_from_xarray(arrays, keep_attrs):
    one, two = arrays
    dataset = xr.Dataset({"one": one, "two": one.transpose() + 1, "three": two.drop_vars("area", errors="ignore")})
    kernel = lambda x: np.cumsum(x, axis=-1)
    result = au.apply_ufunc(kernel, "(time)->(time)", dataset, keep_attrs=keep_attrs)
    expected = xr.apply_ufunc(
        kernel, dataset, input_core_dims=[["time"]], output_core_dims=[["time"]], keep_attrs=keep_attrs
    )
    assert (list(result), list(result.xindexes)) == (list(expected), list(expected.xindexes))
    xr.testing.assert_identical(result.coords.to_dataset(), expected.coords.to_dataset())
    for name, variable in dataset.variables.items():
        xr.testing.assert_identical(result.variables[name], expected.variables[name].transpose(*variable.dims))


@pytest.mark.parametrize("keep_attrs", [None, True, False, "drop_conflicts"])
@pytest.mark.parametrize("set_option", ["default", True, False])
def test_attributes_of_datasets_are_kept_as_xarray_keeps_them(dataset, keep_attrs, set_option):
    dataset = dataset.assign_coords(time=("time", dataset.indexes["time"], {"units": "d"}))
    with xr.set_options(keep_attrs=set_option):
        result = au.apply_ufunc(anomaly, "(time)->(time)", dataset, keep_attrs=keep_attrs)
        options = {"input_core_dims": [["time"]], "output_core_dims": [["time"]], "keep_attrs": keep_attrs}
        expected = xr.apply_ufunc(anomaly, dataset, **options)
    for name in dataset.data_vars:
        dims = result[name].dims
        xr.testing.assert_identical(result[name], expected[name].transpose(*dims, transpose_coords=False))
    assert result.attrs == expected.attrs


# Datasets


def test_every_variable_of_a_dataset_keeps_its_own_order(dataset):
    result = au.apply_ufunc(anomaly, "(time)->(time)", dataset)
    assert {name: variable.dims for name, variable in result.items()} == {"low": KEPT, "high": ("y", "x", "time")}
    for name, variable in dataset.items():
        xr.testing.assert_allclose(result[name], variable - variable.mean("time"))


def test_a_dataset_and_an_array_go_together(dataset, field):
    result = au.apply_ufunc(dot, "(time),(time)->()", dataset, field)
    for name, variable in dataset.items():
        expected = xr.dot(variable, field, dim="time")
        xr.testing.assert_allclose(result[name].drop_vars("area"), expected.drop_vars("area"))


def test_variables_of_datasets_are_joined_as_xarray_joins_them(field):
    one, two = xr.Dataset({"a": field, "b": field}), xr.Dataset({"b": field, "c": field})
    call = lambda **options: au.apply_ufunc(lambda x, y: x - y, "(),()->()", one, two, **options)
    assert "exact match required" in refusal(ValueError, call)
    for how in ("inner", "left", "right", "outer"):
        options = {"dataset_join": how, "dataset_fill_value": 1.5}
        xr.testing.assert_identical(call(**options), xr.apply_ufunc(np.subtract, one, two, **options))


@pytest.mark.parametrize("fill_value", [1.5, np.nan, 2])
def test_a_fill_value_has_the_core_dims_of_the_variable_that_it_stands_for(field, fill_value):
    field = field.astype("float32")
    one, two = xr.Dataset({"a": field, "b": field}), xr.Dataset({"b": field, "c": field.isel(time=slice(3))})
    shapes = []

    def difference(x, y):
        shapes.append((x.shape[-1], y.shape[-1]))
        return (x - y).sum(axis=-1)

    options = {"dataset_join": "outer", "dataset_fill_value": fill_value, "join": "inner"}
    result = au.apply_ufunc(difference, "(time),(time)->()", one, two, **options)
    native = lambda x, y: (x - y).sum(axis=-1)
    expected = xr.apply_ufunc(native, one, two, input_core_dims=[["time"], ["time"]], **options)
    xr.testing.assert_identical(result, expected)
    assert [variable.dtype for variable in result.values()] == [variable.dtype for variable in expected.values()]
    assert shapes == [(shape, shape) for shape, _ in shapes]


def test_variables_that_are_joined_away_need_no_core_dim(field):
    one, two = xr.Dataset({"a": field, "b": 1.0}), xr.Dataset({"a": field})
    result = au.apply_ufunc(dot, "(time),(time)->()", one, two, dataset_join="inner")
    assert list(result) == ["a"]


@pytest.mark.parametrize("what", ["copy", "drop"])
def test_variables_without_a_core_dim_are_copied_or_dropped(dataset, what):
    with_area = dataset.assign(cells=("y", [1, 2, 3]))
    result = au.apply_ufunc(total, "(time)->()", with_area, on_missing_core_dim=what)
    expected = xr.apply_ufunc(total, with_area, input_core_dims=[["time"]], on_missing_core_dim=what)
    xr.testing.assert_identical(result, expected)


def test_a_variable_without_a_core_dim_is_refused_before_any_work(dataset):
    calls = []
    message = refusal(
        au.DimensionError,
        au.apply_ufunc,
        lambda x: calls.append(1) or total(x),
        "(time)->()",
        dataset.assign(n=("y", [1] * 3)),
    )
    assert message == (
        "variable 'n' of argument 0 has no dimension 'time'; its dimensions: 'y'; dims={'time': ...} gives it another "
        "name (on_missing_core_dim='copy' or 'drop' passes over such variables)"
    )
    assert not calls


def test_a_copy_cannot_stand_for_two_outputs(dataset):
    call = lambda: au.apply_ufunc(mean_and_anomaly, "(time)->(),(time)", dataset, on_missing_core_dim="copy")
    assert "puts a variable in the place of one output" in refusal(au.OptionError, call)


# Groups and trees


def test_each_group_is_a_call_of_its_own(field, dataset):
    calls = []
    kernel = lambda x: calls.append(x.shape) or anomaly(x)
    grouped = field.groupby(xr.DataArray([0, 1, 0, 0], dims="time", name="phase"))
    result = au.apply_ufunc(kernel, "(time)->(time)", grouped)
    assert calls == [(2, 3, 3), (2, 3, 1)]
    expected = field.copy(deep=True)
    expected[:, [0, 2, 3]] -= field[:, [0, 2, 3]].mean("time")
    expected[:, 1] = 0.0
    np.testing.assert_allclose(result, expected)
    assert result.dims == KEPT
    mean = au.apply_ufunc(lambda x: x.mean(axis=-1), "(time)->()", dataset.groupby("x"))
    for name, variable in dataset.items():
        xr.testing.assert_allclose(mean[name], variable.mean("time"))


def test_groups_go_with_arrays_that_have_the_groups(field):
    by_x = field.groupby("x")
    result = au.apply_ufunc(lambda x, y: x - y[..., None], "(time),()->(time)", by_x, field.mean("time"))
    xr.testing.assert_allclose(result, field - field.mean("time"))


def test_several_groupers_and_copies_of_groups_are_refused(field, dataset):
    if hasattr(field.groupby("x"), "groupers") and xr.__version__ >= "2024.11":
        message = refusal(au.ArgumentError, au.apply_ufunc, total, "(y)->()", field.groupby(["x", "time"]))
        assert message.startswith("argument 0 is grouped by 2 variables")
    call = lambda: au.apply_ufunc(total, "(time)->()", dataset.groupby("x"), on_missing_core_dim="copy")
    assert "xarray drops it on the way to groups" in refusal(au.OptionError, call)
    missing = refusal(au.DimensionError, au.apply_ufunc, total, "(tim)->()", dataset.groupby("x"))
    assert missing.startswith("variable 'low' of argument 0 has no dimension 'tim'")


def test_a_tree_is_mapped_node_by_node(dataset):
    tree = xr.DataTree.from_dict({"/": xr.Dataset(), "/a": dataset, "/a/b": dataset[["low"]] * 2})
    result = au.apply_ufunc(anomaly, "(time)->(time)", tree)
    assert type(result) is xr.DataTree
    for path in ("/a", "/a/b"):
        xr.testing.assert_identical(
            result[path].to_dataset(), au.apply_ufunc(anomaly, "(time)->(time)", tree[path].to_dataset())
        )
    mean, rest = au.apply_ufunc(mean_and_anomaly, "(time)->(),(time)", tree)
    xr.testing.assert_identical(rest, result)
    xr.testing.assert_allclose(mean["/a/b"]["low"], 2 * dataset["low"].mean("time"))


def test_a_node_that_does_not_fit_is_refused_before_any_work(dataset):
    calls = []
    tree = xr.DataTree.from_dict({"/a": dataset, "/b": dataset.rename(time="t")})
    with pytest.raises(au.DimensionError) as caught:
        au.apply_ufunc(lambda x: calls.append(1) or total(x), "(time)->()", tree)
    assert "'b'" in caught.value.__notes__[-1] or "'/b'" in caught.value.__notes__[-1]
    assert not calls


# Arguments without labels


def test_arrays_without_labels_have_core_dims_last(field):
    weights = np.arange(4.0)
    expected = xr.dot(field, xr.DataArray(weights, dims="time"), dim="time")
    for given_weights in (weights, weights.tolist(), np.broadcast_to(weights, (2, 1, 4))):
        xr.testing.assert_allclose(au.apply_ufunc(dot, "(time),(time)->()", field, given_weights), expected)


@pytest.mark.parametrize("shape", [(5, 2, 3), (2, 2), (4,)])
def test_loop_dims_without_labels_are_those_of_the_labelled_arguments(field, shape):
    calls = []
    kernel = lambda x, y: calls.append(1) or total(x) + y
    message = refusal(au.DimensionError, au.apply_ufunc, kernel, "(time),()->()", field, np.ones(shape))
    assert message.startswith("argument 1 has no labels and loop shape ")
    assert "labelled arguments, (2, 3): " in message
    assert not calls


def test_a_labelled_dim_of_size_1_is_not_stretched_by_what_has_no_labels(field):
    one = field.isel(x=[0])
    message = refusal(au.DimensionError, au.apply_ufunc, lambda x, y: x + y, "(),()->()", one, np.ones((2, 4, 3)))
    assert "loop shape (2, 4, 3), which does not fit that of the labelled arguments, (1, 4, 3)" in message


@pytest.mark.parametrize("is_dataset", [False, True])
def test_a_dim_of_unknown_size_is_refused_where_xarray_compares_it(is_dataset):
    da = pytest.importorskip("dask.array")
    computed = []
    rows = da.ones((4, 3), chunks=(2, 3))
    kept = rows[da.from_delayed(_recorded(computed, [True, False, True, True]), (4,), bool)]
    labelled = xr.DataArray(kept, dims=("row", "time"), name="a")
    labelled = labelled.to_dataset() if is_dataset else labelled
    for signature, args in [
        ("(time)->()", [labelled]),
        ("(row)->(row)", [labelled]),
        ("(row),(row)->()", [labelled, labelled]),
    ]:
        call = lambda signature=signature, args=args: au.apply_ufunc(total, signature, *args, output_dtypes=float)
        assert "dimension 'row' of argument" in refusal(au.DimensionError, call)
    assert computed == []
    result = au.apply_ufunc(total, "(row)->()", labelled, output_dtypes=float)
    assert (result["a"] if is_dataset else result).values.tolist() == [3, 3, 3]


def _recorded(computed, values):
    """Return a Dask value that notes when it is computed."""
    import dask

    return dask.delayed(lambda: computed.append(1) or np.array(values))()


def test_scalars_and_none_reach_the_kernel_as_they_are(field):
    seen = []
    au.apply_ufunc(lambda x, *more: seen.extend(map(type, more)) or x, "(),(),(),()->()", field, 2, 1.5, None)
    assert seen == [int, float, type(None)]


def test_masked_arrays_are_refused_beside_labels(field):
    masked = np.ma.MaskedArray([1.0] * 4, mask=[True, False, False, False])
    message = refusal(au.ArgumentError, au.apply_ufunc, dot, "(time),(time)->()", field, masked)
    assert message == "argument 1 is a masked array, whose mask labelled arrays cannot keep: fill it first"


# What is refused

REFUSED = {
    "a misspelt dim": (
        "(tme)->()", {}, au.DimensionError,
        "argument 0 has no dimension 'tme'; its dimensions: 'x', 'time', 'y'; did you mean 'time'?",
    ),
    "a misspelt dim in dims": (
        "(n)->()", {"dims": "tme"}, au.DimensionError,
        ("argument 0 has no dimension 'tme', which dims gives core dimension 'n'; its dimensions: 'x', 'time', 'y'; "
        "did you mean 'time'?"),
    ),
    "a misspelt label in dims": (
        "(time)->()", {"dims": {"tim": "time"}}, au.OptionError,
        ("dims names core dimension 'tim', which signature '(time)->()' does not have; its core dimensions: 'time'; "
        "did you mean 'time'?"),
    ),
    "one name for two dims": (
        "(m,n)->()", {"dims": "time"}, au.OptionError,
        ("dims='time' names one dimension, and the core dimensions of signature '(m,n)->()' are 'm', 'n': pass a "
        "mapping, such as dims={'m': 'time'}"),
    ),
    "a dim twice": (
        "(n,n)->()", {}, au.DimensionError,
        ("argument 0 has core dimension 'n' twice in signature '(n,n)->()', and a labelled array has a dimension once: "
        "give it two names, as in '(n,n2)->()' with dims={'n2': ...}"),
    ),
    "a dim twice in an output": (
        "(time)->(time,time)", {}, au.DimensionError,
        ("output 0 has core dimension 'time' twice in signature '(time)->(time,time)', and a labelled array has a "
        "dimension once: give it two names, as in '(time)->(time,time2)' with dims={'time2': ...}, and "
        "output_sizes={'time2': ...}"),
    ),
    "one name twice": (
        "(m,n)->()", {"dims": {"m": "time", "n": "time"}}, au.DimensionError,
        "dims names core dimensions 'm' and 'n' of argument 0 'time', and a labelled array has a dimension once",
    ),
    "a size without a name": (
        "(3)->()", {}, au.OptionError,
        ("core dimension '3' of signature '(3)->()' is no name of a dimension, which labelled arguments need: pass "
        "dims={'3': ...}"),
    ),
    "axis": (
        "(time)->()", {"axis": 0}, au.OptionError,
        ("axis= is not taken with labelled arguments, whose core dimensions are found by name: the signature or dims= "
        "names them"),
    ),
    "axes": (
        "(time)->()", {"axes": [0]}, au.OptionError,
        ("axes= is not taken with labelled arguments, whose core dimensions are found by name: the signature or dims= "
        "names them"),
    ),
    "keepdims": (
        "(time)->()", {"keepdims": True}, au.OptionError,
        ("keepdims=True is not taken with labelled arguments, whose results broadcast by name without it: use "
        "expand_dims on the result where a dimension of size 1 is wanted"),
    ),
    "a coordinate of no output": (
        "(time)->()", {"output_coords": {"q": [1]}}, au.OptionError,
        "output_coords names dimension 'q', which no output has; their core dimensions: none",
    ),
    "a new dim that is there": (
        "(time)->(y)", {"output_sizes": {"y": 2}}, au.DimensionError,
        ("argument 0 has dimension 'y', a core dimension of an output but not of argument 0: a call loops over no core "
        "dimension; give it to argument 0 too, or rename it"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused_before_any_work(field, why):
    signature, options, error, expected = REFUSED[why]
    calls = []
    for given_argument in (field, field.chunk() if sys.modules.get("dask") else field):
        assert refusal(error, au.apply_ufunc, calls.append, signature, given_argument, **options) == expected
    assert not calls


def test_a_core_dim_of_one_argument_is_no_loop_dim_of_another(field):
    message = refusal(au.DimensionError, au.apply_ufunc, lambda x, y: y, "(time),()->()", field, field)
    assert message.startswith("argument 1 has dimension 'time', a core dimension of argument 0 but not of argument 1")


@pytest.mark.parametrize("signature", ["(time),(time)->()", "(y),(y)->()"])
def test_dims_of_one_name_have_one_size(field, signature):
    bare = field.drop_vars("time")
    message = refusal(au.DimensionError, au.apply_ufunc, dot, signature, bare, bare.isel(time=[0, 1]).variable)
    kind = "core" if "time" in signature else "loop"
    assert message == (
        f"{kind} dimension 'time' is 4 in argument 0 and 2 in argument 1: labelled dimensions do not broadcast"
    )


def test_coordinates_say_a_size_once():
    call = lambda: au.gufunc("(n)->(k)", output_sizes={"k": 2}, output_coords={"k": [1, 2]})(total)
    assert refusal(au.OptionError, call) == (
        "output_coords['k'] says the size of dimension 'k', and so does output_sizes: pass one of them"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dims", 1), ("dims", {1: "n"}), ("dims", {"n": []}), ("output_coords", [1]), ("output_coords", {"k": 1}),
        ("output_coords", {"k": np.ones((2, 2))}), ("join", "innner"), ("dataset_join", "override"),
        ("keep_attrs", "keep"), ("on_missing_core_dim", "skip"),
    ],
)  # fmt: skip
def test_values_of_options_are_checked(option, value):
    assert refusal(au.OptionError, au.gufunc, "(n)->(k)", **{option: value}).startswith(option)


def test_labelled_keywords_are_refused_by_name(field):
    for keyword in (field, field.variable, field.to_dataset()):
        message = refusal(au.ArgumentError, au.apply_ufunc, lambda x, w: x, "()->()", field, w=keyword)
        assert message.startswith(
            f"keyword w is an xarray.{type(keyword).__name__}: labelled objects are not taken here"
        )


def test_lazy_apply_refuses_labels_by_name(field):
    message = refusal(au.ArgumentError, au.lazy_apply, lambda x: x, field)
    assert message == "argument 0 is an xarray.DataArray: labelled objects are not taken here, pass its .data"


def test_another_number_of_arguments_is_refused(field):
    message = refusal(au.ArgumentError, au.apply_ufunc, dot, "(time),(time)->()", field)
    assert message == "kernel 'dot' takes 2 arguments by its signature '(time),(time)->()', got 1"


def test_a_kernels_exception_stays_as_it_is(field):
    def fail(x):
        raise ValueError("of the kernel")

    assert refusal(ValueError, au.apply_ufunc, fail, "(time)->()", field) == "of the kernel"


def test_what_the_kernel_returns_is_checked(field):
    message = refusal(
        au.OutputShapeError, au.apply_ufunc, lambda x: x[..., 1:], "(time)->(k)", field, output_sizes={"k": 4}
    )
    assert "output 0, core dimension k: expected 4, kernel returned 3" in message


# Values


def test_objects_times_and_unknown_sizes_come_through():
    words = xr.DataArray(np.array(["b", "a"], dtype=object), dims="n")
    assert au.apply_ufunc(min, "(n)->()", words, vectorize=True, output_dtypes=object).item() == "a"
    times = xr.DataArray(pd.date_range("2000-01-01", periods=3, unit="ns"), dims="n")
    assert au.apply_ufunc(lambda x: x.max(axis=-1), "(n)->()", times) == np.datetime64("2000-01-03")
    x = xr.DataArray([3.0, 1.0, 3.0], dims="n")
    assert au.apply_ufunc(np.unique, "(n)->(k)", x, output_sizes={"k": None}).values.tolist() == [1, 3]
    padded = au.apply_ufunc(np.unique, "(n)->(k)", x, output_coords={}, output_sizes={"k": au.UpTo(3, fill_value=9)})
    assert padded.values.tolist() == [1, 3, 9]


def test_arguments_are_read_only_and_unchanged(field):
    before = field.copy(deep=True)
    assert "read-only" in refusal(ValueError, au.apply_ufunc, lambda x: x.sort(axis=-1), "(time)->(time)", field)
    au.apply_ufunc(lambda x: x.sort(axis=-1) or x, "(time)->(time)", field, writable=True)
    xr.testing.assert_identical(field, before)


def test_arrays_of_a_file_arrive_loaded(field, tmp_path):
    pytest.importorskip("scipy")
    field.drop_vars("area").to_netcdf(tmp_path / "field.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "field.nc", engine="scipy") as opened:
        assert not opened["temperature"]._in_memory
        seen = []
        result = au.apply_ufunc(lambda x: seen.append(type(x)) or total(x), "(time)->()", opened["temperature"])
    assert seen == [np.ndarray]
    np.testing.assert_allclose(result, field.sum("time"))


def test_plain_calls_do_not_import_xarray():
    code = (
        "import sys, numpy, applyufunc as au; au.apply_ufunc(numpy.add, None, [1], 2); print('xarray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# Other libraries' arrays under the labels


class TestDask:
    """A Dask array under labels takes the road of a Dask array."""

    @pytest.fixture
    def lazy(self, field):
        pytest.importorskip("dask.array")
        return field.chunk(x=1, time=2)

    def test_nothing_is_computed_before_it_is_asked_for(self, field, lazy):
        calls = []
        mean, rest = au.apply_ufunc(
            lambda x: calls.append(x.shape) or mean_and_anomaly(x), "(time)->(),(time)", lazy, output_dtypes=float
        )
        assert not calls
        assert mean.chunks == ((1, 1), (3,))
        xr.testing.assert_allclose(rest, field - field.mean("time"))
        assert rest.dims == KEPT
        assert calls == [(1, 3, 4), (1, 3, 4)]

    def test_a_reduction_leaves_chunks_where_they_lie(self, field, lazy):
        seen = []
        kernel = lambda x: seen.append(x.shape[-1]) or total(x)
        result = au.apply_ufunc(kernel, "(time)->()", lazy, core_chunks=np.add, output_dtypes=float)
        xr.testing.assert_allclose(result, field.sum("time"))
        assert set(seen) == {2}

    def test_a_scan_goes_along_a_named_dim(self, field, lazy):
        def step(x, last):
            sums = np.cumsum(x, axis=-1) + last[..., None]
            return sums, sums[..., -1]

        result = au.apply_ufunc(
            step, "(n)->(n)", lazy, dims="time", core_chunks=au.Scan(initial=0.0), output_dtypes=float
        )
        assert result.chunks == ((1, 1), (2, 2), (3,))
        xr.testing.assert_allclose(result.compute(), field.cumsum("time"))

    def test_an_overlap_gives_each_chunk_its_neighbours_edges(self, field, lazy):
        def smoothed(x):
            edges = np.concatenate([x[..., :1], x, x[..., -1:]], axis=-1)
            return (edges[..., :-2] + edges[..., 1:-1] + edges[..., 2:]) / 3

        options = {"core_chunks": au.Overlap(1), "output_dtypes": float}
        result = au.apply_ufunc(smoothed, "(time)->(time)", lazy, **options)
        assert result.chunks == ((1, 1), (2, 2), (3,))
        xr.testing.assert_allclose(result, au.apply_ufunc(smoothed, "(time)->(time)", field, **options))

    def test_lazy_variables_groups_and_nodes_stay_lazy(self, dataset):
        pytest.importorskip("dask.array")
        import dask

        def scheduler(*args, **keywords):
            raise AssertionError("building a lazy result computed something")

        lazy = dataset.chunk()
        with dask.config.set(scheduler=scheduler):
            results = [
                au.apply_ufunc(anomaly, "(time)->(time)", given_argument, output_dtypes=float)
                for given_argument in (lazy, lazy.groupby("x"), xr.DataTree(lazy))
            ]
        for result in results:
            xr.testing.assert_allclose(
                xr.Dataset(dict(result.data_vars)), au.apply_ufunc(anomaly, "(time)->(time)", dataset)
            )

    def test_explanations_have_the_names_of_dims(self, lazy):
        explained = au.explain(total, "(n)->()", lazy, dims="time", output_dtypes=float)
        (argument,), (output,) = explained.arguments, explained.outputs
        assert (argument.dims, argument.shape, output.dims) == (("x", "y", "time"), (2, 3, 4), ("x", "y"))
        assert argument.blocks.rechunking.merged == ("time",)
        assert explained.loop == (("x", (1, 1)), ("y", (3,)))
        assert "loop x: 2, y: 3; core time: 4" in str(explained)
        assert "time: 2 chunks of 2 -> 1 chunk of 4: the kernel needs it whole" in str(explained)
        reduced = au.gufunc("(n)->()", dims="time", core_chunks=np.add, output_dtypes=float)(total).explain(lazy)
        assert reduced.kept == (("time", (2, 2)),)

    def test_warnings_are_given_where_the_call_is(self, lazy):
        with pytest.warns(au.ApplyUfuncWarning, match="above the budget") as caught:
            au.apply_ufunc(total, "(time)->()", lazy, output_dtypes=float, budget=8)
        assert caught[0].filename == __file__

    def test_an_explanation_is_of_one_variable(self, dataset):
        message = refusal(au.ArgumentError, au.explain, total, "(time)->()", dataset)
        assert message.startswith("argument 0 is a Dataset, which takes a call for each of its parts")


class TestJAX:
    """A JAX array under labels takes the road of a JAX array."""

    @pytest.fixture
    def jax(self):
        return pytest.importorskip("jax")

    def test_the_array_stays_one_of_jax(self, jax, field):
        x = field.copy(data=jax.numpy.asarray(field.values))
        result = au.apply_ufunc(anomaly, "(time)->(time)", x, output_dtypes=np.float32)
        assert isinstance(result.data, jax.Array)
        assert result.dims == KEPT
        np.testing.assert_allclose(result.data, field - field.mean("time"), atol=1e-6)

    def test_labels_work_inside_of_jit_and_grad(self, jax):
        energy = au.gufunc("(time)->()", output_dtypes=np.float32, jac=lambda x: 2 * x)(lambda x: (x**2).sum(axis=-1))
        program = jax.jit(lambda x: energy(xr.DataArray(x, dims=("time", "x"))).data)
        x = jax.numpy.arange(6.0).reshape(2, 3)
        assert program(x).tolist() == [9, 17, 29]
        assert jax.grad(lambda x: program(x).sum())(x).tolist() == [[0, 2, 4], [6, 8, 10]]

    def test_a_coordinate_resizes_a_dim_for_derivatives_too(self, jax):
        calls = []

        def take(x):
            return x[..., :2]

        def take_vjp(x, cotangent):
            calls.append((x.shape, cotangent.shape))
            return np.concatenate([cotangent, 0 * cotangent[..., :1]], axis=-1)

        first = au.gufunc("(n)->(n)", output_dtypes=np.float32, output_coords={"n": [1, 2]})(take)
        first.vjp(take_vjp)
        gradient = jax.grad(lambda x: first(x).sum())(jax.numpy.ones(3))
        assert (gradient.tolist(), calls) == ([1, 1, 0], [((3,), (2,))])


def test_sparse_arrays_keep_to_their_rules():
    sparse = pytest.importorskip("sparse")
    x = xr.DataArray(sparse.COO.from_numpy(np.eye(3)), dims=("x", "n"))
    assert "sparse.COO that would be made dense" in refusal(au.TransferError, au.apply_ufunc, total, "(n)->()", x)
    result = au.apply_ufunc(total, "(n)->()", x, kernel_arrays="same")
    assert isinstance(result.data, sparse.COO)
    assert result.data.todense().tolist() == [1, 1, 1]
