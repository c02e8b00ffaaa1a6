"""`applyufunc._direct`: a call of a gufunc object that looks like an earlier one does all that the first one did."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
from drawn_calls import drawn_calls
from drawn_examples import examples
from hypothesis import given

import applyufunc as au
from applyufunc import _direct
from applyufunc._direct import UNUSUAL

ROWS = np.arange(12.0).reshape(4, 3)
AXES = ("axes", "axis", "keepdims")


def dot(x, y):
    return np.vecdot(x, y)


def again(function, *args, **keywords):
    """Return what the second of two equal calls gives, which must not have taken the common road."""
    function(*args, **keywords)
    direct = function._direct(args, keywords)
    assert direct is not UNUSUAL
    return direct


def outcome(call):
    """Return what a call gives, or the exception with its notes."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # whichever it is
        return type(error), str(error), getattr(error, "__notes__", [])


@examples(150)
@given(drawn_calls())
def test_the_second_call_gives_what_a_plain_loop_gives(drawn):
    bound = {name: value for name, value in drawn.options.items() if name not in AXES}
    in_call = {name: value for name, value in drawn.options.items() if name in AXES}
    function = au.gufunc(drawn.signature, **bound)(drawn.kernel)
    function(*drawn.args, **in_call)
    results = function(*drawn.args, **in_call)
    results = results if isinstance(results, tuple) else (results,)
    for got, expected in zip(results, drawn.expected, strict=True):
        assert (np.shape(got), got.dtype) == (expected.shape, expected.dtype)
        assert isinstance(got, np.ndarray if expected.ndim else np.generic)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "args",
    [(ROWS, ROWS), (ROWS, ROWS[0]), (ROWS[0], ROWS[1]), (ROWS[:, ::-1], ROWS.astype("f4")), (np.ones((2, 1, 3)), ROWS)],
    ids=["equal", "broadcast", "one item", "strided", "two broadcast"],
)
def test_the_usual_calls_take_the_direct_road(args):
    calls = []
    function = au.gufunc("(n),(n)->()")(lambda x, y: calls.append((x.shape, y.shape)) or np.vecdot(x, y))
    result = again(function, *args)
    np.testing.assert_array_equal(result, np.vecdot(*args))
    assert isinstance(result, np.ndarray if np.ndim(np.vecdot(*args)) else np.float64)
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert len(calls[1][0]) == len(calls[1][1]), "the kernel sees loop dims of equal number"


def test_scalars_none_and_keywords_reach_the_kernel_as_they_are():
    seen = []

    @au.gufunc("(n),(),()->(n)", kwargs={"bound": "b"})
    def kernel(x, factor, nothing, *, bound=None, shift=0):
        seen.append((factor, nothing, bound, shift))
        return x * factor + shift

    again(kernel, ROWS, 2.5, None, shift=1)
    result = kernel(ROWS, 3.5, None, shift=2)
    assert seen[1:] == [(2.5, None, "b", 1), (3.5, None, "b", 2)]
    np.testing.assert_array_equal(result, ROWS * 3.5 + 2)


def test_a_scalar_of_another_type_is_another_call():
    function = au.gufunc("(),()->()", output_dtypes=lambda x, y: x if y is int else np.dtype("f8"))(np.multiply)
    narrow = ROWS.astype("f4")
    assert [function(narrow, factor).dtype for factor in (2, 2.0, 2, 2.0)] == ["f4", "f8", "f4", "f8"]


def test_several_outputs_come_as_a_tuple():
    function = au.gufunc("(n)->(),(n)", output_dtypes=[float, "f4"])(lambda x: (x.sum(-1), (2 * x).astype("f4")))
    total, double = again(function, ROWS)
    assert (total.tolist(), double.tolist(), double.dtype) == ([3, 12, 21, 30], (2 * ROWS).tolist(), np.float32)
    assert type(again(au.gufunc("(n)->(),")(lambda x: (x.sum(-1),)), ROWS)) is tuple


