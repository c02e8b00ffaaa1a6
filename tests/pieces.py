"""What the tests of core dims in chunks share: front ends, chunks to draw, and results to compare."""

from __future__ import annotations

import itertools
import os

import drawn_examples
import numpy as np
import pytest
from hypothesis import strategies as st

dask = pytest.importorskip("dask")

EXPRESSIONS = os.environ.get("DASK_ARRAY__QUERY_PLANNING") == "True"
FRONT_ENDS = ["dask.array"] if EXPRESSIONS else ["dask.array", "dask_array"]


def examples(number):
    """Return settings for so many drawn examples; the slower front ends get fewer."""
    return drawn_examples.examples(number // 4 if EXPRESSIONS else number)


@st.composite
def chunkings(draw, size, smallest=0):
    """Draw chunk sizes that add up to `size`; with `smallest` 0 some are empty."""
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=5)))
    sizes = [b - a for a, b in itertools.pairwise([0, *cuts, size])]
    return tuple(s for s in sizes if s >= smallest) or (size,)


def put(da, array, data, smallest=0):
    """Return an array in drawn chunks."""
    return da.from_array(array, chunks=tuple(data.draw(chunkings(size, smallest)) for size in array.shape))


def values_of(lazy, da):
    """Compute an array of a front end, and some of its blocks: each has to be what was promised."""
    assert type(lazy) is type(da.ones(1, chunks=1))
    value = lazy.compute(scheduler="sync")
    assert (np.shape(value), value.dtype) == (lazy.shape, lazy.dtype)
    if hasattr(lazy, "blocks"):
        for index in itertools.islice(np.ndindex(lazy.numblocks), 4):
            block = lazy.blocks[index].compute(scheduler="sync")
            assert block.shape == tuple(chunks[i] for chunks, i in zip(lazy.chunks, index, strict=True))
    return value


class Counting:
    """A function that keeps the shapes that it was called with."""

    def __init__(self, func):
        self.func = func
        self.shapes = []

    def __call__(self, *args, **keywords):
        self.shapes.append(tuple(np.shape(arg) for arg in args))
        return self.func(*args, **keywords)


def untouchable(da, shape, chunks):
    """A lazy array that raises when it is computed."""
    return da.ones(shape, chunks=chunks).map_blocks(fail, dtype=float, meta=np.empty((0,) * len(shape)))


def fail(*blocks, **keywords):
    raise AssertionError("a block was computed")
