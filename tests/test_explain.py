"""`explain`: what a call would do, as fields and as text, without the kernel and without computing anything."""

from __future__ import annotations

import dataclasses
import inspect
import warnings

import numpy as np
import pytest
from drawn_calls import drawn_calls
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au
from applyufunc._core_chunks import _piecewise

WIDTH = 80


def fail(*blocks, **keywords):
    raise AssertionError("the kernel was called")


def total(rows):
    return rows.sum(axis=-1)


class Counting:
    def __init__(self, func):
        self.func, self.n_calls = func, 0

    def __call__(self, *blocks):
        self.n_calls += 1
        return self.func(*blocks)


@pytest.fixture(scope="module")
def da():
    """`dask.array`, where nothing may be computed."""
    dask, module = pytest.importorskip("dask"), pytest.importorskip("dask.array")

    def scheduler(*args, **keywords):
        raise AssertionError("explaining computed something")

    with dask.config.set(scheduler=scheduler):
        yield module


def run_graph(result):
    """Run what the scheduler gets for all results at once, in this thread; return its number of tasks."""
    import dask
    from dask.callbacks import Callback

    lengths = []
    with Callback(start=lambda graph: lengths.append(len(graph))):
        dask.persist(*(result if isinstance(result, tuple) else (result,)), scheduler="sync")
    return lengths[0]


# The operands


def test_operands_have_dims_sizes_and_dtypes():
    x, y = np.ones((5, 1, 4, 3), np.float32), np.ones((6, 3), np.int64)
    explained = au.explain(fail, "(m,n),(n)->(m)", x, y, output_dtypes=np.float64)
    found = [(o.name, o.dims, o.shape, o.n_core, o.dtype) for o in (*explained.arguments, *explained.outputs)]
    assert found == [
        ("argument 0", ("-2", "-1", "m", "n"), (5, 1, 4, 3), 2, np.float32),
        ("argument 1", ("-1", "n"), (6, 3), 1, np.int64),
        ("output 0", ("-2", "-1", "m"), (5, 6, 4), 1, np.float64),
    ]
    assert (explained.kernel, explained.signature) == ("fail", "(m,n),(n)->(m)")
    assert [o.bytes_before for o in explained.arguments] == [5 * 4 * 3 * 4, 6 * 3 * 8]
    assert [o.bytes_after for o in explained.outputs] == [5 * 6 * 4 * 8]
    assert (explained.largest_before, explained.largest_after) == (5 * 4 * 3 * 4, 5 * 6 * 4 * 8)


def test_scalars_and_none_are_operands_without_dims():
    explained = au.explain(fail, "(n),(),()->()", np.ones(3), 2.0, None)
    assert [(o.dims, o.dtype, o.blocks) for o in explained.arguments[1:]] == [((), float, None), ((), None, None)]
    assert [(o.bytes_before, o.bytes_after) for o in explained.arguments[1:]] == [(None, None)] * 2
    lines = str(explained).splitlines()
    assert "  argument 1      Python float; no dims" in lines
    assert "  argument 2      None; no dims" in lines


def test_core_dims_are_last_wherever_the_caller_has_them(da):
    explained = au.explain(fail, "(n)->(n)", da.ones((6, 4), chunks=(2, 4)), axis=0, output_dtypes=float)
    (argument,) = explained.arguments
    assert (argument.dims, argument.shape) == (("-1", "n"), (4, 6))
    assert argument.blocks.rechunking.before == ((4,), (2, 2, 2))


# Blocks


def test_a_merged_core_dimension_is_told_with_its_cost(da):
    explained = au.explain(fail, "(n)->()", da.ones((4, 6), chunks=(2, 3)), output_dtypes=np.float32)
    blocks = explained.arguments[0].blocks
    rechunking = blocks.rechunking
    assert blocks.chunks == rechunking.after == ((2, 2), (6,))
    assert rechunking.before == ((2, 2), (3, 3))
    assert (rechunking.merged, rechunking.unified, rechunking.split, rechunking.via) == (("n",), (), (), None)
    assert (rechunking.bytes_moved, rechunking.n_tasks, rechunking.n_steps) == (4 * 6 * 8, 2, 1)
    assert (explained.arguments[0].bytes_before, explained.arguments[0].bytes_after) == (2 * 3 * 8, 2 * 6 * 8)
    assert (explained.largest_before, explained.largest_after, explained.bytes_moved) == (48, 96, 192)
    assert explained.outputs[0].blocks.chunks == ((2, 2),)
    assert explained.outputs[0].bytes_after == 2 * 4
    assert (explained.way, explained.loop, explained.n_blocks) == ("blocks", (("-1", (2, 2)),), 2)