KEPT = np.zeros((4, 3))
CONTAINER = [np.zeros((4, 3)), np.zeros((4, 3))]
FROZEN = np.ones((4, 3))
FROZEN.flags.writeable = False
WAYS = {
    "the argument": ("(n)->(n)", lambda x: x),
    "a view of the argument": ("(n)->(n)", lambda x: x[..., ::-1]),
    "an array that is kept": ("(n)->(n)", lambda x: KEPT),
    "a view of one that is kept": ("(n)->(n)", lambda x: KEPT[...]),
    "a read-only one that is kept": ("(n)->(n)", lambda x: FROZEN),
    "a container that is kept": ("(n)->(n),(n)", lambda x: CONTAINER),
    "one array twice": ("(n)->(n),(n)", lambda x: (x + 0.0,) * 2),
    "a broadcast one": ("(n)->(n)", lambda x: np.broadcast_to(x[..., :1] + 0.0, x.shape)),
}


@pytest.mark.parametrize("way", WAYS)
def test_results_share_no_memory(way):
    signature, kernel = WAYS[way]
    function = au.gufunc(signature)(kernel)
    first, second = function(ROWS), again(function, ROWS)
    results = [array for result in (first, second) for array in (result if isinstance(result, tuple) else (result,))]
    others = [ROWS, KEPT, FROZEN, *CONTAINER]
    for place, result in enumerate(results):
        assert result.flags.writeable
        assert not any(np.shares_memory(result, other) for other in (*others, *results[:place]))


def test_memory_of_the_kernels_own_is_passed_on():
    made = []

    def kernel(x):
        made.append((x * 2).__array_interface__["data"][0])
        result = x * 2
        made[-1] = result.__array_interface__["data"][0]
        return result

    result = again(au.gufunc("(n)->(n)")(kernel), ROWS)
    assert result.__array_interface__["data"][0] == made[-1]


def test_a_kernel_cannot_write_into_its_arguments():
    writes = False

    @au.gufunc("(n)->(n)")
    def kernel(x):
        if writes:
            x[...] = 0
        return x + 1

    kernel(ROWS)
    writes = True
    with pytest.raises(ValueError, match="read-only"):
        kernel(ROWS)


RETURNED = {
    "too few loop items": lambda x: np.zeros(3),
    "no loop dims": lambda x: np.zeros(()),
    "a core dim too many": lambda x: np.zeros((4, 3)),
    "a dtype that does not cast": lambda x: np.zeros(4, complex),
    "nothing": lambda x: None,
    "a tuple": lambda x: (np.zeros(4),),
    "text": lambda x: "text",
    "out of range": lambda x: np.full(4, 2**40),
}


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("dtype", ["i4", None])
def test_what_a_kernel_returns_is_refused_as_on_the_common_road(returned, dtype):
    is_first = True

    def kernel(x):
        return np.zeros(4, "i4") if is_first else RETURNED[returned](x)

    function = au.gufunc("(n)->()", output_dtypes=dtype)(kernel)
    function(ROWS)
    is_first = False
    by_direct_road = outcome(lambda: function(ROWS))
    by_common_road = outcome(lambda: au.apply_ufunc(kernel, "(n)->()", ROWS, output_dtypes=dtype))
    assert str(by_direct_road) == str(by_common_road)


@pytest.mark.parametrize("outputs", [(), (np.zeros(4),), (np.zeros(4),) * 3, None, np.zeros((2, 4)), "ab"])
def test_a_wrong_number_of_outputs_is_refused_as_on_the_common_road(outputs):
    returned = (np.zeros(4), np.zeros(4))
    function = au.gufunc("(n)->(),()")(lambda x: returned)
    function(ROWS)
    returned = outputs
    by_direct_road = outcome(lambda: function(ROWS))
    assert by_direct_road == outcome(lambda: au.apply_ufunc(function.__wrapped__, "(n)->(),()", ROWS))
    assert by_direct_road[0] is au.OutputShapeError


