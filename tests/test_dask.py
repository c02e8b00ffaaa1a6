"""Calls on Dask arrays: the values of a plain loop, and graphs that are small, lazy, named and checked."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
cloudpickle = pytest.importorskip("cloudpickle")

X = np.arange(24.0).reshape(4, 6)


class Counting:
    """A kernel that keeps the shapes that it was called with."""

    def __init__(self, func):
        self.func = func
        self.shapes = []
        self.lock = threading.Lock()

    def __call__(self, *args, **keywords):
        with self.lock:
            self.shapes.append(tuple(np.shape(arg) for arg in args))
        return self.func(*args, **keywords)


def total(row):
    return row.sum(axis=-1)


def moments(rows):
    return rows.mean(axis=-1), rows.std(axis=-1)


def shifted_total(row, p=0):
    return row.sum(axis=-1) + p


@au.gufunc("(n)->()", output_dtypes=float)
def decorated_total(row):
    return row.sum(axis=-1)


def fail(block):
    raise AssertionError("a block was computed")


def untouchable(shape, chunks):
    """A Dask array that raises when it is computed."""
    return da.ones(shape, chunks=chunks).map_blocks(fail, dtype=float, meta=np.empty((0,) * len(shape)))


def with_unknown_rows(array, chunks):
    """A Dask array whose first axis has the rows with a first element above 2, and unknown chunks."""
    lazy = da.from_array(array, chunks=chunks)
    return lazy[lazy[:, 0] > 2]


def check_blocks(array):
    """Compute the whole and every block by itself, which has to have the shape, dtype and type that were declared."""
    assert isinstance(array, da.Array)
    whole = array.compute(scheduler="sync")
    for index in np.ndindex(array.numblocks):
        block = array.blocks[index].compute(scheduler="sync") if array.ndim else whole
        declared = tuple(chunks[i] for chunks, i in zip(array.chunks, index, strict=True))
        assert all(math.isnan(size) or size == got for size, got in zip(declared, np.shape(block), strict=True))
        assert block.dtype == array.dtype
        if array.ndim:
            assert type(block) is type(array._meta)
    return whole


def check_equal(array, expected):
    whole = check_blocks(array)
    np.testing.assert_array_equal(whole, expected)
    assert np.shape(whole) == np.shape(expected)
    assert whole.dtype == np.asarray(expected).dtype


# Building


@pytest.mark.parametrize("outputs", ["()", "(n)", "(),(n)"])
def test_nothing_is_computed_and_the_kernel_is_not_called_while_a_result_is_built(outputs):
    counting = Counting(fail)
    x, y = untouchable((4, 6), (2, 2)), untouchable((6,), 3)
    au.apply_ufunc(counting, f"(n),(n)->{outputs}", x, y, output_dtypes=float)
    assert counting.shapes == []


def test_dtypes_are_learnt_from_one_call_with_the_real_core_sizes_and_one_loop_item():
    def cross(a, b):
        if a.shape[-1] != 3:
            raise ValueError("needs 3")
        return np.cross(a, b)

    counting = Counting(cross)
    ones = da.ones((4, 3), chunks=(2, 3))
    result = au.apply_ufunc(counting, "(i),(i)->(i)", ones, ones)
    assert counting.shapes == [((1, 3), (1, 3))]
    check_equal(result, np.zeros((4, 3)))


def test_with_dtypes_a_kernel_that_needs_real_sizes_is_not_tried_on_others():
    def cross(a, b):
        if a.shape[-1] != 3:
            raise ValueError("needs 3")
        return np.cross(a, b)

    counting = Counting(cross)
    ones = da.ones((4, 3), chunks=(2, 3))
    result = au.apply_ufunc(counting, "(i),(i)->(i)", ones, ones, output_dtypes=float)
    assert counting.shapes == []
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.zeros((4, 3)))
    assert counting.shapes == [((2, 3), (2, 3))] * 2


def product_and_sum(a, b):
    return (a * b).sum(axis=-1), a + b


def square_of_blocks(n_blocks):
    """A call with two outputs on `n_blocks` blocks."""
    n = math.isqrt(n_blocks)
    a, b = da.zeros((n, n, 4), chunks=(1, 1, 4)), da.ones((n, n, 4), chunks=(1, 1, 4))
    return au.apply_ufunc(product_and_sum, "(n),(n)->(),(n)", a, b, output_dtypes=float)


def test_a_graph_is_as_small_for_a_million_blocks_as_for_a_hundred():
    few, many = square_of_blocks(100), square_of_blocks(1_000_000)
    assert many[0].npartitions == 1_000_000
    assert [len(array.__dask_graph__().layers) for array in few] == [
        len(array.__dask_graph__().layers) for array in many
    ]
    sizes = [len(cloudpickle.dumps([array.__dask_graph__() for array in arrays])) for arrays in (few, many)]
    chunks = 900 * 2 * 12  # that many more numbers, in chunks, locations and sources
    assert sizes[1] < sizes[0] + chunks
    assert sizes[1] < 50_000


def n_tasks(*arrays):
    """The number of tasks after optimisation."""
    optimized = dask.optimize(*arrays)
    return len({key for array in optimized for key in array.__dask_graph__()})


@pytest.mark.parametrize(
    ("signature", "kernel", "per_block"),
    [
        ("(n),(n)->(n)", np.add, 1),
        ("(),()->()", np.add, 1),
        ("(n),(n)->()", lambda a, b: (a * b).sum(axis=-1), 2),
    ],
)
def test_producers_kernel_and_consumer_fuse(signature, kernel, per_block):
    a, b = da.ones((10, 10, 4), chunks=(1, 1, 4)), da.zeros((10, 10, 4), chunks=(1, 1, 4))
    result = au.apply_ufunc(kernel, signature, a * 1 + 0, (b - 0) * 1, output_dtypes=float) + 1
    assert n_tasks(result) == per_block * result.npartitions


def test_two_outputs_share_the_task_of_the_kernel():
    first, second = square_of_blocks(100)
    assert n_tasks(first + 1, second * 2) == 300


def test_several_outputs_of_one_block_come_from_one_call():
    counting = Counting(moments)
    mean, std = au.apply_ufunc(counting, "(i)->(),()", da.from_array(X, chunks=(2, 6)), output_dtypes=("f8", "f4"))
    assert (mean.dtype, std.dtype) == (np.float64, np.float32)
    with dask.config.set(scheduler="sync"):
        computed = dask.compute(mean + std, std)
    assert counting.shapes == [((2, 6),)] * 2
    np.testing.assert_array_equal(computed[0], X.mean(-1) + X.std(-1).astype("f4"))
    np.testing.assert_array_equal(computed[1], X.std(-1).astype("f4"))


# Values


ITEM_KERNELS = {
    "(),()->()": lambda a, b: a - b,
    "(n)->()": lambda x: x.sum(-1),
    "(n),(n)->()": lambda a, b: (a * b).sum(-1),
    "(n)->(n)": lambda x: np.cumsum(x, -1),
    "(m,n),(n)->(m)": lambda a, b: np.einsum("...mn,...n->...m", a, b),
    "(m),(n)->(m,n)": lambda a, b: a[..., :, None] * b[..., None, :],
    "(m),(n)->(m+n),()": lambda a, b: (joined(a, b), a.sum(-1) + b.sum(-1)),
    "(n,n)->(n),()": lambda x: (np.diagonal(x, axis1=-2, axis2=-1), np.trace(x, axis1=-2, axis2=-1)),
    "(n|1),(n),()->(n)": lambda a, b, c: a * b + c[..., None],
    "(n)->(),(2)": lambda x: (x.sum(-1), np.stack([x.sum(-1), x.prod(-1)], -1)),
}
"""Kernels that take one item as well as any number, so that a plain loop over items is the oracle of all calls."""


def joined(a, b):
    loop = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return np.concatenate([np.broadcast_to(x, loop + x.shape[-1:]) for x in (a, b)], -1)


def plain_loop(kernel, signature, args):
    """Call the kernel for each item of the loop dims, and stack what it returns."""
    n_cores = [len(dims) for dims in signature.inputs]
    loop = np.broadcast_shapes(*(arg.shape[: arg.ndim - n] for arg, n in zip(args, n_cores, strict=True)))
    spread = [np.broadcast_to(arg, loop + arg.shape[arg.ndim - n :]) for arg, n in zip(args, n_cores, strict=True)]
    items = [kernel(*(arg[index] for arg in spread)) for index in np.ndindex(loop)]
    items = [item if signature.nout > 1 else (item,) for item in items]
    return [np.reshape(values, (*loop, *np.shape(values[0]))) for values in zip(*items, strict=True)] or None


@st.composite
def chunkings(draw, size):
    """Draw chunks of an axis, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
    return tuple(b - a for a, b in itertools.pairwise([0, *cuts, size]))


