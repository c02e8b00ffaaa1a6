"""PyTorch tensors: read where they are, returned on their own memory, mapped in one call, and refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from derivative_kernels import Recorder
from drawn_examples import examples
from fresh_process import run
from hypothesis import given
from hypothesis import strategies as st

import applyufunc as au

torch = pytest.importorskip("torch")

X = torch.arange(6.0).reshape(2, 3)


def row_sum(x):
    return x.sum(axis=-1)


total = au.gufunc("(n)->()", output_dtypes=float)(row_sum)


# Memory


@pytest.mark.parametrize(
    "tensor", [X, X.T, X[:, ::2], X[0].expand(4, 3), X.long(), X.bfloat16(), X[0, 0]], ids=lambda t: str(t.dtype)
)
def test_kernel_reads_a_tensor_where_it_is(tensor):
    if tensor.dtype is torch.bfloat16:
        pytest.importorskip("ml_dtypes")
    seen = []

    def kernel(x):
        seen.append((x.__array_interface__["data"][0], x.flags.writeable, type(x), x.shape))
        return x + 0

    result = au.apply_ufunc(kernel, "()->()", tensor)
    assert seen == [(tensor.data_ptr(), False, np.ndarray, tuple(tensor.shape))]
    assert (result.shape, result.dtype) == (tensor.shape, tensor.dtype)


def test_conjugate_and_negative_views_are_resolved():
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert au.apply_ufunc(np.positive, "()->()", z.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert au.apply_ufunc(np.positive, "()->()", z.conj().imag).tolist() == [-2, 1]


def test_result_is_the_memory_that_the_kernel_returned():
    places = []

    def kernel(x):
        output = x * 2
        places.append(output.__array_interface__["data"][0])
        return output

    assert au.apply_ufunc(kernel, "(n)->(n)", X).data_ptr() == places[0]


KERNELS_THAT_RETURN_VIEWS = {
    "the argument": lambda x: x,
    "a part": lambda x: x[..., ::-1],
    "a transposed copy": lambda x: (x.T + 0).T if isinstance(x, np.ndarray) else (x.mT + 0).mT,
}


@pytest.mark.parametrize("kernel_arrays", ["numpy", "same", "traced"])
@pytest.mark.parametrize("what", KERNELS_THAT_RETURN_VIEWS)
def test_result_is_contiguous_and_no_view_of_an_argument(kernel_arrays, what):
    kernel = KERNELS_THAT_RETURN_VIEWS[what]
    if kernel_arrays != "numpy" and what == "a part":
        kernel = lambda x: x[..., :]
    result = au.apply_ufunc(kernel, "(n)->(n)", X, kernel_arrays=kernel_arrays)
    assert result.is_contiguous()
    assert result.untyped_storage().data_ptr() != X.untyped_storage().data_ptr()


@pytest.mark.parametrize("kernel_arrays", ["same", "traced"])
def test_writing_into_a_result_changes_neither_another_one_nor_what_the_kernel_keeps(kernel_arrays):
    kept = torch.ones(2, 3)

    def kernel(x):
        doubled = x * 2
        return kept[:], doubled, doubled[:]

    call = au.gufunc("(n)->(n),(n),(n)", kernel_arrays=kernel_arrays)(kernel)
    for result in call(X):
        result.zero_()
    assert [result.sum().item() for result in call(X)] == [6, 30, 30]


def test_result_of_a_traced_kernel_is_no_view_under_transformations():
    part = au.gufunc("(n)->(n)", kernel_arrays="traced")(lambda x: x[..., :])
    x = X.clone()
    torch.vmap(lambda row: part(row).zero_())(x)
    assert torch.equal(x, X)
    torch.testing.assert_close(torch.func.grad(lambda x: (part(x) ** 2).sum())(x), 2 * X)


def test_masked_results_are_refused():
    with pytest.raises(au.OutputDTypeError, match="masked array, whose mask torch arrays cannot keep"):
        au.apply_ufunc(np.ma.MaskedArray, "()->()", X)


# Dtypes


def test_pythons_types_mean_the_default_dtypes_of_pytorch():
    ones = torch.ones(2, dtype=torch.float64)
    call = lambda kind: au.apply_ufunc(lambda x: np.ones(x.shape), "()->()", ones, output_dtypes=kind)
    assert [call(kind).dtype for kind in (float, complex)] == [torch.float32, torch.complex64]
    assert au.apply_ufunc(np.sign, "()->()", torch.ones(2, dtype=torch.int8), output_dtypes=int).dtype == torch.int64


def test_result_without_dims_is_what_sum_gives():
    result = total(X[0])
    native = X[0].sum()
    assert (type(result), result.shape, result.dtype, result.item()) == (torch.Tensor, native.shape, native.dtype, 3)


def test_python_float_beside_a_short_float_does_not_widen_it():
    pytest.importorskip("ml_dtypes")
    assert au.apply_ufunc(np.multiply, "(),()->()", X.bfloat16(), 0.5).dtype == torch.bfloat16


def test_dtypes_that_numpy_has_not_are_refused_with_the_cure(monkeypatch):
    with pytest.raises(au.ArgumentError, match=r"argument 0 has dtype bits8, which NumPy .* cannot hold: cast it"):
        total(torch.empty(2, dtype=torch.bits8))
    from applyufunc._lowering._torch import _dtypes

    monkeypatch.setattr(_dtypes, "_import_short_floats", lambda: False)
    with pytest.raises(au.ArgumentError, match=r"dtype bfloat16, .*: install ml_dtypes, .* or cast it first"):
        total(X.bfloat16())


@pytest.mark.parametrize("dtype", ["datetime64[s]", "O", "U3", np.longdouble])
def test_dtypes_that_pytorch_has_not_are_refused_before_any_work(dtype):
    kernel = Recorder(row_sum)
    with pytest.raises(au.OptionError, match="which torch arrays cannot hold"):
        au.apply_ufunc(kernel, "(n)->()", X, output_dtypes=dtype)
    assert kernel.shapes == []


def test_dtypes_that_pytorch_has_not_are_refused_when_they_are_returned():
    with pytest.raises(au.OutputDTypeError, match=r"kernel returned float128.*pass output_dtypes"):
        au.apply_ufunc(lambda x: x.astype(np.longdouble), "()->()", X)


# Arguments


def test_numpy_arrays_beside_tensors_are_read_where_they_are():
    y = np.arange(3.0, dtype="f4")
    places = []

    def kernel(x, y):
        places.append(y.__array_interface__["data"][0])
        return x * y

    result = au.apply_ufunc(kernel, "(n),(n)->(n)", X, y)
    torch.testing.assert_close(result, X * torch.from_numpy(y))
    assert places == [y.__array_interface__["data"][0]]


@pytest.mark.parametrize(
    "make", [lambda: torch.nn.Parameter(X), lambda: X.as_subclass(type("Own", (torch.Tensor,), {}))]
)
def test_subclasses_are_taken_for_what_they_hold(make):
    with torch.no_grad():
        result = total(make())
    assert type(result) is torch.Tensor
    assert result.tolist() == [3, 12]


def test_odd_tensors_are_refused_by_name():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(au.ArgumentError, match=r"argument 0 is a nested torch\.Tensor"):
        total(nested)
    with pytest.raises(au.ArgumentError, match="argument 1 is a masked array, whose mask torch arrays cannot keep"):
        au.apply_ufunc(np.add, "(),()->()", X, np.ma.masked_equal([1.0, 2, 3], 2))
    with pytest.raises(au.ArgumentError, match=r"argument 1 has dtype datetime64.*, which torch arrays cannot hold"):
        au.apply_ufunc(np.add, "(),()->()", X, np.ones(3, "M8[s]"))


def test_tensor_that_requires_grad_just_works_where_no_gradient_is_kept():
    x = X.clone().requires_grad_()
    with torch.no_grad():
        assert total(x).tolist() == [3, 12]
    with torch.inference_mode():
        assert total(x).tolist() == [3, 12]


def test_keywords_that_are_tensors_reach_the_kernel_as_it_takes_arrays():
    seen = []

    def scaled(x, *, w):
        seen.append(type(w))
        return x * w

    for kernel_arrays in ("numpy", "same"):
        result = au.apply_ufunc(scaled, "(n)->(n)", X, w=X[1], kernel_arrays=kernel_arrays)
        torch.testing.assert_close(result, X * X[1])
    assert seen == [np.ndarray, torch.Tensor]


# Devices: the meta device holds no values, and is no CPU


def test_a_result_of_a_number_without_values_has_none():
    add = au.gufunc("(),()->()", allow_transfer=True, output_dtypes="f8")(np.add)
    number = torch.tensor(1.0, device="meta")
    assert [add(*args).device.type for args in ((X, number), (number, X))] == ["meta"] * 2


@pytest.mark.parametrize("tensor", [X.to("meta"), X.to_sparse()], ids=["device", "layout"])
def test_tensors_that_are_not_plainly_on_the_cpu_are_refused_before_any_work(tensor):
    kernel = Recorder(row_sum)
    with pytest.raises(
        au.TransferError, match=r"argument 0 is a torch\.Tensor o.* (meta|torch.sparse_coo).*allow_trans"
    ):
        au.apply_ufunc(kernel, "(n)->()", tensor)
    assert kernel.shapes == []


@pytest.mark.parametrize("kernel_arrays", ["same", "traced"])
def test_sparse_tensor_reaches_a_kernel_that_takes_tensors(kernel_arrays):
    sparse = X.to_sparse()
    doubled = au.apply_ufunc(lambda x: x * 2, "(n)->(n)", sparse, kernel_arrays=kernel_arrays)
    assert doubled.layout is torch.sparse_coo
    assert torch.equal(doubled.to_dense(), X * 2)
    dense = au.apply_ufunc(lambda x: x.to_dense().sum(-1), "(n)->()", sparse, kernel_arrays=kernel_arrays)
    assert dense.tolist() == [3, 12]


def test_with_leave_the_result_returns_to_the_device():
    assert total.with_options(allow_transfer=True)(X.to("meta")).device.type == "meta"
    with au.allow_transfer():
        result = total(X.to("meta"))
        assert total(X.to_sparse()).tolist() == [3, 12]
    assert (result.device.type, result.shape, result.dtype) == ("meta", (2,), torch.float32)


def test_two_devices_do_not_mix_unless_one_has_no_dims():
    add = au.gufunc("(),()->()", output_dtypes=float, allow_transfer=True)(np.add)
    with pytest.raises(au.ArgumentError, match="argument 0 is on device cpu and argument 1 on device meta"):
        add(X, X.to("meta"))
    assert add(torch.tensor(1.0), X.to("meta")).device.type == "meta"


# Kernels that take tensors


def test_kernel_gets_tensors_without_a_gradient():
    seen = []

    def kernel(x):
        seen.append((type(x), x.requires_grad, x.data_ptr()))
        return x.sum(-1)

    x = X.clone().requires_grad_()
    result = au.apply_ufunc(kernel, "(n)->()", x, kernel_arrays="same", vjp=lambda x, c: c[..., None].expand(x.shape))
    result.sum().backward()
    assert seen == [(torch.Tensor, False, x.data_ptr())]
    assert x.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_kernel_that_is_traced_needs_no_derivative_kernels():
    x = X.clone().requires_grad_()
    result = au.apply_ufunc(lambda row: (row**2).sum(), "(n)->()", x, vectorize=True, kernel_arrays="traced")
    result.sum().backward()
    torch.testing.assert_close(x.grad, 2 * X)


@st.composite
def operands(draw):
    """Draw two matrices whose loop dims broadcast."""
    loop = draw(st.lists(st.integers(0, 3), max_size=3))
    shapes = []
    for _ in range(2):
        own = loop[draw(st.integers(0, len(loop))) :]
        shapes.append([1 if draw(st.booleans()) else size for size in own] + [2, 2])
    return [torch.from_numpy(np.random.default_rng(0).random(shape)) for shape in shapes]


@examples(60)
@given(operands())
def test_kernel_of_one_item_is_mapped_over_all_loop_dims(arrays):
    seen = []

    def kernel(a, b):
        seen.append((a.shape, b.shape))
        return a @ b

    result = au.apply_ufunc(kernel, "(m,n),(n,p)->(m,p)", *arrays, vectorize=True, kernel_arrays="traced")
    torch.testing.assert_close(result, torch.matmul(*arrays))
    assert seen == [((2, 2), (2, 2))]


@pytest.mark.parametrize(
    "kernel",
    [torch.linalg.vector_norm, torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())],
    ids=lambda kernel: type(kernel).__name__,
)
def test_pytorchs_own_functions_and_modules_are_traced(kernel):
    x = X.clone().requires_grad_()
    signature = "(n)->()" if kernel is torch.linalg.vector_norm else "(n)->(n)"
    result = au.apply_ufunc(kernel, signature, x, vectorize=True)
    native = torch.stack([kernel(row) for row in x])
    torch.testing.assert_close(result, native)
    assert result.requires_grad
    assert au.explain(kernel, signature, x, vectorize=True).way == "traced"


def test_integers_of_a_traced_kernel_are_not_narrowed():
    with pytest.raises(au.OutputDTypeError, match="while it is traced nobody can tell"):
        au.apply_ufunc(lambda x: x, "()->()", X.long(), kernel_arrays="traced", output_dtypes="i4")


# vmap


def test_nested_vmap_over_different_arguments_calls_once():
    p, q, r = torch.tensor([1.0, 2, 3]), torch.tensor([10.0, 20]), torch.tensor(5.0)
    kernel = Recorder(lambda a, b, c: a * b - c)
    f = au.gufunc("(),(),()->()", output_dtypes=float)(kernel)
    nested = torch.vmap(torch.vmap(f, (None, 0, None)), (0, None, None))
    assert nested(p, q, r).tolist() == [[5, 15], [15, 35], [25, 55]]
    assert kernel.shapes == [((3, 1), (1, 2), (1, 1))]


def test_vmap_lines_up_arguments_of_different_loop_ranks():
    a, b = torch.arange(36.0).reshape(3, 3, 4), torch.arange(12.0).reshape(3, 4)
    kernel = Recorder(np.multiply)
    result = torch.vmap(au.gufunc("(),()->()", output_dtypes=float)(kernel))(a, b)
    torch.testing.assert_close(result, torch.stack([a[i] * b[i] for i in range(3)]))
    assert kernel.shapes == [((3, 3, 4), (3, 1, 4))]


@st.composite
def nestings(draw):
    """Shapes of a matrix and a vector with mapped axes put in, and what each vmap gets, outside in."""
    shapes = [[2, 3], [3]]
    levels = []
    for _ in range(draw(st.integers(1, 3))):
        mapped = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        size = draw(st.integers(1, 3))
        in_dims = tuple(draw(st.integers(0, len(s))) if m else None for s, m in zip(shapes, mapped, strict=True))
        for shape, axis in zip(shapes, in_dims, strict=True):
            if axis is not None:
                shape.insert(axis, size)
        levels.insert(0, (in_dims, draw(st.integers(0, 1))))
    return shapes, levels


@examples(80)
@given(nestings())
def test_every_nesting_of_vmap_is_one_call(drawn):
    shapes, levels = drawn
    arrays = [torch.from_numpy(np.random.default_rng(0).random(shape)) for shape in shapes]
    kernel = Recorder(lambda a, b: (a * b[..., None, :]).sum(-1))
    ours, native = au.gufunc("(m,n),(n)->(m)", output_dtypes="f8")(kernel), torch.mv
    for in_dims, out_dims in reversed(levels):
        ours, native = torch.vmap(ours, in_dims, out_dims), torch.vmap(native, in_dims, out_dims)
    torch.testing.assert_close(ours(*arrays), native(*arrays))
    assert len(kernel.shapes) == 1
    assert sum(np.prod(shape) for shape in kernel.shapes[0]) == sum(array.numel() for array in arrays)  # no copies


def test_unknown_size_and_all_outputs_under_vmap():
    kernel = Recorder(lambda x: (x[..., :2], x.max(-1)))
    f = au.gufunc("(n)->(k),()", output_dtypes=float, output_sizes={"k": None})(kernel)
    first, largest = torch.vmap(f)(X)
    torch.testing.assert_close((first, largest), (X[:, :2], X.amax(-1)))
    assert kernel.shapes == [((2, 3),)]


def test_lazy_apply_under_vmap_calls_for_each_item_in_one_batch():
    seen = []

    def kernel(row):
        seen.append((type(row), row.shape))
        return row[::-1].copy() if isinstance(row, np.ndarray) else row.flip(0)

    for as_numpy, kind in ((True, np.ndarray), (False, torch.Tensor)):
        seen.clear()
        reverse = lambda row, how=as_numpy: au.lazy_apply(kernel, row, shape=row.shape, dtype=row.dtype, as_numpy=how)
        torch.testing.assert_close(torch.vmap(reverse)(X), X.flip(1))
        assert seen == [(kind, (3,))] * 2


# Two copies of the package


@pytest.mark.once
def test_two_copies_live_in_one_process(tmp_path):
    shutil.copytree(Path(au.__file__).parent, tmp_path / "vendoring" / "applyufunc")
    (tmp_path / "vendoring" / "__init__.py").touch()
    program = """
    import numpy as np, torch
    import applyufunc, vendoring.applyufunc
    from torch._subclasses.fake_tensor import FakeTensorMode

    for au in (applyufunc, vendoring.applyufunc):
        f = au.gufunc("(n)->()", output_dtypes=float)(lambda x: x.sum(-1))
        print(*torch.vmap(f)(torch.ones(2, 3)).tolist())
        with FakeTensorMode():
            print(*f(torch.ones(2, 3)).shape)
    print(hasattr(torch.ops.applyufunc__lowering__torch, "call"))
    print(hasattr(torch.ops.vendoring_applyufunc__lowering__torch, "call"))
    """
    assert run(program, paths=[tmp_path]) == ["3.0", "3.0", "2", "3.0", "3.0", "2", "True", "True"]


def test_an_output_of_length_1_in_the_order_of_the_other_end_is_taken():
    result = au.apply_ufunc(lambda x: np.sort(x, axis=-1)[..., ::-1], "(n)->(n)", torch.tensor([[3.0]]))
    assert result.tolist() == [[3.0]]
