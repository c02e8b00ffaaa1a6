"""Signatures against NumPy's two parsers, NumPy's rule for optional dimensions, and expressions drawn as trees."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import re
import time
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import _function_base_impl

from applyufunc._errors import ApplyUfuncError, DimensionError, OptionError, SignatureError
from applyufunc._signature import CoreDim, Signature, _parse

umath_linalg = pytest.importorskip("numpy.linalg._umath_linalg")
umath_tests = pytest.importorskip("numpy._core._umath_tests")

NUMPY_GUFUNCS = {
    function.signature: function
    for module in (np, umath_linalg, umath_tests)
    for function in vars(module).values()
    if isinstance(function, np.ufunc) and function.signature is not None
}

NAMES = st.sampled_from(["m", "n", "p", "_x1", "Time", "n0"])
WHITE_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t ", "\u00a0"])


# Values written out


def test_every_operand_becomes_a_tuple_of_core_dims():
    signature = Signature.parse("(m,n),(n)->(m)")
    assert signature.inputs == ((CoreDim("m"), CoreDim("n")), (CoreDim("n"),))
    assert signature.outputs == ((CoreDim("m"),),)
    assert (signature.nin, signature.nout, signature.always_tuple) == (2, 1, False)
    assert (signature.input_labels, signature.output_labels) == ((("m", "n"), ("n",)), (("m",),))


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("(n)->()", CoreDim("n")),
        ("(n?)->()", CoreDim("n", optional=True)),
        ("(n|1)->()", CoreDim("n", stretches=True)),
        ("( n | 01 )->()", CoreDim("n", stretches=True)),
        ("(3)->()", CoreDim("3", size=3)),
        ("(0)->()", CoreDim("0", size=0)),
        ("(003)->()", CoreDim("3", size=3)),
        ("(9223372036854775807)->()", CoreDim("9223372036854775807", size=2**63 - 1)),
        ("(_n_1,)->()", CoreDim("_n_1")),
    ],
)
def test_each_kind_of_input_dim_has_its_value(text, dim):
    assert Signature.parse(text).inputs == ((dim,),)


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("((n))", CoreDim("n")),
        ("(((007)))", CoreDim("7", size=7)),
        ("(k?)", CoreDim("k", optional=True)),
        ("(m+n-1)", CoreDim("m+n-1", expression=("m", "n", "+", 1, "-"))),
        ("(((m+n))-(1))", CoreDim("m+n-1", expression=("m", "n", "+", 1, "-"))),
        ("(m-(n-1))", CoreDim("m-(n-1)", expression=("m", "n", 1, "-", "-"))),
        ("(m+(n*2))", CoreDim("m+n*2", expression=("m", "n", 2, "*", "+"))),
        ("((m+n)*2)", CoreDim("(m+n)*2", expression=("m", "n", "+", 2, "*"))),
        ("((n*(n-1))//2)", CoreDim("n*(n-1)//2", expression=("n", "n", 1, "-", "*", 2, "//"))),
        ("(n*((n-1)//2))", CoreDim("n*((n-1)//2)", expression=("n", "n", 1, "-", 2, "//", "*"))),
        ("(01+1)", CoreDim("1+1", expression=(1, 1, "+"))),
    ],
)
def test_each_kind_of_output_dim_has_its_value(text, dim):
    assert Signature.parse(f"(m,n)->{text}").outputs == ((dim,),)


def test_a_dims_names_are_those_that_its_size_depends_on():
    plain, fixed, computed = Signature.parse("(n)->(n,3,n*(m+n)-2)").outputs[0]
    assert (plain.names, fixed.names, computed.names) == (("n",), (), ("n", "m"))


def test_a_signature_may_have_no_inputs():
    signature = Signature.parse("->(n)")
    assert (signature.nin, signature.nout, str(signature)) == (0, 1, "->(n)")


def test_a_comma_after_the_last_output_asks_for_a_tuple():
    signature = Signature.parse("(n)->(),")
    assert signature.always_tuple
    assert str(signature) == "(n)->(),"
    assert signature != Signature.parse("(n)->()")


def test_a_comma_after_the_last_dim_says_nothing():
    assert Signature.parse("(m,n,),(n,)->(m,)") == Signature.parse("(m,n),(n)->(m)")


def test_white_space_says_nothing():
    assert Signature.parse(" ( m ,\n n | 1 )\t, ( n )\n-> ( m + n )\u00a0, ").text == "(m,n|1),(n)->(m+n),"


def test_equality_goes_by_what_is_meant():
    assert Signature.parse("(n)->((n) + (01))") == Signature.parse("(n)->(n+1)")
    assert hash(Signature.parse("( n )->()")) == hash(Signature.parse("(n)->()"))
    assert Signature.parse("(n)->()") != Signature.parse("(m)->()")
    assert Signature.parse("(n)->()") != "(n)->()"


def test_repr_is_the_call_that_makes_the_value():
    assert repr(Signature.parse("(m, n),(n) -> (m)")) == "Signature.parse('(m,n),(n)->(m)')"


def test_a_signature_pickles():
    signature = Signature.parse("(m?,n|1),(2)->(n*(n-1)//2),")
    copied = pickle.loads(pickle.dumps(signature))
    assert copied == signature
    assert copied.inputs == signature.inputs
    assert copied.text == signature.text


def test_a_signature_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Signature.parse("(n)->()").always_tuple = True


def test_the_same_text_is_parsed_once():
    assert Signature.parse("(once),(n)->()") is Signature.parse("(once),(n)->()")


# Expressions


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("m+n-1", {"m": 5, "n": 3}, 7),
        ("n*(n-1)//2", {"n": 5}, 10),
        ("n-(n-2)-1", {"n": 4}, 1),
        ("(n-9)*0", {"n": 1}, 0),
        ("2*3", {}, 6),
        ("m+n", {"m": None, "n": 3}, None),
        ("m//n", {"m": None, "n": 3}, None),
        ("m//n", {"m": 0, "n": None}, None),
        ("n", {"n": 4}, 4),
        ("n", {"n": None}, None),
        ("0", {}, 0),
    ],
)
def test_a_dim_evaluates_to_its_size(text, sizes, expected):
    assert Signature.parse(f"->({text})").outputs[0][0].evaluate(sizes) == expected


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        ("m+n-1", {"m": 0, "n": 0}, "dimension 'm+n-1' with m=0, n=0 has size -1, but expected a size of 0 or more"),
        ("m//n", {"m": None, "n": 0}, "dimension 'm//n' with m=unknown, n=0 divides by zero"),
        ("1//0", {}, "dimension '1//0' divides by zero"),
        (
            "n*n",
            {"n": 2**32},
            "dimension 'n*n' with n=4294967296 comes to 18446744073709551616, but expected at most 2**63 - 1",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused_with_the_sizes_it_came_from(text, sizes, message):
    with pytest.raises(DimensionError) as raised:
        Signature.parse(f"->({text})").outputs[0][0].evaluate(sizes)
    assert str(raised.value) == message


def test_a_name_without_a_size_is_a_key_error():
    with pytest.raises(KeyError, match="k"):
        Signature.parse("(n)->(n+k)").outputs[0][0].evaluate({"n": 1})


# Optional dimensions


MATMUL = Signature.parse("(m?,n),(n,p?)->(m?,p?)")


@pytest.mark.parametrize(
    ("ndims", "absent"),
    [
        ((2, 2), set()),
        ((1, 2), {"m"}),
        ((2, 1), {"p"}),
        ((1, 1), {"m", "p"}),
        ((None, 1), {"p"}),
        ((None, None), set()),
    ],
)
def test_absent_dims_are_those_that_the_inputs_leave_out(ndims, absent):
    assert MATMUL.absent(ndims) == absent


@pytest.mark.parametrize("right", range(4))
@pytest.mark.parametrize("left", range(4))
def test_absent_and_without_agree_with_matmul(left, right):
    arrays = np.ones((2,) * left), np.ones((2,) * right)
    try:
        expected = np.matmul(*arrays).ndim
    except ValueError:
        with pytest.raises(DimensionError):
            MATMUL.absent((left, right))
        return
    signature = MATMUL.without(MATMUL.absent((left, right)))
    n_loop = [array.ndim - len(dims) for array, dims in zip(arrays, signature.inputs, strict=True)]
    assert max(n_loop) + len(signature.outputs[0]) == expected


def test_without_leaves_dims_out_of_every_operand_and_keeps_flags():
    assert MATMUL.without(frozenset({"m"})).text == "(n),(n,p?)->(p?)"
    assert MATMUL.without(frozenset({"m", "p"})).text == "(n),(n)->()"
    assert MATMUL.without(frozenset()) == MATMUL
    assert Signature.parse("(n?)->(n?),").without(frozenset({"n"})).text == "()->(),"


def test_a_dim_absent_from_one_input_counts_in_no_other():
    assert Signature.parse("(b?),(a?,b?)->()").absent((0, 1)) == {"b"}


def test_a_dim_absent_from_a_later_input_makes_room_in_an_earlier_one():
    assert Signature.parse("(n?,m),(n?)->(m)").absent((2, 0)) == {"n"}


@pytest.mark.parametrize(
    ("text", "ndims", "message"),
    [
        (
            "(3),(3)->(3)",
            (1, 0),
            (
                "argument 1 has 0 dimensions, but expected at least 1: "
                "signature '(3),(3)->(3)' gives it the core dimensions (3)"
            ),
        ),
        (
            "(a?,m,n),(n)->()",
            (1, 1),
            (
                "argument 0 has 1 dimension, but expected at least 2: "
                "signature '(a?,m,n),(n)->()' gives it the core dimensions (m,n) once its optional ones are left out"
            ),
        ),
    ],
)
def test_an_input_with_too_few_dims_is_refused_by_its_position(text, ndims, message):
    with pytest.raises(DimensionError) as raised:
        Signature.parse(text).absent(ndims)
    assert str(raised.value) == message


def validate_num_dims(signature, ndims):
    """NumPy's `_validate_num_dims`, line by line; None where it raises."""
    operands = [[dim.label for dim in dims] for dims in (*signature.inputs, *signature.outputs)]
    can_ignore = {dim.label for dims in (*signature.inputs, *signature.outputs) for dim in dims if dim.optional}
    core_num_dims = [len(dims) for dims in operands]
    missing = set()
    for i, ndim in enumerate(ndims):
        if ndim is not None and ndim < core_num_dims[i]:
            for label in operands[i]:
                if label in can_ignore:
                    missing.add(label)
                    can_ignore.discard(label)
                    for other, labels in enumerate(operands):
                        core_num_dims[other] -= labels.count(label)
                    if ndim == core_num_dims[i]:
                        break
            if ndim < core_num_dims[i]:
                return None
    return missing


