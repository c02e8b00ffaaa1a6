"""Stencils along core dims in chunks: the values of the whole array, at its edges too, whatever the chunks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from backends import BACKENDS
from hypothesis import given
from hypothesis import strategies as st
from pieces import EXPRESSIONS, FRONT_ENDS, Counting, examples, fail, put, untouchable, values_of

import applyufunc as au

ndimage = pytest.importorskip("scipy.ndimage")

X = np.arange(24.0).reshape(4, 6) ** 2


@pytest.fixture(params=FRONT_ENDS)
def da(request):
    return pytest.importorskip(request.param)


def moving_mean(x, size=5, mode="reflect"):
    return ndimage.uniform_filter1d(x, size, axis=-1, mode=mode)


def slope(x):
    return np.gradient(x, axis=-1)


def both(x):
    return moving_mean(x), slope(x)


def doubled(x):
    return x * 2


gradient = au.gufunc("(n)->(n)", output_dtypes=float, core_chunks=au.Overlap(1))(slope)


# Values


@given(st.data(), st.integers(1, 16), st.integers(1, 7), st.sampled_from(["reflect", "nearest", "mirror", "constant"]))
@examples(80)
def test_a_moving_mean_is_scipys_for_any_chunks_and_edges(da, data, n, size, mode):
    array = np.random.default_rng(n).random((data.draw(st.integers(0, 3)), n))
    lazy = put(da, array, data)
    options = {"output_dtypes": float, "core_chunks": au.Overlap(size // 2), "size": size, "mode": mode}
    result = au.apply_ufunc(moving_mean, "(n)->(n)", lazy, **options)
    np.testing.assert_allclose(values_of(result, da), moving_mean(array, size, mode), atol=1e-12)


@given(st.data(), st.integers(2, 12))
@examples(50)
def test_several_outputs_are_numpys_for_any_chunks(da, data, n):
    array = np.random.default_rng(n).random((2, n))
    options = {"output_dtypes": float, "core_chunks": au.Overlap(2)}
    mean, difference = au.apply_ufunc(both, "(n)->(n),(n)", put(da, array, data), **options)
    np.testing.assert_allclose(values_of(mean, da), moving_mean(array))
    np.testing.assert_allclose(values_of(difference, da), slope(array))


@given(st.data(), st.integers(1, 7), st.integers(1, 7))
@examples(50)
def test_a_median_over_two_dims_has_its_corners(da, data, m, n):
    def median(x):
        return ndimage.median_filter(x, size=(1, 3, 5), mode="nearest")

    array = np.random.default_rng(m * n).random((2, m, n))
    options = {"output_dtypes": float, "core_chunks": au.Overlap({"y": 1, "x": 2})}
    result = au.apply_ufunc(median, "(y,x)->(y,x)", put(da, array, data), **options)
    np.testing.assert_array_equal(values_of(result, da), median(array))


@given(st.data(), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3))
@examples(50)
def test_a_halo_may_be_on_one_side_and_the_dim_may_move(da, data, n, before, after):
    def shifted(x):
        padded = np.pad(x, ((0, 0), (before, after), (0, 0)))
        return np.swapaxes(sum(padded[:, k : k + x.shape[1]] for k in range(before + after + 1)), -1, -2)

    array = np.random.default_rng(n).integers(0, 99, (2, n, 3))
    options = {"output_dtypes": int, "core_chunks": au.Overlap({"n": before}, {"n": after})}
    result = au.apply_ufunc(shifted, "(n,k)->(k,n)", put(da, array, data), **options)
    np.testing.assert_array_equal(values_of(result, da), shifted(array))


@given(st.data(), st.integers(3, 9))
@examples(40)
def test_several_inputs_are_cut_alike_and_those_without_the_dim_come_whole(da, data, n):
    def blended(x, y, weights, factor):
        smooth = ndimage.correlate1d(x + y, weights.reshape(-1)[:3], axis=-1, mode="nearest")
        return smooth * factor[..., None]

    rng = np.random.default_rng(n)
    x, y, weights, factor = rng.random((2, 3, n)), rng.random((3, n)), rng.random(3), rng.random((2, 1))
    options = {"output_dtypes": float, "core_chunks": au.Overlap(1)}
    lazy = [put(da, x, data), put(da, y, data), put(da, weights, data), put(da, factor, data)]
    result = au.apply_ufunc(blended, "(n),(n),(k),()->(n)", *lazy, **options)
    expected = blended(x, y, weights, factor)
    np.testing.assert_allclose(values_of(result, da), expected)


def test_chunks_stay_unless_they_are_smaller_than_the_halo(da):
    lazy = da.from_array(np.tile(X, 2), chunks=(2, (1, 4, 1, 5, 1)))
    result = au.apply_ufunc(moving_mean, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Overlap(2))
    assert result.chunks == ((2, 2), (5, 7))
    np.testing.assert_allclose(values_of(result, da), moving_mean(np.tile(X, 2)))


def test_the_axis_may_be_any(da):
    result = gradient(da.from_array(X, chunks=((1, 3), (4, 2))), axis=0)
    assert result.chunks == ((1, 3), (4, 2))
    np.testing.assert_allclose(values_of(result, da), np.gradient(X, axis=0))


def test_an_argument_in_memory_is_cut_like_the_lazy_one(da):
    def total(x, y):
        return slope(x + y)

    options = {"output_dtypes": float, "core_chunks": au.Overlap(1)}
    result = au.apply_ufunc(total, "(n),(n)->(n)", da.from_array(X, chunks=(2, 3)), X[1], **options)
    np.testing.assert_allclose(values_of(result, da), slope(X + X[1]))


def test_a_stretched_argument_is_there_for_every_piece(da):
    def scaled(x, factor):
        return slope(x) * factor

    lazy = da.from_array(X, chunks=(2, 3)), da.from_array(np.array([[3.0], [1], [2], [0]]), chunks=(1, 1))
    options = {"output_dtypes": float, "core_chunks": au.Overlap(1)}
    result = au.apply_ufunc(scaled, "(n),(n|1)->(n)", *lazy, **options)
    np.testing.assert_allclose(values_of(result, da), slope(X) * [[3], [1], [2], [0]])


def test_an_item_at_a_time(da):
    options = {"vectorize": True, "output_dtypes": float, "core_chunks": au.Overlap(1)}
    result = au.apply_ufunc(slope, "(n)->(n)", da.from_array(X, chunks=2), **options)
    np.testing.assert_allclose(values_of(result, da), slope(X))


def test_masks_are_kept(da):
    array = np.ma.MaskedArray(X, mask=X % 5 == 0)

    def beside(x):
        return np.ma.concatenate([x[..., :1], x[..., 1:] - x[..., :-1]], axis=-1)

    lazy = da.from_array(array, chunks=(2, 2))
    result = au.apply_ufunc(beside, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Overlap(1))
    value = result.compute(scheduler="sync")
    np.testing.assert_array_equal(value.mask, beside(array).mask)
    np.testing.assert_array_equal(value.filled(0), beside(array).filled(0))


@pytest.mark.skipif(EXPRESSIONS, reason="the other backends are tested in the other process")
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_every_backend_gives_what_the_kernel_does_on_the_whole(name, n):
    backend = BACKENDS[name]()
    options = {"output_dtypes": float, "core_chunks": au.Overlap(2)}
    with backend.context():
        result = backend.call(doubled, "(n)->(n)", [backend.put(X[:, :n])], options)
        backend.check_type(result)
        np.testing.assert_array_equal(backend.get(result), X[:, :n] * 2)


@pytest.mark.skipif(EXPRESSIONS, reason="eager arrays are tested in the other process")
def test_an_eager_kernel_is_called_once_with_the_whole():
    kernel = Counting(slope)
    np.testing.assert_array_equal(au.apply_ufunc(kernel, "(n)->(n)", X, core_chunks=au.Overlap(1)), slope(X))
    assert kernel.shapes == [((4, 6),)]


# Building and running


def test_nothing_is_computed_and_the_kernel_is_not_called_while_a_result_is_built(da):
    options = {"output_dtypes": float, "core_chunks": au.Overlap(1)}
    au.apply_ufunc(fail, "(n)->(n),(n)", untouchable(da, (4, 6), (2, 2)), **options)


def test_the_kernel_runs_once_for_each_block_with_its_halo(da):
    kernel = Counting(both)
    lazy = da.from_array(np.tile(X, 2), chunks=(2, 4))
    options = {"output_dtypes": float, "core_chunks": au.Overlap(2)}
    outputs = au.apply_ufunc(kernel, "(n)->(n),(n)", lazy, **options)
    pytest.importorskip("dask").compute(*outputs, scheduler="sync")
    assert sorted(shapes[0] for shapes in kernel.shapes) == [(2, 6)] * 4 + [(2, 8)] * 2


def test_names_are_those_of_equal_calls_and_of_no_others(da):
    lazy = da.from_array(X, chunks=3)

    def name(before=1, after=None, kernel=slope):
        rule = au.Overlap(before, after)
        return au.apply_ufunc(kernel, "(n)->(n)", lazy, output_dtypes=float, core_chunks=rule).name

    assert name() == name(1, 1)
    assert len({name(), name(2), name(1, 2), name(kernel=doubled)}) == 4


def test_the_number_of_layers_does_not_depend_on_that_of_blocks(da):
    if not hasattr(da.ones(1, chunks=1).dask, "layers") or EXPRESSIONS:
        pytest.skip("this front end has expressions in place of layers")
    few, many = (gradient(da.ones((n, n), chunks=(1, 2))) for n in (6, 60))
    assert len(few.dask.layers) == len(many.dask.layers) < 20


def test_an_error_says_in_which_piece_it_was(da):
    def positive(x):
        if x.min() < 0:
            raise ValueError("a negative number")
        return x

    lazy = da.from_array(np.array([1.0, 2, 3, 3, 3, -4]), chunks=2)
    result = au.apply_ufunc(positive, "(n)->(n)", lazy, output_dtypes=float, core_chunks=au.Overlap(1))
    with pytest.raises(ValueError, match="a negative number") as caught:
        result.compute(scheduler="sync")
    assert any("piece [4:6] of core dimension 'n'" in note for note in caught.value.__notes__)


def test_a_kernel_that_returns_another_size_is_refused(da):
    lazy = da.from_array(X, chunks=3)
    options = {"output_dtypes": float, "core_chunks": au.Overlap(1)}
    result = au.apply_ufunc(lambda x: x[..., 1:-1], "(n)->(n)", lazy, **options)
    with pytest.raises(au.OutputShapeError, match="core dimension n"):
        result.compute(scheduler="sync")


def test_dtypes_are_learnt_from_the_kernel(da):
    lazy = da.from_array(X.astype("f4"), chunks=3)
    result = au.apply_ufunc(slope, "(n)->(n)", lazy, core_chunks=au.Overlap(1))
    assert values_of(result, da).dtype == np.float32


def test_a_gufunc_with_a_halo_travels_between_processes():
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gradient))(X), slope(X))


# Unknown sizes


def test_loop_sizes_may_be_unknown(da):
    lazy = da.from_array(X, chunks=(2, 3))
    try:
        lazy = lazy[lazy[:, 0] > 40]
    except NotImplementedError:
        pytest.skip("this front end has no arrays of unknown size")
    np.testing.assert_allclose(gradient(lazy).compute(scheduler="sync"), slope(X[X[:, 0] > 40]))


def test_unknown_core_sizes_are_refused_by_name(da):
    lazy = da.from_array(X, chunks=(2, 3))
    try:
        lazy = lazy[:, lazy[0] > 2]
    except NotImplementedError:
        pytest.skip("this front end has no arrays of unknown size")
    with pytest.raises(au.UnknownSizeError, match="core dimension 'n' of argument 0"):
        gradient(lazy)


def test_a_kernel_that_leaves_out_the_halo_is_told_so(da):
    lazy = da.from_array(X, chunks=(2, 3))
    result = au.apply_ufunc(lambda x: x[..., 1:-1], "(n)->(n)", lazy, core_chunks=au.Overlap(1), output_dtypes=float)
    with pytest.raises(au.OutputShapeError) as caught:
        result.compute(scheduler="sync")
    assert any("with its halo, for which the kernel has to return values too" in n for n in caught.value.__notes__)


# Refusals


@pytest.mark.parametrize(
    ("signature", "rule", "message"),
    [
        ("(n)->()", au.Overlap(1), "none of"),
        ("(n)->()", au.Overlap({"n": 1}), "output 0 of .* does not have"),
        ("(y,x)->(y,x)", au.Overlap(1), "2 of .*: say which, as in Overlap\\({'x': 1}\\)$"),
        ("(n)->(n)", au.Overlap({"m": 1}), "core dimension 'm', which no input"),
        ("(n,n)->(n)", au.Overlap(1), "input 0 of .* has twice"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused_on_every_backend(signature, rule, message):
    with pytest.raises(au.SignatureError, match=message):
        au.apply_ufunc(slope, signature, X, core_chunks=rule)


@pytest.mark.parametrize(
    ("halo", "message"),
    [
        ((-1,), "before takes a number of elements of at least 0, got -1"),
        ((1, -2), "after takes a number of elements of at least 0, got -2"),
        ((1.5,), "before takes a number of elements, got 1.5"),
        ((True,), "got True"),
        (({"n": -1},), "before\\['n'\\] takes a number of elements of at least 0"),
        (({1: 1},), "names of core dimensions, got 1"),
    ],
)
def test_halos_that_are_no_numbers_of_elements_are_refused(halo, message):
    with pytest.raises(au.OptionError, match=message):
        au.Overlap(*halo)
