"""JAX: the fast call on the CPU, where a kernel works in XLA's own memory, and the option that chooses it."""

from __future__ import annotations

import gc
import re
import shutil
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from fresh_process import run
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import applyufunc as au
from applyufunc._blocks import BlockRunner
from applyufunc._kernel import make_kernel
from applyufunc._options import Options
from applyufunc._signature import Signature

jax = pytest.importorskip("jax")
jnp = jax.numpy

ROUTES = ["ffi", "pure_callback"]


def scalar_function(func, **options):
    return au.gufunc("()->()", output_dtypes=float, **options)(func)


def address(array):
    return array.__array_interface__["data"][0]


def targets(f, *args):
    """Return what a compiled call calls in the program for this platform."""
    text = jax.jit(f).lower(*args).as_text()
    return sorted({word for word in text.split() if word.startswith("@") and "call" in word})


# Which route


def test_a_program_for_the_cpu_has_the_fast_call_alone():
    x = jnp.ones(3)
    assert [name.partition("(")[0] for name in targets(scalar_function(np.sqrt), x)] == ["@applyufunc.call"]
    slow = targets(scalar_function(np.sqrt, callback="pure_callback"), x)
    assert [name.partition("(")[0] for name in slow] == ["@xla_ffi_python_cpu_callback"]


def test_a_traced_call_has_a_callback_of_jax_for_other_platforms():
    calls = re.findall(r"\b(ffi_call|pure_callback)\[", str(jax.make_jaxpr(scalar_function(np.sqrt))(jnp.ones(3))))
    assert sorted(set(calls)) == ["ffi_call", "pure_callback"]


def scale_and_find(x, y):
    return x * y[..., None], x.argmax(axis=-1)


@pytest.mark.parametrize("callback", ["auto", *ROUTES])
def test_every_route_gives_the_same_values(callback):
    f = au.gufunc("(n),()->(n),()", output_dtypes=(float, int), callback=callback)(scale_and_find)
    x, y = np.arange(6.0, dtype="f4").reshape(2, 3), np.arange(2.0, dtype="f4")
    product, place = jax.jit(f)(x, y)
    np.testing.assert_array_equal(product, [[0, 0, 0], [3, 4, 5]])
    np.testing.assert_array_equal(place, [2, 2])


def test_other_values_of_the_option_are_refused():
    with pytest.raises(au.OptionError, match="callback takes 'auto', 'ffi' or 'pure_callback', got 'fast'"):
        scalar_function(np.sqrt, callback="fast")


def test_fast_call_is_refused_where_it_cannot_be_had():
    same = scalar_function(jnp.sqrt, callback="ffi", kernel_arrays="same")
    with pytest.raises(au.OptionError, match="callback='ffi' cannot be had for kernel 'sqrt': a kernel that takes JAX"):
        jax.jit(same)(jnp.ones(3))
    with pytest.raises(
        au.OptionError, match=r"kernel '<lambda>': dtype int4 .*; callback='auto' takes jax\.pure_callback"
    ):
        jax.jit(scalar_function(lambda x: x * 1.0, callback="ffi"))(jnp.ones(3, "int4"))


def test_fast_call_is_refused_for_other_platforms():
    traced = jax.jit(scalar_function(np.sqrt, callback="ffi")).trace(jnp.ones(3))
    with pytest.raises(au.OptionError, match="kernel 'sqrt' is compiled for cuda: pass callback='auto'"):
        traced.lower(lowering_platforms=("cuda",))


def test_where_the_self_test_fails_the_other_route_is_taken(monkeypatch):
    monkeypatch.setattr("applyufunc._lowering._jax._callback.why_unavailable", lambda: "values do not arrive")
    x = jnp.ones(3)
    assert "@applyufunc.call" not in str(targets(scalar_function(lambda v: v + 1), x))
    with pytest.raises(au.OptionError, match="kernel '<lambda>': values do not arrive"):
        jax.jit(scalar_function(lambda v: v + 1, callback="ffi"))(x)