def test_arguments_that_fit_are_left_as_they_are(da):
    explained = au.explain(fail, "(n),(n)->()", da.ones((4, 6), chunks=(2, 6)), da.ones(6), output_dtypes=float)
    assert [argument.blocks.rechunking for argument in explained.arguments] == [None, None]
    assert (explained.bytes_moved, explained.largest_before, explained.largest_after) == (0, 96, 96)
    assert explained.warnings == ()


def test_unified_chunks_are_told_from_what_to_what(da):
    x, y = da.ones((12, 3), chunks=(2, 3)), da.ones((12, 3), chunks=(4, 3))
    explained = au.explain(fail, "(n),(n)->()", x, y, output_dtypes=float)
    changed = [a.blocks.rechunking for a in explained.arguments if a.blocks.rechunking is not None]
    assert [(r.merged, r.unified, r.split) for r in changed] == [((), ("-1",), ())]
    assert {changed[0].before[0], changed[0].after[0]} == {(2,) * 6, (4,) * 3}
    assert "cut as other arguments are" in str(explained)


def test_a_split_comes_with_the_warning_that_the_call_gives(da):
    x = da.ones((40, 60), chunks=(10, 20))
    explained = au.explain(fail, "(n)->(n)", x, output_dtypes=float, budget=1000)
    rechunking = explained.arguments[0].blocks.rechunking
    assert (rechunking.merged, rechunking.split) == (("n",), ("-1",))
    assert (explained.largest_before, explained.largest_after) == (10 * 20 * 8, 3 * 60 * 8)
    with pytest.warns(au.ApplyUfuncWarning) as caught:
        au.apply_ufunc(fail, "(n)->(n)", x, output_dtypes=float, budget=1000)
    assert explained.warnings == tuple(str(warning.message) for warning in caught)


def test_a_numpy_array_beside_dask_is_held_whole_and_no_block(da):
    explained = au.explain(fail, "(n),(n)->()", da.ones((4, 6), chunks=(2, 6)), np.ones((4, 6)), output_dtypes=float)
    assert [argument.blocks.in_memory for argument in explained.arguments] == [False, True]
    assert explained.arguments[1].blocks.chunks == ((4,), (6,))
    assert explained.largest_after == 96
    assert "  argument 1      in memory: held whole, each block sees its part" in str(explained).splitlines()


def test_unknown_sizes_stay_unknown(da):
    x = da.from_array(np.arange(12.0).reshape(4, 3), chunks=(2, 3))
    explained = au.explain(fail, "(n)->()", x[x[:, 0] > 1], output_dtypes=float, vectorize=True)
    assert explained.arguments[0].shape == (None, 3)
    assert (explained.n_blocks, explained.n_calls) == (2, None)
    assert (explained.largest_before, explained.largest_after) == (None, None)
    text = str(explained)
    assert "float64; loop -1: ?; core n: 3" in text
    assert "unknown: one for each item" in text


@pytest.mark.parametrize("kind", ["reduction", "ufunc"])
def test_calls_on_pieces_of_unknown_size_are_unknown(da, kind):
    signature, kernel, rule = in_pieces(lambda function: function)[kind]
    x = da.from_array(np.arange(6.0), chunks=3)
    explained = au.explain(kernel, signature, x[x > 0], core_chunks=rule, output_dtypes=float)
    assert (explained.core, explained.kept, explained.n_calls) == ("reduction", (("n", (None, None)),), None)


# Calls of the kernel, and dtypes


