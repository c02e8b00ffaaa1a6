"""What a loop's calls returned, in a column for each output: `collect_items` keeps it out of the next call's reach.

In: what the kernel returned for one item after the other. Out: a `Column` for each output, whose shapes and dtypes
nobody has checked yet. Calls no kernel but by taking the next of what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np

from ._errors import KernelError
from ._expectation import Expectation
from ._ownership import SCALARS, kept
from ._returned import is_object, unpack
from ._typing import Array

__all__ = ["Call", "Column", "collect_items"]


Call: TypeAlias = tuple[Callable[[Any], Any], Iterator[Any]]
"""A function of one argument, and an iterator over that argument, which is as far as the loop is."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """What the kernel returned for one output, item by item."""

    values: Sequence[Any] | Array  # if an array, with an item in each row, of the core shape declared
    kinds: frozenset[type]  # of the values


def collect_items(
    returned: Iterable[Any], expected: Expectation, n_items: int, call: Call | None = None
) -> tuple[Column, ...]:
    """Return what each item's call gave, as it was then: the next call may write into the same array.

    Where there is a `call`, it says how `returned` comes about. Arrays that are alike go row by row into one array,
    which costs less than to stack them later; all else is kept, or copied where somebody could change it.
    """
    others = iter(returned)
    first = list(islice(others, 1))
    if not first:
        _check_number(0, n_items)
        return (Column((), frozenset()),) * len(expected.plan.outputs)
    parts = unpack(first[0], expected.plan)
    loop = _Loop(others, call, expected, n_items)
    if any(map(loop.takes_all, range(len(parts)))):
        return loop.collect_unlike([[] for _ in parts], first[0])
    if parts is first[0]:
        return _collect_tuples(parts, loop)
    if type(first[0]) is np.ndarray and loop.is_as_declared(first[0], 0):
        return _collect_rows(first[0], loop)
    return _collect_values(first[0], loop)


def _collect_tuples(first: Sequence[Any], loop: _Loop) -> tuple[Column, ...]:
    """Return several outputs."""
    if not all(type(part) in SCALARS or loop.is_as_declared(part, position) for position, part in enumerate(first)):
        return loop.collect_unlike([[] for _ in first], first)
    return _collect_pairs(first, loop) if len(first) == 2 else _collect_several(first, loop)


# These loops are the cost of a call with `vectorize`, beside the kernel: a name that is looked up outside of a loop, or
# a call that is spared in it, is a tenth of what the cheapest kernels take.


def _collect_values(first: Any, loop: _Loop) -> tuple[Column, ...]:
    """Return the only output, of which the first item is no row of an array."""
    kind = type(first) if type(first) in SCALARS else _Nothing
    kinds = {type(first)}

    def keep(value: Any) -> Any:
        kinds.add(type(value))
        return kept(*unpack(value, loop.expected.plan))

    values = [kept(first)]
    if loop.call is None:
        values += [value if type(value) is kind else keep(value) for value in loop.others]
    else:  # Python itself calls a Python function in less time than `map` does
        function, items = loop.call
        with suppress(StopIteration):  # as `map` does
            values += [value if type(value := function(item)) is kind else keep(value) for item in items]
    _check_number(len(values), loop.n_items)
    return (Column(values, frozenset(kinds)),)


def _collect_rows(first: np.ndarray[Any, Any], loop: _Loop) -> tuple[Column, ...]:
    """Return the only output, of which the first item is an array as declared."""
    ndarray, shape, dtype = np.ndarray, first.shape, first.dtype
    rows = np.empty((loop.n_items, *shape), dtype)
    rows[0] = first
    place = 1
    for value in loop.others:
        if type(value) is not ndarray or value.shape != shape or (value.dtype is not dtype and value.dtype != dtype):
            return loop.collect_unlike([list(rows[:place])], value)
        rows[place] = value
        place += 1
    _check_number(place, loop.n_items)
    return (Column(rows, frozenset({ndarray})),)


def _collect_pairs(first: Sequence[Any], loop: _Loop) -> tuple[Column, ...]:
    """Return two outputs as `_collect_several` does, which takes twice as long."""
    (left, left_kind, left_shape, left_dtype), right_target = (_target(part, loop.n_items) for part in first)
    right, right_kind, right_shape, right_dtype = right_target
    place = 1
    for pair in loop.others:
        if type(pair) is tuple and len(pair) == 2:
            one, other = pair
            if (
                type(one) is left_kind
                and type(other) is right_kind
                and (left_dtype is None or (one.shape == left_shape and one.dtype is left_dtype))
                and (right_dtype is None or (other.shape == right_shape and other.dtype is right_dtype))
            ):
                left[place] = one
                right[place] = other
                place += 1
                continue
        return loop.collect_unlike([list(left[:place]), list(right[:place])], pair)
    _check_number(place, loop.n_items)
    return Column(left, frozenset({left_kind})), Column(right, frozenset({right_kind}))


def _collect_several(first: Sequence[Any], loop: _Loop) -> tuple[Column, ...]:
    """Return outputs that are for each item as they are for the first: arrays as declared, or scalars."""
    targets = [_target(part, loop.n_items) for part in first]
    container, place = type(first), 1
    for values in loop.others:
        if type(values) is not container or not _are_put(values, targets, place):
            return loop.collect_unlike([list(column[:place]) for column, *_ in targets], values)
        place += 1
    _check_number(place, loop.n_items)
    return tuple(Column(column, frozenset({kind})) for column, kind, *_ in targets)


_Target: TypeAlias = tuple[Any, Any, tuple[int, ...], np.dtype[Any] | None]
"""Where the items of an output go, and of which type, and shape and dtype where it is an array, they have to be."""


def _target(first: Any, n_items: int) -> _Target:
    if not isinstance(first, np.ndarray):
        return [first] * n_items, type(first), (), None
    rows = np.empty((n_items, *first.shape), first.dtype)
    rows[0] = first
    return rows, np.ndarray, first.shape, first.dtype


def _are_put(values: Sequence[Any], targets: Sequence[_Target], place: int) -> bool:
    """Tell whether the outputs for an item are alike to the first one's, and put them where they belong."""
    if len(values) != len(targets):
        return False
    for (column, kind, shape, dtype), value in zip(targets, values, strict=False):  # of the same number: see above
        if type(value) is not kind:
            return False
        if dtype is not None and (value.shape != shape or (value.dtype is not dtype and value.dtype != dtype)):
            return False
        column[place] = value
    return True


