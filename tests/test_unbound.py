"""`applyufunc._unbound`: unbound calls of a module's functions leave gufunc objects, and of others leave nothing."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import sys
import weakref

import numpy as np
import pytest

import applyufunc as au
from applyufunc import _unbound
from applyufunc._kernel import parameters_of
from applyufunc._unbound import find_gufunc

ROWS = np.arange(12.0).reshape(4, 3)


def total(row, scale=1):
    return row.sum(-1) * scale


def doubled(row):
    return row * 2.0


def notes_down(row, values):
    while not isinstance(values, list):
        values = values["a"] if isinstance(values, dict) else values[1]
    values.append(len(row))
    return row.sum(-1)


def spread(row):
    return row.max(-1) - row.min(-1)


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch):
    monkeypatch.setattr(_unbound, "_gufuncs", {})


def n_kept():
    return len(_unbound._gufuncs)


def test_an_equal_call_finds_the_gufunc_object_of_the_first():
    signature = au.Signature.parse("(n)->()")
    first = find_gufunc(total, signature, {"output_dtypes": ["f8"], "output_sizes": {}})
    assert find_gufunc(total, au.Signature.parse("(n) -> ()"), {"output_dtypes": ["f8"], "output_sizes": {}}) is first
    assert find_gufunc(np.vecdot, au.Signature.parse("(n),(n)->()"), {}) is not None
    assert n_kept() == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"output_dtypes": "f4"}, {"output_dtypes": "f8"}),
        ({"output_dtypes": ["f4"]}, {"output_dtypes": ("f8",)}),
        ({"output_dtypes": float}, {"output_dtypes": np.dtype("f4")}),
        ({"axis": 0}, {"axis": 1}),
        ({"kwargs": {"scale": 1}}, {"kwargs": {"scale": True}}),
        ({"vectorize": True}, {"vectorize": False}),
        ({}, {"writable": True}),
    ],
)
def test_other_options_make_another_call(one, other):
    for options in (one, other, one, other):
        expected = total(np.moveaxis(ROWS, options.get("axis", 1), 1), **options.get("kwargs", {}))
        result = au.apply_ufunc(total, "(n)->()", ROWS, **options)
        dtype = np.empty(0, np.atleast_1d(options.get("output_dtypes", "f8"))[0]).dtype
        assert (result.tolist(), result.dtype) == (expected.tolist(), dtype)
    assert n_kept() == 2


CHANGED = {
    "output_dtypes": (["f4"], lambda dtypes: dtypes.__setitem__(0, "c16")),
    "axes": ([(0,), ()], lambda axes: axes.__setitem__(0, (1,))),
    "output_coords": ({"n": [1, 2, 3]}, lambda coords: coords["n"].__setitem__(0, 9)),
}


@pytest.mark.parametrize("option", CHANGED)
def test_an_option_that_the_caller_changes_later_changes_only_calls_that_are_given_it(option):
    before, change = CHANGED[option]
    given, square = copy.deepcopy(before), np.arange(9.0).reshape(3, 3)
    signature, kernel = "(n)->()", total
    if option == "output_coords":
        square = pytest.importorskip("xarray").DataArray(square, dims=("row", "n"))
        signature, kernel = "(n)->(n)", doubled

    def outcome(call):
        result = call()
        return result.dtype, np.asarray(result).tolist(), np.asarray(getattr(result, "n", ())).tolist()

    bound = au.gufunc(signature, **{option: given})(kernel)
    expected = outcome(lambda: au.apply_ufunc(kernel, signature, square, **{option: given}))
    assert outcome(lambda: bound(square)) == expected
    change(given)
    other = square[:2] if option == "output_dtypes" else square  # of another look
    assert outcome(lambda: bound(other))[0] == expected[0]
    assert outcome(lambda: bound(square)) == expected
    assert outcome(lambda: au.apply_ufunc(kernel, signature, square, **{option: copy.deepcopy(before)})) == expected
    assert outcome(lambda: au.apply_ufunc(kernel, signature, square, **{option: given})) != expected


@pytest.mark.parametrize("nest", [lambda own: own, lambda own: (1, own), lambda own: {"a": own}])
def test_a_kernel_gets_the_list_of_each_call_and_not_an_equal_one(nest):
    own, other = [], []
    for values in (own, other, own):
        au.apply_ufunc(notes_down, "(n)->()", ROWS, kwargs={"values": nest(values)})
    assert (own, other) == ([len(ROWS)] * 2, [len(ROWS)])


@pytest.mark.parametrize("kwargs", [[1], "ab", (1,)])
def test_keywords_that_are_no_mapping_are_refused_as_those_of_a_gufunc_object(kwargs):
    with pytest.raises(au.OptionError) as bound:
        au.gufunc("(n)->()", kwargs=kwargs)
    with pytest.raises(au.OptionError) as unbound:
        au.apply_ufunc(total, "(n)->()", ROWS, kwargs=kwargs)
    assert str(unbound.value) == str(bound.value)


@pytest.mark.parametrize(
    "options",
    [{"kwargs": {"scale": 0.0}}, {"kwargs": {"scale": np.ones(1)}}, {"output_dtypes": lambda row: row}],
    ids=["a float", "an array", "a function"],
)
def test_options_that_may_look_alike_are_not_remembered(options):
    au.apply_ufunc(total, "(n)->()", ROWS, **options)
    assert n_kept() == 0


def test_minus_zero_is_not_zero():
    results = [au.apply_ufunc(total, "(n)->()", ROWS, kwargs={"scale": scale}) for scale in (0.0, -0.0)]
    assert [bool(np.signbit(result).any()) for result in results] == [False, True]


def test_keywords_of_the_kernel_are_no_part_of_what_is_remembered():
    results = [au.apply_ufunc(total, "(n)->()", ROWS, scale=scale).tolist() for scale in (1, 2.5, np.float32(3))]
    assert results == [total(ROWS, scale).tolist() for scale in (1, 2.5, 3)]
    assert n_kept() == 1


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"scala": 1}, au.OptionError, "'scala' is neither an option nor a parameter of kernel 'total'; did you mean"),
        ({"input_core_dims": [["n"]]}, au.OptionError, "are not taken: write the signature"),
        ({"axis": 7}, au.AxisError, "axis 7"),
        ({"output_dtypes": ["f8", "f8"]}, au.OptionError, "output_dtypes"),
    ],
)
def test_a_call_after_others_is_refused_as_the_first_one(keywords, error, text):
    with pytest.raises(error, match=text) as first:
        au.apply_ufunc(total, "(n)->()", ROWS, **keywords)
    au.apply_ufunc(total, "(n)->()", ROWS)
    au.apply_ufunc(total, "(n)->()", ROWS, scale=1)
    with pytest.raises(error, match=text) as second:
        au.apply_ufunc(total, "(n)->()", ROWS, **keywords)
    assert str(first.value) == str(second.value)


def test_functions_that_no_module_holds_are_not_kept_alive():
    data = np.ones(3)

    def local(row):
        return row @ data

    kept = weakref.ref(local)
    assert au.apply_ufunc(local, "(n)->()", ROWS).tolist() == ROWS.sum(-1).tolist()
    assert au.apply_ufunc(functools.partial(total, scale=2), "(n)->()", ROWS).tolist() == (2 * ROWS.sum(-1)).tolist()
    assert n_kept() == 0
    del local
    gc.collect()
    assert kept() is None


def test_a_name_that_a_module_gives_to_another_function_is_another_function(monkeypatch):
    def replacement(row):
        return row.min(-1)

    au.apply_ufunc(spread, "(n)->()", ROWS)
    replacement.__name__, replacement.__module__ = "spread", __name__
    replaced = spread
    monkeypatch.setattr(sys.modules[__name__], "spread", replacement)
    assert au.apply_ufunc(spread, "(n)->()", ROWS).tolist() == ROWS.min(-1).tolist()
    assert [gufunc.__wrapped__ for gufunc, _ in _unbound._gufuncs.values()] == [replacement]
    assert au.apply_ufunc(replaced, "(n)->()", ROWS).tolist() == np.ptp(ROWS, -1).tolist()


def test_code_that_a_reload_puts_into_a_function_is_read_again(monkeypatch):
    def replacement(row, low=0):
        return row.max(-1) - low

    assert au.apply_ufunc(spread, "(n)->()", ROWS).tolist() == np.ptp(ROWS, axis=-1).tolist()
    monkeypatch.setattr(spread, "__defaults__", (0,))
    monkeypatch.setattr(spread, "__code__", replacement.__code__)
    assert au.apply_ufunc(spread, "(n)->()", ROWS, low=1).tolist() == (ROWS.max(-1) - 1).tolist()


def test_as_many_as_documented_are_kept(monkeypatch):
    monkeypatch.setattr(_unbound, "_CACHE_SIZE", 8)
    for size in range(1, 40):
        au.apply_ufunc(total, "(n)->()", ROWS, output_dtypes="f8", kwargs={"scale": size})
        assert n_kept() <= 8


def test_a_kernel_may_have_a_keyword_named_self():
    assert au.apply_ufunc(takes_self, "(n)->()", ROWS, self=2).tolist() == (2 * ROWS.sum(-1)).tolist()


def takes_self(row, *, self=1):
    return row.sum(-1) * self


def wrapped_kernel():
    @functools.wraps(total)
    def kernel(*args, **keywords):
        return total(*args, **keywords)

    return kernel


def signed_kernel():
    def kernel(x, y):
        return x

    kernel.__signature__ = inspect.signature(lambda x, *, shift: x)
    return kernel


@pytest.mark.parametrize("nin", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "func",
    [
        lambda: 0,
        lambda x: x,
        lambda x, y=1: x,
        lambda x, /, y, z=2: x,
        lambda x, y, z, /: x,
        lambda x, *args: x,
        lambda x, *args, k: x,
        lambda x, *, k, last=2: x,
        lambda x, y=0, *, k, **rest: x,
        lambda *args, **rest: args,
        lambda x, a=(local := 3), *, b=lambda z: z: (x, local),
        wrapped_kernel(),
        signed_kernel(),
    ],
)
def test_parameters_of_a_function_are_those_of_inspect(func, nin):
    positional, by_name, rest = [], set(), False
    for parameter in inspect.signature(func).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            by_name.add(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD:
            rest = True
    by_name |= {parameter.name for parameter in positional[nin:] if parameter.kind is not parameter.POSITIONAL_ONLY}
    found = parameters_of(func, nin)
    assert (found.names, found.open_ended) == (by_name, rest)