def test_a_value_that_casts_is_cast():
    values = iter([np.zeros(4, "f8"), np.arange(4, dtype="i2"), [1, 2, 3, 4], np.ones((1,), "f4")])
    function = au.gufunc("(n),(n)->()", output_dtypes="f8")(lambda x, y: next(values))
    results = [function(ROWS, ROWS[:1]) for _ in range(3)]
    assert [(result.dtype, result.tolist()) for result in results[1:]] == [
        (np.float64, [0, 1, 2, 3]),
        (np.float64, [1, 2, 3, 4]),
    ]
    with pytest.raises(au.OutputShapeError, match="expected 4, kernel returned 1"):
        function(ROWS, ROWS)


def test_an_exception_has_the_note_of_the_common_road():
    fails = False

    def kernel(x, factor):
        if fails:
            raise KeyError("gone")
        return x * factor

    function = au.gufunc("(n),()->(n)")(kernel)
    function(ROWS, 2)
    fails = True
    by_direct_road = outcome(lambda: function(ROWS, 3))
    assert by_direct_road == outcome(lambda: au.apply_ufunc(kernel, "(n),()->(n)", ROWS, 3))
    assert "called with float64(4, 3), 3" in by_direct_road[2][0]


UNUSUAL_ARGUMENTS = {
    "a list": ROWS.tolist(),
    "a NumPy scalar row": np.ma.masked_array(ROWS, ROWS > 5),
    "an empty batch": ROWS[:0],
    "a memory map's kin": memoryview(ROWS),
}


@pytest.mark.parametrize("kind", UNUSUAL_ARGUMENTS)
def test_unusual_arguments_take_the_common_road(kind):
    arg = UNUSUAL_ARGUMENTS[kind]
    function = au.gufunc("(n)->()", output_dtypes=float)(lambda x: x.sum(-1))
    function(arg)
    assert function._direct((arg,), {}) is UNUSUAL
    np.testing.assert_array_equal(function(arg), np.ma.asarray(arg).sum(-1))


def test_a_rule_that_is_declared_later_and_other_options_are_heeded():
    function = au.gufunc("(n)->()", output_dtypes="f8")(lambda x: x.sum(-1))
    function(ROWS)
    function.jac(np.ones_like)
    assert again(function, ROWS).dtype == np.float64
    assert function.with_options(output_dtypes="c16")(ROWS).dtype == np.complex128
    assert function(ROWS, axis=0).tolist() == ROWS.sum(0).tolist()


def test_a_changed_array_among_the_bound_keywords_is_seen():
    weights = np.ones(3)

    @au.gufunc("(n)->()", kwargs={"weights": weights})
    def kernel(x, weights=None):
        return x @ weights

    kernel(ROWS)
    weights[0] = 5
    assert kernel(ROWS).tolist() == (ROWS @ weights).tolist()


def test_as_many_recipes_as_documented_are_kept(monkeypatch):
    monkeypatch.setattr(_direct, "_CACHE_SIZE", 8)
    function = au.gufunc("(n)->()")(lambda x: x.sum(-1))
    for size in range(1, 40):
        assert function(np.ones((2, size))).tolist() == [size] * 2
        assert len(function._direct._recipes) <= 8


def test_nothing_is_kept_alive_after_a_call():
    function = au.gufunc("(n),()->(n)")(lambda x, y: x + 1)
    array = np.ones((4, 3))
    result = again(function, array, 2.0)
    base, output = weakref.ref(array), weakref.ref(result)
    del array, result
    gc.collect()
    assert base() is output() is None


def test_threads_share_what_is_remembered():
    function = au.gufunc("(n),(n)->()")(dot)
    arrays = [np.full((size, 3), float(size)) for size in range(1, 9)]
    wrong = []

    def work():
        for _ in range(200):
            wrong.extend(a.shape for a in arrays if not (function(a, a) == 3 * len(a) ** 2).all())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_jax_arrays_are_lent_to_the_kernel(jax):
    seen = []
    function = au.gufunc("(n),(n),()->()")(lambda x, y, z: seen.append((x, y, z)) or np.vecdot(x, y).astype("f8") * z)
    x, y = jax.numpy.asarray(ROWS, "f4"), jax.numpy.ones(3, "f4")
    result = again(function, x, y, 2)
    assert isinstance(result, jax.Array)
    assert result.dtype == jax.dtypes.canonicalize_dtype("f8")
    assert not result.weak_type
    np.testing.assert_array_equal(result, ROWS.sum(-1) * 2)
    views, expected = seen[-1][:2], (np.asarray(x), np.asarray(y))
    assert all(np.shares_memory(view, array) for view, array in zip(views, expected, strict=True))
    assert not any(view.flags.writeable for view in views)


