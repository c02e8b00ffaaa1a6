"""Cumulative kernels along a core dim in chunks: the values of the whole array, whatever the chunks."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backends import BACKENDS
from hypothesis import given
from hypothesis import strategies as st
from pieces import EXPRESSIONS, FRONT_ENDS, Counting, examples, fail, put, untouchable, values_of

import applyufunc as au
from applyufunc._core_chunks import in_pieces
from applyufunc._kernel import make_kernel
from applyufunc._options import Options, make_options

signal = pytest.importorskip("scipy.signal")

X = np.arange(24.0).reshape(4, 6)


@pytest.fixture(params=FRONT_ENDS)
def da(request):
    return pytest.importorskip(request.param)


def running_total(x, total):
    sums = np.cumsum(x, axis=-1) + total[..., None]
    return sums, sums[..., -1]


def running_maximum(x, highest):
    reached = np.maximum(np.maximum.accumulate(x, axis=-1), highest[..., None])
    return reached, reached[..., -1]


def smoothed(x, alpha, state):
    """An exponentially weighted mean: y[i] = alpha x[i] + (1 - alpha) y[i - 1]."""
    filtered = np.empty(np.broadcast_shapes(x.shape, (*np.shape(alpha), 1)))
    for index in np.ndindex(filtered.shape[:-1]):
        row = np.broadcast_to(x, filtered.shape)[index]
        a = float(np.broadcast_to(alpha, filtered.shape[:-1])[index])
        start = np.broadcast_to(state, (*filtered.shape[:-1], 1))[index]
        filtered[index], _ = signal.lfilter([a], [1, a - 1], row, zi=start)
    last = filtered[..., -1:]
    return filtered, (1 - np.asarray(alpha)[..., None]) * last


def steady_state(x, alpha):
    """The state of the filter that has seen the first element for ever."""
    return (1 - np.asarray(alpha)[..., None]) * x[..., :1]


def weighted_mean(x, weight, total, weights):
    totals = np.cumsum(x * weight, axis=-1) + total[..., None]
    counts = np.cumsum(weight, axis=-1) + weights[..., None]
    return totals / counts, counts, totals[..., -1], counts[..., -1]


total_of = au.gufunc("(n)->(n)", output_dtypes=float, core_chunks=au.Scan(initial=0.0))(running_total)
mean_of = au.gufunc("(n),()->(n)", output_dtypes=float, core_chunks=au.Scan(initial=steady_state, carry="(k)"))(
    smoothed
)
weighted = au.gufunc("(n),(n)->(n),(n)", output_dtypes=float, core_chunks=au.Scan(initial=(0.0, 0.0), carry="(),()"))(
    weighted_mean
)


# Values


@given(st.data(), st.integers(0, 12), st.integers(0, 4))
@examples(60)
def test_a_cumulative_sum_is_numpys_for_any_chunks(da, data, n, n_loop):
    array = np.random.default_rng(n).integers(-9, 9, (n_loop, n)).astype(float)
    np.testing.assert_array_equal(values_of(total_of(put(da, array, data)), da), np.cumsum(array, axis=-1))


@given(st.data(), st.integers(1, 12))
@examples(40)
def test_an_exponentially_weighted_mean_is_scipys_for_any_chunks(da, data, n):
    array = np.random.default_rng(n).random((3, n))
    alpha = np.array([[0.1], [0.5]])
    result = values_of(mean_of(put(da, array, data), alpha), da)
    for row, a in enumerate(alpha[:, 0]):
        expected, _ = signal.lfilter([a], [1, a - 1], array, axis=-1, zi=(1 - a) * array[:, :1])
        np.testing.assert_allclose(result[row], expected)


@given(st.data(), st.integers(1, 12))
@examples(40)
def test_a_cumulative_maximum_starts_from_the_first_piece(da, data, n):
    array = np.random.default_rng(n).integers(-99, 99, (2, n))
    scan = au.Scan(running_maximum, initial=lambda x: x[..., 0])
    lazy = au.apply_ufunc(fail, "(n)->(n)", put(da, array, data), output_dtypes=int, core_chunks=scan)
    np.testing.assert_array_equal(values_of(lazy, da), np.maximum.accumulate(array, axis=-1))


@given(st.data(), st.integers(0, 9))
@examples(40)
def test_several_inputs_are_cut_alike_and_several_outputs_carried(da, data, n):
    rng = np.random.default_rng(n)
    x, weight = rng.random((3, n)), rng.random((2, 1, n)) + 0.1
    mean, total = weighted(put(da, x, data), put(da, weight, data))
    totals = np.cumsum(np.broadcast_to(weight, (2, 3, n)), axis=-1)
    np.testing.assert_allclose(values_of(mean, da), np.cumsum(x * weight, axis=-1) / totals)
    np.testing.assert_allclose(values_of(total, da), totals)


@given(st.data(), st.integers(0, 6), st.integers(0, 3))
@examples(40)
def test_other_core_dims_come_whole_and_the_dim_may_move(da, data, n, k):
    def sums(x, total):
        totals = np.cumsum(x, axis=-2) + total[..., None, :]
        return np.swapaxes(totals, -1, -2), totals[..., -1, :]

    array = np.random.default_rng(n).integers(0, 9, (2, n, k))
    scan = au.Scan(carry="(k)", initial=lambda x: np.zeros_like(x[..., 0, :]), dim="n")
    lazy = au.apply_ufunc(sums, "(n,k)->(k,n)", put(da, array, data), output_dtypes=int, core_chunks=scan)
    np.testing.assert_array_equal(values_of(lazy, da), np.swapaxes(np.cumsum(array, axis=-2), -1, -2))


@given(st.data(), st.integers(0, 9))
@examples(25)
def test_a_step_that_takes_one_item_is_looped(da, data, n):
    def step(row, total):
        assert row.ndim == 1
        sums = [total := total + value for value in row]
        return np.array(sums), total

    array = np.arange(2.0 * n).reshape(2, n)
    options = {"vectorize": True, "output_dtypes": float, "core_chunks": au.Scan(initial=0.0)}
    lazy = au.apply_ufunc(step, "(n)->(n)", put(da, array, data), **options)
    np.testing.assert_array_equal(values_of(lazy, da), np.cumsum(array, axis=-1))


def test_the_axis_may_be_any_and_the_chunks_stay(da):
    lazy = total_of(da.from_array(X.T, chunks=((2, 4), (1, 3))), axis=0)
    assert lazy.chunks == ((2, 4), (1, 3))
    np.testing.assert_array_equal(values_of(lazy, da), np.cumsum(X.T, axis=0))


def test_an_argument_in_memory_is_cut_like_the_lazy_one(da):
    weight = np.arange(1.0, 7.0)
    mean, _ = weighted(da.from_array(X, chunks=(2, 4)), weight)
    np.testing.assert_allclose(values_of(mean, da), np.cumsum(X * weight, axis=-1) / np.cumsum(weight))


def test_a_stretched_argument_is_there_for_every_piece(da):
    def scaled(x, factor, total):
        sums = np.cumsum(x * factor, axis=-1) + total[..., None]
        return sums, sums[..., -1]

    lazy, factor = da.from_array(X, chunks=(2, 4)), da.from_array(np.array([[3.0], [1], [2], [0]]), chunks=(1, 1))
    result = au.apply_ufunc(
        scaled, "(n),(n|1)->(n)", lazy, factor, output_dtypes=float, core_chunks=au.Scan(initial=0.0)
    )
    np.testing.assert_array_equal(values_of(result, da), np.cumsum(X * [[3], [1], [2], [0]], axis=-1))


def test_new_dims_of_an_output_have_their_size_in_every_piece(da):
    def powers(x, total):
        sums = np.cumsum(x, axis=-1) + total[..., None]
        return np.stack([sums, sums**2], axis=-1), sums[..., -1]

    options = {"output_dtypes": float, "output_sizes": {"k": 2}, "core_chunks": au.Scan(initial=0.0)}
    lazy = au.apply_ufunc(powers, "(n)->(n,k)", da.from_array(X, chunks=(4, 4)), **options)
    sums = np.cumsum(X, axis=-1)
    np.testing.assert_array_equal(values_of(lazy, da), np.stack([sums, sums**2], axis=-1))


def test_masks_are_kept(da):
    array = np.ma.MaskedArray(X, mask=X % 5 == 0)

    def totals(x, total):
        sums = np.ma.cumsum(x, axis=-1) + total[..., None]
        return sums, sums.data[..., -1]

    lazy = au.apply_ufunc(
        totals, "(n)->(n)", da.from_array(array, chunks=(2, 3)), output_dtypes=float, core_chunks=au.Scan(initial=0.0)
    )
    result = lazy.compute(scheduler="sync")
    expected = np.ma.cumsum(array, axis=-1)
    np.testing.assert_array_equal(result.mask, expected.mask)
    np.testing.assert_array_equal(result.filled(0), expected.filled(0))


@pytest.mark.skipif(EXPRESSIONS, reason="the other backends are tested in the other process")
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_every_backend_gives_the_same(name, n):
    backend = BACKENDS[name]()
    options = {"output_dtypes": float, "core_chunks": au.Scan(initial=1.0)}
    with backend.context():
        result = backend.call(running_total, "(n)->(n)", [backend.put(X[:, :n])], options)
        backend.check_type(result)
        np.testing.assert_array_equal(backend.get(result), 1 + np.cumsum(X[:, :n], axis=-1))


@pytest.mark.skipif(EXPRESSIONS, reason="eager arrays are tested in the other process")
def test_eager_arrays_need_no_dtypes_not_even_without_elements():
    for array in (X, X[:, :0], X[:0], X.astype("f4")):
        result = au.apply_ufunc(running_total, "(n)->(n)", array, core_chunks=au.Scan(initial=np.float32(0)))
        np.testing.assert_array_equal(result, np.cumsum(array, axis=-1))
        assert result.dtype == array.dtype


@pytest.mark.skipif(EXPRESSIONS, reason="eager arrays are tested in the other process")
def test_a_kernel_for_another_librarys_arrays_gets_a_carry_of_that_library():
    xp = pytest.importorskip("array_api_strict")

    def totals(x, total):
        assert type(total) is type(x)
        sums = xp.cumulative_sum(x, axis=-1) + total[..., None]
        return sums, sums[..., -1]

    result = au.apply_ufunc(totals, "(n)->(n)", xp.asarray(X), kernel_arrays="same", core_chunks=au.Scan(initial=0.0))
    np.testing.assert_array_equal(np.asarray(result), np.cumsum(X, axis=-1))


# Building and running


def test_nothing_is_computed_and_no_part_is_called_while_a_result_is_built(da):
    scan = au.Scan(fail, initial=fail)
    au.apply_ufunc(fail, "(n)->(n)", untouchable(da, (4, 6), (2, 2)), output_dtypes=float, core_chunks=scan)


def test_the_step_runs_once_for_each_piece_of_each_loop_block(da):
    step = Counting(weighted_mean)
    scan = au.Scan(step, initial=(0.0, 0.0), carry="(),()")
    lazy = [da.from_array(X + 1, chunks=(2, (1, 2, 3)))] * 2
    outputs = au.apply_ufunc(fail, "(n),(n)->(n),(n)", *lazy, output_dtypes=float, core_chunks=scan)
    importlib.import_module("dask").compute(*outputs, scheduler="sync")
    assert sorted(shapes[0] for shapes in step.shapes) == [(2, 1), (2, 1), (2, 2), (2, 2), (2, 3), (2, 3)]


def test_a_loop_without_items_runs_nothing(da):
    lazy = da.from_array(X[:0], chunks=(1, 2))
    result = au.apply_ufunc(fail, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Scan(initial=fail))
    assert values_of(result, da).shape == (0, 6)


def test_empty_pieces_pass_the_carry_on(da):
    step = Counting(running_total)
    lazy = da.from_array(X, chunks=(4, (0, 2, 0, 0, 4, 0)))
    result = au.apply_ufunc(step, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Scan(initial=0.0))
    np.testing.assert_array_equal(values_of(result, da), np.cumsum(X, axis=-1))
    assert all(shapes[0][-1] > 0 for shapes in step.shapes)


def test_names_are_those_of_equal_calls_and_of_no_others(da):
    lazy = da.from_array(X, chunks=(2, 2))

    def name(step=running_total, **options):
        scan = au.Scan(**{"initial": 0.0, **options})
        return au.apply_ufunc(step, "(n)->(n)", lazy, output_dtypes=float, core_chunks=scan).name

    assert name() == name()
    others = [name(initial=1.0), name(initial=np.float32(0)), name(running_maximum), name(initial=lambda x: x[..., 0])]
    assert len({name(), *others}) == 5


def test_the_number_of_layers_is_that_of_core_chunks(da):
    if not hasattr(da.ones(1, chunks=1).dask, "layers") or EXPRESSIONS:
        pytest.skip("this front end has expressions in place of layers")
    few, many = (total_of(da.ones((n, 12), chunks=(1, 3))) for n in (2, 200))
    assert len(few.dask.layers) == len(many.dask.layers) < 20


def test_an_error_says_in_which_chunk_it_was(da):
    def positive(x, last):
        if x.min() < 0:
            raise ValueError("a negative number")
        return x, last

    lazy = da.from_array(np.array([1.0, 2, 3, -4]), chunks=2)
    result = au.apply_ufunc(positive, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Scan(initial=0.0))
    with pytest.raises(ValueError, match="a negative number") as caught:
        result.compute(scheduler="sync")
    assert any("chunk 1 of core dimension 'n'" in note for note in caught.value.__notes__)
    assert any("'(n),()->(n),()'" in note for note in caught.value.__notes__)


def test_pieces_and_carry_refuse_writing(da):
    def careless(x, total):
        assert not x.flags.writeable
        assert not total.flags.writeable
        return x.copy(), x[..., -1]

    lazy = da.from_array(X, chunks=(4, 2))
    result = au.apply_ufunc(careless, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Scan(initial=0.0))
    np.testing.assert_array_equal(values_of(result, da), X)


def test_a_carry_of_another_shape_is_refused(da):
    def wrong(x, total):
        return x, x

    lazy = da.from_array(X, chunks=(4, 2))
    result = au.apply_ufunc(wrong, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Scan(initial=0.0))
    with pytest.raises(au.OutputShapeError, match="output 1"):
        result.compute(scheduler="sync")


def test_a_carry_keeps_the_dtype_that_it_starts_with(da):
    lazy = da.from_array(np.full(4, 100, "i1"), chunks=2)

    def total(initial):
        options = {"output_dtypes": int, "core_chunks": au.Scan(initial=initial)}
        return au.apply_ufunc(running_total, "(n)->(n)", lazy, **options).compute(scheduler="sync")

    np.testing.assert_array_equal(total(0), [100, 200, 300, 400])
    with pytest.raises(au.OutputRangeError, match="200"):
        total(np.int8(0))


def test_dtypes_are_learnt_from_the_step(da):
    lazy = au.apply_ufunc(
        running_total, "(n)->(n)", da.from_array(X.astype("f4"), chunks=2), core_chunks=au.Scan(initial=np.float32(0))
    )
    assert lazy.dtype == np.float32
    np.testing.assert_array_equal(values_of(lazy, da), np.cumsum(X.astype("f4"), axis=-1))


def test_the_same_call_runs_the_same_object():
    def func_of(step, scan, **options):
        options = make_options(Options(), {"core_chunks": scan, **options})
        return in_pieces(make_kernel(step, options), au.Signature.parse("(n)->(n)"), options).func

    scan = au.Scan(initial=0.0)
    first = func_of(running_total, scan)
    assert func_of(running_total, scan) is first
    others = [func_of(running_maximum, scan), func_of(running_total, au.Scan(initial=0.0))]
    assert len({id(func) for func in (first, *others, func_of(running_total, scan, writable=True))}) == 4


def test_the_kernel_travels_between_processes():
    kernel = pickle.loads(pickle.dumps(total_of))
    np.testing.assert_array_equal(kernel(X), np.cumsum(X, axis=-1))


@pytest.mark.skipif(EXPRESSIONS, reason="one front end is enough")
def test_worker_processes_run_it():
    da = pytest.importorskip("dask.array")
    pytest.importorskip("cloudpickle")
    lazy = total_of(da.from_array(X, chunks=(2, 3)))
    np.testing.assert_array_equal(lazy.compute(scheduler="processes", num_workers=1), np.cumsum(X, axis=-1))


# Unknown sizes


def test_loop_sizes_may_be_unknown(da):
    lazy = _unknown(da, X, chunks=2, axis=0)
    result = total_of(lazy)
    assert math.isnan(result.shape[0])
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.cumsum(X[X[:, 0] > 2], axis=-1))


def test_core_sizes_may_be_unknown_where_chunks_can_be_told_apart(da):
    lazy = _unknown(da, X, chunks=2, axis=1)
    if not hasattr(lazy, "blocks"):
        with pytest.raises(au.UnknownSizeError, match="core dimension 'n' of argument 0"):
            total_of(lazy)
        return
    np.testing.assert_array_equal(total_of(lazy).compute(scheduler="sync"), np.cumsum(X[:, X[0] > 2], axis=-1))


def test_unknown_core_sizes_that_cannot_be_brought_together_are_refused_by_name(da):
    lazy = _unknown(da, X, chunks=2, axis=1)
    for other in (da.ones((4, 3), chunks=3), np.ones((4, 3))):
        with pytest.raises(au.UnknownSizeError, match="core dimension 'n' of argument 0"):
            weighted(lazy, other)


def test_pieces_that_turn_out_to_have_different_sizes_are_refused(da):
    lazy, other = _unknown(da, X, chunks=2, axis=1), da.ones((4, 6), chunks=2)
    if not hasattr(lazy, "blocks"):
        pytest.skip("this front end refuses unknown core sizes")
    mean, _ = weighted(lazy, other)
    with pytest.raises(au.DimensionError, match="core dimension 'n'"):
        mean.compute(scheduler="sync")


def _unknown(da, array, chunks, axis):
    """Return what is left of an array, with chunks of unknown size along an axis."""
    lazy = da.from_array(array, chunks=chunks)
    try:
        return lazy[lazy[:, 0] > 2] if axis == 0 else lazy[:, lazy[0] > 2]
    except NotImplementedError:
        pytest.skip("this front end has no arrays of unknown size")


# Refusals


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        ("(n)->()", {}, "none of '\\(n\\)->\\(\\)'"),
        ("(n)->()", {"dim": "n"}, "output 0 of .* does not have"),
        ("(n)->(n),()", {"dim": "n"}, "output 1 of .* does not have"),
        ("(n,p)->(n,p)", {}, "2 of '\\(n,p\\)->\\(n,p\\)' \\(n, p\\): say which, as in Scan\\(..., dim='p'\\)$"),
        ("(n)->(n)", {"dim": "m"}, "core dimension 'm', which no input"),
        ("(n,n)->(n)", {}, "input 0 of .* has twice"),
        ("(4)->(4)", {}, "fixes"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused_on_every_backend(signature, options, message):
    with pytest.raises(au.SignatureError, match=message):
        au.apply_ufunc(running_total, signature, X, core_chunks=au.Scan(initial=0.0, **options))


def test_a_dim_that_is_resized_is_refused():
    with pytest.raises(au.SignatureError, match="output_sizes"):
        au.apply_ufunc(running_total, "(n)->(n)", X, output_sizes={"n": 3}, core_chunks=au.Scan(initial=0.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 1, "initial": 0.0}, "step takes a function"),
        ({"initial": (0.0, 1.0)}, "initial has 2 value\\(s\\), expected 1"),
        ({"initial": [0.0, 1.0]}, "initial value 0 has shape \\(2,\\)"),
        ({"initial": np.zeros(3), "carry": "(2)"}, "initial value 0 has shape \\(3,\\)"),
        ({"initial": 0.0, "carry": ""}, "at least one array"),
        ({"initial": 0.0, "carry": "(k?)"}, "names and fixed sizes"),
        ({"initial": 0.0, "carry": 1}, "carry takes text"),
        ({"initial": 0.0, "dim": 1}, "dim takes the name"),
    ],
)
def test_values_that_do_not_fit_are_refused_when_they_are_given(options, message):
    with pytest.raises(au.OptionError, match=message):
        au.Scan(**options)


def test_a_lazy_start_is_refused():
    da = pytest.importorskip("dask.array")
    with pytest.raises(au.OptionError, match="lazy"):
        au.Scan(initial=da.zeros((), chunks=()))


def test_a_step_without_a_carry_is_told_what_to_return():
    with pytest.raises(au.OutputShapeError) as caught:
        au.apply_ufunc(lambda x, total: x, "(n)->(n)", X, core_chunks=au.Scan(initial=0.0))
    expected = "a step of a Scan returns 2, the last 1 of them the carry, in the dtype that its initial has (float64)"
    assert any(note.startswith(expected) for note in caught.value.__notes__)


def test_a_carry_along_the_dim_is_refused():
    with pytest.raises(au.OptionError, match="carry '\\(n\\)' has core dimension 'n'"):
        au.apply_ufunc(running_total, "(n)->(n)", X, core_chunks=au.Scan(initial=[0.0], carry="(n)"))


def test_a_carry_that_does_not_follow_the_grammar_is_refused():
    with pytest.raises(au.SignatureError):
        au.Scan(initial=0.0, carry="(k")


# The expressions of dask.array, in a process of their own


@pytest.mark.skipif(EXPRESSIONS, reason="this is that process")
@pytest.mark.once
def test_the_expressions_of_dask_array_pass_these_tests_and_those_of_overlap():
    dask = pytest.importorskip("dask")
    if dask.__version__ < "2025":
        pytest.skip(f"dask {dask.__version__} has no expressions for arrays")
    environment = os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True", "PYTHONPATH": os.pathsep.join(sys.path)}
    files = [__file__, str(Path(__file__).with_name("test_overlap.py"))]
    command = [sys.executable, "-m", "pytest", *files, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