def test_a_vectorized_kernel_is_called_for_each_item(da):
    for x in (np.ones((4, 5, 6)), da.ones((4, 5, 6), chunks=(2, 5, 6))):
        assert au.explain(fail, "(n)->()", x, output_dtypes=float, vectorize=True).n_calls == 20


def test_blocks_without_items_are_answered_without_the_kernel(da):
    assert au.explain(fail, "(n)->()", np.ones((0, 3)), output_dtypes=float).n_calls == 0
    x = da.ones((4, 3), chunks=((2, 0, 2), 3))
    explained = au.explain(fail, "(n)->()", x, output_dtypes=float)
    assert (explained.n_blocks, explained.n_calls) == (3, 2)
    assert "2, one for each block that is not empty" in str(explained)


def test_where_dtypes_come_from(da):
    x = da.ones((4, 6), chunks=(2, 6))
    assert au.explain(fail, "(n)->()", x, output_dtypes=int).dtypes_from == "declared"
    assert au.explain(fail, "(n)->()", x, meta=np.empty(0)).dtypes_from == "declared"
    assert au.explain(np.vecdot, None, x, x).dtypes_from == "table"
    assert au.explain(fail, "(n)->()", np.ones(3)).dtypes_from == "returned"
    assert au.explain(fail, "(n)->()", np.ones((0, 3))).dtypes_from == "trial call"


def test_the_trial_call_is_told_and_not_made(da):
    x = da.ones((4, 6), chunks=(2, 6))
    kernel = Counting(total)
    explained = au.explain(kernel, "(n)->()", x)
    assert (explained.dtypes_from, explained.calls_kernel_for_dtypes, kernel.n_calls) == ("trial call", True, 0)
    assert explained.outputs[0].dtype is None
    assert explained.outputs[0].bytes_after is None
    au.apply_ufunc(kernel, "(n)->()", x)
    again = au.explain(kernel, "(n)->()", x)
    assert (again.dtypes_from, again.calls_kernel_for_dtypes, kernel.n_calls) == ("remembered", False, 1)
    assert again.outputs[0].dtype == np.float64


# Tasks


@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"keepdims": True}])
@pytest.mark.parametrize("outputs", ["()", "(),()"])
@pytest.mark.parametrize("second", ["alike", "other chunks", "in memory"])
def test_tasks_are_those_of_the_graph_that_a_scheduler_gets(da, options, outputs, second):
    x = da.from_array(np.ones((40, 40)), chunks=(10, 20))
    other = (da.ones((40, 40), chunks=(20, 5)) + 1).rechunk((7, 40))
    y = {"alike": x, "other chunks": other, "in memory": np.ones((40, 40))}[second]
    n_outputs = outputs.count("(")
    kernel = au.gufunc(f"(n),(n)->{outputs}", output_dtypes=float)(
        lambda x, y: (total(x * y),) * n_outputs if n_outputs > 1 else total(x * y)
    )
    explained = kernel.explain(x, y, **options)
    assert (explained.n_tasks, explained.n_tasks_is_estimate) == (run_graph(kernel(x, y, **options)), False)


def test_many_tasks_are_estimated_without_making_them(da):
    explained = au.explain(fail, "(n)->()", da.ones((200_000, 2), chunks=(1, 2)), output_dtypes=float)
    assert explained.n_tasks_is_estimate
    assert explained.n_tasks == 200_000 + 200_000  # those that make the argument, and one for each block
    assert "about 400,000 before optimisation, an estimate" in str(explained)


@given(data=st.data(), call=drawn_calls())
@examples(60)
def test_what_is_explained_is_what_happens(da, data, call):
    kernel = Counting(call.kernel)
    args = [da.from_array(arg, chunks=tuple(data.draw(chunkings(size)) for size in arg.shape)) for arg in call.args]
    options = {**call.options, "kernel_token": "of one that counts, and so changes"}
    explained = au.explain(kernel, call.signature, *args, **options)
    assert kernel.n_calls == 0
    result = au.apply_ufunc(kernel, call.signature, *args, **options)
    assert kernel.n_calls == explained.calls_kernel_for_dtypes
    # Once dtypes are known: names have them in, and by the order of names Dask joins a task more or less.
    known = au.explain(kernel, call.signature, *args, **options)
    assert run_graph(result) == known.n_tasks
    assert kernel.n_calls == explained.n_calls + explained.calls_kernel_for_dtypes
    for output, lazy in zip(explained.outputs, result if isinstance(result, tuple) else (result,), strict=True):
        assert output.dtype in (lazy.dtype, None)
        assert sorted(size for size in output.shape if size != 1) == sorted(size for size in lazy.shape if size != 1)
    check_width(str(explained))