@st.composite
def calls(draw):
    text = draw(st.sampled_from(sorted(ITEM_KERNELS)))
    signature = au.Signature.parse(text)
    loop = draw(st.lists(st.integers(0, 3), max_size=2))
    sizes = {name: draw(st.integers(0, 3)) for name in ("m", "n")}
    args, lazy = [], []
    for position, dims in enumerate(signature.inputs):
        own = [size if draw(st.booleans()) else 1 for size in loop][draw(st.integers(0, len(loop))) :]
        core = [1 if dim.stretches and draw(st.booleans()) else sizes[dim.label] for dim in dims]
        arg = np.asarray(np.arange(math.prod(own + core), dtype=float).reshape(own + core) * 0.5 - position)
        chunks = tuple(draw(chunkings(size)) for size in arg.shape)
        args.append(arg)
        lazy.append(da.from_array(arg, chunks=chunks) if position == 0 or draw(st.booleans()) else arg)
    return text, args, lazy


@examples(150)
@given(calls(), st.booleans())
def test_results_are_those_of_a_plain_loop(call, vectorize):
    text, args, lazy = call
    kernel, signature = ITEM_KERNELS[text], au.Signature.parse(text)
    results = au.apply_ufunc(kernel, text, *lazy, vectorize=vectorize, output_dtypes=float)
    results = results if signature.nout > 1 else (results,)
    expected = plain_loop(kernel, signature, args)
    if expected is None:  # an empty batch, of which the plain loop says nothing
        expected = [np.empty(tuple(map(int, result.shape))) for result in results]
        assert all(0 in result.shape for result in results)
    for result, values in zip(results, expected, strict=True):
        check_equal(result, values)


@pytest.mark.parametrize("sparse_axis", [0, 1])
def test_axes_put_core_dims_where_numpy_does(sparse_axis):
    x = np.arange(30.0).reshape(2, 5, 3)
    lazy = da.from_array(x, chunks=(1, 2, 2) if sparse_axis else (2, 5, 3))

    def anomaly(a):
        return a - a.mean(axis=-1, keepdims=True)

    result = au.apply_ufunc(anomaly, "(t)->(t)", lazy, axes=[(1,), (1,)], output_dtypes=float)
    check_equal(result, x - x.mean(axis=1, keepdims=True))


def test_a_0d_result_stays_a_dask_array():
    result = au.apply_ufunc(total, "(n)->()", da.arange(5, chunks=2), output_dtypes=int)
    assert isinstance(result, da.Array)
    assert result.shape == ()
    assert result.compute() == 10