def test_self_test_finds_wrong_values_and_lost_errors(monkeypatch):
    from applyufunc._lowering._jax import _self_test

    def scrambled(identified, types, *arrays):
        return tuple(jnp.roll(array, 1) for array in arrays)

    assert _self_test._try_on_a_thread() == ""
    monkeypatch.setattr(_self_test, "foreign_call", scrambled)
    assert "do not arrive" in _self_test._try_on_a_thread()
    monkeypatch.setattr(_self_test, "foreign_call", lambda identified, types, *arrays: arrays)
    assert _self_test._try_on_a_thread() == "an error does not arrive"


def test_self_test_is_right_whatever_the_caller_has_set():
    assert run(
        """
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        f = au.gufunc("()->()", output_dtypes=float, callback="ffi")(np.sqrt)
        mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
        x = np.full(4, 4, "f4")
        with jax.set_mesh(mesh), jax.transfer_guard("disallow_explicit"), jax.numpy_dtype_promotion("strict"):
            print(jax.jit(f).lower(jax.ShapeDtypeStruct((4,), "f4")).compile() is not None)
        print(jax.jit(f)(x).tolist() == [2.0] * 4)
        """,
        devices=2,
    ) == ["True", "True"]


# What the kernel gets


def test_after_the_first_call_a_kernel_reads_the_arrays_where_they_are():
    seen = []
    f = jax.jit(scalar_function(lambda x: (seen.append((address(x), x.flags.writeable)), x + 1)[1]))
    x = jnp.arange(1000.0)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), np.arange(1000) + 1)
    (first, _), *others = seen
    assert first != address(np.asarray(x))
    assert others == [(address(np.asarray(x)), False)] * 2


def test_outputs_of_a_ufunc_are_written_where_they_belong():
    from applyufunc._lowering._jax._filling import make_filler

    def filler(func, dtype, *blocks, **options):
        kernel = make_kernel(func, Options(**options))
        return make_filler(BlockRunner(kernel, Signature.parse("(),()->()"), (), {}, (), (np.dtype(dtype),)), blocks)

    x, y = np.ones((2, 3), "f4"), np.arange(3, dtype="f4")
    output = np.zeros((2, 3), "f4")
    add = filler(np.add, "f4", x, y)
    add([x, y], [output])
    np.testing.assert_array_equal(output, x + y)
    assert add.is_ufunc
    assert not filler(np.add, "f8", x, y).is_ufunc  # cast, and checked
    assert not filler(np.add, "i2", y.astype("i4"), y.astype("i4")).is_ufunc
    assert not filler(lambda a, b: a + b, "f4", x, y).is_ufunc
    assert not filler(np.add, "f4", x, y, thread_safe=False).is_ufunc  # takes turns


def test_outputs_of_a_gufunc_are_checked_under_jit():
    f = jax.jit(au.gufunc("(),()->()", output_dtypes="f4")(np.vecdot))
    with pytest.raises(au.OutputShapeError, match="is a core dimension missing from the signature"), au.reraise():
        jax.block_until_ready(f(np.ones((3, 3), "f4"), np.ones((3, 3), "f4")))


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3", "float8_e3m4", "int4", "uint4"),
]


