"""JAX: derivatives by kernels of their own, checked against the same functions written in jax.numpy."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from derivative_kernels import (
    RULES,
    Recorder,
    native_power,
    power,
    power_jac,
    power_jvp,
    power_vjp,
    power_with,
    second_order,
)
from fresh_process import run
from hypothesis import given, settings
from hypothesis import strategies as st

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy

from jax.test_util import check_grads  # noqa: E402  # after it is known that there is JAX

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "f4")
Y = np.array([1.0, -2.0, 0.5], "f4")


def scanned(f):
    def loss(x, y):
        def body(carry, row):
            carry = carry + f(row + carry, y)
            return carry, f(row, y) * carry

        last, each = jax.lax.scan(body, jnp.float32(0.1), x / 4)
        return jnp.tanh(last) + each.sum()

    return loss


def nested(f):
    both = jax.vmap(jax.vmap(f, (0, None)), (None, 0))
    return jax.jit(lambda x, y: both(x, jnp.stack([y, 2 * y])))


def summed(f):
    return lambda x, y: jnp.sin(f(x, y)).sum()


REVERSE = {
    "grad": lambda f: jax.grad(summed(f), (0, 1)),
    "jit(grad)": lambda f: jax.jit(jax.grad(summed(f), (0, 1))),
    "grad(jit)": lambda f: jax.grad(jax.jit(summed(f)), (0, 1)),
    "vmap(grad)": lambda f: jax.vmap(jax.grad(summed(f), (0, 1)), (0, None)),
    "grad(vmap)": lambda f: jax.grad(summed(jax.vmap(f, (0, None))), (0, 1)),
    "jit(vmap(grad))": lambda f: jax.jit(jax.vmap(jax.grad(summed(f), (0, 1)), (0, None))),
    "nested vmap": lambda f: nested(jax.grad(summed(f), (0, 1))),
    "jacrev": lambda f: jax.jacrev(f, (0, 1)),
    "grad(checkpoint)": lambda f: jax.grad(jax.checkpoint(summed(f)), (0, 1)),
    "jit(grad(scan))": lambda f: jax.jit(jax.grad(scanned(f), (0, 1))),
}

FORWARD = {
    "jvp": lambda f: lambda x, y: jax.jvp(f, (x, y), (jnp.cos(x), jnp.sin(y))),
    "jit(jvp)": lambda f: jax.jit(lambda x, y: jax.jvp(f, (x, y), (jnp.cos(x), jnp.sin(y)))),
    "linearize": lambda f: lambda x, y: jax.linearize(f, x, y)[1](jnp.cos(x), jnp.sin(y)),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1)),
    "vmap(jvp)": lambda f: lambda x, y: jax.vmap(lambda t: jax.jvp(f, (x, y), (t, y))[1])(jnp.stack([x, -x, 2 * x])),
    "jvp(scan)": lambda f: lambda x, y: jax.jvp(scanned(f), (x, y), (x, y)),
}

SECOND = {
    "forward over reverse": jax.hessian,
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "reverse over forward": lambda f: jax.jit(jax.jacrev(jax.jit(jax.jacfwd(f)))),
}


def assert_like(found, expected):
    """Assert that trees of arrays agree, in their dtypes too."""
    for ours, native in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (ours.shape, ours.dtype) == (native.shape, native.dtype)
        np.testing.assert_allclose(ours, native, rtol=3e-4, atol=3e-4)


REVERSE_CASES = [
    *((rules, transform) for rules in ("jac", "vjp", "jvp and vjp") for transform in REVERSE),
    *((rules, "jit(vmap(grad))") for rules in ("jac and vjp", "jac and jvp", "complex-step", "finite-difference")),
]

FORWARD_CASES = [
    *((rules, transform) for rules in ("jac", "jvp") for transform in FORWARD),
    *((rules, "jit(jvp)") for rules in RULES if rules not in ("jac", "jvp", "vjp")),
]


@pytest.mark.parametrize(("rules", "transform"), REVERSE_CASES)
def test_reverse_mode_gives_what_native_jax_gives(rules, transform):
    assert_like(REVERSE[transform](power_with(**RULES[rules]))(X, Y), natively(transform))


@pytest.mark.parametrize(("rules", "transform"), FORWARD_CASES)
def test_forward_mode_gives_what_native_jax_gives(rules, transform):
    assert_like(FORWARD[transform](power_with(**RULES[rules]))(X, Y), natively(transform))


@cache
def natively(transform):
    return jax.jit((REVERSE | FORWARD)[transform](native_power))(X, Y)


@pytest.mark.parametrize("f", second_order(), ids=["jac", "vjp and jvp"])
@pytest.mark.parametrize("transform", SECOND)
def test_second_derivatives_come_from_the_rules_of_rules(f, transform):
    loss = lambda g: lambda x: jnp.sin(g(x, x[1] * Y)).sum()
    assert_like(jax.jit(SECOND[transform](loss(f)))(X), jax.jit(jax.hessian(loss(native_power)))(X))


def test_eager_second_derivative():
    loss = lambda g: lambda y: (g(X, y) ** 2).sum()
    assert_like(jax.hessian(loss(second_order()[1]))(Y), jax.hessian(loss(native_power))(Y))


def test_gradients_agree_with_finite_differences_of_jax():
    f = jax.jit(jax.vmap(second_order()[1], (0, None)))
    with jax.enable_x64(True):
        check_grads(f, (jnp.asarray(X, "f8"), jnp.asarray(Y, "f8")), order=2)


def test_second_derivative_of_a_scan():
    if jax.__version_info__ < (0, 12):
        pytest.skip("JAX 0.10 drops custom rules where it moves what is constant out of a scan")
    assert_like(jax.hessian(scanned(second_order()[1]), 1)(X, Y), jax.hessian(scanned(native_power), 1)(X, Y))


# How often kernels run, and with what


@pytest.mark.parametrize(("kind", "rule"), [("jac", power_jac), ("vjp", power_vjp)])
def test_only_the_derivative_kernel_runs_in_a_jitted_gradient(kind, rule):
    primal, derivative = Recorder(power), Recorder(rule)
    f = au.gufunc("(n),(n)->()", output_dtypes=float, **{kind: derivative})(primal)
    step = jax.jit(jax.vmap(jax.grad(f, (0, 1)), (0, None)))
    assert_like(step(X, Y), jax.vmap(jax.grad(native_power, (0, 1)), (0, None))(X, Y))
    assert primal.shapes == []
    assert derivative.shapes == [((2, 3), (1, 3), *([(1,)] if kind == "vjp" else []))]  # all cotangents are 1


def test_rows_of_a_jacobian_come_from_one_call():
    vjp, jvp = Recorder(power_vjp), Recorder(power_jvp)
    f = power_with(vjp=vjp, jvp=jvp)
    jax.jit(jax.jacrev(f))(X, Y)
    jax.jit(jax.jacfwd(f))(X, Y)
    assert vjp.shapes == [((1, 2, 3), (1, 1, 3), (2, 2))]
    assert jvp.shapes == [((1, 2, 3), (1, 1, 3), (6, 2, 3), (1, 1, 3))]


def test_an_eager_gradient_is_compiled_once():
    f = power_with(**RULES["vjp"])
    gradient = jax.grad(summed(f))
    gradient(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("applyufunc._lowering._jax._callback._stage", None)  # what is traced anew would call it
        gradient(X, Y)


def test_numeric_derivative_calls_the_kernel_for_the_arguments_that_are_asked_for():
    primal = Recorder(power)
    f = au.gufunc("(n),(n)->()", output_dtypes=float, jac="complex-step")(primal)
    jax.jit(jax.grad(lambda y: f(X, y).sum()))(Y)
    assert primal.shapes == [((1, 2, 3), (3, 1, 3))]


def test_rules_are_unused_where_nobody_differentiates():
    f = power_with(jac=None, vjp=Recorder(power_vjp))
    np.testing.assert_allclose(f(X, Y), power(X, Y))
    np.testing.assert_allclose(jax.jit(f)(X, Y), power(X, Y))
    assert f.with_options(vjp=None)(X, Y).shape == (2,)
    da = pytest.importorskip("dask.array")
    np.testing.assert_allclose(f(da.from_array(X), Y).compute(scheduler="sync"), power(X, Y))


# Loop dims


@st.composite
def loop_shapes(draw):
    whole = draw(st.lists(st.integers(0, 3), max_size=3))
    shapes = []
    for _ in range(2):
        own = [size if draw(st.booleans()) else 1 for size in whole]
        shapes.append(tuple(own[draw(st.integers(0, len(own))) :]))
    return shapes, draw(st.integers(0, 3))


@settings(max_examples=10)
@given(loop_shapes(), st.sampled_from(["jac", "vjp"]))
def test_cotangents_are_summed_over_what_was_broadcast(shapes, rules):
    (loop_x, loop_y), n = shapes
    x, y = (np.linspace(0.5, 1.5, int(np.prod(loop)) * n, dtype="f4").reshape(*loop, n) for loop in (loop_x, loop_y))
    f = power_with(**RULES[rules])
    assert_like(*(jax.jit(jax.grad(summed(g), (0, 1)))(x, y) for g in (f, native_power)))


def test_kernel_of_one_item_has_rules_of_one_item():
    vjp = Recorder(lambda x, y, ct: (2 * x * y * ct, x**2 * ct))
    f = au.gufunc("(n),(n)->()", output_dtypes=float, vectorize=True, vjp=vjp)(lambda x, y: float(x**2 @ y))
    assert_like(jax.jit(jax.grad(summed(f), (0, 1)))(X, Y), jax.grad(summed(native_power), (0, 1))(X, Y))
    assert vjp.shapes == [((3,), (3,), ())] * 2
    numeric = f.with_options(vjp=None, jac="finite-difference")
    assert_like(jax.grad(summed(numeric), (0, 1))(X, Y), jax.grad(summed(native_power), (0, 1))(X, Y))


def test_gradient_inside_shard_map_is_summed_over_the_shards():
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import PartitionSpec as P
        from applyufunc._lowering._jax._unbroadcast import unbroadcast

        mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

        def pulled(cotangent, weight, local):
            return unbroadcast(cotangent, jax.typeof(weight)), unbroadcast(jnp.ones(2), jax.typeof(local))

        cotangent = jnp.arange(24.0).reshape(4, 2, 3)
        shared, own = jax.shard_map(
            pulled, mesh=mesh, in_specs=(P("d"), P(), P("d")), out_specs=(P(), P("d"))
        )(cotangent, jnp.ones(3), jnp.ones(4))
        np.testing.assert_array_equal(shared, cotangent.sum((0, 1)))
        assert own.shape == (4,)
        print("done")
    """
    assert run(program, devices=2) == ["done"]


