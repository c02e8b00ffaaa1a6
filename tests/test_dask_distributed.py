"""Calls on Dask arrays whose tasks go to other processes: `distributed`, with workers that are processes, and pools."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import applyufunc as au

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")

from applyufunc._lowering._dask._keywords import put_back, take_out  # noqa: E402  # after it is known that Dask is there

pytestmark = pytest.mark.filterwarnings("ignore")  # what distributed says of ports and of its own dependencies

X = np.arange(24.0).reshape(4, 6)
LARGE = np.arange(500_000.0).reshape(5, 100_000)  # 4 MB
LIMIT = 90  # seconds; what never arrives fails here
LOCK = threading.Lock()


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(params=["dask.array", "dask_array"])
def front_end(request):
    return pytest.importorskip(request.param)


def computed(client, *lazy):
    """Return what the workers compute, all in one run."""
    return [future.result(timeout=LIMIT) for future in client.compute(list(lazy))]


def in_blocks(array=X, chunks=(1, 6)):
    return da.from_array(array, chunks=chunks)


def run_alone(code):
    """Run code in a process that has no client; return what it printed."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=LIMIT).stdout


def total(rows):
    return rows.sum(axis=-1)


# Results, calls, exceptions


def test_several_outputs_come_from_one_call_per_block_in_worker_processes(client, tmp_path):
    calls = tmp_path / "calls"

    def kernel(rows, offset):
        with calls.open("a") as log:
            log.write(f"{rows.shape}\n")
        return rows.sum(axis=-1) + offset, rows * 2

    lazy = da.from_array(X, chunks=(2, 3))
    sums, doubled = computed(client, *au.apply_ufunc(kernel, "(n),()->(),(n)", lazy, 1.0, output_dtypes=float))
    np.testing.assert_array_equal(sums, X.sum(-1) + 1)
    np.testing.assert_array_equal(doubled, X * 2)
    assert calls.read_text().splitlines() == ["(2, 6)", "(2, 6)"]


def test_persisted_outputs_are_not_computed_again(client, tmp_path):
    calls = tmp_path / "calls"

    def kernel(rows):
        with calls.open("a") as log:
            log.write("called\n")
        return rows.min(axis=-1), rows.max(axis=-1)

    least, most = client.persist(list(au.apply_ufunc(kernel, "(n)->(),()", in_blocks(), output_dtypes=float)))
    np.testing.assert_array_equal(computed(client, most - least), [X.max(-1) - X.min(-1)])
    np.testing.assert_array_equal(computed(client, least), [X.min(-1)])
    assert calls.read_text().splitlines() == ["called"] * 4


def test_an_exception_from_a_worker_keeps_its_type_and_its_note(client):
    class NoDataError(ValueError):
        """A type that only this test knows."""

    def boom(block):
        raise NoDataError("boom", 3)

    result = au.apply_ufunc(boom, "(n)->()", da.from_array(X[2:], chunks=(2, 3)), output_dtypes=float)
    with pytest.raises(NoDataError, match="boom") as caught:
        result.compute()
    assert caught.value.args == ("boom", 3)
    assert any("kernel 'boom' with signature '(n)->()'" in note and "[0:2]" in note for note in caught.value.__notes__)


def test_a_refused_output_is_the_same_error_as_without_workers(client):
    result = au.apply_ufunc(lambda rows: rows, "(n)->()", in_blocks(), output_dtypes=float)
    with pytest.raises(au.OutputShapeError) as local:
        result.compute(scheduler="sync")
    with pytest.raises(au.OutputShapeError) as far:
        computed(client, result)
    assert str(far.value) == str(local.value)
    assert len(far.value.__notes__) == 1


def test_a_persisted_input_is_not_changed_by_a_kernel_that_writes(client):
    def double_in_place(block):
        block *= 2
        return block

    kept = da.from_array(X.copy(), chunks=(2, 6)).persist()
    with pytest.raises(ValueError, match="read-only"):
        au.apply_ufunc(double_in_place, "()->()", kept, output_dtypes=float).compute()
    np.testing.assert_array_equal(kept.compute(), X)