def test_jax_results_are_where_the_arguments_are(jax):
    function = au.gufunc("(n)->(),(n)")(lambda x: (x.sum(-1), x + 1))
    free, (device, *_) = jax.numpy.asarray(ROWS, "f4"), jax.devices()
    held = jax.device_put(free, device)
    for array in (free, held):
        first, second = function(array), again(function, array)
        assert [output.committed for output in (*first, *second)] == [array.committed] * 4
        assert {output.device for output in second} == {device}


def test_a_setting_of_jax_makes_another_call(jax):
    function = au.gufunc("()->()")(lambda x: x * 1.5)
    array = jax.numpy.arange(3, dtype="i4")
    with jax.enable_x64(False):
        assert again(function, array).dtype == np.float32
    with jax.enable_x64(True):
        assert again(function, array).dtype == np.float64


def test_what_jax_traces_takes_the_common_road(jax):
    function = au.gufunc("(n)->()", output_dtypes="f4")(lambda x: x.sum(-1))
    array = jax.numpy.asarray(ROWS, "f4")
    function(array)
    np.testing.assert_array_equal(jax.jit(function)(array), ROWS.sum(-1))
    staged = jax.make_jaxpr(lambda: function(array))()
    assert staged.eqns, "what is called while JAX traces is staged"


@pytest.mark.parametrize("kind", ["weak", "mixed", "half"])
def test_jax_arguments_that_need_a_closer_look_take_the_common_road(jax, kind):
    array = jax.numpy.asarray(ROWS, "f4")
    args = {
        "weak": (array, jax.numpy.asarray(2.0)),
        "mixed": (array, np.float32([1, 2, 3])),
        "half": (array.astype("bfloat16"), 0.1),
    }[kind]
    function = au.gufunc("(),()->()", output_dtypes="f4")(np.multiply)
    function(*args)
    assert function._direct(args, {}) is UNUSUAL


@pytest.mark.parametrize("way", ["donated", "random key"])
def test_jax_arrays_without_values_are_refused_as_on_the_common_road(jax, way):
    function = au.gufunc("()->()", output_dtypes=object)(np.copy)
    array = jax.random.key(0) if way == "random key" else jax.numpy.ones(3, "f4")
    if way == "donated":
        array.delete()
    with pytest.raises((au.OptionError, au.ArgumentError), match="argument 0" if way == "random key" else "object"):
        function(array)


def test_what_jax_cannot_hold_is_refused_again(jax):
    returned = np.array(1.0)
    function = au.gufunc("(n)->()")(lambda x: returned)
    array = jax.numpy.ones(3, "f4")
    function(array)
    for value, text in ((np.array(1.0, object), "object, which JAX"), (np.ma.array(1.0), "a masked array")):
        returned = value
        with pytest.raises(au.OutputDTypeError, match=text):
            function(array)


def test_a_note_under_jax_is_that_of_the_common_road(jax):
    fails = False

    def kernel(x):
        if fails:
            raise ZeroDivisionError("by nothing")
        return x

    function, array = au.gufunc("(n)->(n)")(kernel), jax.numpy.asarray(ROWS, "f4")
    function(array)
    fails = True
    assert outcome(lambda: function(array)) == outcome(lambda: au.apply_ufunc(kernel, "(n)->(n)", array))


@pytest.fixture
def da():
    return pytest.importorskip("dask.array")


FACTOR = 2.0


def dask_pair(da, chunks=(2, 3), dtype="f8"):
    return da.from_array(ROWS.astype(dtype), chunks=chunks), da.ones((4, 3), chunks=chunks, dtype=dtype)