# Arguments and outputs that have no derivative


def take(x, i, scale):
    return np.take_along_axis(x, i[..., None], axis=-1)[..., 0] * scale


def take_vjp(x, i, scale, ct):
    gradient = np.zeros(np.broadcast_shapes(x.shape, (*ct.shape, 1)))
    np.put_along_axis(gradient, np.broadcast_to(i, ct.shape)[..., None], (ct * scale)[..., None], axis=-1)
    return gradient, None, None


def test_whole_numbers_and_python_scalars_need_no_rule():
    f = au.gufunc("(n),(),()->()", output_dtypes=float, vjp=take_vjp)(take)
    i = np.array([2, 0], "i4")
    expected = [[0, 0, 3], [3, 0, 0]]
    for differentiate in (jax.grad, lambda g: jax.jit(jax.grad(g))):
        np.testing.assert_array_equal(differentiate(lambda x: f(x, i, 3.0).sum())(X), expected)
        np.testing.assert_array_equal(differentiate(lambda x: f(x, i, 3).sum())(X), expected)
    np.testing.assert_array_equal(jax.grad(lambda x, i: f(x, i, 3.0).sum())(X, i), expected)


def test_tangents_of_what_is_held_fixed_are_zeros():
    seen = []

    def jvp(x, i, scale, offset, dx, di, dscale, doffset):
        seen.append((di.dtype.kind, di.tolist(), dscale, doffset))
        return dx * scale + di

    f = au.gufunc("(),(),(),()->()", output_dtypes=float, jvp=jvp)(lambda x, i, scale, offset: x * scale + i)
    _, tangent = jax.jvp(lambda x: f(x, np.arange(2), 2.0, None), (Y[:2],), (Y[:2],))
    np.testing.assert_array_equal(tangent, 2 * Y[:2])
    assert seen == [("f", [0], 0.0, None)]


