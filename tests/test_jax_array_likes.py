"""Objects that stand for JAX arrays: one value whether they come eagerly, through `jax.jit`, or out of a closure."""

from __future__ import annotations

import numpy as np
import pytest

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy

VALUE = np.array([1.0, 2.0, 4.0], "f4")


class OnlyJax:
    """Not a pytree."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


class BothProtocols(OnlyJax):
    """Its `__array__` breaks on what is traced, so that it must not be asked first."""

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("asked for a NumPy array")


class OnlyNumpy:
    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.value, dtype)


@jax.tree_util.register_pytree_node_class
class Doubled:
    """A pytree whose leaf is not its value, as a lazy or a packed array is; equinox's modules look the same."""

    def __init__(self, half):
        self.half = half

    def __jax_array__(self):
        return self.half * 2

    def tree_flatten(self):
        return (self.half,), None

    @classmethod
    def tree_unflatten(cls, aux, leaves):
        return cls(*leaves)


LIKES = {
    "__jax_array__": lambda: OnlyJax(jnp.asarray(VALUE)),
    "__jax_array__ with a NumPy array": lambda: OnlyJax(VALUE),
    "both protocols": lambda: BothProtocols(jnp.asarray(VALUE)),
    "__array__": lambda: OnlyNumpy(VALUE),
    "a pytree that is an array too": lambda: Doubled(jnp.asarray(VALUE / 2)),
    "a NumPy array": lambda: VALUE,
    "a list": VALUE.tolist,
}

PYTREES = ("a pytree that is an array too", "a NumPy array")


def weighted(x, y):
    return (x * y).sum(-1)


KINDS = {"host": {"output_dtypes": float}, "traced": {"kernel_arrays": "traced"}}


@pytest.fixture(params=KINDS)
def f(request):
    return au.gufunc("(n),(n)->()", **KINDS[request.param])(weighted)


def undisturbed(call, *args):
    return call(*args)


def without_jit(call, *args):
    with jax.disable_jit():
        return jax.jit(call)(*args)


def in_jit(call, *args):
    return jax.jit(call)(*args)


def unmapped(call, *args):
    return jax.vmap(call, in_axes=None, axis_size=2)(*args)[1]


def differentiated(call, *args):
    """Return the value through a transformation that has a trace of its own."""
    return jax.value_and_grad(lambda scale: call(*args) * scale)(1.0)[0]


@pytest.mark.parametrize("way", [undisturbed, without_jit, in_jit, unmapped, differentiated])
@pytest.mark.parametrize("like", LIKES)
def test_array_like_in_a_closure_is_its_value(f, like, way):
    result = way(lambda x: f(x, LIKES[like]()), jnp.ones(3))
    assert isinstance(result, jax.Array)
    assert (float(result), result.dtype, result.weak_type) == (7.0, "float32", False)


@pytest.mark.parametrize("way", [undisturbed, without_jit, in_jit, unmapped])
@pytest.mark.parametrize("like", PYTREES)
def test_array_like_as_an_argument_is_its_value_and_not_its_leaf(f, like, way):
    result = way(f, jnp.ones(3), LIKES[like]())
    assert (float(result), result.dtype) == (7.0, "float32")


@pytest.mark.parametrize("like", ["__jax_array__", "both protocols"])
def test_what_jax_itself_does_not_take_is_refused_by_jax(f, like):
    with pytest.raises((TypeError, ValueError), match=r"__jax_array__|not a valid JAX type"):
        jax.jit(f)(jnp.ones(3), LIKES[like]())


def test_value_that_is_traced_keeps_its_derivative():
    f = au.gufunc("(n),(n)->()", kernel_arrays="traced")(weighted)
    for like in (OnlyJax, BothProtocols):
        got = jax.grad(lambda y, like=like: f(jnp.ones(3), like(y * y)))(jnp.asarray(VALUE))
        np.testing.assert_array_equal(got, 2 * VALUE)
    got = jax.grad(lambda y: f(jnp.ones(3), y))(Doubled(jnp.asarray(VALUE)))
    np.testing.assert_array_equal(got.half, [2, 2, 2])


def test_mapped_leaf_of_a_pytree_is_mapped(f):
    result = jax.vmap(f, (None, 0))(jnp.ones(3), Doubled(jnp.stack([VALUE, 2 * VALUE])))
    np.testing.assert_array_equal(result, [14, 28])