@examples(300)
@given(st.data())
def test_absent_follows_numpys_c_code(data):
    dims = st.lists(st.sampled_from(["a?", "b?", "c?", "m", "n"]), max_size=4)
    inputs = data.draw(st.lists(dims, min_size=1, max_size=3))
    signature = Signature.parse(",".join(f"({','.join(labels)})" for labels in inputs) + "->()")
    ndims = [data.draw(st.none() | st.integers(0, len(labels) + 1)) for labels in inputs]
    expected = validate_num_dims(signature, ndims)
    if expected is None:
        with pytest.raises(DimensionError):
            signature.absent(ndims)
    else:
        assert signature.absent(ndims) == expected


# NumPy's parsers as oracles


def numpy_c_parse(text, n_inputs, n_outputs):
    """Operands as NumPy's C parser reads them: a number, a fixed size and whether optional for each dim."""
    can_ignore = 4
    _, n_dims, numbers, flags, sizes = umath_tests.test_signature(n_inputs, n_outputs, text)
    dims = iter([(number, max(sizes[number], 0), bool(flags[number] & can_ignore)) for number in numbers])
    return [[next(dims) for _ in range(n)] for n in n_dims]


def numbered(signature):
    """Our operands in the same form."""
    numbers = {}
    return [
        [(numbers.setdefault(dim.label, len(numbers)), dim.size or 0, dim.optional) for dim in dims]
        for dims in (*signature.inputs, *signature.outputs)
    ]