def test_absent_argument_has_no_derivative():
    def vjp(x, weights, ct):
        assert weights is None
        return np.broadcast_to(ct[..., None], x.shape), "not looked at"

    f = au.gufunc("(n),(n)->()", output_dtypes=float, vjp=vjp)(lambda x, weights: x.sum(axis=-1))
    np.testing.assert_array_equal(jax.grad(lambda x: f(x, None).sum())(X), np.ones((2, 3)))


def test_what_is_stopped_is_not_differentiated():
    f = power_with(vjp=lambda x, y, ct: (2 * x * y * ct[..., None], np.full(x.shape, np.nan)))
    for x in (X, jnp.asarray(X)):
        gradient = jax.grad(lambda x: f(x, jax.lax.stop_gradient(x)).sum())(x)
        np.testing.assert_allclose(gradient, 2 * X * X)


def test_what_jax_knows_while_it_differentiates_is_an_array_of_jax():
    f = au.gufunc("()->()")(np.sin)
    found = []

    def loss(x, y):
        found.extend((f(jax.lax.stop_gradient(x)), f(jax.lax.stop_gradient(y))))
        return x * found[0] + (y * found[1]).sum()

    by_x, by_y = jax.grad(loss, (0, 1))(2.0, Y)
    assert [isinstance(array, jax.Array) and array.dtype for array in found] == ["float32"] * 2
    np.testing.assert_allclose(by_x, np.sin(2.0), rtol=1e-6)
    np.testing.assert_allclose(by_y, np.sin(Y), rtol=1e-6)


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.float64(2), jnp.float32(2)])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_numbers_are_differentiated(number, wrap):
    f = au.gufunc("(),()->()", output_dtypes=float, jac=lambda x, y: (y, x))(np.multiply)
    by_x, by_y = jax.grad(wrap(f), (0, 1))(number, 3.0)
    assert (float(by_x), float(by_y)) == (3, 2)
    assert float(jax.grad(wrap(lambda x: f(x, 3.0)))(number)) == 3
    assert float(jax.jvp(wrap(f), (2.0, 3.0), (1.0, 0.0))[1]) == 3


def spread(x):
    return x.min(axis=-1), x * 2, x.argmax(axis=-1)


def spread_vjp(x, low, double, place):
    gradient = 2 * double
    np.put_along_axis(gradient, x.argmin(axis=-1)[..., None], low[..., None], axis=-1)
    return gradient


@pytest.mark.parametrize(
    "loss",
    [
        lambda low, double, place: (low**2).sum(),
        lambda low, double, place: (double[:, 1:] ** 2).sum(),
        lambda low, double, place: (low * double[:, 2]).sum() + place.sum(),
    ],
)
def test_outputs_that_are_unused_have_zero_cotangents(loss):
    def vjp(x, low, double, place):
        assert (low.shape[-1:], double.shape[-1]) == ((2,), 3)
        assert not place.any()
        is_lowest = x == x.min(axis=-1, keepdims=True)
        return 2 * double + is_lowest * low[..., None]

    f = au.gufunc("(n)->(),(n),()", output_dtypes=(float, float, int), vjp=vjp)(spread)
    native = lambda x: (x.min(-1), x * 2, x.argmax(-1))
    for differentiate in (jax.grad, lambda g: jax.jit(jax.grad(g))):
        found = differentiate(lambda x: loss(*f(x)))(X)
        assert_like(found, jax.grad(lambda x: loss(*native(x)))(X))


