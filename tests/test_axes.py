"""`applyufunc._axes` against NumPy's own gufuncs: the same places, or the same refusal."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applyufunc._axes import CoreAxes, find_core_axes, from_core_last, to_core_last
from applyufunc._errors import ApplyUfuncError, AxisError, DimensionError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

Labels = tuple[tuple[str, ...], ...]
Floats = np.ndarray[Any, Any]

NAMES = {
    "numpy": ["vecdot", "matvec", "vecmat", "matmul"],
    "numpy.linalg._umath_linalg": ["det", "slogdet", "eigvalsh_lo"],
    "numpy._core._umath_tests": [
        "inner1d",
        "innerwt",
        "matrix_multiply",
        "cross1d",
        "conv1d_full",
        "cumsum",
        "always_error_gufunc",  # "(i),()->()": an input without core dims
    ],
}


def present_gufuncs() -> list[np.ufunc]:
    """Find those of NAMES that the installed NumPy has; `matvec` came in 2.2, and test modules may go."""
    found: list[np.ufunc] = []
    for module, names in NAMES.items():
        with contextlib.suppress(ImportError):
            found += filter(None, (getattr(importlib.import_module(module), name, None) for name in names))
    return found


GUFUNCS = present_gufuncs()


def labels(side: str) -> Labels:
    """Read one side of a NumPy gufunc's signature: ``"(m,n),()"`` → ``(("m", "n"), ())``."""
    return tuple(tuple(filter(None, part.split(","))) for part in side.replace(" ", "")[1:-1].split("),("))


def declared(gufunc: np.ufunc) -> tuple[Labels, Labels]:
    inputs, outputs = str(gufunc.signature).split("->")
    return labels(inputs), labels(outputs)


@dataclass
class Case:
    """A call of a gufunc, and what is known of it without the code under test."""

    gufunc: np.ufunc
    arrays: list[Floats]
    core_dims: tuple[Labels, Labels]  # absent optional dims left out
    options: dict[str, Any]

    def __repr__(self) -> str:
        shapes = ", ".join(str(array.shape) for array in self.arrays)
        return f"{self.gufunc.__name__}{self.gufunc.signature} on {shapes} with {self.options}"


# Drawn calls: core dims of arrays lie where drawn axes say, so that most calls are valid; some options are spoilt.

# NumPy before 2.3 takes its own bools for integers, with a warning.
NUMPYS_TRUE = [np.True_] if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else []
NOT_AXES = st.sampled_from(["0", 1.0, True, False, *NUMPYS_TRUE, [0], [], (), np.array([0]), {}])
AXES = st.integers(-5, 5).flatmap(lambda axis: st.sampled_from([axis, np.int8(axis), np.array(axis)]))
ENTRIES = st.none() | NOT_AXES | AXES | st.lists(st.integers(-4, 4) | NOT_AXES, max_size=3).map(tuple)
RARELY = st.integers(0, 15).map(lambda number: number == 7)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    gufunc = draw(st.sampled_from(GUFUNCS))
    absent = {dim for dim in ("n?", "m?", "p?") if dim in str(gufunc.signature) and draw(st.booleans())}
    dims_in, dims_out = (without(absent, side) for side in declared(gufunc))
    # NumPy leaves out a core dim only where an array has too few dimensions for it.
    arrays = draw(arrays_core_last(dims_in, n_loop=0 if absent else 3))
    options = draw(keepdims_options(may_keep=not any(dims_out) and len({len(dims) for dims in dims_in}) == 1))
    kept = dims_in[0] if options else ()
    n_loop = max(array.ndim - len(dims) for array, dims in zip(arrays, dims_in, strict=True))
    core_dims = dims_in + tuple(dims + kept for dims in dims_out)
    ndims = [array.ndim for array in arrays] + [n_loop + len(dims + kept) for dims in dims_out]
    places, options = draw(places_and_options(core_dims, ndims, len(dims_in), options))
    moved = [moved_to(array, place) for array, place in zip(arrays, places, strict=False)]
    if draw(RARELY) and "?" not in str(gufunc.signature):
        moved[0] = np.array(1.0)
    return Case(gufunc, moved, (dims_in, dims_out), options)


def without(absent: set[str], side: Labels) -> Labels:
    return tuple(tuple(dim for dim in dims if dim not in absent) for dims in side)


def moved_to(array: Floats, place: tuple[int, ...]) -> Floats:
    return np.moveaxis(array, range(-len(place), 0), place)