def chunkings(size):
    cuts = st.lists(st.integers(0, size), max_size=3).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))


# Core dims that stay in chunks


def moments(x):
    return x.sum(axis=-1), (x * x).sum(axis=-1)


def add(*states):
    return tuple(a + b for a, b in zip(states[:2], states[2:], strict=True))


def running(x, total):
    sums = total[..., None] + np.cumsum(x, axis=-1)
    return sums, sums[..., -1]


def double(x):
    return 2 * x


def in_pieces(part):
    """Return how each kind of call works on pieces, with `part` in place of what is called for each."""
    return {
        "reduction": ("(n)->()", lambda x: 0.0, au.Reduction(part(moments), add, np.maximum, state="(n)->(),()")),
        "ufunc": ("(n)->()", part(total), np.add),
        "scan": ("(n)->(n)", part(running), au.Scan(initial=0.0)),
        "overlap": ("(n)->(n)", part(double), au.Overlap(1)),
    }


@pytest.mark.parametrize("kind", in_pieces(lambda function: function))
@pytest.mark.parametrize("vectorize", [False, True])
@given(data=st.data(), sizes=st.tuples(st.integers(0, 5), st.integers(0, 7)), piece_bytes=st.sampled_from([30, 2**24]))
@examples(15)
def test_calls_on_pieces_are_counted_before_they_are_made(da, monkeypatch, kind, vectorize, data, sizes, piece_bytes):
    monkeypatch.setattr(_piecewise, "PIECE_BYTES", piece_bytes)
    counting = []

    def part(function):
        counting.append(Counting(function))
        return counting[-1]

    kinds = in_pieces(lambda function: function)
    signature, kernel, rule = (in_pieces(part) if kind in kinds else kinds)[kind]
    used = counting[list(kinds).index(kind)]
    x = da.from_array(np.ones(sizes), chunks=tuple(data.draw(chunkings(size)) for size in sizes))
    options = {
        "core_chunks": rule,
        "output_dtypes": float,
        "vectorize": vectorize,
        "kernel_token": f"{kind} {id(used)}",
    }
    explained = au.explain(kernel, signature, x, **options)
    assert used.n_calls == 0
    result = au.apply_ufunc(kernel, signature, x, **options)
    n_before = used.n_calls
    n_tasks = run_graph(result)
    assert used.n_calls - n_before == explained.n_calls
    assert (explained.n_tasks, explained.n_tasks_is_estimate) == (n_tasks, False)
    check_width(str(explained))


@pytest.mark.parametrize(("rows", "core"), [((2, 0, 1), (2, 2)), ((0, 3), (0, 4)), ((0,), (2, 2)), ((3, 0), (0, 0))])
def test_pieces_that_are_empty_along_an_independent_dim_are_calls_too(da, rows, core):
    chunk = Counting(np.matmul)
    rule = au.Reduction(chunk, np.add, state="(m,n),(n,p)->(m,p)", independent=("m", "p"))
    x = da.from_array(np.ones((sum(rows), sum(core))), chunks=(rows, core))
    y = da.from_array(np.ones((sum(core), 2)), chunks=(core, (2, 0)))
    call = ("(m,n),(n,p)->(m,p)", x, y)
    options = {"core_chunks": rule, "output_dtypes": float, "kernel_token": f"counting {rows} {core}"}
    explained = au.explain(fail, *call, **options)
    result = au.apply_ufunc(fail, *call, **options)
    chunk.n_calls = 0
    assert (explained.n_tasks, explained.n_calls) == (run_graph(result), chunk.n_calls)


