"""`apply_ufunc` on NumPy: one call by the rules of the contract; NumPy's gufuncs and plain loops are the oracles."""

from __future__ import annotations

import decimal
import functools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

ROWS = np.arange(6.0).reshape(2, 3)


def refusal(error, function, *args, **keywords):
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


def total(x):
    return x.sum(axis=-1)


class TestEntry:
    """Rules 7 and 19: what becomes of each argument."""

    @staticmethod
    def seen(arg, signature="()->()"):
        got = []
        au.apply_ufunc(lambda x: got.append(x) or np.zeros(np.shape(x)), signature, arg)
        return got[0]

    @pytest.mark.parametrize("value", [True, 2, 2.5, 2j, None])
    def test_python_scalars_and_none_arrive_as_themselves(self, value):
        got = []
        au.apply_ufunc(lambda x, p: got.append(p) or x, "(),()->()", np.ones(2), value)
        assert got[0] is value

    @pytest.mark.parametrize(
        ("scalar", "dtype"),
        [
            (2.5, "f4"),
            (2, "f4"),
            (True, "f4"),
            (2j, "c8"),
            (np.float64(2.5), "f8"),
            (np.float32(2.5), "f4"),
            (np.int64(2), "f8"),
        ],
    )
    def test_python_scalars_are_weak_and_numpy_scalars_strong(self, scalar, dtype):
        x = np.ones(4, "f4")
        for vectorize in (False, True):
            result = au.apply_ufunc(lambda a, s: a * s, "(),()->()", x, scalar, vectorize=vectorize)
            assert (result.dtype, result.tolist()) == (np.dtype(dtype), (x * scalar).tolist())

    @pytest.mark.parametrize("arg", [[1, 2], (1.5, 2), [[1], [2]], range(3), np.array([1, 2]), np.memmap], ids=str)
    def test_sequences_become_arrays(self, arg, tmp_path):
        if arg is np.memmap:
            arg = np.memmap(tmp_path / "values", "f8", "w+", shape=(3,))
        got = self.seen(arg)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, np.asarray(arg))

    def test_what_has_array_becomes_one(self):
        class Wrapped:
            def __array__(self, dtype=None, copy=None):
                return np.arange(3.0)

        assert self.seen(Wrapped()).tolist() == [0, 1, 2]

    def test_the_masked_constant_becomes_a_masked_array(self):
        got = self.seen(np.ma.masked)
        assert (type(got), got.shape, got.dtype, got.mask.tolist()) == (np.ma.MaskedArray, (), np.float64, True)

    def test_a_memmap_is_viewed(self, tmp_path):
        held = np.memmap(tmp_path / "values", "f8", "w+", shape=(3,))
        assert np.shares_memory(self.seen(held), held)

    def test_a_subclass_of_arrays_is_refused_by_name(self):
        class Quantity(np.ndarray):
            pass

        arg = np.ones(3).view(Quantity)
        message = refusal(au.ArgumentError, au.apply_ufunc, lambda x, y: x, "(),()->()", 1, arg)
        assert message.startswith("argument 1 is a ")
        assert message.endswith(
            "Quantity, a subclass of numpy.ndarray whose meaning would be lost: pass numpy.asarray(...) of it"
        )
        assert "numpy.recarray" in refusal(au.ArgumentError, self.seen, np.rec.array([(1, 2.0)]))

    @pytest.mark.parametrize("arg", [decimal.Decimal(1), {"a": 1}, {1}, object(), len])
    def test_what_is_no_array_is_refused_by_name(self, arg):
        message = refusal(au.ArgumentError, self.seen, arg)
        assert message.startswith("argument 0 is a")
        assert ", expected an array, a sequence of numbers, a Python scalar or None" in message

    def test_a_ragged_list_is_refused(self):
        message = refusal(au.ArgumentError, self.seen, [[1], [1, 2]])
        assert message.startswith("argument 0 is a list, which does not become an array: ")

    def test_another_number_of_arguments_is_refused(self):
        assert refusal(au.ArgumentError, au.apply_ufunc, total, "(n)->()", ROWS, ROWS) == (
            "kernel 'total' takes 1 argument by its signature '(n)->()', got 2; what else it takes is passed by keyword"
        )
        assert refusal(au.ArgumentError, au.apply_ufunc, total, "(n),(n)->()") == (
            "kernel 'total' takes 2 arguments by its signature '(n),(n)->()', got 0"
        )

    def test_a_scalar_is_too_small_for_core_dims(self):
        assert "argument 0 has 0 dimensions" in refusal(au.DimensionError, au.apply_ufunc, total, "(n)->()", 2.5)

    def test_what_xarray_makes_of_a_labelled_array_is_refused_by_name(self):
        xarray = pytest.importorskip("xarray")
        rolling = xarray.DataArray(ROWS, dims=("x", "n")).rolling(n=2)
        message = refusal(au.ArgumentError, self.seen, rolling)
        assert message == "argument 0 is an xarray.DataArrayRolling: labelled objects are not taken here, pass an array"


