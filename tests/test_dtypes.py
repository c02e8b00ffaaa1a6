"""`applyufunc._dtypes`: declared dtypes, a ufunc's own table, and the one call on made-up values."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest

import applyufunc as au
from applyufunc import OptionError, Signature, UnknownDTypeError, UpTo
from applyufunc._blocks import BlockRunner
from applyufunc._declared_dtypes import declared_dtypes
from applyufunc._dtypes import PROBE_LIMIT, discovered_dtypes
from applyufunc._kernel import make_kernel
from applyufunc._options import Options, make_options
from applyufunc._plan import make_plan

F4, F8, I8 = np.dtype("f4"), np.dtype("f8"), np.dtype("i8")


def declared(output_dtypes, inputs=(F8,), nout=1):
    defaults = {bool: np.dtype(bool), int: np.dtype("i4"), float: F4, complex: np.dtype("c8")}
    return declared_dtypes(output_dtypes, inputs, nout, defaults.__getitem__)


def found(func, text, *shapes_and_dtypes, constants=(), keywords=None, sizes=(), **options):
    signature = Signature.parse(text)
    kernel = make_kernel(func, make_options(Options(), options))
    runner = BlockRunner(kernel, signature, constants, keywords or {}, sizes, None)
    places = dict(constants)
    shapes = tuple(
        (None if places[i] is None else ()) if i in places else s for i, (s, _) in enumerate(shapes_and_dtypes)
    )
    plan = make_plan(signature, shapes, sizes)
    return discovered_dtypes(runner, plan, [dtype for _, dtype in shapes_and_dtypes], lambda array: array, ())[1]


class Counted:
    """A kernel that counts its calls and keeps what it got."""

    def __init__(self, func):
        self.func = func
        self.calls = []

    def __call__(self, *args, **keywords):
        self.calls.append(args)
        return self.func(*args, **keywords)


@pytest.mark.parametrize(
    ("given", "nout", "expected"),
    [
        (np.float32, 1, (F4,)),
        ("f8", 2, (F8, F8)),
        (["f8", np.int64], 2, (F8, I8)),
        (("f8",), 1, (F8,)),
        (float, 1, (F4,)),
        (int, 1, (np.dtype("i4"),)),
        ([bool, complex], 2, (np.dtype(bool), np.dtype("c8"))),
        (np.dtype("M8[s]"), 1, (np.dtype("M8[s]"),)),
        (np.dtype([("a", "i8")]), 1, (np.dtype([("a", "i8")]),)),
        (str, 1, (np.dtype("U"),)),
    ],
)
def test_dtypes_are_declared_for_all_outputs_or_for_each(given, nout, expected):
    assert declared(given, nout=nout) == expected


@pytest.mark.parametrize("given", [np.dtype("f8"), "f8", np.float64, "float64"])
def test_only_python_types_mean_the_default_of_a_library(given):
    assert declared(given) == (F8,)


def test_a_callable_gets_dtypes_and_the_type_of_a_weak_scalar():
    seen = []

    def rule(*dtypes):
        seen.append(dtypes)
        return dtypes[0]

    assert declared(rule, (F4, None, float)) == (F4,)
    assert seen == [(F4, float)]
    assert declared(np.result_type, (F4, I8)) == (F8,)
    assert declared(lambda *dtypes: [float, dtypes[0]], (I8,), nout=2) == (F4, I8)


def test_an_error_of_a_callable_says_what_it_got():
    with pytest.raises(ZeroDivisionError) as caught:
        declared(lambda dtype: 1 // 0, (F4,))
    assert caught.value.__notes__ == ["in the callable given as output_dtypes, called with float32"]


@pytest.mark.parametrize(
    ("given", "nout", "message"),
    [
        (["f8", "f8"], 3, "output_dtypes has 2 dtype(s), expected 3: one per output, or one for all"),
        (["f8", "f8"], 1, "output_dtypes has 2 dtype(s), expected 1: one per output, or one for all"),
        ([None, "f8"], 2, "output_dtypes has None for one output, expected a dtype"),
        ("flot", 1, "output_dtypes has 'flot', which is no dtype"),
        (5, 1, "output_dtypes has 5, which is no dtype"),
        ("M8", 1, "output_dtypes has datetime64 without a unit, expected one such as 'datetime64[s]'"),
        (np.timedelta64, 1, "output_dtypes has timedelta64 without a unit, expected one such as 'timedelta64[s]'"),
    ],
)
def test_what_is_no_dtype_is_refused(given, nout, message):
    with pytest.raises(OptionError) as caught:
        declared(given, nout=nout)
    assert str(caught.value) == message


def test_the_table_of_a_ufunc_is_asked_first():
    assert found(np.add, "(),()->()", ((3,), F4), ((3,), F8)) == (F8,)
    assert found(np.add, "(),()->()", ((3,), F4), ((), float), constants=((1, 2.5),)) == (F4,)
    assert found(np.divmod, "(),()->(),()", ((3,), I8), ((3,), I8)) == (I8, I8)
    assert found(np.vecdot, "(n),(n)->()", ((3, 10**9), I8), ((10**9,), F4)) == (F8,)  # too large for a call


def test_a_table_that_knows_no_loop_raises_as_the_ufunc_does():
    with pytest.raises(TypeError) as caught:
        found(np.add, "(),()->()", ((3,), np.dtype("M8[s]")), ((3,), np.dtype("M8[s]")))
    assert caught.value.__notes__ == ["in kernel 'add', when its output dtypes were looked up"]


def test_a_table_does_not_know_what_a_keyword_does():
    assert found(np.add, "(),()->()", ((3,), F4), ((3,), F4), keywords={"dtype": "f8"}) == (F8,)


def test_a_probe_gets_the_real_core_sizes_and_one_loop_item():
    kernel = Counted(lambda x, y: (x.sum(axis=(-2, -1)), np.zeros((1, 1, 2), "i2")))
    assert found(kernel, "(m,n),()->(),(2)", ((7, 5, 4, 3), F4), ((5,), I8)) == (F4, np.dtype("i2"))
    assert [[arg.shape for arg in args] for args in kernel.calls] == [[(1, 1, 4, 3), (1, 1)]]
    kernel = Counted(lambda x, y: x.sum())
    found(kernel, "(n),()->()", ((7, 3), F4), ((7,), I8), vectorize=True)
    assert [[arg.shape for arg in args] for args in kernel.calls] == [[(3,), ()]]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i8", "u1", "?", "M8[s]", "m8[ns]", "U5", "S2", "O", "V3"])
def test_made_up_values_have_the_dtype_of_the_input(dtype):
    kernel = Counted(lambda x: x)
    assert found(kernel, "(n)->(n)", ((7, 3), np.dtype(dtype))) == (np.dtype(dtype),)
    assert kernel.calls[0][0].dtype == dtype


def test_made_up_matrices_are_well_conditioned():
    kernel = Counted(lambda a: (np.linalg.cholesky(a + np.swapaxes(a, -1, -2)), np.linalg.inv(a)))
    assert found(kernel, "(n,n)->(n,n),(n,n)", ((7, 6, 6), F4)) == (F4, F4)
    assert np.linalg.cond(kernel.calls[0][0][0]) < 10
    assert (kernel.calls[0][0] > 0).all()


def test_a_probe_takes_python_scalars_and_none_as_they_are():
    kernel = Counted(lambda x, p, q: x * p)
    assert found(kernel, "(n),(),(n)->(n)", ((7, 3), F4), ((), float), ((), None), constants=((1, 2.5), (2, None))) == (
        F4,
    )
    assert kernel.calls[0][1:] == (2.5, None)


def test_what_was_found_is_remembered_for_the_same_sizes_dtypes_scalars_and_keywords():
    kernel = Counted(lambda x, p, **keywords: x * p)

    def look(size=3, dtype=F4, scalar=2, keywords=None):
        before = len(kernel.calls)
        args = ((7, size), dtype), ((), type(scalar))
        found(kernel, "(n),()->(n)", *args, constants=((1, scalar),), keywords=keywords)
        return len(kernel.calls) - before

    assert [look(), look(), look(size=4), look(dtype=F8), look(scalar=2.0), look(scalar=True), look()] == [
        1,
        0,
        1,
        1,
        1,
        1,
        0,
    ]
    assert [look(keywords={"p1": (1,)}), look(keywords={"p1": (1.0,)}), look(keywords={"p1": (1,)})] == [1, 1, 0]
    assert [look(keywords={"p1": [1]}), look(keywords={"p1": [1]})] == [1, 1]


def test_a_kernel_without_a_hash_is_asked_once():
    class Unhashable(Counted):
        __hash__ = None

    kernel = Unhashable(lambda x: x)
    found(kernel, "()->()", ((7,), F4))
    assert found(kernel, "()->()", ((7,), F4)) == (F4,)
    assert len(kernel.calls) == 1


def test_a_kernel_that_takes_no_weak_reference_is_asked_each_time():
    class Slotted:
        __slots__ = ("calls",)

        def __call__(self, x):
            self.calls += 1
            return x

    kernel = Slotted()
    kernel.calls = 0
    found(kernel, "()->()", ((7,), F4))
    assert found(kernel, "()->()", ((7,), F4)) == (F4,)
    assert kernel.calls == 2


def test_kernels_that_are_equal_are_asked_each():
    @dataclass(frozen=True)
    class Add:
        offset: object

        def __call__(self, x):
            return x + self.offset

    one, other = Add(1), Add(1.0)
    assert one == other
    assert found(one, "()->()", ((7,), I8)) == (I8,)
    assert found(other, "()->()", ((7,), I8)) == (F8,)


@pytest.mark.parametrize("order", [1, -1], ids=["narrow first", "wide first"])
def test_one_kernel_for_arrays_of_any_library_has_the_dtypes_of_each(order):
    jax = pytest.importorskip("jax")
    da = pytest.importorskip("dask.array")
    x = np.arange(6, dtype="i4").reshape(2, 3)

    def jitted(f, *, x64):
        with jax.enable_x64(x64):
            return jax.jit(f)(x)

    ways = {
        "jit": (lambda f: jitted(f, x64=False), ("f4", "i4")),
        "jit with x64": (lambda f: jitted(f, x64=True), ("f4", "i8")),
        "dask": (lambda f: f(da.from_array(x)), ("f8", "i8")),
        "masked": (lambda f: f(da.from_array(np.ma.masked_equal(x, 0))), ("f8", "i8")),
        "numpy": (lambda f: f(x), ("f8", "i8")),
        "empty": (lambda f: f(x[:0]), ("f8", "i8")),
    }
    f = au.gufunc("(n)->(),()", kernel_arrays="same")(lambda rows: (rows.mean(axis=-1), rows.sum(axis=-1)))
    results = {name: tuple(y.dtype.str[1:] for y in way(f)) for name, (way, _) in list(ways.items())[::order]}
    assert results == {name: expected for name, (_, expected) in ways.items()}


def test_memory_does_not_keep_a_kernel_alive():
    import gc
    import weakref

    kernel = Counted(lambda x: x)
    found(kernel, "()->()", ((7,), F4))
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def test_a_probe_that_raises_asks_for_output_dtypes():
    def kernel(x):
        raise KeyError("boom")

    with pytest.raises(UnknownDTypeError) as caught:
        found(kernel, "(n)->()", ((7, 3), F4))
    assert str(caught.value) == (
        "the output dtypes of kernel 'kernel' are not known, and a call on made-up values to learn them raised "
        "KeyError: 'boom'; pass output_dtypes, and the kernel is not called for them"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_too_large_a_probe_asks_for_output_dtypes():
    kernel = Counted(lambda x: x)
    assert found(kernel, "(n)->(n)", ((7, PROBE_LIMIT // 2), F4)) == (F4,)
    with pytest.raises(UnknownDTypeError, match=r"one item has 100,002 core elements, too many.*; pass output_dtypes"):
        found(kernel, "(n)->(n)", ((7, PROBE_LIMIT // 2 + 1), F4))
    assert len(kernel.calls) == 1


def test_an_unknown_core_size_asks_for_output_dtypes():
    with pytest.raises(UnknownDTypeError, match="size of core dimension 'n' is unknown; pass output_dtypes"):
        found(lambda x: x, "(n)->(n)", ((7, None), F4))


def test_an_unknown_loop_size_is_no_matter():
    assert found(lambda x: x, "(n)->(n)", ((None, 3), F4)) == (F4,)


def test_padding_counts_for_the_dtype():
    nan = (("k", UpTo(5, float("nan"))),)
    assert found(lambda x: x[..., :2].astype("i4"), "(n)->(k)", ((7, 3), F4), sizes=nan) == (F8,)
    assert found(np.negative, "(n)->(k)", ((7, 3), I8), sizes=nan) == (F8,)


def test_a_partial_is_asked_as_a_function():
    assert found(functools.partial(np.sum, axis=-1), "(n)->()", ((7, 3), np.dtype("i4"))) == (I8,)


def test_what_a_probe_returns_is_checked():
    with pytest.raises(
        UnknownDTypeError, match="OutputShapeError: output 0, core dimension n: expected 3, kernel returned 2"
    ):
        found(lambda x: x[..., 1:], "(n)->(n)", ((7, 3), F4))


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_block_that_does_not_cast_to_what_was_found_asks_for_output_dtypes(vectorize):
    da = pytest.importorskip("dask.array")

    def kernel(row):
        return (row * 2 if row.size and row.max() > 2 else row.astype("i4")).sum(axis=-1)

    x = da.full((4, 3), 5.0)
    message = (
        "output 0: kernel returned float64, which does not cast to int64 (rule: same_kind); int64 is what a call on "
        "made-up values gave: pass output_dtypes"
    )
    with pytest.raises(au.OutputDTypeError) as caught:
        au.apply_ufunc(kernel, "(n)->()", x, vectorize=vectorize).compute(scheduler="sync")
    assert str(caught.value) == message
    with pytest.raises(au.OutputDTypeError, match="does not cast to the declared int64"):
        au.apply_ufunc(kernel, "(n)->()", x, vectorize=vectorize, output_dtypes=int).compute(scheduler="sync")
