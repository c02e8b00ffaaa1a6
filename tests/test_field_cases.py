"""Inputs that went wrong in other libraries that do this job, on every backend that they concern."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from fresh_process import run

import applyufunc as au


def call(backend, kernel, signature, *args, **options):
    """Apply `kernel` to arguments on a backend; what is no array goes as it is."""
    put = tuple(backend.put(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
    return backend.call(kernel, signature, put, options)


def value(backend, kernel, signature, *args, **options):
    result = call(backend, kernel, signature, *args, **options)
    return tuple(map(backend.get, result)) if isinstance(result, tuple) else backend.get(result)


def message(backend, kernel, signature, *args, **options):
    """Return the text with which a call, or the computing of its result, fails."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the class is asserted elsewhere
        value(backend, kernel, signature, *args, **options)
    return str(caught.value)


def test_arguments_of_unequal_loop_rank_line_up_from_the_right(backend):
    a, b = np.arange(36.0).reshape(3, 3, 4), np.arange(12.0).reshape(3, 4)
    result = value(backend, lambda x, y: x * y, "(),()->()", a, b[:, None, :], output_dtypes=float)
    np.testing.assert_array_equal(result, np.stack([a[i] * b[i] for i in range(3)]))
    assert result[1, 0].tolist() == [48, 65, 84, 105]


@pytest.mark.covers("`writable`")
def test_a_kernel_cannot_change_its_input(backend):
    def double(block):
        block *= 2
        return block

    x = np.arange(6.0).reshape(2, 3)
    put = backend.put(x)
    assert "read-only" in message(backend, double, "()->()", x, output_dtypes=float)
    doubled = backend.call(double, "()->()", (put,), {"output_dtypes": float, "writable": True})
    np.testing.assert_array_equal(backend.get(doubled), x * 2)
    assert backend.get(put).sum() == x.sum() == 15


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_the_output_dtype_does_not_depend_on_the_order_of_the_items(backend, order):
    rows = np.array([[0.0], [3.0], [5.0]])[order]
    expected = np.array([0.0, 1.5, 2.5])[order]
    kernel = lambda v: 0 if v[0] < 1 else v[0] / 2
    result = value(backend, kernel, "(n)->()", rows, vectorize=True, output_dtypes=float)
    np.testing.assert_array_equal(result, expected)
    if not backend.lazy:
        undeclared = value(backend, kernel, "(n)->()", rows, vectorize=True)
        np.testing.assert_array_equal(undeclared, expected)


def test_a_fixed_size_is_enforced(backend):
    text = message(backend, lambda v: v.sum(axis=-1), "(3)->()", np.ones((2, 4)), output_dtypes=float)
    assert text.partition("\n")[0] == "argument 0: core dimension fixed to 3, got 4"


@pytest.mark.parametrize("signature", ["(3)->()", " ( 3 ) -> ( ) ", "(n?)->()", "(n|1)->()"])
def test_the_whole_grammar_of_core_dims_is_taken(backend, signature):
    result = value(backend, lambda v: v.sum(axis=-1), signature, np.ones((2, 3)))
    np.testing.assert_array_equal(result, [3, 3])


def test_core_dims_do_not_broadcast(backend):
    kernel = lambda a, b: (a * b).sum(axis=-1)
    text = message(backend, kernel, "(n),(n)->()", np.ones((2, 5)), np.ones((2, 1)), output_dtypes=float)
    assert text.startswith("core dimension 'n' is 5 in argument 0 and 1 in argument 1")
    result = value(backend, kernel, "(n),(n|1)->()", np.ones((2, 5)), np.ones((2, 1)), output_dtypes=float)
    np.testing.assert_array_equal(result, [5, 5])


def test_what_is_returned_is_checked_against_what_is_declared(backend):
    cut = message(backend, lambda b: b[..., 1:], "(i)->(i)", np.ones((4, 6)), output_dtypes=float)
    assert "output 0, core dimension i: expected 6, kernel returned 5" in cut
    short = message(
        backend, lambda b: b[..., :2], "(i)->(j)", np.ones((4, 6)), output_dtypes=float, output_sizes={"j": 5}
    )
    assert "output 0, core dimension j: expected 5, kernel returned 2" in short
    three = message(backend, lambda b: (b.sum(-1),) * 3, "(i)->(),()", np.ones((4, 6)), output_dtypes=float)
    assert "kernel returned a tuple of 3, expected a tuple of 2" in three


@pytest.mark.covers("Python scalars")
def test_a_python_scalar_leaves_float32_as_it_is_and_a_numpy_scalar_does_not(backend):
    kernel = lambda a, s: a * s
    weak = value(backend, kernel, "(),()->()", np.ones(4, dtype="f4"), 2.5)
    assert weak.dtype == np.float32
    np.testing.assert_array_equal(weak, [2.5] * 4)
    strong = value(backend, kernel, "(),()->()", np.ones(4, dtype="f4"), np.float64(2.5))
    assert strong.dtype == np.float64