class TestKeywords:
    """Rule 8: whose a keyword is, and what the kernel gets."""

    def test_plain_ones_reach_the_kernel_unchanged(self):
        settings = {"mode": ["a"]}
        got = []
        au.apply_ufunc(lambda x, mode, *, p: got.append((mode, p)) or x, "()->()", ROWS, mode=settings["mode"], p=None)
        assert got[0][0] is settings["mode"]
        assert got[0][1] is None

    @pytest.mark.parametrize("kernel_arrays", ["numpy", "same"])
    def test_arrays_are_whole_and_read_only(self, kernel_arrays):
        weights = np.arange(3.0)
        got = []
        kernel = lambda x, w: got.append(w) or (x * w).sum(axis=-1)
        result = au.apply_ufunc(kernel, "(n)->()", ROWS, w=weights, kernel_arrays=kernel_arrays)
        assert result.tolist() == [5, 14]
        assert (type(got[0]), got[0].flags.writeable, weights.flags.writeable) == (np.ndarray, False, True)

    def test_masked_arrays_are_read_only_too(self):
        weights = np.ma.MaskedArray([1.0, 2.0], mask=[False, True])

        def kernel(x, w):
            w[0] = 5

        with pytest.raises(ValueError, match="read-only"):
            au.apply_ufunc(kernel, "()->()", ROWS, w=weights)
        assert weights.tolist() == [1, None]

    def test_a_subclass_of_arrays_is_refused(self):
        weights = np.rec.array([(1, 2.0)])
        message = refusal(au.ArgumentError, au.apply_ufunc, lambda x, w: x, "()->()", ROWS, w=weights)
        assert message.startswith("keyword w is a numpy.recarray")

    def test_labelled_ones_are_refused_by_name(self):
        xarray = pytest.importorskip("xarray")
        weights = xarray.DataArray(np.arange(3.0))
        message = refusal(au.ArgumentError, au.apply_ufunc, lambda x, w: x, "()->()", ROWS, w=weights)
        assert message.startswith("keyword w is an xarray.DataArray")

    def test_dicts_are_never_changed(self):
        kwargs, sizes = {"p": 1}, {"k": lambda known, p: known.pop("n") - p}
        au.apply_ufunc(lambda x, p, q: x[..., p:], "(n)->(k)", ROWS, kwargs=kwargs, q=2, output_sizes=sizes)
        assert (list(kwargs), list(sizes)) == (["p"], ["k"])

    def test_a_name_of_both_goes_to_the_kernel_by_kwargs(self):
        assert "kwargs={'axis': -1} for the kernel" in refusal(
            au.OptionError, au.apply_ufunc, np.median, "(n)->()", ROWS, axis=-1
        )
        assert au.apply_ufunc(np.median, "(n)->()", ROWS, kwargs={"axis": -1}).tolist() == [1, 4]

    @pytest.mark.parametrize(
        ("func", "keywords", "expected"),
        [
            (functools.partial(np.quantile, axis=-1), {"q": 1}, [2, 5]),
            (lambda x, **keywords: x.sum(-1) + keywords["p"], {"p": 1}, [4, 13]),
            (np.vecdot, {"dtype": "f4"}, [5, 50]),
            (operator.methodcaller("sum", -1), {}, [3, 12]),
        ],
    )
    def test_all_kinds_of_callables_take_theirs(self, func, keywords, expected):
        args = (ROWS, ROWS) if func is np.vecdot else (ROWS,)
        assert (
            au.apply_ufunc(func, "(n),(n)->()" if func is np.vecdot else "(n)->()", *args, **keywords).tolist()
            == expected
        )

    def test_a_kernel_that_fills_an_array_works_without_one(self):
        def kernel(x, out=None):
            result = x.sum(axis=-1)
            if out is not None:
                out[...] = result
            return result if out is None else None

        assert au.apply_ufunc(kernel, "(n)->()", ROWS).tolist() == [3, 12]
        assert "out= is not taken" in refusal(au.OptionError, au.apply_ufunc, kernel, "(n)->()", ROWS, out=np.empty(2))

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_a_numba_kernel_that_is_compiled_for_its_outputs_gets_them(self, vectorize):
        numba = pytest.importorskip("numba")

        @numba.guvectorize("(n),()->(),(n)")
        def scaled(x, p, total, result):
            total[0] = x.sum()
            result[:] = x * p

        call = functools.partial(au.apply_ufunc, scaled, None, np.stack([ROWS, ROWS]), np.array([1.0, 2.0]))
        total, result = call(output_dtypes=("f8", "f4"), vectorize=vectorize)
        assert (total.dtype, total.tolist()) == (np.float64, [[3, 12], [3, 12]])
        assert (result.dtype, result[0].tolist()) == (np.float32, [[0, 1, 2], [6, 8, 10]])
        message = refusal(au.UnknownDTypeError, call, vectorize=vectorize)
        assert message == "kernel 'scaled' fills arrays that are made for its outputs: pass output_dtypes"

    def test_xarrays_keywords_are_refused_with_the_signature_to_write(self):
        call = functools.partial(refusal, au.OptionError, au.apply_ufunc, np.cross)
        message = "input_core_dims= and output_core_dims= are not taken: write the signature {!r} after the function"
        both = {"input_core_dims": [["n"], ["n"]], "output_core_dims": [["n"]]}
        assert call(ROWS, ROWS, **both) == message.format("(n),(n)->(n)")
        assert call(ROWS, ROWS, input_core_dims=[["n"], []]) == message.format("(n),()->()")
        assert call(ROWS, ROWS, output_core_dims=[["n"], []]) == message.format("(),()->(n),()")
        assert call("(n),(n)->()", ROWS, ROWS, output_core_dims=[["n"]]) == message.format("(n),(n)->(n)")

    def test_an_array_in_the_signatures_place_is_refused(self):
        assert refusal(au.SignatureError, au.apply_ufunc, np.cross, ROWS, ROWS) == (
            "the signature comes after the function, a string with the core dimensions of each argument, here "
            "'(...),(...)->(...)'; got ndarray"
        )

    def test_what_is_no_function_is_refused(self):
        assert refusal(au.OptionError, au.apply_ufunc, "(n)->()", np.sum, ROWS) == (
            "the function comes first and the signature second, got str in place of the function"
        )