@st.composite
def arrays_core_last(draw: st.DrawFn, core_dims: Labels, n_loop: int) -> list[Floats]:
    """Arrays of small whole numbers, so that every order of summation gives the same."""
    size = {dim: 3 if dim == "3" else draw(st.integers(0, 3)) for dim in sorted(set(itertools.chain(*core_dims)))}
    loop = draw(st.lists(st.integers(0, 3), max_size=n_loop))
    random, arrays = np.random.default_rng(draw(st.integers(0, 3))), []
    for dims in core_dims:
        own = [draw(st.sampled_from([length, 1])) for length in loop[draw(st.integers(0, len(loop))) :]]
        arrays.append(random.integers(-4, 5, [*own, *(size[dim] for dim in dims)]).astype(float))
    return arrays


@st.composite
def keepdims_options(draw: st.DrawFn, *, may_keep: bool) -> dict[str, Any]:
    if not draw(st.booleans() if may_keep else RARELY):
        return {}
    return {"keepdims": draw(st.sampled_from([1, 0, None, np.True_, "no"])) if draw(RARELY) else True}


@st.composite
def places_and_options(
    draw: st.DrawFn, core_dims: Labels, ndims: list[int], n_in: int, options: dict[str, Any]
) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    """Draw `axis` or `axes`, and where the core dims of each operand are for it to be right."""
    # A dim that one operand has twice: NumPy takes `axis` there, see the test of its own.
    axis_comparable = all(len(set(dims)) == len(dims) for dims in core_dims)
    styles = ["plain", "axes", "axes of inputs", "spoilt axes"] + ["axis", "spoilt axis"] * axis_comparable
    style = draw(st.sampled_from(styles))
    if axis_comparable and (style.endswith("axis") or draw(RARELY)):
        axis = draw(st.integers(-5, 4) if style == "spoilt axis" else st.integers(-2, 0))
        options = options | {"axis": draw(NOT_AXES) if style == "spoilt axis" and draw(RARELY) else axis}
    if style.endswith("axis"):
        return [(axis,) * (len(core_dims[i]) == 1 and -ndim <= axis < ndim) for i, ndim in enumerate(ndims)], options
    if style == "plain":
        return [()] * len(ndims), options
    places = [draw(places_of(ndim, len(dims))) for dims, ndim in zip(core_dims, ndims, strict=True)]
    axes = [place[0] if len(place) == 1 and draw(st.booleans()) else place for place in places]
    axes = axes[:n_in] if style == "axes of inputs" else axes
    return places, options | {"axes": draw(spoilt(axes)) if style == "spoilt axes" else axes}