@pytest.mark.parametrize("chunks", [(2, 3), (1, 3), (4, 3), (2, 1)], ids=str)
@pytest.mark.parametrize("signature", ["(n),(n)->()", "(n),(n)->(n),()"])
def test_a_dask_call_that_looks_like_another_makes_layers_of_the_same_names(da, chunks, signature):
    calls = []

    def kernel(x, y):
        calls.append(x.shape)
        return dot(x, y) if signature.endswith(">()") else (x, dot(x, y))

    def outputs(*arrays, call=again):
        result = call(function, *arrays)
        return result if isinstance(result, tuple) else (result,)

    options = {"output_dtypes": "f8", "kernel_token": f"counted {signature}"}
    function, given = au.gufunc(signature, **options)(kernel), dask_pair(da, chunks)
    tripled = tuple(array * 3 for array in given)
    first, direct = outputs(*given, call=lambda call, *arrays: call(*arrays)), outputs(*tripled)
    common = outputs(*tripled, call=lambda call, *arrays: au.apply_ufunc(kernel, signature, *arrays, **options))
    assert not calls
    assert [output.name for output in direct] == [output.name for output in common]
    assert not {output.name for output in direct} & {output.name for output in first}
    assert [output.chunks for output in direct] == [output.chunks for output in common]
    for output, expected in zip(direct[::-1], (9 * ROWS.sum(-1), 3 * ROWS), strict=False):
        assert output.dtype == np.float64
        np.testing.assert_array_equal(output.compute(), expected)


def test_a_kernel_that_uses_more_than_arguments_and_modules_is_looked_at_in_every_call(da, monkeypatch):
    function = au.gufunc("(n),(n)->()", output_dtypes="f8")(lambda x, y: np.vecdot(x, y) * FACTOR)
    pair = dask_pair(da)
    before = function(*pair)
    assert function._direct(pair, {}) is UNUSUAL
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    after = function(*pair)
    assert before.name != after.name
    assert after.compute().tolist() == (5 * ROWS.sum(-1)).tolist()


def test_a_call_of_a_new_look_is_planned_once(da, monkeypatch):
    from applyufunc._lowering import _dask

    planned, plan = [], _dask.plan
    monkeypatch.setattr(_dask, "plan", lambda *args: planned.append(1) or plan(*args))
    function, pair = au.gufunc("(n),(n)->()", output_dtypes="f8")(dot), dask_pair(da)
    for _ in range(3):
        function(*pair)
    assert len(planned) == 1


def test_a_kernel_that_nothing_identifies_leaves_no_plan(da):
    made = np.frompyfunc(lambda x: x + 1, 1, 1)  # takes no weak reference, and has no name to be found by
    function, array = au.gufunc("()->()", output_dtypes=object)(made), da.ones((4, 3), chunks=2)
    results = [function(array) for _ in range(3)]
    assert len({result.name for result in results}) == 3
    assert function._direct._plans == {}
    np.testing.assert_array_equal(results[-1].compute().astype(float), np.full((4, 3), 2.0))


@pytest.mark.parametrize("destination", ["client", "processes"])
def test_where_tasks_will_run_makes_another_call(da, monkeypatch, destination):
    from applyufunc._lowering._dask import _travel

    large = np.zeros(2_000_000)

    @au.gufunc("(n),(n)->()", output_dtypes="f8", kernel_token="large")
    def function(x, y):
        return np.vecdot(x, y) + large[0]

    def n_warnings():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(*pair)
        return len(caught)

    pair = dask_pair(da)
    function(*pair)
    with monkeypatch.context() as patch:
        patch.setattr(_travel, "destination", lambda: destination)
        patch.setattr("applyufunc._lowering._dask.destination", lambda: destination)
        assert [n_warnings(), n_warnings()] == [1, 1]
    assert n_warnings() == 0


def test_no_array_behind_the_meta_of_a_dask_array_is_kept_alive(da):
    function, source = au.gufunc("(n)->()", output_dtypes="f8")(doubled_sum), np.ones((4, 3))
    array = da.ones((4, 3), chunks=(2, 3)).map_blocks(np.negative, meta=source)
    again(function, array)
    kept = weakref.ref(source)
    del array, source
    gc.collect()
    assert kept() is None


