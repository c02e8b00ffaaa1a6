"""What `dask.array.apply_gufunc` and `array_api_extra.lazy_apply` take is taken; each difference is on a page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import applyufunc as au

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
xpx = pytest.importorskip("array_api_extra")

PAGE = Path(__file__).parents[1] / "docs/how-to/move-from-dask-and-array-api-extra.md"

DIFFERENCES: list[str] = []


def difference(row):
    """Say that a test shows both sides of a row of the migration page."""
    DIFFERENCES.append(row)
    return lambda test: test


def compute(result):
    """Return the values of one Dask array, or of several."""
    return tuple(map(compute, result)) if isinstance(result, tuple) else result.compute(scheduler="sync")


def total(x):
    return x.sum(axis=-1)


def total_and_peak(x):
    return x.sum(axis=-1), x.max(axis=-1)


def dot(x, y):
    return (x * y).sum(axis=-1)


def outer(x, y):
    return np.einsum("...i,...j->...ij", x, y)


def power_sum(x, *, exponent=1):
    return (x**exponent).sum(axis=-1)


@pytest.fixture
def x():
    """Two loop blocks, the last axis in one chunk."""
    return da.from_array(np.arange(24.0).reshape(4, 6), chunks=(2, 6))


@pytest.fixture
def y():
    return da.from_array(np.arange(6.0), chunks=6)


# Call forms of dask.array.apply_gufunc

FORMS = {
    "output_dtypes: a type": lambda apply, x, y: apply(total, "(n)->()", x, output_dtypes=float),
    "output_dtypes: text": lambda apply, x, y: apply(total, "(n)->()", x, output_dtypes="f8"),
    "output_dtypes: a dtype": lambda apply, x, y: apply(total, "(n)->()", x, output_dtypes=np.dtype("f8")),
    "output_dtypes: a list of one": lambda apply, x, y: apply(total, "(n)->()", x, output_dtypes=[float]),
    "output_dtypes: a list": lambda apply, x, y: apply(total_and_peak, "(n)->(),()", x, output_dtypes=[float, "f8"]),
    "output_dtypes: a tuple": lambda apply, x, y: apply(total_and_peak, "(n)->(),()", x, output_dtypes=(float, float)),
    "output_dtypes: left out": lambda apply, x, y: apply(total, "(n)->()", x),
    "output_dtypes: left out, two outputs": lambda apply, x, y: apply(total_and_peak, "(n)->(),()", x),

    "meta: an array": lambda apply, x, y: apply(total, "(n)->()", x, meta=np.empty(0, "f8")),
    "meta: a tuple of one": lambda apply, x, y: apply(total, "(n)->()", x, meta=(np.empty(0, "f8"),)),
    "meta: a tuple": lambda apply, x, y: apply(total_and_peak, "(n)->(),()", x, meta=(np.empty(0), np.empty((0, 0)))),
    "outputs in a list": lambda apply, x, y: apply(
        lambda x: list(total_and_peak(x)), "(n)->(),()", x, output_dtypes=[float, float]
    ),
    "white space": lambda apply, x, y: apply(dot, " ( n ) , (n ) -> ( ) ", x, y, output_dtypes=float),
    "comma inside": lambda apply, x, y: apply(total, "(n,)->()", x, output_dtypes=float),
    "loop dims broadcast": lambda apply, x, y: apply(np.add, "(),()->()", x, y, output_dtypes=float),
    "core dims only": lambda apply, x, y: apply(dot, "(n),(n)->()", y, y, output_dtypes=float),
    "a NumPy array too": lambda apply, x, y: apply(dot, "(n),(n)->()", x, np.arange(6.0), output_dtypes=float),
    "a Python scalar too": lambda apply, x, y: apply(np.add, "(),()->()", x, 2.5, output_dtypes=float),
    "a new dim": lambda apply, x, y: apply(outer, "(i),(j)->(i,j)", x, y, output_dtypes=float),
    "output_sizes": lambda apply, x, y: apply(
        lambda x: x[..., :2], "(n)->(k)", x, output_sizes={"k": 2}, output_dtypes=float
    ),
    "output_sizes: a dim made smaller": lambda apply, x, y: apply(
        lambda x: x[..., :2], "(n)->(n)", x, output_sizes={"n": 2}, output_dtypes=float
    ),
    "vectorize: None": lambda apply, x, y: apply(total, "(n)->()", x, vectorize=None, output_dtypes=float),
    "vectorize: False": lambda apply, x, y: apply(total, "(n)->()", x, vectorize=False, output_dtypes=float),
    "vectorize: True": lambda apply, x, y: apply(
        lambda x, y: x[0] + y.sum(), "(n),(n)->()", x, y, vectorize=True, output_dtypes=float
    ),
    "vectorize: True, dtypes left out": lambda apply, x, y: apply(lambda x: x.sum(), "(n)->()", x, vectorize=True),
    "vectorize: True, two outputs": lambda apply, x, y: apply(
        lambda x: (x[::-1], x.sum()), "(n)->(n),()", x, vectorize=True, output_dtypes=[float, float]
    ),
    "allow_rechunk: True": lambda apply, x, y: apply(
        total, "(n)->()", x.rechunk((2, 4)), output_dtypes=float, allow_rechunk=True
    ),
    "allow_rechunk: False": lambda apply, x, y: apply(total, "(n)->()", x, output_dtypes=float, allow_rechunk=False),
    "axis": lambda apply, x, y: apply(total, "(n)->()", x.rechunk((4, 3)), axis=0, output_dtypes=float),
    "axis: with an output": lambda apply, x, y: apply(
        lambda x: x[..., ::-1], "(n)->(n)", x.rechunk((4, 3)), axis=0, output_dtypes=float
    ),
    "axis: two arguments": lambda apply, x, y: apply(
        dot, "(n),(n)->()", x.rechunk((4, 3)), y[:4], axis=0, output_dtypes=float
    ),
    "axes: integers": lambda apply, x, y: apply(total, "(n)->()", x.rechunk((4, 3)), axes=[0], output_dtypes=float),
    "axes: tuples": lambda apply, x, y: apply(
        total, "(n)->()", x.rechunk((4, 3)), axes=[(0,), ()], output_dtypes=float
    ),
    "axes: of the output": lambda apply, x, y: apply(
        outer, "(i),(j)->(i,j)", x.rechunk((4, 3)), y, axes=[0, 0, (0, 2)], output_dtypes=float
    ),
    "axes: matrices": lambda apply, x, y: apply(
        np.matmul, "(m,n),(n,p)->(m,p)", x.T, x.rechunk(-1), axes=[(1, 0), (1, 0), (1, 0)], output_dtypes=float,
        allow_rechunk=True,
    ),
    "keepdims": lambda apply, x, y: apply(total, "(n)->()", x, keepdims=True, output_dtypes=float),
    "keepdims: with axis": lambda apply, x, y: apply(
        total, "(n)->()", x.rechunk((4, 3)), axis=0, keepdims=True, output_dtypes=float
    ),
    "keepdims: with axes": lambda apply, x, y: apply(
        total_and_peak, "(n)->(),()", x.rechunk((4, 3)), axes=[0], keepdims=True, output_dtypes=[float, float]
    ),
    "keepdims: two core dims": lambda apply, x, y: apply(
        lambda x: x.sum(axis=(-2, -1)), "(m,n)->()", x.rechunk(-1), keepdims=True, output_dtypes=float
    ),
    "kernel keywords": lambda apply, x, y: apply(power_sum, "(n)->()", x, exponent=2, output_dtypes=float),
    "no loop item": lambda apply, x, y: apply(total, "(n)->()", x[:0], output_dtypes=float),
    "an empty core dim": lambda apply, x, y: apply(total, "(n)->()", x[:, :0], output_dtypes=float),
    "object": lambda apply, x, y: apply(list, "(n)->()", x, output_dtypes=object, vectorize=True),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_call_form_gives_what_dask_gives(form, x, y):
    ours, theirs = form(au.apply_ufunc, x, y), form(da.apply_gufunc, x, y)
    assert isinstance(ours, tuple) == isinstance(theirs, tuple)
    both = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for our, their in both:
        assert type(our) is da.Array
        assert (our.shape, our.dtype, our.ndim) == (their.shape, their.dtype, their.ndim)
        our_values, their_values = compute(our), compute(their)
        assert our_values.dtype == their_values.dtype
        np.testing.assert_array_equal(our_values, their_values)


def test_bound_gufuncs_are_called_as_those_of_dask(x):
    there = da.gufunc(total_and_peak, signature="(n)->(),()", output_dtypes=[float, float])
    here = au.gufunc("(n)->(),()", output_dtypes=[float, float])(total_and_peak)
    np.testing.assert_array_equal(compute(here(x)), compute(there(x)))


def test_decorator_stands_for_as_gufunc(x):
    @da.as_gufunc(signature="(n)->()", output_dtypes=float, vectorize=True)
    def there(x):
        return x[0]

    @au.gufunc("(n)->()", output_dtypes=float, vectorize=True)
    def here(x):
        return x[0]

    np.testing.assert_array_equal(compute(here(x)), compute(there(x)))


def test_kernel_is_not_called_while_building_where_meta_is_given(x):
    def fail(x):
        raise AssertionError("called")

    for apply in (da.apply_gufunc, au.apply_ufunc):
        assert apply(fail, "(n)->()", x, meta=np.empty(0, "f4")).dtype == np.float32


# dask.array.apply_gufunc: another result


@difference("numpy-arrays")
def test_numpy_arrays_give_numpy_arrays():
    x = np.ones((2, 3))
    assert isinstance(da.apply_gufunc(total, "(n)->()", x, output_dtypes=float), da.Array)
    assert isinstance(au.apply_ufunc(total, "(n)->()", x, output_dtypes=float), np.ndarray)


@difference("chunked-core")
def test_chunked_core_dims_are_merged_by_default(x):
    x = x.rechunk((2, 3))
    with pytest.raises(ValueError, match="multiple chunks"):
        da.apply_gufunc(total, "(n)->()", x, output_dtypes=float)
    np.testing.assert_array_equal(compute(au.apply_ufunc(total, "(n)->()", x, output_dtypes=float)), [15, 51, 87, 123])
    with pytest.raises(ValueError, match="allow_rechunk=False"):
        au.apply_ufunc(total, "(n)->()", x, output_dtypes=float, allow_rechunk=False)


@difference("split-loops")
def test_merging_core_dims_leaves_loop_chunks_as_they_are():
    x = da.ones((4, 6), chunks=(4, 3))
    options = {"output_dtypes": float, "allow_rechunk": True}
    if dask.__version__ >= "2026":  # earlier versions merge as we do
        assert da.apply_gufunc(total, "(n)->()", x, **options).chunks == ((2, 2),)
    assert au.apply_ufunc(total, "(n)->()", x, **options).chunks == ((4,),)


@difference("python-scalars")
def test_python_scalars_and_none_reach_the_kernel_as_they_are(y):
    def seen(apply, value):
        types = []
        compute(apply(lambda y, value: types.append(type(value)) or y, "(),()->()", y, value, output_dtypes=float))
        return types[0]

    for value, there in [(2, np.ndarray), (None, np.ndarray)]:
        assert seen(da.apply_gufunc, value) is there
        assert seen(au.apply_ufunc, value) is type(value)


@difference("loop-ranks")
def test_blocks_all_have_the_same_number_of_loop_dims(x, y):
    def seen(apply):
        shapes = []
        compute(
            apply(lambda x, y: shapes.append((x.shape, y.shape)) or dot(x, y), "(n),(n)->()", x, y, meta=np.empty(0))
        )
        return shapes[0]

    assert seen(da.apply_gufunc) == ((2, 6), (6,))
    assert seen(au.apply_ufunc) == ((2, 6), (1, 6))


@difference("read-only")
def test_kernel_cannot_change_its_inputs():
    def double(x):
        x *= 2
        return x

    def persisted():
        return da.from_array(np.ones(3), chunks=3).persist(scheduler="sync")

    x = persisted()
    compute(da.apply_gufunc(double, "()->()", x, output_dtypes=float))
    np.testing.assert_array_equal(compute(x), 2)  # what was persisted has changed

    x = persisted()
    with pytest.raises(ValueError, match="read-only"):
        compute(au.apply_ufunc(double, "()->()", x, output_dtypes=float))
    np.testing.assert_array_equal(compute(au.apply_ufunc(double, "()->()", x, writable=True, output_dtypes=float)), 2)
    np.testing.assert_array_equal(compute(x), 1)


@difference("trial-call")
def test_kernel_is_tried_with_its_real_core_sizes(x):
    def tried(apply, **options):
        shapes = []
        apply(lambda x: shapes.append(x.shape) or total(x), "(n)->()", x, **options)
        return shapes

    assert tried(da.apply_gufunc) == [(1, 1)]
    assert tried(au.apply_ufunc) == [(1, 6)]
    assert tried(da.apply_gufunc, vectorize=True) == [(1,)]
    assert tried(au.apply_ufunc, vectorize=True) == [(6,)]


@difference("kept-axis")
def test_kept_axis_goes_where_axes_puts_it():
    def shape(apply, axes):
        return apply(total, "(n)->()", da.ones((2, 3, 4)), keepdims=True, axes=axes, output_dtypes=float).shape

    assert shape(da.apply_gufunc, [0, -1]) == (1, 3, 4)
    assert shape(au.apply_ufunc, [0, -1]) == (3, 4, 1)
    assert shape(da.apply_gufunc, [0]) == shape(au.apply_ufunc, [0]) == (1, 3, 4)


@difference("masked-items")
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
def test_masked_items_stay_masked_when_vectorized():
    x = da.ma.masked_equal(da.from_array(np.arange(3.0), chunks=3), 1)
    options = {"vectorize": True, "output_dtypes": float}
    there = compute(da.apply_gufunc(lambda x: x + 1, "()->()", x, **options))
    assert type(there) is np.ndarray
    assert np.isnan(there[1])
    here = compute(au.apply_ufunc(lambda x: x + 1, "()->()", x, **options))
    assert here.tolist() == [1, None, 3]


@difference("array-names")
def test_arrays_are_named_by_their_kernel(x):
    assert not da.apply_gufunc(total, "(n)->()", x, output_dtypes=float).name.startswith("total")
    assert au.apply_ufunc(total, "(n)->()", x, output_dtypes=float).name.startswith("total-")


@difference("empty-batches")
def test_kernel_is_not_called_for_no_items(x):
    def fail(x):
        raise AssertionError("called")

    with pytest.raises(AssertionError):
        compute(da.apply_gufunc(fail, "(n)->()", x[:0], output_dtypes=float))
    assert compute(au.apply_ufunc(fail, "(n)->()", x[:0], output_dtypes=float)).shape == (0,)


# dask.array.apply_gufunc: refused here


@difference("core-size-1")
def test_core_dims_of_size_1_do_not_broadcast(x):
    column = da.ones((4, 1), chunks=(2, 1))
    np.testing.assert_array_equal(
        compute(da.apply_gufunc(dot, "(n),(n)->()", x, column, output_dtypes=float)), [15, 51, 87, 123]
    )
    with pytest.raises(au.DimensionError, match="core dimension 'n' is 6 in argument 0 and 1 in argument 1"):
        au.apply_ufunc(dot, "(n),(n)->()", x, column, output_dtypes=float)
    np.testing.assert_array_equal(
        compute(au.apply_ufunc(dot, "(n),(n|1)->()", x, column, output_dtypes=float)), [15, 51, 87, 123]
    )


@difference("fixed-sizes")
def test_sizes_in_a_signature_are_enforced(y):
    assert da.apply_gufunc(lambda y: y, "(3)->(3)", y, output_dtypes=float).shape == (6,)
    with pytest.raises(au.DimensionError, match="argument 0: core dimension fixed to 3, got 6"):
        au.apply_ufunc(lambda y: y, "(3)->(3)", y, output_dtypes=float)


@difference("output-shapes")
def test_wrong_output_shapes_are_refused(x):
    there = da.apply_gufunc(lambda x: x[..., :3], "(n)->(n)", x, output_dtypes=float)
    assert (there.shape, compute(there).shape) == ((4, 6), (4, 3))
    with pytest.raises(au.OutputShapeError, match="core dimension n: expected 6, kernel returned 3"):
        compute(au.apply_ufunc(lambda x: x[..., :3], "(n)->(n)", x, output_dtypes=float))


@difference("output-dtypes")
@pytest.mark.parametrize("vectorize", [False, True])
def test_wrong_output_dtypes_are_refused(x, vectorize):
    def half(x):
        return x.sum(axis=-1) + 0.5

    there = da.apply_gufunc(half, "(n)->()", x, output_dtypes=int, vectorize=vectorize)
    assert there.dtype == np.int64
    assert compute(there)[0] == (15 if vectorize else 15.5)
    with pytest.raises(au.OutputDTypeError, match="returned float64, which does not cast to the declared int64"):
        compute(au.apply_ufunc(half, "(n)->()", x, output_dtypes=int, vectorize=vectorize))


@difference("cut-text")
def test_text_is_not_cut(y):
    options = {"output_dtypes": "U2", "vectorize": True}
    assert compute(da.apply_gufunc(lambda y: "hello", "(n)->()", y, **options)) == "h"
    with pytest.raises(au.OutputRangeError, match="would cut"):
        compute(au.apply_ufunc(lambda y: "hello", "(n)->()", y, **options))


@difference("unused-sizes")
def test_sizes_of_dims_that_no_output_has_are_refused(x):
    assert da.apply_gufunc(total, "(n)->()", x, output_sizes={"k": 2}, output_dtypes=float).shape == (4,)
    with pytest.raises(au.OptionError, match="output_sizes names dimension 'k'"):
        au.apply_ufunc(total, "(n)->()", x, output_sizes={"k": 2}, output_dtypes=float)


@difference("shared-names")
def test_names_of_options_that_are_also_the_kernels_are_refused(x):
    def total(x, vectorize=False):
        return x.sum(axis=-1) + vectorize

    assert compute(da.apply_gufunc(total, "(n)->()", x, vectorize=False, output_dtypes=float))[0] == 15
    with pytest.raises(au.OptionError, match="'vectorize' is an option and also a parameter of kernel 'total'"):
        au.apply_ufunc(total, "(n)->()", x, vectorize=False, output_dtypes=float)
    assert compute(au.apply_ufunc(total, "(n)->()", x, kwargs={"vectorize": True}, output_dtypes=float))[0] == 16


@difference("lazy-keywords")
def test_dask_arrays_in_keywords_are_refused(x, y):
    def weighted(x, weights):
        return (x * weights).sum(axis=-1)

    there = compute(da.apply_gufunc(weighted, "(n)->()", x, weights=y, output_dtypes=float))
    with pytest.raises(au.ArgumentError, match="keyword weights is a lazy dask array"):
        au.apply_ufunc(weighted, "(n)->()", x, weights=y, output_dtypes=float)
    here = compute(au.apply_ufunc(weighted, "(n),(n)->()", x, y, output_dtypes=float))
    np.testing.assert_array_equal(here, there)


@difference("subclasses")
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_of_numpy_arrays_are_refused():
    x = np.matrix([[1, 2]])
    assert type(compute(da.apply_gufunc(lambda x: x, "()->()", x, output_dtypes=int))) is np.matrix
    with pytest.raises(au.ArgumentError, match=r"argument 0 is a numpy\.matrix"):
        au.apply_ufunc(lambda x: x, "()->()", x, output_dtypes=int)


@difference("needless-axis")
def test_axis_without_a_core_dim_is_refused(y):
    assert da.apply_gufunc(lambda y: y, "()->()", y, axis=0, output_dtypes=float).shape == (6,)
    with pytest.raises(au.OptionError, match="axis needs a single core dim"):
        au.apply_ufunc(lambda y: y, "()->()", y, axis=0, output_dtypes=float)


@difference("signature-text")
@pytest.mark.parametrize("signature", ["(é)->()", "(2n)->()", "(n),->()"])
def test_dims_are_ascii_identifiers_and_inputs_end_without_a_comma(signature, x):
    assert da.apply_gufunc(total, signature, x, output_dtypes=float).shape == (4,)
    with pytest.raises(au.SignatureError):
        au.apply_ufunc(total, signature, x, output_dtypes=float)


@difference("error-types")
def test_errors_are_of_one_family_and_of_the_builtin_that_numpy_raises(x):
    def refusal(apply, *args, **options):
        with pytest.raises((ValueError, TypeError, KeyError)) as caught:
            apply(*args, output_dtypes=float, **options)
        return type(caught.value)

    for args, there, here in [
        ((dot, "(n),(n)->()", x), ValueError, au.ArgumentError),
        ((total, "(n)->(k)", x), KeyError, au.UnknownSizeError),
        ((total, ["n"], x), TypeError, au.SignatureError),
    ]:
        assert refusal(da.apply_gufunc, *args) is there
        assert refusal(au.apply_ufunc, *args) is here
        assert issubclass(here, au.ApplyUfuncError)
    with pytest.raises(TypeError):
        np.vecdot(np.ones(2))
    assert issubclass(au.ArgumentError, TypeError)


# dask.array.apply_gufunc: refused there


@difference("loop-chunks")
def test_loop_chunks_are_unified(x):
    with pytest.raises(ValueError, match="different chunksize"):
        da.apply_gufunc(np.add, "(),()->()", x, x.rechunk((4, 6)), output_dtypes=float)
    here = au.apply_ufunc(np.add, "(),()->()", x, x.rechunk((4, 6)), output_dtypes=float)
    assert here.chunks == x.chunks
    np.testing.assert_array_equal(compute(here), compute(x + x))


@difference("unknown-sizes")
def test_several_arguments_may_have_unknown_sizes(y):
    u = y[y > 1]
    with pytest.raises(ValueError, match="different lengths"):
        da.apply_gufunc(np.add, "(),()->()", u, u + 1, output_dtypes=float)
    np.testing.assert_array_equal(
        compute(au.apply_ufunc(np.add, "(),()->()", u, u + 1, output_dtypes=float)), [5, 7, 9, 11]
    )


@difference("larger-outputs")
def test_dims_may_become_larger(x):
    def twice(x):
        return np.concatenate([x, x], axis=-1)

    with pytest.raises(ValueError, match="multiple chunks"):
        da.apply_gufunc(twice, "(n)->(n)", x, output_sizes={"n": 12}, output_dtypes=float)
    here = au.apply_ufunc(twice, "(n)->(n)", x, output_sizes={"n": 12}, output_dtypes=float)
    np.testing.assert_array_equal(compute(here), twice(compute(x)))


@difference("names-with-hyphens")
def test_names_of_kernels_may_have_hyphens(x):
    def kernel(x):
        return total(x)

    kernel.__name__ = "a-b"
    with pytest.raises(ValueError, match="too many values"):
        da.apply_gufunc(kernel, "(n)->()", x, output_dtypes=float)
    np.testing.assert_array_equal(compute(au.apply_ufunc(kernel, "(n)->()", x, output_dtypes=float)), [15, 51, 87, 123])


@difference("keyword-names")
def test_keywords_may_have_names_that_mean_something_to_dask(x):
    def scaled(x, name, token):
        return name * token * total(x)

    with pytest.raises(ValueError, match="not enough values"):
        da.apply_gufunc(scaled, "(n)->()", x, name=2, token=1, output_dtypes=float)
    here = au.apply_ufunc(scaled, "(n)->()", x, name=2, token=1, output_dtypes=float)
    np.testing.assert_array_equal(compute(here), [30, 102, 174, 246])


@difference("one-dtype-for-all")
@pytest.mark.parametrize(
    "options", [{"output_dtypes": float}, {"meta": np.empty(0)}], ids=lambda options: next(iter(options))
)
def test_one_dtype_may_stand_for_all_outputs(x, options):
    with pytest.raises((TypeError, ValueError)):
        da.apply_gufunc(total_and_peak, "(n)->(),()", x, **options)
    np.testing.assert_array_equal(
        compute(au.apply_ufunc(total_and_peak, "(n)->(),()", x, **options)), total_and_peak(compute(x))
    )


@difference("meta-and-dtypes")
def test_output_dtypes_go_before_those_of_meta(x):
    options = {"output_dtypes": "f8", "meta": np.empty(0, "f4")}
    with pytest.raises(ValueError, match="Only one of"):
        da.apply_gufunc(total, "(n)->()", x, **options)
    here = au.apply_ufunc(total, "(n)->()", x, **options)
    assert here.dtype == compute(here).dtype == np.float64


@difference("always-a-tuple")
def test_comma_at_the_end_gives_a_tuple(x):
    with pytest.raises(ValueError, match="Not a valid gufunc signature"):
        da.apply_gufunc(lambda x: (total(x),), "(n)->(),", x, output_dtypes=float)
    (here,) = au.apply_ufunc(lambda x: (total(x),), "(n)->(),", x, output_dtypes=float)
    np.testing.assert_array_equal(compute(here), [15, 51, 87, 123])


@difference("integers")
def test_axis_may_be_an_integer_of_numpy(x):
    x = x.rechunk((4, 3))
    with pytest.raises(ValueError, match="has to be an integer"):
        da.apply_gufunc(total, "(n)->()", x, axis=np.int64(0), output_dtypes=float)
    here = au.apply_ufunc(total, "(n)->()", x, axis=np.int64(0), output_dtypes=float)
    np.testing.assert_array_equal(compute(here), compute(x.sum(axis=0)))


@difference("kept-dims")
def test_keepdims_counts_core_dims_and_does_not_compare_their_names(x, y):
    def product(x, y):
        return x.sum(axis=-1) * y.sum(axis=-1)

    with pytest.raises(ValueError, match="have to be equal"):
        da.apply_gufunc(product, "(m),(n)->()", x, y, keepdims=True, output_dtypes=float)
    here = au.apply_ufunc(product, "(m),(n)->()", x, y, keepdims=True, output_dtypes=float)
    np.testing.assert_array_equal(compute(here), compute(x).sum(axis=-1, keepdims=True) * 15)


# array_api_extra.lazy_apply: another result


@pytest.fixture
def z():
    return da.from_array(np.arange(4.0), chunks=2)


@difference("lazy-read-only")
def test_func_cannot_change_its_inputs_where_a_result_is_lazy(z):
    def double(z):
        z *= 2
        return z

    np.testing.assert_array_equal(compute(xpx.lazy_apply(double, z)), [0, 2, 4, 6])
    with pytest.raises(ValueError, match="read-only"):
        compute(au.lazy_apply(double, z))
    for lazy_apply in (xpx.lazy_apply, au.lazy_apply):
        np.testing.assert_array_equal(lazy_apply(double, np.arange(4.0)), [0, 2, 4, 6])


@difference("lazy-scalars")
def test_python_scalars_stay_so_under_jit():
    jax = pytest.importorskip("jax")

    def seen(lazy_apply):
        types = []
        call = jax.jit(lambda x: lazy_apply(lambda x, two: types.append(type(two)) or x, x, 2))
        jax.block_until_ready(call(jax.numpy.ones(3)))
        return types[0]

    assert issubclass(seen(xpx.lazy_apply), jax.Array)
    assert seen(au.lazy_apply) is int


@difference("lazy-masks")
@pytest.mark.parametrize("as_numpy", [False, True])
def test_masks_are_kept(as_numpy):
    x = np.ma.masked_equal([1, 2], 1)

    def result(lazy_apply, x):
        return lazy_apply(lambda x: x + 1, x, as_numpy=as_numpy)

    assert type(result(xpx.lazy_apply, x)) is np.ndarray
    assert result(au.lazy_apply, x).tolist() == [None, 3]
    assert type(compute(result(xpx.lazy_apply, da.from_array(x)))) is np.ndarray
    assert compute(result(au.lazy_apply, da.from_array(x))).tolist() == [None, 3]


@difference("lazy-names")
def test_lazy_results_are_named_by_func(z):
    assert not xpx.lazy_apply(np.sort, z).name.startswith("sort")
    assert au.lazy_apply(np.sort, z).name.startswith("sort-")


# array_api_extra.lazy_apply: refused here


@difference("lazy-shapes")
def test_wrong_shapes_are_refused_where_a_result_is_lazy(z):
    there = xpx.lazy_apply(lambda z: z[:2], z)
    assert (there.shape, compute(there).shape) == ((4,), (2,))
    with pytest.raises(au.OutputShapeError, match="expected 4, kernel returned 2"):
        compute(au.lazy_apply(lambda z: z[:2], z))


@difference("lazy-dtypes")
def test_wrong_dtypes_are_refused_where_a_result_is_lazy(z):
    z = z.astype(int)
    there = xpx.lazy_apply(lambda z: z / 2, z)
    assert (there.dtype, compute(there).dtype) == (np.int64, np.float64)
    with pytest.raises(au.OutputDTypeError, match="returned float64"):
        compute(au.lazy_apply(lambda z: z / 2, z))


@difference("lazy-outputs")
def test_wrong_number_of_outputs_is_refused_where_a_result_is_lazy(z):
    np.testing.assert_array_equal(compute(xpx.lazy_apply(lambda z: (z, z, z), z, shape=((4,), (4,)))[0]), compute(z))
    with pytest.raises(au.OutputShapeError, match="of 3, expected a tuple of 2"):
        compute(au.lazy_apply(lambda z: (z, z, z), z, shape=((4,), (4,)))[0])


@difference("lazy-tuples")
def test_tuple_is_no_array_where_a_result_is_lazy(z):
    np.testing.assert_array_equal(compute(xpx.lazy_apply(tuple, z)), compute(z))
    with pytest.raises(au.OutputShapeError, match="a tuple of 4, expected one array"):
        compute(au.lazy_apply(tuple, z))
    np.testing.assert_array_equal(compute(au.lazy_apply(list, z)), compute(z))


@difference("lazy-arrays-in-keywords")
def test_lazy_arrays_in_keywords_of_lazy_apply_are_refused(z):
    def scale(z, by):
        return z * by

    np.testing.assert_array_equal(compute(xpx.lazy_apply(scale, z, by=z)), compute(z * z))
    with pytest.raises(au.ArgumentError, match="keyword by is a lazy dask array"):
        au.lazy_apply(scale, z, by=z)
    np.testing.assert_array_equal(compute(au.lazy_apply(scale, z, z)), compute(z * z))


@difference("lazy-subclasses")
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_lazy_apply_refuses_subclasses_of_numpy_arrays():
    x = np.matrix([[1, 2]])
    assert type(xpx.lazy_apply(lambda x: x, x)) is np.ndarray
    with pytest.raises(au.ArgumentError, match=r"argument 0 is a numpy\.matrix"):
        au.lazy_apply(lambda x: x, x)


@difference("lazy-transfers")
def test_blocks_are_not_made_dense_unasked():
    sparse = pytest.importorskip("sparse")
    x = da.from_array(np.eye(2)).map_blocks(sparse.COO.from_numpy)
    there = xpx.lazy_apply(lambda x: x, x, as_numpy=True)
    with pytest.raises(RuntimeError, match="dense"):
        compute(there)
    with pytest.raises(au.TransferError, match="made dense"):
        au.lazy_apply(lambda x: x, x, as_numpy=True)


@difference("lazy-leave")
def test_leave_is_an_option_of_lazy_apply():
    def double(x, allow_transfer=False):
        return x * (2 if allow_transfer else 1)

    x = np.ones(2)
    np.testing.assert_array_equal(xpx.lazy_apply(double, x, allow_transfer=True), [2, 2])
    np.testing.assert_array_equal(au.lazy_apply(double, x, allow_transfer=True), [1, 1])


@difference("lazy-force")
def test_arrays_are_made_dense_with_leave():
    sparse = pytest.importorskip("sparse")
    x = sparse.COO.from_numpy(np.eye(2))
    for apply in (xpx.lazy_apply, au.lazy_apply):
        with pytest.raises(RuntimeError, match="dense"):
            apply(np.negative, x, as_numpy=True)
    with au.allow_transfer():
        there_still = au.lazy_apply(np.negative, x, as_numpy=True)
    for result in (there_still, au.lazy_apply(np.negative, x, as_numpy=True, allow_transfer=True)):
        np.testing.assert_array_equal(result.todense(), -np.eye(2))


@difference("lazy-error-types")
def test_errors_of_lazy_apply_are_of_one_family():
    x = np.ones(3)
    for args, options, here in [
        ((), {}, au.ArgumentError),
        ((x,), {"shape": (3,), "dtype": [float]}, au.OptionError),
        ((x, np.ones(2)), {}, au.DimensionError),
    ]:
        with pytest.raises(ValueError):  # noqa: PT011  # whichever of its messages
            xpx.lazy_apply(np.sort, *args, **options)
        with pytest.raises(here):
            au.lazy_apply(np.sort, *args, **options)
    assert (issubclass(au.OptionError, TypeError), issubclass(au.DimensionError, ValueError)) == (True, True)


# array_api_extra.lazy_apply: refused there


@difference("lazy-vmap")
@pytest.mark.parametrize("as_numpy", [False, True])
@pytest.mark.parametrize("transform", ["vmap", "jit(vmap)"])
def test_lazy_apply_takes_part_in_vmap(as_numpy, transform):
    jax = pytest.importorskip("jax")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def batched(lazy_apply):
        call = jax.vmap(lambda x: lazy_apply(lambda x: x[::-1] * 1, x, as_numpy=as_numpy))
        return (jax.jit(call) if transform == "jit(vmap)" else call)(x)

    with pytest.raises((NotImplementedError, TypeError, AssertionError)):
        batched(xpx.lazy_apply)
    np.testing.assert_array_equal(batched(au.lazy_apply), x[:, ::-1])


@difference("lazy-mixtures")
def test_lazy_apply_takes_numpy_arrays_and_lists_with_another_library(z):
    for other in (np.ones(4), [1.0, 1.0, 1.0, 1.0]):
        with pytest.raises(TypeError):
            xpx.lazy_apply(np.add, z, other)
        np.testing.assert_array_equal(compute(au.lazy_apply(np.add, z, other)), [1, 2, 3, 4])


@difference("lazy-sizes")
@pytest.mark.parametrize("size", [np.int64(4), float("nan")])
def test_shape_takes_integers_of_numpy_and_nan(z, size):
    with pytest.raises(TypeError, match="not iterable"):
        xpx.lazy_apply(np.sort, z, shape=(size,))
    np.testing.assert_array_equal(compute(au.lazy_apply(np.sort, z, shape=(size,))), [0, 1, 2, 3])


@difference("lazy-broadcast")
def test_unknown_sizes_broadcast_with_known_ones(z):
    u = z[z > 1]
    with pytest.raises(ValueError, match="shape mismatch"):
        xpx.lazy_apply(np.add, u, da.ones(2))
    assert au.lazy_apply(np.add, u, da.ones(2)).shape == (2,)


@difference("lazy-text")
def test_dtype_may_be_text(z):
    with pytest.raises(ValueError, match="multiple dtypes"):
        xpx.lazy_apply(np.sort, z, dtype="float32")
    assert compute(au.lazy_apply(np.sort, z, dtype="float32")).dtype == np.float32


@difference("lazy-x64")
def test_dtype_of_64_bits_is_narrowed_by_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones(2)

    def call(lazy_apply):
        return jax.jit(lambda x: lazy_apply(np.sort, x, dtype=np.float64, as_numpy=True))(x)

    with pytest.raises(ValueError, match="64-bit"):
        call(xpx.lazy_apply)
    with pytest.warns(UserWarning, match="float64"):
        assert call(au.lazy_apply).dtype == np.float32


@difference("lazy-bounds")
def test_shape_takes_upper_bounds(z):
    with pytest.raises(ValueError, match="multiple shapes"):
        xpx.lazy_apply(np.flatnonzero, z, shape=(au.UpTo(5),), dtype=int)
    np.testing.assert_array_equal(
        compute(au.lazy_apply(np.flatnonzero, z, shape=(au.UpTo(5),), dtype=int)), [1, 2, 3, 0, 0]
    )


# The page


def rows_of_the_page():
    return re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_the_page_lists_exactly_the_differences_that_are_tested():
    assert Counter(rows_of_the_page()) == Counter(DIFFERENCES)
