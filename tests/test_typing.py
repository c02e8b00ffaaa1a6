"""What static checkers make of the public functions: mypy on a small file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RIGHT = """
from typing import Any, assert_type
import numpy as np
import numpy.typing as npt
import applyufunc as au

@au.gufunc("(n)->()", output_dtypes=float, output_sizes={"k": au.UpTo(3)}, vectorize=True)
def spread(row: Any, scale: int = 1) -> float:
    return float(row.max() - row.min()) * scale

@au.gufunc("(n)->(),()")
def ends(row: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return row[..., 0], row[..., -1]

@au.gufunc("(n)->(),()")
def precise(row: Any) -> tuple[float, int]:
    return 1.0, 2

@au.gufunc("(n)->(),(),()")
def three(row: Any) -> tuple[Any, Any, Any]:
    return row, row, row

def many(row: Any) -> tuple[Any, ...]:
    return (row,)

assert_type(spread([1.0]), Any)
assert_type(spread([1.0], axis=0, scale=2), Any)
assert_type(ends([1.0]), tuple[Any, ...])
assert_type(precise([1.0]), tuple[Any, ...])
assert_type(three([1.0]), tuple[Any, ...])
assert_type(ends.with_options(vectorize=True)([1.0]), tuple[Any, ...])
first, last = ends([1.0])
first.mean()
assert_type(spread.signature, au.Signature)
assert_type(spread.__wrapped__([1.0], scale=2), Any)

def one(row: Any) -> Any:
    return row

def array(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return row

def two(row: Any) -> tuple[Any, Any]:
    return row, row

assert_type(au.apply_ufunc(one, "(n)->()", [1.0]), Any)
assert_type(au.apply_ufunc(array, "(n)->()", [1.0]), Any)
assert_type(au.apply_ufunc(np.sum, "(n)->()", [1.0]), Any)
assert_type(au.apply_ufunc(np.vecdot, None, [1.0], [2.0]), Any)
assert_type(au.apply_ufunc(lambda row: row.sum(axis=-1), "(n)->()", [1.0]), Any)
au.gufunc()(np.vecdot)([1.0], [2.0])
assert_type(au.apply_ufunc(two, "(n)->(),()", [1.0], vectorize=True, power=2), tuple[Any, ...])
assert_type(au.apply_ufunc(many, "(n)->(),", [1.0]), tuple[Any, ...])

with au.allow_transfer():
    pass

class Fit:
    @au.gufunc("(n)->()")
    def total(self, row: Any) -> Any:
        return row.sum(axis=-1)

assert_type(Fit().total([1.0]), Any)
"""

WRONG = """
import applyufunc as au

@au.gufunc("(n)->()", vectorise=True)
def one(row: object) -> float:
    return 1.0

two = au.gufunc("(n)->()", kernel_arrays="jax")
one.with_options(budget=[1])
au.gufunc(5)
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Return the lines of each file in which mypy finds an error; one run, since most of its time goes into NumPy."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typed")
    for name, text in (("right", RIGHT), ("wrong", WRONG)):
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", *map(str, sorted(folder.glob("*.py")))]
    printed = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT).stdout
    found = re.findall(r"(\w+)\.py:(\d+): error: (.*)", printed)
    return {name: {int(line): text for file, line, text in found if file == name} for name in ("right", "wrong")}


def test_types_are_those_of_the_kernel(lines):
    assert lines["right"] == {}


def test_wrong_options_are_found(lines):
    assert sorted(lines["wrong"]) == [4, 8, 9, 10]