@pytest.mark.parametrize(
    ("signature", "kernel"),
    [
        ("(),(),(n)->()", lambda a, b, c: a + b + c.sum(-1)),
        ("(),(),(n)->(n)", lambda a, b, c: (a + b)[..., None] + c),
        ("(),(),()->()", lambda a, b, c: a + b + c),
        ("(),(),()->(),()", lambda a, b, c: (a + b, a + b + c)),
    ],
)
def test_an_axis_that_a_fused_producer_made_broadcasts_over_many_blocks(signature, kernel):
    row = da.ones(6, chunks=2).map_blocks(lambda b: b[None], new_axis=0, dtype=float, chunks=((1,), (2, 2, 2)))
    lazy = da.from_array(X, chunks=(2, 2)) + 1
    third = np.zeros(1) if "(n)" in signature else np.zeros(6)
    result = au.apply_ufunc(kernel, signature, row, lazy, third, output_dtypes=float)
    result = result[-1] if isinstance(result, tuple) else result
    expected = (X + 2)[..., None] if result.ndim == 3 else X + 2
    check_equal(result + 1, expected + 1)
    check_equal(result[2:] + 1, expected[2:] + 1)
    np.testing.assert_array_equal(result.sum(axis=0).compute(), expected.sum(axis=0))


@pytest.mark.parametrize("name", ["<lambda>", "a-b", "-", "naïve", "x.y", ""])
def test_a_kernel_may_have_any_name(name):
    def kernel(row):
        return row.sum(axis=-1), row

    kernel.__name__ = name
    sums, same = au.apply_ufunc(kernel, "(n)->(),(n)", da.from_array(X, chunks=(2, 6)), output_dtypes=float)
    check_equal(sums, X.sum(-1))
    check_equal(same, X)


def test_scalars_and_none_reach_the_kernel_as_they_are():
    def kernel(a, factor, nothing):
        assert nothing is None
        return a * factor

    lazy = da.ones(4, chunks=2, dtype="f4")
    check_equal(au.apply_ufunc(kernel, "(),(),()->()", lazy, 2.5, None), np.full(4, 2.5, dtype="f4"))


def test_an_optional_dim_may_be_absent_where_sizes_are_unknown():
    rows = with_unknown_rows(np.arange(12.0).reshape(4, 3), (2, 2))
    result = au.apply_ufunc(np.matmul, "(m?,n),(n,p?)->(m?,p?)", np.ones(3), rows[..., None], output_dtypes=float)
    np.testing.assert_array_equal(result.compute(), [[12], [21], [30]])


# Host arguments


def test_host_arrays_follow_the_chunks_of_the_dask_arrays():
    counting = Counting(lambda a, b, w: a + b + w.sum(-1))
    lazy = da.from_array(X, chunks=(2, 3))
    result = au.apply_ufunc(counting, "(),(),(k)->()", lazy, X, [1.0, 2.0], output_dtypes=float)
    assert result.chunks == lazy.chunks
    np.testing.assert_array_equal(result.compute(scheduler="sync"), 2 * X + 3)
    assert counting.shapes == [((2, 3), (2, 3), (1, 1, 2))] * 4


def test_blocks_of_a_host_array_are_views_of_it():
    blocks = []

    def kernel(a, b):
        blocks.append(b)
        return a + b

    au.apply_ufunc(kernel, "(),()->()", da.zeros((4, 6), chunks=(2, 3)), X, output_dtypes=float).compute(
        scheduler="sync"
    )
    owner = blocks[0].base if blocks[0].base is not None else blocks[0]
    assert len(blocks) == 4
    assert all(np.shares_memory(owner, block) for block in blocks)


def test_a_host_array_that_has_a_loop_dim_for_itself_keeps_it_in_one_chunk():
    result = au.apply_ufunc(np.add, "(),()->()", da.zeros(6, chunks=2), X, output_dtypes=float)
    assert result.chunks == ((4,), (2, 2, 2))
    check_equal(result, X)


# Chunks


def test_a_chunked_core_dim_is_merged_and_loop_chunks_are_unified():
    a, b = da.from_array(X, chunks=(2, 2)), da.ones((4, 6), chunks=(3, 2))
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(t),(t)->()", a, b, output_dtypes=float)
    assert result.chunks == ((2, 2),)
    check_equal(result, X.sum(axis=-1))


def test_merging_core_chunks_leaves_the_loop_chunks_as_they_are():
    counting = Counting(total)
    result = au.apply_ufunc(counting, "(i)->()", da.zeros((400, 400), chunks=(100, 10)), output_dtypes=float)
    assert result.chunks == ((100,) * 4,)
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.zeros(400))
    assert counting.shapes == [((100, 400),)] * 4


@pytest.mark.parametrize("budget", [100_000, "100 kB", None])
def test_loop_chunks_are_split_just_enough_where_a_merged_block_passes_the_budget(budget):
    lazy = da.zeros((400, 400), chunks=(100, 10))  # merged: 100 * 400 * 8 bytes = 320,000
    with dask.config.set({"array.chunk-size": 100_000}), pytest.warns(au.ApplyUfuncWarning) as caught:
        result = au.apply_ufunc(total, "(i)->()", lazy, budget=budget, output_dtypes=float)
    assert result.chunks == ((25,) * 16,)  # 80,000 bytes: a width of 31 would do, 100 is cut into even pieces
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "with core dimension(s) 'i' merged to one chunk, argument 0 would have blocks of 312.5 KiB (now 7.812 KiB), "
        "above the budget of 97.66 KiB: loop dimension(s) (from the right) -1 (chunks of up to 100, now 25) were "
        "split, which makes blocks of 78.12 KiB. To decide it yourself, rechunk before the call, pass budget= (bytes "
        "of the largest block), or core_chunks='refuse'"
    )
    check_equal(result, np.zeros(400))


