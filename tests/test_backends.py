"""One kernel, one signature, every backend: the value, shape, dtype and type of a plain loop, or the same refusal."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_calls import DrawnCall, drawn_calls
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au


@pytest.mark.covers('`kernel_arrays="numpy"`')
@pytest.mark.covers("`vectorize`")
@pytest.mark.covers("`axis`, `axes`, `keepdims`", needs="takes_axes")
@pytest.mark.covers("fixed sizes")
@pytest.mark.covers("new dimensions")
@pytest.mark.covers("several outputs")
@pytest.mark.covers("loop and core dimensions")
def test_every_call_gives_what_a_plain_loop_gives(backend):
    @examples(backend.examples)
    @given(drawn_calls(), st.data())
    def check(drawn: DrawnCall, data):
        args = tuple(backend.put(arg, data) for arg in drawn.args)
        result = backend.call(drawn.kernel, drawn.signature, args, drawn.options)
        results = result if isinstance(result, tuple) else (result,)
        assert len(results) == len(drawn.expected)
        for got, expected in zip(results, drawn.expected, strict=True):
            backend.check_type(got)
            backend.check_blocks(got)
            value = backend.get(got)
            assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(value, expected)

    check()


GUFUNCS = [np.vecdot, np.matmul, *([np.matvec, np.vecmat] if hasattr(np, "matvec") else [])]


@pytest.mark.covers("NumPy's own gufuncs")
@pytest.mark.parametrize("gufunc", GUFUNCS, ids=lambda gufunc: gufunc.__name__)
def test_numpys_own_gufuncs_give_the_same_or_refuse_the_same(backend, gufunc):
    shapes = st.lists(st.integers(0, 2), max_size=3).map(tuple)

    @examples(backend.examples)
    @given(shapes, shapes, st.data())
    def check(first, second, data):
        arrays = np.ones(first), np.full(second, 2.0)
        expected, refusal = _outcome(lambda: gufunc(*arrays))
        args = tuple(backend.put(array, data) for array in arrays)
        result, own_refusal = _outcome(lambda: backend.call(gufunc, None, args, {"output_dtypes": float}))
        assert own_refusal == refusal
        if refusal is None:
            value = backend.get(result)
            np.testing.assert_array_equal(value, expected)
            assert (value.shape, value.dtype) == (np.shape(expected), expected.dtype)

    check()


def _outcome(call):
    """Return what a call gives, and the builtin that it raises, if any."""
    try:
        return call(), None
    except (ValueError, TypeError) as error:
        return None, ValueError if isinstance(error, ValueError) else TypeError


REFUSED = {
    "a core dim of two sizes": ("(n),(n)->()", [(2, 5), (2, 4)], {}, au.DimensionError),
    "a core dim of size 1 against another": ("(n),(n)->()", [(2, 5), (2, 1)], {}, au.DimensionError),
    "loop dims that do not broadcast": ("(n),(n)->()", [(2, 5), (3, 5)], {}, au.DimensionError),
    "too few dims": ("(m,n)->()", [(5,)], {}, au.DimensionError),
    "a fixed size that is another": ("(3)->()", [(2, 4)], {}, au.DimensionError),
    "an output size that nobody knows": ("(n)->(k)", [(2, 4)], {}, au.UnknownSizeError),
    "an axis that is not there": ("(n)->()", [(2, 4)], {"axis": 2}, au.AxisError),
    "an axis given twice": ("(m,n)->()", [(2, 4)], {"axes": [(0, 0)]}, au.AxisError),
    "keepdims with output core dims": ("(n)->(n)", [(2, 4)], {"keepdims": True}, TypeError),
    "a keyword that nobody knows": ("(n)->()", [(2, 4)], {"keepdim": True}, au.OptionError),
    "too few arguments": ("(n),(n)->()", [(2, 4)], {}, au.ArgumentError),
    "two dtypes for one output": ("(n)->()", [(2, 4)], {"output_dtypes": [float, float]}, au.OptionError),
    "a size for a dim that no output has": ("(n)->()", [(2, 4)], {"output_sizes": {"q": 2}}, au.OptionError),
}


@pytest.mark.covers("wrong calls refused before any work")
@pytest.mark.parametrize("why", REFUSED)
def test_refusals_come_before_any_work_and_are_the_same(backend, why):
    signature, shapes, options, error = REFUSED[why]
    calls = []

    def kernel(*blocks):
        calls.append(1)
        return blocks[0].sum(axis=-1)

    args = tuple(backend.put(np.ones(shape)) for shape in shapes)
    with pytest.raises(error) as caught:
        backend.call(kernel, signature, args, {"output_dtypes": float} | options)
    assert type(caught.value).__module__.startswith("applyufunc")
    assert not calls


RETURNED_WRONGLY = {
    "another core size": ("(i)->(i)", lambda b: b[..., 1:], au.OutputShapeError),
    "a lost loop dim": ("(i)->()", lambda b: b.sum(), au.OutputShapeError),
    "too many outputs": ("(i)->(),()", lambda b: (b.sum(-1),) * 3, au.OutputShapeError),
    "one output where two are declared": ("(i)->(),()", lambda b: b.sum(-1), au.OutputShapeError),
    "nothing": ("(i)->()", lambda b: None, au.OutputShapeError),
    "another kind of dtype": ("(i)->()", lambda b: b.sum(-1) + 0j, au.OutputDTypeError),
}


@pytest.mark.covers("wrong results refused")
@pytest.mark.parametrize("what", RETURNED_WRONGLY)
def test_what_a_kernel_returns_wrongly_is_refused(backend, what):
    signature, kernel, error = RETURNED_WRONGLY[what]
    arg = backend.put(np.ones((4, 6)))

    def run():
        results = backend.call(kernel, signature, (arg,), {"output_dtypes": float})
        return [backend.get(result) for result in (results if isinstance(results, tuple) else (results,))]

    with pytest.raises(Exception) as caught:  # noqa: PT011  # under jit the class is JAX's own
        run()
    if backend.traces:
        assert error.__name__ in str(caught.value)
    else:
        assert type(caught.value) is error