def test_a_reduction_is_told_with_its_state(da):
    x = da.ones((100, 60), chunks=(50, 20))
    signature, kernel, rule = in_pieces(lambda function: function)["reduction"]
    explained = au.explain(kernel, signature, x, core_chunks=rule, output_dtypes=float)
    assert (explained.core, explained.kept, explained.reason) == ("reduction", (("n", (20, 20, 20)),), "")
    assert (explained.n_blocks, explained.n_calls, explained.bytes_moved) == (6, 6, 0)
    assert explained.state_bytes == 2 * 50 * 8
    assert explained.arguments[0].blocks.rechunking is None
    run = [
        line
        for line in str(explained).splitlines()
        if line.startswith(("  blocks ", "  core dims", "  largest state", "  kernel"))
    ]
    assert run == [
        "  blocks          6: 2 x 3 along loop -1 and core n",
        "  core dims       reduction: n in 3 chunks, each chunk gives a state, and states",
        "  largest state   800 B",
        "  kernel calls    6 of the part that makes states, one for each block",
    ]


def test_a_reduction_whose_states_are_too_large_is_told_to_be_merged_and_why(da):
    x = da.ones((100, 60), chunks=(50, 2))
    signature, kernel, rule = in_pieces(lambda function: function)["reduction"]
    explained = au.explain(kernel, signature, x, core_chunks=rule, output_dtypes=float)
    assert (explained.core, explained.kept, explained.state_bytes) == ("whole", (), None)
    assert explained.reason == "the state of a block would have 800 bytes, more than half of the block's 800"
    assert explained.arguments[0].blocks.rechunking.merged == ("n",)
    assert "merged, although they could be reduced in their chunks: the" in " ".join(str(explained).split())


def test_scans_and_stencils_are_told(da):
    x = da.ones((4, 60), chunks=(2, (30, 1, 29)))
    signature, kernel, rule = in_pieces(lambda function: function)["scan"]
    scan = au.explain(kernel, signature, x, core_chunks=rule, output_dtypes=float)
    assert (scan.core, scan.kept, scan.outputs[0].blocks.chunks) == (
        "scan",
        (("n", (30, 1, 29)),),
        ((2, 2), (30, 1, 29)),
    )
    assert "scan: n in 3 chunks, one after the other" in str(scan)
    stencil = au.explain(double, "(n)->(n)", x, core_chunks=au.Overlap(3), output_dtypes=float)
    assert (stencil.core, stencil.kept) == ("overlap", (("n", (30, 30)),))
    rechunking = stencil.arguments[0].blocks.rechunking
    assert rechunking.after == ((2, 2), (33, 33))
    assert (rechunking.n_tasks, rechunking.n_steps) == (4, 1)
    assert rechunking.bytes_moved == 4 * 30 * 8 + 4 * 66 * 8  # what is merged, and what is joined
    reason = "n: 3 chunks of up to 30 -> 2 chunks of 33: no chunk is smaller than the halo, each with the edges of"
    assert reason in " ".join(str(stencil).split())


def test_the_blocks_of_a_stencil_are_those_that_the_kernel_gets(da):
    shapes = []

    def kernel(x, y):
        shapes.append((x.shape, y.shape))
        return x + y

    x, y = da.ones((2, 12), chunks=(2, (5, 4, 3))), da.ones(12, chunks=4)
    rule = au.Overlap({"n": 1}, {"n": 2})
    explained = au.explain(kernel, "(n),(n)->(n)", x, y, output_dtypes=float, core_chunks=rule)
    au.apply_ufunc(kernel, "(n),(n)->(n)", x, y, output_dtypes=float, core_chunks=rule).compute(scheduler="sync")
    sizes = [sorted(size for size in argument.blocks.chunks[-1]) for argument in explained.arguments]
    assert sizes == [sorted(shape[place][-1] for shape in shapes) for place in (0, 1)]
    assert "left as it is" not in str(explained)


def test_the_dtypes_of_states_are_not_tried_either(da):
    x = da.ones((4, 60), chunks=(2, 20))
    explained = au.explain(fail, "(n)->()", x, core_chunks=au.Reduction(fail, fail, fail, state="(n)->(),()"))
    assert (explained.core, explained.state_bytes) == ("reduction", 2 * 2 * 8)
    assert explained.calls_kernel_for_dtypes


