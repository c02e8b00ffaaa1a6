"""`threads=`: the items of a loop in several threads give what they give in one, and the same first exception."""

from __future__ import annotations

import contextvars
import gc
import pickle
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

THREADS = 3


def threaded(kernel, signature, **options):
    return au.gufunc(signature, vectorize=True, **{"threads": THREADS, **options})(kernel)


class Meeting:
    """A kernel that waits until it runs in as many threads at once as it is told; one that waits for ever fails."""

    def __init__(self, parties):
        self.barrier = threading.Barrier(parties, timeout=30)
        self.threads = set()

    def __call__(self, x):
        if threading.get_ident() not in self.threads:
            self.threads.add(threading.get_ident())
            self.barrier.wait()
        return x


# What comes out


KERNELS = {
    "rows": ("(n)->(n)", lambda x: x[::-1] * 2),
    "numbers": ("(n)->()", lambda x: float(x.sum())),
    "two outputs": ("(n)->(),(n)", lambda x: (x.max(initial=0), x)),
    "dtypes that vary": ("(n)->(n)", lambda x: x.astype("i4") if x.sum() % 2 else x),
    "sizes that vary": ("(n)->(k)", lambda x: x[x % 2 == 0]),
}


@pytest.mark.covers("`threads`")
def test_threads_give_what_one_thread_gives(backend):
    @examples(min(30, backend.examples // 5))
    @given(st.sampled_from(list(KERNELS)), st.lists(st.integers(0, 5), max_size=2), st.integers(0, 3), st.data())
    def check(kernel, loop, n, data):
        signature, function = KERNELS[kernel]
        options = {"vectorize": True, "output_dtypes": float, "output_sizes": {"k": au.UpTo(3)}}
        options |= {} if "k" in signature else {"output_sizes": None}
        threads = data.draw(st.integers(2, 5))
        x = np.arange(float(np.prod([*loop, n]))).reshape(*loop, n)
        results = [
            backend.call(function, signature, (backend.put(x, data),), {**options, "threads": number})
            for number in (1, threads)
        ]
        for one, many in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
            backend.check_type(many)
            one, many = backend.get(one), backend.get(many)  # noqa: PLW2901
            assert (one.shape, one.dtype) == (many.shape, many.dtype)
            np.testing.assert_array_equal(one, many)

    check()


@pytest.mark.parametrize("n_items", [0, 1, 2, 3, 7, 1000, 30_000])
def test_results_come_in_the_order_of_the_loop(n_items):
    x = np.arange(2.0 * n_items).reshape(n_items, 2)
    result = threaded(lambda row: row + 1, "(n)->(n)")(x) if n_items else None
    if n_items:
        np.testing.assert_array_equal(result, x + 1)
    declared = threaded(lambda row: row.sum(), "(n)->()", output_dtypes=float)(x)
    assert declared.shape == (n_items,)
    np.testing.assert_array_equal(declared, x.sum(-1))


def test_items_of_several_dtypes_and_kinds_promote_as_in_one_thread():
    def kernel(x):
        return [int(x), np.float32(x), float(x), np.array(x, "i8")][int(x) % 4]

    x = np.arange(100.0)
    one, many = (threaded(kernel, "()->()", threads=number)(x) for number in (1, THREADS))
    assert one.dtype == many.dtype
    np.testing.assert_array_equal(one, many)


def test_objects_stay_the_objects_that_they_are():
    made = [object() for _ in range(50)]
    result = threaded(lambda place: made[int(place)], "()->()", output_dtypes=object)(np.arange(50))
    assert all(got is expected for got, expected in zip(result, made, strict=True))


def test_array_that_a_thread_fills_again_and_again_is_read_in_time():
    own = threading.local()

    def kernel(x):
        if not hasattr(own, "row"):
            own.row = np.empty(2)
        own.row[:] = x
        return own.row

    np.testing.assert_array_equal(threaded(kernel, "()->(2)")(np.arange(500.0)), np.arange(500.0)[:, None] + [0, 0])


def test_writable_items_are_each_kernels_own():
    x = np.ones((200, 3))

    def kernel(row):
        row += 1
        return row

    np.testing.assert_array_equal(threaded(kernel, "(n)->(n)", writable=True)(x), x + 1)
    np.testing.assert_array_equal(x, 1)


# In which threads


@pytest.mark.parametrize("way", ["numpy", "dask", "jax", "jax.jit"])
def test_items_of_one_call_run_in_as_many_threads_as_were_asked_for(way):
    kernel = Meeting(THREADS)
    f = threaded(kernel, "()->()", output_dtypes=float)
    x = np.arange(40.0)
    if way == "dask":
        result = f(pytest.importorskip("dask.array").from_array(x)).compute(scheduler="sync")
    elif way == "numpy":
        result = f(x)
    else:
        jax = pytest.importorskip("jax")
        result = (jax.jit(f) if way == "jax.jit" else f)(jax.numpy.asarray(x))
    np.testing.assert_array_equal(result, x)
    assert len(kernel.threads) == THREADS


def test_calling_thread_does_its_share_and_no_thread_outlives_the_call():
    kernel, before = Meeting(THREADS), threading.active_count()
    threaded(kernel, "()->()")(np.arange(40.0))
    assert threading.get_ident() in kernel.threads
    assert threading.active_count() == before


def test_no_more_threads_are_started_than_there_are_items():
    kernel = Meeting(2)
    threaded(kernel, "()->()", threads=50)(np.arange(2.0))
    assert len(kernel.threads) == 2


def test_kernels_that_release_the_interpreter_run_at_the_same_time():
    all_are_in, lock, inside = threading.Barrier(10, timeout=30), threading.Lock(), []

    def kernel(x):
        with lock:
            inside.append(x)
        all_are_in.wait()  # for ever, if they came one after the other
        return x

    np.testing.assert_array_equal(threaded(kernel, "()->()", threads=10)(np.arange(20.0)), np.arange(20))
    assert len(inside) == 20


def test_where_no_thread_can_start_the_calling_one_does_all(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    np.testing.assert_array_equal(threaded(lambda x: x, "()->()")(np.arange(40.0)), np.arange(40.0))


def test_threads_see_the_context_of_the_call():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    kernel = Meeting(THREADS)
    result = threaded(lambda x: (kernel(x), variable.get())[1], "()->()")(np.arange(40.0))
    np.testing.assert_array_equal(result, 7)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        threaded(lambda x: np.float64(1) / x, "()->()")(np.zeros(40))


# What fails


def test_the_first_failing_item_in_the_order_of_the_loop_is_reported_whichever_fails_first():
    def kernel(x):
        if x == 30:
            raise KeyError("early, in a later item")
        if x == 5:
            time.sleep(0.05)
            raise ValueError("late, in an earlier item")
        return x

    for _ in range(5):
        with pytest.raises(ValueError, match="late, in an earlier item") as caught:
            threaded(kernel, "()->()")(np.arange(40.0))
        (note,) = caught.value.__notes__
        assert "called with float64() (item 5), for arguments float64(40,)" in note


@pytest.mark.parametrize("place", [0, 1, 17, 38, 39])
def test_notes_name_the_item_as_in_one_thread(place):
    def kernel(x):
        if x >= place:
            raise ValueError("no")
        return x

    notes = []
    for threads in (1, THREADS):
        with pytest.raises(ValueError, match="no") as caught:
            threaded(kernel, "()->()", threads=threads)(np.arange(40.0).reshape(4, 10))
        notes.append(caught.value.__notes__)
        assert [entry.name for entry in caught.traceback][-1] == "kernel"
    assert notes[0] == notes[1]


def test_threads_stop_after_a_failure():
    calls = []

    def kernel(x):
        calls.append(x)
        if x == 0:
            raise ValueError("no")
        time.sleep(0.001)
        return x

    with pytest.raises(ValueError, match="no"):
        threaded(kernel, "()->()")(np.arange(5000.0))
    assert len(calls) < 1000


def test_stop_iteration_is_a_failure_and_no_end():
    def kernel(x):
        return next(iter(())) if x == 11 else x

    with pytest.raises(au.KernelError, match="kernel raised StopIteration") as caught:
        threaded(kernel, "()->()")(np.arange(40.0))
    assert "(item 11)" in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_is_no_exception_ends_the_call(error):
    def kernel(x):
        if x == 20:
            raise error
        return x

    with pytest.raises(error):
        threaded(kernel, "()->()")(np.arange(40.0))


def test_an_exception_does_not_keep_the_blocks():
    blocks = []

    def kernel(x):
        own = x + 1
        blocks.append(weakref.ref(own))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        threaded(kernel, "(n)->(n)")(np.ones((40, 2)))
    gc.collect()
    assert {reference() for reference in blocks} == {None}


def test_shapes_that_kernels_return_wrongly_are_refused_as_in_one_thread():
    def kernel(x):
        return x[: 1 if x[0] == 24 else 2]

    messages = []
    for threads in (1, THREADS):
        with pytest.raises(au.OutputShapeError, match="in item 12") as caught:
            threaded(kernel, "(n)->(n)", threads=threads)(np.arange(80.0).reshape(40, 2))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads takes an integer of at least 1, got 0"),
        ({"threads": True, "vectorize": True}, "threads takes an integer of at least 1, got True"),
        ({"threads": "all"}, "threads takes an integer of at least 1, got 'all'"),
        ({"threads": 2}, "threads=2 spreads the items of a loop, and there is none: pass vectorize=True"),
        ({"threads": 2, "vectorize": True, "thread_safe": False}, "threads=2 .* and thread_safe=False allows one"),
        ({"threads": 2, "vectorize": True, "kernel_arrays": "same"}, "threads=2 .*, got kernel_arrays='same'"),
        ({"threads": 2, "vectorize": True, "kernel_arrays": "traced"}, "threads=2 .*, got kernel_arrays='traced'"),
    ],
)
def test_what_does_not_go_with_threads_is_refused_when_it_is_bound(options, message):
    with pytest.raises(au.OptionError, match=message):
        au.gufunc("()->()", **options)


def test_one_thread_goes_with_everything():
    au.gufunc("()->()", threads=1, thread_safe=False)(np.sin)


def test_threads_are_kept_by_pickling():
    f = pickle.loads(pickle.dumps(threaded(double, "()->()")))
    assert f._options.threads == f._kernel.threads == THREADS
    assert pickle.loads(pickle.dumps(f._kernel)).threads == THREADS


def double(x):
    return x * 2


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to oneself")
def test_loop_in_threads_can_be_interrupted():
    def kernel(x):
        if x == 3:
            raise KeyboardInterrupt
        time.sleep(0.01)
        return x

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        threaded(kernel, "()->()")(np.arange(3000.0))
    assert time.perf_counter() - start < 10