def test_jac_of_several_outputs_stands_in_the_order_of_outputs_then_arguments():
    def jac(x, m):
        eye = np.eye(x.shape[-1])
        by_x = np.broadcast_to(2 * eye, (*x.shape, x.shape[-1]))
        return m[..., 0, :], x[..., None, :] * np.eye(1), by_x, None

    f = au.gufunc("(n),(1,n)->(),(n)", output_dtypes=float, jac=jac)(lambda x, m: ((x * m[..., 0, :]).sum(-1), 2 * x))
    native = lambda x, m: ((x * m[..., 0, :]).sum(-1), 2 * x)
    m = np.arange(3.0, dtype="f4")[None]
    for differentiate in (jax.jacfwd, jax.jacrev):
        assert_like(*(jax.jit(differentiate(g, (0, 1)))(X, m) for g in (f, native)))


def test_returned_none_is_zero():
    for rules in ({"vjp": lambda x, y, ct: (None, None)}, {"jac": lambda x, y: [None, None]}):
        for vectorize in (False, True):
            f = power_with(vectorize=vectorize, **rules)
            np.testing.assert_array_equal(jax.grad(lambda x, f=f: f(x, Y).sum())(X), np.zeros((2, 3)))
    f = power_with(jvp=lambda x, y, dx, dy: None)
    np.testing.assert_array_equal(jax.jvp(lambda x: f(x, Y), (X,), (X,))[1], [0, 0])


# Signatures


def test_derivatives_are_by_arrays_whose_axes_were_moved():
    f = au.gufunc("(m,n)->(m)", output_dtypes=float, vjp=lambda x, ct: 2 * x * ct[..., None])(lambda x: (x**2).sum(-1))
    x = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    ours = lambda x: jnp.sin(f(x, axes=[(1, 0), (0,)])).sum()
    native = lambda x: jnp.sin((x**2).sum(0)).sum()
    assert_like(jax.jit(jax.grad(ours))(x), jax.jit(jax.grad(native))(x))
    kept = power_with(vjp=power_vjp)
    assert_like(
        jax.grad(lambda x: (kept(x, Y, keepdims=True) * x).sum())(X),
        jax.grad(lambda x: ((x**2 * Y).sum(-1, keepdims=True) * x).sum())(X),
    )


@pytest.mark.parametrize(("shape_a", "shape_b"), [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,))])
def test_optional_dims_are_there_for_a_rule_as_for_the_kernel(shape_a, shape_b):
    def vjp(a, b, ct):
        return ct @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ ct

    f = au.gufunc("(m?,n),(n,p?)->(m?,p?)", output_dtypes=float, vjp=vjp)(lambda a, b: a @ b)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=shape_a).astype("f4"), rng.normal(size=shape_b).astype("f4")
    loss = lambda g: lambda a, b: jnp.sin(g(a, b)).sum()
    assert_like(*(jax.jit(jax.grad(loss(g), (0, 1)))(a, b) for g in (f, jnp.matmul)))


def convolve_vjp(x, y, ct):
    return np.correlate(ct, y, "valid"), np.correlate(ct, x, "valid")


def test_cotangents_have_the_sizes_of_computed_outputs():
    f = au.gufunc("(m),(n)->(m+n-1)", output_dtypes=float, vectorize=True, vjp=convolve_vjp)(np.convolve)
    x, y = np.arange(1.0, 5, dtype="f4"), np.array([1.0, -1, 2], "f4")
    loss = lambda g: lambda x, y: jnp.sin(g(x, y)).sum()
    assert_like(*(jax.jit(jax.grad(loss(g), (0, 1)))(x, y) for g in (f, jnp.convolve)))
    numeric = f.with_options(vjp=None, jac="complex-step")
    assert_like(*(jax.jit(jax.jacfwd(g, (0, 1)))(x, y) for g in (numeric, jnp.convolve)))


@pytest.mark.parametrize(
    ("rules", "size"),
    [
        ({"vjp": lambda x, ct: np.repeat(ct, 2, axis=-1)}, 2),
        ({"jac": lambda x: np.broadcast_to(np.repeat(np.eye(2), 2, -1), (*x.shape[:-1], 2, 4))}, 2),
        ({"jvp": lambda x, dx: dx[..., ::2] + dx[..., 1::2]}, au.UpTo(2)),
        ({"jac": lambda x: np.broadcast_to(np.repeat(np.eye(2), 2, -1), (*x.shape[:-1], 2, 4))}, lambda sizes: 2),
        ({"jac": "finite-difference"}, au.UpTo(2, fill_value=7)),
    ],
)
@pytest.mark.parametrize("label", ["n", "k"])
def test_dims_that_an_output_resizes_are_others_in_a_rule(rules, size, label):
    f = au.gufunc(f"(n)->({label})", output_dtypes=float, output_sizes={label: size}, **rules)(
        lambda x: x[..., ::2] + x[..., 1::2]
    )
    native = lambda x: x[..., ::2] + x[..., 1::2]
    x = np.arange(8.0, dtype="f4").reshape(2, 4)
    differentiate = jax.jacrev if "vjp" in rules else jax.jacfwd
    assert_like(*(jax.jit(differentiate(g))(x) for g in (f, native)))


