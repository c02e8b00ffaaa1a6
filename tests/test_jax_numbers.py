"""JAX: dtypes with and without 64 bits, short floats, weak scalars, and sizes known by a bound or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

jax = pytest.importorskip("jax")
jnp = jax.numpy


def eager(f, *args):
    return f(*args)


def in_jit(f, *args):
    return jax.jit(f)(*args)


def in_vmap(f, *args):
    mapped = jax.vmap(f)(*(jnp.asarray(arg)[None] for arg in args))
    return jax.tree.map(lambda output: output[0], mapped)


def in_jit_of_vmap(f, *args):
    return in_vmap(jax.jit(f), *args)


def without_jit(f, *args):
    with jax.disable_jit():
        return jax.jit(f)(*args)


WAYS = [eager, in_jit, in_vmap, in_jit_of_vmap, without_jit]

# Dtypes

SHORT = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("declared", [False, True])
def test_short_dtypes_go_to_the_kernel_and_come_back(way, dtype, declared):
    seen = []
    f = au.gufunc("(n)->(n)", output_dtypes=dtype if declared else None)(lambda x: seen.append(x.dtype.name) or x)
    result = way(f, jnp.arange(4).astype(dtype))
    assert (result.dtype, set(seen)) == (dtype, {dtype})
    assert np.asarray(result).astype(int).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_compiled_kernel_takes_short_dtypes_through_another(way, dtype):
    def compiled(x):
        if x.dtype.name not in ("float32", "int32"):
            raise TypeError(f"no loop for {x.dtype}")
        return x[..., ::-1]

    f = au.gufunc("(n)->(n)", compute_dtype="int32" if dtype == "int4" else "float32")(compiled)
    result = way(f, jnp.arange(4).astype(dtype))
    assert result.dtype == dtype
    assert np.asarray(result).astype(int).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "value"), [("int8", 200), ("uint8", -1), ("int32", 2**31), ("int4", 9)])
def test_integers_of_a_kernel_that_do_not_fit_raise_everywhere(way, dtype, value):
    f = au.gufunc("()->()", output_dtypes=dtype, vectorize=True)(lambda x: value)
    error = au.OutputRangeError if way in (eager, without_jit) else Exception
    with pytest.raises(error, match=rf"kernel returned {value}, which the declared {dtype} cannot hold"):
        jax.block_until_ready(way(f, jnp.ones(2)))


@pytest.mark.parametrize("way", [eager, in_jit, jax.vmap])
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integers_of_an_argument_that_32_bits_do_not_hold_raise(way, value):
    f = au.gufunc("(),()->()", output_dtypes=int)(np.add)
    wide = np.array([1, value])
    message = f"argument 1 has {value}, which int32, what JAX arrays of int64 are without jax_enable_x64, cannot hold"
    call = (lambda x: f(x, wide)) if way is not jax.vmap else (lambda x: f(x, wide[1]))
    with pytest.raises(au.ArgumentError, match=message):
        (jax.vmap(call) if way is jax.vmap else lambda x: way(call, x))(jnp.arange(2))
    np.testing.assert_array_equal(f(jnp.arange(2), np.array([2**31 - 1, -(2**31)])), [2**31 - 1, 1 - 2**31])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(f(jnp.arange(2), wide), [1, value + 1])


@pytest.mark.parametrize("way", WAYS)
def test_setting_for_64_bits_is_read_at_every_call(way):
    f = au.gufunc("()->()", output_dtypes=float)(lambda x: x * np.float64(2))
    for x64, expected in ((False, "float32"), (True, "float64"), (False, "float32")):
        with jax.enable_x64(x64):
            assert way(f, jnp.ones(2)).dtype == expected


# Sizes


def distinct(row):
    values = np.unique(row)
    return values, len(values)


@pytest.mark.parametrize("way", WAYS)
def test_bounded_size_is_padded_and_counted_everywhere(way):
    f = au.gufunc(
        "(n)->(k),()", vectorize=True, output_dtypes=(float, int), output_sizes={"k": au.UpTo(4, fill_value=np.nan)}
    )(distinct)

    @examples(8)
    @given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), max_size=3))
    def check(rows):
        x = np.array(rows, "f4").reshape(len(rows), 3)
        values, count = way(f, jnp.asarray(x))
        assert (values.shape, values.dtype, count.shape, count.dtype) == (
            (len(rows), 4),
            "float32",
            (len(rows),),
            "int32",
        )
        for row, got, number in zip(x, np.asarray(values), np.asarray(count), strict=True):
            expected = sorted(set(row.tolist()))
            assert number == len(expected)
            assert got[:number].tolist() == expected
            assert np.isnan(got[number:]).all()

    check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("vectorize", [False, True])
def test_more_than_the_bound_raises_everywhere(way, vectorize):
    f = au.gufunc("(n)->(k)", vectorize=vectorize, output_dtypes=float, output_sizes={"k": au.UpTo(2)})(lambda x: x)
    error = au.OutputShapeError if way in (eager, without_jit) else Exception
    with pytest.raises(error, match=r"core dimension k: expected at most 2 \(UpTo\), kernel returned 3"):
        jax.block_until_ready(way(f, jnp.ones((2, 3))))


@pytest.mark.parametrize("way", WAYS)
def test_bound_may_follow_from_the_sizes_and_be_none_at_all(way):
    f = au.gufunc(
        "(n)->(k)", vectorize=True, output_dtypes=int, output_sizes={"k": lambda sizes: au.UpTo(sizes["n"] - 1, -1)}
    )(lambda x: np.flatnonzero(x)[: len(x) - 1])
    assert way(f, jnp.array([[0.0, 1, 0], [1, 1, 1]])).tolist() == [[1, -1], [0, 1]]
    assert way(f, jnp.ones((2, 1))).shape == (2, 0)
    assert way(f, jnp.ones((0, 3))).shape == (0, 2)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad, jax.make_jaxpr, lambda f: jax.jit(jax.vmap(f))])
@pytest.mark.parametrize("kernel_arrays", ["numpy", "same"])
def test_unknown_size_is_one_exception_under_every_transformation(transform, kernel_arrays):
    f = au.gufunc("(n)->(k)", output_dtypes=float, output_sizes={"k": None}, kernel_arrays=kernel_arrays)(
        lambda x: x[..., ::2]
    )
    argument = jnp.ones(4) if transform is jax.grad else jnp.ones((2, 4))
    with pytest.raises(au.UnknownSizeError, match=r"size of output dimension 'k' .*UpTo\(bound\)"):
        transform(f)(argument)
    assert f(jnp.ones((2, 4))).shape == (2, 2)
