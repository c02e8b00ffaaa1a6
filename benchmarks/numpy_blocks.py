"""Kernels with temporaries on large NumPy arrays: ours slice by slice, ours in one call, the kernel alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

import applyufunc as au

from ._family import KERNEL, OURS, Bar, Case, CaseResults, Ways
from ._work import measure_work

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Slices that stay in cache"

ONE_CALL: Final = "applyufunc, one call"

WAYS: Final = (OURS, ONE_CALL, KERNEL)

NumPyArray: TypeAlias = np.ndarray[Any, Any]


def reduction(quick: bool) -> Ways:
    """Four temporaries of two arrays of 50 MB, summed over rows of 32 `float64`, `(n),(n)->()`, in slices of 1 MiB."""
    shape = (10, 32) if quick else (200_000, 32)
    return _ways(lambda x, y: ((x * y + x) / (y + 1) - x * x).sum(axis=-1), "(n),(n)->()", shape)


def elements(quick: bool) -> Ways:
    """The same temporaries, `(),()->()`, without the sum."""
    shape = (10,) if quick else (6_400_000,)
    return _ways(lambda x, y: (x * y + x) / (y + 1) - x * x, "(),()->()", shape)


CASES: Final[Mapping[str, Case]] = MappingProxyType({"sums of rows": reduction, "elements": elements})

measure = measure_work


def _bars() -> Sequence[Bar]:
    def of_one_call(results: CaseResults) -> float:
        return results[ONE_CALL].seconds / results[OURS].seconds

    def memory(results: CaseResults) -> float:
        return results[OURS].peak / results[ONE_CALL].peak

    return [
        Bar("one call's seconds, of ours in slices", "sums of rows", 1.5, of_one_call, is_floor=True),
        Bar("peak memory, of one call", "sums of rows", 0.2, memory),
    ]


BARS: Final = _bars()


def _ways(kernel: Callable[..., Any], signature: str, shape: tuple[int, ...]) -> Ways:
    x, y = np.random.default_rng(0).random((2, *shape))
    function = au.gufunc(signature, output_dtypes=float)(kernel)
    return {
        OURS: lambda: (function.with_options(block_bytes="1 MiB")(x, y),),
        ONE_CALL: lambda: (function(x, y),),
        KERNEL: lambda: (kernel(x, y),),
    }