@pytest.mark.covers("masked arrays", refused_without="keeps_masks")
@pytest.mark.parametrize("vectorize", [False, True])
def test_masked_values_do_not_count_as_data(backend, vectorize):
    masked = np.ma.masked_array([[1.0, 2.0, 99.0], [3.0, 99.0, 5.0], [99.0] * 3], mask=[[0, 0, 1], [0, 1, 0], [1] * 3])
    if backend.keeps_masks:
        result = value(backend, lambda v: v.mean(axis=-1), "(i)->()", masked, output_dtypes=float, vectorize=vectorize)
        assert isinstance(result, np.ma.MaskedArray)
        assert result.tolist() == [1.5, 4.0, None]
    else:
        with pytest.raises(au.ArgumentError, match="argument 1 is a masked array"):
            au.apply_ufunc(lambda a, v: v, "(i),(i)->(i)", backend.put(np.ones(3)), masked, **backend.options)


@pytest.mark.covers("output dtypes that are found out")
def test_a_kernel_that_insists_on_a_size_is_never_called_with_another(backend):
    shapes = []

    def cross(a, b):
        shapes.append(a.shape)
        if a.shape[-1] != 3:
            raise ValueError("needs 3")
        return np.cross(a, b)

    for declared in ({}, {"output_dtypes": float}):
        result = value(backend, cross, "(i),(i)->(i)", np.ones((4, 3)), np.ones((4, 3)), **declared)
        np.testing.assert_array_equal(result, np.zeros((4, 3)))
    assert {shape[-1] for shape in shapes} == {3}


def test_with_dtypes_given_the_kernel_runs_for_data_alone(backend):
    calls = []

    def first(v):
        calls.append(v.shape)
        return v[..., 0]

    value(backend, first, "(i)->()", np.ones((4, 3)), output_dtypes=float)
    assert calls == [(*backend.batch, 4, 3)]


@pytest.mark.covers("empty batches")
def test_an_empty_batch_is_answered_without_the_kernel(backend):
    calls = []

    def extremes(v):
        calls.append(v.shape)
        return np.array([v.min(), v.max()])

    options = {"vectorize": True, "output_sizes": {"j": 2}, "output_dtypes": "f8"}
    result = value(backend, extremes, "(i)->(j)", np.ones((0, 4)), **options)
    assert (result.shape, result.dtype, calls) == ((0, 2), np.float64, [])


def test_a_forgotten_core_dim_is_named_as_the_likely_mistake(backend):
    series = np.array([4.0, 8.0, 6.0, 0.0, 2.0, 1.0])
    text = message(backend, np.median, "()->()", series, output_dtypes=float)
    loop = "(2, 6)" if backend.batch else "(6,)"
    assert f"kernel returned shape () for loop shape {loop}: is a core dimension missing from the signature?" in text


