"""Loops over the items of NumPy arrays: ours, a list comprehension, `numpy.vectorize`; and ours in several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

import applyufunc as au

from ._family import KERNEL, OURS, Bar, Case, CaseResults, Ways, as_tuple
from ._work import measure_work

__all__ = ["BARS", "CASES", "TITLE", "WAYS", "measure"]

TITLE: Final = "Loops over items"

COMPREHENSION: Final = "list comprehension"
VECTORIZE: Final = "numpy.vectorize"
ONE_THREAD: Final = "applyufunc, one thread"

WAYS: Final = (OURS, COMPREHENSION, VECTORIZE, KERNEL, ONE_THREAD)

NumPyArray: TypeAlias = np.ndarray[Any, Any]


def number(quick: bool) -> Ways:
    """The first number of each of 100,000 rows of 8 `float64`, where nothing counts but the loop."""
    return _ways(lambda row: row[0], "(n)->()", [_rows(quick)])


def row_sum(quick: bool) -> Ways:
    """The sum of each of the same rows."""
    return _ways(lambda row: row.sum(), "(n)->()", [_rows(quick)])


def row(quick: bool) -> Ways:
    """Twice each of the same rows."""
    return _ways(lambda row: row * 2.0, "(n)->(n)", [_rows(quick)])


def two_numbers(quick: bool) -> Ways:
    """Two numbers of each row."""
    return _ways(lambda row: (row[0], row[1]), "(n)->(),()", [_rows(quick)])


def two_rows(quick: bool) -> Ways:
    """Two rows for each row."""
    return _ways(lambda row: (row * 2.0, row + 1.0), "(n)->(n),(n)", [_rows(quick)])


def row_and_number(quick: bool) -> Ways:
    """A row and a number for each row."""
    return _ways(lambda row: (row * 2.0, row[0]), "(n)->(n),()", [_rows(quick)])


def broadcast(quick: bool) -> Ways:
    """A number of each row times one of a second argument, which is the same for all rows."""
    return _ways(lambda row, other: row[0] * other[0], "(n),(n)->()", [_rows(quick), np.ones(8)])


def threads(quick: bool) -> Ways:
    """The medians of 200 rows of 20,000 `float64`, which are sorted without the interpreter lock, in two threads."""
    rows = np.random.default_rng(0).random((4, 10) if quick else (200, 20_000))
    function = au.gufunc("(n)->()", vectorize=True)(_median)
    return {OURS: lambda: (function.with_options(threads=2)(rows),), ONE_THREAD: lambda: (function(rows),)}


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "a number": number,
        "a sum": row_sum,
        "a row": row,
        "two numbers": two_numbers,
        "two rows": two_rows,
        "a row and a number": row_and_number,
        "an argument for all": broadcast,
        "two threads": threads,
    }
)

measure = measure_work


def _bars() -> Sequence[Bar]:
    def of_comprehension(results: CaseResults) -> float:
        return results[OURS].seconds / results[COMPREHENSION].seconds

    def of_vectorize(results: CaseResults) -> float:
        return results[VECTORIZE].seconds / results[OURS].seconds

    def of_one_thread(results: CaseResults) -> float:
        return results[ONE_THREAD].seconds / results[OURS].seconds

    loops = [case for case in CASES if case != "two threads"]
    return [
        *(Bar("seconds, of a list comprehension", case, 1.25, of_comprehension) for case in loops),
        # Where kernels are cheap and return no rows: no loop takes less than its kernel does, or than to store rows.
        *(Bar("`numpy.vectorize`'s seconds, of ours", case, 4, of_vectorize, is_floor=True) for case in _CHEAP),
        Bar("one thread's seconds, of two threads'", "two threads", 1.6, of_one_thread, is_floor=True),
    ]


_CHEAP: Final = ("a number", "an argument for all")
BARS: Final = _bars()


def _rows(quick: bool) -> NumPyArray:
    return np.random.default_rng(0).random((10 if quick else 100_000, 8))


def _median(row: NumPyArray) -> Any:
    return np.sort(row)[len(row) // 2]


def _ways(kernel: Callable[..., Any], signature: str, arrays: Sequence[NumPyArray]) -> Ways:
    """Return the ways to loop over the rows of the first array; what comes after it is the same for all of them."""
    rows, *others = arrays
    function = au.gufunc(signature, vectorize=True)(kernel)
    vectorized = np.vectorize(kernel, signature=signature)
    n_outputs = function.nout

    def comprehension() -> tuple[Any, ...]:
        returned = [kernel(row, *others) for row in rows] if others else [kernel(row) for row in rows]
        return tuple(map(np.array, zip(*returned, strict=True))) if n_outputs > 1 else (np.array(returned),)

    outputs = cache(comprehension)  # made once, before the clock starts, for the comparison

    def kernel_alone() -> tuple[Any, ...]:
        if others:
            for row in rows:
                kernel(row, *others)
        else:
            for row in rows:
                kernel(row)
        return outputs()

    return {
        OURS: lambda: as_tuple(function(*arrays)),
        COMPREHENSION: comprehension,
        VECTORIZE: lambda: as_tuple(vectorized(*arrays)),
        KERNEL: kernel_alone,
    }