def doubled_sum(x):
    return 2 * x.sum(-1)


def test_equal_calls_on_equal_record_dtypes_have_equal_names(da):
    aligned = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    spelled = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 16})
    assert aligned == spelled
    names = []
    for dtypes in ([aligned], [spelled], [aligned, spelled], [spelled, aligned]):
        made = [
            au.apply_ufunc(itself, "()->()", da.zeros(4, chunks=2, dtype=dtype), output_dtypes=dtype)
            for dtype in dtypes
        ]
        names.append({str(dtype): array.name for dtype, array in zip(dtypes, made, strict=True)})
    assert names[2] == names[0] | names[1] == names[3]


def itself(x):
    return x


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
def test_a_repeated_dask_call_is_annotated_cut_and_computed_as_the_first(da, unknown):
    import dask

    function, array = (
        au.gufunc("(n)->(),()", output_dtypes=["f8", "f8"])(total_and_first),
        da.from_array(ROWS, chunks=(1, 3)),
    )
    if unknown:
        array = array[da.from_array(np.array([True, True, False, True]), chunks=1)]
    again(function, array)
    with dask.annotate(retries=3):
        total, first = function(array)
    layers = total.__dask_graph__().layers
    annotated = [name for name, layer in layers.items() if layer.annotations == {"retries": 3}]
    assert len(annotated) == 2
    expected = ROWS[[0, 1, 3]] if unknown else ROWS
    np.testing.assert_array_equal(total.compute(scheduler="sync"), expected.sum(-1))
    np.testing.assert_array_equal(first.blocks[1].compute(scheduler="sync"), expected[1:2, 0])


def total_and_first(x):
    return x.sum(-1), x[..., 0]


def test_dask_calls_of_another_look_are_planned_anew(da):
    function = au.gufunc("(n),(n)->()", output_dtypes="f8")(dot)
    for chunks, dtype in [((2, 3), "f8"), ((3, 3), "f8"), ((3, 3), "f4"), ((2, 3), "f8")]:
        pair = dask_pair(da, chunks, dtype)
        result = again(function, *pair)
        assert result.chunks == pair[0].chunks[:1]
        np.testing.assert_array_equal(result.compute(), ROWS.sum(-1))