@pytest.mark.parametrize("text", NUMPY_GUFUNCS)
def test_signatures_of_numpys_gufuncs_are_read_as_numpy_reads_them(text):
    signature = Signature.parse(text)
    assert (signature.nin, signature.nout) == (NUMPY_GUFUNCS[text].nin, NUMPY_GUFUNCS[text].nout)
    assert numbered(signature) == numpy_c_parse(text, signature.nin, signature.nout)


@given(st.data())
def test_what_numpys_c_parser_takes_or_refuses_we_take_or_refuse(data):
    name = st.sampled_from(["m", "n", "p", "m?", "n?"])
    operands = st.lists(st.lists(name | st.sampled_from(["1", "3", "03", "12"]), max_size=3), min_size=1, max_size=3)
    inputs, outputs = data.draw(operands), data.draw(operands)
    text = "->".join(",".join(f"({','.join(dims)})" for dims in side) for side in (inputs, outputs))
    try:
        expected = numpy_c_parse(text, len(inputs), len(outputs))
    except ValueError:
        with pytest.raises(SignatureError):
            Signature.parse(text)
    else:
        assert numbered(Signature.parse(text)) == expected


@given(st.data())
def test_what_vectorize_takes_we_take_with_the_same_labels(data):
    operands = st.lists(st.lists(NAMES | st.sampled_from(["0", "2", "10"]), max_size=3), min_size=1, max_size=3)
    sides = data.draw(operands), data.draw(operands)
    text = spaced(data.draw, "->".join(",".join(f"({','.join(dims)})" for dims in side) for side in sides))
    expected = _function_base_impl._parse_gufunc_signature(text)
    signature = Signature.parse(text)
    assert [list(signature.input_labels), list(signature.output_labels)] == [list(side) for side in expected]


