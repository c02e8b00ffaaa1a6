"""Calls on cubed arrays: lazy, one operation of cubed's plan, within its memory, on its executors."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import examples
from fresh_process import run
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

cubed = pytest.importorskip("cubed")

SPEC = cubed.Spec(allowed_mem="20MB", reserved_mem=0, executor_name="single-threaded")


def put(array, chunks, spec=SPEC):
    return cubed.from_array(array, chunks=chunks, spec=spec)


def n_operations(*arrays):
    """Return how many operations run for some arrays, but for the one that makes room for them."""
    return cubed.plan(*arrays).num_primitive_ops - 1


def total(block):
    return block.sum(axis=-1)


SIZES = st.integers(0, 4)


@examples(25)
@given(st.data(), SIZES, SIZES, SIZES, SIZES)
def test_outer_products_are_those_of_a_plain_loop_for_any_chunks(data, rows, columns, m, n):
    left = np.arange(float(rows * m)).reshape(rows, 1, m)
    right = np.arange(float(columns * n)).reshape(columns, n)
    expected, sums = np.zeros((rows, columns, m, n)), np.zeros((rows, columns))
    for i, j in np.ndindex(rows, columns):
        expected[i, j] = np.outer(left[i, 0], right[j])
        sums[i, j] = expected[i, j].sum()

    def outer(x, y):
        product = x[..., :, None] * y[..., None, :]
        return product, product.sum(axis=(-1, -2))

    args = (put(a, tuple(data.draw(st.integers(1, max(size, 1))) for size in a.shape)) for a in (left, right))
    product, sum_ = au.apply_ufunc(outer, "(m),(n)->(m,n),()", *args, output_dtypes=float)
    for got, wanted in ((product, expected), (sum_, sums)):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(got.compute(), wanted)


class TestLaziness:
    def test_nothing_is_computed_while_a_result_is_built(self):
        calls = []

        def kernel(block):
            calls.append(block.shape)
            return block.sum(axis=-1)

        lazy = put(np.ones((4, 6)), (2, 3))
        with cubed.raise_if_computes():
            result = au.apply_ufunc(kernel, "(n)->()", lazy, output_dtypes=float)
        assert type(result) is cubed.Array
        assert calls == []
        assert result.compute().tolist() == [6.0] * 4
        assert calls == [(2, 6)] * 2

    def test_without_dtypes_the_kernel_is_called_once_on_made_up_values(self):
        calls = []

        def kernel(block):
            calls.append(block.shape)
            return block.sum(axis=-1)

        lazy = put(np.ones((4, 6), np.float32), (2, 6))
        with cubed.raise_if_computes():
            assert au.apply_ufunc(kernel, "(n)->()", lazy).dtype == np.float32
        assert calls == [(1, 6)]

    def test_host_arrays_count_as_they_were_when_the_result_was_built(self):
        host = np.ones(3)
        result = au.apply_ufunc(lambda x, y: x + y, "(n),(n)->(n)", put(np.zeros((2, 3)), (1, 3)), host)
        host[:] = 7
        assert result.compute().tolist() == [[1.0] * 3] * 2

    def test_host_arrays_larger_than_cubeds_plans_hold_are_taken(self):
        host = np.arange(300_000.0).reshape(3, 100_000)
        assert host.nbytes > 1_000_000
        lazy = put(np.ones((3, 100_000)), (1, 50_000))
        result = au.apply_ufunc(lambda x, y: (x * y).max(axis=-1), "(n),(n)->()", lazy, host, output_dtypes=float)
        assert result.compute().tolist() == [99_999.0, 199_999.0, 299_999.0]

    def test_an_empty_batch_is_answered_without_the_kernel(self):
        def kernel(block):
            raise AssertionError("called")

        result = au.apply_ufunc(kernel, "(n)->(),(2)", put(np.ones((0, 3)), (1, 3)), output_dtypes=[float, int])
        assert [(r.shape, r.compute().shape, r.dtype) for r in result] == [((0,), (0,), float), ((0, 2), (0, 2), int)]

    def test_a_result_without_dims_is_what_cubeds_own_sum_gives(self):
        lazy = put(np.ones((4, 6)), (2, 3))
        got, native = au.apply_ufunc(lambda x: x.sum(), "(m,n)->()", lazy).compute(), cubed.sum(lazy).compute()
        assert (type(got), got.shape, got.dtype) == (type(native), (), native.dtype)
        assert got == native


class TestPlans:
    def test_a_call_is_one_operation_that_cubed_fuses_with_what_is_around_it(self):
        lazy = put(np.ones((4, 6)), (2, 6)) * 2
        result = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float) + 1
        assert n_operations(result) == 1
        assert result.compute().tolist() == [13.0] * 4

    def test_several_outputs_come_from_one_run_of_the_kernel(self):
        calls = []

        def kernel(block):
            calls.append(block.shape)
            return block.min(axis=-1), block.max(axis=-1)

        lazy = put(np.arange(24.0).reshape(4, 6), (1, 6))
        low, high = au.apply_ufunc(kernel, "(n)->(),()", lazy, output_dtypes=float)
        spread, _ = cubed.compute(high - low, low + 1)
        assert spread.tolist() == [5.0] * 4
        assert len(calls) == 4

    def test_arguments_that_are_cut_as_needed_are_not_rechunked(self):
        lazy, other = put(np.ones((4, 6)), (2, 6)), put(np.ones((1, 6)), (1, 6))
        explained = au.explain(lambda x, y: total(x * y), "(n),(n)->()", lazy, other, output_dtypes=float)
        assert [argument.blocks.rechunking for argument in explained.arguments] == [None, None]

    def test_loop_chunks_that_differ_become_the_smallest(self):
        left, right = put(np.ones((6, 2)), (4, 2)), put(np.full((6, 2), 2.0), (3, 2))
        result = au.apply_ufunc(lambda x, y: total(x * y), "(n),(n)->()", left, right, output_dtypes=float)
        assert result.chunks == ((3, 3),)
        assert result.compute().tolist() == [4.0] * 6

    def test_one_array_may_be_given_twice(self):
        lazy = put(np.arange(6.0).reshape(3, 2), (2, 1))
        result = au.apply_ufunc(np.vecdot, "(n),(n)->()", lazy, lazy)
        assert result.compute().tolist() == [1.0, 13.0, 41.0]

    def test_axis_and_keepdims_move_core_dims_as_on_numpy(self):
        values = np.arange(24.0).reshape(2, 3, 4)
        result = au.apply_ufunc(total, "(n)->()", put(values, (1, 2, 3)), axis=1, keepdims=True)
        np.testing.assert_array_equal(result.compute(), values.sum(axis=1, keepdims=True))

    def test_a_vectorized_loop_and_keywords_reach_the_kernel(self):
        @au.gufunc("(n)->(k)", vectorize=True, output_sizes={"k": au.UpTo(3, fill_value=-1)}, output_dtypes=int)
        def above(row, *, least):
            return np.flatnonzero(row > least)

        lazy = put(np.array([[1, 5, 9], [0, 0, 7]]), (1, 2))
        assert above(lazy, least=4).compute().tolist() == [[1, 2, -1], [2, -1, -1]]

    @pytest.mark.filterwarnings("ignore:The data type:FutureWarning")
    @pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
    def test_texts_and_times_stay_what_they_are(self):
        texts = put(np.array([["ab", "c"], ["d", "e"]]), (1, 2))
        assert au.apply_ufunc(lambda x: x[..., 0], "(n)->()", texts, output_dtypes="U2").compute().tolist() == [
            "ab",
            "d",
        ]
        times = put(np.array([[0, 90]], "M8[s]"), (1, 2))
        assert au.apply_ufunc(lambda x: x[..., 1] - x[..., 0], "(n)->()", times).compute() == np.timedelta64(90, "s")


class TestMemory:
    def test_a_chunk_too_large_for_cubed_is_refused_in_its_words_and_ours(self):
        lazy = put(np.ones((1000, 1000)), (500, 500))
        with pytest.raises(au.AlignmentError, match=r"argument 0 .*'m' and 'n'.*Target chunk memory.*exceeds.*Spec"):
            au.apply_ufunc(lambda x: x.sum((-1, -2)), "(m,n)->()", lazy, output_dtypes=float)

    def test_a_block_too_large_for_cubed_is_refused_when_the_result_is_built(self):
        lazy = cubed.ones((1000, 1000), chunks=(500, 1000), spec=SPEC)
        assert au.apply_ufunc(lambda x: x, "(n)->(n)", lazy, output_dtypes=float).plan().max_projected_mem < 20_000_000
        with pytest.raises(au.AlignmentError, match=r"cubed projects 22\.89 MiB .*allowed_mem of 19\.07 MiB"):
            au.apply_ufunc(lambda x: (x, x, x), "(n)->(n),(n),(n)", lazy, output_dtypes=float)

    @pytest.mark.parametrize("extra", [2_000_000, "2 MB"])
    def test_extra_projected_mem_counts(self, extra):
        lazy = cubed.ones((1000, 1000), chunks=(500, 1000), spec=SPEC)
        plain = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float).plan().max_projected_mem
        result = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float, extra_projected_mem=extra)
        assert result.plan().max_projected_mem == plain + 2_000_000

    def test_private_copies_count(self):
        lazy = cubed.ones((1000, 1000), chunks=(250, 1000), spec=SPEC)
        plain = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float).plan().max_projected_mem
        result = au.apply_ufunc(total, "(n)->()", lazy, output_dtypes=float, writable=True)
        assert result.plan().max_projected_mem == plain + 2_000_000

    @pytest.mark.parametrize("value", [-1, "much", None, 1.5])
    def test_extra_projected_mem_takes_bytes_alone(self, value):
        with pytest.raises(au.OptionError, match="extra_projected_mem"):
            au.gufunc("(n)->()", extra_projected_mem=value)


class TestRefusals:
    lazy = staticmethod(lambda: put(np.ones((2, 6)), (2, 3)))

    def test_core_chunks_may_be_refused(self):
        with pytest.raises(au.AlignmentError, match=r"argument 0: core dimension 'n' is in 2 chunks.*'refuse'"):
            au.apply_ufunc(total, "(n)->()", self.lazy(), output_dtypes=float, core_chunks="refuse")

    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            ("add", np.add),
            ("Reduction", au.Reduction(total, np.add, state="(n)->()")),
            ("Scan", au.Scan(initial=0.0, carry="()")),
            ("Overlap", au.Overlap(1)),
        ],
    )
    def test_rules_for_pieces_are_refused_by_name_where_there_are_pieces(self, name, rule):
        signature = "(n)->()" if name in ("add", "Reduction") else "(n)->(n)"
        with pytest.raises(au.AlignmentError, match=f"core_chunks={name} .*pass core_chunks='merge'"):
            au.apply_ufunc(total, signature, self.lazy(), output_dtypes=float, core_chunks=rule)

    def test_unknown_sizes_name_the_dim_and_its_cure(self):
        with pytest.raises(au.UnknownSizeError, match=r"'k'.*UpTo"):
            au.apply_ufunc(total, "(n)->(k)", self.lazy(), output_dtypes=float, output_sizes={"k": None})

    @pytest.mark.parametrize("dtype", [object, [("a", "f8")]])
    def test_dtypes_that_cubed_cannot_store(self, dtype):
        with pytest.raises(au.OptionError, match="cubed arrays cannot hold"):
            au.apply_ufunc(total, "(n)->()", self.lazy(), output_dtypes=np.dtype(dtype))
        with pytest.raises(au.ArgumentError, match=r"argument 1 has dtype .*cubed arrays cannot hold"):
            au.apply_ufunc(lambda x, y: total(x), "(n),(n)->()", self.lazy(), np.zeros(6, dtype), output_dtypes=float)

    def test_lazy_keywords_and_parts_of_lists(self):
        with pytest.raises(au.ArgumentError, match="keyword weights is a lazy cubed array: pass it as an argument"):
            au.apply_ufunc(lambda x, weights: x, "(n)->(n)", self.lazy(), weights=self.lazy())
        with pytest.raises(au.ArgumentError, match=r"argument 0\[1\] is a lazy cubed array"):
            au.apply_ufunc(total, "(n)->()", [1.0, self.lazy()])

    def test_arrays_of_another_library_and_masks(self):
        da = pytest.importorskip("dask.array")
        with pytest.raises(au.ArgumentError, match="argument 0 is from cubed, argument 1 is from dask"):
            au.apply_ufunc(np.add, "(),()->()", self.lazy(), da.ones(6))
        with pytest.raises(au.ArgumentError, match="argument 1 is a masked array"):
            au.apply_ufunc(np.add, "(),()->()", self.lazy(), np.ma.ones(6))


EXECUTORS = ["single-threaded", "threads", pytest.param("processes", marks=pytest.mark.once)]


class TestExecutors:
    @pytest.mark.parametrize(
        "executor", ["single-threaded", "threads", pytest.param("processes", marks=pytest.mark.once)]
    )
    def test_a_kernels_exception_keeps_its_type_and_says_where_it_was(self, executor):
        limit = 20

        def kernel(block):
            if block.max() > limit:
                raise ZeroDivisionError("too much")
            return block.sum(axis=-1)

        options = {"retries": 0} if executor == "threads" else {}
        spec = cubed.Spec(allowed_mem="20MB", reserved_mem=0, executor_name=executor, executor_options=options)
        lazy = put(np.arange(24.0).reshape(4, 6), (2, 3), spec)
        result = au.apply_ufunc(kernel, "(n)->()", lazy, output_dtypes=float)
        with pytest.raises(ZeroDivisionError, match="too much") as caught:
            result.compute()
        (note,) = caught.value.__notes__
        assert "kernel 'kernel' with signature '(n)->()'" in note
        assert note.endswith("called with float64(2, 6), block [2:4] of the loop dimensions")
        limit = 100
        assert au.apply_ufunc(kernel, "(n)->()", lazy, output_dtypes=float).compute().tolist() == [
            15.0,
            51.0,
            87.0,
            123.0,
        ]

    @pytest.mark.once
    def test_blocks_of_another_library_reach_kernels_as_they_ask(self):
        pytest.importorskip("jax")
        program = """
            import os
            os.environ |= {"CUBED_BACKEND_ARRAY_API_MODULE": "jax.numpy", "JAX_ENABLE_X64": "1"}
            import applyufunc as au, cubed, jax, numpy as np
            lazy = cubed.asarray(np.arange(6.0).reshape(2, 3), chunks=(1, 2))
            seen = set()
            def kernel(block):
                seen.add(isinstance(block, jax.Array))
                return block.sum(axis=-1)
            for arrays in ("numpy", "same"):
                result = au.apply_ufunc(kernel, "(n)->()", lazy, output_dtypes=float, kernel_arrays=arrays).compute()
                print(isinstance(result, jax.Array), *result.tolist(), *seen)
                seen.clear()
        """
        assert run(program) == ["True", "3.0", "12.0", "False", "True", "3.0", "12.0", "True"]


def test_explain_tells_what_cubed_would_do_and_computes_nothing():
    lazy = put(np.ones((4, 6)), (2, 3))
    with cubed.raise_if_computes():
        explained = au.explain(lambda x, y: total(x * y), "(n),(n)->()", lazy, np.ones(6))
    assert explained.way == "blocks"
    assert explained.loop == (("-1", (2, 2)),)
    rechunking = explained.arguments[0].blocks.rechunking
    assert (rechunking.before, rechunking.after) == (((2, 2), (3, 3)), ((2, 2), (6,)))
    assert (rechunking.merged, rechunking.unified, rechunking.n_steps) == (("n",), (), 1)
    assert rechunking.bytes_moved == 4 * 6 * 8
    assert explained.arguments[1].blocks.in_memory
    assert explained.n_calls == 2
    result = au.apply_ufunc(lambda x, y: total(x * y), "(n),(n)->()", lazy, np.ones(6), output_dtypes=float)
    assert explained.n_tasks == cubed.plan(result).num_tasks
    assert "n: 2 chunks of 3 -> 1 chunk of 6: the kernel needs it whole" in str(explained)