def test_loop_chunks_are_split_where_an_output_passes_the_budget():
    lazy = da.ones((8, 10), chunks=(4, 10))
    with pytest.warns(
        au.ApplyUfuncWarning, match=r"output 0 would have blocks of 3.125 KiB, above the budget of 1.953 KiB"
    ):
        result = au.apply_ufunc(
            lambda x: x[..., :, None] * x[..., None, :], "(n)->(n,n)", lazy, budget=2000, output_dtypes=float
        )
    assert result.chunks == ((2, 2, 2, 2), (10,), (10,))
    check_equal(result, np.ones((8, 10, 10)))


def test_the_original_block_size_can_be_kept_and_that_is_no_surprise():
    counting = Counting(total)
    result = au.apply_ufunc(
        counting, "(i)->()", da.ones((400, 400), chunks=(100, 40)), budget="keep", output_dtypes=float
    )
    assert result.chunks == ((10,) * 40,)  # 10 * 400 for 100 * 40
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.full(400, 400.0))
    assert set(counting.shapes) == {((10, 400),)}


def test_core_dims_are_merged_first_where_loop_dims_are_only_split():
    a, b = da.from_array(X, chunks=(4, 1)), da.from_array(X, chunks=(2, 6))
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(t),(t)->()", a, b, output_dtypes=float)
    assert result.chunks == ((2, 2),)
    rechunked = [len(layer) for name, layer in result.__dask_graph__().layers.items() if "rechunk" in name]
    assert rechunked == [1, 4]  # one block, then two slices for two blocks; at once: twelve slices for two blocks
    check_equal(result, (X * X).sum(axis=-1))


def test_an_item_that_alone_passes_the_budget_is_warned_of():
    lazy = da.ones((4, 100), chunks=(2, 10))
    with pytest.warns(au.ApplyUfuncWarning, match="one item alone is that large"):
        result = au.apply_ufunc(total, "(n)->()", lazy, budget=400, output_dtypes=float)
    assert result.chunks == ((1, 1, 1, 1),)


def test_blocks_that_the_caller_made_larger_than_the_budget_stay():
    lazy = da.ones((4, 100), chunks=(2, 100))
    result = au.apply_ufunc(lambda x: x + 1, "(n)->(n)", lazy, budget=400, output_dtypes=float)
    assert result.chunks == lazy.chunks


def test_an_argument_that_fits_is_used_as_it_is():
    lazy = da.ones((4, 6), chunks=((1, 3), 6))
    result = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float)
    names = set(result.__dask_graph__().layers)
    assert lazy.name in names
    assert not any("rechunk" in name for name in names)


@pytest.mark.parametrize("option", [{"core_chunks": "refuse"}, {"allow_rechunk": False}])
def test_merging_can_be_refused(option):
    lazy = da.ones((4, 6), chunks=(2, 2))
    expected = (
        r"argument 1: core dimension 'n' is in 3 chunks, \(2, 2, 2\), expected one: "
        r"core_chunks='refuse' \(allow_rechunk=False\).* rechunk"
    )
    with pytest.raises(au.AlignmentError, match=expected) as caught:
        au.apply_ufunc(np.add, "(n),(n)->(n)", da.ones(6), lazy, output_dtypes=float, **option)
    assert isinstance(caught.value, ValueError)


def test_a_budget_that_is_no_size_is_refused():
    with pytest.raises(au.OptionError, match=r"budget takes a positive .*, or 'keep', got 'plenty'"):
        au.apply_ufunc(total, "(n)->()", da.ones(6), output_dtypes=float, budget="plenty")


# Empty


@pytest.mark.parametrize("chunks", [((0,), (4,)), ((0, 0), (1, 3))])
def test_an_empty_batch_is_answered_without_the_kernel(chunks):
    counting = Counting(lambda v: np.array([v.min(), v.max()]))
    empty = da.from_array(np.ones((0, 4)), chunks=chunks)
    options = {"output_sizes": {"j": 2}, "output_dtypes": "f8"}
    check_equal(au.apply_ufunc(counting, "(i)->(j)", empty, vectorize=True, **options), np.empty((0, 2)))
    assert counting.shapes == []


def test_an_empty_block_is_answered_without_the_kernel():
    counting = Counting(lambda v: np.stack([v.min(axis=-1), v.max(axis=-1)], axis=-1))
    lazy = da.from_array(X, chunks=((2, 0, 2), 6))
    result = au.apply_ufunc(counting, "(i)->(j)", lazy, output_sizes={"j": 2}, output_dtypes=float)
    assert result.chunks == ((2, 0, 2), (2,))
    np.testing.assert_array_equal(result.compute(scheduler="sync"), X[:, [0, -1]])
    assert counting.shapes == [((2, 6),)] * 2


# Unknown sizes


def test_an_unknown_loop_dim_passes_through():
    rows = with_unknown_rows(np.arange(12.0).reshape(4, 3), (2, 3))
    result = au.apply_ufunc(total, "(i)->()", rows, output_dtypes=float)
    assert np.isnan(result.shape[0])
    check_equal(result, [12.0, 21.0, 30.0])


def test_unknown_core_chunks_are_merged_by_concatenation():
    rows = with_unknown_rows(np.arange(12.0).reshape(4, 3), (2, 2))
    result = au.apply_ufunc(total, "(i)->()", rows.T, output_dtypes=float)
    assert result.shape == (3,)
    check_equal(result, [18.0, 21.0, 24.0])