class TestOracles:
    """NumPy's own gufuncs, and a plain loop."""

    @pytest.mark.parametrize("name", ["matmul", "vecdot", "matvec", "vecmat"])
    @given(data=st.data())
    def test_numpys_gufuncs_agree(self, name, data):
        ufunc = getattr(np, name, None)
        if ufunc is None:
            pytest.skip("this NumPy has no such gufunc")
        shape = st.lists(st.integers(0, 3), max_size=4).map(tuple)
        x, y = (np.ones(data.draw(shape), data.draw(st.sampled_from("dfFi"))) for _ in range(2))
        try:
            expected = ufunc(x, y)
        except ValueError:
            with pytest.raises(ValueError, match=r"dimension"):
                au.apply_ufunc(ufunc, None, x, y)
        else:
            result = au.apply_ufunc(ufunc, None, x, y)
            assert (type(result), result.dtype) == (type(expected), expected.dtype)
            np.testing.assert_array_equal(result, expected)

    @pytest.mark.parametrize(
        ("a", "b"), [("ij", "jk"), ("j", "jk"), ("ij", "j"), ("j", "j"), ("xij", "j"), ("j", "xjk")]
    )
    def test_matmul_has_four_forms(self, a, b):
        sizes = {"i": 2, "j": 3, "k": 4, "x": 5}
        x, y = (np.random.default_rng(0).random([sizes[dim] for dim in dims]) for dims in (a, b))
        kernel = lambda p, q: np.einsum("...ij,...jk->...ik", p, q)
        result = au.apply_ufunc(kernel, "(m?,n),(n,p?)->(m?,p?)", x, y)
        np.testing.assert_allclose(result, np.matmul(x, y))
        assert np.shape(result) == np.shape(np.matmul(x, y))

    def test_matmul_forms_take_axes(self):
        x, y = np.random.default_rng(0).random((3, 2, 5)), np.random.default_rng(1).random(3)
        axes = [(1, 0), (0,), (-1,)]
        expected = np.matmul(np.moveaxis(x, (1, 0), (-2, -1)), y)
        result = au.apply_ufunc(np.matmul, "(m?,n),(n,p?)->(m?,p?)", x, y, axes=axes)
        np.testing.assert_allclose(result, expected)

    def test_an_optional_dim_may_be_missing_from_a_scalar(self):
        result = au.apply_ufunc(lambda x, p: x * p, "(m?),(m?)->(m?)", np.arange(3.0)[1], 3.0)
        assert (type(result), result) == (np.float64, 3)

    @given(st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 2), max_size=2).map(tuple))
    def test_convolve_by_an_expression(self, m, n, loop_shape):
        rng = np.random.default_rng(m + 5 * n)
        x, y = rng.random((*loop_shape, m)), rng.random(n)
        result = au.apply_ufunc(np.convolve, "(m),(n)->(m+n-1)", x, y, vectorize=True)
        expected = np.empty((*loop_shape, m + n - 1))
        for index in np.ndindex(loop_shape):
            expected[index] = np.convolve(x[index], y)
        np.testing.assert_array_equal(result, expected)

    @pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
    def test_a_core_dim_returns_to_its_place(self, axis):
        x = np.arange(30.0).reshape(2, 5, 3)
        kernel = lambda a: a - a.mean(axis=-1, keepdims=True)
        result = au.apply_ufunc(kernel, "(t)->(t)", x, axis=axis)
        np.testing.assert_allclose(result, x - x.mean(axis=axis, keepdims=True))
        np.testing.assert_allclose(au.apply_ufunc(kernel, "(t)->(t)", x, axes=[(axis,), (axis,)]), result)

    def test_cumulative_kernels_with_resized_dims(self):
        result = au.apply_ufunc(np.diff, "(n)->(n)", ROWS, output_sizes={"n": 2})
        assert result.tolist() == [[1, 1], [1, 1]]
        result = au.apply_ufunc(
            lambda x: x[..., :2], "(n)->(k)", ROWS, output_sizes={"k": lambda sizes: sizes["n"] - 1}
        )
        assert result.shape == (2, 2)

    def test_repeated_dims(self):
        kernel = lambda x: np.trace(x, axis1=-2, axis2=-1)
        assert au.apply_ufunc(kernel, "(n,n)->()", np.ones((2, 3, 3))).tolist() == [3, 3]

    def test_no_inputs(self):
        assert au.apply_ufunc(lambda: np.arange(3), "->(n)", output_sizes={"n": 3}).tolist() == [0, 1, 2]
        assert au.apply_ufunc(lambda: 5, "->()") == 5


