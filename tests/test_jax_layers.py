"""What the layers of a JAX call do together: derivatives, batches, routes, threads, dtypes, and traced kernels."""

from __future__ import annotations

import threading
import traceback

import numpy as np
import pytest

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy

ROUTES = ["ffi", "pure_callback"]


def energy(x):
    return (x**2).sum(axis=-1)


def energy_jac(x):
    return 2 * x


# Derivatives on each route


@pytest.mark.parametrize("callback", ROUTES)
def test_a_batch_of_jitted_gradients_is_one_call_of_the_derivative_alone(callback):
    calls = []

    def jac(x):
        calls.append(("jac", type(x), x.shape))
        return 2 * x

    def kernel(x):
        calls.append(("kernel", type(x), x.shape))
        return energy(x)

    f = au.gufunc("(n)->()", output_dtypes=float, callback=callback, jac=jac)(kernel)
    rows = jnp.arange(12.0).reshape(4, 3)
    program = jax.jit(jax.vmap(jax.grad(f))).lower(rows).compile()
    assert program.as_text().count("custom-call(") == 1
    np.testing.assert_array_equal(program(rows), 2 * np.arange(12.0).reshape(4, 3))
    assert calls == [("jac", np.ndarray, (4, 3))]


@pytest.mark.parametrize("callback", ROUTES)
@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap])
def test_message_of_a_failing_derivative_under_jit_names_it(callback, transform):
    def jac(x):
        raise ValueError("no slope")

    f = au.gufunc("(n)->()", output_dtypes=float, callback=callback, jac=jac)(energy)
    slope = jax.jit(transform(jax.grad(lambda x: f(x).sum())))
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(slope(jnp.ones((2, 3))))
    lines = str(caught.value).splitlines()
    prefix = "INTERNAL: " if callback == "ffi" else "KernelError: "
    start = lines.index(f"{prefix}kernel 'energy: jac' failed with ValueError: no slope")
    assert lines[start + 1] == "in kernel 'energy: jac' with signature '(n)->(n)', called with float32(2, 3)"


@pytest.mark.parametrize("callback", ROUTES)
def test_exception_of_a_derivative_is_raised_again_with_its_frames(callback):
    def vjp(x, factor, ct):
        raise LookupError("no table")

    f = au.gufunc("(n),()->(n)", output_dtypes=float, callback=callback, vjp=vjp)(
        lambda x, factor: x * factor[..., None]
    )
    slope = jax.jit(jax.grad(lambda x: f(x, 2.0).sum()))
    with pytest.raises(LookupError, match="no table") as caught, au.reraise():
        jax.block_until_ready(slope(jnp.ones(3)))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "vjp"


def test_an_eager_gradient_raises_the_exception_of_the_derivative_itself():
    def jac(x):
        raise LookupError("no table")

    f = au.gufunc("(n)->()", output_dtypes=float, jac=jac)(energy)
    with pytest.raises(LookupError, match="no table"):
        jax.grad(f)(jnp.ones(3))


def test_a_derivative_is_called_by_the_route_of_its_kernel():
    f = au.gufunc("(n)->()", output_dtypes=float, callback="pure_callback")(energy)
    f.jac(energy_jac)
    text = jax.jit(jax.grad(f)).lower(jnp.ones(3)).as_text()
    assert "xla_ffi_python_cpu_callback" in text
    assert "applyufunc.call" not in text


def test_a_derivative_computes_in_the_dtype_of_its_kernel():
    seen = []

    def jac(x):
        seen.append(x.dtype)
        return 2 * x

    f = au.gufunc("(n)->()", output_dtypes="bfloat16", compute_dtype="float64", jac=jac)(energy)
    slope = jax.jit(jax.grad(f))(jnp.array([1.0, 2.0], jnp.bfloat16))
    assert (slope.dtype, slope.tolist(), seen) == (jnp.bfloat16, [2.0, 4.0], [np.float64])


def test_small_steps_are_refused_where_the_kernel_computes_in_few_digits():
    with pytest.raises(au.OptionError, match=r"jac='finite-difference' takes steps that are lost in .* float32"):
        au.gufunc("(n)->()", compute_dtype="float32", jac="finite-difference")(energy)
    f = au.gufunc("(n)->()", output_dtypes=float, compute_dtype="float64", jac="finite-difference")(energy)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(jnp.arange(3.0)), [0, 2, 4], rtol=1e-6, atol=1e-6)


# Threads and dtypes on each route