def test_an_output_has_the_unknown_size_of_its_core_dim_and_of_expressions_in_it():
    rows = with_unknown_rows(np.arange(12.0).reshape(4, 3), (2, 2))
    doubled = au.apply_ufunc(lambda v: np.concatenate([v, v], -1), "(i)->(i*2)", rows.T, output_dtypes=float)
    assert np.isnan(doubled.shape[1])
    values = np.arange(3.0, 12.0).reshape(3, 3).T
    check_equal(doubled, np.concatenate([values, values], -1))


def test_two_arguments_may_share_an_unknown_loop_dim():
    x = np.arange(12.0).reshape(4, 3)
    a, b = with_unknown_rows(x, (2, 3)), with_unknown_rows(x, (2, 1))
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(n),(n)->()", a, b, output_dtypes=float)
    check_equal(result, (x[1:] ** 2).sum(-1))


def test_unknown_loop_dims_in_different_numbers_of_blocks_are_refused():
    x = np.arange(12.0).reshape(4, 3)
    a, b = with_unknown_rows(x, (2, 3)), with_unknown_rows(x, (1, 3))
    expected = (
        r"loop dimension -1 .* is in 2 chunk\(s\) in argument 0, \(\?, \?\), and in 4 in argument 1, \(\?, \?, \?, \?\)"
    )
    with pytest.raises(au.AlignmentError, match=expected):
        au.apply_ufunc(np.add, "(n),(n)->(n)", a, b, output_dtypes=float)


def test_unknown_loop_dims_of_different_sizes_are_refused_when_their_blocks_arrive():
    x = np.arange(12.0).reshape(4, 3)
    a, b = with_unknown_rows(x, (2, 3)), da.from_array(x, chunks=(2, 3))
    result = au.apply_ufunc(np.add, "(n),(n)->(n)", a, b[b[:, 0] >= 0], output_dtypes=float)
    with pytest.raises(au.DimensionError, match=r"is 1 in argument 0 and 2 in argument 1 in block \[0:\?\]"):
        result.compute(scheduler="sync")


def test_unknown_core_sizes_that_differ_are_refused_when_their_blocks_arrive():
    column = with_unknown_rows(np.arange(12.0).reshape(4, 3), (2, 3))[:, 0]
    result = au.apply_ufunc(lambda a, b: (a * b).sum(-1), "(n),(n)->()", column, np.ones(4), output_dtypes=float)
    with pytest.raises(au.DimensionError, match="core dimension 'n' is 3 in argument 0 and 4 in argument 1"):
        result.compute(scheduler="sync")


def test_a_size_that_only_the_kernel_knows_is_taken_where_the_loop_is_one_block():
    lazy = da.from_array(np.array([[3.0, 1.0, 3.0]]), chunks=(1, 2))
    result = au.apply_ufunc(np.unique, "(n)->(k)", lazy, vectorize=True, output_sizes={"k": None}, output_dtypes=float)
    assert np.isnan(result.shape[1])
    check_equal(result, [[1.0, 3.0]])


def test_a_size_that_only_the_kernel_knows_is_refused_where_blocks_could_disagree():
    lazy = da.from_array(X, chunks=(2, 6))
    with pytest.raises(au.UnknownSizeError, match=r"output dimension 'k' is unknown .* 2 loop blocks .* UpTo\(bound\)"):
        au.apply_ufunc(np.unique, "(n)->(k)", lazy, vectorize=True, output_sizes={"k": None}, output_dtypes=float)
    padded = au.apply_ufunc(
        np.unique, "(n)->(k)", lazy, vectorize=True, output_sizes={"k": au.UpTo(7)}, output_dtypes=float
    )
    check_equal(padded, np.pad(X, [(0, 0), (0, 1)]))


# What a kernel may not do, and how that is told


def double_in_place(block):
    block *= 2
    return block


def test_a_persisted_input_is_not_changed_by_a_kernel_that_writes():
    x = np.arange(6.0).reshape(2, 3)
    kept = da.from_array(x.copy(), chunks=(1, 3)).persist(scheduler="sync")
    with pytest.raises(ValueError, match="read-only"):
        au.apply_ufunc(double_in_place, "()->()", kept, output_dtypes=float).compute(scheduler="sync")
    allowed = au.apply_ufunc(double_in_place, "()->()", kept, output_dtypes=float, writable=True)
    both = dask.compute(allowed, kept.sum(), scheduler="sync")
    np.testing.assert_array_equal(both[0], x * 2)
    assert both[1] == 15
    assert kept.sum().compute(scheduler="sync") == 15


def test_a_result_may_be_written_into_and_shares_nothing_with_the_input():
    kept = da.from_array(np.ones(3), chunks=3).persist(scheduler="sync")
    result = au.apply_ufunc(lambda block: block, "()->()", kept, output_dtypes=float).compute(scheduler="sync")
    result += 1
    assert kept.sum().compute(scheduler="sync") == 3


def test_a_block_of_another_shape_than_declared_is_refused():
    result = au.apply_ufunc(lambda b: b[..., 1:], "(i)->(i)", da.ones((4, 6), chunks=(2, 6)), output_dtypes=float)
    with pytest.raises(au.OutputShapeError, match=r"output 0, core dimension i: expected 6, kernel returned 5"):
        result.compute(scheduler="sync")


def test_a_block_that_does_not_cast_to_the_declared_dtype_is_refused():
    result = au.apply_ufunc(lambda b: b + 0.5, "()->()", da.ones(4, chunks=2), output_dtypes=int)
    with pytest.raises(au.OutputDTypeError, match=r"output 0: kernel returned float64, .* declared int64"):
        result.compute(scheduler="sync")


def test_a_lost_loop_dim_hints_at_a_missing_core_dim():
    lazy = da.from_array(np.array([4.0, 8.0, 6.0, 0.0, 2.0, 1.0]), chunks=((4, 2),))
    result = au.apply_ufunc(np.median, "()->()", lazy, output_dtypes=float)
    expected = r"kernel returned shape \(\) for loop shape \([24],\): is a core dimension missing from the signature\?"
    with pytest.raises(au.OutputShapeError, match=expected):
        result.compute(scheduler="sync")


