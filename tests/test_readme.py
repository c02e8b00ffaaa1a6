"""README.md: every Python block runs and prints what its comments say, and every link leads to a file."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)

# What the first block, the sentence at the top, takes for granted.
GIVEN = {"years": np.arange(8.0), "temperature": np.arange(48.0).reshape(8, 2, 3)}


def test_readme_shows_three_uses_in_ten_lines_each() -> None:
    sizes = [sum(bool(line.strip()) for line in block.splitlines()) for block in BLOCKS[1:]]
    assert len(sizes) == 3
    assert max(sizes) <= 10


@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_the_readme_prints_what_its_comments_say(block: str) -> None:
    for library in ("dask", "jax", "scipy"):
        if re.search(rf"^(import|from) .*\b{library}\b", block, flags=re.MULTILINE):
            pytest.importorskip(library)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme", **GIVEN})
    comments = [line.partition("  # ")[2] for line in block.splitlines() if line.strip().startswith("print(")]
    assert printed.getvalue().splitlines() == comments


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_link_of_the_readme_leads_to_a_file(target: str) -> None:
    assert (ROOT / target).is_file()


def test_picture_of_the_readme_is_small() -> None:
    assert (ROOT / "docs/_static/main-job.png").stat().st_size < 150_000