def test_padding_of_an_output_has_no_derivative():
    f = au.gufunc("(n)->(k)", output_dtypes=float, output_sizes={"k": au.UpTo(4, fill_value=9)})
    halves = f(lambda x: x[..., ::2] * 2)
    halves.jac(lambda x: np.broadcast_to(np.eye(x.shape[-1])[::2] * 2, (*x.shape[:-1], 2, 3)))
    expected = [[2, 0, 0], [0, 0, 2], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(jax.jacfwd(halves)(Y), expected)


@pytest.mark.parametrize("rules", [{"vjp": lambda x, y, ct: (y * ct, x * ct)}, {"jac": "complex-step"}])
def test_cotangents_are_summed_over_core_dims_that_stretch(rules):
    if "jac" not in rules:
        f = au.gufunc("(n|1),(n|1)->(n)", output_dtypes=float, **rules)(np.multiply)
    else:
        f = au.gufunc("(n|1),(n|1)->(n)", output_dtypes=float, **rules)(lambda x, y: x * y)
    one = np.array([3.0], "f4")
    for pair in ((X, one), (one, X), (one, one)):
        loss = lambda g: lambda x, y: jnp.sin(g(x, y)).sum()
        assert_like(*(jax.jit(jax.grad(loss(g), (0, 1)))(*pair) for g in (f, jnp.multiply)))


@pytest.mark.parametrize(
    ("signature", "sizes", "expected"),
    [
        ("(),()->()", {}, ("(),()->(),()", "(),(),()->(),()", "(),(),(),()->()")),
        ("(m,n),(n)->(m)", {}, ("(m,n),(n)->(m,m,n),(m,n)", "(m,n),(n),(m)->(m,n),(n)", "(m,n),(n),(m,n),(n)->(m)")),
        ("(n)->(),(n)", {}, ("(n)->(n),(n,n)", "(n),(),(n)->(n)", "(n),(n)->(),(n)")),
        ("(n)->(n)", {"n": 2}, ("(n)->(n_out,n)", "(n),(n_out)->(n)", "(n),(n)->(n)")),
        ("(n)->(n-1)", {}, ("(n)->(n-1,n)", "(n),(out)->(n)", "(n),(n)->(n-1)")),
        ("(n|1),(3)->(k)", {"k": 2}, ("(n|1),(3)->(k,n),(k,3)", "(n|1),(3),(k)->(n),(3)", "(n|1),(3),(n|1),(3)->(k)")),
        ("(m?,n)->(m?)", {}, ("(m?,n)->(m?,m?,n)", "(m?,n),(m?)->(m?,n)", "(m?,n),(m?,n)->(m?)")),
    ],
)
def test_signatures_of_rules_follow_from_the_kernels(signature, sizes, expected):
    f = au.gufunc(signature, output_sizes=sizes)(power)
    assert tuple(str(getattr(f, kind)(power).signature) for kind in ("jac", "vjp", "jvp")) == expected


# Dtypes


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("rules", ["jac", "vjp", "finite-difference"])
def test_derivatives_have_the_dtype_of_the_argument(dtype, rules):
    f = au.gufunc("(n),(n)->()", output_dtypes=lambda x, y: x, **RULES[rules])(power)
    x, y = jnp.asarray(X[0], dtype), jnp.asarray(Y, dtype)
    for differentiate in (jax.grad, lambda g: jax.jit(jax.grad(g))):
        found = differentiate(f)(x, y)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype("f4"), (2 * X[0] * Y), rtol=1e-2)


def test_argument_and_output_of_different_widths():
    f = au.gufunc("()->()", output_dtypes="f4", jac=lambda x: 2 * x)(lambda x: x.astype("f4") ** 2)
    found = jax.grad(f)(jnp.float16(3))
    assert (float(found), found.dtype) == (6, "float16")


COMPLEX_RULES = [
    {"jac": lambda z, w: (2 * z * w, z**2)},
    {"vjp": lambda z, w, ct: (2 * z * w * ct, z**2 * ct), "jvp": lambda z, w, dz, dw: 2 * z * w * dz + z**2 * dw},
]


@pytest.mark.parametrize("rules", COMPLEX_RULES)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
def test_holomorphic_kernels_follow_the_conventions_of_jax(rules, transform):
    f = transform(au.gufunc("(),()->()", output_dtypes=complex, **rules)(lambda z, w: z**2 * w))
    native = lambda z, w: z**2 * w
    z, w = jnp.array([1 + 2j, 3 - 1j]), jnp.array([0.5j, 2.0])
    loss = lambda g: lambda z, w: jnp.sum(jnp.abs(g(z, w)) ** 2)
    assert_like(*(jax.jit(jax.grad(loss(g), (0, 1)))(z, w) for g in (f, native)))
    assert_like(*(jax.jit(lambda z, w, g=g: jax.jvp(g, (z, w), (w, z)))(z, w) for g in (f, native)))
    with jax.enable_x64(True):
        check_grads(f, (jnp.asarray(z, "c16"), jnp.asarray(w, "c16")), order=1)