@pytest.mark.parametrize("core_chunks", ["merge", np.add])
def test_what_would_be_warned_of_on_the_way_to_workers_is_told(da, core_chunks):
    large = b"x" * 2_000_000

    def kernel(x):
        return x.sum(axis=-1) + len(large)

    x = da.ones((4, 6), chunks=(2, 3))
    options = {"core_chunks": core_chunks, "output_dtypes": float}
    with pytest.importorskip("dask").config.set(scheduler="processes"):
        (warning,) = au.explain(kernel, "(n)->()", x, **options).warnings
    assert "carries 2.0 MB" in warning
    assert "variable 'large'" in warning


# Other libraries


def test_jax_is_explained_as_direct_outside_of_jit_and_as_a_callback_inside():
    jax = pytest.importorskip("jax")
    kernel = au.gufunc("(n)->()", output_dtypes=float)(fail)
    found = []
    x = jax.numpy.ones((3, 4), np.float32)
    found.append(kernel.explain(x))
    jax.jit(lambda x: found.append(kernel.explain(x)))(x)
    assert [(e.way, e.n_blocks, e.n_calls, e.n_tasks) for e in found] == [
        ("direct", 1, 1, None),
        ("callback", 1, 1, None),
    ]
    assert [(e.arguments[0].shape, e.largest_after, e.outputs[0].dtype) for e in found] == [
        ((3, 4), 48, np.float32),
        ((3, 4), 48, np.float32),
    ]
    assert "in a host callback when the traced program runs" in " ".join(str(found[1]).split())


def test_a_dtype_that_jax_narrows_is_told_in_the_words_of_the_warning():
    jax = pytest.importorskip("jax")
    kernel = au.gufunc("(n)->()", output_dtypes=np.float64)(lambda x: x.sum(axis=-1))
    x, found = jax.numpy.ones((3, 4)), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.append(kernel.explain(x))
        jax.jit(lambda x: found.append(kernel.explain(x)))(x)
    with pytest.warns(UserWarning, match="float64 in output_dtypes is not available") as caught:
        kernel(x)
    assert [e.warnings for e in found] == [(str(caught[0].message),)] * 2


def test_every_library_is_explained_without_calling_the_kernel(backend):
    if backend.batch or backend.traces or backend.compiles:
        pytest.skip("shown under jit by another test")
    if backend.named:
        pytest.skip("shown with names by another test")
    x = backend.put(np.ones((2, 3)))
    explained = au.explain(fail, "(n)->()", x, vectorize=True, **backend.options)
    assert (explained.way, explained.n_calls) == ("blocks" if backend.lazy else "direct", 2)
    assert explained.calls_kernel_for_dtypes == backend.lazy


# The two doors


def test_a_gufunc_explains_its_calls_with_their_keywords(da):
    x = da.ones((6, 4), chunks=(3, 2))

    def scaled(rows, *, factor):
        raise AssertionError("the kernel was called")

    bound = au.gufunc("(n)->()", output_dtypes=float, vectorize=True)(scaled)
    by_function = au.explain(scaled, "(n)->()", x, axis=0, factor=2, output_dtypes=float, vectorize=True)
    assert bound.explain(x, axis=0, factor=2) == by_function
    assert by_function.n_calls == 4


def test_a_method_is_explained_by_its_instance():
    class Model:
        @au.gufunc("(n)->()", output_dtypes=float)
        def run(self, rows):
            raise AssertionError("the kernel was called")

    assert Model().run.explain(np.ones((2, 3))).kernel == "run"


def test_explain_takes_what_apply_ufunc_takes():
    explain, apply = inspect.signature(au.explain), inspect.signature(au.apply_ufunc)
    assert list(explain.parameters.values()) == list(apply.parameters.values())


