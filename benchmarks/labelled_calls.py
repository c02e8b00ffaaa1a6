"""Calls on small labelled arrays: ours, bound and unbound, `xarray.apply_ufunc` alone, no labels, the kernel alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import dask
import numpy as np
import xarray as xr

import applyufunc as au

from ._calls import Call, measure_call
from ._family import KERNEL, OURS, Bar, Case, CaseResults, Ways

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Calls on labelled arrays"

ALONE: Final = "xarray.apply_ufunc"
WITHOUT: Final = "applyufunc, no labels"

UNBOUND: Final = "applyufunc, unbound"

WAYS: Final = (OURS, UNBOUND, ALONE, WITHOUT, KERNEL)

Function: TypeAlias = Callable[..., Any]

Calls: TypeAlias = Mapping[str, tuple[Function, Sequence[Any]]]


def batch(_: bool) -> Ways:
    """The dot products of 100 pairs of 8, `(n),(n)->()`, where nothing counts but the call itself."""
    x, y = _arrays()
    call = au.gufunc("(n),(n)->()", output_dtypes=float)(_dot)
    unbound = partial(au.apply_ufunc, _dot, "(n),(n)->()", output_dtypes=float)
    alone = _alone(_dot, [["n"], ["n"]])
    plain = [x.values, y.values]
    ways: Calls = {
        OURS: (call, [x, y]),
        UNBOUND: (unbound, [x, y]),
        ALONE: (alone, [x, y]),
        WITHOUT: (call, plain),
    }
    return _ways(ways, partial(_dot, *plain))


def items(_: bool) -> Ways:
    """The dot product of 8 numbers for each of 100 items, with `vectorize=True`."""
    x, y = _arrays()
    call = au.gufunc("(n),(n)->()", output_dtypes=float, vectorize=True)(np.dot)
    alone = _alone(np.dot, [["n"], ["n"]], vectorize=True, output_dtypes=[float])
    ways: Calls = {OURS: (call, [x, y]), ALONE: (alone, [x, y]), WITHOUT: (call, [x.values, y.values])}
    return _ways(ways, partial(_dot, x.values, y.values))


def dataset(_: bool) -> Ways:
    """Anomalies, `(n)->(n)`, of 10 variables of 100 x 8."""
    x, _ = _arrays()
    variables = xr.Dataset({f"v{place}": x + place for place in range(10)})
    call = au.gufunc("(n)->(n)", output_dtypes=float)(_anomaly)
    unbound = partial(au.apply_ufunc, _anomaly, "(n)->(n)", output_dtypes=float)
    alone = _alone(_anomaly, [["n"]], output_core_dims=[["n"]])
    ways: Calls = {OURS: (call, [variables]), UNBOUND: (unbound, [variables]), ALONE: (alone, [variables])}
    values = [variable.values for variable in variables.values()]
    return _ways(ways, lambda: tuple(map(_anomaly, values)))


def lazy(_: bool) -> Ways:
    """The dot products of 100 pairs of 8, in 4 chunks of Dask, built and computed."""
    x, y = (array.chunk(x=25) for array in _arrays())
    call = au.gufunc("(n),(n)->()", output_dtypes=float)(_dot)
    alone = _alone(_dot, [["n"], ["n"]], dask="parallelized", output_dtypes=[float])
    ways: Calls = {OURS: (call, [x, y]), ALONE: (alone, [x, y]), WITHOUT: (call, [x.data, y.data])}
    computed: Calls = {name: (_computed(function), args) for name, (function, args) in ways.items()}
    return _ways(computed, partial(_dot, *(array.values for array in _arrays())))


measure = measure_call

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {"labelled batch": batch, "labelled items": items, "Dataset": dataset, "labelled Dask": lazy}
)


def _bars() -> Sequence[Bar]:
    def of_alone(results: CaseResults) -> float:
        return results[OURS].seconds / results[ALONE].seconds

    return [Bar("seconds, of `xarray.apply_ufunc`", case, 1.1, of_alone) for case in CASES]


BARS: Final = _bars()


def _arrays() -> tuple[Any, Any]:
    values = np.random.default_rng(0).random((2, 100, 8))
    coords = {"x": np.arange(100), "n": np.arange(8)}
    x, y = (xr.DataArray(array, dims=("x", "n"), coords=coords) for array in values)
    return x, y


def _alone(kernel: Function, core_dims: Any, **options: Any) -> Function:
    return lambda *arrays: xr.apply_ufunc(kernel, *arrays, input_core_dims=core_dims, **options)


def _computed(function: Function) -> Function:
    def call(*arrays: Any) -> Any:
        with dask.config.set(scheduler="sync"):
            return function(*arrays).compute()

    return call


def _ways(calls: Calls, kernel: Callable[[], Any]) -> Ways:
    """Return calls beside the kernel alone, on arrays without labels."""
    made = {name: Call(_called(function, args), kernel) for name, (function, args) in calls.items()}
    return made | {KERNEL: Call(kernel, kernel)}


def _called(function: Function, args: Sequence[Any]) -> Callable[[], tuple[Any, ...]]:
    def call() -> tuple[Any, ...]:
        result = function(*args)
        return tuple(result.values()) if isinstance(result, xr.Dataset) else (result,)

    return call


def _dot(x: Any, y: Any) -> Any:
    return np.einsum("...n,...n->...", x, y)


def _anomaly(x: Any) -> Any:
    return x - x.mean(axis=-1, keepdims=True)
