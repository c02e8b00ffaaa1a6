"""The rule by which a Dask call's arguments are cut: plain numbers in, plain numbers out."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applyufunc import AlignmentError
from applyufunc._lowering._dask._chunks import ArgumentChunks, OutputCore, plan_chunks


def argument(*chunks, position=0, n_core=0, itemsize=8, in_memory=False):
    """An argument with these chunks, the last `n_core` of them core dims."""
    n_loop = len(chunks) - n_core
    dims = (*map(str, range(-n_loop, 0)), *"klmn"[:n_core])
    return ArgumentChunks(position, dims, tuple(chunks), n_core, itemsize, in_memory)


def test_chunks_that_agree_and_fit_stay():
    plan = plan_chunks([argument((3, 1), (6,), n_core=1), argument((6,), n_core=1)], [OutputCore((), 8)], 10**6)
    assert plan.loop == (("-1", (3, 1)),)
    assert plan.arguments == (((3, 1), (6,)), ((6,),))
    assert plan.excess is None
    assert plan.n_blocks == 2


def test_core_dims_become_one_chunk_and_loop_dims_stay():
    plan = plan_chunks([argument((100,) * 4, (10,) * 40, n_core=1)], [OutputCore((), 8)], 10**6)
    assert plan.arguments == (((100,) * 4, (400,)),)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((2, 2), (3, 1), (2, 2)),
        ((4,), (3, 1), (3, 1)),
        ((100,) * 9, (90,) * 10, (90,) * 10),
        ((4, 2), (4, 1, 1), (4, 2)),
        ((1,), (2, 2), (2, 2)),
        ((0,), (0, 0), (0,)),
        ((2, 0, 2), (4,), (2, 2)),
        ((0, 1), (2, 2), (2, 2)),
    ],
)
def test_the_finest_chunking_of_a_loop_dim_is_taken_by_all(first, second, expected):
    for pair in itertools.permutations([first, second]):
        plan = plan_chunks([argument(chunks) for chunks in pair], [OutputCore((), 8)], 10**6)
        assert plan.loop == (("-1", expected),)
        assert plan.arguments == tuple((expected,) if sum(chunks) == sum(expected) else ((1,),) for chunks in pair)


def test_a_host_array_follows_and_has_no_say():
    plan = plan_chunks([argument((2, 2)), argument((4,), in_memory=True)], [OutputCore((), 8)], 1)
    assert plan.arguments == (((2, 2),), ((4,),))
    assert plan.loop == (("-1", (2, 2)),)


def test_unknown_chunks_stay_and_lend_from_those_that_are_known():
    plan = plan_chunks([argument((None, None)), argument((2, 3)), argument((1,))], [OutputCore((), 8)], 1)
    assert plan.loop == (("-1", (2, 3)),)
    assert plan.arguments == (((None, None),), ((2, 3),), ((1,),))


def test_unknown_core_chunks_become_one_of_unknown_size():
    plan = plan_chunks([argument((4,), (None, 2), n_core=1)], [OutputCore((None,), 8)], 1)
    assert plan.arguments == (((4,), (None,)),)


@pytest.mark.parametrize("other", [(2, 2, 1), (5,), (None,)])
def test_unknown_chunks_of_another_number_are_refused(other):
    with pytest.raises(AlignmentError, match=r"loop dimension -1 .* is in 2 chunk\(s\) in argument 0, \(\?, \?\)"):
        plan_chunks([argument((None, None)), argument(other, position=1)], [OutputCore((), 8)], 1)


def test_known_chunks_beside_unknown_ones_have_to_agree():
    with pytest.raises(AlignmentError, match="compute_chunk_sizes"):
        plan_chunks([argument((None, None)), argument((2, 3)), argument((3, 2))], [OutputCore((), 8)], 1)


def test_the_widest_loop_dim_is_split_just_enough_and_evenly():
    given = argument((10, 10), (40, 40), (50, 50), n_core=1, itemsize=1)  # merged: 10 * 40 * 100 = 40,000 bytes
    plan = plan_chunks([given], [OutputCore((), 1)], 20_000)
    assert plan.arguments == (((10, 10), (20,) * 4, (100,)),)
    assert plan.excess.split == (("-1", 40, 20),)
    assert (plan.excess.bytes_given, plan.excess.bytes_unsplit, plan.excess.bytes_planned) == (20_000, 40_000, 20_000)


def test_an_item_beyond_the_budget_is_reported():
    plan = plan_chunks([argument((2, 2), (10,) * 10, n_core=1)], [OutputCore((), 8)], 500)
    assert plan.loop == (("-1", (1, 1, 1, 1)),)
    assert not plan.excess.is_enough
    assert "one item alone is that large" in str(plan.excess)


def chunkings(size):
    """Chunks of an axis of `size`."""
    cuts = st.lists(st.integers(0, size), max_size=5).map(sorted)
    return cuts.map(lambda cuts: tuple(b - a for a, b in itertools.pairwise([0, *cuts, size])))


@st.composite
def arguments(draw):
    shape = draw(st.lists(st.integers(0, 12), min_size=1, max_size=2))
    core = draw(st.integers(0, 12))
    found = []
    for position in range(draw(st.integers(1, 3))):
        own = [draw(st.sampled_from([size, 1])) for size in shape][draw(st.integers(0, len(shape))) :]
        found.append(argument(*(draw(chunkings(size)) for size in (*own, core)), position=position, n_core=1))
    return found


@given(arguments(), st.integers(1, 2000), st.integers(0, 20))
def test_a_plan_keeps_sizes_agrees_and_is_within_the_larger_of_budget_and_what_was_given(arguments, budget, core):
    plan = plan_chunks(arguments, [OutputCore((core,), 8)], budget)
    loop = dict(plan.loop)
    for before, chunks in zip(arguments, plan.arguments, strict=True):
        assert list(map(sum, chunks)) == list(map(sum, before.chunks))
        assert len(chunks[-1]) == 1
        for dim, own in zip(before.dims[:-1], chunks, strict=False):
            assert own == loop[dim] or own == (1,)
            coarsest = max(max(a.loop_chunks[dim]) for a in arguments if dim in a.loop_chunks)
            assert max(own) <= coarsest
        n_bytes = 8 * math.prod(map(max, chunks))
        is_item = all(max(own) <= 1 for own in chunks[:-1])
        assert n_bytes <= max(budget, 8 * math.prod(map(max, before.chunks))) or is_item
    largest = max(8 * math.prod(map(max, a.chunks)) for a in arguments)
    out_bytes = 8 * core * math.prod(max(chunks) for chunks in loop.values())
    assert out_bytes <= max(budget, largest) or all(max(chunks) <= 1 for chunks in loop.values())
