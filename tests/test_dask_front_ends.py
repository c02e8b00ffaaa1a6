"""One lowering for three front ends: `dask.array`, its expressions (``array.query-planning``), and `dask_array`.

Dask reads its mode once, when `dask.array` is imported: the expressions are tested by this same file in a process of
its own. What a front end itself lacks is skipped, with the reason.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from drawn_calls import drawn_calls
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

dask = pytest.importorskip("dask")
pytest.importorskip("dask.array")
Callback = pytest.importorskip("dask.callbacks").Callback
cloudpickle = pytest.importorskip("cloudpickle")

EXPRESSIONS = os.environ.get("DASK_ARRAY__QUERY_PLANNING") == "True"
X = np.arange(24.0).reshape(4, 6)


class FrontEnd:
    """A module that makes lazy arrays."""

    def __init__(self, module, name, share):
        self.da = pytest.importorskip(module)
        self.name = name
        self.share = share  # of the examples that Hypothesis draws for `dask.array`

    def attempt(self, what, build):
        """Return what a front end builds; skip where that front end itself does not have it."""
        try:
            return build()
        except (NotImplementedError, AttributeError) as error:
            if self.name == "dask.array":
                raise
            pytest.skip(f"{self.name} itself lacks {what}: {error!r}")

    def put(self, array, data, smallest=0):
        """Return a NumPy array in drawn chunks."""
        return self.da.from_array(array, chunks=tuple(data.draw(chunkings(size, smallest)) for size in array.shape))


NAMES = ["expressions"] if EXPRESSIONS else ["dask.array", "dask_array"]


@pytest.fixture(params=NAMES)
def front_end(request):
    module = "dask_array" if request.param == "dask_array" else "dask.array"
    return FrontEnd(module, request.param, 1.0 if request.param == "dask.array" else 0.3)


@pytest.fixture
def da(front_end):
    return front_end.da


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def chunkings(size, smallest=0):
    """Draw chunks of an axis; an axis without elements has one of 0 at least."""
    if size == 0 and smallest:
        return st.just((0,))
    cuts = st.lists(st.integers(smallest, size - smallest), max_size=3, unique=smallest > 0).map(sorted)
    cuts = cuts if size >= 2 * smallest else st.just([])
    return cuts.map(lambda cut: tuple(b - a for a, b in itertools.pairwise([0, *cut, size])))


class Counting:
    """A kernel that keeps the shapes that it was called with."""

    def __init__(self, func):
        self.func = func
        self.shapes = []

    def __call__(self, *args):
        self.shapes.append(tuple(np.shape(arg) for arg in args))
        return self.func(*args)


def total(rows):
    return rows.sum(axis=-1)


def extent_and_double(rows):
    return rows.max(axis=-1) - rows.min(axis=-1), rows * 2


def fail(*blocks):
    raise AssertionError("a block was computed")


def check_equal(lazy, expected, da):
    assert type(lazy) is type(da.ones(1))
    value = lazy.compute()
    np.testing.assert_array_equal(value, expected)
    assert np.shape(value) == np.shape(expected) == lazy.shape
    assert value.dtype == np.asarray(expected).dtype == lazy.dtype


# Which front end


def test_the_front_end_is_the_one_that_this_process_is_for(front_end):
    module = type(front_end.da.ones(1)).__module__
    expected = {
        "dask.array": r"dask\.array\.core",
        "expressions": r"dask\.array\._array_expr",
        "dask_array": "dask_array",
    }
    assert re.match(expected[front_end.name], module)


ASK_FOR_MODE = "import dask.array as da; print(type(da.ones(1)).__module__)"


@pytest.mark.skipif(EXPRESSIONS, reason="this is that process")
def test_the_expressions_of_dask_array_pass_this_file_in_a_process_of_its_own():
    environment = os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True", "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*command):
        return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=False)

    if "_array_expr" not in run("-c", ASK_FOR_MODE).stdout:
        pytest.skip(f"dask {dask.__version__} has no expressions for arrays")
    finished = run("-m", "pytest", __file__, "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist")
    print(finished.stdout)  # with the reasons of what was skipped
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > 15


@pytest.mark.skipif(EXPRESSIONS, reason="dask_array is tested in the other process")
@pytest.mark.parametrize("first", ["dask.array", "dask_array"])
def test_arrays_of_two_front_ends_do_not_mix(first):
    modules = [pytest.importorskip(name) for name in ("dask.array", "dask_array")]
    lazy = [module.ones((4, 6), chunks=2) for module in modules]
    lazy = lazy if first == "dask.array" else lazy[::-1]
    named = "argument 0 is from dask_array, argument 2 is from dask"
    named = named if first == "dask_array" else "argument 0 is from dask, argument 2 is from dask_array"
    with pytest.raises(au.ArgumentError, match=f"^{named}: arrays of two libraries do not mix"):
        au.apply_ufunc(fail, "(),(),()->()", lazy[0], X, lazy[1], output_dtypes=float)


@pytest.mark.skipif(EXPRESSIONS, reason="dask_array is tested in the other process")
def test_dask_array_is_imported_only_when_its_array_arrives():
    program = (
        "import sys, applyufunc as au, dask.array as da\n"
        "au.apply_ufunc(abs, '()->()', da.ones(3), output_dtypes=float)\n"
        "print('dask_array' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert printed.stdout.strip() == "False"


# Building


@pytest.mark.parametrize("outputs", ["()", "(n)", "(),(n)"])
def test_nothing_is_computed_while_a_result_is_built(da, outputs):
    def scheduler(*args, **keywords):
        raise AssertionError("building a lazy result computed something")

    x, y = da.ones((4, 6), chunks=(2, 2)), da.ones((6,), chunks=3)
    with dask.config.set(scheduler=scheduler):
        result = au.apply_ufunc(fail, f"(n),(n)->{outputs}", x, y, output_dtypes=float)
    results = result if isinstance(result, tuple) else (result,)
    assert [type(each) for each in results] == [type(x)] * len(results)
    with pytest.raises(AssertionError, match="a block was computed"):
        results[0].compute()


@pytest.mark.parametrize("outputs", ["()", "(),(n)"])
def test_explained_tasks_are_those_of_the_graph_that_a_scheduler_gets(da, outputs):
    kernel = au.gufunc(f"(n)->{outputs}", output_dtypes=float)(total if outputs == "()" else extent_and_double)
    x = da.ones((8, 6), chunks=(2, 2)) + 1
    explained, result, lengths = kernel.explain(x), kernel(x), []
    with Callback(start=lambda graph: lengths.append(len(graph))):
        dask.persist(*(result if isinstance(result, tuple) else (result,)))
    assert (explained.n_tasks, explained.n_tasks_is_estimate, explained.n_blocks) == (lengths[0], False, 4)


def two_outputs(da, n_blocks):
    n = int(n_blocks**0.5)
    a, b = da.zeros((n, n, 4), chunks=(1, 1, 4)), da.ones((n, n, 4), chunks=(1, 1, 4))
    return au.apply_ufunc(lambda a, b: ((a * b).sum(-1), a + b), "(n),(n)->(),(n)", a, b, output_dtypes=float)


def test_a_result_is_as_small_for_a_million_blocks_as_for_a_hundred(da):
    few = two_outputs(da, 100)
    start = time.perf_counter()
    many = two_outputs(da, 1_000_000)
    elapsed = time.perf_counter() - start
    assert many[0].numblocks == (1000, 1000)
    sizes = [len(cloudpickle.dumps(arrays)) for arrays in (few, many)]
    chunks = 900 * 2 * 24  # bytes for that many more numbers, in chunks, locations and sources
    assert sizes[1] < sizes[0] + chunks
    assert elapsed < 1.0  # a dict of a million tasks alone takes several


def test_outputs_that_are_computed_together_run_the_kernel_once_per_block(da):
    counting = Counting(extent_and_double)
    lazy = da.from_array(X, chunks=(1, 3)) * 1
    extent, double = au.apply_ufunc(counting, "(n)->(),(n)", lazy, output_dtypes=float)
    computed = dask.compute(extent + 1, double, double[:, 0] - extent)
    assert counting.shapes == [((1, 6),)] * 4
    np.testing.assert_array_equal(computed[0], np.full(4, 6.0))
    np.testing.assert_array_equal(computed[1], X * 2)
    np.testing.assert_array_equal(computed[2], X[:, 0] * 2 - 5)


def test_a_part_of_a_result_runs_the_kernel_on_the_blocks_that_it_needs(da):
    counting = Counting(extent_and_double)
    extent, double = au.apply_ufunc(counting, "(n)->(),(n)", da.from_array(X, chunks=(1, 3)), output_dtypes=float)
    np.testing.assert_array_equal(extent[:1].compute(), [5.0])
    assert len(counting.shapes) == 1
    np.testing.assert_array_equal(double[1:3, ::2].compute(), X[1:3, ::2] * 2)
    assert len(counting.shapes) == 3
    for part in (np.s_[:0], np.s_[2], np.s_[::-1]):
        np.testing.assert_array_equal(extent[part].compute(), np.full(4, 5.0)[part])
        np.testing.assert_array_equal(double[part].compute(), X[part] * 2)


def test_equal_calls_have_one_name_and_others_have_others(da):
    def name(lazy, **options):
        return au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float, **options).name

    one, other = (name(da.ones((4, 6), chunks=2)) for _ in range(2))
    assert one == other
    assert one.startswith("total-")
    assert len({one, name(da.zeros((4, 6), chunks=2)), name(da.ones((4, 6), chunks=2), vectorize=True)}) == 3


def test_a_result_pickles(da):
    extent, double = au.apply_ufunc(
        extent_and_double, "(n)->(),(n)", da.from_array(X, chunks=(2, 3)), output_dtypes=float
    )
    loaded = cloudpickle.loads(cloudpickle.dumps((extent, double)))
    assert [array.name for array in loaded] == [extent.name, double.name]
    check_equal(loaded[1], X * 2, da)


# Values


def test_results_are_those_of_a_plain_loop(front_end):
    @examples(int(100 * front_end.share))
    @given(drawn_calls(), st.data())
    def check(drawn, data):
        lazy = [front_end.put(arg, data) for arg in drawn.args]
        result = au.apply_ufunc(drawn.kernel, drawn.signature, *lazy, **drawn.options)
        results = result if isinstance(result, tuple) else (result,)
        for lazy_result, expected in zip(results, drawn.expected, strict=True):
            got = lazy_result.compute()  # by itself: the expressions mix up empty arrays that are computed together
            np.testing.assert_array_equal(got, expected)
            assert (np.shape(got), got.dtype) == (expected.shape, expected.dtype)

    check()


def test_core_chunks_are_merged_and_loop_chunks_unified(da):
    a, b = da.from_array(X, chunks=(2, 2)), da.ones((4, 6), chunks=(3, 2))
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(t),(t)->()", a, b, output_dtypes=float)
    assert result.chunks == ((2, 2),)
    check_equal(result, X.sum(axis=-1), da)


def test_arguments_that_take_several_steps_to_rechunk_are_what_they_were(da):
    x = np.arange(32.0**2).reshape(32, 32)
    columns, rows = da.from_array(x, chunks=(32, 1)), da.from_array(x, chunks=(1, 32))
    check_equal(au.apply_ufunc(np.cumsum, "(n)->(n)", columns, kwargs={"axis": -1}, budget="keep"), x.cumsum(-1), da)
    check_equal(au.apply_ufunc(np.subtract, "(),()->()", columns, rows), np.zeros((32, 32)), da)


def test_host_arrays_are_cut_as_the_lazy_ones_and_a_slice_sees_its_own_part(da):
    result = au.apply_ufunc(np.subtract, "(),()->()", da.from_array(X, chunks=(2, 3)), X * 3, output_dtypes=float)
    assert result.chunks == ((2, 2), (3, 3))
    check_equal(result, X * -2, da)
    for part in (np.s_[2:], np.s_[3, 4], np.s_[1:3, ::-1], np.s_[:, 3:5]):
        np.testing.assert_array_equal(result[part].compute(), X[part] * -2)


@pytest.mark.parametrize("signature", ["(),(),()->()", "(),(),()->(),()"])
def test_an_axis_that_a_fused_producer_made_broadcasts_over_many_blocks(da, signature):
    row = da.ones(6, chunks=2).map_blocks(lambda b: b[None], new_axis=0, dtype=float, chunks=((1,), (2, 2, 2)))
    lazy = da.from_array(X, chunks=(2, 2)) + 1
    kernel = (lambda a, b, c: (a, a + b + c)) if "," in signature.partition("->")[2] else (lambda a, b, c: a + b + c)
    result = au.apply_ufunc(kernel, signature, row, lazy, np.zeros(6), output_dtypes=float)
    result = result[-1] if isinstance(result, tuple) else result
    check_equal(result + 1, X + 3, da)
    np.testing.assert_array_equal((result[2:] + 1).compute(), X[2:] + 3)


def test_a_0d_result_stays_lazy(da):
    check_equal(au.apply_ufunc(total, "(n)->()", da.arange(5, chunks=2), output_dtypes=int), 10, da)


@pytest.mark.parametrize("chunks", [((0, 0), (0, 0)), ((0,), (0,))])
def test_an_empty_array_is_planned_too(da, chunks):
    lazy = da.from_array(np.ones((0, 0)), chunks=chunks)
    check_equal(au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float), np.ones(0), da)


def test_dtypes_are_learnt_from_a_call_on_one_item(da):
    counting = Counting(lambda rows: rows.sum(axis=-1) > 0)
    result = au.apply_ufunc(counting, "(n)->()", da.from_array(X, chunks=2))
    assert counting.shapes == [((1, 6),)]
    check_equal(result, X.sum(axis=-1) > 0, da)


def test_an_exception_says_in_which_block_it_was_raised(da):
    def kernel(rows):
        if rows[0, 0] == 12:
            raise ZeroDivisionError("boom")
        return rows.sum(axis=-1)

    result = au.apply_ufunc(kernel, "(n)->()", da.from_array(X, chunks=(2, 6)), output_dtypes=float) + 1
    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        result.compute()
    (note,) = (note for note in caught.value.__notes__ if "kernel" in note)
    assert "block [2:4] of the loop dimensions" in note


def test_a_lazy_keyword_is_refused_by_name(da):
    with pytest.raises(au.ArgumentError, match=r"keyword p is a lazy dask(_array)? array"):
        au.apply_ufunc(lambda rows, p: rows, "(n)->(n)", da.ones((4, 6)), p=da.ones(6), output_dtypes=float)


# Core dims that stay in chunks


def test_a_core_dim_is_reduced_where_its_chunks_lie(da):
    counting = Counting(lambda rows: (rows.sum(axis=-1), rows.max(axis=-1)))
    by_parts = au.Reduction(counting, lambda a, b, c, d: (a + c, np.maximum(b, d)), state="(n)->(),()")
    x = np.arange(96.0).reshape(4, 24)
    lazy = da.from_array(x, chunks=(2, 8)) * 1
    sums, largest = au.apply_ufunc(fail, "(n)->(),()", lazy, core_chunks=by_parts, output_dtypes=float)
    computed = dask.compute(sums + 1, largest)
    assert counting.shapes == [((2, 8),)] * 6
    np.testing.assert_array_equal(computed[0], x.sum(axis=-1) + 1)
    np.testing.assert_array_equal(computed[1], x.max(axis=-1))
    for part in (np.s_[:1], np.s_[2], np.s_[::-1], np.s_[:0]):
        np.testing.assert_array_equal(sums[part].compute(), x.sum(axis=-1)[part])


def test_reductions_that_are_ready_to_use(da):
    x = np.random.default_rng(0).normal(size=(3, 4, 10))
    lazy = da.from_array(x, chunks=(2, 4, 3))
    mean, var = dask.compute(*au.reductions.mean_var(lazy, axis=1))
    np.testing.assert_allclose(mean, x.mean(axis=1))
    np.testing.assert_allclose(var, x.var(axis=1))
    check_equal(au.reductions.argmax(lazy), x.argmax(axis=-1), da)
    dots = au.reductions.dot(lazy, x[0])
    np.testing.assert_allclose(dots.compute(), (x * x[0]).sum(axis=-1))
    np.testing.assert_allclose(dots[1:, ::2].compute(), (x * x[0]).sum(axis=-1)[1:, ::2])


def test_independent_dims_keep_their_chunks_and_a_slice_sees_its_own_part(da):
    x, y = np.arange(2 * 4 * 8.0).reshape(2, 4, 8), np.arange(24.0).reshape(8, 3)
    lazy, other = da.from_array(x, chunks=(1, 2, 4)), da.from_array(y, chunks=(2, 2))
    signature = "(m,n),(n,p)->(m,p)"
    by_parts = au.Reduction(np.matmul, np.add, state=signature, state_dtypes=float, independent=("m", "p"))
    options = {"core_chunks": by_parts, "output_dtypes": float}
    for right in (other, y):
        result = au.apply_ufunc(fail, signature, lazy, right, **options)
        assert result.chunks[:2] == ((1, 1), (2, 2))
        check_equal(result, x @ y, da)
        for part in (np.s_[1], np.s_[:, 3], np.s_[:, 1:3, ::-1], np.s_[:, :0]):
            np.testing.assert_array_equal(result[part].compute(), (x @ y)[part])


# Unknown sizes


def rows_above_two(front_end, chunks):
    lazy = front_end.da.from_array(np.arange(12.0).reshape(4, 3), chunks=chunks)
    return front_end.attempt("boolean indexing", lambda: lazy[lazy[:, 0] > 2])


def test_unknown_loop_chunks_pass_through(front_end):
    rows = rows_above_two(front_end, (2, 3))
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(n),(n)->()", rows, rows + 0, output_dtypes=float)
    assert np.isnan(result.shape[0])
    np.testing.assert_array_equal(result.compute(), [50.0, 149.0, 302.0])


def test_unknown_core_chunks_are_merged_by_concatenation(front_end):
    rows = rows_above_two(front_end, (2, 2))
    result = au.apply_ufunc(extent_and_double, "(i)->(),(i)", rows.T, output_dtypes=float)
    computed = dask.compute(*result)
    np.testing.assert_array_equal(computed[0], [6.0, 6.0, 6.0])
    np.testing.assert_array_equal(computed[1], np.arange(3.0, 12.0).reshape(3, 3).T * 2)


def test_unknown_core_chunks_are_reduced_where_they_lie(front_end):
    rows = rows_above_two(front_end, (2, 2))
    result = au.reductions.sum(rows.T)
    np.testing.assert_array_equal(result.compute(), [18.0, 21.0, 24.0])


def test_a_size_that_only_the_kernel_knows_is_passed_on(da):
    lazy = da.from_array(np.array([[3.0, 1.0, 3.0]]), chunks=(1, 2))
    unique = au.apply_ufunc(np.unique, "(n)->(k)", lazy, vectorize=True, output_sizes={"k": None}, output_dtypes=float)
    assert np.isnan(unique.shape[1])
    result = au.apply_ufunc(total, "(k)->()", unique, output_dtypes=float)
    np.testing.assert_array_equal(result.compute(), [4.0])


# Types of blocks


def test_masked_arrays_keep_their_mask(da):
    masked = np.ma.masked_array([[1.0, 2.0, 99.0], [3.0, 99.0, 5.0]], mask=[[0, 0, 1], [0, 1, 0]])
    result = au.apply_ufunc(
        lambda v: v.mean(axis=-1), "(i)->()", da.from_array(masked, chunks=(1, 2)), output_dtypes=float
    )
    assert isinstance(result._meta, np.ma.MaskedArray)
    np.testing.assert_array_equal(result.compute(), [1.5, 4.0])


def test_a_masked_host_array_makes_the_result_masked(da):
    masked = np.ma.masked_array([1.0, 2.0], mask=[0, 1])
    result = au.apply_ufunc(np.add, "(),()->()", da.ones(2, chunks=1), masked, output_dtypes=float)
    assert result.compute().tolist() == [2.0, None]


def test_sparse_blocks_stay_sparse(da):
    sparse = pytest.importorskip("sparse")
    eye = da.from_array(np.eye(4), chunks=(2, 2)).map_blocks(sparse.COO.from_numpy)
    with pytest.raises(au.TransferError, match=r"argument 0 is a sparse\..*COO that would be made dense"):
        au.apply_ufunc(fail, "(i)->()", eye, output_dtypes=float)
    result = au.apply_ufunc(total, "(i)->()", eye, kernel_arrays="same", output_dtypes=float)
    assert isinstance(result._meta, sparse.COO)
    computed = result.compute()
    assert isinstance(computed, sparse.COO)
    np.testing.assert_array_equal(computed.todense(), np.ones(4))


def test_lazy_apply_gives_whole_arrays(da):
    x = da.from_array(np.array([3, 1, 3]), chunks=2)
    result = au.lazy_apply(np.sort, x)
    assert (type(result), result.dtype) == (type(x), x.dtype)
    np.testing.assert_array_equal(result.compute(), [1, 3, 3])
    np.testing.assert_array_equal(au.lazy_apply(np.unique, x, shape=(None,)).compute(), [1, 3])
    np.testing.assert_array_equal(au.lazy_apply(np.unique, x, shape=(au.UpTo(3),)).compute(), [1, 3, 0])
    assert au.lazy_apply(np.multiply, x, 2.5).dtype == float


@pytest.mark.parametrize("dtype", ["U3", "O", "M8[s]", "c8", "?"])
def test_any_numpy_dtype_is_carried(da, dtype):
    x = np.array(["1", "2", "3", "4"]).astype("M8[s]" if dtype == "M8[s]" else "U3").astype(dtype)
    lazy = da.from_array(x, chunks=2)
    check_equal(au.apply_ufunc(lambda v: v[..., ::-1], "(n)->(n)", lazy, output_dtypes=dtype), x[::-1], da)


# Chains: a producer, gufuncs, consumers, in any order, each on a NumPy array and on a lazy one


GUFUNCS = {
    "()->()": lambda x: -x,
    "(n)->()": total,
    "(n)->(n)": lambda x: x[..., ::-1].cumsum(axis=-1),
    "(n)->(2)": lambda x: np.stack([x.sum(-1), x[..., :1].sum(-1)], axis=-1),
    "(n)->(),(n)": lambda x: (x.sum(-1), x * 2),
    "(n),()->(n),()": lambda x, a: (x + a[..., None], x.sum(-1) - a),
    # A remainder, so that values stay whole numbers that a float holds, whatever the order of a sum.
    "(n),(n)->()": lambda x, y: (x % 512 * (y % 512)).sum(-1),
    "(m,n),(n)->(m)": lambda x, y: (x % 512 * (y[..., None, :] % 512)).sum(-1),
    "(m,n)->(n,m),()": lambda x: (np.swapaxes(x, -1, -2), x.sum((-1, -2))),
}
"""Kernels that NumPy runs on whole arrays: on them, the kernel itself is the oracle.