@pytest.mark.covers("sizes from a function")
@pytest.mark.parametrize("size", [2, lambda sizes: sizes["n"] // 2])
def test_a_dim_that_only_an_output_has_gets_its_size_from_the_caller(backend, size):
    kernel = lambda v: np.stack([v.min(axis=-1), v.max(axis=-1)], axis=-1)
    result = value(backend, kernel, "(n)->(k)", np.arange(8.0).reshape(2, 4), output_sizes={"k": size})
    np.testing.assert_array_equal(result, [[0, 3], [4, 7]])
    text = message(backend, kernel, "(n)->(k)", np.arange(8.0).reshape(2, 4))
    assert text.startswith("the size of output dimension 'k' is not known")


def test_a_kernel_with_an_out_parameter_is_called_without_it(backend):
    def total(x, out=None):
        result = x.sum(axis=-1)
        if out is None:
            return result
        out[...] = result
        return None

    np.testing.assert_array_equal(value(backend, total, "(n)->()", np.ones((2, 3)), output_dtypes="f8"), [3, 3])


def test_a_core_dim_in_and_out_can_keep_its_place(backend):
    x = np.arange(30.0).reshape(2, 5, 3)
    kernel = lambda a: a - a.mean(axis=-1, keepdims=True)
    result = value(backend, kernel, "(t)->(t)", x, axes=[(1,), (1,)])
    np.testing.assert_array_equal(result, x - x.mean(axis=1, keepdims=True))


def test_all_arguments_reach_the_kernel_with_one_loop_rank(backend):
    shapes = []

    def kernel(x, y):
        shapes.append((x.shape, y.shape))
        return x.sum(axis=-1) + y.sum(axis=-1)

    x, y = np.arange(6.0).reshape(2, 3, 1), np.arange(4.0).reshape(1, 4)
    np.testing.assert_array_equal(
        value(backend, kernel, "(n),(m)->()", x, y, output_dtypes=float), np.arange(6.0).reshape(2, 3) + 6
    )
    assert shapes == [((*backend.batch, 2, 3, 1), (*(1 for _ in backend.batch), 1, 1, 4))]


@pytest.mark.covers("keywords")
def test_keyword_arguments_reach_the_kernel_whole_and_unchanged(backend):
    seen = []

    def weighted(b, w=None, mode="sum"):
        seen.append((type(w), w.shape, mode))
        return (b * w).sum(axis=-1)

    weights = np.arange(6.0)
    result = value(backend, weighted, "(i)->()", np.ones((4, 6)), w=weights, mode="sum", output_dtypes=float)
    np.testing.assert_array_equal(result, np.full(4, 15.0))
    assert seen == [(np.ndarray, (6,), "sum")]
    assert weights.flags.writeable


def test_a_lazy_or_traced_keyword_is_refused_by_name():
    da = pytest.importorskip("dask.array")
    with pytest.raises(au.ArgumentError, match="keyword w is a lazy dask array: pass it as an argument"):
        au.apply_ufunc(lambda b, w: b, "(i)->(i)", np.ones(3), w=da.ones(3))
    jax = pytest.importorskip("jax")
    with pytest.raises(au.ArgumentError, match="keyword w is a traced jax array: pass it as an argument"):
        jax.jit(lambda w: au.apply_ufunc(lambda b, w: b, "(i)->(i)", np.ones(3), w=w))(np.ones(3))


def test_a_kernel_of_one_item_is_called_once_for_each(backend):
    calls = []

    def total(v):
        calls.append(v.shape)
        return v.sum()

    x = np.arange(80.0).reshape(10, 8)
    result = value(backend, total, "(n)->()", x, vectorize=True, output_dtypes=float)
    np.testing.assert_array_equal(result, x.sum(axis=-1))
    assert calls == [(8,)] * 10 * math.prod(backend.batch)


@pytest.mark.covers("exceptions of the kernel")
def test_a_kernels_own_exception_says_where_it_was_raised(backend):
    def boom(v):
        raise KeyError("boom")

    arg = backend.put(np.ones(3))
    with pytest.raises(Exception) as caught:  # noqa: PT011  # under jit the class is JAX's own
        backend.get(backend.call(boom, "()->()", (arg,), {"output_dtypes": float}))
    if backend.traces:
        assert re.search(r"'boom'.*KeyError", str(caught.value), re.DOTALL)
    else:
        assert type(caught.value) is KeyError
        (note,) = caught.value.__notes__
        assert note.startswith(f"in kernel 'boom' with signature '()->()', called with float64{(*backend.batch, 3)}")


class Wrapped:
    """What converts itself by ``__jax_array__``, and by ``__array__`` for NumPy."""

    def __init__(self, array):
        self.array = array

    def __jax_array__(self):
        jnp = pytest.importorskip("jax.numpy")
        return jnp.asarray(self.array)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype)


def test_an_object_that_converts_itself_to_jax_does_so_in_and_out_of_jit():
    jax = pytest.importorskip("jax")
    kernel = lambda v: v.sum(axis=-1)
    wrapped = Wrapped(np.arange(3.0, dtype="f4"))
    eager = au.apply_ufunc(kernel, "(n)->()", wrapped)
    traced = jax.jit(lambda: au.apply_ufunc(kernel, "(n)->()", wrapped, output_dtypes="f4"))()
    assert isinstance(eager, jax.Array)
    assert eager == traced == 3


def test_a_kernel_for_arrays_of_any_library_runs_on_those_of_each(backend):
    x, y = np.arange(6.0).reshape(2, 3), np.arange(8.0).reshape(2, 4)
    kernel = lambda x, y: x[..., :, None] * y[..., None, :]
    options = {"kernel_arrays": "same", "output_dtypes": float, "allow_transfer": False}
    result = value(backend, kernel, "(i),(j)->(i,j)", x, y, **options)
    np.testing.assert_array_equal(result, x[:, :, None] * y[:, None, :])


def test_sharded_calls_end_however_many_there_are():
    pytest.importorskip("jax")
    program = """
        import jax, numpy as np, applyufunc as au
        from jax.sharding import NamedSharding, PartitionSpec as P
        total = au.gufunc("(n)->()", output_dtypes="f4")(lambda v: np.asarray(v).sum(axis=-1))
        mesh = jax.make_mesh((4,), ("d",))
        x = jax.device_put(np.ones((1600, 400), "f4"), NamedSharding(mesh, P("d")))
        mapped = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
        print(len(x.devices()), all(np.array_equal(mapped(x), np.full(1600, 400)) for _ in range(40)))
    """
    assert run(program, devices=4) == ["4", "True"]
