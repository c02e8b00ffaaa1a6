"""The planner of a Dask call's chunks: plain numbers in, plain numbers out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
import time

import pytest
from drawn_examples import examples
from hypothesis import given
from hypothesis import strategies as st

from applyufunc import AlignmentError

pytest.importorskip("dask.array")  # the modules here do without it, the package that they are in does not

from applyufunc._lowering._dask._chunk_costs import Costs, rechunk_work
from applyufunc._lowering._dask._chunks import ArgumentChunks, OutputCore, plan_chunks

MIB = 2**20


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
        ((100,) * 9, (90,) * 10, (100,) * 9),
        ((4, 2), (4, 1, 1), (4, 2)),
        ((1,), (2, 2), (2, 2)),
        ((0,), (0, 0), (0,)),
        ((2, 0, 2), (4,), (2, 2)),
        ((0, 1), (2, 2), (2, 2)),
    ],
)
def test_all_arguments_take_the_chunks_of_one_along_a_loop_dim(first, second, expected):
    for pair in itertools.permutations([first, second]):
        plan = plan_chunks([argument(chunks) for chunks in pair], [OutputCore((), 8)], 10**6)
        assert plan.loop == (("-1", expected),)
        assert plan.arguments == tuple((expected,) if sum(chunks) == sum(expected) else ((1,),) for chunks in pair)


def test_the_chunks_of_the_larger_argument_stay_where_moving_bytes_is_what_costs():
    large = argument((10, 10), (10**6,), n_core=1, itemsize=1)
    small = argument((7, 7, 6), n_core=0, position=1, itemsize=1)
    plan = plan_chunks([large, small], [OutputCore((), 1)], 10**10)
    assert plan.loop == (("-1", (10, 10)),)
    assert [move.unified for move in plan.moves] == [(), ("-1",)]
    assert [move.bytes_moved for move in plan.moves] == [0, 20]


def test_chunks_are_refined_where_only_their_common_refinement_fits():
    pair = argument((3, 5), n_core=0, itemsize=10), argument((5, 3), position=1, itemsize=10)
    narrow, wide = (plan_chunks(pair, [OutputCore((), 1)], budget) for budget in (10, 1000))
    assert narrow.loop == wide.loop == (("-1", (3, 5)),)  # 50 bytes, which is what the caller has
    core = [argument((3, 5), (1, 1), n_core=1, itemsize=10), argument((5, 3), (2,), position=1, n_core=1, itemsize=10)]
    assert plan_chunks(core, [OutputCore((), 1)], 60).loop == (("-1", (3, 2, 3)),)


def test_two_loop_dims_and_three_arguments_are_cut_alike():
    given = [argument((4, 4), (6,)), argument((8,), (3, 3), position=1), argument((3, 3), position=2)]
    plan = plan_chunks(given, [OutputCore((), 8)], 10**6)
    assert plan.loop == (("-2", (4, 4)), ("-1", (3, 3)))
    assert plan.arguments == (((4, 4), (3, 3)), ((4, 4), (3, 3)), ((3, 3),))


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
    assert "no larger than" not in str(plan.excess)


def test_a_split_that_ends_above_the_budget_says_why():
    given = argument((2, 2), (10,) * 10, n_core=1)
    plan = plan_chunks([given], [OutputCore((), 8)], 500)
    enough = dataclasses.replace(plan.excess, is_enough=True)
    assert "no larger than the largest that arguments had. To decide" in str(enough)


def test_an_item_beyond_the_budget_is_reported():
    plan = plan_chunks([argument((2, 2), (10,) * 10, n_core=1)], [OutputCore((), 8)], 500)
    assert plan.loop == (("-1", (1, 1, 1, 1)),)
    assert not plan.excess.is_enough
    assert "one item alone is that large" in str(plan.excess)


def test_dims_of_unknown_chunks_are_not_split():
    given = [argument((None, None)), argument((2, 3))]
    plan = plan_chunks(given, [OutputCore((100,), 8)], 1)
    assert plan.loop == (("-1", (2, 3)),)
    assert plan.excess.split == ()
    assert not plan.excess.is_enough
    assert plan.moves[0].n_tasks is None
    assert plan.n_tasks is None


def test_what_fits_is_left_alone_and_nothing_is_costed():
    def refuse(before, after, itemsize):
        raise AssertionError("asked how to rechunk what stays")

    given = [argument((3, 1), (6,), n_core=1), argument((3, 1), (6,), n_core=1, position=1)]
    plan = plan_chunks(given, [OutputCore((6,), 8)], 10**6, steps=refuse)
    assert plan.arguments == (given[0].chunks, given[1].chunks)
    assert plan.n_tasks == plan.n_blocks == 2
    for move in plan.moves:
        assert not move.is_rechunked
        assert (move.bytes_moved, move.n_tasks, move.n_steps, move.via) == (0, 0, 0, None)
    assert plan.output_bytes == (3 * 6 * 8,)


def test_a_plan_tells_what_becomes_of_each_argument():
    given = [argument((10, 10), (5, 5), n_core=1), argument((5, 15), (10,), position=1, n_core=1)]
    plan = plan_chunks(given, [OutputCore((), 8), OutputCore((None,), 8)], 10**6)
    assert plan.loop == (("-1", (10, 10)),)
    first, second = plan.moves
    assert (first.merged, first.unified, first.split) == (("k",), (), ())
    assert (first.bytes_before, first.bytes_after, first.bytes_moved) == (400, 800, 1600)
    assert (first.n_tasks, first.n_steps) == (2, 1)  # two blocks, each of two whole ones
    assert (second.merged, second.unified, second.split) == ((), ("-1",), ())
    assert (second.bytes_before, second.bytes_after, second.bytes_moved) == (1200, 800, 800)
    assert second.n_tasks == 4  # 5 and 5 of 15 are concatenated, 10 of 15 are a view: two slices, two blocks
    assert plan.n_tasks == 2 + 4 + 2
    assert plan.output_bytes == (80, None)


def test_core_dims_are_merged_first_where_that_takes_fewer_tasks():
    given = [argument((40,), (1,) * 10, n_core=1), argument((10,) * 4, (10,), position=1, n_core=1)]
    plan = plan_chunks(given, [OutputCore((), 8)], 10**6)
    assert plan.arguments[0] == ((10,) * 4, (10,))
    assert plan.moves[0].via == ((40,), (10,))
    assert plan.moves[0].n_tasks == 1 + 4 + 4  # merge, slice four times; at once: 40 slices, four blocks
    assert plan_chunks(given, [OutputCore((), 8)], 1000).moves[0].via is None  # of which the block would not fit


def test_core_dims_are_not_merged_first_into_blocks_that_cost_more_to_hold_than_the_tasks_they_save():
    given = [
        argument((400,) * 4, (1600,), (12,) * 4, n_core=1, itemsize=4),
        argument((1600,), (*(300,) * 5, 100), (48,), position=1, n_core=1, itemsize=4),
    ]
    plan = plan_chunks(given, [OutputCore((), 8)], 128 * MIB)
    assert plan.loop == (("-2", (400,) * 4), ("-1", (*(300,) * 5, 100)))
    assert plan.moves[0].via is None  # it would save 68 tasks, with blocks of 117 MiB on the way to those of 22


def test_the_original_block_size_can_be_kept():
    given = argument((40,), (10,) * 8, n_core=1, itemsize=1)
    plan = plan_chunks([given], [OutputCore((), 1)], None)
    assert plan.arguments == (((5,) * 8, (80,)),)
    assert plan.moves[0].bytes_after == plan.moves[0].bytes_before == 400
    assert plan.excess is None  # as asked


def test_a_small_argument_is_no_excess_where_the_original_block_size_is_kept():
    large, weights = argument((40,), (80,), n_core=1), argument((10,) * 8, n_core=1, position=1)
    plan = plan_chunks([large, weights], [OutputCore((), 8)], None)
    assert plan.arguments == (((40,), (80,)), ((80,),))
    assert plan.excess is None


def test_an_item_above_the_original_block_size_is_reported():
    plan = plan_chunks([argument((2,), (10,) * 10, n_core=1)], [OutputCore((), 8)], None)
    assert plan.loop == (("-1", (1, 1)),)
    assert (plan.excess.budget, plan.excess.is_enough) == (160, False)


def test_the_chunks_of_empty_arrays_are_kept_without_work():
    plan = plan_chunks([argument((0,), (2, 2), n_core=1)], [OutputCore((), 8)], None)
    assert plan.arguments == (((0,), (4,)),)
    assert plan.excess is None
    assert plan.moves[0].n_tasks == 0


def test_one_operand_that_cannot_fit_does_not_let_the_others_grow():
    given = [argument((100,), (10,) * 10, n_core=1, itemsize=1), argument((500, 500), n_core=1, position=1, itemsize=1)]
    plan = plan_chunks(given, [OutputCore((), 1)], 600)
    assert plan.loop == (("-1", (10,) * 10),)
    assert [move.bytes_after for move in plan.moves] == [1000, 1000]  # the first had blocks of as many
    assert (plan.excess.what, plan.excess.is_enough) == ("argument 1", False)


@pytest.mark.parametrize("n_dims", [1, 2, 3, 5, 12])
def test_any_number_of_loop_dims_is_split_until_blocks_fit(n_dims):
    given = argument(*[(4, 4)] * n_dims, (1,) * 64, n_core=1, itemsize=1)
    limit = max(4**n_dims, 256)
    plan = plan_chunks([given], [OutputCore((), 1)], limit)
    assert limit // 4 < plan.moves[0].bytes_after <= limit


# How many tasks and bytes


def brute_force_work(before, after, itemsize):
    """Tasks and bytes of one step, by going through every new block."""
    ends = [[0, *itertools.accumulate(axis)] for axis in before], [[0, *itertools.accumulate(axis)] for axis in after]
    old, new = (list(itertools.product(*map(itertools.pairwise, axes))) for axes in ends)
    n_tasks = n_bytes = 0
    for block in new:
        met = [o for o in old if all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(block, o, strict=True))]
        inside = [o for o in met if all(a <= c and d <= b for (a, b), (c, d) in zip(block, o, strict=True))]
        n_tasks += len(met) - len(inside) + 1
        n_bytes += itemsize * math.prod(b - a for a, b in block) if len(met) > 1 else 0
    return n_tasks, n_bytes


def chunkings_of_nothing_empty(size):
    cuts = st.lists(st.integers(1, max(1, size - 1)), max_size=5, unique=True).map(sorted) if size > 1 else st.just([])
    return cuts.map(lambda cuts: tuple(b - a for a, b in itertools.pairwise([0, *cuts, size])))


@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_work_is_counted_as_going_through_every_block_counts_it(data, shape):
    before, after = (tuple(data.draw(chunkings_of_nothing_empty(size)) for size in shape) for _ in range(2))
    work = rechunk_work(before, after, 8, lambda before, after, itemsize: [after])
    assert (work.n_tasks, work.bytes_moved) == ((0, 0) if before == after else brute_force_work(before, after, 8))


@examples(25)
@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_work_is_counted_as_dask_counts_its_tasks(data, shape):
    da = pytest.importorskip("dask.array")
    plan_rechunk = pytest.importorskip("dask.array.rechunk").plan_rechunk
    before, after = (tuple(data.draw(chunkings_of_nothing_empty(size)) for size in shape) for _ in range(2))
    array = da.ones(shape, chunks=before)
    layers = array.rechunk(after, method="tasks").__dask_graph__().layers
    n_tasks = sum(len(layer) for name, layer in layers.items() if name != array.name)
    assert rechunk_work(before, after, 8, plan_rechunk).n_tasks == n_tasks


def test_work_is_summed_over_steps():
    steps = [((2, 2), (4,)), ((1,) * 4, (4,))]
    work = rechunk_work(((2, 2), (1,) * 4), steps[-1], 8, lambda *given: steps)
    assert (work.n_tasks, work.bytes_moved, work.n_steps) == (2 + 8, 16 * 8, 2)


def test_axes_too_long_to_be_counted_one_by_one_are_estimated():
    work = rechunk_work(((10,) * 20_000,), ((1,) * 200_000,), 8, lambda before, after, itemsize: [after])
    assert (work.n_tasks, work.bytes_moved) == (400_000, 0)
    back = rechunk_work(((1,) * 200_000,), ((10,) * 20_000,), 8, lambda before, after, itemsize: [after])
    assert (back.n_tasks, back.bytes_moved) == (20_000, 1_600_000)


# Figures of whole plans, with the steps that Dask takes


MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@pytest.mark.parametrize(
    ("given", "n_sources", "most_tasks", "largest"),
    [
        pytest.param([argument((1600,), (1600,), (1,) * 96, n_core=1, itemsize=4)], 96, 264, 128, id="time steps"),
        pytest.param([argument((400,) * 4, (400,) * 4, (8,) * 12, n_core=1, itemsize=4)], 192, 224, 58.6, id="tiles"),
        pytest.param(
            [
                argument((400,) * 4, (1600,), (12,) * 4, n_core=1, itemsize=4),
                argument((1600,), (*(300,) * 5, 100), (48,), position=1, n_core=1, itemsize=4),
            ],
            22,
            214,
            22,
            id="two that are chunked across each other",
        ),
        pytest.param(
            [
                argument((8,) * 8, (256,) * 4, (256,) * 4, n_core=2),
                ArgumentChunks(1, ("-1", "l"), ((16,) * 4, (512,) * 2), 1, 8),
            ],
            136,
            176,
            64,
            id="matrices and vectors",
        ),
        pytest.param(
            [
                argument((1,) * 6, (1,), (1,), (400,), n_core=1, itemsize=4),
                argument((1,), (800,), (800,), (20,) * 20, position=1, n_core=1, itemsize=4),
            ],
            20,
            220,
            128,
            id="broadcast",
        ),
        pytest.param(
            [
                argument((500, 300), (123, 377, 400), MONTHS, n_core=1, itemsize=4),
                argument((256,) * 3 + (32,), (450, 450), (100,) * 3 + (65,), position=1, n_core=1, itemsize=4),
            ],
            104,
            640,
            128,
            id="irregular",
        ),
        pytest.param(
            [
                argument((2,) * 100, (200,), (40,) * 10, n_core=1),
                argument((100,) * 4, position=1, n_core=1),
            ],
            1004,
            1205,
            1.3,
            id="many small blocks",
        ),
    ],
)
def test_large_arrays_get_few_tasks_within_the_budget(given, n_sources, most_tasks, largest):
    plan_rechunk = pytest.importorskip("dask.array.rechunk").plan_rechunk
    steps = functools.partial(plan_rechunk, threshold=4)  # Dask's own; to import dask_array sets another
    plan = plan_chunks(given, [OutputCore((), 8)], 128 * MIB, steps=steps)
    assert plan.n_tasks + n_sources <= most_tasks
    assert max(move.bytes_after for move in plan.moves) <= largest * MIB
    assert plan == plan_chunks(given, [OutputCore((), 8)], 128 * MIB, steps=steps)


def irregular(n_chunks, seed):
    cuts = sorted(random.Random(seed).sample(range(1, 100 * n_chunks), n_chunks - 1))
    return tuple(b - a for a, b in itertools.pairwise([0, *cuts, 100 * n_chunks]))


@pytest.mark.parametrize(
    ("shapes", "core", "seconds"),
    [
        ([(1000, 1000), (1000, 1000)], (10,) * 400, 0.3),
        ([(100_000,), (100_000,)], (10,) * 400, 1),
        ([(100_000,), (100_000,)], (10,), 1),
    ],
)
def test_planning_many_chunks_takes_bounded_time(shapes, core, seconds):
    """Ten times the time that it takes on a machine that does nothing else."""
    given = [
        argument(*(irregular(n, f"{position} {axis}") for axis, n in enumerate(shape)), core, n_core=1)
        for position, shape in enumerate(shapes)
    ]
    start = time.process_time()
    plan_chunks(given, [OutputCore((), 8)], 128 * MIB)
    assert time.process_time() - start < 10 * seconds


def test_fewer_blocks_than_workers_cost_time():
    given = [argument((50, 50), (10**6,), n_core=1), argument((25,) * 4, (10**6,), n_core=1, position=1)]
    plans = [plan_chunks(given, [], 10**12, costs=Costs(moved=0, held=0, n_workers=number)) for number in (1, 4)]
    assert [plan.n_blocks for plan in plans] == [2, 4]


def test_more_workers_get_more_blocks():
    given = [argument((1600,), (1600,), (1,) * 96, n_core=1, itemsize=4)]
    few, many = (plan_chunks(given, [], 128 * MIB, costs=Costs(n_workers=number)) for number in (2, 32))
    assert few.n_blocks < many.n_blocks


# Any call


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


def in_cuts(chunks, cuts):
    return set(itertools.accumulate(chunks)) <= set(cuts)


def allowed_bytes(arguments, budget):
    """The bytes that blocks may have: of each argument, and of an output."""
    given = [8 * math.prod(map(max, a.chunks)) for a in arguments]
    most = max(given) or 10**18 if budget is None else budget
    return [max(most, own) for own in given], max(most, *given)


budgets = st.none() | st.integers(1, 2000)


@given(arguments(), budgets, st.integers(0, 20))
def test_a_plan_keeps_sizes_agrees_and_is_within_the_larger_of_budget_and_what_was_given(arguments, budget, core):
    plan = plan_chunks(arguments, [OutputCore((core,), 8)], budget)
    loop, (limits, output_limit) = dict(plan.loop), allowed_bytes(arguments, budget)
    for before, chunks, move, limit in zip(arguments, plan.arguments, plan.moves, limits, strict=True):
        assert list(map(sum, chunks)) == list(map(sum, before.chunks))
        assert len(chunks[-1]) == 1
        for dim, own in zip(before.dims[:-1], chunks, strict=False):
            assert own == loop[dim] or own == (1,)
        n_bytes = 8 * math.prod(map(max, chunks))
        assert move.bytes_after == n_bytes
        assert move.is_rechunked == (chunks != before.chunks)
        assert n_bytes <= limit or (all(max(own) <= 1 for own in chunks[:-1]) and not plan.excess.is_enough)
    out_bytes = 8 * core * math.prod(max(chunks) for chunks in loop.values())
    assert plan.output_bytes == (out_bytes,)
    is_item = all(max(chunks) <= 1 for chunks in loop.values())
    assert out_bytes <= output_limit or (is_item and not plan.excess.is_enough)


@given(arguments(), budgets)
def test_chunks_are_never_coarser_than_the_coarsest_and_split_only_beyond_the_limits(arguments, budget):
    plan = plan_chunks(arguments, [OutputCore((), 8)], budget)
    for dim, chunks in plan.loop:
        own = [a.loop_chunks[dim] for a in arguments if dim in a.loop_chunks]
        assert max(chunks) <= max(map(max, own))
        assert len(chunks) >= min(len([size for size in o if size]) for o in own if sum(o) == sum(chunks))
        ends = {end for o in own for end in itertools.accumulate(o)}
        assert plan.excess is not None or budget is None or in_cuts(chunks, ends)


@given(arguments(), budgets)
def test_a_plan_is_the_same_every_time_and_plans_itself_again(arguments, budget):
    plan = plan_chunks(arguments, [OutputCore((), 8)], budget)
    assert plan == plan_chunks(list(arguments), [OutputCore((), 8)], budget)
    assert hash(plan) == hash(plan_chunks(list(arguments), [OutputCore((), 8)], budget))
    planned = [
        argument(*chunks, position=a.position, n_core=1) for a, chunks in zip(arguments, plan.arguments, strict=True)
    ]
    again = plan_chunks(planned, [OutputCore((), 8)], 10**9)
    assert again.arguments == plan.arguments
    assert again.n_tasks == again.n_blocks


@st.composite
def arguments_of_nothing_empty(draw):
    shape, core = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2)), draw(st.integers(1, 12))
    sizes = [(*draw(st.sampled_from([shape, shape[1:]])), core) for _ in range(draw(st.integers(1, 3)))]
    chunks = [[draw(chunkings_of_nothing_empty(size)) for size in own] for own in sizes]
    return [argument(*own, position=position, n_core=1) for position, own in enumerate(chunks)]


def naive_tasks(arguments):
    """Tasks where core dims are merged first, and loop dims take the common refinement then."""
    ends = {}
    for a in arguments:
        for dim, own in a.loop_chunks.items():
            ends.setdefault(dim, {0}).update(itertools.accumulate(own))
    common = {dim: tuple(b - a for a, b in itertools.pairwise(sorted(found))) for dim, found in ends.items()}
    n_tasks = math.prod(map(len, common.values()))
    for a in arguments:
        core, loop = ((sum(a.chunks[-1]),),), tuple(common[dim] for dim in a.loop_chunks)
        stages = [a.chunks, (*a.chunks[:-1], *core), (*loop, *core)]
        n_tasks += sum(brute_force_work(old, new, 8)[0] for old, new in itertools.pairwise(stages) if old != new)
    return n_tasks


@given(arguments_of_nothing_empty())
def test_a_plan_that_splits_nothing_has_hardly_more_tasks_than_merging_and_refining(arguments):
    plan = plan_chunks(arguments, [OutputCore((), 8)], 10**6)
    assert plan.excess is None
    assert plan.n_tasks <= 1.15 * naive_tasks(arguments)
