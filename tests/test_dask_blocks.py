"""Blocks of Dask arrays that are not what their array's meta says: the rules for arguments hold for each."""

from __future__ import annotations

import numpy as np
import pytest

import applyufunc as au

da = pytest.importorskip("dask.array")


def total(x):
    return x.sum(axis=-1)


def lazy(make):
    """Return an array of two blocks, of which only `make` knows what they are."""
    return da.from_array(np.eye(4), chunks=(2, 4)).map_blocks(make, meta=np.empty((0, 0)))


class Measured(np.ndarray):
    """An array whose subclass means something."""


def test_a_block_that_would_be_made_dense_needs_leave_given_when_the_graph_is_built():
    sparse = pytest.importorskip("sparse")
    blocks = lazy(sparse.COO.from_numpy)
    refused = au.apply_ufunc(total, "(i)->()", blocks, output_dtypes=float)
    match = r"argument 0, block \[\d:\d\] of the loop dimensions, is a sparse\..*COO that would be made dense"
    with pytest.raises(au.TransferError, match=match):
        refused.compute(scheduler="sync")
    allowed = au.apply_ufunc(total, "(i)->()", blocks, output_dtypes=float, allow_transfer=True)
    with au.allow_transfer():
        in_context = au.apply_ufunc(total, "(i)->()", blocks, output_dtypes=float)
    assert allowed.name == in_context.name != refused.name
    for result in (allowed, in_context):
        assert result.compute(scheduler="threads").tolist() == [1, 1, 1, 1]


def test_a_block_of_a_subclass_is_refused():
    result = au.apply_ufunc(total, "(i)->()", lazy(lambda b: b.view(Measured)), output_dtypes=float)
    with pytest.raises(au.ArgumentError, match=r"argument 0, block \[\d:\d\] .*Measured, a subclass of numpy"):
        result.compute(scheduler="sync")


def test_a_block_that_is_a_scalar_or_a_memory_map_becomes_an_array(tmp_path):
    seen = []
    kernel = lambda x: seen.append(type(x)) or x * 1
    scalar = da.ones(4, chunks=2).sum()
    assert au.apply_ufunc(kernel, "()->()", scalar, output_dtypes=float).compute(scheduler="sync") == 4
    mapped = np.memmap(tmp_path / "map", mode="w+", shape=(4, 4))
    result = au.apply_ufunc(kernel, "()->()", lazy(lambda b: mapped[:2]), output_dtypes="u1")
    assert not result.compute(scheduler="sync").any()
    assert set(seen) == {np.ndarray}