No chunk of an array with elements is empty: Dask's own functions lose blocks then (``x % 2`` on chunks ``(1, 0)``).
"""


def add_one(x, lazy, data):
    return x + 1, lazy + 1


def transpose(x, lazy, data):
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    return x.transpose(order), lazy.transpose(order)


def cut(x, lazy, data):
    index = tuple(data.draw(_index(size)) for size in x.shape)
    return x[index], lazy[index]


def _index(size):
    slices = st.tuples(st.integers(0, size), st.integers(0, size), st.sampled_from([1, 1, 2]))
    forward = slices.map(lambda s: slice(min(s[:2]), max(s[:2]), s[2]))
    whole = st.just(slice(None)) | st.just(slice(None, None, -1)) | forward
    return whole if size == 0 else whole | st.integers(-size, size - 1)


def rechunk(x, lazy, data):
    return x, lazy.rechunk(tuple(data.draw(chunkings(size, 1)) for size in x.shape))


def new_axis(x, lazy, data):
    chunks = ((1,), *lazy.chunks)
    return x[None], lazy.map_blocks(lambda block: block[None], new_axis=0, dtype=float, chunks=chunks)


def add_axis(x, lazy, data):
    axis = data.draw(st.integers(0, x.ndim))
    index = (*[slice(None)] * axis, None)
    return x[index], lazy[index]


def sum_up(x, lazy, data):
    axis = data.draw(st.integers(0, x.ndim - 1))
    return x.sum(axis=axis), lazy.sum(axis=axis)


def spread(x, lazy, data):
    return x[..., None] - x[..., None, :], lazy[..., None] - lazy[..., None, :]


STEPS = [add_one, transpose, cut, rechunk, new_axis, add_axis, sum_up, spread]


SECOND = {"(n),()->(n),()": np.s_[..., 0], "(n),(n)->()": np.s_[..., ::-1], "(m,n),(n)->(m)": np.s_[..., 0, :]}
"""Where a kernel takes a second array: which part of the first it is."""


def apply_gufunc(x, lazy, data):
    """Apply a kernel to one array, and to a part of it where it takes two; return all outputs as (NumPy, lazy)."""
    possible = [text for text in GUFUNCS if len(au.Signature.parse(text).inputs[0]) <= x.ndim]
    possible = [text for text in possible if x.size or text not in SECOND]
    text = data.draw(st.sampled_from(possible))
    signature, kernel = au.Signature.parse(text), GUFUNCS[text]
    args = [(x, lazy)]
    if text in SECOND:
        part = x[SECOND[text]]
        args.append((part, part if data.draw(st.booleans()) else lazy[SECOND[text]]))
    expected = kernel(*(numpy for numpy, _ in args))
    result = au.apply_ufunc(kernel, text, *(each for _, each in args), output_dtypes=float)
    return list(zip(expected, result, strict=True)) if signature.nout > 1 else [(expected, result)]


def grow(pairs, data):
    """Take one array further, by a step or by a gufunc."""
    x, lazy = pairs[data.draw(st.integers(0, len(pairs) - 1))]
    if data.draw(st.booleans()):
        return [*pairs, *apply_gufunc(x, lazy, data)]
    steps = STEPS if 0 < x.ndim < 4 else [add_one, add_axis] if x.ndim == 0 else STEPS[:4]
    return [*pairs, data.draw(st.sampled_from(steps))(x, lazy, data)]


def test_chains_of_producers_gufuncs_and_consumers_give_what_numpy_gives(front_end):
    @examples(int(150 * front_end.share))
    @given(st.data())
    def check(data):
        shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
        x = np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(float)
        pairs = [(x, front_end.put(x, data, smallest=1))]
        for _ in range(data.draw(st.integers(1, 6))):
            pairs = grow(pairs, data)
        several = pairs[-3:] if data.draw(st.booleans()) else pairs[-1:]
        several = [*several, cut(*several[-1], data)]
        for (expected, lazy), value in zip(several, dask.compute(*(lazy for _, lazy in several)), strict=True):
            assert lazy.shape == np.shape(value) == np.shape(expected)
            np.testing.assert_array_equal(value, expected)

    check()


def test_the_threads_of_a_scheduler_give_the_same(da):
    running = threading.Barrier(2, timeout=30)  # broken where the blocks are not worked on at the same time

    def kernel(rows):
        running.wait()
        return rows * 2

    result = au.apply_ufunc(kernel, "(n)->(n)", da.from_array(X, chunks=(2, 6)), output_dtypes=float)
    with dask.config.set(scheduler="threads", num_workers=2):
        check_equal(result, X * 2, da)
