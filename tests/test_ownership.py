"""`applyufunc._ownership`: results share no memory with arguments, with each other, or with what a kernel keeps."""

from __future__ import annotations

import numpy as np
import pytest
from test_blocks import runner

import applyufunc as au

ROWS = np.arange(12.0).reshape(4, 3)


class Doubling:
    """A kernel that doubles into an array which it uses again; `form` says what it returns of it."""

    def __init__(self, form=lambda array: array):
        self.form, self.array = form, np.zeros(3)

    def __call__(self, x):
        if self.array.shape != x.shape:
            self.array = np.zeros(x.shape)
        np.multiply(x, 2, out=self.array)
        return self.form(self.array)


FORMS = {
    "array": lambda array: array,
    "view": lambda array: array[...],
    "masked": np.ma.MaskedArray,
    "read-only": lambda array: np.broadcast_to(array, array.shape),
    "buffer": lambda array: np.frombuffer(memoryview(array)).reshape(array.shape),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtypes", [None, ("f8",), ("f4",)])
def test_items_that_a_kernel_returns_in_the_same_array_are_kept_apart(form, dtypes):
    (result,) = runner(Doubling(FORMS[form]), "(n)->(n)", vectorize=True, dtypes=dtypes)(ROWS)
    assert result.tolist() == (2 * ROWS).tolist()


def test_items_of_several_outputs_are_kept_apart():
    results = runner(Doubling(lambda array: (array, array[:2])), "(n)->(n),(2)", vectorize=True)(ROWS)
    assert [result.tolist() for result in results] == [(2 * ROWS).tolist(), (2 * ROWS[:, :2]).tolist()]


FORMS_OF_SEVERAL = {
    "scalars": lambda x: (x[0], x.sum()),
    "rows": lambda x: (x * 2, x[:2] + 1),
    "a row and a scalar": lambda x: (x * 2, x[0]),
    "three": lambda x: (x * 2, x[0], x[:2]),
    "a list": lambda x: [x * 2, x[0]],
    "Python's numbers": lambda x: (float(x[0]), int(x[1])),
}


@pytest.mark.parametrize("odd", [None, 0, 2, 3])
@pytest.mark.parametrize("form", FORMS_OF_SEVERAL)
def test_several_outputs_are_those_of_a_plain_loop_though_one_item_is_not_like_the_others(form, odd):
    alike = FORMS_OF_SEVERAL[form]

    def kernel(x):
        values = alike(x)
        if odd is not None and x[0] == ROWS[odd, 0]:
            return [values[0], np.asarray(values[1], "f4"), *values[2:]]
        return values

    sample = alike(ROWS[0])
    dims = ",".join(f"({len(part) if np.ndim(part) else ''})" for part in sample)
    results = runner(kernel, f"(3)->{dims}", vectorize=True)(ROWS)
    for result, *parts in zip(results, *map(alike, ROWS), strict=True):
        np.testing.assert_array_equal(result, np.stack(parts))
        dtypes = [np.asarray(part).dtype for part in parts]
        assert odd is not None or result.dtype == np.result_type(*dtypes)


@pytest.mark.parametrize("returned", [(1.0,), (1.0, 2.0, 3.0), 1.0, "ab", np.ones(2)])
@pytest.mark.parametrize("place", [0, 2])
def test_wrong_number_of_outputs_names_the_item(returned, place):
    kernel = lambda x: returned if x[0] == ROWS[place, 0] else (1.0, 2.0)
    with pytest.raises(au.OutputShapeError, match="expected a tuple of 2") as caught:
        runner(kernel, "(n)->(),()", vectorize=True)(ROWS)
    assert f"(item {place})" in caught.value.__notes__[0]


def test_tuple_for_one_output_names_the_item():
    kernel = lambda x: (1.0, 2.0) if x[0] == ROWS[2, 0] else 1.0
    with pytest.raises(au.OutputShapeError, match="kernel returned a tuple of 2, expected one array") as caught:
        runner(kernel, "(n)->()", vectorize=True)(ROWS)
    assert "(item 2)" in caught.value.__notes__[0]


def test_items_in_the_same_container_are_kept_apart():
    outputs = [np.zeros(3), [0.0, 0.0]]

    def kernel(x):
        outputs[0][:] = 2 * x
        outputs[1][:] = x[:2]
        return outputs

    first, second = runner(kernel, "(n)->(n),(2)", vectorize=True)(ROWS)
    assert (first.tolist(), second.tolist()) == ((2 * ROWS).tolist(), ROWS[:, :2].tolist())


def test_items_without_core_dims_are_kept_apart():
    total, record = np.zeros(()), np.zeros(1, "f8,i4")

    def sum_into(x):
        total[()] = x.sum()
        return total

    def fill(x):
        record[0] = x.sum(), x[0]
        return record[0]

    assert runner(sum_into, "(n)->()", vectorize=True)(ROWS)[0].tolist() == [3, 12, 21, 30]
    assert runner(fill, "(n)->()", vectorize=True)(ROWS)[0].tolist() == [(3, 0), (12, 3), (21, 6), (30, 9)]


@pytest.mark.parametrize("odd", [0, 2, 3])
def test_items_stay_in_order_where_one_is_not_like_the_others(odd):
    buffer = Doubling()
    kernel = lambda x: buffer(x).astype("f4") if x[0] == ROWS[odd, 0] else buffer(x)
    (result,) = runner(kernel, "(n)->(n)", vectorize=True)(ROWS)
    assert (result.dtype, result.tolist()) == (np.float64, (2 * ROWS).tolist())


def test_an_item_that_differs_in_shape_is_named():
    with pytest.raises(au.OutputShapeError, match=r"expected 3, kernel returned 2 .* in item 2"):
        runner(lambda x: x[:2] if x[0] == 6 else x, "(n)->(n)", vectorize=True)(ROWS)


def test_items_of_another_library_are_kept_apart():
    xp = pytest.importorskip("array_api_strict")
    buffer = xp.zeros(3)

    def kernel(x):
        buffer[...] = x * 2
        return buffer[...]

    result = au.apply_ufunc(kernel, "(n)->(n)", xp.asarray(ROWS), vectorize=True, kernel_arrays="same")
    assert np.asarray(result).tolist() == (2 * ROWS).tolist()


def test_objects_are_kept_themselves():
    thing = [1]
    (result,) = runner(lambda x: thing, "()->()", vectorize=True, dtypes=("O",))(np.zeros(2))
    assert result[0] is thing


@pytest.mark.parametrize("form", FORMS)
def test_what_a_kernel_keeps_is_not_the_result(form):
    kernel = Doubling(FORMS[form])
    first, second = (runner(kernel, "(n)->(n)")(rows)[0] for rows in (ROWS, -ROWS))
    assert (first.tolist(), second.tolist()) == ((2 * ROWS).tolist(), (-2 * ROWS).tolist())
    first += 1
    assert kernel.array.tolist() == (-2 * ROWS).tolist()


def test_a_mask_that_a_kernel_keeps_is_not_the_results():
    mask = np.zeros(ROWS.shape, bool)
    (result,) = runner(lambda x: np.ma.MaskedArray(x * 2, mask=mask), "(n)->(n)")(ROWS)
    result[0] = np.ma.masked
    assert not mask.any()


def with_a_view(array):
    return array, array[...]


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: (x, x),
        lambda x: (x * 1,) * 2,
        lambda x: with_a_view(x + 1),
        lambda x: with_a_view(x + 1)[::-1],
    ],
)
def test_outputs_share_nothing_with_each_other_or_with_arguments(kernel):
    x = ROWS.copy()
    first, second = runner(kernel, "(n)->(n),(n)")(x)
    before = second.tolist()
    first += 1
    assert second.tolist() == before
    second += 1
    assert x.tolist() == ROWS.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * 2,
        lambda x: np.sort(x, axis=-1),
        lambda x: (x * 2).reshape(2, -1)[..., ::-1].reshape(x.shape) * 1,
        lambda x: np.add(x, x)[:, ::-1],
        lambda x: (x + 1j).real,
        lambda x: np.ma.MaskedArray(x * 2, mask=x > 3),
        lambda x: -np.ma.MaskedArray(x * 2, mask=x > 3),
    ],
)
def test_a_new_array_is_not_copied(make):
    made = []

    def kernel(x):
        array = make(x)
        made.append(array.__array_interface__["data"][0])
        return array

    for dtypes in (None, ("f8",)):
        (result,) = runner(kernel, "(n)->(n)", dtypes=dtypes)(ROWS)
        assert result.__array_interface__["data"][0] == made[-1]