def places_of(ndim: int, n_core: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Different axes for core dims, each positive or negative."""
    signs = st.lists(st.sampled_from([0, ndim]), min_size=n_core, max_size=n_core)
    order = st.permutations(range(ndim))
    return st.tuples(order, signs).map(lambda drawn: tuple(axis - sign for axis, sign in zip(*drawn, strict=False)))


@st.composite
def spoilt(draw: st.DrawFn, listed: list[Any]) -> Any:
    """Draw entries that have something wrong with them, most often."""
    position = draw(st.integers(0, len(listed) - 1))
    return draw(
        st.one_of(
            ENTRIES.map(lambda entry: [*listed[:position], entry, *listed[position + 1 :]]),
            st.sampled_from([listed[:position], [*listed, ()], tuple(listed), 0, "0", {}]),
            st.lists(ENTRIES, max_size=4),
        )
    )


# The two sides: our moves around a plain call, and NumPy.


def by_hand(case: Case) -> tuple[Floats, ...]:
    """Move the inputs, call the gufunc plainly, put in the kept axes, move the outputs."""
    ndims = [array.ndim for array in case.arrays]
    places = find_core_axes(*case.core_dims, ndims, declared=declared(case.gufunc), **case.options)
    pairs = zip(case.arrays, places.inputs, strict=True)
    outputs = as_tuple(case.gufunc(*(transposed(array, to_core_last(array.ndim, axes)) for array, axes in pairs)))
    kept = [np.reshape(output, np.shape(output) + (1,) * places.n_kept) for output in outputs]
    return tuple(transposed(o, from_core_last(o.ndim, axes)) for o, axes in zip(kept, places.outputs, strict=True))


def transposed(array: Floats, order: tuple[int, ...] | None) -> Floats:
    return array if order is None else array.transpose(order)


def by_numpy(case: Case) -> tuple[Floats, ...]:
    """Call the gufunc with the options; then move the kept axes that NumPy puts last although `axes` are given."""
    outputs = as_tuple(case.gufunc(*case.arrays, **case.options))
    axes, ndim = case.options.get("axes"), case.arrays[0].ndim
    if not case.options.get("keepdims") or axes is None or len(axes) > len(case.arrays):
        return outputs
    first = axes[0] if isinstance(axes[0], tuple) else (axes[0],)
    from_right = [axis if axis < 0 else int(axis) - ndim for axis in first]
    return tuple(np.moveaxis(output, range(-len(first), 0), from_right) for output in outputs)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def outcome(function: Callable[[Case], tuple[Floats, ...]], case: Case) -> tuple[Floats, ...] | Exception:
    try:
        return function(case)
    except (TypeError, ValueError, RuntimeError) as error:
        return error


def builtins_of(error: Exception) -> list[type[Exception]]:
    return [kind for kind in (TypeError, ValueError, IndexError, RuntimeError) if isinstance(error, kind)]


@given(cases())
def test_gufuncs_moved_by_hand_give_what_numpy_gives_or_the_same_refusal(case: Case) -> None:
    expected, got = outcome(by_numpy, case), outcome(by_hand, case)
    if isinstance(expected, Exception):
        assert all(isinstance(got, kind) for kind in builtins_of(expected)), (expected, got)
        return
    if isinstance(got, Exception):
        raise got
    for right, ours in zip(expected, got, strict=True):
        np.testing.assert_array_equal(ours, right, strict=True)


@given(st.integers(0, 5).flatmap(lambda ndim: st.tuples(st.just(ndim), st.integers(0, ndim))), st.data())
def test_moves_are_those_of_moveaxis_and_undo_each_other(counts: tuple[int, int], data: st.DataObject) -> None:
    ndim, n_core = counts
    core_axes = [axis - ndim for axis in data.draw(st.permutations(range(ndim)))[:n_core]]
    array = np.empty(range(2, ndim + 2))
    last = transposed(array, to_core_last(ndim, core_axes))
    assert last.shape == np.moveaxis(array, core_axes, range(-n_core, 0)).shape
    assert transposed(last, from_core_last(ndim, core_axes)).shape == array.shape


def test_moves_that_change_nothing_are_none() -> None:
    assert to_core_last(4, (-2, -1)) is None
    assert from_core_last(4, (-2, -1)) is None
    assert to_core_last(2, ()) is None
    assert to_core_last(0, ()) is None
    assert to_core_last(2, (-1, -2)) == (1, 0)


def test_core_dims_are_last_by_default() -> None:
    found = find_core_axes([["m", "n"], ["n"], []], [["m"], []], [4, 1, 0])
    assert found == CoreAxes(inputs=((-2, -1), (-1,), ()), outputs=((-1,), ()), n_kept=0)


def test_axes_count_from_the_right_whatever_their_spelling() -> None:
    found = find_core_axes([["m", "n"], ["n"]], [["m"]], [3, 1], axes=[(2, 0), np.int64(0), (-2,)])
    assert found == CoreAxes(inputs=((-1, -3), (-1,)), outputs=((-2,),), n_kept=0)


def test_axis_counts_in_each_operand() -> None:
    found = find_core_axes([["n"], ["n"], []], [["n"], []], [3, 1, 2], axis=0)
    assert found == CoreAxes(inputs=((-3,), (-1,), ()), outputs=((-3,), ()), n_kept=0)


def test_keepdims_with_axis_keeps_it_at_axis() -> None:
    assert find_core_axes([["n"], ["n"]], [[]], [3, 1], axis=0, keepdims=True).outputs == ((-3,),)


def test_keepdims_with_axes_of_inputs_keeps_the_axis_where_the_first_array_has_it() -> None:
    found = find_core_axes([["n"], ["n"]], [[], []], [2, 4], axes=[0, 3], keepdims=True)
    # From the right, so that the output of shape (., ., 1, .) broadcasts against the first input of shape (n, .).
    assert found == CoreAxes(inputs=((-2,), (-1,)), outputs=((-2,), (-2,)), n_kept=1)


def test_keepdims_with_axes_of_inputs_skips_arguments_that_are_no_arrays() -> None:
    found = find_core_axes([["n"], ["n"]], [[]], [None, 3], axes=[None, 1], keepdims=True)
    assert found == CoreAxes(inputs=((), (-2,)), outputs=((-2,),), n_kept=1)


def test_keepdims_with_axes_of_outputs_puts_the_axis_there() -> None:
    assert find_core_axes([["n"]], [[]], [3], axes=[0, 1], keepdims=True).outputs == ((-2,),)


def test_arguments_that_are_no_arrays_have_no_core_axes() -> None:
    assert find_core_axes([["n"], ["n"]], [[]], [None, 2]).inputs == ((), (-1,))
    assert find_core_axes([["n"], ["n"]], [[]], [None, 2], axis=0).inputs == ((), (-2,))
    assert find_core_axes([["n"], ["n"]], [["n"]], [None, None]) == CoreAxes(((), ()), ((-1,),), 0)


def test_a_kernel_without_inputs_places_its_outputs() -> None:
    assert find_core_axes([], [["m", "n"]], [], axes=[(1, 0)]) == CoreAxes((), ((-1, -2),), 0)
    assert find_core_axes([], [[]], [], keepdims=True) == CoreAxes((), ((),), 0)


def test_axis_is_refused_where_one_operand_has_the_dim_twice() -> None:
    # NumPy takes axis=0 here and moves one of the two core dims to the end.
    with pytest.raises(OptionError, match=r"\(m,m\)->\(\)"):
        find_core_axes([["m", "m"]], [[]], [2], axis=0)


def test_an_axis_too_large_for_a_c_int_is_out_of_range() -> None:
    with pytest.raises(AxisError, match="axis 1180591620717411303424 is out of range for input 0, which has ndim 3"):
        find_core_axes([["n"]], [[]], [3], axis=2**70)


@pytest.mark.parametrize("item", [True, *NUMPYS_TRUE, 1.0, "1", (0,), [0], np.array([0])], ids=repr)
@pytest.mark.parametrize("options", ["axis", "axes"])
def test_an_axis_that_is_no_integer_is_refused_as_numpy_does(item: object, options: str) -> None:
    keyword: dict[str, Any] = {"axis": item} if options == "axis" else {"axes": [(item,), 0, ()]}
    with pytest.raises(TypeError):
        np.vecdot(np.ones((2, 2)), np.ones((2, 2)), **keyword)
    with pytest.raises(OptionError, match="has to be an integer"):
        find_core_axes([["n"], ["n"]], [[]], [2, 2], **keyword)


@pytest.mark.parametrize("dims_in", [[["n"], []], [["m", "n"], ["n"]], [[], ["n"]]])
def test_keepdims_is_refused_where_inputs_have_different_numbers_of_core_dims(dims_in: list[list[str]]) -> None:
    with pytest.raises(OptionError, match="keepdims=True needs inputs with the same number of core dims"):
        find_core_axes(dims_in, [[]], [2, 2], keepdims=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"axis": 0}, OptionError), ({"keepdims": True}, OptionError), ({"axes": [0, 0]}, DimensionError)],
)
def test_absent_optional_dims_do_not_change_what_a_signature_can_take(options: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        find_core_axes([["n"], ["n"]], [[]], [1, 1], declared=declared(np.matmul), **options)
    with pytest.raises(error.__mro__[2]):  # the builtin
        np.matmul(np.ones(2), np.ones(2), **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"axes": [(0, 3), 0, 0]}, AxisError, "axis 3 is out of range for input 0, which has ndim 3: expected -3 to 2"),
        ({"axes": [(0, 1), 0, 4]}, AxisError, "axis 4 is out of range for output 0, which has ndim 2: expect"),
        ({"axes": [(0, -3), 0, 0]}, AxisError, r"axes \(0, -3\) of input 0, which has ndim 3, name one axis twice"),
        ({"axes": [(0,), 0, 0]}, AxisError, r"a tuple of 2 axes \(core dims m, n\), got \(0,\)"),
        ({"axes": [0, 0, 0]}, AxisError, r"entry of input 0 has to be a tuple of 2 axes \(.*, got 0"),
        ({"axes": ["0", 0, 0]}, OptionError, r"a tuple of 2 axes \(core dims m, n\), got '0'"),
        ({"axes": [(0, 1), [0], 0]}, OptionError, r"axis of input 1 has to be an integer, got \[0\]"),
        ({"axes": [(0, 1), 0]}, DimensionError, "axes has 2 entries, expected 3: 2 for inputs and 1 for outputs"),
        ({"axes": ((0, 1), 0, 0)}, OptionError, r"axes has to be a list .*, got \(\(0, 1\), 0, 0\)"),
        ({"axis": 0}, OptionError, r"axis needs .* signature is \(m,n\),\(n\)->\(m\)"),
        ({"axis": 0, "axes": [0]}, OptionError, r"both axes=\[0\] and axis=0"),
        ({"keepdims": True}, OptionError, r"keepdims=True needs .* signature is \(m,n\),\(n\)->\(m\)"),
        ({"keepdims": 1}, OptionError, "keepdims has to be True or False, got 1"),
    ],
)
def test_refusals_name_the_operand_and_what_was_expected(options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=f"^corr: .*{text}"):
        find_core_axes([["m", "n"], ["n"]], [["m"]], [3, 2], name="corr", **options)


def test_an_array_with_too_few_dimensions_is_refused() -> None:
    with pytest.raises(DimensionError, match=r"^input 0 has ndim 1, but its core dims \(m, n\) need at least 2"):
        find_core_axes([["m", "n"]], [[]], [1])


def test_every_refusal_is_of_this_library() -> None:
    with pytest.raises(ApplyUfuncError):
        find_core_axes([["n"]], [[]], [1], axis="n")
