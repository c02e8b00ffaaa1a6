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
    with pytest.raises(
        au.ArgumentError, match=r"keyword w\[0\] is an xarray\.DataArray: labelled objects are not taken here"
    ):
        au.apply_ufunc(total, "(n)->()", ROWS, w=[xarray.DataArray(ROWS[0])])


def test_a_lazy_array_inside_a_sequence_is_refused_by_name():
    da = pytest.importorskip("dask.array")
    with pytest.raises(au.ArgumentError, match=r"argument 1\[0\]\[1\] is a lazy dask array"):
        au.apply_ufunc(np.add, "(),()->()", ROWS, [[1.0, da.ones(())]])


def test_a_list_of_lazy_arrays_is_refused_with_what_makes_one_array_of_it():
    da = pytest.importorskip("dask.array")
    jax = pytest.importorskip("jax")
    with pytest.raises(au.ArgumentError, match=r"argument 0\[0\] is a lazy dask array: .*dask\.array\.stack"):
        au.apply_ufunc(total, "(n)->()", [da.ones(()), da.ones(())])
    with pytest.raises(au.ArgumentError, match=r"argument 0\[0\] is a traced jax array: .*jax\.numpy\.stack"):
        jax.jit(lambda rows: au.apply_ufunc(total, "(n)->()", rows))([1.0, 2.0])


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


def test_a_lazy_scalar_in_a_keyword_is_refused_with_the_signature_to_write():
    da = pytest.importorskip("dask.array")
    jax = pytest.importorskip("jax")
    cure = r"whose dims are all core \(for a scalar, add ',\(\)' to the signature's inputs\)"
    with pytest.raises(au.ArgumentError, match="keyword w is a lazy dask array: .* " + cure):
        au.apply_ufunc(total, "(n)->()", ROWS, w=da.ones(()))
    with pytest.raises(au.ArgumentError, match="keyword w is a traced jax array: .* " + cure):
        jax.jit(lambda w: au.apply_ufunc(total, "(n)->()", ROWS, w=w))(1.0)


class Answers:
    """Settings that answer to every name."""

    def __getattr__(self, name):
        return 1


@pytest.mark.parametrize("place", [lambda value: value, lambda value: [value], lambda value: {"a": value}])
def test_an_object_that_answers_to_every_name_is_no_array(place):
    given, seen = place(Answers()), []
    au.apply_ufunc(lambda x, w: seen.append(w) or x, "()->()", ROWS, w=given)
    assert seen[0] is given
    with pytest.raises(au.ArgumentError, match=r"argument 0 is a test_lowering\.Answers"):
        au.apply_ufunc(total, "(n)->()", Answers())


WEIGHTS = {
    "plain": lambda: np.ones(3),
    "columns": lambda: np.ones((3, 2)).T[0],
    "masked": lambda: np.ma.MaskedArray(np.ones(3), mask=[False, True, False]),
    "objects": lambda: np.array([1, 1, 1], object),
    "strings": lambda: np.array(["1", "1", "1"], np.dtypes.StringDType()),
}


def weighted(x, w):
    return x * np.asarray(w).astype(float)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("library", ["dask", "jax"])
def test_a_kernel_that_runs_later_gets_the_keywords_of_the_call(kind, library):
    weights = WEIGHTS[kind]()

    def call(x):
        result = au.apply_ufunc(weighted, "(n)->(n)", x, w=weights, output_dtypes=float)
        weights[:] = 0
        return result

    if library == "dask":
        da = pytest.importorskip("dask.array")
        result = call(da.from_array(ROWS, chunks=(1, 3))).compute()
    else:
        result = pytest.importorskip("jax").jit(call)(ROWS)
    np.testing.assert_array_equal(result, ROWS)


@pytest.mark.parametrize("library", ["dask", "jax"])
def test_a_kernel_that_runs_later_gets_the_arguments_of_the_call(library):
    weights = np.ones(3)

    def call(x):
        result = au.apply_ufunc(weighted, "(n),(n)->(n)", x, weights, output_dtypes=float)
        weights[:] = 0
        return result

    if library == "dask":
        da = pytest.importorskip("dask.array")
        result = call(da.from_array(ROWS, chunks=(1, 3))).compute()
    else:
        result = pytest.importorskip("jax").jit(call)(ROWS)
    np.testing.assert_array_equal(result, ROWS)


def test_a_kernel_that_runs_now_gets_views_of_its_keywords():
    weights, seen = np.ones(3), []
    au.apply_ufunc(lambda x, w: seen.append(w) or x, "()->()", ROWS, w=weights)
    assert np.shares_memory(seen[0], weights)


def test_a_key_is_refused_as_a_keyword_in_the_words_for_arguments():
    jax = pytest.importorskip("jax")
    kernel = lambda x, key: x
    x, key = jax.numpy.ones(2), jax.random.key(0)
    message = r"keyword key is a jax\.PRNGKeyArray of dtype key<fry>: pass jax\.random\.key_data\(\.\.\.\) of a key"
    for arg in (x, np.ones(2)):
        with pytest.raises(au.ArgumentError, match=message):
            au.apply_ufunc(kernel, "()->()", arg, key=key)
    seen = []
    au.apply_ufunc(lambda x, key: seen.append(key) or x, "()->()", x, key=key, kernel_arrays="same")
    assert seen[0] is key


def test_a_keyword_that_the_kernels_library_cannot_hold_is_refused_by_name():
    xp = pytest.importorskip("array_api_strict")
    with pytest.raises(
        au.ArgumentError, match="keyword w has dtype object, which arrays such as the kernel gets cannot"
    ):
        au.apply_ufunc(lambda x, w: x, "()->()", xp.ones(2), w=np.array([None]), kernel_arrays="same")
