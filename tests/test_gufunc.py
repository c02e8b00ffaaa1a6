"""`gufunc` and its object: decorating, calling, options, pickles, methods."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import subprocess
import sys

import module_with_gufuncs as held
import numpy as np
import pytest

import applyufunc as au
from applyufunc import OptionError, SignatureError

ROWS = np.arange(6.0).reshape(2, 3)


def refusal(error, function, *args, **keywords):
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


def test_the_object_looks_like_its_kernel():
    spread = held.spread
    assert (spread.__name__, spread.__qualname__, spread.__module__) == ("spread", "spread", "module_with_gufuncs")
    assert spread.__doc__ == "Return the largest less the smallest."
    assert str(inspect.signature(spread)) == str(spread.__signature__) == "(row, *, scale=1)"
    assert callable(spread.__wrapped__)
    assert repr(spread) == "<gufunc spread '(n)->()'>"


def test_the_object_knows_its_signature():
    assert (held.dot.signature, held.dot.nin, held.dot.nout) == (au.Signature.parse("(n),(n)->()"), 2, 1)


@pytest.mark.parametrize(
    "func", [np.vecdot, functools.partial(np.sum, axis=-1), len], ids=["ufunc", "partial", "builtin"]
)
def test_anything_callable_has_a_name(func):
    assert au.gufunc("(n)->()")(func).__name__ in ("vecdot", "sum", "len")


def test_a_call_takes_axes_and_the_keywords_of_the_kernel():
    assert held.spread(ROWS).tolist() == [2, 2]
    assert held.spread(ROWS, axis=0, scale=2).tolist() == [6, 6, 6]
    assert held.spread(ROWS, axes=[0, ()]).tolist() == [3, 3, 3]
    assert held.spread(ROWS, keepdims=True).tolist() == [[2], [2]]


def test_other_options_are_bound():
    assert refusal(OptionError, held.spread, ROWS, vectorize=True) == (
        "option 'vectorize' is bound to a gufunc object before it is called: use .with_options(vectorize=...)"
    )
    assert refusal(OptionError, held.spread, ROWS, scal=2) == (
        "keyword 'scal' is neither an option nor a parameter of kernel 'spread'; did you mean 'scale'?"
    )


def test_with_options_leaves_the_object_as_it_was():
    items = held.spread.with_options(vectorize=True, kwargs={"scale": 2})
    assert items(ROWS).tolist() == [4, 4]
    assert items(ROWS, scale=3).tolist() == [6, 6]
    assert held.spread(ROWS).tolist() == [2, 2]
    assert isinstance(items, au.GUFunc)
    assert refusal(OptionError, held.spread.with_options, vectorise=True) == (
        "'vectorise' is no option; did you mean 'vectorize'?"
    )


def test_an_option_that_is_a_parameter_too_can_be_bound():
    median = au.gufunc("(n)->()")(np.median)
    assert "bind it first" in refusal(OptionError, median, ROWS, axis=0)
    assert median.with_options(kwargs={"axis": -1})(ROWS).tolist() == [1, 4]
    assert median.with_options(kwargs={"axis": -1}, axis=0)(ROWS).tolist() == [1.5, 2.5, 3.5]


def test_decorating_without_a_signature_is_refused():
    message = "gufunc takes the signature before the function: @gufunc('(n),(n)->()')"
    assert refusal(SignatureError, au.gufunc, lambda x: x) == message
    assert refusal(SignatureError, au.gufunc, np.vecdot) == message
    assert refusal(SignatureError, au.gufunc(), len) == (
        "'len' has no signature of its own, so it needs one: a string such as '(n),(n)->()'"
    )


def test_a_signature_is_read_when_it_is_written():
    assert "(n" in refusal(SignatureError, au.gufunc, "(n->()")
    assert refusal(SignatureError, au.gufunc, 5) == "the signature is a string such as '(n),(n)->()', got int"
    assert au.gufunc(au.Signature.parse("(n)->()"))(np.sum).nin == 1


def test_what_cannot_be_called_is_refused():
    assert refusal(OptionError, au.gufunc("(n)->()"), 5) == (
        "gufunc(...) decorates a function, got 5: call the object that comes out of it"
    )


def test_a_decorator_for_derivatives_is_not_called_on_arrays():
    f = au.gufunc("(n)->()")(np.sum)
    assert refusal(OptionError, f.jac, 5) == (
        "jac(...) declares a derivative of 'sum' and takes a function, got 5: JAX's transformations, such as jax.grad, "
        "call it"
    )


def test_ufuncs_bring_their_own_signatures():
    assert str(au.gufunc()(np.add).signature) == "(),()->()"
    assert str(au.gufunc()(np.matmul).signature) == "(n?,k),(k,m?)->(n?,m?)"
    assert str(au.gufunc()(held.spread).signature) == "(n)->()"
    assert au.gufunc()(np.divmod)(7, 2) == (3, 1)


def test_a_gufunc_object_is_a_kernel_too():
    outer = au.gufunc()(held.spread)
    assert outer(ROWS, axis=0, scale=2).tolist() == [6, 6, 6]


@pytest.mark.parametrize("gufunc", [held.spread, held.spread_of_items, held.dot], ids=repr)
@pytest.mark.parametrize("load", [lambda gufunc: pickle.loads(pickle.dumps(gufunc)), copy.copy, copy.deepcopy])
def test_an_object_survives(gufunc, load):
    args = (ROWS,) * gufunc.nin
    assert load(gufunc)(*args).tolist() == gufunc(*args).tolist()


def test_an_object_that_a_module_holds_pickles_by_name():
    assert pickle.loads(pickle.dumps(held.spread)) is held.spread
    assert copy.deepcopy(held.spread) is held.spread
    assert len(pickle.dumps(held.spread)) < 100


def test_a_local_object_pickles_by_value():
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = 3

    @au.gufunc("(n)->()", vectorize=True)
    def local(row):
        return factor * row.sum()

    assert pickle.loads(cloudpickle.dumps(local))(ROWS).tolist() == [9, 36]
    assert copy.deepcopy(local)(ROWS).tolist() == [9, 36]


def test_an_object_of_the_main_module_pickles_by_value():
    pytest.importorskip("cloudpickle")
    script = """