REFUSED = {
    "core sizes": ("(n),(n)->()", (np.ones(3), np.ones(4)), {}),
    "number of arguments": ("(n),(n)->()", (np.ones(3),), {}),
    "unknown keyword": ("(n)->()", (np.ones(3),), {"vectorise": True}),
    "refused merge": ("(n)->()", ("dask",), {"core_chunks": "refuse", "output_dtypes": float}),
    "unknown output size": ("(n)->(k)", ("dask",), {"output_sizes": {"k": None}, "output_dtypes": float}),
    "too large for a trial call": ("(n)->()", ("large",), {}),
    "meta of more tasks than are counted": ("(n)->()", ("many",), {"meta": (np.empty(0),) * 2, "output_dtypes": float}),
    "dtype that a library cannot hold": ("(n)->()", ("strict",), {"output_dtypes": np.float16}),
    "meta": ("(n)->()", ("dask",), {"meta": (np.empty(0), np.empty(0)), "output_dtypes": float}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_explain_refuses_what_the_call_refuses_in_the_same_words(da, case):
    arrays = {
        "dask": lambda: da.ones((4, 6), chunks=(2, 3)),
        "large": lambda: da.ones((2, 200_000), chunks=(1, 200_000)),
        "many": lambda: da.ones((20_000, 2), chunks=(1, 2)),
        "strict": lambda: pytest.importorskip("array_api_strict").ones((2, 3)),
    }
    signature, args, options = REFUSED[case]
    args = [arrays[arg]() if isinstance(arg, str) else arg for arg in args]
    refusals = []
    for door in (au.apply_ufunc, au.explain):
        with pytest.raises(au.ApplyUfuncError) as caught:
            door(lambda *blocks: fail(), signature, *args, **options)
        refusals.append((caught.type, str(caught.value)))
    assert refusals[0] == refusals[1]


# The value and the text


def test_an_explanation_is_a_frozen_value():
    explained, again = (au.explain(fail, "(n)->()", np.ones((2, 3))) for _ in range(2))
    assert explained == again
    assert hash(explained) == hash(again)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explained.n_calls = 3


TEXT = """\
kernel 'trend', signature '(n),(n)->(),()'

operands
  argument 0      float64; loop -2: 1,000, -1: 400; core n: 1,000
  argument 1      float64; loop -1: 400; core n: 1,000
  output 0        float32; loop -2: 1,000, -1: 400
  output 1        float32; loop -2: 1,000, -1: 400

blocks
  argument 0      n: 10 chunks of 100 -> 1 chunk of 1,000: the kernel needs it
                    whole
                  largest block 7.629 MiB -> 76.29 MiB; 2.98 GiB moved by about
                    40 tasks, 1 step
  argument 1      -1: 8 chunks of 50 -> 4 chunks of 100: cut as other arguments
                    are
                  largest block 390.6 KiB -> 781.2 KiB; 3.052 MiB moved by about
                    4 tasks, 1 step
  output 0        largest block 39.06 KiB
  output 1        largest block 39.06 KiB

run
  blocks          40: 10 x 4 along loop -2, -1
  largest block   7.629 MiB -> 76.29 MiB
  bytes moved     2.983 GiB
  kernel calls    400,000, one for each item
  tasks           TASKS after optimisation, the arguments' own included
  output dtypes   declared, so that the kernel is not called for them"""


def test_the_text_says_all_in_80_columns(da):
    @au.gufunc("(n),(n)->(),()", vectorize=True, output_dtypes=np.float32)
    def trend(x, y):
        raise AssertionError("the kernel was called")

    x = da.ones((1000, 400, 1000), chunks=(100, 100, 100))
    explained = trend.explain(x, da.ones((400, 1000), chunks=(50, 1000)))
    assert str(explained) == TEXT.replace("TASKS", str(explained.n_tasks))
    check_width(str(explained))


def test_long_names_and_many_dims_stay_within_the_columns(da):
    dims = [f"a_dimension_with_quite_a_long_name_{number}" for number in range(6)]
    kernel = au.gufunc(f"({','.join(dims)})->()", output_dtypes=float)(fail)
    kernel_of_long_name = type("Long", (), {"__name__": "a" * 100, "__call__": fail})()
    check_width(str(kernel.explain(da.ones((2,) * 12, chunks=1))))
    check_width(str(au.explain(kernel_of_long_name, "(n)->()", np.ones((2, 3)))))


def check_width(text):
    assert [line for line in text.splitlines() if len(line) > WIDTH or line != line.rstrip()] == []
