"""`block_bytes=`: a kernel on slices of its blocks gives what it gives on whole ones, in less memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from drawn_calls import drawn_calls
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

pytestmark = pytest.mark.once

X = np.arange(240.0).reshape(10, 4, 6)


def sliced(kernel, signature, block_bytes=500, **options):
    return au.gufunc(signature, block_bytes=block_bytes, **options)(kernel)


class Spy:
    """A kernel that adds up the core dim of its first argument, and notes what it got."""

    __name__ = "spy"

    def __init__(self, result=lambda x, *others: x.sum(axis=-1)):
        self.calls, self.result = [], result

    def __call__(self, *args):
        self.calls.append(args)
        return self.result(*args)

    @property
    def shapes(self):
        return [tuple(arg.shape for arg in args) for args in self.calls]


# What comes out


def test_slices_give_what_a_plain_loop_gives(backend):
    @examples(backend.examples // 5)
    @given(drawn_calls(), st.integers(1, 1000), st.data())
    def check(drawn, block_bytes, data):
        args = tuple(backend.put(arg, data) for arg in drawn.args)
        options = drawn.options | {"vectorize": False, "block_bytes": block_bytes}
        result = backend.call(drawn.kernel, drawn.signature, args, options)
        for got, expected in zip(result if isinstance(result, tuple) else (result,), drawn.expected, strict=True):
            backend.check_type(got)
            value = backend.get(got)
            assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(value, expected)

    check()


@pytest.mark.parametrize("library", ["array_api_strict", "jax.numpy", "torch"])
def test_arrays_of_other_libraries_are_cut_and_put_together(library):
    xp = pytest.importorskip(library)
    spy = Spy(lambda x, y: (xp.sum(x * y, axis=-1), x))
    x = xp.asarray(X.astype("f4"))
    options = {"kernel_arrays": "same", "block_bytes": 200}
    total, same = au.apply_ufunc(spy, "(n),(n)->(),(n)", x, xp.asarray(np.ones((4, 6), "f4")), **options)
    assert type(total) is type(x)
    assert len(spy.calls) > 10
    np.testing.assert_array_equal(np.asarray(total), X.sum(axis=-1).astype("f4"))
    np.testing.assert_array_equal(np.asarray(same), X.astype("f4"))


def test_dtypes_that_vary_promote_over_slices():
    kernel = lambda x: x.sum(axis=-1).astype("i4" if x[0, 0] < 40 else "f4")
    result = sliced(kernel, "(n)->()", 100)(X.reshape(40, 6))
    assert result.dtype == np.float64  # as int32 and float32 promote
    np.testing.assert_array_equal(result, X.reshape(40, 6).sum(axis=-1))


def test_dtypes_without_a_common_one_are_refused():
    kernel = lambda x: np.full(len(x), "text" if x[0, 0] < 40 else "2020-01-01", "U4" if x[0, 0] < 40 else "M8[D]")
    with pytest.raises(au.OutputDTypeError, match=r"output 0: kernel returned .* for one slice and .* for another"):
        sliced(kernel, "(n)->()", 100)(X.reshape(40, 6))


def test_declared_dtypes_are_those_of_every_slice():
    result = sliced(lambda x: x.sum(axis=-1).astype("i8"), "(n)->()", 100, output_dtypes=np.int16)(X)
    assert (result.dtype, result.tolist()) == (np.int16, X.sum(axis=-1).tolist())
    with pytest.raises(au.OutputRangeError, match=r"kernel returned \d+, which the declared int8 cannot hold"):
        sliced(lambda x: x.sum(axis=-1).astype("i8"), "(n)->()", 100, output_dtypes=np.int8)(X)


def test_loop_axes_that_come_back_with_length_1_are_stretched():
    x, y = X[:, :1], X[:, 0, :1]
    spy = Spy(lambda x, y: x.sum(axis=-1))
    result = sliced(spy, "(n),(m)->()", 200)(x, np.ones((4, 3)))
    assert len(spy.calls) > 1
    np.testing.assert_array_equal(result, np.broadcast_to(x.sum(axis=-1), (10, 4)))
    assert y.shape == (10, 1)


def test_lost_loop_dim_is_refused_in_the_first_slice():
    spy = Spy(lambda x: x.sum(axis=(0, 1)))
    with pytest.raises(au.OutputShapeError, match="is a core dimension missing"):
        sliced(spy, "(n)->()")(X)
    assert len(spy.calls) == 1


def test_bounded_sizes_are_padded_in_every_slice():
    kernel = lambda x: x[..., : 1 + int(x[0, 0, 0]) // 100]
    result = sliced(kernel, "(n)->(k)", output_sizes={"k": au.UpTo(3, fill_value=-1)})(X)
    assert result.shape == (10, 4, 3)
    assert (result[0, 0].tolist(), result[9, 0].tolist()) == ([0, -1, -1], [216, 217, 218])


def test_unknown_size_is_one_for_all_slices():
    result = sliced(lambda x: x[..., ::2], "(n)->(k)", output_sizes={"k": None})(X)
    np.testing.assert_array_equal(result, X[..., ::2])
    kernel = lambda x: x[..., : 1 + int(x[0, 0, 0]) // 100]
    with pytest.raises(au.OutputShapeError, match=r"output 0, core dimension k: unknown size is 1 in one slice and 2"):
        sliced(kernel, "(n)->(k)", output_sizes={"k": None})(X)


@pytest.mark.parametrize("masked", [0, 9], ids=["first", "last"])
def test_masks_are_kept(masked):
    x = np.ma.MaskedArray(X, fill_value=-5.0)
    x[masked, 1, 2] = np.ma.masked
    kernel = lambda x: x * 2
    result, expected = sliced(kernel, "(n)->(n)")(x), au.gufunc("(n)->(n)")(kernel)(x)
    assert type(result) is np.ma.MaskedArray
    assert result.fill_value == expected.fill_value
    np.testing.assert_array_equal(np.ma.getmaskarray(result), np.ma.getmaskarray(expected))
    np.testing.assert_array_equal(result.filled(), expected.filled())


def test_objects_stay_the_objects_that_they_are():
    objects = np.array([object() for _ in range(20)])
    result = sliced(lambda x: x[:, ::-1], "(n)->(n)", 40, output_dtypes=object)(objects.reshape(10, 2))
    assert all(one is other for one, other in zip(result[:, ::-1].ravel(), objects, strict=True))


def test_views_that_a_kernel_keeps_are_no_part_of_the_result():
    buffer = np.empty(24)

    def kernel(x):
        out = buffer[: x.size].reshape(x.shape)
        np.multiply(x, 2, out=out)
        return out

    np.testing.assert_array_equal(sliced(kernel, "(n)->(n)", 300)(X), 2 * X)


# What a kernel gets


@pytest.mark.parametrize("block_bytes", [1, 200, 1000, "1 kB", 5000, "1 MiB", None])
def test_kernel_gets_no_more_bytes_than_it_may(block_bytes):
    spy = Spy()
    result = sliced(spy, "(n)->()", block_bytes)(X)
    np.testing.assert_array_equal(result, X.sum(axis=-1))
    limit = {"1 kB": 1000, "1 MiB": 1 << 20, None: 1 << 20}.get(block_bytes, block_bytes)
    n_bytes = [(x.size + x.size // 6) * 8 for (x,) in spy.calls]
    assert max(n_bytes) <= max(limit, 7 * 8)  # an item is not cut
    assert (len(spy.calls) == 1) == (limit > X.nbytes)


def test_first_loop_dims_are_cut_first():
    spy = Spy()
    sliced(spy, "(n)->()", 700)(X)
    assert spy.shapes == [((3, 4, 6),), ((3, 4, 6),), ((3, 4, 6),), ((1, 4, 6),)]
    spy.calls.clear()
    sliced(spy, "(n)->()", 130)(X)
    assert spy.shapes == [((1, 2, 6),)] * 20


def test_slices_are_views_and_what_broadcasts_is_whole_in_each():
    spy = Spy()
    y, z = np.ones((4, 3)), np.ones(2)
    sliced(spy, "(n),(m),(k)->()", 500)(X, y, z)
    assert len(spy.calls) > 2
    for x_slice, y_slice, z_slice in spy.calls:
        assert np.shares_memory(x_slice, X)
        assert np.shares_memory(y_slice, y)
        assert (y_slice.shape, z_slice.shape) == ((1, 4, 3), (1, 1, 2))
        assert not x_slice.flags.writeable


def test_scalars_and_keywords_reach_every_slice():
    def kernel(x, p, nothing, scale):
        assert (type(p), nothing) == (int, None)
        return x.sum(axis=-1) * scale + p

    result = au.apply_ufunc(kernel, "(n),(),()->()", X, 3, None, scale=2.0, block_bytes=300)
    np.testing.assert_array_equal(result, X.sum(axis=-1) * 2 + 3)


def test_writable_slices_are_the_kernels_own():
    def kernel(x):
        x += 1
        return x

    before = X.copy()
    np.testing.assert_array_equal(sliced(kernel, "(n)->(n)", writable=True)(X), X + 1)
    np.testing.assert_array_equal(X, before)


def test_slices_are_cast_one_by_one():
    spy = Spy()
    x = X.astype("f4")
    result = sliced(spy, "(n)->()", compute_dtype="f8")(x)
    assert {arg.dtype for (arg,) in spy.calls} == {np.dtype("f8")}
    assert result.dtype == np.float32


def test_empty_loop_and_loops_that_are_none_are_not_cut():
    spy = Spy()
    assert sliced(spy, "(n)->()", 1, output_dtypes=float)(np.ones((0, 3))).shape == (0,)
    assert not spy.calls
    assert sliced(spy, "(n)->()", 1)(np.ones(300)) == 300
    assert sliced(spy, "(n)->()", 1)(np.ones((2, 0))).tolist() == [0, 0]
    assert len(spy.calls) == 3


# On other backends


def test_slices_of_dask_blocks():
    da = pytest.importorskip("dask.array")
    spy = Spy()
    result = sliced(spy, "(n)->()", 300, output_dtypes=float)(da.from_array(X, chunks=(5, 4, 6)))
    assert not spy.calls
    np.testing.assert_array_equal(result.compute(scheduler="sync"), X.sum(axis=-1))
    assert spy.shapes == [((1, 4, 6),)] * 10


@pytest.mark.parametrize("route", ["ffi", "pure_callback"])
def test_slices_in_a_callback(route):
    jax = pytest.importorskip("jax")
    spy = Spy(lambda x: (x.sum(axis=-1), x * 2))
    function = sliced(spy, "(n)->(),(n)", 300, output_dtypes=np.float32, callback=route)
    total, double = jax.jit(function)(jax.numpy.asarray(X, "f4"))
    np.testing.assert_array_equal(total, X.sum(axis=-1).astype("f4"))
    np.testing.assert_array_equal(double, 2 * X.astype("f4"))
    assert spy.shapes == [((1, 4, 6),)] * 10
    other = jax.jit(function.with_options(block_bytes=None))(jax.numpy.asarray(X, "f4"))
    np.testing.assert_array_equal(other[0], total)
    assert len(spy.calls) == 11


def compiled(torch, function):
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize(
    "road", [lambda torch, f: f, lambda torch, f: torch.vmap(f), compiled], ids=["eager", "vmap", "op"]
)
def test_slices_of_torch_tensors_and_in_an_operator(road):
    torch = pytest.importorskip("torch")
    spy = Spy()
    tensor = torch.from_numpy(X.copy())
    result = road(torch, sliced(spy, "(n)->()", 300, output_dtypes=np.float64))(tensor)
    np.testing.assert_array_equal(result.numpy(), X.sum(axis=-1))
    assert spy.shapes == [((1, 4, 6),)] * 10
    assert all(np.shares_memory(part, tensor.numpy()) for (part,) in spy.calls)


def test_derivatives_are_cut_as_their_kernel_is():
    jax = pytest.importorskip("jax")
    spy = Spy(lambda x: 2 * x)
    energy = sliced(lambda x: (x**2).sum(axis=-1), "(n)->()", 300, output_dtypes=np.float32, jac=spy)
    gradient = jax.grad(lambda x: energy(x).sum())(jax.numpy.asarray(X, "f4"))
    np.testing.assert_allclose(gradient, 2 * X)
    assert len(spy.calls) > 5


# What is said of it


def test_note_says_which_slice_failed():
    def kernel(x):
        if x.max() > 100:
            raise ValueError("too large")
        return x.sum(axis=-1)

    with pytest.raises(ValueError, match="too large") as caught:
        sliced(kernel, "(n)->()", 700)(X)
    (note,) = caught.value.__notes__
    assert note == (
        "in kernel 'kernel' with signature '(n)->()', called with float64(3, 4, 6), "
        "block [3:6, 0:4] of the loop dimensions"
    )


def test_note_says_where_in_the_whole_a_slice_of_a_block_is():
    da = pytest.importorskip("dask.array")

    def kernel(x):
        if x.max() > 200:
            raise ValueError("too large")
        return x.sum(axis=-1)

    result = sliced(kernel, "(n)->()", 700, output_dtypes=float)(da.from_array(X, chunks=(5, 4, 6)))
    with pytest.raises(ValueError, match="too large") as caught:
        result.compute(scheduler="sync")
    assert "block [8:10, 0:4] of the loop dimensions" in caught.value.__notes__[0]


def test_explanation_tells_the_slices_and_counts_the_calls():
    spy = Spy()
    function = sliced(spy, "(n)->()", 130)
    explanation = function.explain(X)
    assert explanation.slices == (("-2", 1), ("-1", 2))
    assert "up to 1 x 2 along loop -2, -1: the kernel gets one at a time" in " ".join(str(explanation).split())
    function(X)
    assert explanation.n_calls == len(spy.calls) == 20
    whole = function.with_options(block_bytes="1 MiB").explain(X)
    assert (whole.slices, whole.n_calls) == ((), 1)


def test_explanation_counts_the_slices_of_all_blocks():
    da = pytest.importorskip("dask.array")
    spy = Spy()
    function = sliced(spy, "(n)->()", 700, output_dtypes=float)
    lazy = da.from_array(X, chunks=((7, 0, 3), 4, 6))
    explanation = function.explain(lazy)
    function(lazy).compute(scheduler="sync")
    assert explanation.n_calls == len(spy.calls) == 4
    assert explanation.slices == (("-2", 3), ("-1", 4))


REFUSED = {
    "no bytes": ({"block_bytes": 0}, "block_bytes takes a positive number of bytes, text such as '128 MiB', got 0"),
    "no text of bytes": ({"block_bytes": "keep"}, "block_bytes takes a positive number of bytes"),
    "no number": ({"block_bytes": 1.5}, "takes an integer, got 1.5"),
    "items": ({"vectorize": True}, "one item with vectorize: drop either"),
    "compiled items": ({"vectorize": "numba"}, "one item with vectorize: drop either"),
    "a traced kernel": ({"kernel_arrays": "traced"}, "a traced one gets nothing: drop either"),
    "pieces": ({"core_chunks": np.add}, "core_chunks=ufunc has pieces of its own: drop either"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_slices_are_not_for_is_refused(case):
    options, message = REFUSED[case]
    with pytest.raises(au.OptionError, match=message):
        au.gufunc("(n)->()", **{"block_bytes": 100, **options})


def test_kernel_that_jax_traces_is_not_cut():
    jax = pytest.importorskip("jax")
    function = sliced(jax.jit(lambda x: x.sum(axis=-1)), "(n)->()")
    for call in (function, function.explain):
        with pytest.raises(au.OptionError, match="is traced by JAX: drop it, or pass kernel_arrays='numpy'"):
            call(jax.numpy.ones((2, 3)))


def test_slices_survive_pickling():
    function = pickle.loads(pickle.dumps(au.gufunc("(n),(n)->()", block_bytes=100)(np.vecdot)))
    assert function.explain(X, X).n_calls == 40


# What it is for


def test_memory_is_that_of_the_outputs_and_of_a_few_slices():
    def kernel(x, y):
        return ((x * y + x) / (y + 1) - x * x).sum(axis=-1)

    x = np.ones((40_000, 32))  # 10 MB
    function = sliced(kernel, "(n),(n)->()", "256 KiB")
    tracemalloc.start()
    try:
        function(x, x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000 * 8 + 4 * 256 * 1024  # bytes
