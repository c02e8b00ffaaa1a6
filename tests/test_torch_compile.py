"""PyTorch: calls inside ``torch.compile``, in one graph, for every size, with gradients, and refused by name."""

from __future__ import annotations

import fresh_process
import numpy as np
import pytest
from derivative_kernels import Recorder, native_power, power, power_vjp

import applyufunc as au

torch = pytest.importorskip("torch")

from torch.func import grad, jacfwd, jacrev, vmap  # noqa: E402  # after it is known that there is PyTorch

# What PyTorch itself uses when it first differentiates forward.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.*is deprecated:DeprecationWarning")

X = torch.arange(6.0).reshape(2, 3)
Y = torch.tensor([1.0, -2.0, 0.5])


@pytest.fixture(autouse=True)
def forget_programs():
    torch.compiler.reset()


def compiled(function, backend="aot_eager", **how):
    return torch.compile(function, backend=backend, fullgraph=True, **how)


def row_sum(x):
    return x.sum(axis=-1)


total = au.gufunc("(n)->()", output_dtypes=float)(row_sum)


class Programs:
    """A backend of `torch.compile` that counts what it compiles."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward


# The public functions

CALLS = {
    "a gufunc object": lambda x: total(x + 1),
    "its options": lambda x: total.with_options(vectorize=True)(x + 1),
    "axes and keywords": lambda x: scaled(x + 1, axis=0, keepdims=True, factor=2),
    "apply_ufunc": lambda x: au.apply_ufunc(np.add, None, x, 2.5),
    "a kernel made in the program": lambda x: au.apply_ufunc(
        lambda a: a[..., ::-1], "(n)->(n)", x, output_dtypes=float
    ),
    "several outputs": lambda x: au.apply_ufunc(np.divmod, None, x, 2),
    "output sizes": lambda x: au.apply_ufunc(np.diff, "(n)->(m)", x, output_sizes={"m": x.shape[1] - 1}),
    "lazy_apply": lambda x: au.lazy_apply(np.cumsum, x, shape=(x.numel(),), as_numpy=True),
    "lazy_apply on tensors": lambda x: au.lazy_apply(lambda a: a.flip(0), x),
    "None": lambda x: au.apply_ufunc(lambda x, nothing: x + 1, "(),()->()", x, None),
    "a traced kernel": lambda x: au.apply_ufunc(torch.sum, "(n)->()", x, vectorize=True),
}

scaled = au.gufunc("(n)->()")(lambda x, *, factor: factor * x.sum(axis=-1))


@pytest.mark.parametrize("what", CALLS)
def test_every_public_function_compiles_to_what_it_gives_without(what):
    call = CALLS[what]
    torch.testing.assert_close(compiled(call)(X), call(X))


def test_method_of_a_module():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = 2.0

        @au.gufunc("(n)->()", output_dtypes=float)
        def total(self, x):
            return self.factor * x.sum(axis=-1)

        def forward(self, x):
            return self.total(x)

    assert compiled(Model())(X).tolist() == [6, 24]


def test_numpy_arrays_in_a_program_go_in_and_come_out():
    result = compiled(lambda x: total(x + 0))(X.numpy())
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, [3, 12])


@pytest.mark.once
def test_the_default_compiler_runs_the_kernel_once_for_a_batch():
    kernel = Recorder(row_sum)
    f = au.gufunc("(n)->()", output_dtypes=float)(kernel)
    program = torch.compile(vmap(vmap(f), 1), fullgraph=True)  # of the operator alone: no C++ to compile
    x = torch.arange(24.0).reshape(2, 4, 3)
    torch.testing.assert_close(program(x), x.sum(-1).T)
    assert kernel.shapes == [((4, 2, 3),)]


# Recompilation


def test_one_program_serves_every_size():
    programs = Programs()
    f = compiled(lambda x: total(x) + 1, programs, dynamic=True)
    for shape in ((2, 3), (4, 5), (7, 2), (3, 3, 3)):
        torch.testing.assert_close(f(torch.ones(shape)), torch.ones(shape).sum(-1) + 1)
    assert len(programs.graphs) == 2  # one for each number of dims


def test_sizes_that_outputs_have_follow_those_of_the_arguments():
    twice = au.gufunc("(n)->(2*n)", output_dtypes=float)(lambda x: np.concatenate([x, x], -1))
    by_rule = au.gufunc("(n)->(k)", output_dtypes=float, output_sizes={"k": lambda sizes: 2 * sizes["n"]})(
        lambda x: np.concatenate([x, x], -1)
    )
    for f in (twice, by_rule):
        program = compiled(lambda x, f=f: f(x) * 2, dynamic=True)
        for size in (3, 4, 5):
            torch.testing.assert_close(program(torch.ones(2, size)), torch.full((2, 2 * size), 2.0))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_core_size_that_depends_on_values_stays_symbolic():
    program = compiled(lambda x: total(x[x > 1]) + 1)
    assert program(X).item() == 15
    assert program(-X).item() == 1


def test_two_kernels_of_the_same_code_are_told_apart():
    def times(factor):
        return lambda x: factor * x

    programs = Programs()
    program = compiled(lambda kernel, x: au.apply_ufunc(kernel, "()->()", x, output_dtypes=float), programs)
    double, triple = times(2), times(3)
    for kernel, expected in ((double, 2), (triple, 3), (double, 2)):
        assert program(kernel, torch.ones(1)).item() == expected
    assert len(programs.graphs) == 2


def test_python_scalars_are_the_kernels_own():
    seen = []

    def kernel(x, n):
        seen.append((n, type(n)))
        return x * n

    program = compiled(lambda x, n: au.apply_ufunc(kernel, "(),()->()", x, n, output_dtypes=float))
    for n in (2, 3, 4, 0.5, 1.5):
        torch.testing.assert_close(program(X, n), X * n)
    assert seen == [(2, int), (3, int), (4, int), (0.5, float), (1.5, float)]


def test_keywords_that_a_gufunc_object_holds_are_the_kernels_own():
    weights = np.array([1.0, 2, 3])
    f = au.gufunc("(n)->()", output_dtypes=float, kwargs={"w": weights})(lambda x, w: (x * w).sum(axis=-1))
    assert compiled(lambda x: f(x + 0))(X).tolist() == [8, 26]


def test_the_kernel_is_not_called_to_compile_where_dtypes_are_declared():
    kernel = Recorder(row_sum)
    program = compiled(lambda x: au.apply_ufunc(kernel, "(n)->()", x, output_dtypes=float))
    program(X), program(X)
    assert kernel.shapes == [((2, 3),)] * 2


# Transformations

TRANSFORMED = {
    "vmap": lambda f: vmap(f, (0, None)),
    "nested vmap": lambda f: lambda x, y: vmap(vmap(f, (0, None)), (None, 0))(x, torch.stack([y, 2 * y])),
    "grad": lambda f: grad(lambda x, y: torch.sin(f(x, y)).sum(), (0, 1)),
    "vmap(grad)": lambda f: vmap(grad(f), (0, None)),
    "jacrev": lambda f: jacrev(f, 1),
    "jacfwd": lambda f: jacfwd(f, 1),
}


@pytest.mark.parametrize("transform", TRANSFORMED)
def test_transformations_in_a_program(transform):
    f = au.gufunc("(n),(n)->()", output_dtypes=float, jac="complex-step")(power)
    own, native = compiled(TRANSFORMED[transform](f))(X, Y), TRANSFORMED[transform](native_power)(X, Y)
    torch.testing.assert_close(own, native)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backward_through_a_program_runs_the_derivative_kernel_once(backend):
    primal, derivative = Recorder(power), Recorder(power_vjp)
    f = au.gufunc("(n),(n)->()", output_dtypes=float, vjp=derivative)(primal)
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    compiled(lambda x, y: torch.sin(f(x, y)), backend)(x, y).sum().backward()
    expected = grad(lambda x, y: torch.sin(native_power(x, y)).sum(), (0, 1))(X, Y)
    torch.testing.assert_close((x.grad, y.grad), expected)
    assert len(primal.shapes) == len(derivative.shapes) == 1


def test_kernel_that_is_traced_is_part_of_the_program():
    programs = Programs()
    kernel = lambda x: torch.sin(x).sum(-1)
    program = torch.compile(
        lambda x: au.apply_ufunc(kernel, "(n)->()", x, kernel_arrays="traced"), backend="aot_eager", fullgraph=True
    )
    x = X.clone().requires_grad_()
    program(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.cos(X))
    assert programs.graphs == []


def test_exported_programs_run_the_kernel():
    class Model(torch.nn.Module):
        def forward(self, x):
            return total(x) + 1

    for strict in (False, True):
        exported = torch.export.export(Model(), (X,), strict=strict)
        assert exported.module()(X).tolist() == [4, 13]


def test_the_operator_passes_pytorchs_own_check():
    f = au.gufunc("(n),(n)->(),(n)", output_dtypes=float, vjp=lambda x, y, c, d: (d + c[..., None], d))(
        lambda x, y: (x.sum(axis=-1) + 0 * y.sum(), x + y)
    )
    compiled(lambda x, y: f(x + 0, y))(X.clone().requires_grad_(), Y)
    from applyufunc._lowering._torch import _operator, _sites

    name = next(name for name in reversed(_sites._sites) if name.startswith("<lambda> (n),(n)->(),(n) float32"))
    for tensors in ([X, Y], [X.clone().requires_grad_(), Y], [X[:, None].expand(2, 4, 3), Y.expand(4, 3)]):
        torch.library.opcheck(_operator.call_operator, (tensors, name))
    mapped = vmap(lambda x: _operator.call_operator([x, Y], name))(X)
    torch.testing.assert_close(mapped, [X.sum(-1), X + Y])
    x = X.clone().requires_grad_()
    _operator.call_operator([x, Y], name)[0].sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


# Refusals

REFUSED = {
    "an unknown size": (
        lambda x: au.apply_ufunc(np.unique, "(n)->(k)", x, output_dtypes=float, output_sizes={"k": None}),
        au.UnknownSizeError,
        r"output dimension 'k' of kernel 'unique' .* applyufunc.UpTo\(bound\)",
    ),
    "an unknown size of lazy_apply": (
        lambda x: au.lazy_apply(np.unique, x, shape=(None,), as_numpy=True),
        au.UnknownSizeError,
        r"shape has None for axis 0 of output 0, .* put UpTo\(bound\) there",
    ),
    "core dims": (
        lambda x: au.apply_ufunc(np.vecdot, None, x, x[:, :1]),
        au.DimensionError,
        "core dimension 'n' is 3 in argument 0 and 1",
    ),
    "a tensor for a keyword": (
        lambda x: au.apply_ufunc(lambda x, w: x, "()->()", x, w=x),
        au.ArgumentError,
        "keyword w is a traced torch array: pass it as an argument",
    ),
    "an option that nobody knows": (
        lambda x: au.apply_ufunc(np.sin, None, x, vectorise=True),
        au.OptionError,
        "did you mean 'vectorize'",
    ),
    "another device": (lambda x: total(x.to("meta")), au.TransferError, "argument 0 is a .* on device meta"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_keep_their_class_and_their_words(what):
    call, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        compiled(call)(X)


@pytest.mark.once
def test_without_fullgraph_a_refused_call_leaves_the_graph_and_runs():
    unique = lambda x: au.lazy_apply(np.unique, x % 2, shape=(None,), as_numpy=True) + 1
    assert torch.compile(unique, backend="eager")(X).tolist() == [1, 2]
    with pytest.raises(au.DimensionError) as caught:
        torch.compile(lambda x: au.apply_ufunc(np.vecdot, None, x, x[:, :1]), backend="eager")(X)
    assert type(caught.value) is au.DimensionError


def test_up_to_gives_an_unknown_size_a_bound():
    values = compiled(lambda x: au.lazy_apply(np.unique, x % 2, shape=(au.UpTo(4, fill_value=-1),), as_numpy=True))(X)
    assert values.tolist() == [0, 1, -1, -1]


def test_what_the_kernel_raises_comes_out_of_the_program():
    def boom(x):
        raise KeyError("boom")

    with pytest.raises(KeyError, match="boom") as caught:
        compiled(lambda x: au.apply_ufunc(boom, "(n)->()", x, output_dtypes=float))(X)
    assert caught.value.__notes__[0].startswith("in kernel 'boom' with signature '(n)->()', called with float32(2, 3)")


def test_gradient_without_a_rule_is_refused_when_the_backward_program_is_built():
    x = X.clone().requires_grad_()
    with pytest.raises(Exception, match=r"kernel 'row_sum' with signature .* jac=, vjp= or jvp="):
        compiled(lambda x: total(x).sum())(x).backward()


def test_a_call_that_was_forgotten_says_so(monkeypatch):
    from applyufunc._lowering._torch import _graph

    kernels = [lambda x, n=n: x + n for n in range(3)]
    monkeypatch.setattr(_graph, "_KEPT", 2)
    monkeypatch.setattr(_graph, "_nodes", type(_graph._nodes)())
    monkeypatch.setattr(_graph, "_numbers", {})
    programs = [compiled(lambda x, k=k: au.apply_ufunc(k, "()->()", x, output_dtypes=float), "eager") for k in kernels]
    assert [program(torch.zeros(1)).item() for program in programs] == [0, 1, 2]
    with pytest.raises(au.KernelError, match="compile it again"):
        programs[0](torch.zeros(1))
    assert programs[2](torch.zeros(1)).item() == 2
    assert len(_graph._nodes) == len(_graph._numbers) == 2


@pytest.mark.once
def test_the_first_call_of_all_may_be_one_that_is_compiled():
    program = """
        import sys
        import torch
        import applyufunc as au

        double = au.gufunc("()->()", output_dtypes=float)(lambda x: 2 * x)

        def function(x):
            return double(x) + au.apply_ufunc(lambda x: x.sum(axis=-1), "(n)->()", x, output_dtypes=float)

        assert not {"applyufunc._apply", "applyufunc._evaluate", "applyufunc._lowering"} & set(sys.modules)
        print(*torch.compile(function, fullgraph=True, backend="eager")(torch.arange(3.0)).tolist())
    """
    assert fresh_process.run(program) == ["3.0", "5.0", "7.0"]