def test_new_arrays_of_several_outputs_are_not_copied():
    made = []

    def kernel(x):
        arrays = x * 2, x * 3
        made.extend(array.__array_interface__["data"][0] for array in arrays)
        return arrays

    results = runner(kernel, "(n)->(n),(n)")(ROWS)
    assert [result.__array_interface__["data"][0] for result in results] == made


def test_a_private_copy_of_an_argument_is_not_copied_again():
    made = []

    def kernel(x):
        made.append(x.__array_interface__["data"][0])
        x += 1
        return x

    (result,) = runner(kernel, "(n)->(n)", writable=True)(ROWS)
    assert result.__array_interface__["data"][0] == made[0]


def test_results_share_nothing_with_what_the_kernel_keeps(backend):
    if backend.traces or backend.batch:
        pytest.skip("a traced call runs the kernel in its own time, and a batch has another shape")
    table, kernel = np.ones((4, 3)), Doubling()
    given, options = backend.put(ROWS), {"output_dtypes": "f8"}
    results = [backend.call(kernel, "(n)->(n)", [given], options)]
    first = np.asarray(backend.get(results[0]))
    au.apply_ufunc(kernel, "(n)->(n)", -ROWS, output_dtypes="f8")
    assert first.tolist() == (2 * ROWS).tolist()
    result = backend.get(backend.call(lambda x: table, "(n)->(n)", [given], options))
    table += 1
    assert np.asarray(result).tolist() == np.ones((4, 3)).tolist()