def test_a_kernel_that_is_not_thread_safe_runs_once_at_a_time_in_each_worker(client, tmp_path):
    log = tmp_path / "log"

    def kernel(block):
        start = time.time()
        time.sleep(0.02)
        with log.open("a") as file:
            file.write(f"{os.getpid()} {start} {time.time()}\n")
        return block + 1

    ones = da.ones(16, chunks=1)
    (result,) = computed(client, au.apply_ufunc(kernel, "()->()", ones, output_dtypes=float, thread_safe=False))
    np.testing.assert_array_equal(result, np.full(16, 2.0))
    calls = sorted(line.split() for line in log.read_text().splitlines())
    assert len(calls) == 16
    for one, other in itertools.pairwise(calls):
        assert one[0] != other[0] or float(one[2]) <= float(other[1])


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(client, tmp_path):
    marker = tmp_path / "killed"

    def kernel(rows):
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return rows.sum(axis=-1), rows * 2
        os._exit(1)

    rows = np.arange(96.0).reshape(16, 6)
    sums, doubled = computed(client, *au.apply_ufunc(kernel, "(n)->(),(n)", in_blocks(rows), output_dtypes=float))
    assert marker.exists()
    np.testing.assert_array_equal(sums, rows.sum(-1))
    np.testing.assert_array_equal(doubled, rows * 2)


def test_an_array_that_workers_have_no_memory_for_is_worked_on_piece_by_piece():
    # A bare worker takes 200 MB of its 500; the array has 320, in chunks of a kind that have to be merged.
    code = """
import dask, dask.array as da, distributed, numpy as np, applyufunc as au
if __name__ == "__main__":
    dask.config.set({"array.chunk-size": "32MiB"})
    limits = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "500MB", "dashboard_address": None}
    with distributed.LocalCluster(**limits) as cluster, distributed.Client(cluster) as client:
        rows = da.random.default_rng(0).random((40_000, 1_000), chunks=(10_000, 100))
        means, extents = au.apply_ufunc(
            lambda r: (r.mean(-1), np.ptp(r, -1)), "(n)->(),()", rows, output_dtypes=float
        )
        mean, extent = client.compute([means.mean(), extents.mean()])
        print(abs(mean.result(timeout=80) - 0.5) < 0.001, abs(extent.result(timeout=80) - 0.998) < 0.001)
"""
    assert run_alone(code).split() == ["True", "True"]


# Large arrays in keywords


WEIGHTED = {"weights": LARGE, "more": {"name": "x", "offsets": [1, LARGE + 2]}}


def weighted(block, weights=None, more=None):
    return block * weights[0, 2] + more["offsets"][1][0, 1]


def sizes_of_tasks(lazy):
    """Return the bytes of each task's pickle, but for tasks that are nothing but data."""
    graph = dict(dask.optimize(lazy)[0].__dask_graph__())
    return [len(cloudpickle.dumps(task)) for task in graph.values() if getattr(task, "dependencies", ())]


@pytest.mark.parametrize("signature", ["(n)->(n)", "()->()"])
def test_no_task_carries_a_large_array_of_a_keyword(front_end, signature):
    lazy = front_end.from_array(X, chunks=(1, 6))
    result = au.apply_ufunc(weighted, signature, lazy, output_dtypes=float, **WEIGHTED) + 1
    assert len(sizes_of_tasks(result)) >= 4
    assert max(sizes_of_tasks(result)) < 20_000
    np.testing.assert_array_equal(result.compute(scheduler="threads"), 2 * X + 4)
    np.testing.assert_array_equal(result[1:3].compute(scheduler="sync"), 2 * X[1:3] + 4)