@pytest.mark.parametrize("callback", ROUTES)
def test_threads_share_the_items_of_a_callback(callback):
    seen = set()
    barrier = threading.Barrier(2, timeout=30)

    def dot(x, y):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            barrier.wait()
        return np.dot(x, y)

    f = au.gufunc("(n),(n)->()", output_dtypes=float, vectorize=True, threads=2, callback=callback)(dot)
    x = np.arange(60, dtype="f4").reshape(20, 3)
    program = jax.jit(jax.vmap(f, (0, None)))
    for _ in range(3):  # memory that is XLA's is lent from the second call on
        seen.clear()
        np.testing.assert_array_equal(program(x, x[1]), x @ x[1])
        assert len(seen) == 2


@pytest.mark.parametrize("callback", ROUTES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_that_calls_jax_is_stopped_on_every_thread(callback, threads):
    here, others = [], []

    def kernel(x):
        (here if threading.current_thread().name != "applyufunc" else others).append(x)
        if threads == 1 or threading.current_thread().name == "applyufunc":
            return float(jnp.sum(x))
        return float(x)

    options = {"output_dtypes": float, "vectorize": True, "threads": threads, "callback": callback}
    program = jax.jit(au.gufunc("()->()", **options)(kernel))
    with pytest.raises(au.KernelError, match="the kernel calls JAX"), au.reraise():
        jax.block_until_ready(program(jnp.ones(2000)))
    assert others or threads == 1


@pytest.mark.parametrize("callback", ROUTES)
def test_a_kernel_computes_in_its_own_dtype_in_a_callback(callback):
    seen = []

    def mean(x):
        seen.append(x.dtype)
        return x.mean(axis=-1)

    f = au.gufunc("(n)->()", output_dtypes="float16", compute_dtype="float64", callback=callback)(mean)
    result = jax.jit(f)(jnp.full(4096, 60000, jnp.float16))
    assert (result.dtype, float(result), seen) == (jnp.float16, 60000, [np.float64])


# Traced kernels and derivatives


@pytest.mark.parametrize("jac", [energy_jac, jax.jit(energy_jac)], ids=["NumPy", "JAX"])
@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("options", [{}, {"output_dtypes": float}], ids=["found", "declared"])
def test_the_derivative_of_a_traced_kernel_takes_the_place_of_jax_own(jac, vectorize, options):
    tenfold = lambda x: 10 * jac(x)
    rule = au.gufunc("(n)->(n)", vectorize=vectorize, kernel_arrays="traced" if jac is not energy_jac else "numpy")(
        tenfold
    )
    f = au.gufunc("(n)->()", kernel_arrays="traced", vectorize=vectorize, jac=rule, **options)(energy)
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(f(x), [5, 50])
    expected = 20 * np.arange(6.0).reshape(2, 3)
    for slope in (jax.grad(lambda x: f(x).sum()), jax.vmap(jax.grad(f))):
        np.testing.assert_array_equal(slope(x), expected)
        np.testing.assert_array_equal(jax.jit(slope)(x), expected)
    text = jax.jit(jax.vmap(jax.grad(f))).lower(x).as_text()
    assert ("custom_call" in text) == (jac is energy_jac)


def test_derivatives_of_a_traced_kernel_may_be_none():
    f = au.gufunc("(n),()->(n)", kernel_arrays="traced", vjp=lambda x, factor, ct: (ct * factor[..., None], None))(
        lambda x, factor: x * factor[..., None]
    )
    by_x, by_factor = jax.grad(lambda *args: f(*args).sum(), (0, 1))(jnp.ones(3), jnp.float32(2))
    assert (by_x.tolist(), float(by_factor)) == ([2, 2, 2], 0)


def test_jax_own_function_as_a_derivative_is_traced():
    f = au.gufunc("()->()", output_dtypes=float, jac=jnp.cos)(np.sin)
    slope = jax.jit(jax.grad(f))
    assert "custom_call" not in slope.lower(0.0).as_text()
    assert float(slope(0.0)) == 1
    np.testing.assert_allclose(jax.grad(jax.grad(f))(1.0), -np.sin(1.0), rtol=1e-6)


def test_small_steps_are_refused_for_a_kernel_that_jax_traces():
    f = au.gufunc("(n)->()", output_dtypes=float, jac="finite-difference")(jax.jit(energy))
    with pytest.raises(au.OptionError, match="kernel 'energy' is traced by JAX, which differentiates it itself"):
        f(jnp.ones(3))


# Explanations


def test_explain_refuses_a_route_that_cannot_be_had():
    f = au.gufunc("(n)->()", output_dtypes=float, kernel_arrays="same", callback="ffi")(energy)
    with pytest.raises(au.OptionError, match="callback='ffi' cannot be had for kernel 'energy'"):
        jax.make_jaxpr(f.explain)(jnp.ones(3))