import cloudpickle, pickle, sys
import numpy as np
import applyufunc as au
@au.gufunc("(n)->()")
def total(row):
    return row.sum(axis=-1)
text = cloudpickle.dumps(total)
del total
print(pickle.loads(text)(np.ones((2, 3))).tolist())
"""
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[3.0, 3.0]"


def test_an_object_hashes_by_identity():
    assert len({held.spread, held.spread, held.spread_of_items}) == 2


def test_a_method_is_bound_to_its_instance():
    scaled = held.Scaled(10)
    assert scaled.total(ROWS).tolist() == [30, 120]
    assert scaled.total(ROWS, axis=0).tolist() == [30, 50, 70]
    assert scaled.total.with_options(output_dtypes="f4")(ROWS).dtype == np.float32
    assert held.Scaled.total.__name__ == "total"
    assert isinstance(held.Scaled.total, au.GUFunc)
    assert (scaled.plain(ROWS).tolist(), held.Scaled.plain(ROWS).tolist()) == ([3, 12], [3, 12])
    assert pickle.loads(pickle.dumps(held.Scaled.total)) is held.Scaled.total
    assert pickle.loads(pickle.dumps(scaled.total))(ROWS).tolist() == [30, 120]


def test_an_object_over_a_ufunc_is_no_method():
    class Holder:
        dot = held.dot

    assert Holder().dot(ROWS, ROWS).tolist() == [5, 50]


def test_options_are_checked_when_they_are_bound():
    assert (
        refusal(OptionError, au.gufunc, "(n)->()", vectorize="yes")
        == "vectorize takes True, False or 'numba', got 'yes'"
    )
    assert refusal(OptionError, au.gufunc, "(n)->()", scale=2).startswith(
        "'scale' is no option; keywords of the kernel go"
    )


def kernel_of_two(row):
    return row.min(axis=-1), row.max(axis=-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_dtypes": "flaot"}, "output_dtypes has 'flaot', which is no dtype"),
        ({"output_dtypes": 5}, "output_dtypes has 5, which is no dtype"),
        ({"output_dtypes": [float, None]}, "output_dtypes has None for one output, expected a dtype"),
        (
            {"output_dtypes": [float] * 3},
            "output_dtypes has 3 dtype(s), expected 2: one per output, or one for all",
        ),
        ({"output_dtypes": "M8"}, "output_dtypes has datetime64 without a unit, expected one such as 'datetime64[s]'"),
        (
            {"output_sizes": {"q": 3}},
            "output_sizes names dimension 'q', which no output of '(n)->(),()' has; the outputs' dimensions: none",
        ),
    ],
)
def test_options_that_do_not_fit_the_signature_are_refused_before_any_call(options, message):
    text = "(n)->(),()"
    assert refusal(OptionError, au.gufunc(text, **options), kernel_of_two) == message
    assert refusal(OptionError, au.gufunc(text)(kernel_of_two).with_options, **options) == message
    assert refusal(OptionError, au.apply_ufunc, kernel_of_two, text, ROWS, **options) == message


@pytest.mark.parametrize(
    "output_dtypes",
    [
        float,
        "f4",
        [float, "i4"],
        np.dtype("M8[s]"),
        lambda dtype: "flaot",
        None,
        "bfloat16",
        "float8_e4m3fn",
        ["int4", "f4"],
    ],
)
def test_options_that_may_fit_are_kept_for_the_call(output_dtypes):
    assert au.gufunc("(n)->(),()", output_dtypes=output_dtypes)(kernel_of_two).nout == 2
    assert au.gufunc("(n)->(k),(n+m)", output_sizes={"k": 2, "m": None})(kernel_of_two).nout == 2


def test_the_decorator_of_a_static_method_goes_above():
    assert refusal(OptionError, au.gufunc("(n)->()"), staticmethod(lambda row: row)) == (
        "gufunc(...) decorates a function, got a staticmethod: put @staticmethod above it"
    )


def test_a_class_method_is_refused():
    assert refusal(OptionError, au.gufunc("(n)->()"), classmethod(lambda cls, row: row)) == (
        "gufunc(...) decorates a function, got a classmethod: decorate one that the method calls"
    )
