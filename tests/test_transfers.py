"""Leave to copy arrays to the host: who has it, when it is asked for, and what JAX's own guard says."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from device_namespace import GETTING

import applyufunc as au

X = np.arange(6.0).reshape(2, 3)


def on_device(values):
    return GETTING.asarray(np.asarray(values), device=GETTING.devices[1], copy=True)


def total(block):
    return block.sum(axis=-1)


def is_refused(x, **options):
    """Tell whether a kernel for NumPy arrays gets none of an array."""
    try:
        au.apply_ufunc(total, "(n)->()", x, output_dtypes=float, **options)
    except au.TransferError:
        return True
    return False


def blocks(da, on_each=on_device):
    return da.from_array(X, chunks=(1, 2)).map_blocks(on_each, meta=on_device(np.empty((0, 0))))


# Whose leave it is


def test_leave_is_that_of_the_thread_which_was_given_it():
    x, seen = on_device(X), {}

    def given():
        with au.allow_transfer():
            inside.set()
            seen["given"] = is_refused(x)
            asked.wait(10)

    def other():
        inside.wait(10)
        seen["other"] = is_refused(x)
        asked.set()

    inside, asked = threading.Event(), threading.Event()
    threads = [threading.Thread(target=target) for target in (given, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"given": False, "other": True}
    assert is_refused(x)


def test_leave_is_that_of_the_task_which_was_given_it():
    x = on_device(X)

    async def given(inside, asked):
        with au.allow_transfer():
            inside.set()
            await asked.wait()
            return is_refused(x)

    async def other(inside, asked):
        await inside.wait()
        refused = is_refused(x)
        asked.set()
        return refused

    async def both():
        events = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(given(*events), other(*events))

    assert asyncio.run(both()) == [False, True]
    assert is_refused(x)


def test_what_a_task_starts_has_its_leave():
    async def starts():
        with au.allow_transfer():
            return await asyncio.create_task(asks()), await asyncio.to_thread(is_refused, on_device(X))

    async def asks():
        return is_refused(on_device(X))

    assert asyncio.run(starts()) == (False, False)


def test_the_option_is_for_one_call():
    x = on_device(X)
    assert not is_refused(x, allow_transfer=True)
    assert is_refused(x)
    bound = au.gufunc("(n)->()", allow_transfer=True)(total)
    assert bound(x)._values.tolist() == [3, 12]
    with pytest.raises(au.TransferError):
        bound.with_options(allow_transfer=False)(x)


# When it is asked for


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_on_dask_it_is_asked_for_where_the_call_is_made(scheduler):
    da = pytest.importorskip("dask.array")
    with au.allow_transfer():
        result = au.apply_ufunc(total, "(n)->()", blocks(da), output_dtypes=float)
    assert result.compute(scheduler=scheduler)._values.tolist() == [3, 12]  # on threads that never had it


def test_on_dask_leave_while_computing_comes_too_late():
    """The meta says NumPy and the blocks are something else, so that it is noticed on the worker alone."""
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(X, chunks=(1, 3)).map_blocks(on_device, meta=np.empty((0, 0)))
    call = lambda: au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float)
    refused = call()
    with au.allow_transfer():
        allowed = call()
        for scheduler in ("sync", "threads"):
            with pytest.raises(au.TransferError, match=r"argument 0, block \[\d:\d\] of the loop dimensions, is a"):
                refused.compute(scheduler=scheduler)
    assert allowed.compute(scheduler="sync").tolist() == [3, 12]
    assert allowed.name != refused.name


def test_on_dask_a_keyword_is_copied_when_the_call_is_made():
    da = pytest.importorskip("dask.array")
    w, lazy = on_device(X[0]), da.from_array(X, chunks=(1, 2))
    call = lambda: au.apply_ufunc(lambda x, w: x * w, "(n)->(n)", lazy, w=w, output_dtypes=float)
    with pytest.raises(au.TransferError, match=r"^keyword w is a"):
        call()
    with au.allow_transfer():
        GETTING.copies = 0
        result = call()
        assert GETTING.copies == 1
    np.testing.assert_array_equal(result.compute(scheduler="threads"), X * X[0])
    assert GETTING.copies == 1


def test_lazy_apply_on_dask_asks_where_the_call_is_made():
    da = pytest.importorskip("dask.array")
    with pytest.raises(au.TransferError, match="argument 0"):
        au.lazy_apply(np.negative, blocks(da), as_numpy=True)
    one = au.lazy_apply(np.negative, blocks(da), as_numpy=True, allow_transfer=True)
    with au.allow_transfer():
        other = au.lazy_apply(np.negative, blocks(da), as_numpy=True)
    for result in (one, other):
        assert result.compute(scheduler="threads")._values.tolist() == (-X).tolist()


# JAX, which has a guard of its own: its CPU arrays are in the host's memory, so that only the way back is a transfer


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def refused_by_jax(jax, function):
    with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
        function()


def test_the_guard_of_jax_lets_explicit_transfers_pass(jax):
    x = jax.numpy.asarray(X)
    with jax.transfer_guard("disallow"):
        result = au.apply_ufunc(total, "(n)->()", x)
    np.testing.assert_array_equal(result, [3, 12])


@pytest.mark.parametrize("leave", [False, True])
def test_the_guard_of_jax_is_not_lifted_by_leave(jax, leave):
    x = jax.numpy.asarray(X)
    with jax.transfer_guard("disallow_explicit"):
        refused_by_jax(jax, lambda: au.apply_ufunc(total, "(n)->()", x, allow_transfer=leave))


@pytest.mark.once  # JAX 0.10.0 guards less than what came after it
def test_the_guard_of_jax_holds_for_numpy_arrays_beside_those_of_jax(jax):
    x, kernel = jax.numpy.asarray(X), lambda x, y: (x * y).sum(axis=-1)
    for arrays in ("same", "traced"):
        call = lambda arrays=arrays: au.apply_ufunc(kernel, "(n),(n)->()", x, X, kernel_arrays=arrays)
        with jax.transfer_guard("disallow"):
            refused_by_jax(jax, call)
            refused_by_jax(jax, lambda: x + X)  # as in JAX alone
        np.testing.assert_array_equal(call(), (X**2).sum(axis=-1))


@pytest.mark.parametrize("arrays", ["same", "traced"])
def test_a_kernel_for_jax_arrays_runs_under_the_strictest_guard(jax, arrays):
    x = jax.numpy.asarray(X)
    call = lambda: au.apply_ufunc(total, "(n)->()", x, kernel_arrays=arrays)
    call()  # JAX moves constants of its own when it compiles a sum
    with jax.transfer_guard("disallow_explicit"):
        result = call()
    np.testing.assert_array_equal(result, [3, 12])


@pytest.mark.parametrize("leave", [False, True])
def test_a_copy_from_jax_is_an_explicit_one_with_leave(jax, leave, monkeypatch):
    """On a GPU that is what ``jax.transfer_guard("disallow")`` lets pass."""
    copied, device_get = [], jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda arrays: copied.append(1) or device_get(arrays))
    monkeypatch.setattr("applyufunc._lowering._jax._direct._on_host", frozenset)  # as on a GPU
    function = au.gufunc("(n)->()", allow_transfer=leave)(total)
    for n_calls in (1, 2):
        np.testing.assert_array_equal(function(jax.numpy.asarray(X)), [3, 12])
        assert copied == [1] * leave * n_calls