# Round trips of drawn signatures


@dataclass(frozen=True)
class Drawn:
    """A text, and what it should be parsed to."""

    text: str
    value: object


def spaced(draw, text):
    """Put white space between the tokens of a text."""
    return "".join(draw(WHITE_SPACE) + token for token in re.findall(r"\w+|->|//|.", text)) + draw(WHITE_SPACE)


def tree_text(draw, tree, *, outermost=True):
    """Write a tree with parentheses around every inner operation, and needless ones at times."""
    if isinstance(tree, tuple):
        left, operator, right = tree
        text = f"{tree_text(draw, left, outermost=False)}{operator}{tree_text(draw, right, outermost=False)}"
        text = text if outermost else f"({text})"
    else:
        text = "00" * draw(st.integers(0, 1)) + str(tree) if isinstance(tree, int) else tree
    return f"({text})" if draw(st.integers(0, 4)) == 0 else text


def tree_postfix(tree):
    if not isinstance(tree, tuple):
        return (tree,)
    left, operator, right = tree
    return (*tree_postfix(left), *tree_postfix(right), operator)


TREES = st.recursive(
    NAMES | st.integers(0, 12),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//"]), inner),
    max_leaves=8,
)


@st.composite
def drawn_input_dims(draw):
    if draw(st.integers(0, 3)) == 0:
        size = draw(st.integers(0, 12))
        return Drawn("0" * draw(st.integers(0, 2)) + str(size), CoreDim(str(size), size=size))
    kind = draw(st.sampled_from(["", "?", "|1"]))
    name = f"optional_{draw(NAMES)}" if kind == "?" else draw(NAMES)
    return Drawn(name + kind, CoreDim(name, optional=kind == "?", stretches=kind == "|1"))


@st.composite
def drawn_output_dims(draw):
    if draw(st.integers(0, 4)) == 0:
        name = f"optional_{draw(NAMES)}"
        return Drawn(f"{name}?", CoreDim(name, optional=True))
    tree = draw(TREES)
    text = tree_text(draw, tree)
    if isinstance(tree, tuple):
        label = Signature.parse(f"->({text})").outputs[0][0].label
        return Drawn(text, CoreDim(label, expression=tree_postfix(tree)))
    return Drawn(text, CoreDim(str(tree), size=tree if isinstance(tree, int) else None))


