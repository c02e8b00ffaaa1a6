"""JAX: one callback for a batch, the kernel itself where values are there, and the same dtypes and refusals in both."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest
from drawn_examples import examples
from fresh_process import run
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy


class Recorder:
    """A kernel that notes what it was called with."""

    def __init__(self, func):
        self.func = func
        self.calls = []

    def __call__(self, *args):
        self.calls.append(args)
        return self.func(*args)

    @property
    def shapes(self):
        return [tuple(map(np.shape, args)) for args in self.calls]


def row_sum(x):
    return x.sum(axis=-1)


def ones_like_rows(x):
    return np.ones(x.shape[:-1])


def boom(x):
    raise KeyError("boom")


# What the kernel gets under vmap


def test_vmap_lines_up_arguments_of_different_loop_ranks():
    a, b = np.arange(36.0, dtype="f4").reshape(3, 3, 4), np.arange(12.0, dtype="f4").reshape(3, 4)
    kernel = Recorder(np.multiply)
    result = jax.jit(jax.vmap(au.gufunc("(),()->()", output_dtypes=float)(kernel)))(a, b)
    np.testing.assert_array_equal(result, np.stack([a[i] * b[i] for i in range(3)]))
    assert kernel.shapes == [((3, 3, 4), (3, 1, 4))]


def test_nested_vmap_over_different_arguments_calls_once():
    p, q, r = jnp.array([1.0, 2.0, 3.0]), jnp.array([10.0, 20.0]), jnp.array(5.0)
    kernel = Recorder(lambda a, b, c: a * b - c)
    f = au.gufunc("(),(),()->()", output_dtypes=float)(kernel)
    nested = jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, None))
    np.testing.assert_array_equal(jax.jit(nested)(p, q, r), [[5, 15], [15, 35], [25, 55]])
    assert kernel.shapes == [((3, 1), (1, 2), (1, 1))]


def test_axes_that_are_not_leading_are_mapped_in_one_call():
    x = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    kernel = Recorder(row_sum)
    f = au.gufunc("(n)->()", output_dtypes=float)(kernel)
    result = jax.jit(jax.vmap(f, in_axes=2, out_axes=1))(x)
    np.testing.assert_array_equal(result, x.transpose(2, 0, 1).sum(-1).T)
    assert kernel.shapes == [((4, 2, 3),)]


def test_all_outputs_come_from_one_call():
    kernel = Recorder(lambda x: (x.min(axis=-1), x * 2))
    f = au.gufunc("(n)->(),(n)", output_dtypes=(float, float))(kernel)
    x = np.arange(12.0, dtype="f4").reshape(2, 2, 3)
    low, double = jax.jit(jax.vmap(jax.vmap(f)))(x)
    np.testing.assert_array_equal(low, x.min(-1))
    np.testing.assert_array_equal(double, x * 2)
    assert kernel.shapes == [((2, 2, 3),)]


def test_kernel_of_one_item_is_looped_inside_one_callback():
    kernel = Recorder(lambda x, y: float(x @ y))
    f = au.gufunc("(n),(n)->()", output_dtypes=float, vectorize=True)(kernel)
    x, y = np.arange(6.0, dtype="f4").reshape(2, 3), np.ones(3, "f4")
    mapped = jax.vmap(f, (0, None))
    np.testing.assert_array_equal(jax.jit(mapped)(x, y), [3, 12])
    assert kernel.shapes == [((3,), (3,))] * 2
    assert str(jax.make_jaxpr(mapped)(x, y)).count("pure_callback[") == 1


def test_scan_and_cond_run_the_kernel():
    f = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    x = np.arange(6.0, dtype="f4").reshape(3, 2)
    total, each = jax.lax.scan(lambda carry, row: (carry + f(row), f(row)), jnp.float32(0), x)
    np.testing.assert_array_equal(each, [1, 5, 9])
    assert total == 15
    chosen = jax.jit(lambda flag: jax.lax.cond(flag, lambda: f(x), lambda: jnp.zeros(3)))
    np.testing.assert_array_equal(chosen(True), [1, 5, 9])
    np.testing.assert_array_equal(chosen(False), [0, 0, 0])


@st.composite
def nestings(draw):
    """Shapes of a matrix and a vector argument with mapped axes put in, and what each vmap gets, outside in."""
    shapes = [[2, 3], [3]]
    levels = []
    for _ in range(draw(st.integers(1, 3))):
        mapped = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        size = draw(st.integers(0, 3))
        in_axes = tuple(draw(st.integers(0, len(s))) if m else None for s, m in zip(shapes, mapped, strict=True))
        for shape, axis in zip(shapes, in_axes, strict=True):
            if axis is not None:
                shape.insert(axis, size)
        levels.insert(0, (in_axes, draw(st.integers(0, 1))))
    return tuple(map(tuple, shapes)), tuple(levels)


@examples(12)
@given(nestings())
def test_any_nesting_of_vmap_gives_what_native_jax_gives(nesting):
    shapes, levels = nesting
    args = [np.arange(1.0, np.prod(shape) + 1, dtype="f4").reshape(shape) for shape in shapes]
    kernel = Recorder(lambda x, y: (x * y).sum(axis=-1))
    ours, native = au.gufunc("(n),(n)->()", output_dtypes=float)(kernel), lambda x, y: (x * y).sum(axis=-1)
    for in_axes, out_axes in reversed(levels):
        ours, native = jax.vmap(ours, in_axes, out_axes), jax.vmap(native, in_axes, out_axes)
    expected = native(*args)
    result = jax.jit(ours)(*args)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert len(kernel.calls) == (1 if expected.size else 0)


# Eager


def test_eager_kernel_reads_the_arrays_where_they_are():
    kernel = Recorder(lambda x, y: x + y)
    x, y = jnp.arange(3.0), np.ones(3, "f4")
    result = au.apply_ufunc(kernel, "(),()->()", x, y)
    ((seen_x, seen_y),) = kernel.calls
    assert type(seen_x) is np.ndarray
    assert np.shares_memory(seen_x, np.asarray(x))
    assert np.shares_memory(seen_y, y)
    assert not seen_x.flags.writeable
    assert not seen_y.flags.writeable
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, [1, 2, 3])


def test_result_does_not_share_memory_with_a_numpy_argument():
    memory = np.zeros(1024 + 16, "f4")
    start = -memory.ctypes.data % 64 // 4
    y = memory[start : start + 1024]  # aligned as JAX wants it, which would take it over without a copy
    result = au.apply_ufunc(lambda x, y: y, "(),()->()", jnp.zeros(1024), y)
    y[:] = 1
    assert not np.asarray(result).any()


def test_eager_exception_is_the_kernels_own():
    with pytest.raises(KeyError, match="boom") as caught:
        au.apply_ufunc(boom, "()->()", jnp.ones(3))
    assert caught.value.__notes__ == ["in kernel 'boom' with signature '()->()', called with float32(3,)"]
    assert [entry.name for entry in caught.traceback][-1] == "boom"


def test_exception_under_vmap_without_jit_is_the_kernels_own():
    with pytest.raises(KeyError, match="boom") as caught:
        jax.vmap(au.gufunc("()->()", output_dtypes=float)(boom))(jnp.ones(3))
    assert caught.value.__notes__[0] == "in kernel 'boom' with signature '()->()', called with float32(3,)"


def test_forgotten_core_dim_gets_the_same_hint_with_and_without_jit():
    hint = r"kernel returned shape \(\) for loop shape \(6,\): is a core dimension missing from the signature\?"
    f = au.gufunc("()->()", output_dtypes=float)(np.median)
    x = jnp.array([4.0, 8.0, 6.0, 0.0, 2.0, 1.0])
    with pytest.raises(au.OutputShapeError, match=hint):
        f(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=hint):
        jax.block_until_ready(jax.jit(f)(x))


def test_concrete_arguments_inside_jit_stay_lazy():
    kernel = Recorder(row_sum)
    f = au.gufunc("(n)->()", output_dtypes=float)(kernel)
    x = jnp.ones((2, 3))
    compiled = jax.jit(lambda: f(x)).lower().compile()
    assert kernel.calls == []
    np.testing.assert_array_equal(compiled(), [3, 3])


def test_eval_shape_never_runs_a_kernel_whose_dtypes_are_given():
    f = au.gufunc("(n)->(n),()", output_dtypes=(jnp.bfloat16, int))(boom)
    rows, count = jax.eval_shape(f, jax.ShapeDtypeStruct((5, 3), jnp.float32))
    assert (rows.shape, rows.dtype, count.shape, count.dtype) == ((5, 3), jnp.bfloat16, (5,), jnp.int32)


def test_kernel_is_called_directly_under_disable_jit():
    def f(x):
        return au.apply_ufunc(boom, "()->()", x)

    with jax.disable_jit(), pytest.raises(KeyError, match="boom"):
        jax.jit(f)(jnp.ones(3))


def test_compile_time_evaluation_runs_the_kernel_while_tracing():
    f = au.gufunc("(n)->()", output_dtypes=float)(row_sum)

    @jax.jit
    def outer(y):
        with jax.ensure_compile_time_eval():
            return y * float(f(jnp.ones(3)))

    assert outer(2.0) == 6


# Dtypes


def as_eager(f, *args):
    return f(*args)


def as_jit(f, *args):
    return jax.jit(f)(*args)


def as_vmap(f, *args):
    return jax.vmap(f)(*(arg[None] for arg in args))[0]


def as_disable_jit(f, *args):
    with jax.disable_jit():
        return jax.jit(f)(*args)


WAYS = [as_eager, as_jit, as_vmap, as_disable_jit]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("x64", "declared", "expected"),
    [
        (False, float, "float32"),
        (False, int, "int32"),
        (False, complex, "complex64"),
        (False, bool, "bool"),
        (False, None, "float32"),
        (False, jnp.bfloat16, "bfloat16"),
        (False, "float16", "float16"),
        (True, float, "float64"),
        (True, int, "int64"),
        (True, complex, "complex128"),
        (True, "float32", "float32"),
        (True, None, "float64"),
    ],
)
def test_result_dtype_is_the_same_however_the_call_runs(way, x64, declared, expected):
    kernel = {bool: lambda x: x > 0, int: lambda x: x.astype("i8")}.get(declared, lambda x: x * np.float64(1))
    with jax.enable_x64(x64):
        result = way(au.gufunc("()->()", output_dtypes=declared)(kernel), jnp.ones(2))
        assert (result.dtype, result.weak_type) == (expected, False)
        np.testing.assert_array_equal(np.asarray(result, complex), [1, 1])


@pytest.mark.parametrize("way", WAYS)
def test_explicit_64_bit_dtype_warns_as_jnp_zeros_does(way):
    f = au.gufunc("()->()", output_dtypes="float64")(np.sqrt)
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64.*truncated to dtype float32") as ours:
        result = way(lambda x: f(x), jnp.ones(2))  # noqa: PLW0108  # else JAX is the caller
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64.*truncated to dtype float32"):
        jnp.zeros(2, "float64")
    assert result.dtype == "float32"
    assert {warning.filename for warning in ours} == {__file__}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("output_dtypes", [None, lambda x, s: x])
def test_scalar_keeps_the_dtype_of_the_array(dtype, output_dtypes):
    f = au.gufunc("(),()->()", output_dtypes=output_dtypes)(lambda x, s: x * s)
    x = jnp.ones(4, dtype)
    weak = jnp.asarray(2.5)
    traced = [jax.jit(f)(x, 2.5), jax.jit(lambda x: f(x, 2.5))(x), jax.vmap(f, (0, None))(x, 2.5)]
    results = [f(x, 2.5), f(x, weak), *traced]
    assert {str(result.dtype) for result in results} == {dtype}
    for result in results:
        np.testing.assert_array_equal(result.astype("float32"), [2.5] * 4)


def test_scalar_of_a_wider_kind_promotes_as_in_jax():
    f = au.gufunc("(),()->()")(lambda x, s: x * s)
    x = jnp.arange(3)
    expected = x * 2.5
    for result in (f(x, jnp.asarray(2.5)), jax.jit(f)(x, 2.5)):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_weak_arguments_alone_stay_as_they_are():
    kernel = Recorder(np.add)
    result = jax.jit(au.gufunc("(),()->()", output_dtypes=float)(kernel))(1.5, 2.0)
    assert [(a.dtype, b.dtype) for a, b in kernel.calls] == [("float32", "float32")]
    assert (float(result), result.weak_type) == (3.5, False)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
def test_numpy_argument_of_64_bits_arrives_as_jax_would_hold_it(transform):
    kernel = Recorder(np.add)
    transform(au.gufunc("(),()->()", output_dtypes=float)(kernel))(np.ones(2), jnp.ones(2))
    assert [x.dtype for x in kernel.calls[0]] == ["float32", "float32"]


def test_kernel_may_compute_in_64_bits():
    f = au.gufunc("()->()", output_dtypes=float)(lambda x: (x.astype("f8") + 1e-12 - 1) * 1e12)
    for result in (f(jnp.ones(1)), jax.jit(f)(jnp.ones(1))):
        assert result.dtype == "float32"
        np.testing.assert_allclose(result, 1, rtol=1e-3)


def test_integers_that_do_not_fit_are_refused():
    f = au.gufunc("()->()", output_dtypes=int)(lambda x: np.full(x.shape, 2**40))
    undeclared = au.gufunc("()->()")(f.__wrapped__)
    for eager in (f, undeclared):
        with pytest.raises(au.OutputRangeError, match="1099511627776, which the declared int32 cannot hold"):
            eager(jnp.ones(2))
    with pytest.raises(jax.errors.JaxRuntimeError, match="OutputRangeError: output 0: kernel returned 1099511627776"):
        jax.block_until_ready(jax.jit(f)(jnp.ones(2)))


@pytest.mark.parametrize("dtype", ["object", "U3", "datetime64[s]", "longdouble"])
def test_dtypes_that_jax_lacks_are_refused_by_name(dtype):
    dtype = np.dtype(dtype)
    with pytest.raises(au.ArgumentError, match=rf"argument 1 has dtype {dtype}".replace("[", r"\[")):
        au.apply_ufunc(np.add, None, jnp.ones(2), np.zeros(2, dtype))
    with pytest.raises(au.OptionError, match="which JAX arrays cannot hold"):
        au.apply_ufunc(np.sqrt, None, jnp.ones(2), output_dtypes=dtype)
    with pytest.raises(au.OutputDTypeError, match=f"kernel returned {dtype}".replace("[", r"\[")):
        au.apply_ufunc(lambda x: np.zeros(x.shape, dtype), "()->()", jnp.ones(2))


# Errors under jit


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap, lambda f: jax.vmap(jax.vmap(f))])
@pytest.mark.parametrize(("callback", "prefix"), [("ffi", "INTERNAL: "), ("pure_callback", "KernelError: ")])
def test_message_under_jit_names_kernel_error_signature_and_shapes(transform, callback, prefix):
    f = jax.jit(transform(au.gufunc("(n)->()", output_dtypes=float, callback=callback)(boom)))
    x = jnp.ones((2, 4, 3))
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(f(x))
    lines = str(caught.value).splitlines()
    start = lines.index(f"{prefix}kernel 'boom' failed with KeyError: 'boom'")
    assert start == 0 or callback == "pure_callback"
    assert lines[start + 1] == "in kernel 'boom' with signature '(n)->()', called with float32(2, 4, 3)"
    assert "applyufunc.reraise()" in lines[start + 2]


@pytest.mark.parametrize("transform", [jax.jit, lambda f: jax.jit(jax.vmap(f)), jax.vmap])
def test_reraise_gives_the_kernels_exception_caused_by_jax(transform):
    f = transform(au.gufunc("()->()", output_dtypes=float)(boom))
    for _ in range(2):
        with pytest.raises(KeyError, match="boom") as caught, au.reraise():
            jax.block_until_ready(f(jnp.ones(3)))
        assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
        assert [entry.name for entry in caught.traceback][-1] == "boom"


def test_reraise_restores_an_error_that_surfaces_late():
    first = jax.jit(au.gufunc("(n)->()", output_dtypes=float)(boom))
    with pytest.raises(KeyError, match="boom"), au.reraise():
        jax.block_until_ready(jax.jit(jnp.sin)(first(jnp.ones((1000, 1000)))))


def test_reraise_inside_another_leaves_nothing_to_do():
    f = jax.jit(au.gufunc("()->()", output_dtypes=float)(boom))
    seen = []

    def call():
        try:
            with au.reraise():
                jax.block_until_ready(f(jnp.ones(3)))
        except KeyError as error:
            seen.extend([error, error.__cause__])
            raise

    with pytest.raises(KeyError, match="boom") as caught, au.reraise():
        call()
    assert [caught.value, caught.value.__cause__] == seen
    assert isinstance(seen[1], jax.errors.JaxRuntimeError)


def test_an_exception_is_raised_once_and_not_kept_with_its_blocks():
    blocks = []

    def fail(x):
        own = x + 1
        blocks.append(weakref.ref(own))
        raise ValueError("negative")

    f = jax.jit(au.gufunc("()->()", output_dtypes=float)(fail))
    with pytest.raises(ValueError, match="negative") as caught, au.reraise():
        jax.block_until_ready(f(jnp.ones(3)))
    of_jax = caught.value.__cause__
    del caught
    gc.collect()
    assert [reference() for reference in blocks] == [None]
    with pytest.raises(jax.errors.JaxRuntimeError, match="negative"), au.reraise():
        raise of_jax


def test_reraise_keeps_a_cause_of_the_kernels_own():
    def chained(x):
        raise ValueError("outer") from OSError("inner")

    f = jax.jit(au.gufunc("()->()", output_dtypes=float)(chained))
    with pytest.raises(ValueError, match="outer") as caught, au.reraise():
        jax.block_until_ready(f(jnp.ones(3)))
    assert isinstance(caught.value.__cause__, OSError)


def test_reraise_lets_other_exceptions_pass():
    with pytest.raises(ZeroDivisionError), au.reraise():
        1 / 0  # noqa: B018
    with pytest.raises(jax.errors.JaxRuntimeError, match="boom"), au.reraise():
        jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(boom, x, x))(jnp.ones(3)))


def test_reraise_tells_threads_apart():
    def fail(x):
        raise ValueError(str(int(x[0])))

    f = jax.jit(au.gufunc("()->()", output_dtypes=float)(fail))
    caught = {}

    def call(number):
        try:
            with au.reraise():
                jax.block_until_ready(f(jnp.full(3, number)))
        except ValueError as error:
            caught[number] = str(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == {number: str(number) for number in range(8)}


def test_few_exceptions_are_kept():
    alive = []

    class MarkedError(Exception):
        pass

    def fail(x):
        error = MarkedError()
        alive.append(weakref.ref(error))
        raise error

    f = jax.jit(au.gufunc("()->()", output_dtypes=float)(fail))
    for _ in range(20):
        with pytest.raises(jax.errors.JaxRuntimeError):
            jax.block_until_ready(f(jnp.ones(1)))
    gc.collect()
    assert sum(reference() is not None for reference in alive) == 16


def test_wrong_shape_from_a_kernel_under_jit_gets_our_message():
    f = jax.jit(au.gufunc("(n)->(n)", output_dtypes=float)(lambda x: x[..., :-1]))
    message = "output 0, core dimension n: expected 3, kernel returned 2"
    with pytest.raises(au.OutputShapeError, match=message), au.reraise():
        jax.block_until_ready(f(jnp.ones((2, 3))))


def test_a_check_is_not_lost_when_a_part_of_the_result_is_used():
    def positive(x):
        if x.min() < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    f = au.gufunc("()->()", output_dtypes=float)(positive)
    with pytest.raises(ValueError, match="negative"):
        f(jnp.array([3.0, -1.0]))
    with pytest.raises(ValueError, match="negative"), au.reraise():
        jax.block_until_ready(jax.jit(lambda x: f(x)[:1])(jnp.array([3.0, -1.0])))


@pytest.mark.parametrize("callback", ["ffi", "pure_callback"])
def test_checks_of_a_result_that_is_not_used_never_run(callback):
    f = au.gufunc("(n)->()", output_dtypes=float, callback=callback)(boom)
    np.testing.assert_array_equal(jax.jit(lambda x: (f(x), x)[1])(jnp.ones(3)), [1, 1, 1])


def test_shapes_that_do_not_fit_are_refused_while_tracing():
    f = au.gufunc("(n),(n)->()", output_dtypes=float)(boom)
    with pytest.raises(au.DimensionError, match="core dimension 'n' is 3 in argument 0 and 1 in argument 1"):
        jax.jit(f)(jnp.ones(3), jnp.ones(1))


# Derivatives


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.vmap, jax.checkpoint, lambda f: jax.jit(jax.vmap(f))])
@pytest.mark.parametrize(
    "differentiate", [jax.grad, lambda f: jax.jit(jax.grad(f)), jax.jacfwd, lambda f: jax.grad(jax.jit(f))]
)
def test_derivative_is_refused_by_name(wrap, differentiate):
    f = wrap(au.gufunc("(),()->()", output_dtypes=float)(np.add))
    refused = r"kernel 'add' with signature '\(\),\(\)->\(\)' .* no derivative.* with respect to argument\(s\) 1:"
    with pytest.raises(au.ArgumentError, match=refused):
        differentiate(lambda x: f(jnp.ones(3), x).sum())(jnp.ones(3))


def test_what_has_no_tangent_does_not_need_a_derivative():
    f = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    last = au.gufunc("(n)->()", output_dtypes=int)(lambda x: x.argmax(axis=-1))
    x = jnp.array([1.0, 3.0, 2.0])

    def stopped(x):
        return x.sum() * f(jax.lax.stop_gradient(x))

    def picked(x):
        return x[last(x)] ** 2

    for transform in (jax.grad, lambda g: jax.jit(jax.grad(g))):
        np.testing.assert_array_equal(transform(stopped)(x), [6, 6, 6])
        np.testing.assert_array_equal(transform(picked)(x), [0, 6, 0])
        np.testing.assert_array_equal(transform(lambda x: x.sum() * f(jnp.arange(3)))(x), [3, 3, 3])


# Sizes


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0), (0,)])
@pytest.mark.parametrize("way", [as_eager, as_jit, as_vmap])
def test_empty_arrays_give_empty_or_neutral_results(shape, way):
    f = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    result = way(f, jnp.ones(shape))
    assert (result.shape, result.dtype) == (shape[:-1], "float32")
    np.testing.assert_array_equal(result, np.zeros(shape[:-1]))


@pytest.mark.parametrize("way", WAYS)
def test_axes_and_absent_dims_are_moved_in_every_way(way):
    x = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    by_axis = au.gufunc("(n)->()", output_dtypes=float)(row_sum)
    result = way(lambda x: by_axis(x, axis=0, keepdims=True), x)
    np.testing.assert_array_equal(result, x.sum(axis=0, keepdims=True))
    product = au.gufunc("(m?,n),(n,p?)->(m?,p?)", output_dtypes=float)(np.matmul)
    np.testing.assert_array_equal(way(lambda x: product(x[0], np.ones(4, "f4")), x), x[0].sum(axis=-1))


# Arguments


def test_masked_result_is_refused_by_name():
    with pytest.raises(au.OutputDTypeError, match="output 0: kernel returned a masked array"):
        au.apply_ufunc(lambda x: np.ma.masked_equal(x, 1), "()->()", jnp.ones(2))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_sequences_and_foreign_byte_order_are_taken(transform):
    f = au.gufunc("(),()->()", output_dtypes=float)(np.add)
    for other in ([1, 2], np.array([1, 2], ">f4")):
        np.testing.assert_array_equal(transform(lambda x, other=other: f(x, other))(jnp.ones(2)), [2, 3])


def test_none_and_scalars_reach_the_kernel_as_they_are():
    kernel = Recorder(lambda x, none, n: x * n)
    f = au.gufunc("(),(),()->()", output_dtypes=float)(kernel)
    for transform in (lambda f: f, jax.jit, jax.vmap):
        np.testing.assert_array_equal(transform(lambda x: f(x, None, 3))(jnp.ones(2)), [3, 3])
    assert [args[1:] for args in kernel.calls] == [(None, 3)] * 3
    assert {type(args[2]) for args in kernel.calls} == {int}


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
def test_kernel_for_jax_arrays_gets_concrete_ones(transform):
    def kernel(x, y):
        assert isinstance(x, jax.Array)
        assert isinstance(y, jax.Array)
        assert not isinstance(x, jax.core.Tracer)
        return jnp.cumsum(x, axis=-1) * float(y.max())

    f = au.gufunc("(n),()->(n)", output_dtypes=float, kernel_arrays="same")(kernel)
    x = np.arange(6.0, dtype="f4").reshape(2, 3)
    result = transform(lambda x: f(x, np.float32(2)))(jnp.asarray(x))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, np.cumsum(x, axis=-1) * 2)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
def test_kernel_for_jax_arrays_gets_concrete_keywords(transform):
    def kernel(x, weights):
        assert isinstance(weights, jax.Array)
        assert not isinstance(weights, jax.core.Tracer)
        return x * weights.sum()

    f = au.gufunc("()->()", kernel_arrays="same", output_dtypes=float)(kernel)
    result = transform(lambda x: f(x, weights=np.arange(3, dtype="f4")))(jnp.ones(2))
    np.testing.assert_array_equal(result, [3, 3])


def test_kernel_for_jax_arrays_is_tried_outside_the_trace():
    f = au.gufunc("(n)->(n)", kernel_arrays="same")(lambda x: jnp.cumsum(x, axis=-1) * float(x.max()))
    jaxpr = jax.make_jaxpr(f)(jnp.ones((2, 3)))
    assert [str(equation.primitive) for equation in jaxpr.eqns] == ["custom_jvp_call"]
    assert "cumsum" not in str(jaxpr)
    for transform in (jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))):
        np.testing.assert_array_equal(transform(f)(jnp.array([[1.0, 2.0, 3.0]])), [[3, 9, 18]])


def test_kernel_for_numpy_arrays_may_use_jax_where_nothing_waits_for_it():
    f = au.gufunc("(n)->(n)")(lambda x: np.asarray(jnp.cumsum(x, axis=-1)))
    np.testing.assert_array_equal(f(jnp.array([1.0, 2.0])), [1, 3])
    assert jax.eval_shape(f, jnp.array([1.0, 2.0])).dtype == "float32"


# One stable function


def test_repeated_vmap_without_jit_is_traced_once(caplog):
    x = jnp.ones((2, 3))

    def call():
        return jax.vmap(lambda row: au.apply_ufunc(row_sum, "(n)->()", row, output_dtypes=float))(x)

    assert compilations(call, caplog) == []


def compilations(call, caplog):
    """Return what JAX says that it compiled when something is called again and again."""
    call()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for _ in range(3):
            call()
    return [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()]


def test_array_keyword_does_not_make_another_function_of_a_kernel(caplog):
    x, weights = jnp.ones((2, 3)), np.arange(6.0)
    seen = []

    @au.gufunc("()->()", output_dtypes=float)
    def f(x, w):
        seen.append(w)
        return x

    assert compilations(lambda: jax.vmap(lambda row: f(row, w=weights))(x), caplog) == []
    views = [weights[:3], weights[3:], weights[::2], weights[:2].view("i8"), weights[:2]]
    for w in views:
        jax.vmap(lambda row, w=w: f(row, w=w))(x)
    for got, expected in zip(seen[-len(views) :], views, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", ["plain", "masked", "objects", "large"])
def test_equal_arrays_as_keywords_do_not_make_another_function_of_a_kernel(kind, caplog):
    make = {
        "plain": lambda: np.arange(6.0).reshape(2, 3).T,
        "masked": lambda: np.ma.MaskedArray(np.arange(3.0), mask=[True, False, False]),
        "objects": lambda: np.array([None, 1], object),
        "large": lambda: np.arange(2**20),
    }[kind]
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, w: x + w.size)
    assert compilations(lambda: jax.vmap(lambda x: f(x, w=make()))(jnp.ones(2)), caplog) == []


def test_masked_arrays_as_keywords_are_told_apart_by_what_they_hide():
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, w: x * w.sum())
    masks = [False, True], [True, False], [False, False]
    weights = [np.ma.MaskedArray([1.0, 2.0], mask=mask) for mask in masks]
    assert [float(jax.vmap(lambda x, w=w: f(x, w=w))(jnp.ones(1))[0]) for w in weights] == [1, 2, 3]


def test_arrays_of_strings_as_keywords_are_told_apart():
    dtype = np.dtypes.StringDType()
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, w: x * float(w[0]))
    weights = [np.array([digit * 20], dtype) for digit in "123"]  # longer than what the array itself holds
    results = [float(jax.vmap(lambda x, w=w: f(x, w=w))(jnp.ones(1))[0]) for w in weights]
    np.testing.assert_allclose(results, [float(digit * 20) for digit in "123"], rtol=1e-6)


def test_arrays_in_a_tuple_are_told_apart_though_they_are_equal():
    first, second = np.ones(1, "f4"), np.ones(1, "f4")
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, w: x * w[0])

    def call(weights):
        return float(jax.vmap(lambda x: f(x, w=(weights,)))(jnp.ones(1))[0])

    assert call(first) == 1
    first[:] = 2
    assert [call(second), call(first)] == [1, 2]


def test_change_of_an_array_keyword_is_seen():
    weights = np.ones(1, "f4")
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, w: x * w)
    for value in (1, 2):
        weights[:] = value
        assert float(jax.vmap(lambda x: f(x, w=weights))(jnp.ones(1))[0]) == value


def test_times_of_different_units_are_told_apart():
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, step: x * (step / np.timedelta64(1, "s")))
    steps = np.timedelta64(1, "s"), np.timedelta64(1, "m")
    assert [float(jax.vmap(lambda x, step=step: f(x, step=step))(jnp.ones(1))[0]) for step in steps] == [1, 60]


def test_kernel_token_makes_one_kernel_of_functions_made_anew(caplog):
    def call():
        f = au.gufunc("(n)->()", output_dtypes=float, kernel_token="row sum")(lambda x: x.sum(axis=-1))
        return jax.vmap(f)(jnp.ones((2, 3)))

    assert compilations(call, caplog) == []


def test_calls_that_differ_by_a_constant_alone_are_told_apart():
    def name_of(x, value, *, keyword=None):
        code = {"1": 1, "1.0": 2, "True": 3, "0.0": 4, "-0.0": 5, "(1,)": 6, "(1.0,)": 7, "None": 0}
        return np.full(x.shape, 10 * code[repr(value)] + code[repr(keyword)])

    f = au.gufunc("(),()->()", output_dtypes=int)(name_of)
    pairs = [(1, None), (1.0, None), (True, None), (0.0, None), (-0.0, None), (1, (1,)), (1, (1.0,)), (1, 1), (1, True)]
    results = [int(jax.vmap(lambda x, v=v, k=k: f(x, v, keyword=k))(jnp.ones(1))[0]) for v, k in pairs]
    assert results == [10, 20, 30, 40, 50, 16, 17, 11, 13]


def traced_once(kernel, **keywords):
    f = au.gufunc("()->()", output_dtypes=float)(kernel)
    jax.eval_shape(lambda x: f(x, **keywords), jax.ShapeDtypeStruct((2,), "float32"))
    return weakref.ref(kernel)


def test_kernels_are_not_kept_for_good():
    alive = [traced_once(lambda x: x) for _ in range(80)]
    jax.clear_caches()
    gc.collect()
    assert [reference() is not None for reference in alive] == [False] * 16 + [True] * 64


@pytest.mark.parametrize("make", [lambda: np.ones(3), lambda: {"table": [1]}], ids=["array", "dict"])
def test_few_kernels_are_kept_with_data_of_the_callers(make):
    lasting = traced_once(lambda x: x)
    alive = [traced_once(lambda x, data: x, data=make()) for _ in range(80)]
    jax.clear_caches()
    gc.collect()
    assert [reference() is not None for reference in alive] == [False] * 72 + [True] * 8
    assert lasting() is not None


def test_methods_of_one_object_are_one_kernel():
    class Model:
        calls = 0

        def scale(self, x):
            self.calls += 1
            return x * 2

    model = Model()
    for _ in range(2):
        jax.vmap(lambda x: au.apply_ufunc(model.scale, "()->()", x, output_dtypes=float))(jnp.ones(2))
    assert model.calls == 2
    other = Model()
    jax.vmap(lambda x: au.apply_ufunc(other.scale, "()->()", x, output_dtypes=float))(jnp.ones(2))
    assert (model.calls, other.calls) == (2, 1)


# Devices and hangs


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_numpy_kernel_runs_under_a_transfer_guard(transform):
    x = jnp.ones(3)
    f = transform(au.gufunc("()->()", output_dtypes=float)(lambda v: v + 1))
    with jax.transfer_guard("disallow"):
        result = jax.block_until_ready(f(x))
    np.testing.assert_array_equal(result, [2, 2, 2])


def test_large_arrays_under_jit_end():
    assert run("""
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        f = jax.jit(au.gufunc("(n)->()", output_dtypes=float)(lambda v: v.sum(axis=-1)))
        x = jnp.ones((1600, 400))
        y = x
        for _ in range(40):
            y = f(y * 1)[:, None] * jnp.ones((1, 400)) / 400
        print(np.array_equal(y, x), jax.vmap(f)(jnp.ones((4, 1000, 1000))).sum() == 4e6)
    """) == ["True", "True"]


def test_results_go_to_the_device_of_the_arguments():
    assert run(
        """
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        f = au.gufunc("(n)->()", output_dtypes=float)(lambda v: v.sum(axis=-1))
        last = jax.devices()[-1]
        y = f(jax.device_put(jnp.ones((2, 3)), last))
        print(y.devices() == {last}, y.committed, f(jnp.ones(3)).committed)
        sharding = jax.sharding.NamedSharding(jax.make_mesh((4,), ("a",)), jax.sharding.PartitionSpec("a"))
        x = jax.device_put(np.arange(12.0, dtype="f4").reshape(4, 3), sharding)
        print(np.array_equal(f(x), [3, 12, 21, 30]), f(x).devices() == x.devices())
        y = jax.jit(f)(x)  # on every device, not on one with zeros on the others
        expected = np.asarray([3, 12, 21, 30])
        print(all(np.array_equal(shard.data, expected[shard.index]) for shard in y.addressable_shards))
        print(np.array_equal(y + x[:, 0], [3, 15, 27, 39]))
        """,
        devices=4,
    ) == ["True", "True", "False", "True", "True", "True", "True"]


def test_lowering_is_imported_where_no_thread_can_start():
    assert run("""
        import threading
        import jax, jax.numpy as jnp
        x = jnp.ones(2)
        def start(thread):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = start
        import applyufunc as au
        print(float(au.apply_ufunc(lambda x: x + 1, "()->()", x)[0]))
    """) == ["2.0"]


def test_package_may_meet_its_first_jax_array_inside_a_trace():
    assert run("""
        import jax, jax.numpy as jnp, applyufunc as au
        kernel_runs = []
        def kernel(x):
            kernel_runs.append(1)
            return x + 1
        f = au.gufunc("()->()", output_dtypes=float)(kernel)
        jax.jit(f).lower(jnp.ones(2))
        print(len(kernel_runs))
        try:
            au.apply_ufunc(lambda x: 1 / 0, "()->()", jnp.ones(2))
        except ZeroDivisionError:
            print("direct")
    """) == ["0", "direct"]


# What has gone wrong before


def test_stop_iteration_of_a_kernel_stays_one():
    def kernel(v):
        return next(iter(()))

    with pytest.raises(StopIteration):
        jax.vmap(au.gufunc("(n)->()", output_dtypes=float)(kernel))(jnp.ones((2, 3)))


def test_an_exception_raised_from_a_kernels_leaves_reraise_as_it_is():
    def kernel(v):
        raise ValueError("v")

    class HandledError(Exception):
        pass

    def call():
        try:
            jax.block_until_ready(jax.jit(au.gufunc("(n)->()", output_dtypes=float)(kernel))(jnp.ones((2, 3))))
        except Exception as error:
            raise HandledError from error

    with pytest.raises(HandledError), au.reraise():
        call()


def test_an_exception_that_refuses_attributes_and_text_is_restored():
    @dataclasses.dataclass(frozen=True)
    class OddError(Exception):
        code: int

        def __str__(self):
            raise RuntimeError("no text")

    def kernel(v):
        raise OddError(3)

    with pytest.raises(OddError), au.reraise():
        jax.block_until_ready(jax.jit(au.gufunc("(n)->()", output_dtypes=float)(kernel))(jnp.ones((2, 3))))


class InterruptedTextError(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class OddNotesError(Exception):
    __notes__ = 3


@pytest.mark.parametrize("callback", ["ffi", "pure_callback"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("one\0two"), r"ValueError: one\\x00two"),
        (ValueError("no UTF-8: \ud800"), "ValueError: no UTF-8: "),  # of which pure_callback made a dead process
        (InterruptedTextError(), r"InterruptedTextError: \(its text raised KeyboardInterrupt\)"),
        (OddNotesError("text"), "OddNotesError: text"),
    ],
)
def test_an_exception_with_an_odd_text_is_named_and_restored(error, words, callback):
    def kernel(x):
        raise error

    f = jax.jit(au.gufunc("(n)->()", output_dtypes=float, callback=callback)(kernel))
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=f"kernel 'kernel' failed with {words}"):
        jax.block_until_ready(f(jnp.ones((2, 3))))
    with pytest.raises(type(error)) as caught, au.reraise():
        jax.block_until_ready(f(jnp.ones((2, 3))))
    assert caught.value is error


@pytest.mark.parametrize("call", [jax.jit, lambda f: f])
def test_reraise_takes_the_outer_of_two_kernels_that_fail(call):
    inner = jax.jit(au.gufunc("(n)->()", output_dtypes=float)(boom))

    @au.gufunc("(n)->()", output_dtypes=float, kernel_arrays="same")
    def words(x):
        try:
            return jax.block_until_ready(inner(x))
        except jax.errors.JaxRuntimeError as error:
            raise LookupError(f"inner: {error}") from None

    @au.gufunc("(n)->()", output_dtypes=float, kernel_arrays="same")
    def passed_on(x):
        return jax.block_until_ready(inner(x))

    with pytest.raises(LookupError, match=r"inner: .*KeyError: 'boom'"), au.reraise():
        jax.block_until_ready(call(words)(jnp.ones((2, 3))))
    with pytest.raises(KeyError, match="boom"), au.reraise():
        jax.block_until_ready(call(passed_on)(jnp.ones((2, 3))))


def test_arrays_of_two_devices_are_refused_by_name():
    assert run(
        """
        import jax, jax.numpy as jnp, applyufunc as au
        a, b = (jax.device_put(jnp.ones(4), jax.devices()[i]) for i in (2, 1))
        for door in (au.apply_ufunc, au.explain):
            try:
                door(lambda a, b: a + b, "(),()->()", a, b)
            except au.ArgumentError as error:
                print("two_devices" if "arrays of two devices do not mix" in str(error) else error)
        same = au.apply_ufunc(lambda v: v + 1, "(n)->(n)", a, kernel_arrays="same")
        print(same.devices() == a.devices())
        """,
        devices=4,
    ) == ["two_devices", "two_devices", "True"]


def test_an_axis_that_jit_traces_is_refused_with_how_to_bind_it():
    f = au.gufunc("(n)->()", output_dtypes=float)(lambda x: x.sum(axis=-1))
    x = np.ones((2, 3), "f4")
    with pytest.raises(au.OptionError, match=r"axis has to be an integer, .*: bind it by with_options\(axis=...\)"):
        jax.jit(f)(x, axis=0)
    assert jax.jit(f.with_options(axis=0))(x).tolist() == x.sum(axis=0).tolist()
