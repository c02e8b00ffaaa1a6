"""`applyufunc._options` and `_transfer`: which keyword is whose, what each option takes, and leave to transfer."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import applyufunc as au
from applyufunc import OptionError, UpTo
from applyufunc._options import (
    CALL_OPTIONS,
    OPTION_NAMES,
    Options,
    Parameters,
    make_options,
    read_options,
    split_keywords,
)
from applyufunc._transfer import transfer_is_allowed

KERNEL = Parameters(frozenset({"degree", "axis"}), open_ended=False)
OPEN = Parameters(frozenset({"degree"}), open_ended=True)


def made(**changes):
    return make_options(Options(), changes)


def refusal(function, *args, **keywords):
    with pytest.raises(OptionError) as caught:
        function(*args, **keywords)
    return str(caught.value)


def test_options_and_keywords_of_the_kernel_are_told_apart():
    options, own = split_keywords({"vectorize": True, "degree": 2}, KERNEL, OPTION_NAMES, "fit")
    assert (options, own) == ({"vectorize": True}, {"degree": 2})


def test_a_name_that_two_know_is_refused():
    assert refusal(split_keywords, {"axis": 0}, KERNEL, OPTION_NAMES, "fit") == (
        "keyword 'axis' is an option and also a parameter of kernel 'fit': pass axes= in place of axis= for the "
        "option, and kwargs={'axis': -1} for the kernel, or wrap the kernel in a function that lacks it"
    )
    assert refusal(split_keywords, {"axis": 0}, KERNEL, CALL_OPTIONS, "fit") == (
        "keyword 'axis' is an option and also a parameter of kernel 'fit': bind it first, with "
        ".with_options(axis=...) for "
        "the option or .with_options(kwargs={'axis': ...}) for the kernel"
    )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("vectorise", "vectorize"), ("output_dtype", "output_dtypes"), ("degre", "degree"), ("keepdim", "keepdims")],
)
def test_a_keyword_that_neither_knows_is_refused_with_the_nearest_name(name, nearest):
    assert refusal(split_keywords, {name: 1}, KERNEL, OPTION_NAMES, "fit") == (
        f"keyword {name!r} is neither an option nor a parameter of kernel 'fit'; did you mean {nearest!r}?"
    )


def test_a_keyword_like_none_is_refused_with_all_options():
    message = refusal(split_keywords, {"zzz": 1}, KERNEL, CALL_OPTIONS, "fit")
    assert message.endswith("; the options are axes, axis, keepdims")


def test_an_option_in_a_call_of_a_gufunc_object_is_refused_with_the_way_to_bind_it():
    expected = "option 'vectorize' is bound to a gufunc object before it is called: use .with_options(vectorize=...)"
    for parameters in (KERNEL, OPEN):
        assert refusal(split_keywords, {"vectorize": True}, parameters, CALL_OPTIONS, "fit") == expected


def test_a_kernel_with_open_keywords_takes_what_nobody_knows():
    assert split_keywords({"zzz": 1}, OPEN, OPTION_NAMES, "fit") == ({}, {"zzz": 1})


@pytest.mark.parametrize(
    "name", ["out", "input_core_dims", "output_core_dims", "exclude_dims", "dask", "dask_gufunc_kwargs"]
)
def test_keywords_of_peers_are_refused_with_what_to_write_instead(name):
    for parameters in (KERNEL, OPEN):
        assert refusal(split_keywords, {name: 1}, parameters, OPTION_NAMES, "fit").startswith(f"{name}= is not taken")
    assert refusal(read_options, {name: 1}).startswith(f"{name}= is not taken")


def test_out_is_refused_even_where_the_kernel_has_it():
    parameters = Parameters(frozenset({"out"}), open_ended=False)
    assert refusal(split_keywords, {"out": 1}, parameters, OPTION_NAMES, "fit").startswith("out= is not taken")


def test_a_bound_keyword_that_is_no_option_is_refused():
    assert refusal(read_options, {"vectorise": True}) == "'vectorise' is no option; did you mean 'vectorize'?"
    assert refusal(read_options, {"mode": 1}) == (
        "'mode' is no option; keywords of the kernel go into each call, or are bound as kwargs={'mode': ...}"
    )


def test_changes_leave_the_base_as_it_was():
    base = made(vectorize=True)
    changed = make_options(base, {"writable": True})
    assert (base.writable, changed.writable, changed.vectorize) == (False, True, True)


@pytest.mark.parametrize("name", ["vectorize", "allow_transfer", "writable", "thread_safe", "allow_rechunk"])
@pytest.mark.parametrize("value", [1, 0, "yes", np.True_])
def test_flags_take_true_or_false(name, value):
    choice = "True, False or 'numba'" if name == "vectorize" else "True or False"
    assert refusal(made, **{name: value}) == f"{name} takes {choice}, got {value!r}"


def test_vectorize_none_is_how_dask_spells_no():
    assert made(vectorize=None).vectorize is False


def test_axis_replaces_bound_axes_and_the_other_way_round():
    changed = make_options(made(axis=0), {"axes": [1]})
    assert (changed.axis, changed.axes) == (None, [1])
    changed = make_options(made(axes=[1]), {"axis": 0})
    assert (changed.axis, changed.axes) == (0, None)
    both = made(axis=0, axes=[1])  # refused when the call is planned
    assert (both.axis, both.axes) == (0, [1])
    assert make_options(made(axis=0), {"axes": None}).axis == 0


CORE_CHUNKS = "core_chunks takes 'merge', 'refuse', a Reduction, Scan or Overlap, or a function that combines"


def test_allow_rechunk_is_another_name_of_core_chunks():
    assert (made(allow_rechunk=True).core_chunks, made(allow_rechunk=False).core_chunks) == ("merge", "refuse")
    assert make_options(made(core_chunks="refuse"), {"allow_rechunk": True}).core_chunks == "merge"
    assert refusal(made, allow_rechunk=True, core_chunks="merge") == (
        "allow_rechunk and core_chunks say the same thing: pass one of them"
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel_arrays", "jax", "kernel_arrays takes 'numpy', 'same' or 'traced', got 'jax'"),
        ("core_chunks", "split", f"{CORE_CHUNKS}, got 'split'"),
        (
            "core_chunks",
            np.sum,
            (
                "core_chunks takes a function that combines two outputs, got np.sum, which reduces one array: did you "
                "mean np.add?"
            ),
        ),
        ("core_chunks", ["merge"], f"{CORE_CHUNKS}, got ['merge']"),
        ("budget", 0, "budget takes a positive number of bytes, text such as '128 MiB', or 'keep', got 0"),
        ("budget", 2.5, "budget (bytes) takes an integer, got 2.5"),
        ("kernel_token", 3, "kernel_token takes a string, got 3"),
        ("kwargs", [1], "kwargs takes a mapping of the kernel's keyword arguments, got [1]"),
        ("kwargs", {1: 2}, "kwargs takes a mapping of the kernel's keyword arguments, got {1: 2}"),
        ("budget", "foo", "budget takes a positive number of bytes, text such as '128 MiB', or 'keep', got 'foo'"),
        ("budget", "-5MB", "budget takes a positive number of bytes, text such as '128 MiB', or 'keep', got '-5MB'"),
        ("budget", "0", "budget takes a positive number of bytes, text such as '128 MiB', or 'keep', got '0'"),
        ("keepdims", 3, "keepdims takes True or False, got 3"),
        ("meta", 5, "meta takes an array, or a tuple with one for each output, got 5"),
        ("meta", (np.ones(1), "f8"), "meta takes an array, or a tuple with one for each output, got 'f8'"),
        ("output_sizes", 5, "output_sizes takes a mapping of dimension names to sizes, got int"),
        ("output_sizes", {1: 5}, "output_sizes: dimension names are strings, got 1"),
        ("output_sizes", {"k": -1}, "output_sizes['k'] takes an int of at least 0, a callable, UpTo or None, got -1"),
        ("output_sizes", {"k": 2.5}, "output_sizes['k'] takes an int of at least 0, a callable, UpTo or None, got 2.5"),
        (
            "output_sizes",
            {"k": True},
            "output_sizes['k'] takes an int of at least 0, a callable, UpTo or None, got True",
        ),
        (
            "output_sizes",
            {"k": UpTo},
            f"output_sizes['k'] takes an int of at least 0, a callable, UpTo or None, got {UpTo}",
        ),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name, value, expected):
    assert refusal(made, **{name: value}) == expected


def test_output_sizes_become_tuples():
    rule = len
    given = {"k": np.int64(3), " m + 1": None, "q": UpTo(2), "r": rule}
    assert made(output_sizes=given).output_sizes == (("k", 3), ("m+1", None), ("q", UpTo(2)), ("r", rule))
    assert made(output_sizes=None).output_sizes == ()


def test_dicts_of_options_are_copied_and_never_changed():
    kwargs, sizes = {"degree": 2}, {"k": 3}
    options = made(kwargs=kwargs, output_sizes=sizes)
    kwargs["degree"], sizes["k"] = 5, 6
    assert (options.kwargs, options.output_sizes) == ({"degree": 2}, (("k", 3),))


@pytest.mark.parametrize("bound", [-1, 2.5, "3", None, True])
def test_a_bound_is_a_size(bound):
    assert refusal(UpTo, bound).startswith("UpTo: bound takes an integer")


def test_a_fill_value_is_a_scalar():
    assert refusal(UpTo, 3, [0]) == "UpTo: fill_value takes a scalar, got [0]"


def test_bounds_are_equal_if_they_fill_alike():
    assert UpTo(3) == UpTo(np.int64(3), 0)
    assert hash(UpTo(3, float("nan"))) == hash(UpTo(3, float("nan")))
    assert UpTo(3, float("nan")) == UpTo(3, float("nan"))
    assert len({UpTo(3, 0), UpTo(3, 0.0), UpTo(3, -0.0), UpTo(3, False), UpTo(4, 0)}) == 5
    assert UpTo(3) != 3


@pytest.mark.parametrize("value", [UpTo(3, -1), made(vectorize=True, output_sizes={"k": UpTo(3, float("nan"))})])
def test_values_survive_copies_and_pickles(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


def test_leave_to_transfer_ends_with_the_block():
    assert not transfer_is_allowed(option=False)
    assert transfer_is_allowed(option=True)
    with au.allow_transfer():
        assert transfer_is_allowed(option=False)
        with au.allow_transfer():
            pass
        assert transfer_is_allowed(option=False)
    assert not transfer_is_allowed(option=False)


def test_leave_to_transfer_ends_with_an_exception():
    with pytest.raises(KeyError), au.allow_transfer():
        raise KeyError
    assert not transfer_is_allowed(option=False)


def test_leave_to_transfer_is_of_one_thread():
    seen = []
    with au.allow_transfer():
        thread = threading.Thread(target=lambda: seen.append(transfer_is_allowed(option=False)))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_budget_may_be_to_keep_the_size_of_blocks():
    assert made(budget="keep").budget == "keep"


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("128 MiB", 2**27), ("1kB", 1000), ("5", 5), ("2.5 GB", 2_500_000_000), (" 3 kib ", 3072)]
)
def test_a_budget_is_bytes_or_text(text, n_bytes):
    assert made(budget=text).budget == n_bytes