def operands_text(draw, operands):
    """Write drawn operands, at times with a comma after the last dim."""
    commas = ["," if dims and draw(st.integers(0, 3)) == 0 else "" for dims in operands]
    return ",".join(f"({','.join(dim.text for dim in dims)}{c})" for dims, c in zip(operands, commas, strict=True))


@st.composite
def drawn_signatures(draw):
    inputs = draw(st.lists(st.lists(drawn_input_dims(), max_size=3), max_size=3))
    outputs = draw(st.lists(st.lists(drawn_output_dims(), max_size=3), min_size=1, max_size=3))
    always_tuple = draw(st.booleans())
    text = f"{operands_text(draw, inputs)}->{operands_text(draw, outputs)}{',' * always_tuple}"
    values = [tuple(tuple(dim.value for dim in dims) for dims in side) for side in (inputs, outputs)]
    return Drawn(spaced(draw, text), (*values, always_tuple))


@given(drawn_signatures())
def test_a_drawn_signature_is_read_as_it_was_meant(drawn):
    signature = Signature.parse(drawn.text)
    assert (signature.inputs, signature.outputs, signature.always_tuple) == drawn.value


@given(drawn_signatures())
def test_the_canonical_text_parses_back_to_an_equal_value(drawn):
    signature = Signature.parse(drawn.text)
    again = Signature.parse(str(signature))
    assert again == signature
    assert (again.inputs, again.outputs, again.always_tuple) == (
        signature.inputs,
        signature.outputs,
        signature.always_tuple,
    )
    assert str(again) == str(signature)
    assert not any(character.isspace() for character in str(signature))


@given(TREES, st.data())
def test_an_expression_has_the_value_that_python_gives_it(tree, data):
    sizes = {name: data.draw(st.integers(0, 20), label=name) for name in ["m", "n", "p", "_x1", "Time", "n0"]}
    dim = Signature.parse(f"->({tree_text(data.draw, tree)})").outputs[0][0]
    try:
        expected = eval(dim.label, {}, sizes)
    except ZeroDivisionError:
        expected = -1
    if expected < 0:
        with pytest.raises(DimensionError):
            dim.evaluate(sizes)
    else:
        assert dim.evaluate(sizes) == expected


@given(TREES, st.data())
def test_no_parentheses_can_be_left_out_of_a_canonical_expression(tree, data):
    dim = Signature.parse(f"->({tree_text(data.draw, tree)})").outputs[0][0]
    opened = []
    for end, character in enumerate(dim.label):
        if character == "(":
            opened.append(end)
        elif character == ")":
            start = opened.pop()
            fewer = dim.label[:start] + dim.label[start + 1 : end] + dim.label[end + 1 :]
            assert Signature.parse(f"->({fewer})").outputs[0][0].expression != dim.expression


