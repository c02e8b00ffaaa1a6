"""`applyufunc._plan`: sizes, loop dims and output shapes, and what every refusal says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applyufunc import DimensionError, OptionError, Signature, UnknownSizeError, UpTo
from applyufunc._plan import core_sizes, fix_output_sizes, make_plan, shape_text

SIZES = st.integers(0, 3)


def plan(text, *shapes, **output_sizes):
    return make_plan(Signature.parse(text), shapes, tuple(output_sizes.items()))


def refusal(error, text, *shapes, sizes=()):
    with pytest.raises(error) as caught:
        make_plan(Signature.parse(text), shapes, tuple(sizes))
    return str(caught.value)


def test_dims_count_loop_dims_from_the_right_and_name_core_dims():
    result = plan("(m,n),(n)->(m)", (5, 1, 4, 3), (6, 3))
    assert [operand.dims for operand in result.inputs] == [("-2", "-1", "m", "n"), ("-1", "n")]
    assert (result.outputs[0].dims, result.outputs[0].shape) == (("-2", "-1", "m"), (5, 6, 4))
    assert (result.loop_shape, result.sizes) == ((5, 6), (("m", 4), ("n", 3)))


def test_operand_splits_its_shape():
    operand = plan("(m,n)->()", (5, 6, 4, 3)).inputs[0]
    assert (operand.n_loop, operand.loop_shape, operand.core_shape) == (2, (5, 6), (4, 3))


def test_an_argument_without_a_shape_has_no_operand():
    result = plan("(n),(n)->(n)", (2, 3), None)
    assert result.inputs[1] is None
    assert result.outputs[0].shape == (2, 3)


@given(st.lists(st.lists(SIZES, max_size=3).map(tuple), min_size=1, max_size=3))
def test_loop_dims_broadcast_as_numpy_shapes(shapes):
    text = ",".join(["()"] * len(shapes)) + "->()"
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(DimensionError):
            plan(text, *shapes)
    else:
        assert plan(text, *shapes).loop_shape == expected


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(None,), (1,)], (None,)),
        ([(None,), (5,)], (5,)),
        ([(5,), (None,)], (5,)),
        ([(None,), (None,)], (None,)),
        ([(None, 3), (3,)], (None, 3)),
    ],
)
def test_an_unknown_loop_size_gives_way_to_a_known_one(shapes, expected):
    assert plan("(),()->()", *shapes).loop_shape == expected


@pytest.mark.parametrize(
    ("text", "shapes", "size"),
    [
        ("(n),(n)->()", [(None,), (5,)], 5),
        ("(n),(n)->()", [(5,), (None,)], 5),
        ("(n),(n)->()", [(None,), (None,)], None),
        ("(n|1),(n)->()", [(1,), (None,)], None),
        ("(n),(n|1)->()", [(None,), (1,)], None),
        ("(n|1),(n|1)->()", [(1,), (None,)], None),
        ("(n|1),(n)->()", [(None,), (5,)], 5),
        ("(n|1),(n)->()", [(1,), (5,)], 5),
        ("(n|1),(n)->()", [(5,), (5,)], 5),
        ("(n|1),(n)->()", [(1,), (0,)], 0),
        ("(n|1),(n|1)->()", [(1,), (1,)], 1),
    ],
)
def test_a_core_size_is_that_of_what_does_not_stretch(text, shapes, size):
    assert core_sizes(Signature.parse(text), tuple(shapes)) == {"n": size}


def test_an_unknown_fixed_size_is_the_fixed_one():
    assert core_sizes(Signature.parse("(3)->()"), ((None,),)) == {"3": 3}


def test_an_expression_of_an_unknown_size_is_unknown():
    assert plan("(m),(n)->(m+n-1)", (None,), (3,)).outputs[0].shape == (None,)
    assert plan("(m),(n)->(m+n-1)", (None,), (3,)).unknown_output_dims == ("m+n-1",)


@pytest.mark.parametrize(
    ("text", "shapes", "sizes", "expected"),
    [
        ("(m),(n)->(m+n-1)", [(2, 4), (3,)], {}, (2, 6)),
        ("(n)->(n*(n-1)//2)", [(2, 4)], {}, (2, 6)),
        ("(n)->(2,n)", [(4,)], {}, (2, 4)),
        ("->(n)", [], {"n": 3}, (3,)),
        ("(n,n)->()", [(2, 3, 3)], {}, (2,)),
        ("(i)->(i)", [(2, 4)], {"i": 5}, (2, 5)),
        ("(n)->(k)", [(2, 4)], {"k": UpTo(7)}, (2, 7)),
        ("(n)->(k)", [(2, 4)], {"k": None}, (2, None)),
        ("(n)->(k+1)", [(2, 4)], {"k": 2}, (2, 3)),
        ("(n)->(k,n)", [(0, 4)], {"k": 0}, (0, 0, 4)),
    ],
)
def test_output_shapes(text, shapes, sizes, expected):
    assert plan(text, *shapes, **sizes).outputs[0].shape == expected


def test_bounds_are_those_of_the_options():
    assert plan("(n)->(k)", (4,), k=UpTo(7)).bounds == (("k", UpTo(7)),)


def test_core_dims_do_not_broadcast():
    assert refusal(DimensionError, "(n),(n)->()", (2, 5), (2, 1)) == (
        "core dimension 'n' is 5 in argument 0 and 1 in argument 1: core dimensions do not broadcast "
        "(write 'n|1' where size 1 may)"
    )
    assert refusal(DimensionError, "(n),(n)->()", (2, 5), (2, 4)) == (
        "core dimension 'n' is 5 in argument 0 and 4 in argument 1: core dimensions do not broadcast"
    )


def test_a_repeated_dim_has_one_size():
    assert refusal(DimensionError, "(n,n)->()", (2, 3)) == (
        "core dimension 'n' is 2 and 3 in argument 0: core dimensions do not broadcast"
    )


def test_only_size_1_of_a_marked_dim_stretches():
    assert "is 5 in argument 0 and 1 in argument 1" in refusal(DimensionError, "(n|1),(n)->()", (5,), (1,))
    assert "is 0 in argument 0 and 5 in argument 1" in refusal(DimensionError, "(n|1),(n)->()", (0,), (5,))


def test_a_fixed_size_is_checked():
    assert refusal(DimensionError, "(n),(3)->()", (2, 5), (2, 4)) == ("argument 1: core dimension fixed to 3, got 4")


def test_loop_dims_that_do_not_broadcast_are_named():
    assert refusal(DimensionError, "(n),()->()", (2, 5), (3,)) == (
        "loop dimension -1 (from the right) is 2 in argument 0 and 3 in argument 1: "
        "loop shapes (2,) and (3,) do not broadcast"
    )


def test_too_few_axes_are_refused():
    assert refusal(DimensionError, "(),(m,n)->()", (), (3,)) == (
        "argument 1 has shape (3,), too few dimensions for its core dimensions (m,n)"
    )


def test_a_missing_output_size_names_the_dim_and_the_cure():
    message = refusal(UnknownSizeError, "(n)->(k)", (4,))
    assert message.startswith(
        "the size of output dimension 'k' is not known: no input has it; pass output_sizes={'k': "
    )
    assert "'k'" in refusal(UnknownSizeError, "(n)->(n+k)", (4,))


@pytest.mark.parametrize(
    ("text", "label", "listed"),
    [("(n)->(k)", "q", "k"), ("(n)->(n+1)", "n", "n+1"), ("(n)->(n+k)", "n", "k, n+k"), ("(n)->()", "n", "none")],
)
def test_a_size_for_no_dim_of_the_outputs_is_refused(text, label, listed):
    message = refusal(OptionError, text, (4,), sizes=[(label, 5)])
    assert message == (
        f"output_sizes names dimension {label!r}, which no output of {text!r} has; the outputs' dimensions: {listed}"
    )


def test_a_size_that_contradicts_a_fixed_one_is_refused():
    message = refusal(DimensionError, "(n)->(3)", (4,), sizes=[("3", 5)])
    assert message == "output_sizes['3'] is 5: the signature fixes this dimension to 3"


def test_an_expression_that_comes_to_less_than_nothing_is_refused():
    assert refusal(DimensionError, "(n)->(n-5)", (4,)) == (
        "dimension 'n-5' with n=4 has size -1, but expected a size of 0 or more"
    )


def test_plans_are_cached_by_value():
    signature = Signature.parse("(n)->(k)")
    first = make_plan(signature, ((2, 4),), (("k", 3),))
    assert make_plan(Signature.parse(" ( n ) -> ( k )"), ((2, 4),), (("k", 3),)) is first
    assert hash(first) == hash(make_plan.__wrapped__(signature, ((2, 4),), (("k", 3),)))


def test_cached_plans_keep_bounds_apart_that_only_fill_differently():
    signature = Signature.parse("(n)->(k)")
    fills = [make_plan(signature, ((4,),), (("k", UpTo(3, fill)),)).bounds[0][1].fill_value for fill in (0, 0.0, False)]
    assert [type(fill) for fill in fills] == [int, float, bool]


def test_a_callable_gets_the_sizes_and_the_keywords_that_it_takes():
    rules = (("p", lambda sizes: sizes["n"] * 2), ("q", lambda sizes, degree: sizes["n"] + degree))
    assert fix_output_sizes(rules, {"n": 4}, {"degree": 3, "mode": "x"}) == (("p", 8), ("q", 7))
    everything = (("p", lambda sizes, **keywords: len(keywords)),)
    assert fix_output_sizes(everything, {"n": 4}, {"degree": 3, "mode": "x"}) == (("p", 2),)


def test_a_callable_cannot_change_the_sizes():
    sizes = {"n": 4}
    fix_output_sizes((("p", lambda known: known.pop("n")),), sizes, {})
    assert sizes == {"n": 4}


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda sizes: 2.5, OptionError, "output_sizes['k']: the callable returned 2.5, expected an int"),
        (lambda sizes: -1, DimensionError, "output_sizes['k']: the callable returned -1, expected at least 0"),
    ],
)
def test_what_a_callable_returns_is_checked(rule, error, message):
    with pytest.raises(error) as caught:
        fix_output_sizes((("k", rule),), {"n": 4}, {})
    assert str(caught.value) == message


@pytest.mark.parametrize("size", [np.int64(3), None, UpTo(3)])
def test_a_callable_may_return_any_size(size):
    assert fix_output_sizes((("k", lambda sizes: size),), {"n": 4}, {}) == (("k", size),)


def test_an_error_of_a_callable_says_where_it_was_called():
    with pytest.raises(KeyError) as caught:
        fix_output_sizes((("k", lambda sizes: sizes["m"]),), {"n": 4}, {})
    assert caught.value.__notes__ == [
        "in the callable that output_sizes has for dimension 'k', called with sizes {'n': 4}"
    ]


def test_a_callable_that_needs_an_unknown_size_is_refused_by_name():
    with pytest.raises(UnknownSizeError, match="of core dimension 'n' is unknown until computed"):
        fix_output_sizes((("k", lambda sizes: sizes["n"] * 2),), {"n": None}, {})


def test_shapes_read_as_numpy_writes_them():
    assert [shape_text(shape) for shape in [(), (3,), (None, 2)]] == ["()", "(3,)", "(?, 2)"]