def test_real_output_of_a_complex_argument_has_the_gradient_that_jax_gives():
    f = au.gufunc("()->()", output_dtypes=float, jac=lambda z: 2 * z.conj())(lambda z: (z * z.conj()).real)
    native = lambda z: (z * z.conj()).real
    z = jnp.array([1 + 2j, 3 - 1j])
    assert_like(jax.grad(lambda z: f(z).sum())(z), jax.grad(lambda z: native(z).sum())(z))
    assert_like(jax.jvp(f, (z,), (1j * z + 1,)), jax.jvp(native, (z,), (1j * z + 1,)))


def test_complex_output_of_a_real_argument():
    f = au.gufunc("()->()", output_dtypes=complex, jac=lambda t: 1j * np.exp(1j * t))(lambda t: np.exp(1j * t))
    t = jnp.array([0.3, 2.0])
    native = lambda t: jnp.exp(1j * t)
    loss = lambda g: lambda t: (g(t) * (1 + 2j)).imag.sum()
    assert_like(jax.grad(loss(f))(t), jax.grad(loss(native))(t))
    numeric = f.with_options(jac="finite-difference")
    assert_like(jax.grad(loss(numeric))(t), jax.grad(loss(native))(t))


# Numeric derivatives


def test_numeric_derivatives_are_computed_in_double_precision_without_x64():
    f = au.gufunc("()->()", output_dtypes=float)(lambda x: np.exp(x) / np.sqrt(1 + x**2))
    x = jnp.float32(1.25)
    expected = jax.grad(lambda x: jnp.exp(x) / jnp.sqrt(1 + x**2))(x)
    for step in ("complex-step", "finite-difference"):
        found = jax.grad(f.with_options(jac=step))(x)
        assert found.dtype == "float32"
        np.testing.assert_allclose(found, expected, rtol=3e-7)


def test_complex_step_is_exact_in_double_precision():
    with jax.enable_x64(True):
        f = au.gufunc("()->()", output_dtypes=float, jac="complex-step")(lambda x: np.sin(x) * np.exp(x))
        x = jnp.linspace(-2, 2, 7)
        expected = np.exp(x) * (np.sin(x) + np.cos(x))
        np.testing.assert_allclose(jax.vmap(jax.grad(f))(x), expected, rtol=1e-14)


def test_numeric_derivative_takes_large_arguments_in_slices(monkeypatch):
    monkeypatch.setattr("applyufunc._numeric_derivatives._BYTES", 100)  # of float64: two directions of (2, 3) at once
    primal = Recorder(lambda x: np.cumsum(x, axis=-1))
    f = au.gufunc("(n)->(n)", output_dtypes=float, jac="complex-step")(primal)
    assert_like(jax.jacfwd(f)(X), jax.jacfwd(lambda x: jnp.cumsum(x, -1))(X))
    assert primal.shapes[-2:] == [((2, 2, 3),), ((1, 2, 3),)]


def test_complex_step_refuses_a_kernel_that_loses_the_imaginary_part():
    f = au.gufunc("()->()", output_dtypes=float, jac="complex-step")(np.abs)
    refused = r"complex-step: .* no complex output .* argument 0.*finite-difference"
    with pytest.raises(au.OutputDTypeError, match=refused), au.reraise():
        jax.block_until_ready(jax.jit(jax.grad(f))(1.0))


@pytest.mark.parametrize(
    ("step", "output", "z", "named"),
    [
        ("complex-step", complex, 1.0, "an output"),
        ("complex-step", float, 1j, r"argument\(s\) 0"),
        ("finite-difference", float, 1j, r"argument\(s\) 0"),
    ],
)
def test_numeric_derivatives_are_for_real_numbers(step, output, z, named):
    f = au.gufunc("()->()", output_dtypes=output, jac=step)(np.abs)
    refused = rf"kernel 'absolute' .* jac='{step}', which is for real numbers, but {named} is complex"
    with pytest.raises(au.ArgumentError, match=refused):
        jax.jvp(f, (z,), (z,))


def test_numeric_derivative_of_a_reduction():
    f = au.gufunc("(n),(n)->()", output_dtypes=float, core_chunks=np.add, jac="complex-step")(power)
    assert_like(jax.grad(summed(f), (0, 1))(X, Y), jax.grad(summed(native_power), (0, 1))(X, Y))


# Keywords, methods, objects


def test_rules_get_the_keywords_of_the_kernel():
    f = au.gufunc("()->()", output_dtypes=float)(lambda x, *, scale, table: x * scale * table[0])
    f.vjp(lambda x, ct, *, scale, table: ct * scale * table[0])
    table = np.array([2.0, 5.0])
    for differentiated in (f, f.with_options(vjp=None, jac="complex-step")):
        g = lambda x, differentiated=differentiated: differentiated(x, scale=3, table=table)
        assert float(jax.grad(g)(1.0)) == 6
        assert float(jax.jit(jax.grad(g))(1.0)) == 6