def test_settings_of_dask_make_another_plan(da):
    import dask

    function, array = au.gufunc("(n)->()", output_dtypes="f8")(doubled_sum), da.ones((64, 64), chunks=(8, 8))
    numblocks = []
    for size in ("1 MiB", "1 KiB", "1 MiB"):
        with dask.config.set({"array.chunk-size": size}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numblocks.append(again(function, array).numblocks)
    assert numblocks == [(8,), (32,), (8,)]


@pytest.mark.parametrize(
    ("kinds", "keywords"),
    [("dask numpy", {}), ("dask scalar", {}), ("masked", {}), ("dask dask", {"scale": 2}), ("many chunks", {})],
)
def test_unusual_dask_calls_take_the_common_road(da, kinds, keywords):
    pair = dask_pair(da)
    args = {
        "dask numpy": (pair[0], ROWS),
        "dask scalar": (pair[0], 2.0),
        "masked": (da.ma.masked_greater(pair[0], 5), pair[1]),
        "dask dask": pair,
        "many chunks": (da.ones((1100, 1), chunks=1),) * 2,
    }[kinds]
    function = au.gufunc("(),()->()", output_dtypes="f8")(lambda x, y, *, scale=1: x * y * scale)
    function(*args, **keywords)
    assert function._direct(args, keywords) is UNUSUAL
    expected = args[0] * args[1] * keywords.get("scale", 1)
    np.testing.assert_array_equal(function(*args, **keywords).compute(), expected.compute())


def test_dask_calls_that_look_alike_warn_each_time(da):
    function = au.gufunc("(n)->()", output_dtypes="f8", budget=64)(lambda x: x.sum(-1))
    array = da.ones((4, 64), chunks=(1, 8))
    for _ in range(3):
        with pytest.warns(au.ApplyUfuncWarning, match="budget"):
            function(array)


def test_no_dask_array_is_kept_alive_after_a_call(da):
    function = au.gufunc("(n),(n)->()", output_dtypes="f8")(dot)
    pair = dask_pair(da)
    result = again(function, *pair)
    kept = [weakref.ref(array) for array in (*pair, result)]
    del pair, result
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_tensors_are_lent_to_the_kernel(torch):
    seen = []
    function = au.gufunc("(n),(n),()->(),(n)")(lambda x, y, z: seen.append((x, y, z)) or (dot(x, y) * z, x[..., ::-1]))
    x, y = torch.from_numpy(ROWS.copy()), torch.ones(3, dtype=torch.float64)
    total, backwards = again(function, x, y, 2)
    assert [type(output) for output in (total, backwards)] == [torch.Tensor] * 2
    np.testing.assert_array_equal(total.numpy(), 2 * ROWS.sum(-1))
    np.testing.assert_array_equal(backwards.numpy(), ROWS[:, ::-1])
    assert all(np.shares_memory(view, tensor.numpy()) for view, tensor in zip(seen[-1], (x, y), strict=False))
    assert not any(view.flags.writeable for view in seen[-1][:2])
    assert not np.shares_memory(backwards.numpy(), x.numpy())
    backwards += 1
    np.testing.assert_array_equal(x.numpy(), ROWS)


def test_a_tensor_that_a_transformation_is_to_see_takes_the_common_road(torch):
    function = au.gufunc("(n)->(n)", output_dtypes="f8", vjp=lambda x, cotangent: 2 * x * cotangent)(lambda x: x**2)
    x = torch.from_numpy(ROWS.copy())
    again(function, x)
    leaf = x.clone().requires_grad_()
    assert function._direct((leaf,), {}) is UNUSUAL
    function(leaf).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), 2 * ROWS)
    np.testing.assert_array_equal(torch.func.vmap(function)(x).numpy(), ROWS**2)
    np.testing.assert_array_equal(torch.func.grad(lambda t: function(t).sum())(x).numpy(), 2 * ROWS)


UNUSUAL_TENSORS = {
    "conjugated": lambda torch: torch.tensor([[1 + 2j, 3j]]).conj(),
    "negated": lambda torch: torch.tensor([[1 + 2j, 3j]]).conj().imag,
    "a parameter": lambda torch: torch.nn.Parameter(torch.ones(1, 2), requires_grad=False),
    "bfloat16": lambda torch: torch.ones(1, 2, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("kind", UNUSUAL_TENSORS)
def test_unusual_tensors_take_the_common_road(torch, kind):
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    function, tensor = au.gufunc("(n)->()")(lambda x: x.sum(-1)), UNUSUAL_TENSORS[kind](torch)
    expected = tensor.sum(-1)
    for _ in range(2):
        assert torch.equal(function(tensor), expected.detach())
    assert function._direct((tensor,), {}) is UNUSUAL


def test_the_default_dtype_of_pytorch_makes_another_call(torch):
    function, tensor = au.gufunc("(n)->()", output_dtypes=float)(lambda x: x.sum(-1)), torch.ones((2, 3))
    dtypes = []
    for default in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            dtypes.append(again(function, tensor).dtype)
        finally:
            torch.set_default_dtype(torch.float32)
    assert dtypes == [torch.float32, torch.float64, torch.float32]


def test_what_pytorch_cannot_hold_is_refused_again(torch):
    is_first = True
    function = au.gufunc("(n)->()")(lambda x: x.sum(-1) if is_first else x.sum(-1).astype("U3"))
    tensor = torch.ones((2, 3))
    function(tensor)
    is_first = False
    with pytest.raises(au.OutputDTypeError, match="torch arrays cannot hold"):
        function(tensor)


def test_a_mask_is_refused_again_with_tensors(torch):
    returned = np.array(1.0)
    function = au.gufunc("(n)->()")(lambda x: returned)
    function(torch.ones(3))
    returned = np.ma.array(1.0)
    with pytest.raises(au.OutputDTypeError, match="a masked array"):
        function(torch.ones(3))