def test_a_large_array_of_a_keyword_reaches_worker_processes(client):
    def kernel(rows, weights, more):  # sent by value: to import this module takes seconds
        assert type(weights) is np.ndarray
        assert not weights.flags.writeable
        return rows.sum(axis=-1) * weights[0, 2] + more["offsets"][1][0, 1]

    result = au.apply_ufunc(kernel, "(n)->()", in_blocks(), output_dtypes=float, **WEIGHTED)
    np.testing.assert_array_equal(computed(client, result), [2 * X.sum(axis=-1) + 3])
    np.testing.assert_array_equal(result.compute(scheduler="processes", num_workers=1), 2 * X.sum(axis=-1) + 3)


def cumulative(block, total, weights):
    sums = total[..., None] + np.cumsum(block * weights[0, 2], axis=-1)
    return sums, sums[..., -1]


def weighted_total(block, weights):
    return (block * weights[0, 2]).sum(axis=-1)


@pytest.mark.parametrize("core_dims", [(2, 4), (0, 6, 0)])
@pytest.mark.parametrize(
    ("kernel", "signature", "rule", "expected"),
    [
        (cumulative, "(n)->(n)", au.Scan(initial=0.0), np.cumsum(2 * X, axis=-1)),
        (lambda block, weights: block * weights[0, 2], "(n)->(n)", au.Overlap(1), 2 * X),
        (weighted_total, "(n)->()", np.add, 2 * X.sum(-1)),
    ],
)
def test_no_task_on_a_piece_carries_a_large_array(front_end, kernel, signature, rule, expected, core_dims):
    lazy = front_end.from_array(X, chunks=(1, core_dims))
    options = {"core_chunks": rule, "output_dtypes": float}
    result = au.apply_ufunc(kernel, signature, lazy, weights=LARGE, **options)
    assert max(sizes_of_tasks(result)) < 20_000
    np.testing.assert_array_equal(result.compute(scheduler="sync"), expected)
    np.testing.assert_array_equal(result[1:3].compute(scheduler="sync"), expected[1:3])
    one_row = au.apply_ufunc(
        kernel, signature, front_end.from_array(X[0], chunks=(core_dims,)), weights=LARGE, **options
    )
    np.testing.assert_array_equal(one_row.compute(scheduler="sync"), expected[0])


def by_parts(**parts):
    """Return the options of a sum in parts, some of them others."""
    own = {
        "chunk": lambda x: x.sum(axis=-1),
        "combine": lambda a, b: a + b,
        "aggregate": lambda a: a,
        "state": "(n)->()",
        "state_dtypes": None,
    }
    return {"core_chunks": au.Reduction(**(own | parts)), "output_dtypes": float}


@pytest.mark.parametrize("core_dims", [(2, 4), (0, 6, 0)])
@pytest.mark.parametrize("outputs", ["(),", "(),()"])
def test_no_task_carries_a_large_array_for_aggregate(front_end, core_dims, outputs):
    expected = (2 * X.sum(-1), 2 * X.sum(-1) + 1)[: outputs.count("(")]

    def scale(state, weights):
        scaled = state * weights[0, 2]
        return (scaled, scaled + 1)[: outputs.count("(")]

    lazy = front_end.from_array(X, chunks=(1, core_dims))
    options = by_parts(aggregate=scale)
    found = au.apply_ufunc(total, f"(n)->{outputs}", lazy, kwargs={"weights": LARGE}, **options)
    for output, values in zip(found, expected, strict=True):
        assert max(sizes_of_tasks(output)) < 20_000
        np.testing.assert_array_equal(output.compute(scheduler="sync"), values)
        np.testing.assert_array_equal(output[1:3].compute(scheduler="sync"), values[1:3])


