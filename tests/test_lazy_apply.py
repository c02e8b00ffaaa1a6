"""`lazy_apply` gives what `array_api_extra.lazy_apply` gives, and keeps the contract where a result is lazy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

xpx = pytest.importorskip("array_api_extra")


# The functions below ask array_api_compat for a namespace inside of what is compiled.
pytestmark = pytest.mark.filterwarnings("ignore:Dynamo detected a call to a .functools.lru_cache:UserWarning")


@dataclass(frozen=True)
class Backend:
    """How arrays are made, and how a function of arrays is run."""

    name: str
    library: str
    asarray: Callable[[Any], Any]
    run: Callable[..., Any] = lambda function, *arrays: function(*arrays)
    knows_sizes: bool = True  # all sizes have to be known before the function runs
    is_lazy: bool = False
    runs_theirs: bool = True  # the other library's function runs in the same way

    def __str__(self) -> str:
        return self.name


def chunked(values):
    """A Dask array with two chunks along every axis that has room for them."""
    import dask.array as da

    values = np.asarray(values)
    return da.from_array(values, chunks=tuple(max(1, size // 2) for size in values.shape))


def strict(values):
    import array_api_strict

    return array_api_strict.asarray(np.asarray(values))


def jax_array(values):
    import jax.numpy as jnp

    return jnp.asarray(values)


def torch_tensor(values):
    import torch

    return torch.asarray(np.asarray(values))


def torch_compiled(function, *arrays):
    import torch

    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)(*arrays)


def jitted(function, *arrays):
    import jax

    return jax.jit(function)(*arrays)


BACKENDS = [
    Backend("numpy", "numpy", np.asarray),
    Backend("array-api-strict", "array_api_strict", strict),
    Backend("torch", "torch", torch_tensor),
    Backend("dask", "dask.array", chunked, is_lazy=True),
    Backend("jax", "jax", jax_array),
    Backend("jax.jit", "jax", jax_array, jitted, knows_sizes=False, is_lazy=True),
    Backend("torch.compile", "torch", torch_tensor, torch_compiled, knows_sizes=False, is_lazy=True, runs_theirs=False),
]


@pytest.fixture(params=BACKENDS, ids=str)
def backend(request):
    pytest.importorskip(request.param.library)
    return request.param


@pytest.fixture(params=[False, True], ids=["same", "as_numpy"])
def as_numpy(request):
    return request.param


# What follows is called with either library's `lazy_apply`, and with arrays of every backend.


def given_shape_and_dtype(lazy_apply, x, y, **how):
    return lazy_apply(lambda x: x / 2, namespace(x).astype(x, floating(x)), shape=x.shape, dtype=floating(x), **how)


def other_shape(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: x[:2, 0] + y[:2], x, y, shape=(2,), **how)


def shape_as_a_list(lazy_apply, x, y, **how):
    return lazy_apply(lambda y: y + y, y, shape=[3], **how)


def no_dims(lazy_apply, x, y, **how):
    return lazy_apply(lambda y: y[0], y, shape=(), **how)


def input_without_dims(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: x + y, x[0, 0], y, **how)


def broadcast_shape_and_result_type(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: x + y, x, y, **how)


def several_outputs(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: (x[0, :] + 1, y), x, y, shape=((3,), (3,)), dtype=(x.dtype, y.dtype), **how)


def several_outputs_in_lists(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: [x + y, y - x], x, y, shape=[x.shape, x.shape], dtype=[x.dtype, x.dtype], **how)


def several_outputs_of_the_result_type(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: (x + y, x[0, :] - y), x, y, shape=(x.shape, y.shape), **how)


def one_output_in_a_tuple(lazy_apply, x, y, **how):
    return lazy_apply(lambda y: (y + 1,), y, shape=((3,),), dtype=(y.dtype,), **how)


def python_scalar_and_none(lazy_apply, x, y, **how):
    def add(x, nothing, two, y):
        assert nothing is None
        return x + y * two

    return lazy_apply(add, x, None, 2, y, **how)


def lists_and_numbers_returned(lazy_apply, x, y, **how):
    integer = namespace(x).asarray(0).dtype
    return lazy_apply(lambda x: (x.shape[0], [1, 2]), x, shape=((), (2,)), dtype=(integer, integer), **how)


def keywords(lazy_apply, x, y, **how):
    def add(y, *, text, nested, number):
        assert (text, nested, type(number)) == ("text", {0: [1, 2]}, int)
        return y + number

    return lazy_apply(add, y, text="text", nested={0: [1, 2]}, number=1, **how)


def empty(lazy_apply, x, y, **how):
    return lazy_apply(lambda x: x + 1, x[:0, :], **how)


def reduction_over_every_chunk(lazy_apply, x, y, **how):
    return lazy_apply(lambda x: x - namespace(x).flip(x, axis=0), x, **how)


def namespace_given(lazy_apply, x, y, **how):
    return lazy_apply(lambda x, y: x + y, x, y, xp=namespace(x), **how)


FORMS = [
    given_shape_and_dtype,
    other_shape,
    shape_as_a_list,
    no_dims,
    input_without_dims,
    broadcast_shape_and_result_type,
    several_outputs,
    several_outputs_in_lists,
    several_outputs_of_the_result_type,
    one_output_in_a_tuple,
    python_scalar_and_none,
    lists_and_numbers_returned,
    keywords,
    empty,
    reduction_over_every_chunk,
    namespace_given,
]


def namespace(x):
    import array_api_compat

    return array_api_compat.array_namespace(x)


def floating(x):
    return namespace(x).float32


def arguments(backend):
    return backend.asarray(np.arange(12, dtype=np.int32).reshape(4, 3)), backend.asarray(np.arange(3, dtype=np.int16))


def assert_same(ours, theirs):
    """Assert the same type, shape, dtype and values; of a tuple, of each item."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, their)
        return
    assert type(ours) is type(theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(np.asarray(ours.shape, float), np.asarray(theirs.shape, float))
    our_values, their_values = np.asarray(ours), np.asarray(theirs)
    assert (our_values.dtype, our_values.shape) == (their_values.dtype, their_values.shape)
    np.testing.assert_array_equal(our_values, their_values)


@pytest.mark.parametrize("form", FORMS)
def test_every_call_form_gives_what_array_api_extra_gives(form, backend, as_numpy):
    if backend.name == "dask" and form is input_without_dims and pytest.importorskip("dask").__version__ < "2025":
        pytest.skip("computed, upstream's result has another dtype than Dask said")
    if backend.name == "torch.compile" and form is input_without_dims and not as_numpy:
        pytest.skip("PyTorch, called at once, lets the dtype of an array without dims follow that of the others")
    arrays = arguments(backend)
    ours = backend.run(lambda *arrays: form(au.lazy_apply, *arrays, as_numpy=as_numpy), *arrays)
    run_theirs = backend.run if backend.runs_theirs else lambda function, *arrays: function(*arrays)
    theirs = run_theirs(lambda *arrays: form(xpx.lazy_apply, *arrays, as_numpy=as_numpy), *arrays)
    assert_same(ours, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_every_call_form_is_accepted_by_array_api_extra_on_numpy_arrays(form):
    """The oracle itself must not be what is wrong: the forms do not fail alike."""
    assert form(xpx.lazy_apply, *arguments(BACKENDS[0])) is not None


@given(
    st.tuples(*[st.integers(0, 3)] * 3),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=3),
)
def test_default_shape_is_what_numpy_broadcasts_to(full, cuts):
    shapes = [tuple(1 if one else size for one, size in zip(ones, full, strict=True))[start:] for *ones, start in cuts]
    x = [np.ones(shape) for shape in shapes]
    seen = au.lazy_apply(lambda *x: np.broadcast_arrays(*x)[0], *x)
    assert seen.shape == np.broadcast_shapes(*shapes)


@dataclass(frozen=True)
class Whole:
    """A drawn call of `lazy_apply`: arrays that broadcast, what comes out of them, and how that is declared."""

    arrays: tuple[Any, ...]
    outputs: tuple[str, ...]
    scalar: float | None
    declares_dtypes: bool
    how: dict[str, Any]

    def __call__(self, lazy_apply, *arrays):
        shapes = np.broadcast_shapes(*(array.shape for array in self.arrays)), (), self.arrays[0].shape
        known = dict(zip(("all", "sum", "first"), shapes, strict=True))
        declared = {"shape": tuple(known[output] for output in self.outputs)} if self.outputs else {}
        if self.declares_dtypes:
            declared["dtype"] = (arrays[0].dtype,) * len(self.outputs) if self.outputs else arrays[0].dtype
        return lazy_apply(self._function, *arrays, self.scalar, **declared, **self.how)

    def _function(self, *args, offset=0):
        *arrays, scalar = args
        total = sum(arrays[1:], start=arrays[0] + offset) * (1 if scalar is None else scalar)
        found = {
            "all": lambda: total,
            "sum": lambda: namespace(total).sum(total, dtype=total.dtype),
            "first": lambda: arrays[0] * 3,
        }
        return tuple(found[output]() for output in self.outputs) if self.outputs else total


@st.composite
def drawn_wholes(draw):
    full = draw(st.lists(st.integers(0, 3), max_size=2))
    dtype = draw(st.sampled_from(["float32", "int32"]))
    arrays = []
    for _ in range(draw(st.integers(1, 3))):
        shape = [size if draw(st.booleans()) else 1 for size in full[draw(st.integers(0, len(full))) :]]
        arrays.append(np.asarray(draw(st.integers(-3, 3)) + np.arange(math.prod(shape)).reshape(shape), dtype))
    outputs = tuple(draw(st.lists(st.sampled_from(["all", "sum", "first"]), max_size=3)))
    how = {"as_numpy": draw(st.booleans())} | draw(st.sampled_from([{}, {"offset": 2}]))
    may_scale = dtype == "float32" and "sum" not in outputs
    scalar = draw(st.sampled_from([None, 2, 0.5] if may_scale else [None]))
    return Whole(tuple(arrays), outputs, scalar, draw(st.booleans()) or "sum" in outputs, how)


@pytest.mark.once  # earlier releases of array-api-extra gave Dask other dtypes
def test_drawn_calls_give_what_array_api_extra_gives(backend):
    if backend.name == "torch.compile":
        pytest.skip("PyTorch compiles long, and takes no bound method for a constant; other tests show its calls")

    @examples(40 if backend.name != "jax.jit" else 15)
    @given(drawn_wholes())
    def check(whole):
        arrays = [backend.asarray(array) for array in whole.arrays]
        ours, theirs = (
            backend.run(lambda *arrays, lazy_apply=lazy_apply: whole(lazy_apply, *arrays), *arrays)
            for lazy_apply in (au.lazy_apply, xpx.lazy_apply)
        )
        assert_same(ours, theirs)

    check()


# What func gets


def test_func_gets_arrays_of_the_library_of_the_arguments(backend):
    expected = np.ndarray if backend.library == "dask.array" else type(backend.asarray([1]))
    seen = []

    def note(x):
        seen.append(isinstance(x, expected))
        return x + 1

    np.asarray(backend.run(lambda x: au.lazy_apply(note, x), backend.asarray([1, 2])))
    assert seen == [True]


@pytest.mark.parametrize("values", [1, [1, 2]], ids=["0-d", "1-d"])
def test_func_gets_numpy_arrays_with_as_numpy(backend, values):
    seen = []

    def note(x):
        seen.append(type(x))
        return x + 1

    np.asarray(backend.run(lambda x: au.lazy_apply(note, x, as_numpy=True), backend.asarray(values)))
    assert seen == [np.ndarray]


def test_func_gets_a_chunked_array_whole():
    da = pytest.importorskip("dask.array")
    shapes = []

    def note(x):
        shapes.append(x.shape)
        return x

    au.lazy_apply(note, da.ones((4, 6), chunks=(1, 2))).compute(scheduler="sync")
    assert shapes == [(4, 6)]


def test_eager_arrays_are_handed_over_themselves_and_may_be_written_to():
    x = np.arange(3)

    def double(x):
        x *= 2
        return x

    assert au.lazy_apply(double, x) is x
    np.testing.assert_array_equal(x, [0, 2, 4])


def test_eager_outputs_are_not_checked():
    """Declared (2,) of integers, returned (3,) of floats."""
    result = au.lazy_apply(lambda x: np.ones(3), np.arange(2), shape=(2,), dtype=np.int64)
    assert (result.shape, result.dtype) == ((3,), np.float64)


def test_eager_results_are_on_the_device_of_the_first_array():
    xp = pytest.importorskip("array_api_strict")
    x = xp.asarray([1.0, 2.0], device=xp.Device("device1"))
    assert au.lazy_apply(lambda x: xp.zeros(2), x).device == x.device


def test_eager_transfers_follow_the_rules_of_the_library():
    xp = pytest.importorskip("array_api_strict")
    x = xp.asarray([1.0, 2.0], device=xp.Device("device1"))
    with pytest.raises(RuntimeError, match="device1") as caught:
        au.lazy_apply(lambda x: x, x, as_numpy=True)
    assert not isinstance(caught.value, au.ApplyUfuncError)


def test_sparse_arrays_are_not_made_dense_unasked():
    sparse = pytest.importorskip("sparse")
    x = sparse.COO.from_numpy(np.eye(2))
    with pytest.raises(RuntimeError):
        au.lazy_apply(lambda x: x, x, as_numpy=True)
    assert isinstance(au.lazy_apply(lambda x: x * 2, x), sparse.SparseArray)


def test_exception_of_func_keeps_its_type_and_says_where_it_happened(backend):
    if backend.name == "jax.jit":
        pytest.skip("only its text leaves a callback")

    class CustomError(Exception):
        pass

    def fail(x):
        raise CustomError("Hello World")

    with pytest.raises(CustomError, match="Hello World") as caught:
        np.asarray(au.lazy_apply(fail, backend.asarray([1, 2])))
    assert any("'fail'" in note and "(2,)" in note for note in caught.value.__notes__)


def test_namespace_of_another_library_makes_the_results():
    strict = pytest.importorskip("array_api_strict")
    result = au.lazy_apply(np.sort, np.array([2, 1]), xp=strict)
    assert isinstance(result, strict.asarray(0).__class__)
    np.testing.assert_array_equal(np.asarray(result), [1, 2])


# Where a result is lazy


def test_func_is_not_called_while_a_lazy_result_is_built():
    da = pytest.importorskip("dask.array")

    def fail(x):
        raise AssertionError("called")

    result = au.lazy_apply(fail, da.ones(4, chunks=2))
    assert (result.shape, result.dtype, result.chunks) == ((4,), np.float64, ((4,),))


def test_arrays_above_the_chunk_size_are_merged_without_a_warning():
    dask = pytest.importorskip("dask")
    with dask.config.set({"array.chunk-size": "100 B"}):
        result = au.lazy_apply(np.sort, chunked(np.arange(100)[::-1]))
    np.testing.assert_array_equal(result.compute(), np.arange(100))


def test_tasks_bear_the_name_of_func():
    da = pytest.importorskip("dask.array")

    def helloworld(x):
        return x + 1

    keys = au.lazy_apply(helloworld, da.ones(2)).__dask_graph__()
    assert any(str(key[0]).startswith("helloworld") for key in keys if isinstance(key, tuple))


def test_equal_calls_on_dask_get_equal_names():
    da = pytest.importorskip("dask.array")
    x = da.ones(2)
    assert au.lazy_apply(np.sort, x).name == au.lazy_apply(np.sort, x).name
    assert au.lazy_apply(np.sort, x).name != au.lazy_apply(np.sort, x, shape=(au.UpTo(3),)).name


def test_several_outputs_come_from_one_call():
    dask = pytest.importorskip("dask")
    calls = []

    def note(x):
        calls.append(1)
        return x + 1, x.sum()

    outputs = au.lazy_apply(note, chunked(np.arange(4)), shape=((4,), ()))
    more, total = dask.compute(*outputs, scheduler="sync")
    assert (list(more), total, len(calls)) == ([1, 2, 3, 4], 6, 1)


def test_dask_arrays_of_other_arrays_keep_their_type():
    sparse = pytest.importorskip("sparse")
    da = pytest.importorskip("dask.array")
    x = da.from_array(np.eye(2)).map_blocks(sparse.COO.from_numpy)
    assert isinstance(au.lazy_apply(lambda x: x + x, x).compute(), sparse.COO)


@pytest.mark.parametrize("one", [None, math.nan], ids=["None", "nan"])
def test_unknown_sizes_on_dask_are_nan_until_computed(one):
    pytest.importorskip("dask")
    x = chunked([1, 1, 2, 2, 2])
    values, counts = au.lazy_apply(np.unique_counts, x, shape=((one,), (one,)), dtype=(x.dtype, np.intp))
    assert math.isnan(values.shape[0])
    np.testing.assert_array_equal(values.compute(), [1, 2])
    np.testing.assert_array_equal(counts.compute(), [2, 3])


def test_default_shape_of_unknown_sizes_is_unknown():
    pytest.importorskip("dask")
    x = chunked([1, 2, 2])
    result = au.lazy_apply(lambda x: x + 1, x[x > 1])
    assert math.isnan(result.shape[0])
    np.testing.assert_array_equal(result.compute(), [3, 3])


def test_unknown_sizes_need_no_word_on_eager_arrays():
    np.testing.assert_array_equal(np.sort(au.lazy_apply(np.unique_values, np.array([3, 1, 3]), shape=(None,))), [1, 3])


def test_unknown_sizes_are_found_out_on_every_backend_that_is_not_traced(backend, as_numpy):
    x = backend.asarray(np.array([2, 1, 2], dtype=np.int32))
    unique = np.unique_values if as_numpy else (lambda x: namespace(x).unique_values(x))
    call = lambda x: au.lazy_apply(unique, x, shape=(None,), as_numpy=as_numpy)
    if not backend.knows_sizes:
        with pytest.raises(au.UnknownSizeError, match=r"axis 0 of output 0.*UpTo\(bound\)"):
            backend.run(call, x)
        return
    result = call(x)
    assert math.isnan(result.shape[0]) == (backend.name == "dask")
    np.testing.assert_array_equal(np.sort(np.asarray(result)), [1, 2])


def test_unknown_sizes_under_any_transformation_are_one_kind_of_error():
    """The one that `apply_ufunc` raises too."""
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray([1, 1, 2])
    lazy = lambda x: au.lazy_apply(np.unique, x, shape=(None,))
    by_signature = lambda x: au.apply_ufunc(np.unique, "(n)->(k)", x, output_sizes={"k": None}, output_dtypes="i4")
    for call in (lazy, by_signature):
        for transformed in (jax.jit(call), lambda x, call=call: jax.vmap(call)(x[None])):
            with pytest.raises(au.UnknownSizeError, match="UpTo"):
                transformed(x)


def test_labelled_arrays_are_refused_by_name():
    xarray = pytest.importorskip("xarray")
    with pytest.raises(au.ArgumentError, match=r"argument 0 is an xarray\.DataArray.*pass its \.data"):
        au.lazy_apply(np.sort, xarray.DataArray([2, 1]))


def test_upper_bound_pads_on_every_backend(backend, as_numpy):
    def above(x):
        return x[np.asarray(x) > 1]

    x = backend.asarray(np.array([1, 2, 3], dtype=np.int32))
    if backend.name == "array-api-strict" and not as_numpy:
        above = lambda x: x[x > 1]
    result = backend.run(lambda x: au.lazy_apply(above, x, shape=(au.UpTo(4, fill_value=-1),), as_numpy=as_numpy), x)
    assert isinstance(result, type(backend.asarray([1])))
    assert result.shape == (4,)
    np.testing.assert_array_equal(np.asarray(result), [2, 3, -1, -1])


def test_upper_bound_is_enforced():
    with pytest.raises(au.OutputShapeError, match=r"at most 2 \(UpTo\), kernel returned 3"):
        au.lazy_apply(lambda x: x, np.arange(3), shape=(au.UpTo(2),))


def test_unknown_size_under_jit_names_the_dimension_and_the_way_out():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray([1, 1, 2])
    with pytest.raises(au.UnknownSizeError, match=r"axis 0 of output 1.*UpTo"):
        jax.jit(lambda x: au.lazy_apply(np.unique_counts, x, shape=((3,), (None,)), as_numpy=True))(x)


@pytest.mark.parametrize("jit", [False, True], ids=["vmap", "jit(vmap)"])
def test_vmap_is_one_callback_that_calls_func_for_each_item(as_numpy, jit):
    jax = pytest.importorskip("jax")
    shapes = []

    def centre(x, y):
        shapes.append((x.shape, y.shape))
        return x - x.mean() + y[0]

    def call(x, y):
        return au.lazy_apply(centre, x, y, shape=x.shape, as_numpy=as_numpy)

    batched = jax.vmap(call, in_axes=(1, None))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    result = (jax.jit(batched) if jit else batched)(jax.numpy.asarray(x), jax.numpy.asarray([1.0, 2.0]))
    np.testing.assert_array_equal(result, (x - x.mean(axis=0)).T + 1)
    assert shapes == [((3,), (2,))] * 2


def test_nested_vmap_loops_over_both_dims():
    jax = pytest.importorskip("jax")
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    call = lambda x: au.lazy_apply(np.flip, x, as_numpy=True)
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.vmap(call)))(x), x[..., ::-1])


