"""`applyufunc._blocks`: what a kernel sees, how items are looped over, and what is said when something fails."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applyufunc import DimensionError, KernelError, OutputShapeError, Signature
from applyufunc._blocks import BlockRunner
from applyufunc._kernel import make_kernel
from applyufunc._options import Options, make_options


def runner(func, text, *, constants=(), keywords=None, sizes=(), dtypes=None, **options):
    """Make a block runner; `dtypes` are NumPy dtypes or their names."""
    dtypes = None if dtypes is None else tuple(map(np.dtype, dtypes))
    kernel = make_kernel(func, make_options(Options(), options))
    return BlockRunner(kernel, Signature.parse(text), constants, keywords or {}, sizes, dtypes)


def seen(text, *blocks, result=None, **options):
    """Return what a kernel gets on each of its calls."""
    calls = []

    def spy(*args, **keywords):
        calls.append(args)
        return np.zeros(np.broadcast_shapes(*(np.shape(arg) for arg in args))) if result is None else result

    runner(spy, text, **options)(*blocks)
    return calls


def test_all_arguments_have_the_same_number_of_loop_dims():
    (args,) = seen("(n),(m),()->()", np.ones((2, 3, 1)), np.ones((1, 4)), np.ones(3), result=np.zeros((2, 3)))
    assert [arg.shape for arg in args] == [(2, 3, 1), (1, 1, 4), (1, 3)]


def test_loop_dims_are_put_in_by_views():
    y = np.arange(4.0)
    ((_, got),) = seen("(),()->()", np.ones((2, 3, 4)), y)
    assert got.shape == (1, 1, 4)
    assert np.shares_memory(got, y)


def test_a_marked_core_dim_is_stretched_to_a_read_only_view():
    y = np.ones((2, 1))
    ((_, got),) = seen("(n),(n|1)->()", np.ones((2, 5)), y, result=np.zeros(2))
    assert (got.shape, got.flags.writeable) == ((2, 5), False)
    assert np.shares_memory(got, y)


def test_a_vectorized_loop_gives_core_dims_only():
    calls = seen("(n),()->()", np.arange(6.0).reshape(2, 3), np.array([7.0, 8.0]), vectorize=True, result=0.0)
    assert [(x.tolist(), y) for x, y in calls] == [([0, 1, 2], 7), ([3, 4, 5], 8)]


def test_items_are_views_and_what_does_not_vary_is_the_same_one_for_all():
    x, y, z = np.ones((2, 3, 4)), np.ones(4), np.ones((3, 2))
    calls = seen("(n),(n),(m)->()", x, y, z, vectorize=True, result=0.0)
    assert len(calls) == 6
    assert all(np.shares_memory(item, array) for items in calls for item, array in zip(items, (x, y, z), strict=True))
    assert all(items[1] is calls[0][1] for items in calls)
    assert not any(item.flags.writeable for items in calls for item in items)


def test_items_without_core_dims_are_scalars_or_the_objects_themselves():
    thing = {"a": 1}
    objects = np.empty(1, object)
    objects[0] = thing
    ((number, text, got),) = seen("(),(),()->()", np.ones(1), np.array(["ab"]), objects, vectorize=True, result=0)
    assert (type(number), type(text), got is thing) == (np.float64, np.str_, True)


@pytest.mark.parametrize("vectorize", [False, True])
def test_inputs_are_read_only_and_exactly_arrays(vectorize):
    x = np.ones((2, 3))
    for (got,) in seen("(n)->()", x, vectorize=vectorize, result=0.0 if vectorize else np.zeros(2)):
        assert (type(got), got.flags.writeable) == (np.ndarray, False)
    assert x.flags.writeable


def test_a_mask_is_read_only_too():
    x = np.ma.MaskedArray([[1.0, 2.0]], mask=[[False, True]])

    def clear(block):
        block.mask = False
        block[0, 0] = np.ma.masked
        return block.sum(axis=-1)

    with pytest.raises(ValueError, match="read-only"):
        runner(lambda block: block.__setitem__((0, 0), 5.0), "(n)->()")(x)
    runner(clear, "(n)->()")(x)
    assert (x.data.tolist(), x.mask.tolist()) == ([[1, 2]], [[False, True]])


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_writable_gives_private_copies(vectorize, masked):
    x, y = np.zeros((3, 2)), np.zeros(2)
    if masked:
        x, y = np.ma.MaskedArray(x), np.ma.MaskedArray(y)

    def kernel(a, b):
        a += 1
        b += 1
        return (a + b).sum(axis=-1)

    (result,) = runner(kernel, "(n),(n)->()", vectorize=vectorize, writable=True)(x, y)
    assert result.tolist() == [4, 4, 4]
    assert (x == 0).all() and (y == 0).all()  # noqa: PT018  # one fact


def test_a_numba_gufunc_gets_copies():
    numba = pytest.importorskip("numba")

    @numba.guvectorize(["(f8[:], f8[:])"], "(n)->(n)")
    def careless(x, result):
        x[0] = 99.0
        result[:] = x

    x = np.zeros((2, 3))
    (result,) = runner(careless, "(n)->(n)")(x)
    assert result[:, 0].tolist() == [99, 99]
    assert (x == 0).all()


def test_constants_and_keywords_reach_the_kernel_as_they_are():
    ((got, number, nothing),) = seen("(),(),()->()", np.ones(2), constants=((1, 2.5), (2, None)), result=np.ones(2))
    assert (type(got), number, type(number), nothing) == (np.ndarray, 2.5, float, None)
    settings = {"mode": ["a"]}
    (result,) = runner(lambda x, mode: x if mode is settings["mode"] else 0, "()->()", keywords=settings)(np.ones(2))
    assert result.tolist() == [1, 1]


def test_a_constant_may_come_before_the_blocks():
    (result,) = runner(lambda p, x, q: x * p - q, "(),(),()->()", constants=((0, 2), (2, 1)))(np.arange(3))
    assert result.tolist() == [-1, 1, 3]


def test_a_call_without_arrays_runs_the_kernel_once():
    (result,) = runner(lambda: np.arange(3), "->(n)", sizes=(("n", 3),))()
    assert result.tolist() == [0, 1, 2]
    (result,) = runner(lambda p, q: p + q, "(),()->()", constants=((0, 1), (1, 2.5)))()
    assert (type(result), result.shape, result[()]) == (np.ndarray, (), 3.5)


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple), st.data())
def test_items_of_broadcast_arguments_come_in_order(loop_shape, data):
    own = [tuple(data.draw(st.sampled_from([1, size])) for size in loop_shape) for _ in range(2)]
    own[1] = own[1][data.draw(st.integers(0, len(loop_shape))) :]
    x, y = (np.arange(np.prod(shape, dtype=int)).reshape(shape) for shape in own)
    x = x.T.copy().T
    expected = np.broadcast_arrays(x, y)
    (result,) = runner(lambda p, q: [p, q], "(),()->(2)", vectorize=True)(x, y)
    np.testing.assert_array_equal(result, np.stack(expected, axis=-1))


def test_constants_alone_are_one_item():
    (result,) = runner(lambda p, q: p + q, "(),()->()", vectorize=True, constants=((0, 1), (1, 2)))()
    assert result.tolist() == 3
    (result,) = runner(lambda: 5, "->()", vectorize=True)()
    assert result.tolist() == 5


@pytest.mark.parametrize("vectorize", [False, True])
def test_an_empty_batch_is_answered_without_the_kernel(vectorize):
    calls = []
    run = runner(calls.append, "(n)->(k),()", sizes=(("k", 2),), dtypes=("i4", "U3"), vectorize=vectorize)
    first, second = run(np.ones((3, 0, 4)))
    assert (first.shape, first.dtype, second.shape, second.dtype) == ((3, 0, 2), np.int32, (3, 0), np.dtype("U3"))
    assert calls == []


def test_an_empty_batch_of_masked_arrays_is_masked():
    (result,) = runner(None.__class__, "(n)->()", dtypes=("f8",))(np.ma.ones((0, 4)))
    assert isinstance(result, np.ma.MaskedArray)


def test_empty_core_dims_are_the_kernels_matter():
    (result,) = runner(lambda x: x.sum(axis=-1), "(n)->()")(np.ones((2, 0)))
    assert result.tolist() == [0, 0]
    (result,) = runner(lambda x: x.sum(), "(n)->()", vectorize=True)(np.ones((2, 0)))
    assert result.tolist() == [0, 0]


@given(st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 3), st.booleans())
def test_a_vectorized_loop_is_a_plain_loop(loop_shape, size, broadcast):
    rng = np.random.default_rng(len(loop_shape) + size)
    x, y = rng.random((*loop_shape, size)), rng.random((1,) * len(loop_shape) * broadcast)
    kernel = lambda v, p: (v * p, v.sum())
    expected = np.empty((*loop_shape, size)), np.empty(loop_shape)
    for index in np.ndindex(loop_shape):
        expected[0][index], expected[1][index] = kernel(x[index], y.reshape(-1)[0])
    got = runner(kernel, "(n),()->(n),()", vectorize=True, dtypes=("f8", "f8"))(x, y)
    for array, right in zip(got, expected, strict=True):
        assert (array.shape, array.dtype) == (right.shape, right.dtype)
        np.testing.assert_array_equal(array, right)


def test_an_exception_keeps_its_type_and_has_one_note():
    def fail(x, y):
        raise KeyError("boom")

    run = runner(fail, "(n),()->()", constants=((1, 2),))
    with pytest.raises(KeyError, match="boom") as caught:
        run(np.ones((4, 3)))
    assert caught.value.__notes__ == ["in kernel 'fail' with signature '(n),()->()', called with float64(4, 3), 2"]
    with pytest.raises(KeyError) as caught:
        run(np.ones((4, 3)), location=(slice(0, 2), slice(4, float("nan"))))
    assert caught.value.__notes__[0].endswith("float64(4, 3), 2, block [0:2, 4:?] of the loop dimensions")


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("failing", range(6))
def test_a_note_says_which_item_the_kernel_had(failing, writable):
    def fail(row, number):
        return 1 // int(number != failing)

    args = np.ones((2, 3, 4)), np.arange(6).reshape(2, 3)
    run = runner(fail, "(n),()->()", vectorize=True, writable=writable)
    item = f"({failing // 3}, {failing % 3})"
    start = "in kernel 'fail' with signature '(n),()->()', called with float64(4,), int64() (item "
    for location, middle, end in (
        ((), "", ""),
        ((slice(2, 4), slice(3, 6)), " of the block", ", block [2:4, 3:6] of the loop dimensions"),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            run(*args, location=location)
        assert caught.value.__notes__ == [f"{start}{item}{middle}), for arguments float64(2, 3, 4), int64(2, 3){end}"]


def test_a_note_names_an_item_of_one_loop_dim_by_its_number():
    with pytest.raises(ZeroDivisionError) as caught:
        runner(lambda x: 1 // int(x), "()->()", vectorize=True)(np.array([2, 1, 0, 3]))
    assert caught.value.__notes__[0].endswith("called with int64() (item 2), for arguments int64(4,)")
    with pytest.raises(ZeroDivisionError) as caught:
        runner(lambda x: 1 // 0, "(n)->()", vectorize=True)(np.ones(3))
    assert caught.value.__notes__[0].endswith("called with float64(3,)")


@pytest.mark.parametrize("kernel", [lambda x: x if x > 0 else 0.0, float])
def test_a_note_names_the_option_where_a_kernel_of_one_item_gets_a_batch(kernel):
    with pytest.raises((TypeError, ValueError)) as caught:
        runner(kernel, "()->()")(np.ones(2))
    (note,) = caught.value.__notes__
    assert note.endswith("called with float64(2,) (a kernel that takes one item at a time needs vectorize=True)")


def test_a_note_names_no_option_where_one_item_is_an_array():
    with pytest.raises(ValueError, match="truth value") as caught:
        runner(lambda x: x if x > 0 else 0.0, "(n)->(n)", vectorize=True)(np.ones((2, 3)))
    assert "vectorize=True" not in caught.value.__notes__[0]


@pytest.mark.parametrize("write", [lambda x: x.__setitem__(0, 1), lambda x: x.sort(), lambda x: np.add(x, 1, out=x)])
def test_a_note_names_the_option_where_a_kernel_writes_into_its_input(write):
    with pytest.raises(ValueError, match="read-only") as caught:
        runner(write, "(n)->(n)")(np.ones(3))
    assert caught.value.__notes__[0].endswith("(writable=True gives the kernel copies to write into)")


def test_a_note_says_what_a_kernel_of_batches_saw():
    with pytest.raises(ZeroDivisionError) as caught:
        runner(lambda x, y, p: 1 // 0, "(n),(n|1),()->()", constants=((2, 3),))(np.ones((3, 2, 4)), np.ones((2, 1)))
    assert caught.value.__notes__[0].endswith(
        "called with float64(3, 2, 4), float64(1, 2, 4), 3, for arguments float64(3, 2, 4), float64(2, 1), 3"
    )


@pytest.mark.parametrize(
    ("value", "text", "dtypes"), [(0, "()->()", None), (np.zeros(2), "()->(2)", None), ({}, "()->()", ("O",))]
)
def test_a_stop_iteration_of_the_kernel_does_not_end_the_loop(value, text, dtypes):
    def kernel(x):
        return value if x < 2 else next(iter(()))

    with pytest.raises(KernelError, match="kernel raised StopIteration") as caught:
        runner(kernel, text, vectorize=True, dtypes=dtypes)(np.arange(4))
    assert "(item 2)" in caught.value.__notes__[0]


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_hard_mask_stays_hard(vectorize):
    x = np.ma.MaskedArray([[1.0, 2.0]], mask=[[False, True]], hard_mask=True, fill_value=7)
    y = np.ma.MaskedArray([[1.0]], hard_mask=True, fill_value=8)
    for writable in (False, True):
        for args in seen(
            "(n),(n|1)->()", x, y, vectorize=vectorize, writable=writable, result=0.0 if vectorize else np.zeros(1)
        ):
            assert [(arg.hardmask, arg.fill_value) for arg in args] == [(True, 7), (True, 8)]
    soft = np.ma.MaskedArray([[1.0, 2.0]])
    for (arg,) in seen("(n)->()", soft, vectorize=vectorize, result=0.0 if vectorize else np.zeros(1)):
        assert not arg.hardmask


RECORD = np.dtype([("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize("mask", [None, [(0, 0), (1, 0), (1, 1)]])
@pytest.mark.parametrize("writable", [False, True])
def test_a_record_is_not_the_callers_own(mask, writable):
    def kernel(record):
        record["a"] = 7
        return record["a"]

    given = np.zeros(3, RECORD)
    if mask is not None:
        given = np.ma.MaskedArray(given, mask)
    run = runner(kernel, "()->()", vectorize=True, writable=writable)
    if writable:
        (result,) = run(given)
        assert result.tolist() == [7, 7, 7]
    else:
        with pytest.raises(ValueError, match="read-only"):
            run(given)
    assert np.ma.getdata(given).tolist() == [(0, 0)] * 3
    assert mask is None or given.mask.tolist() == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize("writable", [False, True])
def test_masked_records_go_through(writable):
    given = np.ma.MaskedArray(np.zeros(3, RECORD), [(0, 0), (1, 0), (1, 1)])
    (result,) = runner(lambda record: record, "()->()", vectorize=True, writable=writable)(given)
    assert (result.dtype, result.tolist()) == (RECORD, given.tolist())
    (result,) = runner(lambda rows: rows[0], "(n)->()", vectorize=True, writable=writable)(given[:, None])
    assert (result.dtype, result.tolist()) == (RECORD, given.tolist())


def test_what_is_wrong_with_a_result_is_noted_too():
    with pytest.raises(OutputShapeError) as caught:
        runner(lambda x: None, "(n)->()")(np.ones((4, 3)))
    assert len(caught.value.__notes__) == 1


def test_a_kernel_in_a_kernel_adds_a_note_each():
    inner = runner(lambda x: 1 // 0, "()->()")

    def outer(x):
        return inner(x)[0]

    with pytest.raises(ZeroDivisionError) as caught:
        runner(outer, "(n)->()", vectorize=True)(np.ones((4, 3)))
    assert [note.partition("'")[2].partition("'")[0] for note in caught.value.__notes__] == ["<lambda>", "outer"]


def test_an_exception_that_is_raised_again_has_each_note_once():
    error = ValueError("the same")

    def fail(x):
        raise error

    run = runner(fail, "(n)->()")
    for shape in ((3,), (3,), (2,)):
        with pytest.raises(ValueError, match="the same") as caught:
            run(np.ones(shape))
        assert caught.value is error
    assert [note.partition("float64")[2] for note in error.__notes__] == ["(3,)", "(2,)"]


def test_an_exception_that_takes_no_notes_is_raised_as_it_is():
    class NoRoomError(Exception):
        def __setattr__(self, name, value):
            raise AttributeError(name)

    class NoNotesError(Exception):
        __notes__ = None

    for kind in (NoRoomError, NoNotesError):
        with pytest.raises(kind):
            runner(lambda x: (_ for _ in ()).throw(kind()), "(n)->()")(np.ones(3))  # noqa: B023


def test_blocks_that_do_not_fit_are_refused_with_a_note():
    with pytest.raises(DimensionError) as caught:
        runner(lambda x, y: x, "(n),(n)->()")(np.ones(3), np.ones(2), location=(slice(1, 2),))
    (note,) = caught.value.__notes__
    assert note.endswith("called with float64(3,), float64(2,), block [1:2] of the loop dimensions")


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_kernel_that_is_not_thread_safe_runs_once_at_a_time(vectorize):
    active, most = [0], [0]

    def delicate(x):
        active[0] += 1
        most[0] = max(most[0], active[0])
        time.sleep(0.005)
        active[0] -= 1
        return x.sum(axis=-1)

    def run_in_threads(run):
        most[0] = 0
        threads = [threading.Thread(target=run, args=(np.ones((2, 3)),)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return most[0]

    assert run_in_threads(runner(delicate, "(n)->()", vectorize=vectorize, thread_safe=False)) == 1
    assert run_in_threads(runner(delicate, "(n)->()", vectorize=vectorize)) > 1


def test_a_kernel_that_is_not_thread_safe_may_call_itself():
    run = runner(lambda x: run(x[..., 1:])[0] + 1 if x.shape[-1] else np.zeros(len(x)), "(n)->()", thread_safe=False)
    assert run(np.ones((2, 3)))[0].tolist() == [3, 3]


def test_a_runner_pickles():
    run = runner(np.vecdot, "(n),(n)->()", dtypes=("f8",), sizes=(), constants=(), keywords={})
    copied = pickle.loads(pickle.dumps(run))
    assert copied(np.ones((2, 3)), np.ones(3))[0].tolist() == [3, 3]
