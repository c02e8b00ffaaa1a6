"""Kernels that JAX traces: mapped as `jax.vmap` maps, without a callback, with JAX's own derivatives and shards."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
from array_api_compat import array_namespace
from drawn_examples import examples
from fresh_process import run
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy


def inner(x, y):
    """Sum products of two vectors, in whichever library they are; takes one item."""
    return array_namespace(x).sum(x * y)


def rows_inner(x, y):
    """Sum products along the last axis; takes a batch."""
    return array_namespace(x).sum(x * y, axis=-1)


TRACED = {"item": (inner, True), "batch": (rows_inner, False)}


def traced(kernel, signature, **options):
    return au.gufunc(signature, kernel_arrays="traced", **options)(kernel)


def primitives(f, *args):
    """Return the names of what a function is made of, with what is inside of calls."""
    return " ".join(str(jax.make_jaxpr(f)(*args)).split())


# Values


SIDES = st.integers(0, 3)


@pytest.mark.parametrize("way", TRACED)
@pytest.mark.parametrize("declared", [float, None], ids=["declared", "found"])
def test_traced_kernel_gives_what_a_plain_loop_gives(backend, way, declared):
    if backend.compiles:
        pytest.skip("PyTorch compiles long, and compiles such a kernel in a test of its own")
    kernel, vectorize = TRACED[way]

    @examples(10)
    @given(st.lists(st.tuples(SIDES, st.booleans(), st.booleans()), max_size=3), SIDES, st.integers(0, 3), st.data())
    def check(loop, n, dropped, data):
        shapes = [[1 if thin[i] else thin[0] for thin in loop] for i in (1, 2)]
        shapes[1] = shapes[1][dropped:]
        x, y = (np.arange(float(np.prod([*shape, n]))).reshape(*shape, n) + 1 for shape in shapes)
        expected = np.vectorize(inner, signature="(n),(n)->()", otypes=[float])(x, y) if n else None
        if expected is None or not np.size(expected):
            expected = np.zeros(np.broadcast_shapes(*map(tuple, shapes)))
        args = tuple(backend.put(arg, data) for arg in (x, y))
        options = {"kernel_arrays": "traced", "vectorize": vectorize, "output_dtypes": declared}
        result = backend.call(kernel, "(n),(n)->()", args, options)
        backend.check_type(result)
        value = backend.get(result)
        assert (np.shape(value), value.dtype) == (expected.shape, "float64")
        np.testing.assert_array_equal(value, expected)

    check()


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))])
def test_an_item_is_mapped_over_loops_that_broadcast_without_copies(transform):
    f = traced(jnp.dot, "(n),(n)->()", vectorize=True)
    x, y = jnp.arange(12.0).reshape(2, 3, 1, 2), jnp.arange(20.0).reshape(2, 1, 5, 2)
    mapped = transform(f)
    np.testing.assert_array_equal(mapped(x, y), np.einsum("bimn,bmjn->bij", x, y))
    assert "broadcast_in_dim" not in primitives(mapped, x, y)
    assert "dot_general" in primitives(mapped, x, y)


def test_loop_dims_of_length_one_are_kept():
    f = traced(jnp.sort, "(n)->(n)", vectorize=True)
    assert f(jnp.ones((1, 2, 1, 3))).shape == (1, 2, 1, 3)
    assert jax.jit(f)(jnp.ones((1, 1, 3))).shape == (1, 1, 3)


def test_axes_optional_dims_and_several_outputs_work():
    low_high = traced(lambda x: (x.min(), x - x.max()), "(n)->(),(n)", vectorize=True)
    x = jnp.arange(6.0).reshape(3, 2)
    for transform in (lambda f: f, jax.jit):
        low, rest = transform(lambda x: low_high(x, axes=[(0,), (), (0,)]))(x)
        np.testing.assert_array_equal(low, [0, 1])
        np.testing.assert_array_equal(rest, [[-4, -4], [-2, -2], [0, 0]])
    product = traced(jnp.matmul, "(m?,n),(n,p?)->(m?,p?)", vectorize=True)
    np.testing.assert_array_equal(product(x.T, jnp.ones((4, 3))[0]), [6, 9])
    stretched = traced(lambda x, y: x * y, "(n),(n|1)->(n)", vectorize=True)
    np.testing.assert_array_equal(stretched(x, jnp.array([[2.0], [3], [4]])), x * np.array([[2], [3], [4]]))


def test_scalars_none_and_keywords_reach_the_kernel_as_they_are():
    def kernel(x, factor, none, *, weights):
        assert (type(factor), none) == (int, None)
        assert isinstance(weights, jax.Array)
        return x * factor * weights.sum()

    f = traced(kernel, "(n),(),()->(n)", vectorize=True)
    for transform in (lambda g: g, jax.jit, jax.vmap):
        result = transform(lambda x: f(x, 3, None, weights=np.ones(2, "f4")))(jnp.ones((2, 2)))
        np.testing.assert_array_equal(result, [[6, 6], [6, 6]])


def test_bounded_outputs_are_padded_and_sizes_that_are_traced_need_no_bound():
    bounded = traced(lambda x: x[:2], "(n)->(k)", vectorize=True, output_sizes={"k": au.UpTo(3, fill_value=-1)})
    unknown = traced(lambda x: x[::2], "(n)->(k)", vectorize=True, output_sizes={"k": None})
    x = jnp.arange(8.0).reshape(2, 4)
    for transform in (lambda f: f, jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))):
        np.testing.assert_array_equal(transform(bounded)(x), [[0, 1, -1], [4, 5, -1]])
        np.testing.assert_array_equal(transform(unknown)(x), [[0, 2], [4, 6]])
    with pytest.raises(au.OutputShapeError, match=r"core dimension k: expected at most 1 \(UpTo\), kernel returned 2"):
        jax.jit(bounded.with_options(output_sizes={"k": au.UpTo(1)}))(x)


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("declared", [None, float])
def test_empty_batch_has_the_dtypes_of_the_kernel(vectorize, declared):
    f = traced(lambda x: jnp.stack([x, x], -1), "(n)->(n,2)", vectorize=vectorize, output_dtypes=declared)
    for transform in (lambda f: f, jax.jit, jax.vmap):
        result = transform(f)(jnp.ones((2, 0, 3), jnp.float32))
        assert (result.shape, result.dtype) == ((2, 0, 3, 2), "float32")


# Transformations are JAX's


@pytest.mark.parametrize("way", TRACED)
def test_derivatives_are_those_of_jax(way):
    kernel, vectorize = TRACED[way]
    f = traced(kernel, "(n),(n)->()", vectorize=vectorize)
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 2.0, 4.0])

    def twin(x, y):
        return (x * y).sum(-1)

    for differentiate in (
        lambda f: jax.grad(lambda x, y: (f(x, y) ** 2).sum(), (0, 1)),
        lambda f: jax.jacfwd(f, 1),
        lambda f: jax.hessian(lambda x, y: (f(x, y) ** 3).sum()),
        lambda f: jax.vmap(jax.grad(f), (0, None)),
    ):
        got, expected = jax.jit(differentiate(f))(x, y), jax.jit(differentiate(twin))(x, y)
        jax.tree.map(np.testing.assert_allclose, got, expected)
    jax.tree.map(np.testing.assert_array_equal, jax.grad(lambda x: f(x, y).sum())(x), jnp.stack([y, y]))


@pytest.mark.parametrize("way", TRACED)
def test_no_callback_is_left_under_any_transformation(way):
    kernel, vectorize = TRACED[way]
    f = traced(kernel, "(n),(n)->()", vectorize=vectorize)
    x = jnp.ones((2, 3))
    for transformed in (f, jax.jit(f), jax.vmap(f), jax.grad(lambda x, y: f(x, y).sum())):
        assert "callback" not in primitives(transformed, x, x)


def test_traced_kernel_can_be_exported():
    jax_export = pytest.importorskip("jax.export")
    pytest.importorskip("flatbuffers")
    f = jax.jit(traced(inner, "(n),(n)->()", vectorize=True))
    exported = jax_export.deserialize(jax_export.export(f)(jnp.ones((2, 3)), jnp.ones(3)).serialize())
    np.testing.assert_array_equal(exported.call(jnp.ones((2, 3)), jnp.ones(3)), [3, 3])


def test_shards_stay_where_they_are():
    program = """
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        from jax.sharding import NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((4, 2), ("a", "b"))
        for vectorize, kernel in ((True, lambda x, y: jnp.dot(x, y)), (False, lambda x, y: (x * y).sum(-1))):
            f = au.gufunc("(n),(n)->()", kernel_arrays="traced", vectorize=vectorize)(kernel)
            x = jax.device_put(np.arange(96.0, dtype="f4").reshape(8, 4, 3), NamedSharding(mesh, P("a", "b")))
            compiled = jax.jit(f).lower(x, jnp.ones(3)).compile()
            text = compiled.as_text()
            print(any(word in text for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute")))
            for result in (compiled(x, jnp.ones(3)), f(x, jnp.ones(3))):
                print(np.array_equal(result, np.asarray(x).sum(-1)))
                print({shard.data.shape for shard in result.addressable_shards} == {(2, 2)})
    """
    assert run(program, devices=8) == ["False", *["True"] * 4] * 2


# What is checked


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("vectorize", [False, True])
def test_what_a_traced_kernel_returns_wrongly_is_refused(transform, vectorize):
    x = jnp.ones((4, 6))
    wrong = {
        au.OutputShapeError: ("(i)->(i)", lambda b: b[..., 1:]),
        au.OutputDTypeError: ("(i)->()", lambda b: b.sum(-1) + 0j),
    }
    for error, (signature, kernel) in wrong.items():
        f = traced(kernel, signature, vectorize=vectorize, output_dtypes=float)
        with pytest.raises(error, match=r"output 0.*kernel returned") as caught:
            transform(f)(x)
        assert "in kernel '<lambda>' with signature" in caught.value.__notes__[0]
    with pytest.raises(au.OutputShapeError, match="kernel returned a float, expected a tuple of 2"):
        transform(traced(lambda b: 1.0, "(i)->(),()", vectorize=vectorize))(x)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
def test_integers_that_might_not_fit_are_refused_whatever_they_are(transform):
    f = traced(lambda x: x, "()->()", output_dtypes="int8")
    with pytest.raises(au.OutputDTypeError, match="kernel returned int32, and while it is traced nobody can tell"):
        transform(f)(jnp.ones(2, "int32"))
    np.testing.assert_array_equal(transform(f)(jnp.ones(2, "int8")), [1, 1])
    wider = traced(lambda x: x, "()->()", output_dtypes="int32")(jnp.ones(2, "int8"))
    assert wider.dtype == "int32"


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
@pytest.mark.parametrize("x64", [False, True])
def test_result_is_strongly_typed_and_of_the_declared_dtype(transform, x64):
    with jax.enable_x64(x64):
        weak = transform(traced(lambda x: jnp.asarray(1.0), "()->()", vectorize=True))(jnp.ones(2, "int32"))
        assert (weak.dtype, weak.weak_type) == ("float64" if x64 else "float32", False)
        declared = transform(traced(jnp.sin, "()->()", output_dtypes=jnp.bfloat16))(jnp.ones(2))
        assert declared.dtype == "bfloat16"


def test_code_that_wants_values_is_told_how_to_get_them():
    for kernel in (lambda x: x if x > 0 else -x, lambda x: np.asarray(x), lambda x: x * int(x)):  # noqa: PLW0108
        with pytest.raises(Exception, match="traced") as caught:
            jax.jit(traced(kernel, "()->()", vectorize=True))(jnp.ones(2))
        assert "kernel_arrays='numpy' runs it on the host" in "".join(caught.value.__notes__)


def test_traced_arrays_by_keyword_are_refused_as_everywhere():
    f = traced(lambda x, w: x * w, "()->()")
    with pytest.raises(au.ArgumentError, match="keyword w is a traced jax array: pass it as an argument"):
        jax.jit(lambda x: f(x, w=x))(jnp.ones(2))


# What is traced unasked


@jax.custom_jvp
def with_derivative(x):
    return x * 2


with_derivative.defjvps(lambda tangent, output, x: tangent * 2)


@jax.jit
def doubled(x):
    return x * 2


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def scale(self, x):
        return x * 2


OF_JAX = {
    "jax.jit": doubled,
    "a function of jax.numpy": jnp.negative,
    "a jitted function of jax.numpy": jnp.sin,
    "a ufunc of jax.numpy": jnp.positive if hasattr(jnp, "positive") else jnp.sin,
    "a function of jax.nn": jax.nn.relu,
    "a partial one": functools.partial(jnp.cumsum, axis=-1),
    "a function with a derivative of its own": with_derivative,
    "a jitted method": Model().scale,
}
OF_THE_HOST = {
    "a plain function": lambda x: x * 2,
    "one that jax.vmap made": jax.vmap(lambda x: x * 2),
    "a ufunc of NumPy": np.sin,
    "a function of NumPy": np.sort,
    "a partial one": functools.partial(np.cumsum, axis=-1),
}


@pytest.mark.parametrize("kernel", OF_JAX.values(), ids=OF_JAX)
def test_functions_of_jax_are_traced(kernel):
    f = au.gufunc("(n)->(n)")(kernel)
    x = jnp.arange(6.0).reshape(2, 3)
    assert "callback" not in primitives(f, x)
    np.testing.assert_allclose(jax.jit(f)(x), kernel(x), rtol=1e-6)
    assert "pure_callback" in primitives(f.with_options(kernel_arrays="numpy", output_dtypes=float), x)


@pytest.mark.parametrize("kernel", OF_THE_HOST.values(), ids=OF_THE_HOST)
def test_every_other_function_runs_on_the_host(kernel):
    f = au.gufunc("(n)->(n)", output_dtypes=float)(kernel)
    assert "pure_callback" in primitives(f, jnp.ones((2, 3)))


def test_no_function_is_tried_to_see_whether_it_can_be_traced():
    calls = []

    def kernel(x):
        calls.append(type(x))
        return x

    jax.make_jaxpr(au.gufunc("(n)->(n)", output_dtypes=float)(kernel))(jnp.ones((2, 3)))
    assert calls == []


@pytest.mark.parametrize("kernel_arrays", [None, "traced"])
def test_functions_of_jax_run_on_arrays_of_other_libraries(backend, kernel_arrays):
    if kernel_arrays == "traced" and not backend.gives_jax_blocks:
        pytest.skip("asked for, it gets the library's own arrays, which JAX does not take")
    x = np.arange(6.0).reshape(2, 3)
    options = {"vectorize": True, "kernel_arrays": kernel_arrays, "output_dtypes": "float64"}
    with jax.enable_x64(True):
        result = backend.call(jax.jit(lambda row: row[::-1]), "(n)->(n)", (backend.put(x),), options)
        backend.check_type(result)
        np.testing.assert_array_equal(backend.get(result), x[:, ::-1])


def test_choice_survives_pickling():
    cloudpickle = pytest.importorskip("cloudpickle")  # which takes jitted functions
    f = pickle.loads(cloudpickle.dumps(au.gufunc("(n)->(n)")(jax.jit(lambda x: x * 2))))
    assert "callback" not in primitives(f, jnp.ones((2, 3)))


def test_scan_and_reduction_of_traced_parts_are_traced():
    x = jnp.arange(6.0).reshape(2, 3)
    scan = traced(
        lambda x, carry: (carry[..., None] + x.cumsum(-1), carry + x.sum(-1)),
        "(n)->(n)",
        core_chunks=au.Scan(initial=0.0),
    )
    for transform in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(transform(scan)(x), np.cumsum(x, -1))
        assert "callback" not in primitives(transform(scan), x)
    mean = traced(
        rows_inner,
        "(n),(n)->()",
        core_chunks=au.Reduction(
            chunk=lambda x, y: (x * y).sum(-1), combine=jnp.add, aggregate=lambda state: state * 2, state="(n),(n)->()"
        ),
    )
    for transform in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(transform(mean)(x, x), 2 * (x * x).sum(-1))
        assert "callback" not in primitives(transform(mean), x, x)


@pytest.mark.parametrize("vectorize", [False, True])
def test_explanation_says_that_the_kernel_is_traced(vectorize):
    f = traced(rows_inner, "(n),(n)->()", vectorize=vectorize)
    seen = []

    def call(x):
        seen.append(f.explain(x, x))
        return f(x, x)

    call(jnp.ones((2, 3)))
    jax.jit(call)(jnp.ones((2, 3)))
    for explanation in seen:
        assert (explanation.way, explanation.n_calls, explanation.dtypes_from) == ("traced", 1, "returned")
        assert "JAX traces the kernel" in str(explanation)
    assert f.explain(np.ones((2, 3)), np.ones(3)).way == "direct"
