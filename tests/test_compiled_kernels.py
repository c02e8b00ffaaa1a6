"""Compiled functions as they are: ufuncs, Numba's objects, what fills its outputs or demands memory of some kind."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from backends import BACKENDS
from drawn_examples import examples
from fresh_process import run
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au


def fill_prefix_sums(row, sums, total):
    """Fill two outputs for one item."""
    running = 0.0
    for place in range(len(row)):
        running += row[place]
        sums[place] = running
    total[()] = running


def fill_totals(rows, totals):
    totals[...] = rows.sum(axis=-1)


class TestKernelsThatFillTheirOutputs:
    @pytest.mark.parametrize("vectorize", [False, True])
    def test_give_on_every_backend_what_a_plain_loop_gives(self, backend, vectorize):
        def fill_batch(rows, sums, totals):
            sums[...] = np.cumsum(rows, axis=-1)
            totals[...] = rows.sum(axis=-1)

        kernel = fill_prefix_sums if vectorize else fill_batch
        options = {"vectorize": vectorize, "fills_outputs": True, "output_dtypes": float}
        sizes = st.integers(0, 3)

        @examples(min(backend.examples, 20))
        @given(sizes, sizes, sizes, st.data())
        def check(planes, rows, n, data):
            values = np.arange(float(planes * rows * n)).reshape(planes, rows, n)
            expected = np.zeros((planes, rows, n)), np.zeros((planes, rows))
            for index in np.ndindex(planes, rows):
                running = 0.0
                for place in range(n):
                    running += values[(*index, place)]
                    expected[0][(*index, place)] = running
                expected[1][index] = running
            got = backend.call(kernel, "(n)->(n),()", (backend.put(values, data),), options)
            for result, wanted in zip(got, expected, strict=True):
                value = backend.get(result)
                assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
                np.testing.assert_array_equal(value, wanted)

        check()

    def test_broadcast_loops_arrive_as_whole_outputs(self):
        def fill(x, y, product):
            assert product.shape == (2, 3)
            product[...] = (x * y).sum(axis=-1)

        got = au.apply_ufunc(
            fill, "(n),(n)->()", np.ones((2, 1, 4)), np.ones((3, 4)), fills_outputs=True, output_dtypes=int
        )
        assert got.tolist() == [[4, 4, 4], [4, 4, 4]]
        assert got.dtype == int

    def test_a_bounded_size_is_filled_with_its_padding_before(self):
        @au.gufunc(
            "(n)->(k),()",
            output_dtypes=[int, int],
            output_sizes={"k": au.UpTo(3, fill_value=-1)},
            vectorize=True,
            fills_outputs=True,
        )
        def peaks(row, places, count):
            found = np.flatnonzero(row > 4)
            places[: len(found)] = found
            count[()] = len(found)

        places, count = peaks(np.array([[5, 0, 9], [0, 0, 0]]))
        assert places.tolist() == [[0, 2, -1], [-1, -1, -1]]
        assert count.tolist() == [2, 0]

    def test_a_function_that_returns_what_it_filled_is_taken(self):
        def fill(rows, totals):
            return rows.sum(axis=-1, out=totals)

        assert au.apply_ufunc(fill, "(n)->()", np.ones((2, 3)), fills_outputs=True, output_dtypes=float).tolist() == [
            3,
            3,
        ]

    def test_another_result_is_refused(self):
        with pytest.raises(au.OutputShapeError, match="kernel returned a ndarray, expected None: with fills_outputs"):
            au.apply_ufunc(lambda x, out: x + 1, "(n)->(n)", np.ones(3), fills_outputs=True, output_dtypes=float)

    def test_dtypes_and_sizes_have_to_be_known(self):
        with pytest.raises(
            au.UnknownDTypeError, match="fills arrays that are made for its outputs: pass output_dtypes"
        ):
            au.apply_ufunc(fill_totals, "(n)->()", np.ones((2, 3)), fills_outputs=True)
        with pytest.raises(au.UnknownSizeError, match=r"dimension 'k' is unknown .*UpTo"):
            au.apply_ufunc(
                fill_totals,
                "(n)->(k)",
                np.ones((2, 3)),
                fills_outputs=True,
                output_dtypes=float,
                output_sizes={"k": None},
            )

    def test_options_that_say_otherwise_are_refused(self):
        with pytest.raises(au.OptionError, match="fills_outputs=True is for kernels that take NumPy arrays"):
            au.gufunc("(n)->()", fills_outputs=True, kernel_arrays="same")
        with pytest.raises(au.OptionError, match="jac='complex-step' is for kernels that return"):
            au.gufunc("(n)->()", fills_outputs=True, jac="complex-step")
        for rule in (au.Reduction(fill_totals, np.add, state="(n)->()"), au.Scan(initial=0.0)):
            with pytest.raises(au.OptionError, match="fills_outputs=True is for a kernel, and core_chunks="):
                au.apply_ufunc(
                    fill_totals, "(n)->(n)", np.ones(3), fills_outputs=True, output_dtypes=float, core_chunks=rule
                )

    def test_outputs_that_are_combined_on_dask_are_filled_for_each_chunk(self):
        da = pytest.importorskip("dask.array")
        lazy = da.ones((2, 6), chunks=(1, 2))
        options = {"fills_outputs": True, "output_dtypes": float, "core_chunks": np.add}
        result = au.apply_ufunc(fill_totals, "(n)->()", lazy, **options)
        assert result.compute().tolist() == [6.0, 6.0]
        assert au.explain(fill_totals, "(n)->()", lazy, **options).core == "reduction"

    def test_declared_dtypes_are_filled_also_where_jax_holds_narrower_ones(self):
        jax = pytest.importorskip("jax")
        seen = []

        def fill(x, total, count):
            seen.append((total.dtype.name, count.dtype.name))
            total[...], count[...] = x.sum(axis=-1), x.shape[-1]

        with pytest.warns(UserWarning, match="is not available"):
            total, count = jax.jit(
                lambda x: au.apply_ufunc(
                    fill, "(n)->(),()", x, fills_outputs=True, output_dtypes=[np.float64, np.int64]
                )
            )(jax.numpy.ones((2, 3), "float32"))
        assert (total.tolist(), count.tolist()) == ([3.0, 3.0], [3, 3])
        assert (total.dtype, count.dtype) == ("float32", "int32")
        assert set(seen) == {("float64", "int64")}

    def test_finite_differences_differentiate_them(self):
        jax = pytest.importorskip("jax")

        @au.gufunc("(n)->()", output_dtypes=float, vectorize=True, fills_outputs=True, jac="finite-difference")
        def energy(x, out):
            out[()] = (x**2).sum()

        gradient = jax.grad(lambda x: energy(x).sum())(jax.numpy.asarray([[1.0, 2.0], [3.0, 4.0]]))
        np.testing.assert_allclose(gradient, [[2, 4], [6, 8]], rtol=1e-5)


def layouts():
    """Return arrays of equal values in several layouts."""
    values = np.arange(24.0).reshape(2, 3, 4)
    return {
        "C": values,
        "F": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=-1)[..., ::2],
        "reversed": values[..., ::-1].copy()[..., ::-1],
        "broadcast": np.broadcast_to(np.arange(4.0), (2, 3, 4)),
    }


class TestContiguous:
    @pytest.mark.parametrize("vectorize", [False, True])
    @pytest.mark.parametrize("layout", layouts())
    def test_the_kernel_gets_c_order_read_only_and_a_copy_only_where_it_needs_one(self, layout, vectorize):
        array, seen = layouts()[layout], []

        def kernel(block):
            seen.append((block.flags.c_contiguous, block.flags.writeable, np.shares_memory(block, array)))
            return block.sum(axis=-1)

        result = au.apply_ufunc(kernel, "(n)->()", array, contiguous=True, vectorize=vectorize)
        np.testing.assert_array_equal(result, array.sum(axis=-1))
        items_are_contiguous = {"C": True, "broadcast": vectorize}.get(layout, False)
        assert set(seen) == {(True, False, items_are_contiguous)}

    def test_without_it_nothing_is_copied(self):
        array = layouts()["strided"]
        seen = []
        au.apply_ufunc(lambda x: seen.append(np.shares_memory(x, array)) or x.sum(axis=-1), "(n)->()", array)
        assert seen == [True]

    def test_items_without_core_dims_and_constants_stay_scalars(self):
        seen = []

        def kernel(row, scale, offset):
            seen.append((type(scale), type(offset)))
            return row * scale + offset

        au.apply_ufunc(kernel, "(n),(),()->(n)", np.ones((2, 3)), np.ones(2), 1.0, contiguous=True, vectorize=True)
        assert set(seen) == {(np.float64, float)}

    def test_under_jit_a_transposed_array_is_in_order(self):
        jax = pytest.importorskip("jax")
        seen = []

        def kernel(block):
            seen.append(block.flags.c_contiguous)
            return block.sum(axis=-1)

        total = au.gufunc("(n)->()", output_dtypes=float, contiguous=True)(kernel)
        values = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        result = jax.jit(lambda x: total(x.T))(jax.numpy.asarray(values))
        np.testing.assert_array_equal(result, values.sum(axis=0))
        assert seen
        assert all(seen)

    def test_it_is_for_numpy_arrays(self):
        with pytest.raises(au.OptionError, match="contiguous=True is for kernels that take NumPy arrays"):
            au.gufunc("(n)->()", contiguous=True, kernel_arrays="traced")


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("buffer source array is read-only", "writable=True gives the kernel copies to write into"),
        ("ndarray is not C-contiguous", "contiguous=True gives the kernel C-contiguous arrays"),
    ],
)
def test_a_refusal_of_memory_says_which_option_cures_it(message, advice):
    def kernel(x):
        raise ValueError(message)  # as Cython's buffers do

    with pytest.raises(ValueError, match=message) as caught:
        au.apply_ufunc(kernel, "(n)->()", np.ones(3))
    assert advice in caught.value.__notes__[-1]


class TestUfuncs:
    def test_a_function_of_python_objects_brings_its_numbers_of_operands(self):
        both = np.frompyfunc(lambda x: (x + 1, str(x)), 1, 2)
        numbers, texts = au.apply_ufunc(both, None, np.arange(2))
        assert (numbers.tolist(), texts.tolist(), numbers.dtype) == ([1, 2], ["0", "1"], object)
        da = pytest.importorskip("dask.array")
        lazy = au.apply_ufunc(both, None, da.arange(2, chunks=1))
        assert [part.dtype for part in lazy] == [object, object]
        assert [part.compute().tolist() for part in lazy] == [[1, 2], ["0", "1"]]

    def test_scipys_special_functions_bring_signature_and_dtypes(self):
        special = pytest.importorskip("scipy.special")
        da = pytest.importorskip("dask.array")
        lazy = da.from_array(np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), chunks=(1, 2))
        outputs = au.apply_ufunc(special.ellipj, None, lazy, np.float32(0.5))
        assert {output.dtype for output in outputs} == {np.dtype(np.float32)}
        for output, native in zip(outputs, special.ellipj(lazy.compute(), np.float32(0.5)), strict=True):
            np.testing.assert_array_equal(output, native)
        assert au.explain(special.gammaln, None, lazy).dtypes_from == "table"

    def test_cythons_scalar_functions_run_item_by_item(self):
        cython_special = pytest.importorskip("scipy.special.cython_special")
        da = pytest.importorskip("dask.array")
        lazy = da.from_array(np.array([[1.0, 2.0], [3.0, 4.0]]), chunks=(1, 2))
        result = au.apply_ufunc(cython_special.gammaln, "()->()", lazy, vectorize=True, output_dtypes=float)
        np.testing.assert_allclose(result, np.log([[1, 1], [2, 6]]), atol=1e-15)

    def test_what_returns_objects_is_not_cast_to_numbers(self):
        with pytest.raises(au.OutputDTypeError, match=r"kernel returned object, which does not cast to .* float64"):
            au.apply_ufunc(np.frompyfunc(abs, 1, 1), None, np.ones(2), output_dtypes=float)


class TestNumba:
    @pytest.fixture(autouse=True)
    def _numba(self):
        self.numba = pytest.importorskip("numba")

    @pytest.mark.parametrize("types", [[], [["f8(f8,f8)"]]], ids=["lazily", "eagerly"])
    @pytest.mark.parametrize("name", ["numpy", "dask", "cubed", "jax-jit"])
    def test_vectorized_functions_bring_signature_and_dtypes(self, name, types):
        backend = BACKENDS[name]()
        add = self.numba.vectorize(*types)(lambda x, y: x + y)
        with backend.context():
            x = backend.put(np.arange(6.0).reshape(2, 3))
            got = backend.call(add, None, (x, backend.put(np.ones(3))), {})
            np.testing.assert_array_equal(backend.get(got), np.arange(6.0).reshape(2, 3) + 1)

    def test_vectorized_functions_have_names_of_their_own_on_dask(self):
        da = pytest.importorskip("dask.array")
        lazy = da.ones(3, chunks=2)

        def name(function, *types):
            return au.apply_ufunc(self.numba.vectorize(*types)(function), None, lazy).name

        assert name(once_more) == name(once_more)
        assert name(once_more) != name(twice)
        assert name(once_more, ["f8(f8)"]) != name(once_more)

    def test_parallel_ufuncs_of_one_name_have_names_of_their_own_on_dask(self):
        da = pytest.importorskip("dask.array")
        lazy = da.ones(3, chunks=2)
        both = [self.numba.vectorize(["f8(f8)"], target="parallel")(f) for f in (once_more, twice)]
        first, second = (au.apply_ufunc(function, None, lazy) for function in both)
        assert first.name != second.name
        assert (first.compute().tolist(), second.compute().tolist()) == ([2.0] * 3, [2.0] * 3)

    def test_a_scalar_function_gets_no_copies(self):
        x = np.ones((2, 3))
        seen = []

        def spy(block):
            seen.append(np.shares_memory(block, x))
            return function(block)

        function = self.numba.vectorize(["f8(f8)"])(once_more)
        au.apply_ufunc(spy, "()->()", x)
        assert not au._kernel.make_kernel(function, au._options.Options()).gets_copies
        assert seen == [True]

    def test_a_gufunc_cannot_write_into_the_callers_array(self):
        @self.numba.guvectorize(["(f8[:], f8[:])"], "(n)->()")
        def destructive(x, out):
            out[0] = x.sum()
            x[0] = -1

        @self.numba.guvectorize(["(f8[:], f8[:])"], "(n)->()", target="parallel")
        def in_parallel(x, out):
            out[0] = x.sum()
            x[0] = -1

        for kernel in (destructive, in_parallel):
            x = np.ones((4, 3))
            assert au.apply_ufunc(kernel, None, x).tolist() == [3.0] * 4
            assert (x == 1).all()

    def test_a_size_that_only_outputs_have_is_filled(self):
        @self.numba.njit
        def powers(x, out):
            for place in range(len(out)):
                out[place] = x**place

        got = au.apply_ufunc(
            powers,
            "()->(k)",
            np.array([2.0, 3.0]),
            vectorize=True,
            fills_outputs=True,
            output_dtypes=float,
            output_sizes={"k": 4},
        )
        assert got.tolist() == [[1, 2, 4, 8], [1, 3, 9, 27]]

    def test_a_function_without_types_gets_the_callers_memory(self):
        jitted = self.numba.njit(lambda x: x.sum())
        x = np.ones((2, 6))[:, ::2]
        kernel = au._kernel.make_kernel(jitted, au._options.Options())
        assert not kernel.gets_copies
        assert not kernel.needs_contiguous
        assert au.apply_ufunc(jitted, "(n)->()", x, vectorize=True).tolist() == [3.0, 3.0]

    @pytest.mark.parametrize("is_read_only", [False, True])
    @pytest.mark.parametrize("layout", ["A", "C"])
    def test_a_function_with_types_gets_what_these_demand_and_no_more(self, layout, is_read_only):
        types = self.numba.types
        row = types.Array(types.float64, 1, layout, readonly=is_read_only)
        total = self.numba.njit(types.float64(row))(lambda x: x.sum())
        kernel = au._kernel.make_kernel(total, au._options.Options())
        assert (kernel.gets_copies, kernel.needs_contiguous) == (not is_read_only, layout == "C")
        strided = np.arange(12.0).reshape(2, 6)[:, ::2]
        assert au.apply_ufunc(total, "(n)->()", strided, vectorize=True).tolist() == [6.0, 24.0]

    def test_a_function_that_writes_into_its_argument_is_told_of_the_cure(self):
        @self.numba.njit
        def destructive(x):
            x[0] = 0.0
            return x.sum()

        with pytest.raises(Exception, match="readonly") as caught:  # a class of Numba's own
            au.apply_ufunc(destructive, "(n)->()", np.ones((2, 3)), vectorize=True)
        assert "writable=True gives the kernel copies to write into" in caught.value.__notes__[-1]
        got = au.apply_ufunc(destructive, "(n)->()", np.ones((2, 3)), vectorize=True, writable=True)
        assert got.tolist() == [2.0, 2.0]

    def test_object_mode_works(self):
        jitted = self.numba.jit(forceobj=True)(lambda x: x.sum())
        assert au.apply_ufunc(jitted, "(n)->()", np.ones((2, 3)), vectorize=True).tolist() == [3.0, 3.0]

        @self.numba.guvectorize(["(f8[:], f8[:])"], "(n)->()", forceobj=True)
        def total(x, out):
            out[0] = x.sum()

        assert au.apply_ufunc(total, None, np.ones((2, 3))).tolist() == [3.0, 3.0]

    @pytest.mark.once
    def test_parallel_kernels_do_not_end_the_process_when_several_threads_call_them(self):
        pytest.importorskip("dask.array")
        program = """
            import os
            os.environ["NUMBA_THREADING_LAYER"] = "workqueue"
            import dask.array as da, numba, numpy as np, applyufunc as au
            numba.set_num_threads(2)

            @numba.njit(parallel=True)
            def total(x):
                found = 0.0
                for place in numba.prange(x.size):
                    found += x[place]
                return found

            @numba.vectorize(["f8(f8)"], target="parallel")
            def double(x):
                return 2 * x

            @numba.guvectorize(["(f8[:], f8[:])"], "(n)->()", target="parallel")
            def row_sum(x, out):
                out[0] = x.sum()

            rows = np.ones((64, 10_000))
            lazy = da.from_array(rows, chunks=(2, 10_000))
            outputs = [
                au.apply_ufunc(total, "(n)->()", lazy, vectorize=True, output_dtypes=float),
                au.apply_ufunc(double, None, lazy).sum(axis=-1) / 2,
                au.apply_ufunc(row_sum, None, lazy),
            ]
            for computed in da.compute(*outputs, scheduler="threads", num_workers=8):
                print(int(computed.sum()))
            print(int(au.apply_ufunc(total, "(n)->()", rows, vectorize=True, threads=8).sum()))
            print(numba.threading_layer())
        """
        assert run(program) == ["640000"] * 4 + ["workqueue"]


def once_more(x):
    return x + 1


def twice(x):
    return x * 2


SOURCE = """
void smooth(const double *x, long n, double *out, double *total) {
    *total = 0;
    for (long i = 0; i < n; i++) {
        out[i] = (x[i] + x[i > 0 ? i - 1 : 0]) / 2;
        *total += out[i];
    }
}
"""


@pytest.fixture(scope="module")
def smooth(tmp_path_factory):
    """Return a function compiled from C that takes pointers, as ctypes passes arrays to it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "smooth.c").write_text(SOURCE)
    library = folder / "smooth.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "smooth.c"], check=True)
    function = ctypes.CDLL(str(library)).smooth
    vector = np.ctypeslib.ndpointer(np.float64, ndim=1, flags="C_CONTIGUOUS")
    number = np.ctypeslib.ndpointer(np.float64, ndim=0)
    function.argtypes, function.restype = [vector, ctypes.c_long, vector, number], None

    def smoothed(x, out, total):
        function(x, len(x), out, total)

    return smoothed


@pytest.mark.parametrize("name", ["numpy", "dask", "cubed", "jax", "jax-jit"])
def test_a_function_from_c_runs_on_strided_rows_of_every_library(smooth, name):
    backend = BACKENDS[name]()
    kernel = au.gufunc(
        "(n)->(n),()",
        output_dtypes=float,
        compute_dtype="float64",
        vectorize=True,
        fills_outputs=True,
        contiguous=True,
        axes=[0, 0, ()],
    )(smooth)
    values = np.arange(12.0).reshape(4, 3)
    expected = (values + values[[0, 0, 1, 2]]) / 2
    with backend.context():
        if name == "jax-jit":
            out, total = backend.jax.jit(kernel)(values)
        else:
            out, total = kernel(backend.put(values))
        np.testing.assert_array_equal(backend.get(out), expected)
        np.testing.assert_array_equal(backend.get(total), expected.sum(axis=0))