def test_blocks_that_a_kernel_returns_in_the_same_array_are_kept_apart():
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(ROWS, chunks=(1, 3))
    for options in ({}, {"thread_safe": False}):
        result = au.apply_ufunc(Doubling(), "(n)->(n)", lazy, output_dtypes=float, kernel_token="double", **options)
        scheduler = "threads" if options else "sync"
        assert result.compute(scheduler=scheduler).tolist() == (2 * ROWS).tolist()


def test_an_array_of_another_library_that_is_held_elsewhere_is_copied():
    xp = pytest.importorskip("array_api_strict")
    table, x = xp.ones((4, 3)), xp.asarray(ROWS, copy=True)
    for held in (table, x):
        result = au.apply_ufunc(lambda a: held, "(n)->(n)", x, kernel_arrays="same")  # noqa: B023
        before = np.asarray(held).tolist()
        result += 1
        assert np.asarray(held).tolist() == before


def test_a_jax_argument_outlives_a_donated_result():
    jax = pytest.importorskip("jax")
    x, kept = jax.numpy.arange(3.0), jax.numpy.ones(3)
    for kernel in (lambda a: a, lambda a: kept):
        result = au.apply_ufunc(kernel, "(n)->(n)", x, kernel_arrays="same")
        assert result is not x
        jax.jit(lambda a: a + 1, donate_argnums=0)(result).block_until_ready()
    assert (x.tolist(), kept.tolist()) == ([0, 1, 2], [1, 1, 1])
