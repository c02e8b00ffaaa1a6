"""Calls of cheap kernels on small NumPy arrays, where nothing counts but the call: ours, those of peers, the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import array_api_extra
import numpy as np
import xarray

import applyufunc as au

from ._calls import Call, measure_call
from ._family import KERNEL, OURS, Bar, Case, CaseResults, Ways, as_tuple

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure", "ways_to_call"]

TITLE: Final = "Calls on small NumPy arrays"

UNBOUND: Final = "applyufunc.apply_ufunc"
LAZY_APPLY: Final = "lazy_apply"
XARRAY: Final = "xarray.apply_ufunc"
XARRAY_OF_NUMPY: Final = f"{XARRAY}, NumPy arrays"
VECTORIZE: Final = "numpy.vectorize"

WAYS: Final = (OURS, UNBOUND, LAZY_APPLY, XARRAY, XARRAY_OF_NUMPY, VECTORIZE, KERNEL)

NumPyArray: TypeAlias = np.ndarray[Any, Any]


def two_arguments(quick: bool) -> Ways:
    """Dot products, `(n),(n)->()`, of two arrays of 100 x 8 `float64`."""
    return ways_to_call(_dot, "(n),(n)->()", _arrays(quick))


def two_outputs(quick: bool) -> Ways:
    """Dot products and the lesser of two first elements, `(n),(n)->(),()`, of the same."""
    return ways_to_call(_dot_and_least, "(n),(n)->(),()", _arrays(quick))


def elements(quick: bool) -> Ways:
    """Hypotenuses, `(),()->()`, of the same."""
    return ways_to_call(_hypotenuse, "(),()->()", _arrays(quick))


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {"two arguments": two_arguments, "two arguments, two outputs": two_outputs, "elementwise": elements}
)

measure = measure_call


def ways_to_call(kernel: Callable[..., Any], signature: str, arrays: Sequence[NumPyArray]) -> Ways:
    """Return the ways to call a kernel whose outputs have no core dimensions, and whose inputs have "n" or none."""
    outputs = as_tuple(kernel(*arrays))
    dtypes, shapes = (tuple(getattr(output, name) for output in outputs) for name in ("dtype", "shape"))
    is_single = len(outputs) == 1
    declared: dict[str, Any] = {"output_dtypes": dtypes[0] if is_single else dtypes}
    core_dims = [list(dims) for dims in _core_dims(signature)]
    lazy: dict[str, Any] = {"shape": shapes[0] if is_single else shapes, "dtype": dtypes[0] if is_single else dtypes}
    of_xarray: dict[str, Any] = {"input_core_dims": core_dims, "output_core_dims": [[] for _ in outputs]}
    labelled = [xarray.DataArray(array, dims=("row", "n")[-array.ndim :]) for array in arrays]
    calls: dict[str, Callable[[], Any]] = {
        OURS: partial(au.gufunc(signature, **declared)(kernel), *arrays),
        UNBOUND: partial(au.apply_ufunc, kernel, signature, *arrays, **declared),
        LAZY_APPLY: partial(array_api_extra.lazy_apply, kernel, *arrays, as_numpy=True, **lazy),
        XARRAY: partial(xarray.apply_ufunc, kernel, *labelled, **of_xarray),
        XARRAY_OF_NUMPY: partial(xarray.apply_ufunc, kernel, *arrays, **of_xarray),
        VECTORIZE: partial(np.vectorize(kernel, signature=signature), *arrays),
        KERNEL: (bare := partial(kernel, *arrays)),
    }
    return {name: Call(call, bare) for name, call in calls.items()}


def _bars() -> Sequence[Bar]:
    def of_lazy_apply(results: CaseResults) -> float:
        return results[OURS].beyond_kernel / results[LAZY_APPLY].beyond_kernel

    def of_xarray(results: CaseResults) -> float:
        return results[OURS].beyond_kernel / results[XARRAY].beyond_kernel

    return [
        *(Bar("seconds beyond the bare kernel, of `lazy_apply`", case, 0.25, of_lazy_apply) for case in CASES),
        *(Bar("seconds beyond the bare kernel, of `xarray.apply_ufunc`", case, 0.03, of_xarray) for case in CASES),
    ]


BARS: Final = _bars()


def _arrays(quick: bool) -> Sequence[NumPyArray]:
    return list(np.random.default_rng(0).random((2, 10 if quick else 100, 8)))


def _core_dims(signature: str) -> Sequence[Sequence[str]]:
    return [[dim.label for dim in dims] for dims in au.Signature.parse(signature).inputs]


def _dot(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.vecdot(x, y)  # type: ignore[no-any-return]


def _dot_and_least(x: NumPyArray, y: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    return np.vecdot(x, y), np.minimum(x[..., 0], y[..., 0])


def _hypotenuse(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.hypot(x, y)