def test_object_of_64_bits_is_what_jax_holds(f):
    result = f(jnp.ones(3), OnlyNumpy(VALUE.astype("f8")))
    assert result.dtype == "float32"
    with jax.enable_x64(True):
        wide = f(jnp.ones(3, "float32"), OnlyNumpy(VALUE.astype("f8")))
    assert wide.dtype == "float64"


@pytest.mark.parametrize("value", [[1.0], 1.0, None, "text"])
def test_protocol_that_gives_no_array_is_refused_by_name(f, value):
    kind = type(value).__name__
    with pytest.raises(au.ArgumentError, match=rf"argument 1: OnlyJax.__jax_array__\(\) returned a {kind}, expected"):
        f(jnp.ones(3), OnlyJax(value))


# Refused


def test_random_keys_are_refused_by_name_wherever_they_come_from(f):
    keys = jax.random.split(jax.random.key(0), 3)
    message = "argument 1 is a JAX array of dtype key<fry>: pass jax.random.key_data"
    for way in (undisturbed, in_jit):
        with pytest.raises(au.ArgumentError, match=message):
            way(lambda key: f(jnp.ones(3), key), keys)
    with pytest.raises(au.ArgumentError, match=message):
        in_jit(lambda: f(jnp.ones(3), OnlyJax(keys)))
    with pytest.raises(au.ArgumentError, match=message):
        jax.vmap(lambda key: f(jnp.ones(3), key))(keys)
    with pytest.raises(au.ArgumentError, match=r"keyword key is a .* of dtype key<fry>: pass jax.random.key_data"):
        au.apply_ufunc(lambda x, key: x, "()->()", jnp.ones(3), key=keys)
    data = jax.random.key_data(keys)
    assert f(jnp.ones(2), data[0]).shape == ()


@pytest.mark.parametrize("wrap", [lambda x: x, OnlyJax])
@pytest.mark.parametrize("way", [undisturbed, in_jit])
def test_masked_arrays_are_refused_by_name_wherever_they_come_from(f, way, wrap):
    masked = np.ma.masked_equal(VALUE, 2)
    with pytest.raises(au.ArgumentError, match="argument 1 is a masked array, whose mask"):
        way(lambda: f(jnp.ones(3), wrap(masked)))


def test_object_that_is_no_array_is_refused_by_name(f):
    class Settings:
        pass

    with pytest.raises(au.ArgumentError, match=r"argument 1 is a .*Settings, expected an array"):
        f(jnp.ones(3), Settings())


# Other libraries' values


class Lazy:
    """A twin of quax's values: known by `materialise`, and no array to anybody outside of its own transformation."""

    def __init__(self, value):
        self.value = value

    def materialise(self):
        return self.value


def test_value_of_quax_outside_of_quaxify_is_refused_with_the_cure(f):
    with pytest.raises(au.ArgumentError, match=r"Lazy, expected an array.*taken inside of quax\.quaxify"):
        f(jnp.ones(3), Lazy(VALUE))


def test_value_of_quax_is_taken_inside_of_quaxify(f):
    quax = pytest.importorskip("quax")

    class Tripled(quax.ArrayValue):
        third: jax.Array

        def aval(self):
            return jax.core.ShapedArray(self.third.shape, self.third.dtype)

        def materialise(self):
            return self.third * 3

    value = Tripled(jnp.asarray(VALUE))
    calls = (
        quax.quaxify(f),
        quax.quaxify(jax.jit(f)),
        jax.jit(quax.quaxify(f)),
        quax.quaxify(jax.vmap(f, in_axes=None, axis_size=2)),
    )
    for call in calls:
        np.testing.assert_array_equal(
            call(jnp.ones(3), value), np.broadcast_to(21, jnp.shape(call(jnp.ones(3), value)))
        )


def test_module_of_equinox_is_taken(f):
    equinox = pytest.importorskip("equinox")

    class Scaled(equinox.Module):
        weight: jax.Array
        factor: float = equinox.field(static=True)

        def __jax_array__(self):
            return self.weight * self.factor

    module = Scaled(jnp.asarray(VALUE), 3.0)
    for call in (f, jax.jit(f), equinox.filter_jit(f), lambda x, y: jax.jit(lambda: f(x, y))()):
        assert float(call(jnp.ones(3), module)) == 21