class TestResults:
    """Rules 3, 9, 13 and 14: what comes out."""

    @pytest.mark.parametrize(
        "kernel",
        [
            lambda x: x,
            lambda x: x[...],
            lambda x: x[..., ::-1],
            lambda x: np.broadcast_to(x, x.shape),
            np.asarray,
        ],
        ids=["itself", "view", "reversed view", "broadcast", "asarray"],
    )
    def test_results_are_writable_and_share_nothing_with_inputs(self, kernel):
        x = ROWS.copy()
        result = au.apply_ufunc(kernel, "(n)->(n)", x)
        result += 1
        assert (x == ROWS).all()

    def test_stretched_results_are_writable_everywhere(self):
        result = au.apply_ufunc(lambda x, y: y, "(),()->()", np.ones((2, 3)), np.arange(3.0))
        result[0] = 9
        assert result.tolist() == [[9, 9, 9], [0, 1, 2]]

    @pytest.mark.parametrize("vectorize", [False, True])
    @pytest.mark.parametrize("value", [2.5, np.float64(2.5), np.array(2.5)])
    def test_0d_results_are_numpy_scalars(self, vectorize, value):
        result = au.apply_ufunc(lambda x: value, "(n)->()", ROWS[0], vectorize=vectorize)
        assert (type(result), result) == (np.float64, 2.5)

    def test_0d_results_of_masked_and_object_arrays_are_those_of_sum(self):
        masked = np.ma.MaskedArray([1.0], mask=[True])
        assert au.apply_ufunc(total, "(n)->()", masked) is masked.sum() is np.ma.masked
        assert au.apply_ufunc(total, "(n)->()", np.array([decimal.Decimal(1)])) == decimal.Decimal(1)

    def test_the_masked_constant_of_numpy_stays_as_it_is(self):
        result = au.apply_ufunc(lambda x: x.max(axis=-1), "(n)->()", np.ma.MaskedArray([[1.0]], mask=[[True]]))
        result[0] = 5.0
        assert np.ma.masked.tolist() is None
        assert result.tolist() == [5]

    @pytest.mark.parametrize("dtype", ["U3", "S2", "M8[s]", "m8[ns]", "O", "c8", "?", [("a", "i4")]])
    def test_all_dtypes_pass(self, dtype):
        x = np.zeros((2, 3), dtype)
        for vectorize in (False, True):
            result = au.apply_ufunc(lambda v: v[..., 0], "(n)->()", x, vectorize=vectorize)
            assert (result.shape, result.dtype) == ((2,), np.dtype(dtype))
            assert result.tolist() == x[:, 0].tolist()

    def test_an_empty_batch_calls_the_kernel_never_or_once_for_its_dtypes(self):
        calls = []

        def kernel(v):
            calls.append(v.shape)
            return np.array([v.min(), v.max()])

        options = {"vectorize": True, "output_sizes": {"j": 2}}
        result = au.apply_ufunc(kernel, "(i)->(j)", np.ones((0, 4), "f4"), output_dtypes="f8", **options)
        assert (result.shape, result.dtype, calls) == ((0, 2), np.float64, [])
        for _ in range(2):
            result = au.apply_ufunc(kernel, "(i)->(j)", np.ones((3, 0, 4), "f4"), **options)
            assert (result.shape, result.dtype, calls) == ((3, 0, 2), np.float32, [(4,)])

    def test_the_default_of_a_kind_is_numpys(self):
        dtypes = [
            au.apply_ufunc(total, "(n)->()", ROWS.astype("i4"), output_dtypes=kind).dtype
            for kind in (int, float, complex)
        ]
        assert dtypes == [np.dtype(int), np.float64, np.complex128]

    def test_rows_in_any_order_give_one_dtype(self):
        rows = np.array([[0.0], [3.0], [5.0]])
        kernel = lambda v: 0 if v[0] < 1 else v[0] / 2
        assert au.apply_ufunc(kernel, "(n)->()", rows, vectorize=True).tolist() == [0, 1.5, 2.5]

    def test_lists_of_numbers_stay_python_fast(self):
        x = np.arange(80.0).reshape(10, 8)
        assert au.apply_ufunc(lambda v: v.sum(), "(n)->()", x, vectorize=True).tolist() == x.sum(axis=-1).tolist()

    def test_upto_counts_with_a_further_output(self):
        def distinct(row):
            values = np.unique(row)
            return values, len(values)

        values, count = au.apply_ufunc(
            distinct,
            "(n)->(k),()",
            [[3, 1, 3], [2, 2, 2]],
            vectorize=True,
            output_sizes={"k": au.UpTo(3, fill_value=-1)},
        )
        assert (values.tolist(), count.tolist()) == ([[1, 3, -1], [2, -1, -1]], [2, 1])


