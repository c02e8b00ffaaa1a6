"""The table of what runs where has what the tests show, and nothing else."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from backends import BACKENDS
from what_runs_where import FEATURES, PAGE, cells, page_text

ROWS = [row for rows in FEATURES.values() for row in rows]


@pytest.mark.once
def test_the_page_is_what_the_tests_say():
    assert PAGE.read_text(encoding="utf-8") == page_text(), "run `python tests/what_runs_where.py`"


def test_marks_name_rows_and_columns_that_there_are():
    assert {cell.feature for cell in cells()} == set(ROWS)
    assert {cell.backend for cell in cells()} <= set(BACKENDS)
    assert max(Counter(ROWS).values()) == 1


@pytest.mark.once
def test_every_filled_cell_of_the_page_has_a_test():
    text = PAGE.read_text(encoding="utf-8")
    filled = re.findall(r"(?<=\| )(yes|refused|both)(?= \|)", text)
    shown = {(cell.feature, cell.backend) for cell in cells()}
    assert len(filled) == len(shown)