@settings(max_examples=25)
@given(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
def test_every_dtype_and_shape_arrives_and_comes_back(dtype, shape):
    def kernel(x):
        assert (x.dtype, x.ndim) == (jnp.dtype(dtype), len(shape))
        return x[..., ::-1] if x.ndim else x

    with jax.enable_x64(True):
        x = jnp.asarray(np.arange(np.prod(shape)).reshape(shape) % 3).astype(dtype)
        result = jax.jit(au.gufunc("()->()", output_dtypes=jnp.dtype(dtype))(kernel))(x)
    assert (result.dtype, result.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(x)[..., ::-1] if shape else np.asarray(x))


def test_float0_is_refused_by_name():
    zero = np.zeros(3, jax.dtypes.float0)
    with pytest.raises(au.ArgumentError, match="argument 1 has dtype"):
        jax.jit(lambda x: au.apply_ufunc(np.add, "(),()->()", x, zero, output_dtypes=float))(jnp.ones(3))


def test_masked_results_are_refused_under_jit():
    f = jax.jit(scalar_function(lambda x: np.ma.masked_equal(x, 1)))
    with pytest.raises(au.OutputDTypeError, match="output 0: kernel returned a masked array"), au.reraise():
        jax.block_until_ready(f(jnp.ones(2)))


def test_x64_holds_for_the_kernels_results():
    with jax.enable_x64(True):
        result = jax.jit(scalar_function(lambda x: x + np.pi))(jnp.zeros(2))
    np.testing.assert_array_equal(result, [np.pi, np.pi])


# Memory that is XLA's


def test_a_kernel_that_keeps_its_arguments_keeps_copies():
    kept = []
    f = jax.jit(scalar_function(lambda x: (kept.append(x[1:]), x * 2)[1]))
    for value in range(4):
        jax.block_until_ready(f(jnp.full(100_000, value)))
        jax.block_until_ready(jnp.full(100_000, -1.0))  # which may well get the same memory
    for value, array in enumerate(kept):
        np.testing.assert_array_equal(array, np.full(99_999, value))


def test_a_kernel_that_begins_to_keep_its_arguments_is_told_so():
    kept = []

    def kernel(x, y):
        if y.max() > 1:
            kept.append(memoryview(y))
        return x + y

    f = jax.jit(au.gufunc("(),()->()", output_dtypes=float)(kernel))
    jax.block_until_ready(f(jnp.ones(3), jnp.ones(3)))
    message = "the kernel keeps a view of argument 1 after its call.*: keep a copy of it"
    with pytest.raises(au.KernelError, match=message), au.reraise():
        jax.block_until_ready(f(jnp.ones(3), jnp.full(3, 2.0)))
    kept.clear()
    np.testing.assert_array_equal(f(jnp.ones(3), jnp.full(3, 2.0)), [3, 3, 3])
    assert kept[0].tolist() == [2, 2, 2]


def test_what_another_thread_lets_go_of_a_little_later_is_not_kept():
    helpers = []

    def kernel(x):
        if x.max() > 1:
            helpers.append(threading.Thread(target=lambda x: time.sleep(0.02), args=(x,)))
            helpers[-1].start()
            cycle = [x]
            cycle.append(cycle)
        return x + 1

    f = jax.jit(scalar_function(kernel))
    for value in (1.0, 2.0):
        np.testing.assert_array_equal(f(jnp.full(3, value)), [value + 1] * 3)
    helpers[0].join()


def failing(x):
    if x.min() < 0:
        own = x + 0
        raise ValueError(f"negative: {own.min()}")
    return x


def locals_of_failure(f, x):
    with pytest.raises(ValueError, match="negative: -1") as caught, au.reraise():
        jax.block_until_ready(f(x))
    (entry,) = [entry for entry in caught.traceback if entry.name == "failing"]
    return sorted(entry.frame.raw.f_locals)


def test_frames_of_an_exception_hold_no_memory_of_xla():
    f = jax.jit(scalar_function(lambda x: failing(x)))  # noqa: PLW0108  # another kernel than below
    assert locals_of_failure(f, -jnp.ones(3)) == ["own", "x"]  # the first call has copies
    f = jax.jit(scalar_function(failing))
    jax.block_until_ready(f(jnp.ones(3)))
    assert locals_of_failure(f, -jnp.ones(3)) == []
    assert locals_of_failure(f, -jnp.ones(3)) == ["own", "x"]


def test_an_exception_that_holds_an_argument_arrives_as_text():
    def kernel(x):
        if x.min() < 0:
            raise ValueError("negative", x)
        return x

    f = jax.jit(scalar_function(kernel))
    jax.block_until_ready(f(jnp.ones(2)))
    with pytest.raises(au.KernelError, match=r"ValueError: \('negative', array\(\[-1\., -1\.\]"), au.reraise():
        jax.block_until_ready(f(-jnp.ones(2)))


@pytest.mark.parametrize("callback", ROUTES)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exceptions_that_end_a_program_do_not_pass_for_success(error, callback):
    def kernel(x):
        raise error

    f = jax.jit(au.gufunc("()->()", output_dtypes=float, callback=callback)(kernel))
    words = f"kernel 'kernel' failed with {type(error).__name__}"
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=words):
        jax.block_until_ready(f(jnp.ones(2)))
    with pytest.raises(type(error)), au.reraise():
        jax.block_until_ready(f(jnp.ones(2)))


