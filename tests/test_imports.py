"""What `import applyufunc` loads, and what the installed package says of itself."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import applyufunc

FILES = sorted(Path(applyufunc.__file__).parent.rglob("*.py"))

OPTIONAL = {"cubed", "cupy", "dask", "dask_array", "jax", "matplotlib", "numba", "scipy", "sparse", "torch", "xarray"}

PRINT_LOADED = "import json, sys; import applyufunc; print(json.dumps(sorted(sys.modules)))"


def loaded_by_import() -> set[str]:
    """Names of the modules that a fresh interpreter holds after `import applyufunc`."""
    printed = subprocess.run([sys.executable, "-c", PRINT_LOADED], check=True, capture_output=True, text=True).stdout
    return set(json.loads(printed))


def test_import_loads_no_optional_library() -> None:
    loaded = loaded_by_import()
    assert "applyufunc" in loaded
    assert {name.partition(".")[0] for name in loaded} & OPTIONAL == set()


def test_what_few_calls_need_is_imported_when_it_is_asked_for() -> None:
    loaded = loaded_by_import()
    late = {"_core_chunks", "_explain", "_explanation", "_lazy_apply", "reductions"}
    assert not {f"applyufunc.{name}" for name in late} & loaded
    assert all(getattr(applyufunc, name) is not None for name in applyufunc.__all__)
    assert set(applyufunc.__all__) <= set(dir(applyufunc))
    with pytest.raises(AttributeError, match="no attribute 'reduction'"):
        _ = applyufunc.reduction


def test_metadata_gives_the_version_of_the_package() -> None:
    assert metadata.version("applyufunc") == applyufunc.__version__


def test_package_is_typed() -> None:
    files = {str(file) for file in metadata.files("applyufunc") or ()}
    editable = any(file.endswith(".pth") for file in files)
    assert editable or "applyufunc/py.typed" in files


def test_console_command_is_the_main_job() -> None:
    (command,) = metadata.distribution("applyufunc").entry_points.select(group="console_scripts")
    assert (command.name, command.value) == ("applyufunc", "applyufunc.__main__:main")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_package_imports_itself_relatively(file: Path) -> None:
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    imported = [name for node in tree for name in absolute_imports(node)]
    assert "applyufunc" not in {name.partition(".")[0] for name in imported}


def absolute_imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
