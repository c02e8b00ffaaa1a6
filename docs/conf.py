"""Sphinx configuration; builds without a network, so without intersphinx."""

import tomllib
from pathlib import Path
from typing import Any

import applyufunc

project = "applyufunc"
author = "the applyufunc contributors"
copyright = f"2026, {author}"  # noqa: A001  # the name that Sphinx reads
version = release = applyufunc.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"applyufunc {version}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types, with shapes

# Names of other projects, and prose in numpydoc's type lines, have no target here.
nitpick_ignore_regex = [("py:.*", r"(?!applyufunc\.).*")]

ROOT = Path(__file__).parents[1]

_pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
numpydoc_validation_checks = set(_pyproject["tool"]["numpydoc_validation"]["checks"])
numpydoc_show_class_members = False


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("source-read", _add_fragments)


def _add_fragments(app: Any, docname: str, source: list[str]) -> None:  # noqa: ARG001  # as Sphinx calls it
    """Show in the changelog what waits in `changelog.d`, under the headings that a release will give it."""
    if docname != "changelog":
        return
    lines = []
    for kind in _pyproject["tool"]["towncrier"]["type"]:
        fragments = sorted((ROOT / "changelog.d").glob(f"*.{kind['directory']}*.md"))
        texts = [fragment.read_text(encoding="utf-8").strip().replace("\n", "\n  ") for fragment in fragments]
        lines += [f"### {kind['name']}", *(f"* {text}" for text in texts)] if texts else []
    source[0] = source[0].replace("NEXT-VERSION", "\n\n".join(["## Next version", *lines]) if lines else "")