def test_only_tasks_that_combine_carry_a_large_array_for_combine_and_are_warned_of():
    def add(state, following, weights):
        return state + following * weights[0, 1]

    lazy = in_blocks(chunks=(1, 2))
    with dask.config.set(scheduler="processes"), pytest.warns(au.ApplyUfuncWarning) as caught:
        result = au.apply_ufunc(total, "(n)->()", lazy, kwargs={"weights": LARGE}, **by_parts(combine=add))
    (message,) = (str(warning.message) for warning in caught)
    assert "(combine)' carries 4.0 MB in each of its 4 tasks, for keyword 'weights', of type numpy.ndarray" in message
    assert message.endswith("let chunk or aggregate take it in place of combine")
    assert sum(size > 1_000_000 for size in sizes_of_tasks(result)) == 4  # of 16
    np.testing.assert_array_equal(result.compute(scheduler="sync"), X.sum(-1))


def test_keywords_beside_large_arrays_are_not_walked_through_in_tasks():
    numbers = list(range(300_000))
    kept, arrays = take_out({"numbers": numbers, "more": {"numbers": numbers, "large": LARGE}})
    start = time.perf_counter()
    back = put_back(kept, arrays)
    assert time.perf_counter() - start < 0.1  # seconds; each number costs a microsecond to look at
    assert back["numbers"] is back["more"]["numbers"] is numbers
    assert list(back["more"]) == ["numbers", "large"]


def test_a_reduction_of_nothing_has_its_large_keywords_too(front_end):
    lazy = front_end.from_array(np.ones((3, 0)), chunks=(1, ((0,))))
    lazy = front_end.concatenate([lazy, lazy], axis=-1)
    result = au.apply_ufunc(weighted_total, "(n)->()", lazy, weights=LARGE, core_chunks=np.add, output_dtypes=float)
    np.testing.assert_array_equal(result.compute(scheduler="sync"), np.zeros(3))


def test_several_outputs_share_the_large_arrays_of_keywords():
    def kernel(rows, weights):
        return total(rows) + weights[0, 1], rows * weights[0, 2]

    sums, products = au.apply_ufunc(kernel, "(n)->(),(n)", in_blocks(), weights=LARGE, output_dtypes=float)
    np.testing.assert_array_equal(sums.compute(scheduler="sync"), X.sum(-1) + 1)
    np.testing.assert_array_equal(products.compute(scheduler="sync"), X * 2)


def test_names_tell_large_keywords_apart_by_their_content(front_end):
    def name(**keywords):
        lazy = front_end.from_array(X, chunks=(1, 6))
        return au.apply_ufunc(weighted, "()->()", lazy, output_dtypes=float, kwargs=keywords).name

    one = name(weights=LARGE, more=LARGE + 1)
    assert one == name(more=LARGE + 1, weights=LARGE.copy())
    others = [
        name(weights=LARGE + 1, more=LARGE),
        name(weights=LARGE),
        name(more=LARGE),
        name(weights=[LARGE]),
        name(weights=(LARGE,)),
        name(weights={"a": LARGE}),
        name(weights={"b": LARGE}),
        name(weights=LARGE, more=[LARGE + 1]),
        name(weights=LARGE.astype("f4").repeat(2, axis=1)),
    ]
    assert len({one, *others}) == 1 + len(others)


def test_keywords_come_back_in_their_order_and_containers_as_they_were():
    masked = np.ma.masked_array(np.ones(200_000), mask=False)
    fortran = np.asfortranarray(np.ones((400, 400)))
    keywords = {"z": (1, [fortran]), "a": masked, "small": np.ones(3), "text": ["x"]}
    kept, arrays = take_out(keywords)
    assert len(arrays) == 2
    assert kept["small"] is keywords["small"]
    assert kept["text"] is keywords["text"]
    back = put_back(kept, arrays)
    assert list(back) == list(keywords)
    assert type(back["z"]) is tuple
    assert type(back["z"][1]) is list
    assert back["z"][1][0].flags.f_contiguous
    assert not back["z"][1][0].flags.writeable
    assert type(back["a"]) is np.ma.MaskedArray
    assert take_out({"a": np.ones(125_000)})[1] == ()  # 1 MB is not yet large


