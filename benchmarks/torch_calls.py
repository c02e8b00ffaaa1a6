"""Calls on PyTorch tensors: ours, at once and compiled, a hand-written operator, PyTorch's own, the kernel alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import torch

import applyufunc as au

from ._family import KERNEL, OURS, Bar, Case, CaseResults, Way, Ways
from ._work import measure_work

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Calls on PyTorch tensors"

COMPILED: Final = "applyufunc, compiled"
OPERATOR: Final = "custom_op"
OPERATOR_COMPILED: Final = "custom_op, compiled"
NATIVE: Final = "torch.sqrt"

WAYS: Final = (OURS, COMPILED, OPERATOR, OPERATOR_COMPILED, NATIVE, KERNEL)

Function: TypeAlias = Callable[..., Any]


def one_element(quick: bool) -> Ways:
    """100 calls of the square root of one `float32`, where nothing counts but the call itself."""
    return _ways((1,), 1 if quick else 100)


def rows(quick: bool) -> Ways:
    """100 calls of the square roots of a batch of 100 rows of 8."""
    return _ways((10, 8) if quick else (100, 8), 1 if quick else 100)


def large_array(quick: bool) -> Ways:
    """One call of the square roots of 100 MB, where copies count."""
    return _ways((100,) if quick else (25_000_000,), 1)


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {"torch, one element": one_element, "torch, 100 x 8": rows, "torch, 100 MB": large_array}
)


measure = measure_work


def _bars() -> list[Bar]:
    def of_kernel(results: CaseResults) -> float:
        return results[OURS].seconds / results[KERNEL].seconds

    def of_operator(results: CaseResults) -> float:
        return results[OURS].seconds / results[OPERATOR].seconds

    return [
        Bar("seconds, of the bare kernel", "torch, 100 MB", 1.3, of_kernel),
        *(Bar("seconds, of `custom_op`", case, 1.3, of_operator) for case in CASES),
    ]


BARS: Final = _bars()


def _square_roots(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sqrt(x.numpy()))


_operator: Final = torch.library.custom_op("applyufunc_benchmarks::sqrt", _square_roots, mutates_args=())
_operator.register_fake(torch.empty_like)


def _ways(shape: tuple[int, ...], n_calls: int) -> Ways:
    x = torch.ones(shape, dtype=torch.float32) + 1
    ours = au.gufunc("()->()", output_dtypes=np.float32)(np.sqrt)
    functions: Mapping[str, Function] = {
        OURS: ours,
        COMPILED: torch.compile(ours, backend="aot_eager", fullgraph=True),
        OPERATOR: _operator,
        OPERATOR_COMPILED: torch.compile(_operator, backend="aot_eager", fullgraph=True),
        NATIVE: torch.sqrt,
    }
    ways = {name: _repeated(function, x, n_calls) for name, function in functions.items()}
    return {**ways, KERNEL: _repeated(np.sqrt, x.numpy(), n_calls)}


def _repeated(function: Function, x: Any, n_calls: int) -> Way:
    def way() -> tuple[Any, ...]:
        for _ in range(n_calls - 1):
            function(x)
        return (function(x),)

    return way
