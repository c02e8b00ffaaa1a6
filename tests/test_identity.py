"""`applyufunc._identity`: values kept for objects, whatever those are equal to."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from applyufunc._identity import IdentityMap, is_plain


class Alike:
    """Equal to every other one."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def test_objects_that_are_equal_have_values_of_their_own():
    kept, first, second = IdentityMap(), Alike(), Alike()
    assert [kept.setdefault(first, "a"), kept.setdefault(second, "b")] == ["a", "b"]
    assert [kept.setdefault(first, "c"), kept.setdefault(second, "c")] == ["a", "b"]


def test_an_object_needs_no_hash():
    class Unhashable:
        __hash__ = None

    kept, key = IdentityMap(), Unhashable()
    kept.setdefault(key, 1)
    assert kept.setdefault(key, 2) == 1


def test_a_value_goes_with_its_object():
    kept = IdentityMap()
    for number in range(100):  # each has the memory, and so the id, of the one before
        assert kept.setdefault(Alike(), number) == number
    assert len(kept) == 0


def test_a_value_goes_with_an_object_that_refers_to_itself():
    kept, key = IdentityMap(), Alike()
    key.itself = key
    kept.setdefault(key, 1)
    del key
    gc.collect()
    assert len(kept) == 0


def test_an_object_that_takes_no_weak_reference_is_refused():
    with pytest.raises(TypeError, match="weak reference"):
        IdentityMap().setdefault((1, 2), 3)


def test_threads_agree_on_a_value():
    kept, key, start = IdentityMap(), Alike(), Barrier(8)

    def ask(number):
        start.wait()
        return kept.setdefault(key, number)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1


def test_plain_values_are_those_whose_text_says_all():
    assert all(map(is_plain, [None, True, 1, 1.0, 1j, "a", b"a", (1, ("a",))]))
    assert not any(map(is_plain, [[1], (1, [2]), {}, Alike(), object]))
