"""`applyufunc._lowering`: what is refused before any library's lowering sees it, and how arrays reach the host."""

from __future__ import annotations

import array_api_compat
import numpy as np
import pytest

import applyufunc as au
from applyufunc._lowering._host import check_transfer, to_host

ROWS = np.arange(6.0).reshape(2, 3)


def total(x, **keywords):
    return x.sum(axis=-1)


def wrapped(array):
    """Return containers with the array in them, and where in them it is."""
    cyclic = [0, array]
    cyclic.append(cyclic)
    return [
        ([array], "[0]"),
        ((1, "a", array), "[2]"),
        ({"a": {"b": [None, array]}}, "['a']['b'][1]"),
        ([[0.0] * 900, array], "[1]"),
        (cyclic, "[1]"),
    ]


@pytest.mark.parametrize("case", range(5))
def test_a_lazy_array_inside_a_keyword_is_refused_by_name(case):
    da = pytest.importorskip("dask.array")
    value, place = wrapped(da.ones(3))[case]
    with pytest.raises(au.ArgumentError) as caught:
        au.apply_ufunc(total, "(n)->()", ROWS, kwargs={"w": value})
    assert str(caught.value) == (
        f"keyword w{place} is a lazy dask array: pass it as an argument whose dims are all core"
    )


@pytest.mark.parametrize("case", range(5))
def test_a_traced_array_inside_a_keyword_is_refused_by_name(case):
    jax = pytest.importorskip("jax")

    def step(x):
        value, place = wrapped(x)[case]
        with pytest.raises(au.ArgumentError) as caught:
            au.apply_ufunc(total, "(n)->()", ROWS, kwargs={"w": value})
        assert str(caught.value).startswith(f"keyword w{place} is a traced jax array: ")
        return x

    jax.jit(step)(jax.numpy.ones(3))


def test_a_labelled_array_inside_a_keyword_is_refused_by_name():
    xarray = pytest.importorskip("xarray")
    with pytest.raises(au.ArgumentError, match=r"keyword w\[0\] is an xarray\.DataArray: labelled"):
        au.apply_ufunc(total, "(n)->()", ROWS, w=[xarray.DataArray(ROWS[0])])


def test_a_lazy_array_inside_a_sequence_is_refused_by_name():
    da = pytest.importorskip("dask.array")
    with pytest.raises(au.ArgumentError, match=r"argument 1\[0\]\[1\] is a lazy dask array"):
        au.apply_ufunc(np.add, "(),()->()", ROWS, [[1.0, da.ones(())]])


def test_containers_of_concrete_things_reach_the_kernel_unchanged():
    jnp = pytest.importorskip("jax.numpy")
    given = [{"mode": "a", "weights": (ROWS, jnp.ones(2))}, [], np.float64(2), object]
    seen = []
    au.apply_ufunc(lambda x, w: seen.append(w) or x, "()->()", ROWS, w=given)
    assert seen[0] is given


class Tensor:
    """What is asked of a tensor on its way to the host, in order."""

    device = "cpu"

    def __init__(self, requires_grad):
        self.requires_grad, self.asked = requires_grad, []

    def __getattr__(self, name):
        return lambda: self.asked.append(name) or (ROWS if name == "numpy" else self)


@pytest.fixture
def torch_tensor(monkeypatch):
    """A class that passes for torch's, which takes gigabytes to install."""
    monkeypatch.setattr(array_api_compat, "is_torch_array", lambda array: isinstance(array, Tensor))
    monkeypatch.setattr(array_api_compat, "device", lambda array: array.device)
    return Tensor


def test_a_tensor_is_cut_off_its_gradient_only_with_leave(torch_tensor):
    with pytest.raises(au.TransferError, match=r"argument 0 is a .*Tensor that requires grad, which a kernel"):
        check_transfer(torch_tensor(requires_grad=True), False, "argument 0")
    check_transfer(torch_tensor(requires_grad=True), True, "argument 0")
    check_transfer(torch_tensor(requires_grad=False), False, "argument 0")


def test_a_tensor_reaches_the_host_without_its_lazy_bits(torch_tensor):
    tensor = torch_tensor(requires_grad=True)
    assert to_host(tensor) is ROWS
    assert tensor.asked == ["detach", "resolve_conj", "resolve_neg", "cpu", "numpy"]
