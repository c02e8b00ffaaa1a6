"""`Reduction`: what it takes, and kernels that are run piece by piece on every backend."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au
from applyufunc._core_chunks import _piecewise

pytest.importorskip("dask.array")  # most of what is here is on Dask

from applyufunc._lowering._dask._chunks import ArgumentChunks, plan_chunks
from applyufunc._lowering._dask._reduction_chunks import StateCore, plan_reduction

X = np.random.default_rng(0).normal(size=(4, 12))


def count_and_sum(x):
    return np.full(x.shape[:-1], x.shape[-1]), x.sum(axis=-1)


def mean_of(count, total):
    return total / count


def row_mean(x):
    raise AssertionError("the kernel itself was called")


MEAN = au.Reduction(count_and_sum, np.add, mean_of, state="(n)->(),()", state_dtypes=(int, float))


def product(matrices):
    """The product of matrices in their order."""
    result = np.broadcast_to(np.eye(matrices.shape[-1]), (*matrices.shape[:-3], *matrices.shape[-2:]))
    for position in range(matrices.shape[-3]):
        result = result @ matrices[..., position, :, :]
    return result


def dot(x, y):
    return np.einsum("...n,...n->...", x, y)


def matmul(x, y):
    return x @ y


def matmul_vector(x, y):
    return np.einsum("...pn,...n->...p", x, y)


def first_places(x, *, offset):
    return x.max(axis=-1), x.argmax(axis=-1) + offset["n"]


def keep_first(value, place, other, other_place):
    later = other > value
    return np.where(later, other, value), np.where(later, other_place, place)


ARGMAX = au.Reduction(first_places, keep_first, lambda value, place: place, state="(n)->(),()", offset=True)


def splits(size, most=4):
    """Chunk sizes that add up to `size`; some are 0."""
    cuts = st.lists(st.integers(0, size), max_size=most).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))


class Recorder:
    """A part that counts its calls."""

    def __init__(self, func):
        self.func, self.n_calls, self.lock = func, 0, threading.Lock()

    def __call__(self, *args):
        with self.lock:
            self.n_calls += 1
        return self.func(*args)


# What it takes


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1, np.add), {}, "chunk takes a function, got 1"),
        ((count_and_sum, None), {}, "combine takes a function, got None"),
        ((count_and_sum, np.add, 3), {}, "aggregate takes a function, got 3"),
        ((count_and_sum, np.negative), {}, "a ufunc of two arguments and one output"),
        ((count_and_sum, np.add), {"offset": 1}, "offset takes True or False, got 1"),
        ((count_and_sum, np.add), {"offset": True}, "chunk has to take the keyword 'offset'"),
        ((count_and_sum, np.add), {"state": "(n)->(n)"}, "keep every core dimension"),
        ((count_and_sum, np.add), {"state": "(n,n)->()"}, "keep every core dimension"),
        ((count_and_sum, np.add), {"state": "(3)->()"}, "keep every core dimension"),
        ((count_and_sum, np.add), {"independent": "n"}, "independent names 'n', which every state"),
        ((count_and_sum, np.add), {"independent": "p"}, "independent names 'p', which has to be a core dimension"),
        ((count_and_sum, np.add), {"independent": [1]}, "independent takes names"),
        ((count_and_sum, np.add), {"state": "(n,p)->(p,p)", "independent": "p"}, "every state .* has to have once"),
    ],
)
def test_reduction_refuses_what_it_cannot_be(arguments, options, message):
    with pytest.raises(au.OptionError, match=message):
        au.Reduction(*arguments, **{"state": "(n)->(),()", **options})


def test_reduction_is_a_value():
    again = au.Reduction(count_and_sum, np.add, mean_of, state="( n ) -> (),()", state_dtypes=[int, float])
    assert again == MEAN
    assert hash(again) == hash(MEAN)
    assert pickle.loads(pickle.dumps(MEAN)) == MEAN


@pytest.mark.parametrize(
    ("state", "reduced"),
    [
        ("(m,n),(n,p)->(m,p)", ("n",)),
        ("(n,p)->(),(p),(p,p)", ("n",)),
        ("(n),(e)->(e-1)", ("n",)),
        ("(m,n)->()", ("m", "n")),
        ("(n,k,k)->()", ("n",)),
        ("(n,3)->()", ("n",)),
    ],
)
def test_dims_that_no_state_has_are_reduced(state, reduced):
    assert au.Reduction(product, np.add, state=state).reduced == reduced


def test_state_with_other_inputs_than_the_kernel_is_refused():
    with pytest.raises(
        au.SignatureError, match=r"whose inputs are not those of the kernel's '\(m\)->\(\)': use the same"
    ):
        au.apply_ufunc(row_mean, "(m)->()", X, core_chunks=MEAN)


def test_state_that_is_not_the_outputs_needs_aggregate():
    with pytest.raises(au.SignatureError, match="without aggregate"):
        au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=au.Reduction(count_and_sum, np.add, state="(n)->(),()"))


def test_independent_dim_has_to_be_in_the_outputs():
    lossy = au.Reduction(matmul, np.add, np.trace, state="(m,n),(n,p)->(m,p)", independent=("m", "p"))
    with pytest.raises(au.OptionError, match="every output"):
        au.apply_ufunc(matmul, "(m,n),(n,p)->()", np.eye(2), np.eye(2), core_chunks=lossy)


def test_keyword_that_no_part_takes_is_refused():
    with pytest.raises(au.OptionError, match="'scale' of kernel '<lambda>' is taken by no part"):
        au.apply_ufunc(lambda x, scale: x, "(n)->()", X, core_chunks=MEAN, scale=2, kwargs={})


def test_a_combine_of_other_arguments_is_told_their_order():
    da = pytest.importorskip("dask.array")

    def first_and_second(state, following):
        return state

    pairs = au.Reduction(lambda x: (x.sum(-1), x.max(-1)), first_and_second, lambda a, b: a, state="(n)->(),()")
    lazy = da.from_array(X, chunks=(-1, 6))
    result = au.apply_ufunc(lambda x: x.sum(-1), "(n)->()", lazy, core_chunks=pairs, output_dtypes=float)
    with pytest.raises(TypeError) as caught:
        result.compute(scheduler="sync")
    assert "combine gets 4 arrays, combine(*first, *second)" in caught.value.__notes__


@pytest.mark.parametrize("value", ["split", ["merge"], 3, au.Reduction])
def test_core_chunks_takes_words_and_reductions(value):
    with pytest.raises(au.OptionError, match="core_chunks takes 'merge', 'refuse', a Reduction, Scan or Overlap, or a"):
        au.gufunc("(n)->()", core_chunks=value)


# On every backend


def test_parts_run_in_place_of_the_kernel(backend):
    result = backend.call(row_mean, "(n)->()", [backend.put(X)], {"core_chunks": MEAN, "output_dtypes": np.float64})
    np.testing.assert_allclose(backend.get(result), X.mean(axis=-1))


def test_chunk_gets_the_offset_of_its_piece(backend, monkeypatch):
    monkeypatch.setattr(_piecewise, "PIECE_BYTES", 32)
    result = backend.call(row_mean, "(n)->()", [backend.put(X)], {"core_chunks": ARGMAX, "output_dtypes": np.int64})
    np.testing.assert_array_equal(backend.get(result), X.argmax(axis=-1))


def test_parts_take_the_arrays_of_the_library():
    jax = pytest.importorskip("jax")

    def chunk(x):
        assert isinstance(x, jax.Array)
        return x.sum(axis=-1)

    by_parts = au.Reduction(chunk, jax.numpy.add, state="(n)->()")
    result = au.apply_ufunc(row_mean, "(n)->()", jax.numpy.ones((2, 3)), core_chunks=by_parts, kernel_arrays="same")
    assert isinstance(result, jax.Array)
    assert result.tolist() == [3, 3]


def test_the_same_call_compiles_once():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    options = {"core_chunks": MEAN, "output_dtypes": np.float32}
    count = []

    @jax.jit
    def mean(x):
        count.append(1)
        return au.apply_ufunc(row_mean, "(n)->()", x, **options)

    first = _piecewise.in_parts
    for _ in range(2):
        np.testing.assert_allclose(mean(x), X.mean(-1), rtol=1e-5)
    kernels = [first(kernel, au.Signature.parse("(n)->()"), made) for kernel, made in itertools.repeat(bound(), 2)]
    assert kernels[0].func is kernels[1].func
    assert count == [1]


def bound():
    func = au.gufunc("(n)->()", core_chunks=MEAN)(row_mean)
    return func._kernel, func._options


# Blocks in pieces


def test_temporaries_are_bounded(monkeypatch):
    monkeypatch.setattr(_piecewise, "PIECE_BYTES", 8 * 10)
    shapes = []

    def chunk(x):
        shapes.append(x.shape)
        return x.sum(axis=-1)

    by_parts = au.Reduction(chunk, np.add, state="(n)->()")
    x = np.arange(75.0).reshape(3, 25)
    np.testing.assert_allclose(au.apply_ufunc(row_mean, "(n)->()", x, core_chunks=by_parts), x.sum(-1))
    assert set(shapes) == {(1, 8), (1, 9)}


def test_pieces_are_combined_in_their_order(monkeypatch):
    monkeypatch.setattr(_piecewise, "PIECE_BYTES", 100)
    matrices = np.random.default_rng(0).normal(size=(2, 9, 3, 3))
    in_order = au.Reduction(product, np.matmul, state="(n,i,i)->(i,i)")
    result = au.apply_ufunc(product, "(n,i,i)->(i,i)", matrices, core_chunks=in_order)
    np.testing.assert_allclose(result, product(matrices))


def test_no_element_is_one_piece():
    result = au.apply_ufunc(row_mean, "(n)->()", np.ones((2, 0)), core_chunks=au.Reduction(*SUM, state="(n)->()"))
    assert result.tolist() == [0, 0]


def total(x):
    return x.sum(axis=-1)


SUM = (total, np.add)


def test_constants_reach_chunk_where_they_are():
    def chunk(x, y, scale):
        return (x * y * scale).sum(axis=-1)

    by_parts = au.Reduction(chunk, np.add, state="(n),(),()->()")
    result = au.apply_ufunc(chunk, "(n),(),()->()", X, 2, np.array(3.0), core_chunks=by_parts)
    np.testing.assert_allclose(result, 6 * X.sum(-1))


def test_parts_get_the_keywords_that_they_name():
    def power_sum(x, *, power):
        return (x**power).sum(axis=-1)

    def root(total, *, power):
        return total ** (1 / power)

    @au.gufunc("(n)->()", core_chunks=au.Reduction(power_sum, np.add, root, state="(n)->()"))
    def norm(x, *, power):
        raise AssertionError

    np.testing.assert_allclose(norm(np.abs(X), power=3), (np.abs(X) ** 3).sum(-1) ** (1 / 3))


def test_with_vectorize_each_part_takes_one_item():
    def chunk(row):
        assert row.ndim == 1
        return len(row), sum(row)

    def combine(n, total, other_n, other_total):
        assert isinstance(n, (int, np.integer))
        return n + other_n, total + other_total

    by_parts = au.Reduction(chunk, combine, mean_of, state="(n)->(),()")
    result = au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=by_parts, vectorize=True)
    np.testing.assert_allclose(result, X.mean(-1))


def test_state_is_checked_as_outputs_are():
    wrong = au.Reduction(lambda x: x, np.add, state="(n)->()")
    with pytest.raises(au.OutputShapeError) as caught:
        au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=wrong)
    assert any("kernel 'row_mean (chunk)' with signature '(n)->()'" in note for note in caught.value.__notes__)


def test_state_dtypes_are_enforced():
    rounded = au.Reduction(total, np.add, state="(n)->()", state_dtypes=np.float32)
    assert au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=rounded).dtype == np.float32
    with pytest.raises(au.OutputDTypeError, match="does not cast to the declared int64"):
        au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=au.Reduction(*SUM, state="(n)->()", state_dtypes=np.int64))


def test_states_have_sizes_that_are_known():
    with pytest.raises(au.UnknownSizeError, match="pass UpTo"):
        au.apply_ufunc(
            np.unique,
            "(n)->(k)",
            X,
            core_chunks=au.Reduction(np.unique, np.union1d, state="(n)->(k)"),
            output_sizes={"k": None},
        )


def test_inputs_are_read_only():
    def chunk(x):
        assert not x.flags.writeable
        return x.sum(axis=-1)

    au.apply_ufunc(row_mean, "(n)->()", X, core_chunks=au.Reduction(chunk, np.add, state="(n)->()"))


def test_masked_arrays_keep_their_mask():
    x = np.ma.masked_less(X, 0)
    result = au.apply_ufunc(row_mean, "(n)->()", x, core_chunks=au.Reduction(*SUM, state="(n)->()"))
    np.testing.assert_allclose(result, x.sum(-1))


# On Dask

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


def layers(array):
    return {name.rpartition("-")[0] for name in array.__dask_graph__().layers}


def compute(array):
    return array.compute(scheduler="sync")


def call_mean(x, **options):
    return au.apply_ufunc(row_mean, "(n)->()", x, **{"core_chunks": MEAN, "output_dtypes": float, **options})


@examples(60)
@given(st.data())
def test_any_chunks_give_the_mean(data):
    chunks = tuple(data.draw(splits(size)) for size in X.shape)
    result = call_mean(da.from_array(X, chunks=chunks))
    assert (result.shape, result.dtype) == ((4,), np.float64)
    np.testing.assert_allclose(compute(result), X.mean(-1))


def frobenius(x, y):
    return (x * y).sum(axis=(-2, -1))


COLUMNS = X[:, :, None]  # with a core dim of size 1


@pytest.mark.parametrize("rule", [np.add, au.Reduction(frobenius, np.add, state="(m,n),(m,n)->()")])
@pytest.mark.parametrize("other", [COLUMNS, da.from_array(COLUMNS, chunks=(2, 12, 1))])
def test_a_core_dim_of_size_1_may_have_empty_chunks_in_one_argument(rule, other):
    thin = da.from_array(COLUMNS, chunks=((2, 2), (12,), (0, 1, 0)))
    for args in ((thin, other), (other, thin)):
        result = au.apply_ufunc(frobenius, "(m,n),(m,n)->()", *args, core_chunks=rule, output_dtypes=float)
        np.testing.assert_allclose(compute(result), (X**2).sum(axis=-1))


def test_core_chunks_stay_where_they_are():
    lazy = da.from_array(X, chunks=(2, 6))
    result = call_mean(lazy)
    assert layers(result) - layers(lazy) == {"row_mean-state", "row_mean", "row_mean-aggregate"}
    assert result.chunks == ((2, 2),)


def test_building_calls_nothing():
    def refuse(*args):
        raise AssertionError("a part was called")

    refusing = au.Reduction(refuse, refuse, refuse, state="(n)->(),()")
    call_mean(da.from_array(X, chunks=(2, 6)), core_chunks=refusing)


def test_every_part_runs_once_for_what_it_has_to_do():
    chunk, combine, aggregate = map(Recorder, (count_and_sum, lambda a, b, c, d: (a + c, b + d), mean_of))
    by_parts = au.Reduction(chunk, combine, aggregate, state="(n)->(),()")
    compute(call_mean(da.from_array(X, chunks=(2, 4)), core_chunks=by_parts))
    assert (chunk.n_calls, combine.n_calls, aggregate.n_calls) == (6, 4, 2)


@examples(40)
@given(splits(9, most=8))
def test_states_are_combined_in_the_order_of_their_pieces(chunks):
    matrices = np.random.default_rng(0).normal(size=(9, 2, 2))
    in_order = au.Reduction(product, np.matmul, state="(n,i,i)->(i,i)", state_dtypes=float)
    lazy = da.from_array(matrices, chunks=(chunks, 2, 1))
    result = au.apply_ufunc(product, "(n,i,i)->(i,i)", lazy, core_chunks=in_order, output_dtypes=float)
    np.testing.assert_allclose(compute(result), product(matrices))


@examples(40)
@given(st.data())
def test_two_dims_are_reduced_at_once(data):
    x = np.arange(2 * 5 * 7.0).reshape(2, 5, 7)
    lazy = da.from_array(x, chunks=tuple(data.draw(splits(size)) for size in x.shape))
    largest = au.Reduction(lambda x: x.max(axis=(-2, -1)), np.maximum, state="(m,n)->()")
    result = au.apply_ufunc(row_mean, "(m,n)->()", lazy, core_chunks=largest, output_dtypes=float)
    np.testing.assert_array_equal(compute(result), x.max(axis=(1, 2)))


@examples(40)
@given(st.data())
def test_offset_is_that_of_the_block(data):
    chunks = tuple(data.draw(splits(size)) for size in X.shape)
    result = au.apply_ufunc(
        row_mean, "(n)->()", da.from_array(X, chunks=chunks), core_chunks=ARGMAX, output_dtypes=np.int64
    )
    np.testing.assert_array_equal(compute(result), X.argmax(-1))


@examples(40)
@given(st.data())
def test_arguments_are_cut_alike(data):
    y = np.random.default_rng(1).normal(size=(3, 1, 12))
    lazy = da.from_array(X, chunks=tuple(data.draw(splits(size)) for size in X.shape))
    other = da.from_array(y, chunks=tuple(data.draw(splits(size)) for size in y.shape))
    other = data.draw(st.sampled_from([other, y]))
    result = au.apply_ufunc(dot, "(n),(n)->()", lazy, other, core_chunks=np.add, output_dtypes=float)
    np.testing.assert_allclose(compute(result), dot(X, y))


@examples(60)
@given(st.data())
@pytest.mark.parametrize("signature", ["(m,n),(n,p)->(m,p)", "(m?,n),(n,p?)->(m?,p?)"])
def test_independent_dims_keep_their_chunks(signature, data):
    x, y = np.random.default_rng(0).normal(size=(2, 4, 8)), np.random.default_rng(0).normal(size=(8, 3))
    chunks = [tuple(data.draw(splits(size)) for size in array.shape) for array in (x, y)]
    by_parts = au.Reduction(matmul, np.add, state=signature, state_dtypes=float, independent=("m", "p"))
    lazy, other = (da.from_array(array, chunks=cut) for array, cut in zip((x, y), chunks, strict=True))
    result = au.apply_ufunc(matmul, signature, lazy, other, core_chunks=by_parts, output_dtypes=float)
    assert result.chunks == (chunks[0][0], chunks[0][1], chunks[1][1])
    np.testing.assert_allclose(compute(result), x @ y)


def test_stretched_dims_are_not_cut():
    stretching = au.Reduction(dot, np.add, state="(n),(n|1)->()")
    lazy, other = da.from_array(X, chunks=(2, 5)), da.from_array(np.full((4, 1), 2.0), chunks=1)
    result = au.apply_ufunc(dot, "(n),(n|1)->()", lazy, other, core_chunks=stretching, output_dtypes=float)
    np.testing.assert_allclose(compute(result), 2 * X.sum(-1))


def test_state_may_have_core_dims_and_new_sizes():
    def counts(x, *, n_bins):
        return np.stack([(x == value).sum(axis=-1) for value in range(n_bins)], axis=-1)

    x = np.arange(24).reshape(2, 12) % 5
    by_parts = au.Reduction(counts, np.add, state="(n)->(b)")
    options = {"core_chunks": by_parts, "output_dtypes": int, "output_sizes": {"b": lambda sizes, n_bins: n_bins}}
    result = au.apply_ufunc(counts, "(n)->(b)", da.from_array(x, chunks=(1, 6)), n_bins=3, **options)
    assert result.shape == (2, 3)
    np.testing.assert_array_equal(compute(result), counts(x, n_bins=3))


def test_core_chunks_of_unknown_size_are_reduced_where_they_are():
    lazy = da.from_array(X[0], chunks=3)
    known = lazy[lazy > 0]
    result = call_mean(known)
    assert "merge" not in layers(result)
    np.testing.assert_allclose(compute(result), X[0][X[0] > 0].mean())


@pytest.mark.parametrize("unknown", ["n", "k"])
@pytest.mark.parametrize("independent", ["k", ()])
@pytest.mark.parametrize("offset", [True, False])
def test_core_dims_are_merged_or_kept_whichever_of_them_has_unknown_sizes(unknown, independent, offset):
    def chunk(x, **_offset):
        return x.sum(axis=-2)

    x = np.arange(48.0).reshape(8, 6)
    lazy = da.from_array(x, chunks=(2, 3))
    lazy = lazy[lazy[:, 0] >= 0] if unknown == "n" else lazy[:, lazy[0] >= 0]
    by_parts = au.Reduction(
        chunk, np.add, state="(n,k)->(k)", state_dtypes=float, independent=independent, offset=offset
    )
    result = au.apply_ufunc(row_mean, "(n,k)->(k)", lazy, core_chunks=by_parts, output_dtypes=float)
    assert result.numblocks == (2 if independent else 1,)
    np.testing.assert_array_equal(compute(result), x.sum(axis=0))


def test_offset_needs_sizes_so_that_unknown_chunks_are_merged():
    lazy = da.from_array(X[0], chunks=3)
    result = au.apply_ufunc(row_mean, "(n)->()", lazy[lazy > 0], core_chunks=ARGMAX, output_dtypes=np.int64)
    assert "merge" in layers(result)
    assert compute(result) == X[0][X[0] > 0].argmax()


def test_loop_chunks_of_unknown_size_are_kept():
    lazy = da.from_array(X, chunks=(2, 6))
    result = call_mean(lazy[X[:, 0] > 0])
    np.testing.assert_allclose(compute(result), X[X[:, 0] > 0].mean(-1))


def test_loop_blocks_of_unknown_sizes_have_to_agree():
    lazy = da.from_array(X, chunks=(4, 6))
    rows, others = lazy[lazy[:, 0] > 9], lazy[lazy[:, 0] < 9]
    result = au.apply_ufunc(dot, "(n),(n)->()", rows, others, core_chunks=np.add, output_dtypes=float)
    with pytest.raises(au.DimensionError, match="is 0 in argument 0 and 4 in argument 1"):
        compute(result)


def test_large_states_are_not_worth_a_tree():
    by_parts = au.Reduction(*SUM, state="(n)->()", state_dtypes=float)
    result = au.apply_ufunc(
        row_mean, "(n)->()", da.from_array(X, chunks=(2, 1)), core_chunks=by_parts, output_dtypes=float
    )
    assert not {"row_mean-state", "row_mean-aggregate"} & layers(result)
    np.testing.assert_allclose(compute(result), X.sum(-1))


def test_empty_pieces_are_left_out():
    def chunk(x):
        assert x.size
        return x.max(axis=-1)

    largest = au.Reduction(chunk, np.maximum, state="(n)->()")
    lazy = da.from_array(X, chunks=((0, 4, 0), (0, 6, 0, 6, 0)))
    result = au.apply_ufunc(row_mean, "(n)->()", lazy, core_chunks=largest, output_dtypes=float)
    np.testing.assert_allclose(compute(result), X.max(-1))


def test_nothing_but_empty_pieces_is_what_chunk_says():
    lazy = da.from_array(np.ones((2, 0)), chunks=(2, (0, 0, 0)))
    by_parts = au.Reduction(*SUM, state="(n)->()")
    assert compute(au.apply_ufunc(row_mean, "(n)->()", lazy, core_chunks=by_parts, output_dtypes=float)).tolist() == [
        0,
        0,
    ]


def test_short_form_takes_the_kernel_as_chunk():
    calls = Recorder(dot)
    lazy = da.from_array(X, chunks=(2, 4))
    result = au.apply_ufunc(calls, "(n),(n)->()", lazy, lazy, core_chunks=np.add, output_dtypes=float)
    np.testing.assert_allclose(compute(result), (X * X).sum(-1))
    assert calls.n_calls == 6


def test_short_form_takes_a_function_of_two_states():
    def moments(x):
        return x.sum(axis=-1), x.max(axis=-1)

    def combine(total, largest, other, other_largest):
        return total + other, np.maximum(largest, other_largest)

    lazy = da.from_array(X, chunks=(2, 4))
    sums, largest = au.apply_ufunc(moments, "(n)->(),()", lazy, core_chunks=combine, output_dtypes=float)
    np.testing.assert_allclose(compute(sums), X.sum(-1))
    np.testing.assert_allclose(compute(largest), X.max(-1))


def test_short_form_leaves_the_kernel_alone_where_nothing_is_chunked():
    assert au.apply_ufunc(dot, "(n),(n)->()", X, X, core_chunks=np.add).tolist() == dot(X, X).tolist()


def test_vectorized_parts_run_on_blocks():
    lazy = da.from_array(X, chunks=(2, 4))
    result = au.apply_ufunc(sum, "(n)->()", lazy, core_chunks=np.add, output_dtypes=float, vectorize=True)
    np.testing.assert_allclose(compute(result), X.sum(-1))


def test_meta_is_that_of_the_outputs():
    x = np.ma.masked_less(X, 0)
    result = au.apply_ufunc(total, "(n)->()", da.from_array(x, chunks=(2, 4)), core_chunks=np.add, output_dtypes=float)
    assert isinstance(result._meta, np.ma.MaskedArray)
    np.testing.assert_allclose(compute(result), x.sum(-1))


def test_failure_says_in_which_part_and_block():
    def fail(x):
        if x[0, 0] == X[2, 4]:
            raise ZeroDivisionError("here")
        return x.sum(axis=-1)

    by_parts = au.Reduction(fail, np.add, state="(n)->()")
    result = au.apply_ufunc(
        row_mean, "(n)->()", da.from_array(X, chunks=(2, 4)), core_chunks=by_parts, output_dtypes=float
    )
    with pytest.raises(ZeroDivisionError) as caught:
        compute(result)
    kernel_note, piece_note = caught.value.__notes__
    assert kernel_note == (
        "in kernel 'row_mean (chunk)' with signature '(n)->()', called with float64(2, 4), "
        "block [2:4] of the loop dimensions"
    )
    assert piece_note == "in the piece [4:8] of core dimension 'n'"


def test_names_are_those_of_the_call():
    lazy = da.from_array(X, chunks=(2, 4))
    assert call_mean(lazy).name == call_mean(lazy).name
    others = [
        au.Reduction(first_places, np.add, mean_of, state="(n)->(),()", offset=True),
        au.Reduction(count_and_sum, np.fmax, mean_of, state="(n)->(),()", state_dtypes=(int, float)),
        au.Reduction(count_and_sum, np.add, np.divide, state="(n)->(),()", state_dtypes=(int, float)),
        au.Reduction(count_and_sum, np.add, mean_of, state="(n)->(),()", state_dtypes=(float, float)),
    ]
    assert len({call_mean(lazy, core_chunks=other).name for other in (MEAN, *others)}) == 5


PRINT_NAMES = """
import dask, dask.array as da
from applyufunc import reductions
x = da.ones((4, 48), chunks=(2, 16))
one = x.rechunk((4, 48))
print(dask.base.tokenize({"axis": 1, "keepdims": False}))
print(reductions.mean_var(one, ddof=1)[0].name, reductions.top_k(one, k=2).name, reductions.argmax(one).name)
print(reductions.mean_var(x, ddof=1)[0].name, reductions.top_k(x, k=2).name, reductions.argmax(x).name)
"""


def test_names_are_the_same_in_every_process():
    def names(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PRINT_NAMES]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()

    of_keywords, of_whole, of_trees = map(set, zip(*map(names, ("0", "1")), strict=True))
    assert len(of_whole) == 1
    # Before 2025.4 Dask names all trees, its own too, by the hash seed: https://github.com/dask/dask/pull/11867.
    assert len(of_trees) == len(of_keywords)


def test_parts_compiled_by_numba_have_a_name_of_their_own():
    numba = pytest.importorskip("numba")
    product = numba.guvectorize(["(f8[:], f8[:], f8[:])"], "(n),(n)->()")(write_dot)
    lazy = da.from_array(X, chunks=(2, 4))
    results = [
        au.apply_ufunc(product, "(n),(n)->()", lazy, lazy, core_chunks=np.add, output_dtypes=float) for _ in range(2)
    ]
    assert results[0].name == results[1].name
    np.testing.assert_allclose(compute(results[0]), (X * X).sum(-1))


def write_dot(x, y, result):
    result[0] = 0
    for i in range(len(x)):
        result[0] += x[i] * y[i]


def test_graph_travels_to_other_processes():
    lazy = da.from_array(X, chunks=(2, 4))
    mean, var = au.reductions.mean_var(lazy)
    results = dask.compute(mean, var, scheduler="processes", num_workers=1)
    np.testing.assert_allclose(results, [X.mean(-1), X.var(-1)])


def test_kernel_that_is_not_thread_safe_runs_one_part_at_a_time():
    running = []

    def chunk(x):
        running.append(1)
        assert len(running) == 1
        running.pop()
        return x.sum(axis=-1)

    by_parts = au.Reduction(chunk, np.add, state="(n)->()")
    lazy = da.from_array(np.ones((4, 400)), chunks=(1, 10))
    options = {"core_chunks": by_parts, "output_dtypes": float, "thread_safe": False}
    assert au.apply_ufunc(row_mean, "(n)->()", lazy, **options).compute(scheduler="threads").tolist() == [400] * 4


def test_user_chunks_that_are_refused_elsewhere_are_no_matter_here():
    with pytest.raises(au.AlignmentError):
        call_mean(da.from_array(X, chunks=(2, 4)), core_chunks="refuse")
    assert call_mean(da.from_array(X, chunks=(2, 4))).shape == (4,)


# How arguments are cut


def argument(dims, chunks, n_core, **how):
    return ArgumentChunks(0, dims, chunks, n_core, 8, **how)


def test_plan_says_why_states_are_too_large():
    given_chunks = [argument(("-1", "n"), ((10,), (2, 2)), 1)]
    plan = plan_reduction(given_chunks, ("n",), (), [StateCore((), (), 8), StateCore((), (), 4)], 1000)
    assert (plan.is_tree, plan.merged) == (False, ("n",))
    assert plan.reason == "the state of a block would have 120 bytes, more than half of the block's 160"
    assert plan.arguments == (((10,), (4,)),)


def test_plan_takes_states_of_half_a_block():
    plan = plan_reduction([argument(("-1", "n"), ((10,), (2, 2)), 1)], ("n",), (), [StateCore((), (), 8)], 1000)
    assert (plan.is_tree, plan.reason, plan.state_bytes, plan.block_bytes) == (True, "", 80, 160)
    assert plan.reduced == (("n", (2, 2)),)


def test_plan_cuts_core_dims_as_finely_as_an_argument_does():
    given_chunks = [argument(("n",), ((4, 4),), 1), argument(("-1", "n"), ((3,), (2, 2, 4)), 1)]
    plan = plan_reduction(given_chunks, ("n",), (), [], 1000)
    assert plan.arguments == (((4, 4),), ((3,), (4, 4)))


def test_plan_keeps_independent_dims_where_states_are_too_large():
    given_chunks = [argument(("m", "n"), ((3, 3), (1, 1)), 2), argument(("n", "p"), ((1, 1), (5,)), 2)]
    plan = plan_reduction(given_chunks, ("n",), ("m", "p"), [StateCore(("m", "p"), (6, 5), 8)], 1000)
    assert plan.is_tree
    assert (plan.independent, plan.reduced, plan.merged) == ((("m", (3, 3)), ("p", (5,))), (), ("n",))
    assert plan.arguments == (((3, 3), (2,)), ((2,), (5,)))


def test_plan_merges_unknown_chunks_that_do_not_match():
    given_chunks = [argument(("n",), ((None, None),), 1), argument(("n",), ((None, None, None),), 1)]
    plan = plan_reduction(given_chunks, ("n",), (), [], 1000)
    assert (plan.is_tree, plan.merged) == (False, ("n",))
    assert plan.reason == "the sizes of the chunks along 'n' are unknown until computed, and their numbers differ"


@pytest.mark.parametrize("budget", [None, 100, 1000])
def test_plan_treats_dims_that_stay_in_chunks_as_loop_dims(budget):
    rows, table = ((6, 6), (3, 3)), ((2,), (4, 4, 4), (2, 2, 2))
    plan = plan_reduction(
        [argument(("-1", "n"), rows, 1), argument(("-2", "-1", "n"), table, 1)], ("n",), (), [], budget
    )
    # With n as a loop dim in front of the others.
    as_loops = [argument(("-3", "-1"), rows[::-1], 0), argument(("-3", "-2", "-1"), (table[2], *table[:2]), 0)]
    expected = plan_chunks(as_loops, [], budget)
    assert (plan.reduced[0][1], *(cut for _, cut in plan.loop)) == tuple(cut for _, cut in expected.loop)
    work = [[(move.n_tasks, move.bytes_moved) for move in moves] for moves in (plan.moves, expected.moves)]
    assert work[0] == work[1]
    assert (plan.excess is None) == (expected.excess is None)


def test_plan_merges_other_core_dims_first_where_that_takes_less():
    given_chunks = [argument(("-1", "p", "n"), ((16,), (2, 2), (16,)), 2), argument(("n",), ((8, 8),), 1)]
    plan = plan_reduction(given_chunks, ("n",), (), [], 2**15)
    assert plan.moves[0].via == ((16,), (4,), (16,))
    assert plan.arguments[0] == ((16,), (4,), (8, 8))


def test_chunks_on_the_way_to_the_planned_ones_change_no_value():
    x, y = np.arange(16 * 4 * 16.0).reshape(16, 4, 16), np.arange(16.0)
    lazy, other = da.from_array(x, chunks=(16, 2, 16)), da.from_array(y, chunks=8)
    by_parts = au.Reduction(matmul_vector, np.add, state="(p,n),(n)->(p)", state_dtypes=float)
    result = au.apply_ufunc(row_mean, "(p,n),(n)->(p)", lazy, other, core_chunks=by_parts, output_dtypes=float)
    assert "row_mean-state" in layers(result)
    np.testing.assert_array_equal(compute(result), x @ y)


def test_plan_splits_a_reduced_dim_where_another_is_merged():
    given_chunks = [argument(("n", "p"), ((10, 10), (5, 5)), 2)]
    plan = plan_reduction(given_chunks, ("n",), (), [StateCore(("p",), (10,), 8)], 400)
    assert plan.reduced == (("n", (5, 5, 5, 5)),)
    assert plan.excess.split == (("n", 10, 5),)


def test_padded_outputs_come_from_aggregate():
    def tops(totals):
        return totals[..., None]

    by_parts = au.Reduction(*SUM, tops, state="(n)->()")
    options = {"core_chunks": by_parts, "output_dtypes": float, "output_sizes": {"k": au.UpTo(3, fill_value=-1)}}
    for x in (X, da.from_array(X, chunks=(2, 4))):
        result = np.asarray(au.apply_ufunc(row_mean, "(n)->(k)", x, **options))
        np.testing.assert_allclose(result, np.stack([X.sum(-1), np.full(4, -1), np.full(4, -1)], -1))
