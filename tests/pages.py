"""Run the examples of a page, all in one namespace: `python tests/pages.py docs/tutorials/first-gufunc.md`."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

__all__ = ["run"]

FLAGS = doctest.ELLIPSIS  # texts of errors included: they are part of what is documented


def run(page):
    """Raise unless the examples print what the page says; what they print instead is printed."""
    text = Path(page).read_text(encoding="utf-8")
    code = re.sub(r"^ *```.*$", "", text, flags=re.MULTILINE)  # a fence ends what is printed, as an empty line does
    name = Path(page).name
    examples = doctest.DocTestParser().get_doctest(code, {"__name__": "__main__"}, name, str(page), 0)
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(examples).failed
    assert failed == 0, f"{failed} examples of {page} fail"


if __name__ == "__main__":
    run(sys.argv[1])