def test_a_kernel_and_its_derivative_share_a_state_that_is_not_thread_safe():
    running = []

    def noted(result):
        running.append(1)
        time.sleep(0.01)
        assert len(running) == 1
        running.pop()
        return result

    f = au.gufunc("()->()", output_dtypes=float, thread_safe=False)(lambda x: noted(np.sin(x)))
    f.vjp(lambda x, ct: noted(np.cos(x) * ct))
    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(jax.jit(g), 0.0) for g in (f, jax.grad(f)) * 4]
        assert [float(task.result()) for task in tasks] == [0, 1] * 4


def test_vjp_may_take_the_outputs_too():
    primal = Recorder(np.exp)
    by_output = au.gufunc("(),(),()->()")(lambda x, out, ct: out * ct)
    f = au.gufunc("()->()", output_dtypes=float, vjp=by_output)(primal)
    found = jax.jit(jax.vmap(jax.grad(f)))(Y)
    np.testing.assert_allclose(found, np.exp(Y), rtol=1e-6)
    assert primal.shapes == [((3,),)]


class Spring:
    """A class whose gufuncs are methods, with rules that are methods."""

    def __init__(self, stiffness):
        self.stiffness = stiffness

    @au.gufunc("(n)->()", output_dtypes=float)
    def energy(self, x):
        return 0.5 * self.stiffness * (x**2).sum(axis=-1)

    @energy.vjp
    def energy_vjp(self, x, ct):
        return self.stiffness * x * ct[..., None]

    @energy_vjp.vjp
    def energy_vjp_vjp(self, x, ct, ct_x):
        return self.stiffness * ct_x * ct[..., None], self.stiffness * (x * ct_x).sum(axis=-1)


def test_methods_have_rules_that_are_methods():
    for stiffness in (2.0, 5.0):
        spring = Spring(stiffness)
        np.testing.assert_allclose(jax.grad(spring.energy)(Y), stiffness * Y)
        np.testing.assert_allclose(jax.jacrev(jax.grad(spring.energy))(Y), stiffness * np.eye(3))


@au.gufunc("()->()", output_dtypes=float)
def cube(x):
    return x**3


@cube.jac
def cube_jac(x):
    return 3 * x**2


def test_gufunc_objects_with_rules_pickle():
    for found in (pickle.loads(pickle.dumps(cube)), pickle.loads(pickle.dumps(cube.with_options(vectorize=True)))):
        assert float(jax.grad(found)(2.0)) == 12
    assert pickle.loads(pickle.dumps(cube_jac)) is cube_jac


def test_rules_of_one_kernel_are_told_apart():
    for factor in (1.0, 2.0):
        f = au.gufunc("()->()", output_dtypes=float, kernel_token="same")(np.sin)
        assert float(jax.grad(f.with_options(jac=lambda x, factor=factor: factor * x))(3.0)) == 3 * factor
        f.jac(lambda x, factor=factor: -factor * x)
        assert float(jax.grad(f)(3.0)) == -3 * factor


def test_a_rule_that_is_declared_late_holds_from_then_on():
    f = au.gufunc("()->()", output_dtypes=float)(np.sin)
    with pytest.raises(au.ArgumentError, match="has no derivative"):
        jax.grad(f)(0.0)
    slope = f.jac(np.cos)
    assert float(jax.grad(f)(0.0)) == 1
    with pytest.raises(au.ArgumentError, match="has no derivative"):
        jax.grad(jax.grad(f))(0.5)
    slope.jac(lambda x: -np.sin(x))
    np.testing.assert_allclose(jax.grad(jax.grad(f))(0.5), -np.sin(0.5), rtol=1e-6)


def test_a_declaration_that_does_not_fit_leaves_the_object_as_it_was():
    f = au.gufunc("()->()", output_dtypes=float, jac=np.cos)(np.sin)
    with pytest.raises(au.OptionError, match=r"jac is a gufunc object with signature '\(n\)->\(\)'"):
        f.jac(au.gufunc("(n)->()")(np.sum))
    assert float(jax.grad(f)(0.0)) == 1


def test_ufuncs_may_be_rules():
    for differentiate in (jax.grad, lambda g: jax.jit(jax.grad(g))):
        slope = differentiate(lambda x: au.apply_ufunc(np.sin, None, x, jac=np.cos, output_dtypes=float))(0.5)
        np.testing.assert_allclose(slope, np.cos(0.5), rtol=1e-6)


def test_kernel_that_gives_a_running_sum_has_the_reversed_one_for_a_gradient():
    f = au.gufunc("(n)->(n)", output_dtypes=float)(lambda v: np.cumsum(v, axis=-1))
    f.vjp(lambda v, ct: np.cumsum(ct[..., ::-1], axis=-1)[..., ::-1])
    np.testing.assert_array_equal(jax.grad(lambda v: f(v).sum())(np.arange(3.0, dtype="f4")), [3, 2, 1])


# Refusals


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap, jax.checkpoint])
def test_forward_mode_is_refused_where_there_is_a_vjp_alone(transform):
    f = transform(power_with(vjp=power_vjp))
    refused = r"kernel 'power' with signature '\(n\),\(n\)->\(\)' .* a vjp alone, .* forward mode .* argument\(s\) 1:"
    with pytest.raises(au.ArgumentError, match=refused):
        jax.jvp(lambda y: f(X, y), (X,), (X,))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap, jax.checkpoint])