# Refusals


@pytest.mark.parametrize("args", [(), (1,), (None, 2.0)])
@pytest.mark.parametrize("xp", [None, np])
def test_call_without_an_array_is_refused(args, xp):
    with pytest.raises(au.ArgumentError, match=f"at least one array, and 'sort' got {len(args)} argument"):
        au.lazy_apply(np.sort, *args, shape=(1,), dtype=np.int32, xp=xp)


def test_numpy_arrays_and_lists_go_with_another_library(backend):
    own = np.ndarray if backend.library == "dask.array" else type(backend.asarray([1]))
    seen = []

    def add(x, y, z):
        seen.append([isinstance(one, own) for one in (x, y, z)])
        return x + y + z

    y = backend.asarray(np.asarray([3, 4], dtype=np.int32))
    result = backend.run(lambda y: au.lazy_apply(add, np.asarray([1, 2], dtype=np.int32), y, [1, 1]), y)
    assert isinstance(result, type(y))
    np.testing.assert_array_equal(np.asarray(result), [5, 7])
    assert seen == [[True, True, True]]


def test_arrays_of_two_libraries_are_refused():
    strict = pytest.importorskip("array_api_strict")
    pytest.importorskip("dask")
    with pytest.raises(au.ArgumentError, match="argument 0 is from array_api_strict, argument 1 is from dask"):
        au.lazy_apply(np.add, strict.asarray([1]), chunked([1]))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ([(1,), (2,)], np.int32, "shape has 2 shape.s. and dtype is one dtype"),
        ((1,), [np.int32, np.int64], "dtype has 2 dtype.s. in a sequence and shape is one shape"),
        ([(1,), (2,)], [np.int32], "shape has 2 shape.s. and dtype has 1"),
        (3, None, "got 3"),
        ((-1,), None, "at least 0, UpTo, or None .unknown., got -1"),
        ((1.5,), None, "got 1.5"),
        ("ab", None, "got 'a'"),
    ],
)
def test_shapes_and_dtypes_that_do_not_fit_are_refused(shape, dtype, message):
    with pytest.raises(au.OptionError, match=message):
        au.lazy_apply(np.sort, np.ones(3), shape=shape, dtype=dtype)


def test_arguments_that_do_not_broadcast_need_a_shape(backend):
    x, y = backend.asarray(np.ones(3, np.float32)), backend.asarray(np.ones(2, np.float32))
    with pytest.raises(au.DimensionError, match=r"without shape.* 3 in argument 0 and 2 in argument 1"):
        backend.run(lambda x, y: au.lazy_apply(np.add, x, y), x, y)
    result = backend.run(lambda x, y: au.lazy_apply(lambda x, y: x[:2] + y, x, y, shape=(2,)), x, y)
    np.testing.assert_array_equal(np.asarray(result), [2, 2])
