"""`applyufunc._casting`: what casts, what is refused, and that nothing is lost in silence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applyufunc import OutputDTypeError, OutputRangeError
from applyufunc._casting import cast, may_cast, numpy_dtype

NUMBERS = [np.dtype(code) for code in "?bhilqBHILQefdgFD"]


def to(values, dtype, **options):
    return cast(np.asarray(values), np.dtype(dtype), "output 0", **options)


def refusal(error, values, dtype, **options):
    with pytest.raises(error) as caught:
        to(values, dtype, **options)
    return str(caught.value)


@pytest.mark.parametrize("target", NUMBERS, ids=str)
@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_numbers_cast_as_numpy_casts_by_same_kind(source, target):
    values = np.ones(3, source)
    if np.can_cast(source, target, "same_kind"):
        result = cast(values, target, "output 0")
        assert result.dtype == target
        np.testing.assert_array_equal(result, np.ones(3))
    else:
        with pytest.raises(OutputDTypeError):
            cast(values, target, "output 0")


def test_an_array_of_the_dtype_is_itself():
    values = np.ones(3)
    assert to(values, float) is values


@pytest.mark.parametrize(
    ("values", "dtype", "got"),
    [
        ([1.0], "i8", "float64"),
        ([1j], "f8", "complex128"),
        ([1], "?", "int64"),
        ([-1], "u1", "int64"),
        ([1], "M8[s]", "int64"),
        ([1.5], "U5", "float64"),
        (["1"], "i8", "<U1"),
        (["a"], "S1", "<U1"),
        (np.array([None]), "f8", "object"),
    ],
)
def test_a_dtype_of_another_kind_is_refused(values, dtype, got):
    assert refusal(OutputDTypeError, values, dtype) == (
        f"output 0: kernel returned {got}, which does not cast to the declared {np.dtype(dtype)} (rule: same_kind)"
    )


@given(st.lists(st.integers(-(2**15), 2**15 - 1)), st.sampled_from(["i1", "i2", "i4"]))
def test_integers_narrow_within_the_range(values, dtype):
    limits = np.iinfo(dtype)
    if all(limits.min <= value <= limits.max for value in values):
        np.testing.assert_array_equal(to(np.array(values, "i4"), dtype), np.array(values, "i4"))
    else:
        with pytest.raises(OutputRangeError):
            to(np.array(values, "i4"), dtype)


@pytest.mark.parametrize(("values", "value"), [([1, 128], 128), ([-129, 1], -129)])
def test_an_integer_out_of_range_is_named(values, value):
    assert refusal(OutputRangeError, values, "i1") == (
        f"output 0: kernel returned {value}, which the declared int8 cannot hold (-128 to 127)"
    )


def test_integers_of_python_cast_to_unsigned_ones_that_hold_them():
    result = to([0, 255], "u1", weak=True)
    assert (result.dtype, result.tolist()) == (np.uint8, [0, 255])
    assert "returned 256" in refusal(OutputRangeError, [256], "u1", weak=True)
    assert "returned -1" in refusal(OutputRangeError, [-1], "u1", weak=True)
    assert "does not cast" in refusal(OutputDTypeError, [1.0], "u1", weak=True)


@pytest.mark.parametrize(("values", "dtype"), [([1e300], "f4"), ([100_000], "f2"), ([1e300 + 0j], "c8")])
def test_what_is_too_large_for_a_float_becomes_infinite_as_in_numpy_with_its_warning(values, dtype):
    with pytest.warns(RuntimeWarning, match="overflow encountered in cast"):
        assert np.isinf(to(values, dtype)).all()


def test_what_is_infinite_already_casts_without_a_warning():
    np.testing.assert_array_equal(to([np.inf, -np.inf, np.nan], "f4"), np.array([np.inf, -np.inf, np.nan], "f4"))


@pytest.mark.parametrize("dtype", ["f4", "f8", "g", "c8", "c16"])
def test_integers_of_python_of_any_size_become_floats(dtype):
    result = to([2**64, -(2**70), True, np.int8(3)], dtype, weak=True)
    assert (result.dtype, result.tolist()) == (np.dtype(dtype), [2**64, -(2**70), 1, 3])
    assert to([2**64, 0.5], dtype, weak=True).tolist() == [2**64, 0.5]


def test_integers_of_python_that_a_dtype_cannot_hold_are_refused():
    assert refusal(OutputRangeError, [2**64], "i8", weak=True) == (
        f"output 0: kernel returned {2**64}, which the declared int64 cannot hold ({-(2**63)} to {2**63 - 1})"
    )
    assert "returned an integer of 33220 bits, which" in refusal(OutputRangeError, [10**10000], "i8", weak=True)
    assert refusal(OutputRangeError, [10**10000], "f8", weak=True) == (
        "output 0: kernel returned an integer that the declared float64 cannot hold"
    )
    assert "does not cast" in refusal(OutputDTypeError, [2**64, 0.5], "i8", weak=True)
    assert "does not cast" in refusal(OutputDTypeError, [2**64, None], "f8", weak=True)
    assert "does not cast" in refusal(OutputDTypeError, np.array([2**64], object), "f8")  # a dtype that was chosen


@pytest.mark.parametrize(
    ("values", "dtype", "error", "message"),
    [
        ([1.5], "i4", OutputDTypeError, "kernel returned float64, which does not cast to int32 (rule: same_kind)"),
        ([300], "i1", OutputRangeError, "kernel returned 300, which int8 cannot hold (-128 to 127)"),
        (["abc"], "U2", OutputRangeError, "kernel returned <U3 values that <U2 would cut"),
    ],
)
def test_a_dtype_that_nobody_declared_asks_for_one(values, dtype, error, message):
    assert refusal(error, values, dtype, found=True) == (
        f"output 0: {message}; {np.dtype(dtype)} is what a call on made-up values gave: pass output_dtypes"
    )


def test_a_mask_is_kept_and_what_it_hides_does_not_count():
    values = np.ma.MaskedArray([1, 300], mask=[False, True])
    result = cast(values, np.dtype("i1"), "output 0")
    assert (result.dtype, result.tolist()) == (np.int8, [1, None])
    assert cast(values[1:], np.dtype("i1"), "output 0").tolist() == [None]
    times = np.ma.MaskedArray(["2000-01-01T05"], mask=[True], dtype="M8[s]")
    assert cast(times, np.dtype("M8[D]"), "output 0").mask.tolist() == [True]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array(["abc"]), "U2"),
        (np.array([b"abc"]), "S2"),
        (np.array([b"abc"]), "U2"),
        (np.array(["2000-01-01T05"], "M8[h]"), "M8[D]"),
        (np.array(["3000-01-01"], "M8[s]"), "M8[ns]"),  # wraps around to 1830
        (np.array([90], "m8[s]"), "m8[m]"),
    ],
)
def test_text_and_times_are_never_cut(values, dtype):
    assert refusal(OutputRangeError, values, dtype) == (
        f"output 0: kernel returned {values.dtype} values that the declared {np.dtype(dtype)} would cut"
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array(["abc"]), "U9"),
        (np.array(["ab ", "c"]), "U3"),
        (np.array([b"abc"]), "U3"),
        (np.array(["2000-01-01", "NaT"], "M8[D]"), "M8[ns]"),
        (np.array(["2000-01-01T00", "NaT"], "M8[h]"), "M8[D]"),
        (np.array([120], "m8[s]"), "m8[m]"),
    ],
)
def test_text_and_times_that_fit_are_cast(values, dtype):
    result = to(values, dtype)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, values.astype(dtype))


def test_text_of_no_declared_length_keeps_its_own():
    assert to(["abc"], "U").dtype == "U3"


def test_every_field_of_a_record_is_checked():
    records = np.array([(300, "abc")], [("a", "i8"), ("b", "U3")])
    assert to(records, [("a", "i2"), ("b", "U5")]).tolist() == [(300, "abc")]
    assert refusal(OutputRangeError, records, [("a", "i1"), ("b", "U5")]).startswith(
        "output 0, field a: kernel returned 300"
    )
    assert refusal(OutputRangeError, records, [("a", "i2"), ("b", "U2")]).startswith("output 0, field b: ")
    assert "does not cast" in refusal(OutputDTypeError, records, [("a", "i2"), ("b", "i2")])


def test_anything_becomes_an_object():
    assert to([1, 2], object).tolist() == [1, 2]


def test_extended_floats_cast_as_floats_do():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    assert to([1.5], bfloat16).dtype == bfloat16
    assert to(np.array([1.5], bfloat16), "f4").tolist() == [1.5]
    assert not may_cast(bfloat16, np.dtype("i4"))
    assert not may_cast(np.dtype(float), np.dtype(ml_dtypes.int4))


def test_dtypes_of_other_libraries_are_known_by_name():
    class Foreign:
        def __str__(self):
            return "torch.float32"

    assert numpy_dtype(Foreign()) == np.float32
    with pytest.raises(TypeError):
        numpy_dtype(object())
