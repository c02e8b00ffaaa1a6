"""`applyufunc._results`: what kernels may return, and what each refusal says."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_blocks import runner

from applyufunc import OptionError, OutputDTypeError, OutputRangeError, OutputShapeError, UpTo
from applyufunc._returned import box

ROWS = np.arange(6.0).reshape(2, 3)


def apply(func, text, *blocks, **options):
    """Return the outputs: one, or a tuple."""
    outputs = runner(func, text, **options)(*blocks)
    return outputs if len(outputs) > 1 else outputs[0]


def per_item(returned, **options):
    """Return the output of a kernel that gives these values, one per item."""
    values = iter(returned)
    shape = options.pop("text", "()->()")
    return apply(lambda _: next(values), shape, np.zeros(len(returned)), vectorize=True, **options)


def refusal(error, func, text, *blocks, **options):
    with pytest.raises(error) as caught:
        apply(func, text, *blocks, **options)
    return str(caught.value)


class TestForms:
    @pytest.mark.parametrize(
        ("value", "expected", "dtype"),
        [
            (np.ones(2), [1, 1], "f8"),
            ([1, 2], [1, 2], "i8"),
            ([1.5, 2], [1.5, 2], "f8"),
        ],
    )
    def test_a_batch_is_an_array_or_a_list(self, value, expected, dtype):
        result = apply(lambda x: value, "(n)->()", ROWS)
        assert (type(result), result.dtype, result.tolist()) == (np.ndarray, dtype, expected)

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_a_lazy_array_is_refused(self, vectorize):
        dask = pytest.importorskip("dask")
        da = pytest.importorskip("dask.array")

        def fail(*args, **keywords):
            raise AssertionError("something was computed")

        returned = da.zeros(3) if vectorize else da.zeros((2, 3))
        message = "output 0: kernel returned a lazy dask.Array, expected an array that holds its values"
        for dtypes in (None, ("f8",)):
            with dask.config.set(scheduler=fail):
                options = {"vectorize": vectorize, "dtypes": dtypes}
                assert refusal(OutputShapeError, lambda x: returned, "(n)->(n)", ROWS, **options) == message

    @pytest.mark.parametrize("value", [1.5, np.float64(1.5), np.array(1.5)])
    def test_one_number_is_an_array_a_numpy_scalar_or_a_python_number(self, value):
        for result in (apply(lambda x: value, "(n)->()", ROWS[0]), per_item([value])):
            assert (type(result), result.dtype, result.ravel().tolist()) == (np.ndarray, np.float64, [1.5])

    def test_several_outputs_are_a_tuple_or_a_list(self):
        for form in (tuple, list):
            first, second = apply(lambda x: form((x.min(-1), x.max(-1))), "(n)->(),()", ROWS)  # noqa: B023
            assert (first.tolist(), second.tolist()) == ([0, 3], [2, 5])

    def test_a_trailing_comma_asks_for_a_tuple_of_one(self):
        assert apply(lambda x: (x.sum(-1),), "(n)->(),", ROWS).tolist() == [3, 12]
        assert refusal(OutputShapeError, lambda x: x.sum(-1), "(n)->(),", ROWS) == (
            "kernel returned a ndarray, expected a tuple of 1: one array per output of '(n)->(),'"
        )

    @pytest.mark.parametrize(
        ("value", "text", "message"),
        [
            (
                (1, 2),
                "(n)->()",
                "kernel returned a tuple of 2, expected one array: the signature '(n)->()' has one output",
            ),
            (
                np.ones((2, 2)),
                "(n)->(),()",
                "kernel returned a ndarray, expected a tuple of 2: one array per output of '(n)->(),()'",
            ),
            (
                (1, 2, 3),
                "(n)->(),()",
                "kernel returned a tuple of 3, expected a tuple of 2: one array per output of '(n)->(),()'",
            ),
            (
                None,
                "(n)->(),()",
                "kernel returned None, expected a tuple of 2: one array per output of '(n)->(),()'",
            ),
            (None, "(n)->()", "output 0: kernel returned None, expected an array of shape (2,)"),
            ((np.ones(2), None), "(n)->(),()", "output 1: kernel returned None, expected an array of shape (2,)"),
        ],
    )
    def test_another_number_of_outputs_is_refused(self, value, text, message):
        assert refusal(OutputShapeError, lambda x: value, text, ROWS) == message

    def test_a_ragged_list_is_refused(self):
        message = refusal(OutputShapeError, lambda x: [[1], [1, 2]], "(n)->(n)", ROWS)
        assert message.startswith("output 0: kernel returned a list, expected an array of shape (2, 3): ")

    @pytest.mark.parametrize("dtypes", [None, ("f8",)])
    @pytest.mark.parametrize(
        ("value", "name"),
        [
            (None, "None"),
            ({}, "a dict"),
            ({1}, "a set"),
            (lambda: 1, "a function"),
            (iter([1]), "a list_iterator"),
            (dt.date(2000, 1, 1), "a date"),
            ([None, 1.0], "a list with None in it"),
            ([{}, 1.0], "a list with a dict in it"),
        ],
    )
    def test_what_is_no_array_is_refused_by_name(self, value, name, dtypes):
        cure = " (output_dtypes=object takes any object for an item)"
        for text, blocks, vectorize, place, shape in (
            ("(n)->()", ROWS[0], False, "", "()"),
            ("(n)->()", ROWS, False, "", "(2,)"),
            ("(n)->()", ROWS, True, " for item 0", "()"),
            ("(n)->(2)", ROWS, True, " for item 0", "(2,)"),
            ("(n)->(2)", ROWS.reshape(2, 1, 3), True, " for item (0, 0)", "(2,)"),
        ):
            message = refusal(OutputShapeError, lambda x: value, text, blocks, vectorize=vectorize, dtypes=dtypes)
            expected = f"output 0: kernel returned {name}{place}, expected an array of shape {shape}"
            assert message == expected + cure * (shape == "()")

    @pytest.mark.parametrize("value", [decimal.Decimal(1), fractions.Fraction(1, 2), 2**70, "a", b"a"])
    def test_a_number_of_another_type_and_text_are_items(self, value):
        assert per_item([value, value]).tolist() == [value, value]

    @pytest.mark.parametrize("dtypes", [None, ("f8",)])
    def test_text_is_no_batch(self, dtypes):
        assert refusal(OutputShapeError, lambda x: "ab", "(n)->()", ROWS, dtypes=dtypes) == (
            "output 0: kernel returned a str, expected an array of shape (2,)"
        )
        message = refusal(OutputShapeError, lambda x: "ab", "(n)->(2)", ROWS, vectorize=True, dtypes=dtypes)
        assert message == "output 0: kernel returned a str for item 0, expected an array of shape (2,)"

    def test_an_object_that_answers_to_every_name_is_no_array(self):
        class Answers:
            def __getattr__(self, name):
                return 1

        for vectorize in (False, True):
            message = refusal(OutputShapeError, lambda x: Answers(), "(n)->()", ROWS, vectorize=vectorize)
            assert message.startswith("output 0: kernel returned an Answers")

    @pytest.mark.parametrize("items", [[None, "a"], [None, None], [{}, 1], [[1, 2], [3]], [1.5, None]])
    def test_objects_go_through_where_an_argument_has_them(self, items):
        objects = box(items)
        for vectorize in (False, True):
            result = apply(lambda x: x, "()->()", objects, vectorize=vectorize)
            assert (result.dtype, result.tolist()) == (np.dtype(object), items)
        result = apply(lambda x: x[0], "(n)->()", objects[:, None], vectorize=True)
        assert (result.dtype, result.tolist()) == (np.dtype(object), items)

    def test_numbers_made_of_objects_are_numbers(self):
        result = apply(len, "()->()", box([[1, 2], [3]]), vectorize=True)
        assert (result.dtype, result.tolist()) == (np.dtype(int), [2, 1])


class TestShapes:
    def test_a_wrong_core_size_names_the_dim(self):
        assert refusal(OutputShapeError, lambda x: x[..., 1:], "(i)->(i)", ROWS) == (
            "output 0, core dimension i: expected 3, kernel returned 2 (shape (2, 2), expected (2, 3))"
        )
        sizes = (("j", 5),)
        message = refusal(OutputShapeError, lambda x: (x, x[..., :2]), "(i)->(i),(j)", ROWS, sizes=sizes)
        assert message.startswith("output 1, core dimension j: expected 5, kernel returned 2")

    def test_a_wrong_core_size_of_an_item_names_it(self):
        rows = np.arange(3)
        kernel = lambda x, i: x[int(i == 1) :]
        assert refusal(OutputShapeError, kernel, "(n),()->(n)", np.ones((3, 4)), rows, vectorize=True) == (
            "output 0, core dimension n: expected 4, kernel returned 3 (shape (3,), expected (4,)) in item 1"
        )

    def test_a_lost_loop_dim_hints_at_the_signature(self):
        assert refusal(OutputShapeError, np.median, "()->()", np.ones(4)) == (
            "output 0: kernel returned shape () for loop shape (4,): is a core dimension missing from the signature? "
            "(expected (4,); a kernel that takes one item at a time needs vectorize=True)"
        )

    def test_a_wrong_loop_size_hints_at_the_axis(self):
        assert refusal(OutputShapeError, lambda x: x.sum(0), "(n)->()", np.ones((6, 4))) == (
            "output 0, loop dimension -1: expected 6, kernel returned 4 (shape (4,), expected (6,)): the kernel gets a "
            "batch, and works along axis=-1 of it (one that takes one item at a time needs vectorize=True)"
        )

    def test_a_loop_without_dims_is_not_spoken_of(self):
        assert refusal(OutputShapeError, lambda x: x, "(n)->()", ROWS[0]) == (
            "output 0: kernel returned shape (3,), expected (): the signature gives this output no core dimensions"
        )

    def test_an_item_of_a_loop_of_several_dims_has_an_index(self):
        kernel = lambda x, i: x[int(i == 4) :]
        args = np.ones((2, 3, 4)), np.arange(6).reshape(2, 3)
        message = refusal(OutputShapeError, kernel, "(n),()->(n)", *args, vectorize=True)
        assert message.endswith("(shape (3,), expected (4,)) in item (1, 1)")

    def test_a_lost_core_dim_names_it(self):
        assert refusal(OutputShapeError, lambda x: x.sum(-1), "(n)->(n)", ROWS) == (
            "output 0: kernel returned shape (2,) for loop shape (2,), expected (2, 3): "
            "the signature gives this output the core dimensions (n)"
        )

    def test_a_dim_too_many_is_refused(self):
        assert refusal(OutputShapeError, lambda x: x, "(n)->()", ROWS) == (
            "output 0: kernel returned shape (2, 3) for loop shape (2,), expected (2,): the signature gives this "
            "output no core dimensions"
        )
        assert refusal(OutputShapeError, lambda x: x, "(n)->()", ROWS, vectorize=True) == (
            "output 0: kernel returned shape (3,) for one item (item 0), expected core shape ()"
        )

    def test_a_loop_axis_may_come_back_thin_where_an_array_came_so(self):
        result = apply(lambda x, y: y * 2, "(),()->()", np.ones((2, 3)), np.arange(3.0))
        assert result.tolist() == [[0, 2, 4], [0, 2, 4]]
        message = refusal(OutputShapeError, lambda x: x[:1], "()->()", np.ones((2, 3)))
        assert message.startswith("output 0, loop dimension -2: expected 2, kernel returned 1")

    def test_a_python_scalar_does_not_make_loop_axes_thin(self):
        message = refusal(OutputShapeError, lambda x, p: x[:1], "(),()->()", np.ones((2, 3)), constants=((1, 2.0),))
        assert message.startswith("output 0, loop dimension -2: expected 2, kernel returned 1")


class TestUnknownSizes:
    def test_a_batch_says_the_size(self):
        assert apply(lambda x: x[..., :2], "(n)->(k)", ROWS, sizes=(("k", None),)).shape == (2, 2)

    def test_items_have_one_size(self):
        kernel = lambda x: x[x > 1]
        assert refusal(OutputShapeError, kernel, "(n)->(k)", ROWS, sizes=(("k", None),), vectorize=True) == (
            "output 0, core dimension k: unknown size is 1 in item 0 and 3 in item 1, "
            "expected one size for the whole call (UpTo(bound) pads)"
        )

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_outputs_have_one_size(self, vectorize):
        kernel = lambda x: (x[..., :2], x[..., :1])
        options = {"sizes": (("k", None),), "vectorize": vectorize}
        assert refusal(OutputShapeError, kernel, "(n)->(k),(k)", ROWS, **options) == (
            "output 1, core dimension k: unknown size is 1, but 2 in output 0; expected one size for the whole call"
        )
        square = lambda x: x[..., None] * np.ones(2)
        assert "unknown size is 2, but 3 in output 0" in refusal(
            OutputShapeError, square, "(n)->(k,k)", ROWS, **options
        )


class TestBounds:
    @pytest.mark.parametrize("vectorize", [False, True])
    def test_what_is_returned_is_padded(self, vectorize):
        sizes = (("k", UpTo(4, -1)),)
        result = apply(lambda x: x[..., 1:], "(n)->(k)", ROWS, sizes=sizes, vectorize=vectorize)
        assert result.tolist() == [[1, 2, -1, -1], [4, 5, -1, -1]]

    def test_ragged_items_are_padded(self):
        result = apply(lambda x: x[x > 1], "(n)->(k)", ROWS, sizes=(("k", UpTo(3)),), vectorize=True)
        assert result.tolist() == [[2, 0, 0], [3, 4, 5]]

    def test_every_bounded_dim_is_padded(self):
        kernel = lambda x: np.ones((2, 1))
        result = apply(kernel, "(n)->(j,k)", ROWS, sizes=(("j", UpTo(2)), ("k", UpTo(2, 5))), vectorize=True)
        assert result.tolist() == [[[1, 5], [1, 5]]] * 2

    def test_more_than_the_bound_is_refused(self):
        assert refusal(OutputShapeError, lambda x: x, "(n)->(k)", ROWS, sizes=(("k", UpTo(2)),)) == (
            "output 0, core dimension k: expected at most 2 (UpTo), kernel returned 3"
        )

    @pytest.mark.parametrize("size", [0, 1, 3])
    @pytest.mark.parametrize(
        ("dtype", "fill", "expected"),
        [
            ("i8", 0, "i8"),
            ("u1", 7, "u1"),
            ("?", 0, "?"),
            ("i8", float("nan"), "f8"),
            ("i4", 2.5, "f8"),
            ("f4", 0, "f4"),
            ("f4", float("nan"), "f4"),
            ("f4", 1e300, "f8"),
            ("f8", 1j, "c16"),
            ("u1", -1, "i8"),
            ("u1", 300, "i8"),
            ("M8[s]", np.datetime64("NaT", "s"), "M8[s]"),
            ("M8[s]", "NaT", "M8[s]"),
            ("m8[s]", np.timedelta64(0, "s"), "m8[s]"),
            ("U2", "", "U2"),
            ("U2", "abc", "U3"),
            ("O", None, "O"),
        ],
    )
    def test_an_undeclared_dtype_depends_on_the_fill_value_and_not_on_how_much_is_padded(
        self, size, dtype, fill, expected
    ):
        returned = np.zeros(size, dtype)
        for vectorize in (False, True):
            kernel = lambda x: returned if x.ndim == 1 else np.stack([returned] * 2)
            result = apply(kernel, "(n)->(k)", ROWS, sizes=(("k", UpTo(3, fill)),), vectorize=vectorize)
            assert (result.shape, result.dtype) == ((2, 3), np.dtype(expected))

    @pytest.mark.parametrize(
        ("dtype", "fill"),
        [
            ("i8", float("nan")),
            ("i8", 2.5),
            ("u1", -1),
            ("u1", 300),
            ("f4", 1e300),
            ("f8", 1j),
            ("U2", 0),
            ("U2", "abc"),
            ("M8[s]", 0),
            ("m8[s]", 0),
            ("f8", "0"),
            ("?", 2),
            ("f8", None),
            ("i8", np.datetime64("NaT", "s")),
        ],
    )
    def test_a_fill_value_that_a_declared_dtype_cannot_hold_is_refused(self, dtype, fill):
        kernel = lambda x: np.zeros((2, 1), dtype)
        assert refusal(OptionError, kernel, "(n)->(k)", ROWS, sizes=(("k", UpTo(3, fill)),), dtypes=(dtype,)) == (
            f"output 0, core dimension k: UpTo has fill_value {fill!r}, which the dtype {np.dtype(dtype)} cannot hold"
        )

    def test_the_padding_of_a_masked_array_is_not_masked(self):
        rows = np.ma.MaskedArray(ROWS, mask=ROWS == 1)
        result = apply(lambda x: x[..., :2], "(n)->(k)", rows, sizes=(("k", UpTo(3)),))
        assert result.tolist() == [[0, None, 0], [3, 4, 0]]


class TestDTypes:
    def test_a_declared_dtype_is_enforced(self):
        assert apply(lambda x: x.astype(int), "(n)->(n)", ROWS, dtypes=("f4",)).dtype == np.float32
        assert "returned float64, which does not cast to the declared int64" in refusal(
            OutputDTypeError, lambda x: x, "(n)->(n)", ROWS, dtypes=("i8",)
        )

    @given(st.permutations([0, 1.5, np.float32(2), np.int8(3), True]))
    def test_undeclared_dtypes_promote_over_items_in_any_order(self, values):
        result = per_item(values)
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, np.array(values, "f4"))

    @pytest.mark.parametrize(
        ("values", "dtype"),
        [
            ([0, 1.5], "f8"),
            ([1, 2], "i8"),
            ([True, False], "?"),
            ([True, 2], "i8"),
            ([1, 2j], "c16"),
            ([2**63, 1], "u8"),
            ([2**63, -1], "O"),
            ([np.float32(1), 0], "f4"),
            ([np.float32(1), float("inf")], "f4"),
            ([np.uint8(1), 0], "u1"),
            ([np.uint8(1), -1], "i8"),
            ([np.uint8(1), 300], "i8"),
            ([np.int8(1), np.uint8(1)], "i2"),
            ([np.float32(1), np.float64(1)], "f8"),
            (["a", "bcd"], "U3"),
            ([np.datetime64("2000", "Y"), np.datetime64("2000-01-01", "D")], "M8[D]"),
            ([np.array(1, "i2"), np.float32(1)], "f4"),
            ([np.array(1, "i2"), 5], "i2"),
            ([np.array(1, "i2"), 70000], "i8"),
            ([decimal.Decimal(1), decimal.Decimal(2)], "O"),
        ],
    )
    def test_items_promote(self, values, dtype):
        for order in (values, values[::-1]):
            result = per_item(order)
            assert (result.dtype, result.tolist()) == (np.dtype(dtype), np.array(order, dtype).tolist())

    def test_every_output_promotes_by_itself(self):
        first, second = apply(lambda x: (0, x[0]) if x[0] < 1 else (x[0] / 2, 1), "(n)->(),()", ROWS, vectorize=True)
        assert (first.dtype, first.tolist(), second.dtype, second.tolist()) == (
            np.float64,
            [0, 1.5],
            np.float64,
            [0, 1],
        )

    def test_items_with_core_dims_promote(self):
        result = per_item([[1, 2], np.array([1.5, 2], "f4"), np.array([1, 2])], text="()->(2)")
        assert (result.dtype, result.tolist()) == (np.float64, [[1, 2], [1.5, 2], [1, 2]])

    def test_items_without_a_common_dtype_are_refused(self):
        with pytest.raises(OutputDTypeError, match=r"output 0: kernel returned items of .* which have no common dtype"):
            per_item([np.array(1.5), np.array("2000", "M8[D]")])

    @pytest.mark.parametrize("values", [[2**64, 1], [np.int8(1), 2**64], [2**64, True], [[2**64], [1]]])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
    def test_integers_of_python_of_any_size_cast_to_a_declared_float(self, values, dtype):
        text = "()->(1)" if isinstance(values[0], list) else "()->()"
        result = per_item(values, text=text, dtypes=(dtype,))
        assert (result.dtype, result.tolist()) == (np.dtype(dtype), np.array(values, dtype).tolist())
        batch = apply(lambda x: [2**64, 1], "()->()", np.zeros(2), dtypes=(dtype,))
        assert (batch.dtype, batch.tolist()) == (np.dtype(dtype), [2**64, 1])

    @pytest.mark.parametrize("values", [[1, 255], [1, np.uint8(255)], [[1], [255]]])
    def test_integers_of_python_cast_to_a_declared_dtype_that_holds_them(self, values):
        text = "()->(1)" if isinstance(values[0], list) else "()->()"
        assert per_item(values, text=text, dtypes=("u1",)).ravel().tolist() == [1, 255]
        with pytest.raises(OutputRangeError, match="returned 256"):
            per_item([*values, [256] if text == "()->(1)" else 256], text=text, dtypes=("u1",))

    def test_integers_of_numpy_do_not_become_unsigned(self):
        with pytest.raises(OutputDTypeError):
            per_item([1, np.int64(255)], dtypes=("u1",))

    def test_declared_objects_are_kept_whatever_they_are(self):
        values = [None, (1, 2), "ab", [3], {"a": 1}]
        assert per_item([[v] if isinstance(v, tuple) else v for v in values], dtypes=("O",)).tolist()[2:] == values[2:]
        result = apply(lambda x: {"sum": x.sum()}, "(n)->()", ROWS[0], dtypes=("O",))
        assert (result.dtype, result.shape, result[()]) == (np.dtype(object), (), {"sum": 3.0})

    def test_text_and_times_are_never_cut(self):
        assert per_item(["a", "bcd"], dtypes=("U3",)).tolist() == ["a", "bcd"]
        with pytest.raises(OutputRangeError, match="would cut"):
            per_item(["a", "bcd"], dtypes=("U2",))
        with pytest.raises(OutputRangeError, match="would cut"):
            per_item([np.datetime64("2000-01-01T05")], dtypes=("M8[D]",))

    @pytest.mark.parametrize("missing", [False, True])
    def test_strings_of_any_length_keep_the_dtype_of_the_argument(self, missing):
        dtype = np.dtypes.StringDType(na_object=None) if missing else np.dtypes.StringDType()
        texts = np.array([["a", "bcdefghijkl"], ["", None if missing else "z"]], dtype)
        expected = texts.tolist()
        for text, kernel, wanted in (
            ("()->()", lambda x: x, expected),
            ("(n)->(n)", lambda x: x, expected),
            ("(n)->()", lambda x: x[0], ["a", ""]),
            ("(n)->()", lambda x: x[-1], [row[-1] for row in expected]),
        ):
            result = apply(kernel, text, texts, vectorize=True)
            assert (result.dtype, result.tolist()) == (dtype, wanted)
        assert apply(lambda x: x[..., 0], "(n)->()", texts[0]).dtype == dtype
        assert apply(lambda x: len(x[0]), "(n)->()", texts, vectorize=True).tolist() == [1, 0]
        assert apply(lambda x: x[0], "(n)->()", texts, vectorize=True, dtypes=("U5",)).dtype == "U5"

    def test_records_are_stacked(self):
        record = np.dtype([("a", "i4"), ("b", "f8")])
        result = per_item([np.array((1, 2.5), record)[()], np.array((3, 4.5), record)[()]])
        assert (result.dtype, result["b"].tolist()) == (record, [2.5, 4.5])


class TestMasks:
    rows = np.ma.MaskedArray([[1, 2, 99], [3, 99, 5], [99, 99, 99]], mask=[[0, 0, 1], [0, 1, 0], [1, 1, 1]])

    @pytest.mark.parametrize("dtypes", [None, ("f8",), ("f4",)])
    def test_a_mask_is_kept_down_to_the_kernel(self, dtypes):
        for result in (
            apply(lambda x: x.mean(axis=-1), "(n)->()", self.rows, dtypes=dtypes),
            apply(lambda x: x.mean(), "(n)->()", self.rows, vectorize=True, dtypes=dtypes),
        ):
            assert isinstance(result, np.ma.MaskedArray)
            assert (result.dtype, result.tolist()) == (np.dtype(dtypes[0] if dtypes else "f8"), [1.5, 4, None])

    @pytest.mark.parametrize("rows", [rows, rows[:1], rows[2:]])
    @pytest.mark.parametrize("dtypes", [None, ("i4",)])
    def test_the_masked_constant_has_the_dtype_of_the_others(self, rows, dtypes):
        result = apply(lambda x: x.max(), "(n)->()", rows, vectorize=True, dtypes=dtypes)
        expected = rows.max(axis=-1)
        assert result.tolist() == expected.tolist()
        assert result.dtype == ("i4" if dtypes else expected.dtype if not expected.mask.all() else float)

    def test_items_of_masked_arrays_give_a_masked_array_whatever_the_data(self):
        assert isinstance(apply(lambda x: x.max(), "(n)->()", self.rows[:1], vectorize=True), np.ma.MaskedArray)
        assert isinstance(apply(lambda x: x.count(), "(n)->()", self.rows, vectorize=True), np.ma.MaskedArray)

    def test_the_masked_constant_alone_has_the_declared_dtype(self):
        result = apply(lambda x: x.max(), "(n)->()", self.rows[2], dtypes=("i4",))
        assert (result.dtype, result.mask.tolist()) == (np.int32, True)

    def test_core_dims_keep_their_masks(self):
        for vectorize in (False, True):
            result = apply(lambda x: x * 2, "(n)->(n)", self.rows, vectorize=vectorize)
            assert result.tolist() == (self.rows * 2).tolist()

    def test_loop_axes_are_stretched_with_their_masks(self):
        result = apply(lambda x, y: y, "(),()->()", np.ones((2, 3)), self.rows[0])
        assert result.tolist() == [[1, 2, None]] * 2