def boom(block):
    if block[0, 0, 0] == 104:
        raise ZeroDivisionError("boom")
    return block.sum(axis=-1)


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_an_exception_keeps_its_type_and_says_in_which_block_it_was_raised(scheduler):
    lazy = da.from_array(np.arange(144.0).reshape(4, 9, 4), chunks=(2, 4, 4))
    result = au.apply_ufunc(boom, "(n)->()", lazy, output_dtypes=float) + 1
    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        result.compute(scheduler=scheduler)
    (note,) = (note for note in caught.value.__notes__ if "boom" in note)
    assert "kernel 'boom' with signature '(n)->()'" in note
    assert "called with float64(2, 1, 4), block [2:4, 8:9]" in note


# Types and dtypes


def test_masked_arrays_keep_their_mask():
    masked = np.ma.masked_array([[1.0, 2.0, 99.0], [3.0, 99.0, 5.0]], mask=[[0, 0, 1], [0, 1, 0]])
    result = au.apply_ufunc(
        lambda v: v.mean(axis=-1), "(i)->()", da.from_array(masked, chunks=(1, 2)), output_dtypes=float
    )
    assert isinstance(result._meta, np.ma.MaskedArray)
    np.testing.assert_array_equal(check_blocks(result), [1.5, 4.0])


def test_a_masked_host_array_makes_the_result_masked():
    masked = np.ma.masked_array([1.0, 2.0], mask=[0, 1])
    result = au.apply_ufunc(np.add, "(),()->()", da.ones(2, chunks=1), masked, output_dtypes=float)
    assert check_blocks(result).tolist() == [2.0, None]


def test_a_kernel_that_drops_the_mask_gives_blocks_of_the_declared_type():
    masked = da.from_array(np.ma.masked_array([1.0, 2.0], mask=[0, 1]), chunks=1)
    check_blocks(au.apply_ufunc(lambda v: np.ones(v.shape), "()->()", masked, output_dtypes=float))


@pytest.mark.parametrize("dtype", ["U3", "O", "M8[s]", "c8", "?"])
def test_any_numpy_dtype_is_carried(dtype):
    x = np.array(["1", "2", "3", "4"]).astype("M8[s]" if dtype == "M8[s]" else "U3").astype(dtype)
    check_equal(
        au.apply_ufunc(lambda v: v[..., ::-1], "(n)->(n)", da.from_array(x, chunks=2), output_dtypes=dtype), x[::-1]
    )


def test_meta_gives_type_and_dtype():
    lazy = da.from_array(X, chunks=(2, 6))
    counting = Counting(moments)
    metas = (np.empty(0, "f4"), np.ma.masked_array(np.empty(0)))
    mean, std = au.apply_ufunc(counting, "(n)->(),()", lazy, meta=metas)
    assert counting.shapes == []
    assert (mean.dtype, std.dtype) == (np.float32, np.float64)
    assert isinstance(std._meta, np.ma.MaskedArray)
    np.testing.assert_array_equal(check_blocks(mean), X.mean(-1).astype("f4"))
    np.testing.assert_array_equal(check_blocks(std), X.std(-1))


def test_metas_of_another_number_than_the_outputs_are_refused():
    metas = (np.empty(0),) * 3
    with pytest.raises(au.OptionError, match=r"meta has 3 array\(s\), expected 2"):
        au.apply_ufunc(moments, "(n)->(),()", da.from_array(X), meta=metas, output_dtypes=float)


class TestSparse:
    @pytest.fixture(autouse=True)
    def import_sparse(self):
        self.sparse = pytest.importorskip("sparse")  # here, since it takes seconds

    def eye(self):
        return da.from_array(np.eye(4), chunks=(2, 2)).map_blocks(self.sparse.COO.from_numpy)

    def test_a_numpy_kernel_is_refused_by_name_before_any_work(self):
        with pytest.raises(
            au.TransferError, match=r"argument 0 is a sparse\..*COO that would be made dense.*allow_transfer=True"
        ):
            au.apply_ufunc(total, "(i)->()", self.eye(), output_dtypes=float)

    def test_a_kernel_for_sparse_arrays_gets_and_gives_them(self):
        seen = []

        def kernel(block):
            seen.append(type(block))
            return block.sum(axis=-1)

        result = au.apply_ufunc(kernel, "(i)->()", self.eye(), kernel_arrays="same", output_dtypes=float)
        assert isinstance(result._meta, self.sparse.COO)
        np.testing.assert_array_equal(check_blocks(result).todense(), np.ones(4))
        assert set(seen) == {self.sparse.COO}

    def test_dtypes_are_learnt_on_a_sparse_block(self):
        result = au.apply_ufunc(lambda block: block.sum(axis=-1) > 0, "(i)->()", self.eye(), kernel_arrays="same")
        assert result.dtype == bool

    def test_host_arrays_become_sparse_for_a_kernel_for_sparse_arrays(self):
        result = au.apply_ufunc(
            lambda a, b: a * b, "(),()->()", self.eye(), X[:4, :4], kernel_arrays="same", output_dtypes=float
        )
        np.testing.assert_array_equal(check_blocks(result).todense(), np.diag(np.diag(X)))

    def test_with_leave_a_numpy_kernel_gets_dense_blocks_and_the_result_is_sparse(self):
        result = au.apply_ufunc(total, "(i)->()", self.eye(), output_dtypes=float, allow_transfer=True)
        np.testing.assert_array_equal(check_blocks(result).todense(), np.ones(4))

    def test_an_empty_block_is_sparse_too(self):
        empty = da.from_array(np.ones((0, 4)), chunks=4).map_blocks(self.sparse.COO.from_numpy)
        result = au.apply_ufunc(
            lambda block: block.sum(axis=-1), "(i)->()", empty, kernel_arrays="same", output_dtypes=float
        )
        assert check_blocks(result).shape == (0,)