class HoldingError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class OddMembersError(HoldingError):
    exceptions = 3  # no group of exceptions


@pytest.mark.parametrize("kind", [HoldingError, OddMembersError])
def test_an_exception_that_holds_an_argument_and_has_no_text_is_named(kind):
    def kernel(x):
        if x.min() < 0:
            raise kind(x)
        return x

    f = jax.jit(scalar_function(kernel))
    jax.block_until_ready(f(jnp.ones(2)))
    words = rf"kernel 'kernel' failed with KernelError: {kind.__name__}: \(its text raised RuntimeError\)"
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=words):
        jax.block_until_ready(f(-jnp.ones(2)))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_nobody_can_write_into_an_argument_at_the_first_call_or_later(dtype):
    def kernel(x):
        while isinstance(x, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                x.flags.writeable = True
            x = x.base
        return np.ones(2, dtype)

    f = jax.jit(au.gufunc("(n)->(n)", output_dtypes=dtype, callback="ffi")(kernel))
    for _ in range(3):
        jax.block_until_ready(f(jnp.ones(2, dtype)))


@pytest.mark.parametrize("callback", ROUTES)
def test_reraise_knows_the_error_of_several_results_waited_for_at_once(callback):
    def kernel(x):
        raise KeyError("boom")

    f = jax.jit(au.gufunc("()->(),()", output_dtypes=(float, float), callback=callback)(kernel))
    with pytest.raises(KeyError, match="boom"), au.reraise():
        jax.block_until_ready(f(jnp.ones((200, 1000))))


# The end of the process


def test_a_process_ends_well_while_a_daemon_thread_runs_a_kernel():
    assert run(
        """
        import threading, time
        import numpy as np, jax, applyufunc as au
        started = threading.Event()
        def kernel(x):
            started.set()
            time.sleep(0.5)
            return x
        f = jax.jit(au.gufunc("()->()", output_dtypes=float, callback="ffi")(kernel))
        threading.Thread(target=f, args=(np.ones(3, "f4"),), daemon=True).start()
        started.wait(60)
        print("main_is_over")
        """
    ) == ["main_is_over"]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_thread_that_calls_for_ever_does_not_keep_the_process(devices, monkeypatch):
    from applyufunc._lowering._jax import _exit

    monkeypatch.setattr(_exit, "_PATIENCE", 0.3)
    monkeypatch.setattr(jax, "local_devices", lambda backend: [None] * devices)
    monkeypatch.setitem(_exit.running, -1, object())
    started = time.monotonic()
    _exit._wait()
    assert 0.3 <= time.monotonic() - started < 30


# JAX inside a kernel


def ops():
    compiled, weights = jax.jit(lambda x: x + 1), jnp.arange(3.0)
    compiled(np.ones(3, "f4"))
    return {
        "function": lambda x: np.asarray(jnp.cumsum(x)),
        "operator": lambda x: x + weights,
        "compiled": lambda x: np.asarray(compiled(x)),
        "new": lambda x: np.asarray(jnp.asarray(x)),
        "vmap": lambda x: np.asarray(jax.vmap(lambda v: v * 2)(x)),
        "call": lambda x: np.asarray(jax.jit(scalar_function(np.sqrt))(x)),
    }


@pytest.mark.parametrize("callback", ROUTES)
@pytest.mark.parametrize("name", ops())
def test_kernel_that_calls_jax_is_stopped_at_once(name, callback):
    f = jax.jit(scalar_function(ops()[name], callback=callback))
    with pytest.raises(au.KernelError, match=r"the kernel calls JAX.*kernel_arrays='traced'"), au.reraise():
        jax.block_until_ready(f(jnp.ones(3)))
    assert jnp.ones(3).sum() == 3


@pytest.mark.parametrize("callback", ROUTES)
def test_kernel_may_read_a_jax_array_that_is_there(callback):
    weights = jnp.arange(3.0)
    f = jax.jit(scalar_function(lambda x: x * np.asarray(weights), callback=callback))
    np.testing.assert_array_equal(f(jnp.ones(3)), [0, 1, 2])


# Threads, copies, lives


def test_threads_share_a_compiled_kernel_without_waiting_for_ever():
    assert run("""
        import threading
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        g = au.gufunc("(n)->(n)", output_dtypes=float)(lambda v: np.cumsum(v, axis=-1) / v.shape[-1])
        f = jax.jit(lambda x: g(g(x) * 1).sum())
        x = jnp.ones((4, 100_000))
        expected, right = float(f(x)), []

        def call():
            right.extend(float(f(x)) == expected for _ in range(5))

        threads = [threading.Thread(target=call) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(right == [True] * 80)
        """) == ["True"]


def test_devices_share_a_sharded_array_without_waiting_for_ever():
    assert run(
        """
        import jax, jax.numpy as jnp, numpy as np, applyufunc as au
        mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
        x = jax.device_put(np.ones((8, 100_000), "f4"), sharding)
        f = jax.jit(au.gufunc("(n)->()", output_dtypes=float)(lambda v: v.sum(axis=-1)))
        print(*{float(f(x * 1).sum()) for _ in range(3)})
        """,
        devices=8,
    ) == ["800000.0"]


def test_copies_of_the_package_live_in_one_process(tmp_path):
    package = Path(au.__file__).parent
    for place in ("first/vendored/_parts", "second"):
        shutil.copytree(package, tmp_path / place / "applyufunc", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(
        """
        import importlib, re, sys
        import jax, jax.numpy as jnp, numpy as np
        x = jnp.ones(3)

        def call(au):
            f = jax.jit(au.gufunc("()->()", output_dtypes=float, callback="ffi")(lambda v: v + 1))
            return f, re.search(r'@"?([\\w.#]*call[#\\d]*)"?\\(', f.lower(x).as_text())[1]

        ours, first = call(importlib.import_module("applyufunc"))
        vendored, other = call(importlib.import_module("vendored._parts.applyufunc"))
        for name in [name for name in sys.modules if name.partition(".")[0] == "applyufunc"]:
            del sys.modules[name]
        again, second = call(importlib.import_module("applyufunc"))
        print(first, other, second, *(f(x).tolist() == [2, 2, 2] for f in (ours, vendored, again)), float(jnp.sin(0)))
        """,
        paths=[tmp_path / "second", tmp_path / "first"],
    ) == ["applyufunc.call", "vendored._parts.applyufunc.call", "applyufunc.call#1", "True", "True", "True", "0.0"]


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages")
def test_large_outputs_are_filled_in_large_pages():
    roots = jax.jit(scalar_function(np.sqrt, callback="ffi"))(jnp.ones(1 << 24, "f4") + 3)
    np.testing.assert_array_equal(roots, np.full(1 << 24, 2, "f4"))
    middle = np.asarray(roots).__array_interface__["data"][0] + roots.nbytes // 2
    mappings = re.findall(r"^(\w+)-(\w+) .*?^VmFlags:(.*?)$", Path("/proc/self/smaps").read_text(), re.M | re.S)
    (flags,) = (flags for start, end, flags in mappings if int(start, 16) <= middle < int(end, 16))
    assert "hg" in flags.split()


def test_a_kernel_lives_as_long_as_a_program_that_calls_it_or_may_be_under_way():
    from applyufunc._lowering._jax import _callback, _foreign

    def kernel(x):
        return x * 3

    compiled = jax.jit(scalar_function(kernel)).lower(jnp.ones(2)).compile()
    alive = weakref.ref(kernel)
    del kernel
    _callback._staged_alone.cache_clear()
    jax.clear_caches()
    gc.collect()
    np.testing.assert_array_equal(compiled(jnp.ones(2)), [3, 3])
    del compiled
    gc.collect()
    _foreign._ended().clear()  # of programs that ended, the last ones' kernels are kept
    assert alive() is None


def test_a_program_that_is_dropped_before_its_kernel_is_called_still_runs():
    from applyufunc._lowering._jax import _callback

    may_go_on = threading.Event()

    def wait(x):
        assert may_go_on.wait(5)
        return x + 1

    def make_program():
        first, second = (scalar_function(kernel, callback="ffi") for kernel in (wait, lambda x: 3 * x))
        return jax.jit(lambda x: second(first(x) @ x))  # the product, since XLA waits for what is done in a moment

    result = make_program()(jnp.eye(100))
    _callback._staged_alone.cache_clear()
    jax.clear_caches()
    gc.collect()
    may_go_on.set()
    np.testing.assert_array_equal(result, 3 + 3 * np.eye(100))


def test_an_exported_program_runs_with_sizes_that_it_did_not_know():
    from jax import export

    (size,) = export.symbolic_shape("b")
    f = jax.jit(au.gufunc("(n)->()", output_dtypes=float)(lambda x: x.sum(axis=-1)))
    leave = [export.DisabledSafetyCheck.custom_call("applyufunc.call")]
    exported = export.export(f, disabled_checks=leave)(jax.ShapeDtypeStruct((size, 3), "f4"))
    for n in (1, 4):
        np.testing.assert_array_equal(jax.jit(exported.call)(jnp.ones((n, 3))), [3] * n)


@pytest.mark.parametrize(
    ("signature", "kernel"),
    [
        ("(n)->(2*n)", lambda x: np.concatenate([x, x], -1)),
        ("(n)->(n-1)", np.diff),
        ("(n)->(n//2)", lambda x: x[..., : x.shape[-1] // 2]),
    ],
)
def test_an_exported_program_computes_sizes_of_outputs(signature, kernel):
    from jax import export

    leave = [export.DisabledSafetyCheck.custom_call("applyufunc.call")]
    f = jax.jit(au.gufunc(signature, output_dtypes=float)(kernel))
    exported = export.export(f, disabled_checks=leave)(jax.ShapeDtypeStruct(export.symbolic_shape("b,n"), "f4"))
    for shape in ((1, 1), (2, 5)):
        x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        np.testing.assert_array_equal(exported.call(x), kernel(x))


# Batches


@pytest.mark.parametrize("callback", ROUTES)
def test_an_argument_that_is_not_mapped_keeps_its_rank_in_the_program(callback):
    f = au.gufunc("(n),(n)->()", output_dtypes=float, callback=callback)(lambda x, y: (x * y).sum(axis=-1))
    x, y = jnp.ones((5, 3)), jnp.arange(3.0)
    text = jax.jit(jax.vmap(f, (0, None))).lower(x, y).as_text()
    assert "(tensor<5x3xf32>, tensor<3xf32>) -> tensor<5xf32>" in text
    assert "broadcast" not in text


def test_a_batch_in_a_loop_under_checkpoint_is_one_call_for_each_step():
    shapes = []
    f = au.gufunc("(n)->(n)", output_dtypes=float)(lambda x: (shapes.append(x.shape), x / 2)[1])

    def step(carry, row):
        carry = jax.vmap(jax.checkpoint(f), spmd_axis_name="batch")(carry) + row
        return carry, jax.lax.cond(row[0] > 0, lambda c: f(c), lambda c: c, carry).sum()  # noqa: PLW0108

    result, _ = jax.jit(lambda x, rows: jax.lax.scan(step, x, rows))(jnp.ones((4, 3)), jnp.zeros((2, 3)))
    np.testing.assert_array_equal(result, np.full((4, 3), 0.25))
    assert shapes == [(4, 3)] * 2