# Errors


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "expected '(' or '->', found the end"),
        ("  ", 2, "expected '(' or '->', found the end"),
        ("m,n->m", 0, "expected '(' or '->', found 'm' (the core dimensions of each operand stand in parentheses)"),
        ("(n),n->()", 4, "expected '(', found 'n' (the core dimensions of each operand stand in parentheses)"),
        ("(n)", 3, "expected ',' or '->', found the end"),
        ("(n)->", 5, "expected '(', found the end"),
        ("(n),->(n)", 4, "expected '(', found '->'"),
        ("(n)(m)->()", 3, "expected ',' or '->', found '('"),
        ("(n)->()->()", 7, "expected ',' or the end, found '->'"),
        ("(n)->(),,", 8, "expected '(', found ','"),
        ("(n)->() x", 8, "expected ',' or the end, found 'x'"),
        ("(n", 2, "expected ',' or ')', found the end"),
        ("(n n)->()", 3, "expected ',' or ')', found 'n'"),
        ("(2n)->()", 2, "expected ',' or ')', found 'n'"),
        ("(,)->()", 1, "expected a name, an integer or ')', found ','"),
        ("(n,,)->()", 3, "expected a name, an integer or ')', found ','"),
        ("()->(,)", 5, "expected a name, an integer, '(' or ')', found ','"),
        ("(h\u00f6he)->()", 2, "expected ',' or ')', found '\u00f6' (a name is made of ASCII letters, digits and '_')"),
        (
            "(\u0663)->()",
            1,
            "expected a name, an integer or ')', found '\u0663' (a name is made of ASCII letters, digits and '_')",
        ),
        ("(n) - > ()", 4, "expected ',' or '->', found '-'"),
        ("(n+1)->()", 2, "expected ',' or ')', found '+' (only outputs take expressions)"),
        ("((n))->()", 1, "expected a name, an integer or ')', found '(' (only outputs take expressions)"),
        ("(n)->(n|1)", 7, "expected ',' or ')', found '|' (only inputs stretch)"),
        ("(n|2)->()", 3, "expected '1', found '2' (a dimension that broadcasts is written 'n|1')"),
        ("(n|)->()", 3, "expected '1', found ')' (a dimension that broadcasts is written 'n|1')"),
        ("(n?|1)->()", 3, "expected ',' or ')', found '|' ('?' and '|1' follow a name, one of them at most)"),
        ("(n|1?)->()", 4, "expected ',' or ')', found '?' ('?' and '|1' follow a name, one of them at most)"),
        ("(3?)->()", 2, "expected ',' or ')', found '?' ('?' and '|1' follow a name, one of them at most)"),
        ("(3|1)->()", 2, "expected ',' or ')', found '|' ('?' and '|1' follow a name, one of them at most)"),
        (
            "(m?),(m)->()",
            7,
            "expected '?', found ')' ('m' has one at position 1: it needs one everywhere, and no expression has it)",
        ),
        ("(m),(m?)->()", 6, "expected no '?', found '?' ('m' has none at position 1, so it has none anywhere)"),
        (
            "(m?)->(m+1)",
            8,
            "expected '?', found '+' ('m' has one at position 1: it needs one everywhere, and no expression has it)",
        ),
        ("(m?)->(m?+1)", 9, "expected ',' or ')', found '+' (an optional dimension cannot be part of an expression)"),
        ("(n)->((k)?)", 9, "expected ',' or ')', found '?' ('?' follows a name that stands alone, once)"),
        ("(n)->(-n)", 6, "expected a name, an integer, '(' or ')', found '-'"),
        ("(n)->(n**2)", 8, "expected a name, an integer or '(', found '*'"),
        ("(n)->(n/2)", 7, "expected an operator or ')', found '/' (division is '//')"),
        ("(n)->(n+)", 8, "expected a name, an integer or '(', found ')'"),
        ("(n)->(())", 7, "expected a name, an integer or '(', found ')'"),
        ("(n)->((n,m))", 8, "expected an operator or ')', found ','"),
        ("(n)->((n)", 9, "expected ',' or ')', found the end"),
        ("(n)->(n.shape)", 7, "expected ',' or ')', found '.'"),
        ("(9223372036854775808)->()", 1, "expected an integer up to 2**63 - 1, found '9223372036854775808'"),
    ],
)
def test_an_error_says_what_was_expected_and_points_at_what_was_found(text, position, message):
    with pytest.raises(SignatureError) as raised:
        Signature.parse(text)
    first, quoted, caret = str(raised.value).split("\n")
    assert first == f"signature at position {position}: {message}"
    assert quoted == f"    {text}"
    assert caret == f"    {' ' * position}^"


def test_an_error_in_a_long_signature_quotes_only_what_is_near():
    with pytest.raises(SignatureError) as raised:
        Signature.parse("(n)," * 1000 + "(!),\n" + "(n)," * 1000 + "->()")
    _, quoted, caret = str(raised.value).split("\n")
    assert quoted == "    ...,(n),(n),(n),(n),(n),(n),(n),(!), (n),(n),(n),(n),(n),(n),(n..."
    assert quoted[caret.index("^")] == "!"


def test_an_error_is_a_value_error_of_this_library():
    assert issubclass(SignatureError, ValueError)
    assert issubclass(SignatureError, ApplyUfuncError)