# What cannot travel


class Scale:
    """A callable that holds something."""

    def __init__(self, held):
        self.held = held

    def __call__(self, block):
        return block

    def apply(self, block):
        return block


def closing_over(held):
    return lambda block: block if held is None else block + 0


def closing_over_a_table_of(held):
    table = {"first": [held]}
    return lambda block: block if table is None else block + 0


def with_default(held):
    def kernel(block, *, spare=held):
        return block

    return kernel


def with_parameter(block, spare=None):
    return block


def rebuilt_from(held):
    class Rebuilt:
        def __reduce__(self):
            return Rebuilt, (held,)

    return closing_over(Rebuilt())


def reading_a_global():
    def kernel(block):
        return block if LOCK is None else block + 0

    kernel.__module__ = "__main__"  # from where nothing can be imported, as in a notebook
    return kernel


HOLDERS = {
    "closure": (closing_over, "variable 'held' in the closure of '<lambda>'"),
    "container": (closing_over_a_table_of, "item 0 of item 'first' of variable 'table' in the closure of '<lambda>'"),
    "partial": (lambda held: functools.partial(with_parameter, spare=held), "keyword 'spare' of the partial"),
    "attribute": (Scale, "attribute 'held'"),
    "method": (lambda held: Scale(held).apply, "attribute 'held' of the object that has the method"),
    "default": (with_default, "the default of 'spare'"),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_kernel_that_does_not_pickle_is_refused_with_the_name_of_the_variable(client, holder):
    make, where = HOLDERS[holder]
    with pytest.raises(au.ApplyUfuncError, match="active distributed client") as caught:
        au.apply_ufunc(make(threading.Lock()), "()->()", in_blocks(), output_dtypes=float)
    assert isinstance(caught.value, TypeError)
    assert f"since {where}, of type _thread.lock, does not pickle" in str(caught.value)
    assert str(caught.value).endswith("pass thread_safe=False in its place")
    assert "cannot pickle '_thread.lock' object" in str(caught.value.__cause__)


def test_a_global_or_a_part_of_a_pickle_that_does_not_travel_is_named(client):
    with pytest.raises(au.ArgumentError, match="since global variable 'LOCK', of type"):
        au.apply_ufunc(reading_a_global(), "()->()", in_blocks(), output_dtypes=float)
    with pytest.raises(au.ArgumentError, match="since argument 0 of __reduce__ of variable 'held' in the closure"):
        au.apply_ufunc(rebuilt_from(threading.Lock()), "()->()", in_blocks(), output_dtypes=float)


def advancing(held):
    def step(block, total):
        sums = total[..., None] + np.cumsum(block, axis=-1)
        return sums, sums[..., -1] if held is None else sums[..., -1] + 0

    return step


def in_part(part):
    """Return what makes options of which one part is another, holding something."""
    return lambda held: by_parts(**{part: lambda *blocks: blocks[0].sum(-1) if held is None else blocks[0]})


PARTS = {
    **{part: (in_part(part), f"the Reduction's {part}") for part in ("chunk", "combine", "aggregate")},
    "state_dtypes": (
        lambda held: by_parts(state_dtypes=lambda dtype: float if held is None else dtype),
        "the Reduction's state_dtypes",
    ),
    "step": (lambda held: {"core_chunks": au.Scan(advancing(held), initial=0.0)}, "the Scan's step"),
    "initial": (
        lambda held: {"core_chunks": au.Scan(advancing(None), initial=lambda x: x[..., 0] * 0 + (held is None))},
        "the Scan's initial",
    ),
}


@pytest.mark.parametrize("chunks", [(1, 6), (1, 2)])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_does_not_pickle_or_is_large_is_named(client, part, chunks):
    make, where = PARTS[part]
    signature = "(n)->(n)" if "Scan" in where else "(n)->()"
    where = rf"variable 'held' in the closure of '.*' of {where}"
    call = functools.partial(au.apply_ufunc, total, signature, in_blocks(chunks=chunks))
    with pytest.raises(au.ArgumentError, match=f"since {where}, of type _thread.lock.*thread_safe=False"):
        call(**{"output_dtypes": float} | make(threading.Lock()))
    with pytest.warns(au.ApplyUfuncWarning, match=f"carries 4.0 MB .*, for {where}, of type numpy.ndarray") as caught:
        call(**{"output_dtypes": float} | make(LARGE))
    assert len(caught) == 1


def test_an_attribute_of_a_frozen_dataclass_with_slots_is_named(client):
    @dataclasses.dataclass(frozen=True, slots=True)
    class Model:
        size: int
        lock: object

        def __call__(self, block):
            return block

    with pytest.raises(au.ArgumentError, match=r"since attribute 'lock', of type _thread\.lock"):
        au.apply_ufunc(Model(3, threading.Lock()), "()->()", in_blocks(), output_dtypes=float)


def test_a_keyword_that_does_not_pickle_is_refused_by_name(client):
    message = "keyword 'spare', of type generator, does not pickle .*: make it in the kernel"
    with pytest.raises(au.ArgumentError, match=message):
        au.apply_ufunc(with_parameter, "()->()", in_blocks(), spare=(i for i in X), output_dtypes=float)


def test_a_kernel_that_does_not_pickle_runs_where_it_does_not_travel(client):
    kernel = closing_over(threading.Lock())
    with dask.config.set(scheduler="threads"):  # which Dask prefers to a client
        result = au.apply_ufunc(kernel, "()->()", in_blocks(), output_dtypes=float)
        np.testing.assert_array_equal(result.compute(), X)


def test_without_a_client_nothing_is_checked_and_distributed_is_not_imported():
    code = """
import sys, threading, warnings, dask.array as da, numpy as np, applyufunc as au
lock, large = threading.Lock(), np.ones(10**6)
warnings.simplefilter("error")
au.apply_ufunc(lambda block: block + (lock is large), "()->()", da.ones(4, chunks=1), output_dtypes=float)
print("distributed" in sys.modules)
import distributed
result = au.apply_ufunc(lambda block: block + (lock is large), "()->()", da.ones(4, chunks=1), output_dtypes=float)
print(result.compute(scheduler="threads"))
"""
    assert run_alone(code).splitlines() == ["False", "[1. 1. 1. 1.]"]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_kernel_that_takes_large_data_along_is_warned_of_with_the_name_of_the_variable(client, holder):
    make, where = HOLDERS[holder]
    message = f"carries 4.0 MB in each of its 4 tasks, for {where}, of type numpy.ndarray: pass .* in keywords"
    with pytest.warns(au.ApplyUfuncWarning, match=message) as caught:
        au.apply_ufunc(make(LARGE), "(n)->(n)", in_blocks(), output_dtypes=float)
    assert [warning.filename for warning in caught] == [__file__]


def test_large_data_is_warned_of_where_processes_are_configured():
    with dask.config.set(scheduler="processes"), pytest.warns(au.ApplyUfuncWarning, match="variable 'held'"):
        au.apply_ufunc(closing_over(LARGE), "()->()", in_blocks(), output_dtypes=float)


def test_large_data_is_not_warned_of_where_it_is_no_cost(client):
    with warnings.catch_warnings():
        warnings.simplefilter("error", au.ApplyUfuncWarning)
        au.apply_ufunc(closing_over(LARGE), "(n)->(n)", in_blocks(chunks=(4, 6)), output_dtypes=float)  # one task
        au.apply_ufunc(weighted, "()->()", in_blocks(), output_dtypes=float, **WEIGHTED)
        with dask.config.set(scheduler="sync"):
            au.apply_ufunc(closing_over(LARGE), "()->()", in_blocks(), output_dtypes=float)