def test_reverse_mode_is_refused_where_there_is_a_jvp_alone(transform):
    f = transform(power_with(jvp=power_jvp))
    refused = (
        r"kernel 'power' with signature '\(n\),\(n\)->\(\)' .* a jvp alone, .* reverse mode .* argument\(s\) 0, 1:"
    )
    with pytest.raises(au.ArgumentError, match=refused):
        jax.grad(lambda x, y: f(x, y).sum(), (0, 1))(X, X)


def test_second_derivative_is_refused_by_the_name_of_the_rule():
    for f, name in ((power_with(jac=power_jac), "power: jac"), (power_with(vjp=power_vjp), "power: vjp")):
        with pytest.raises(au.ArgumentError, match=rf"kernel '{name}' with signature .* has no derivative, .*jac="):
            jax.jacrev(jax.grad(summed(f)))(X, Y)


@pytest.mark.parametrize(
    ("rules", "error", "words"),
    [
        (
            {"vjp": lambda x, y, ct: x},
            au.OutputShapeError,
            "returned a ndarray, expected a tuple of 2",
        ),
        ({"vjp": lambda x, y, ct: (x,) * 3}, au.OutputShapeError, "returned a tuple of 3, expected a tuple of 2"),
        ({"vjp": lambda x, y, ct: (ct, y)}, au.OutputShapeError, r"output 0: kernel returned shape \(2,\)"),
        ({"vjp": lambda x, y, ct: (x * 1j, y)}, au.OutputDTypeError, "output 0: kernel returned complex"),
        ({"jac": lambda x, y: (x[..., None], y)}, au.OutputShapeError, r"expected \(2, 3\)"),
        ({"vjp": lambda x, y, ct: {}["x"]}, KeyError, "x"),
    ],
)
def test_what_a_rule_returns_is_checked_by_the_name_of_the_rule(rules, error, words):
    (kind,) = rules
    gradient = jax.jit(jax.grad(summed(power_with(**rules))))
    with pytest.raises(error, match=words) as caught, au.reraise():
        jax.block_until_ready(gradient(X, Y))
    assert any(f"in kernel 'power: {kind}' with signature" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("rule", "words", "signature"),
    [
        ({"vjp": lambda x, y, ct: (x, ct)}, "output 1: kernel returned shape", "(n),(n),()->(n),(n)"),
        ({"jac": lambda x, y: (x, 1j * y)}, "output 1: kernel returned complex", "(n),(n)->(n),(n)"),
        ({"vjp": lambda x, y, ct: x}, "one array per output of '(n),(n),()->(n),(n)'", "(n),(n),()->(n),(n)"),
    ],
)
def test_outputs_of_a_rule_are_counted_as_it_returns_them_where_few_are_wanted(rule, words, signature):
    with pytest.raises(au.ApplyUfuncError) as caught:
        jax.grad(summed(power_with(**rule)), 1)(X, Y)
    assert words in str(caught.value)
    assert f"with signature {signature!r}, called" in caught.value.__notes__[0]


def test_complex_step_says_of_a_kernel_of_real_numbers_what_is_for_it():
    def rounded(x):
        return np.floor(x)  # which NumPy does not have for complex numbers

    f = au.gufunc("()->()", output_dtypes=float, jac="complex-step")(rounded)
    with pytest.raises(TypeError) as caught:
        jax.grad(f)(1.0)
    assert any("jac='finite-difference'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"jac": "complex"}, "jac takes a kernel or 'complex-step' or 'finite-difference', got 'complex'"),
        ({"vjp": "complex-step"}, "vjp takes a kernel, got 'complex-step'"),
        ({"jvp": 3}, "jvp takes a kernel, got 3"),
        ({"jac": "complex-step", "kernel_arrays": "same"}, "takes kernel_arrays='numpy'"),
        (
            {"vjp": au.gufunc("(n),(n)->(n)")(power)},
            r"signature .*, expected one such as '\(n\),\(n\),\(\)->\(n\),\(n\)' or '\(n\),\(n\),\(\),\(\)->",
        ),
        ({"jvp": au.gufunc("(n),(n),(n),(n)->()", axis=0)(power)}, "with axes, axis or keepdims bound"),
    ],
)
def test_rules_that_no_call_could_use_are_refused(options, words):
    with pytest.raises(au.OptionError, match=words):
        power_with(**options)
    with pytest.raises(au.OptionError, match=words):
        au.apply_ufunc(power, "(n),(n)->()", X, Y, **options)
    with pytest.raises(au.OptionError, match=words):
        power_with().with_options(**options)


@pytest.mark.parametrize("step", ["complex-step", "finite-difference"])
def test_second_derivatives_of_a_numeric_one_are_refused_with_the_cure(step):
    squares = au.gufunc("(n)->()", output_dtypes="f4", jac=step)(lambda x: (x**2).sum(-1))
    with pytest.raises(TypeError, match=f"found by jac='{step}', which gives first derivatives alone"):
        jax.hessian(squares)(jnp.ones(3, "f4"))