# Keywords and names


def test_keywords_reach_the_kernel_whole():
    def kernel(b, w=None, mode="sum"):
        assert mode == "sum"
        assert type(w) is np.ndarray
        return (b * w).sum(axis=-1)

    lazy = da.ones((4, 6), chunks=(2, 3))
    check_equal(
        au.apply_ufunc(kernel, "(i)->()", lazy, output_dtypes=float, kwargs={"w": np.arange(6.0), "mode": "sum"}),
        np.full(4, 15.0),
    )


def test_a_lazy_keyword_is_refused_by_name():
    with pytest.raises(au.ArgumentError, match="keyword p is a lazy dask array"):
        au.apply_ufunc(shifted_total, "(i)->()", da.ones((4, 6)), p=da.ones(6), output_dtypes=float)


def test_equal_calls_have_one_name():
    one, other = (
        au.apply_ufunc(shifted_total, "(i)->()", da.ones((4, 6), chunks=2), p=1, output_dtypes=float) for _ in range(2)
    )
    assert one.name == other.name


@pytest.mark.parametrize(
    "change",
    [
        {"p": 2},
        {"p": 1.0},
        {"p": np.arange(1)},
        {"output_dtypes": "f4"},
        {"axis": 0},
        {"keepdims": True},
        {"vectorize": True},
        {"writable": True},
        {"thread_safe": False},
        {"kernel_arrays": "same"},
        {"kernel_token": "other"},
        {"meta": np.ma.masked_array(np.empty(0))},
        {"budget": 40},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.filterwarnings("ignore::applyufunc.ApplyUfuncWarning")
def test_a_difference_in_any_option_or_keyword_gives_another_name(change):
    lazy = da.ones((4, 4), chunks=2)
    options = {"p": 1, "output_dtypes": float}
    one = au.apply_ufunc(shifted_total, "(i)->()", lazy, **options)
    other = au.apply_ufunc(shifted_total, "(i)->()", lazy, **{**options, **change})
    assert one.name != other.name


def test_a_difference_in_input_constant_signature_kernel_or_size_gives_another_name():
    def name(kernel, signature, *args, **options):
        return au.apply_ufunc(kernel, signature, *args, output_dtypes=float, **options).name

    ones, twos = da.ones((4, 4), chunks=2), da.full((4, 4), 2, chunks=2)
    names = [
        name(np.add, "(),()->()", ones, twos),
        name(np.add, "(),()->()", twos, ones),
        name(np.add, "(),()->()", ones, 1),
        name(np.add, "(),()->()", ones, 1.0),
        name(np.add, "(),()->()", ones, True),
        name(np.add, "(n),(n)->(n)", ones, twos),
        name(np.add, "(k),(k)->(k)", ones, twos),
        name(np.subtract, "(),()->()", ones, twos),
        name(np.unique, "(n)->(k)", ones, vectorize=True, output_sizes={"k": au.UpTo(4)}),
        name(np.unique, "(n)->(k)", ones, vectorize=True, output_sizes={"k": au.UpTo(4, fill_value=1)}),
        name(np.unique, "(n)->(k)", ones, vectorize=True, output_sizes={"k": 4}),
    ]
    assert len(set(names)) == len(names)


def test_kernels_without_a_stable_identity_get_names_of_their_own():
    def make():
        lock = threading.Lock()

        def kernel(row):
            with lock:
                return row.sum(axis=-1)

        return kernel

    lazy = da.ones((4, 6), chunks=2)
    first, second = make(), make()
    names = [au.apply_ufunc(kernel, "(i)->()", lazy, output_dtypes=float).name for kernel in (first, first, second)]
    assert names[0] == names[1] != names[2]
    tokens = [
        au.apply_ufunc(make(), "(i)->()", lazy, output_dtypes=float, kernel_token="locked").name for _ in range(2)
    ]
    assert tokens[0] == tokens[1]


def test_kernels_that_are_equal_but_have_no_stable_identity_get_names_of_their_own():
    class Locked:
        def __init__(self, offset):
            self.offset, self.lock = offset, threading.Lock()

        def __call__(self, row):
            return row.sum(axis=-1) + self.offset

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    lazy = da.ones((4, 6), chunks=2)
    kernels = [Locked(0), Locked(1)]
    first, second = (au.apply_ufunc(kernel, "(i)->()", lazy, output_dtypes=float) for kernel in kernels)
    assert first.name != second.name
    computed = dask.compute(first, second, scheduler="sync")
    np.testing.assert_array_equal(computed, [np.full(4, 6), np.full(4, 7)])


def remade(source, **names):
    """Return a function as it would be if it were written in the main module, so that it is named by its contents."""
    exec(source, names | {"__name__": "__main__"}, names)
    return names["kernel"]


def test_a_plain_function_is_read_once(monkeypatch):
    from applyufunc._lowering._dask import _identity

    read = []

    def reading(*parts, **options):
        read.append(parts[0])
        return tokenize(*parts, **options)

    tokenize = _identity.tokenize
    monkeypatch.setattr(_identity, "tokenize", reading)
    kernel = remade("def kernel(row, axis=-1): return np.sum(row, axis=axis)", np=np)
    lazy = da.ones((4, 6), chunks=2)
    names = {au.apply_ufunc(kernel, "(i)->()", lazy, output_dtypes=float).name for _ in range(3)}
    assert len(names) == 1
    assert read.count(kernel) == 1


def test_a_function_that_has_changed_gets_another_name():
    def name(kernel):
        return au.apply_ufunc(kernel, "(i)->()", da.ones((4, 6), chunks=2), output_dtypes=float).name

    source = "def kernel(row, offset=1): return row.sum(axis=-1) + offset + K"
    kernel = remade("def kernel(row, offset=1, *, more=1): return row.sum(axis=-1) + offset + more")
    names = [name(kernel)]
    kernel.__defaults__ = (1.0,)
    names.append(name(kernel))
    kernel.__kwdefaults__["more"] = 1.0
    names.append(name(kernel))
    kernel.__code__ = remade("def kernel(row, offset=1, *, more=1): return row.sum(axis=-1) - offset - more").__code__
    names.append(name(kernel))
    kernel = remade(source, K=1)
    names.append(name(kernel))
    kernel.__globals__["K"] = 2
    names.append(name(kernel))
    kernel = remade("def kernel(row, table=[1]): return row.sum(axis=-1) + table[0]")
    names.append(name(kernel))
    kernel.__defaults__[0][0] = 2
    names.append(name(kernel))
    kernel = remade("def kernel(row): return (lambda total: total + K)(row.sum(axis=-1))", K=1)
    names.append(name(kernel))
    kernel.__globals__["K"] = 2
    names.append(name(kernel))
    assert len(set(names)) == len(names) == 10


def test_a_numba_function_is_named_by_what_it_was_made_of():
    numba = pytest.importorskip("numba")

    def name(kernel):
        options = {"vectorize": True, "output_dtypes": float}
        return au.apply_ufunc(kernel, "(n)->()", da.ones((4, 6), chunks=2), **options).name

    kernel = numba.njit(lambda row: row.sum())
    before = name(kernel)
    kernel(np.ones(3))
    assert name(kernel) == before
    assert name(numba.njit(fastmath=True)(kernel.py_func)) != before
    assert name(numba.njit("f8(f8[:])")(kernel.py_func)) != before


PRINT_NAMES = """
import dask.array as da, numpy as np, applyufunc as au, test_dask
lazy = da.ones((4, 6), chunks=2)
names = [
    au.apply_ufunc(test_dask.total, "(n)->()", lazy, output_dtypes=float).name,
    au.apply_ufunc(test_dask.moments, "(n)->(),()", lazy, output_dtypes=float, kwargs={})[1].name,
    au.apply_ufunc(test_dask.shifted_total, "(n)->()", lazy, p=np.arange(3), output_dtypes=float).name,
    test_dask.decorated_total(lazy).name,
    au.apply_ufunc(np.add, "(),()->()", lazy, np.arange(6.0), output_dtypes=float).name,
    au.apply_ufunc(np.unique, "(n)->(k)", lazy, vectorize=True, output_sizes={"k": au.UpTo(6)}).name,
]
try:
    import numba
except ImportError:
    pass
else:
    names.append(au.apply_ufunc(numba.njit(test_dask.total), "(n)->()", lazy, vectorize=True, output_dtypes=float).name)
print("\\n".join(names))
"""


def test_names_are_the_same_in_every_process():
    def names(seed):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-W", "ignore", "-c", PRINT_NAMES]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(names, ("1", "2"))
    assert len(first) >= 6
    assert first == second


# Elsewhere than in this thread


def test_a_result_pickles_and_computes_in_other_processes():
    offset = np.float64(3)
    first, second = au.apply_ufunc(
        lambda row: (row.sum(-1) + offset, row * 2), "(n)->(),(n)", da.from_array(X, chunks=(2, 3)), output_dtypes=float
    )
    loaded = cloudpickle.loads(cloudpickle.dumps((first, second)))
    assert loaded[0].name == first.name
    computed = dask.compute(*loaded, scheduler="processes", num_workers=1)
    np.testing.assert_array_equal(computed[0], X.sum(-1) + 3)
    np.testing.assert_array_equal(computed[1], X * 2)


def test_a_module_level_kernel_pickles_without_cloudpickle():
    result = decorated_total(da.ones((4, 6), chunks=(2, 6)))
    loaded = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(loaded.compute(scheduler="sync"), np.full(4, 6.0))


def test_a_kernel_that_is_not_thread_safe_runs_once_at_a_time():
    running, most = [0], [0]

    def kernel(block):
        running[0] += 1
        most[0] = max(most[0], running[0])
        threading.Event().wait(0.005)
        running[0] -= 1
        return block

    lazy = da.ones(8, chunks=1)
    au.apply_ufunc(kernel, "()->()", lazy, output_dtypes=float, thread_safe=False).compute(
        scheduler="threads", num_workers=4
    )
    assert most == [1]


def test_names_do_not_depend_on_the_order_in_a_set_or_on_hashes_of_keywords():
    code = """
import dask.array as da, applyufunc as au, numpy as np
kept = frozenset(["a", "b", "ccc", "dd"])
keywords = {"q": (kept, [kept]), "other": {kept, frozenset(["a"])}, "third": {"x": 1, "y": 2}}
print(au.apply_ufunc(np.mean, "()->()", da.ones(2), output_dtypes=float, kernel_token="k", kwargs=keywords).name)
"""
    names = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        names.add(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment).stdout)
    assert len(names) == 1


def test_chunks_are_named_by_their_sizes_in_order() -> None:
    layers = pytest.importorskip("applyufunc._lowering._dask._layers")
    names = [
        dask.base.tokenize(layers.Location((sizes,)))
        for sizes in ((1, 2), (2, 1), (1, 2, 3), (math.nan, 2), (math.nan, 1))
    ]
    assert len(set(names)) == 5
    assert dask.base.tokenize(layers.Location(((1, 2),))) == names[0]