@pytest.mark.parametrize("given_value", [None, 3, b"(n)->()", ["(n)->()"], Signature.parse("(n)->()")])
def test_a_signature_that_is_no_string_is_refused_with_its_type(given_value):
    with pytest.raises(OptionError, match=rf"expected a string such as .*, got {type(given_value).__name__} "):
        Signature.parse(given_value)


@examples(300)
@given(st.text(alphabet="(),->?|1mn+*/ 0\n\u00e9", max_size=30))
def test_any_text_is_parsed_or_refused_with_a_signature_error(text):
    try:
        signature = Signature.parse(text)
    except SignatureError:
        return
    assert Signature.parse(str(signature)) == signature


@pytest.mark.parametrize("text", ["(" + "n" * 10_000, "(" + "9" * 10_000 + ")->()", "->" + "(" * 10_000, "\n" * 10_000])
def test_the_message_on_a_long_text_is_short(text):
    with pytest.raises(SignatureError) as raised:
        Signature.parse(text)
    assert len(str(raised.value)) < 400


# Hostile texts


HOSTILE = {
    "open parentheses": lambda n: "(" * n,
    "closed parentheses": lambda n: ")" * n,
    "open parentheses in an output": lambda n: "->" + "(" * n,
    "closed parentheses in an output": lambda n: "->(1" + ")" * n,
    "commas": lambda n: "," * n,
    "commas in an operand": lambda n: "(" + "," * n + ")->()",
    "commas after outputs": lambda n: "->()" + "," * n,
    "arrows": lambda n: "->" * (n // 2),
    "white space": lambda n: " \n" * (n // 2),
    "question marks": lambda n: "(n" + "?" * n + ")->()",
    "bars": lambda n: "(n" + "|1" * (n // 2) + ")->()",
    "digits": lambda n: "(" + "9" * n + ")->()",
    "zeros": lambda n: "(" + "0" * n + ")->()",
    "one long name": lambda n: "(" + "n" * n + ")->()",
    "many names": lambda n: "(" + ",".join(f"n{i}" for i in range(n // 7)) + ")->()",
    "many optional names": lambda n: "(" + ",".join(f"n{i}?" for i in range(n // 8)) + ")->()",
    "many operands": lambda n: "(n)," * (n // 4) + "()->()",
    "minus signs": lambda n: "->(1" + "-" * n + ")",
    "nested parentheses": lambda n: "->(" + "(" * (n // 2) + "1+1" + ")" * (n // 2) + ")",
    "a long sum": lambda n: "->(" + "1+" * (n // 2) + "1)",
    "a sum nested to the left": lambda n: "->(" + "(" * (n // 6) + "1" + "+1)*1" * (n // 6) + ")",
    "a sum nested to the right": lambda n: "->(" + "1-(" * (n // 4) + "1" + ")" * (n // 4) + ")",
    "a long product": lambda n: "->(" + "9999*" * (n // 5) + "9999)",
    "not ASCII": lambda n: "(" + "\u00e9" * n + ")->()",
}


def parse_all_the_way(text):
    """Parse, write and evaluate; only errors of this library may come out of it."""
    try:
        with contextlib.suppress(ApplyUfuncError):
            signature = Signature.parse(text)
            signature.without(signature.absent([0] * signature.nin))
            for dim in itertools.chain.from_iterable(signature.outputs):
                dim.evaluate(dict.fromkeys(dim.names, 1))
    finally:
        _parse.cache_clear()  # megabytes that nobody asks for again


def seconds(text):
    start = time.process_time()
    parse_all_the_way(text)
    return time.process_time() - start


@pytest.mark.once
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_time_grows_no_faster_than_a_megabyte_of_hostile_text(hostile):
    # Ten times the text takes a hundred times as long where time is quadratic.
    small = seconds(hostile(100_000))
    assert seconds(hostile(1_000_000)) < 30 * small + 0.5


@pytest.mark.parametrize(
    "text", [hostile(100_000) for name, hostile in HOSTILE.items() if "nested" in name or "long sum" in name]
)
def test_deep_nesting_is_parsed_and_written_back(text):
    signature = Signature.parse(text)
    assert Signature.parse(str(signature)) == signature
    _parse.cache_clear()
