"""Calls on Dask arrays under `distributed`, in worker processes."""

from __future__ import annotations

import numpy as np
import pytest

import applyufunc as au

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore")  # what distributed says of ports and of its own dependencies

X = np.arange(24.0).reshape(4, 6)


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def test_several_outputs_come_from_one_call_per_block_in_worker_processes(client, tmp_path):
    calls = tmp_path / "calls"

    def kernel(rows, offset):
        with calls.open("a") as log:
            log.write(f"{rows.shape}\n")
        return rows.sum(axis=-1) + offset, rows * 2

    lazy = da.from_array(X, chunks=(2, 3))
    sums, doubled = au.apply_ufunc(kernel, "(n),()->(),(n)", lazy, 1.0, output_dtypes=float)
    computed = client.gather(client.compute([sums, doubled]))
    np.testing.assert_array_equal(computed[0], X.sum(-1) + 1)
    np.testing.assert_array_equal(computed[1], X * 2)
    assert calls.read_text().splitlines() == ["(2, 6)", "(2, 6)"]


def test_an_exception_from_a_worker_keeps_its_type_and_its_note(client):
    def boom(block):
        raise ZeroDivisionError("boom")

    result = au.apply_ufunc(boom, "(n)->()", da.from_array(X[2:], chunks=(2, 3)), output_dtypes=float)
    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        result.compute()
    assert any("kernel 'boom' with signature '(n)->()'" in note and "[0:2]" in note for note in caught.value.__notes__)


def test_a_persisted_input_is_not_changed_by_a_kernel_that_writes(client):
    def double_in_place(block):
        block *= 2
        return block

    kept = da.from_array(X.copy(), chunks=(2, 6)).persist()
    with pytest.raises(ValueError, match="read-only"):
        au.apply_ufunc(double_in_place, "()->()", kept, output_dtypes=float).compute()
    np.testing.assert_array_equal(kept.compute(), X)
