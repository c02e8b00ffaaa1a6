"""Sphinx configuration; builds without a network, so without intersphinx."""

import tomllib
from pathlib import Path

import applyufunc

project = "applyufunc"
author = "the applyufunc contributors"
copyright = f"2026, {author}"  # noqa: A001  # the name that Sphinx reads
version = release = applyufunc.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"applyufunc {version}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types, with shapes

# Names of other projects, and prose in numpydoc's type lines, have no target here.
nitpick_ignore_regex = [("py:.*", r"(?!applyufunc\.).*")]

_pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
numpydoc_validation_checks = set(_pyproject["tool"]["numpydoc_validation"]["checks"])
numpydoc_show_class_members = False
