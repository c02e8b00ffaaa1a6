"""PyTorch: autograd and ``torch.func`` by derivative kernels, checked against the same functions of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from derivative_kernels import RULES, Recorder, native_power, power, power_jac, power_vjp, power_with, second_order

import applyufunc as au

torch = pytest.importorskip("torch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402  # after it is known that there is PyTorch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

# What PyTorch itself uses when it first differentiates forward.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.*is deprecated:DeprecationWarning")

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
Y = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def double(**rules):
    """Return the kernel with its outputs in the dtype that PyTorch's own checks ask for."""
    return power_with(**rules).with_options(output_dtypes="f8")


def summed(f):
    return lambda x, y: torch.sin(f(x, y)).sum()


def backward(f):
    def gradients(x, y):
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        summed(f)(x, y).backward()
        return x.grad, y.grad

    return gradients


REVERSE = {
    "backward": backward,
    "grad": lambda f: grad(summed(f), (0, 1)),
    "vjp": lambda f: lambda x, y: vjp(f, x, y)[1](torch.cos(x[:, 0])),
    "vmap(grad)": lambda f: vmap(grad(summed(f), (0, 1)), (0, None)),
    "grad(vmap)": lambda f: grad(summed(vmap(f, (0, None))), (0, 1)),
    "jacrev": lambda f: jacrev(f, (0, 1)),
}

FORWARD = {
    "jvp": lambda f: lambda x, y: jvp(f, (x, y), (torch.cos(x), torch.sin(y))),
    "jacfwd": lambda f: jacfwd(f, (0, 1)),
    "vmap(jvp)": lambda f: lambda x, y: vmap(lambda t: jvp(f, (x, y), (t, y))[1])(torch.stack([x, -x, 2 * x])),
    "jvp of one argument": lambda f: lambda x, y: jvp(lambda x: f(x, y), (x,), (x,)),
}

