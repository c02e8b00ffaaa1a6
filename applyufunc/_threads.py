"""The items of a loop, spread over threads: `collect_in_threads` gives what `collect_items` would in one.

In: a function, its arguments for every item, how many threads. Out: what it returned for each item in the order of the
loop, or the exception of the first item in that order which fails, whichever thread is the faster. Threads are started
for one loop and end with it, so that there is no state, and a forked process has nothing to mend.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from itertools import islice, starmap
from operator import length_hint
from typing import Any, Final, TypeAlias

import numpy as np

from ._expectation import Expectation
from ._items import Column, collect_items
from ._typing import Array

__all__ = ["SharedItems", "collect_in_threads", "hold_on_threads"]

_Batch: TypeAlias = tuple[int, Sequence[tuple[Any, ...]]]
"""The place of the first item in the loop, and the arguments of it and of those that follow."""


class SharedItems:
    """The items of a loop, which threads take from the front in batches, and where the first one failed."""

    def __init__(self, items: Iterator[tuple[Any, ...]], n_items: int, n_threads: int) -> None:
        self._items = items
        self._size = max(1, min(_LARGEST_BATCH, math.ceil(n_items / (n_threads * _BATCHES_PER_THREAD))))
        self._n_taken = 0
        self._end = n_items  # the first place with which nobody needs to go on
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self.n_items = n_items
        self.n_threads = min(n_threads, math.ceil(n_items / self._size))

    @property
    def n_left(self) -> int:
        """How many items come after the one that failed."""
        return self.n_items - 1 - self._end

    def take(self) -> _Batch | None:
        """Return the next batch; None where nothing is left to do."""
        with self._lock:
            start = self._n_taken
            batch = self._next_items() if start < self._end else []
            self._n_taken += len(batch)
        return (start, batch) if batch else None

    def wanted(self, start: int, rest: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Return the items of a batch for as long as none before it has failed."""
        for item in rest:
            if start >= self._end:
                return
            yield item

    def fail(self, place: int, error: BaseException) -> None:
        """Note that the item at `place` has failed; what is no `Exception` stops all threads."""
        with self._lock:
            self._fail(place, error)

    def check(self) -> None:
        """Raise what the first failing item raised."""
        error, self._error = self._error, None  # which refers to frames that refer to this
        if error is not None:
            raise error

    def _next_items(self) -> list[tuple[Any, ...]]:
        try:
            return list(islice(self._items, self._size))
        except Exception as error:  # noqa: BLE001  # a copy that there is no memory for
            self._fail(self._n_taken, error)
            return []

    def _fail(self, place: int, error: BaseException) -> None:
        place = place if isinstance(error, Exception) else -1
        if place < self._end:
            self._end, self._error = place, error


def collect_in_threads(function: Callable[..., Any], items: SharedItems, expected: Expectation) -> tuple[Column, ...]:
    """Return what the function returned for each item; the calling thread does its share."""
    collected = [_Collected(items.n_items) for _ in expected.plan.outputs]

    def work() -> None:
        while (batch := items.take()) is not None:
            _run_batch(function, batch, items, expected, collected)

    others = _start(work, items.n_threads - 1)
    work()
    try:
        for thread in others:
            thread.join()
    except BaseException as error:  # an interrupt while waiting
        items.fail(0, error)
        raise
    items.check()
    return tuple(each.column() for each in collected)


@contextmanager
def hold_on_threads(hold: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Hold what holds for one thread on this one, and on those that loops are spread over meanwhile."""
    token = _held.set(hold)
    try:
        with hold():
            yield
    finally:
        _held.reset(token)


def _start(work: Callable[[], None], number: int) -> list[threading.Thread]:
    """Return running threads, in the caller's context; fewer where the system has no more."""
    started: list[threading.Thread] = []
    for _ in range(number):
        thread = threading.Thread(target=copy_context().run, args=(_work_held, work), name="applyufunc")
        try:
            thread.start()
        except RuntimeError:
            break
        started.append(thread)
    return started


def _work_held(work: Callable[[], None]) -> None:
    with _held.get()():
        work()


def _run_batch(
    function: Callable[..., Any],
    batch: _Batch,
    items: SharedItems,
    expected: Expectation,
    collected: Sequence[_Collected],
) -> None:
    start, args = batch
    rest = iter(args)
    try:
        returned = starmap(function, items.wanted(start, rest))
        for each, column in zip(collected, collect_items(returned, expected, len(args)), strict=True):
            each.put(start, column)
    except BaseException as error:  # noqa: BLE001  # the calling thread raises it
        items.fail(start + len(args) - 1 - length_hint(rest), error)


class _Collected:
    """What batches gave for one output: rows of one array where they are alike, lists elsewhere."""

    def __init__(self, n_items: int) -> None:
        self._n_items = n_items
        self._rows: np.ndarray[Any, Any] | None = None
        self._parts: dict[int, Sequence[Any] | slice] = {}  # by place; a slice: in the rows
        self._kinds: set[type] = set()
        self._lock = threading.Lock()

    def put(self, start: int, column: Column) -> None:
        """Keep what the batch that starts at a place of the loop gave."""
        part = slice(start, start + len(column.values))
        rows = self._rows_like(column.values)
        if rows is None:
            self._parts[start] = column.values
        else:
            rows[part] = column.values
            self._parts[start] = part
        self._kinds |= column.kinds

    def column(self) -> Column:
        """Return what all batches gave, in the order of the loop."""
        rows, kinds = self._rows, frozenset(self._kinds)
        if rows is not None and all(isinstance(part, slice) for part in self._parts.values()):
            return Column(rows, kinds)
        parts = (self._parts[start] for start in sorted(self._parts))
        values = [value for part in parts for value in (rows[part] if isinstance(part, slice) else part)]  # type: ignore[index]  # it has rows
        return Column(values, kinds)

    def _rows_like(self, items: Sequence[Any] | Array) -> np.ndarray[Any, Any] | None:
        """Return the array for all rows, made for the first that come; None where these items are not like them."""
        if type(items) is not np.ndarray:
            return None
        with self._lock:
            if self._rows is None:
                self._rows = np.empty((self._n_items, *items.shape[1:]), items.dtype)
        is_alike = (items.shape[1:], items.dtype) == (self._rows.shape[1:], self._rows.dtype)
        return self._rows if is_alike else None


_held: ContextVar[Callable[[], AbstractContextManager[Any]]] = ContextVar("_held", default=nullcontext)
_BATCHES_PER_THREAD: Final = 8  # so that one with slow items does not hold up all
_LARGEST_BATCH: Final = 1024  # items, whose arguments are there at once