class TestErrors:
    """Rule 11: types are kept, one note is added, and ours are builtins too."""

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_a_kernels_exception_keeps_its_type_and_has_one_note(self, vectorize):
        def kernel(x):
            raise KeyError("boom")

        with pytest.raises(KeyError) as caught:
            au.apply_ufunc(kernel, "(n)->()", ROWS, vectorize=vectorize)
        assert caught.value.args == ("boom",)
        seen = "float64(3,) (item 0), for arguments float64(2, 3)" if vectorize else "float64(2, 3)"
        assert caught.value.__notes__ == [f"in kernel 'kernel' with signature '(n)->()', called with {seen}"]

    def test_writing_into_an_input_raises(self):
        def double(x):
            x *= 2
            return x

        x = ROWS.copy()
        with pytest.raises(ValueError, match="read-only"):
            au.apply_ufunc(double, "()->()", x)
        assert (au.apply_ufunc(double, "()->()", x, writable=True) == 2 * ROWS).all()
        assert (x == ROWS).all()

    @pytest.mark.parametrize(
        ("error", "builtin", "call"),
        [
            (au.DimensionError, ValueError, lambda: au.apply_ufunc(np.vecdot, None, np.ones(3), np.ones(2))),
            (au.DimensionError, ValueError, lambda: au.apply_ufunc(np.add, None, np.ones(3), np.ones(2))),
            (au.ArgumentError, TypeError, lambda: au.apply_ufunc(np.add, None, 1)),
            (au.OptionError, TypeError, lambda: au.apply_ufunc(np.add, None, 1, 2, typo=3)),
            (au.AxisError, IndexError, lambda: au.apply_ufunc(total, "(n)->()", ROWS, axis=5)),
            (au.SignatureError, ValueError, lambda: au.apply_ufunc(total, "(n)", ROWS)),
        ],
    )
    def test_errors_are_what_numpy_would_raise(self, error, builtin, call):
        with pytest.raises(error) as caught:
            call()
        assert isinstance(caught.value, builtin)
        assert isinstance(caught.value, au.ApplyUfuncError)