SECOND = {
    "forward over reverse": hessian,
    "reverse over reverse": lambda f: jacrev(jacrev(f)),
    "forward over forward": lambda f: jacfwd(jacfwd(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
}


@pytest.mark.parametrize("transform", REVERSE)
@pytest.mark.parametrize("rules", [rules for rules in RULES if rules != "jvp"])
def test_reverse_mode_gives_what_pytorch_gives(rules, transform):
    torch.testing.assert_close(
        REVERSE[transform](double(**RULES[rules]))(X, Y), REVERSE[transform](native_power)(X, Y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("transform", FORWARD)
@pytest.mark.parametrize("rules", [rules for rules in RULES if rules != "vjp"])
def test_forward_mode_gives_what_pytorch_gives(rules, transform):
    torch.testing.assert_close(
        FORWARD[transform](double(**RULES[rules]))(X, Y), FORWARD[transform](native_power)(X, Y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("f", second_order(), ids=["jac", "vjp and jvp"])
@pytest.mark.parametrize("transform", SECOND)
def test_second_derivatives_come_from_the_rules_of_rules(f, transform):
    loss = lambda g: lambda x: torch.sin(g(x, x[1] * Y)).sum()
    own = SECOND[transform](loss(f.with_options(output_dtypes="f8")))(X)
    torch.testing.assert_close(own, hessian(loss(native_power))(X))


@pytest.mark.parametrize("rules", ["jac", "jvp and vjp", "complex-step", "finite-difference"])
def test_pytorchs_own_check_of_gradients_passes(rules):
    f, arguments = double(**RULES[rules]), (X.clone().requires_grad_(), Y.clone().requires_grad_())
    assert gradcheck(f, arguments, check_forward_ad=True, rtol=1e-4)


@pytest.mark.parametrize("f", second_order(), ids=["jac", "vjp and jvp"])
def test_pytorchs_own_check_of_second_gradients_passes(f):
    arguments = X.clone().requires_grad_(), Y.clone().requires_grad_()
    assert gradgradcheck(
        f.with_options(output_dtypes="f8"), arguments, check_fwd_over_rev=True, check_rev_over_rev=True
    )


def test_gradients_of_complex_numbers_are_pytorchs_conjugates():
    z = torch.complex(X, X.flip(1)).requires_grad_()
    w = torch.complex(Y, 2 * Y).requires_grad_()
    product = au.gufunc("(n),(n)->()", output_dtypes="c16", jac=lambda z, w: (w + 0 * z, z + 0 * w))(
        np.vecdot.__class__
    )
    product = au.gufunc("(n),(n)->()", output_dtypes="c16", jac=lambda z, w: (w + 0 * z, z + 0 * w))(
        lambda z, w: (z * w).sum(-1)
    )
    squares = au.gufunc("(n)->()", output_dtypes="f8", vjp=lambda z, c: 2 * z.conj() * c[..., None])(
        lambda z: (abs(z) ** 2).sum(-1)
    )
    assert gradcheck(product, (z, w), check_forward_ad=True)
    assert gradcheck(squares, (z,))
    (own,) = torch.autograd.grad(squares(z).sum(), z)
    torch.testing.assert_close(own, torch.autograd.grad((z.abs() ** 2).sum(), z)[0])


# How often kernels run, and with what


def test_only_the_derivative_kernel_that_is_asked_for_runs_in_backward():
    primal, derivative = Recorder(power), Recorder(power_vjp)
    f = au.gufunc("(n),(n)->()", output_dtypes="f8", vjp=derivative)(primal)
    gradients = vmap(grad(f, (0, 1)), (0, None))(X, Y)
    torch.testing.assert_close(gradients, vmap(grad(native_power, (0, 1)), (0, None))(X, Y))
    assert primal.shapes == [((2, 3), (1, 3))]
    assert derivative.shapes == [((2, 3), (1, 3), (2,))]


def test_rows_of_a_jacobian_come_from_one_call():
    vjp_kernel = Recorder(power_vjp)
    jacrev(double(vjp=vjp_kernel))(X, Y)
    assert vjp_kernel.shapes == [((1, 2, 3), (1, 1, 3), (2, 2))]


def test_numeric_derivative_calls_the_kernel_for_the_arguments_that_are_asked_for():
    primal = Recorder(power)
    f = au.gufunc("(n),(n)->()", output_dtypes="f8", jac="complex-step")(primal)
    f(X, Y.clone().requires_grad_()).sum().backward()
    assert primal.shapes == [((2, 3), (1, 3)), ((1, 2, 3), (3, 1, 3))]


# Arguments and outputs that have no derivative


def test_integer_arguments_and_outputs_need_no_rule():
    def scaled(x, n):
        return x * n, n * 2

    rules = {"vjp": lambda x, n, ct, _: (n * ct, None), "jvp": lambda x, n, dx, dn: (n * dx, None)}
    f = au.gufunc("(),()->(),()", output_dtypes=("f8", "i8"), **rules)(scaled)
    x, n = Y.clone().requires_grad_(), torch.arange(3)
    product, doubled = f(x, n)
    assert (product.requires_grad, doubled.requires_grad) == (True, False)
    product.sum().backward()
    assert x.grad.tolist() == [0, 1, 2]
    assert jvp(lambda x: f(x, n)[0], (Y,), (torch.ones_like(Y),))[1].tolist() == [0, 1, 2]


def test_a_cotangent_that_is_missing_is_zero_and_so_is_none():
    seen = []

    def both_vjp(x, c, d):
        seen.append((c.shape, d.shape))
        return (c + d[..., None]) * 1.0

    f = au.gufunc("(n)->(n),()", output_dtypes="f8", vjp=both_vjp)(lambda x: (x * 1, x.sum(-1)))
    x = X.clone().requires_grad_()
    f(x)[1].sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert seen == [((1, 3), (2,))]  # zeros have no loop dims of their own
    g = double(vjp=lambda x, y, c: (None, x**2 * c[..., None]))
    assert grad(lambda x: g(x, Y).sum())(X).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_vjp_that_asks_for_the_outputs_gets_them():
    f = au.gufunc("()->()", output_dtypes="f8")(np.exp)
    f.vjp(au.gufunc("(),(),()->()")(lambda x, y, ct: y * ct))
    torch.testing.assert_close(grad(lambda x: f(x).sum())(Y), torch.exp(Y))
    torch.testing.assert_close(hessian(lambda x: torch.exp(x).sum())(Y).diagonal(), torch.exp(Y))


def test_what_was_stretched_or_broadcast_is_summed_beside_constants():
    f = au.gufunc("(n|1),(n),()->(n)", output_dtypes="f8", vjp=lambda x, y, s, ct: (y * ct * s, x * ct * s, None))(
        lambda x, y, s: x * y * s
    )
    x, y = X[:, :1].clone().requires_grad_(), Y.clone().requires_grad_()
    f(x, y, 2).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2, 1), float(2 * Y.sum()), dtype=x.dtype))
    torch.testing.assert_close(y.grad, 2 * X[:, 0].sum().expand(3))


# Refusals by name


def test_without_a_rule_the_gradient_is_refused_where_it_is_asked_for():
    f = au.gufunc("(n),(n)->()", output_dtypes="f8")(power)
    result = f(X.clone().requires_grad_(), Y)
    torch.testing.assert_close(result.detach(), native_power(X, Y))
    message = (
        r"kernel 'power' with signature '\(n\),\(n\)->\(\)' takes numpy arrays, .* with respect to argument\(s\) 0: .*"
        r"jac=, vjp= or jvp="
    )
    with pytest.raises(TypeError, match=message):
        result.sum().backward()
    with pytest.raises(au.ArgumentError, match=message):
        jvp(lambda x: f(x, Y), (X,), (X,))


@pytest.mark.parametrize(
    ("rule", "ask", "message"),
    [
        ("vjp", lambda f: jvp(f, (X, Y), (X, Y)), "has a vjp alone, which gives no forward mode .* argument.s. 0, 1"),
        ("jvp", lambda f: grad(summed(f))(X, Y), "has a jvp alone, which gives no reverse mode .* argument.s. 0:"),
        (
            "complex-step",
            lambda f: grad(lambda x: f(x, Y).real.sum())(X + 0j),
            "for real numbers, but argument.s. 0 is",
        ),
    ],
)
def test_a_mode_that_the_rule_does_not_give_is_refused(rule, ask, message):
    f = power_with(**RULES[rule]).with_options(output_dtypes="c16" if rule == "complex-step" else "f8")
    with pytest.raises(au.ArgumentError, match=message):
        ask(f)


def test_numeric_derivative_of_a_kernel_of_tensors_is_refused():
    with pytest.raises(au.OptionError, match="takes kernel_arrays='numpy'"):
        au.gufunc("()->()", jac="complex-step", kernel_arrays="same")(torch.sin)
    with pytest.raises(au.OptionError, match="'sin' takes those of PyTorch, which differentiates it itself: drop jac"):
        au.apply_ufunc(torch.sin, "()->()", X, jac="complex-step")


def test_derivative_kernels_take_the_place_of_pytorchs_own():
    f = au.gufunc("()->()", kernel_arrays="traced", vjp=lambda x, ct: 10 * ct)(torch.sin)
    assert grad(lambda x: f(x).sum())(Y).tolist() == [10, 10, 10]
    assert vmap(grad(f))(Y).tolist() == [10, 10, 10]
    torch.testing.assert_close(f(Y), torch.sin(Y))


def test_derivative_kernel_runs_under_the_guard_and_keywords_of_its_kernel():
    f = au.gufunc("()->()", output_dtypes="f8", thread_safe=False, vjp=lambda x, ct, *, k=1: k * ct)(
        lambda x, *, k=1: k * x
    )
    assert grad(lambda x: f(x, k=3).sum())(Y).tolist() == [3, 3, 3]


def test_axes_of_the_caller_are_differentiated_too():
    f = double(jac=power_jac)
    own = backward(lambda x, y: f(x, y, axis=0, keepdims=True))(X.T, Y)
    torch.testing.assert_close(own[0], backward(native_power)(X, Y)[0].T)


def test_batches_of_the_older_kind_are_refused_with_what_to_use():
    square = au.gufunc("(n)->(n)", output_dtypes=float)(np.square)
    square.vjp(lambda x, cotangent: 2 * x * cotangent)
    x = torch.arange(3.0)
    with pytest.raises(au.ArgumentError, match=r"vectorize=True, shows no values.*use torch\.func \(vmap, jacrev"):
        torch.autograd.functional.jacobian(square, x, vectorize=True)
    assert torch.equal(torch.func.jacrev(square)(x), torch.diag(2 * x))