@dataclass(frozen=True, slots=True)
class _Loop:
    """What the kernel returns for all items but the first, and what is expected of it."""

    others: Iterator[Any]
    call: Call | None
    expected: Expectation
    n_items: int

    def takes_all(self, position: int) -> bool:
        """Tell an output of which any object is an item, which is then kept itself."""
        return is_object(self.expected.dtype(position)) and not self.expected.plan.outputs[position].n_core

    def is_as_declared(self, value: Any, position: int) -> bool:
        """Tell an array of the core shape, with all sizes known, that the signature says."""
        return (
            type(value) is np.ndarray
            and value.ndim > 0
            and value.shape == self.expected.plan.outputs[position].core_shape
        )

    def collect_unlike(self, columns: Sequence[list[Any]], returned: Any) -> tuple[Column, ...]:
        """Return columns with the items that are in them, that of `returned`, and the others, whatever they are."""
        keepers: list[Callable[[Any], Any]] = [_itself if self.takes_all(n) else kept for n in range(len(columns))]
        for value in chain((returned,), self.others):
            for column, keep, part in zip(columns, keepers, unpack(value, self.expected.plan), strict=True):
                column.append(keep(part))
        _check_number(len(columns[0]), self.n_items)
        return tuple(Column(column, frozenset(map(type, column))) for column in columns)


class _Nothing:
    """A type that no value has."""


def _itself(value: Any) -> Any:
    return value


def _check_number(n_collected: int, n_items: int) -> None:
    """Refuse fewer items than there are: a StopIteration that the kernel raised looks like the end of the loop."""
    if n_collected < n_items:
        raise KernelError("kernel raised StopIteration")
