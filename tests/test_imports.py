"""What `import applyufunc` loads, and what the installed package says of itself."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import applyufunc

FILES = sorted(Path(applyufunc.__file__).parent.rglob("*.py"))

OPTIONAL = {"cubed", "cupy", "dask", "dask_array", "jax", "matplotlib", "numba", "scipy", "sparse", "torch", "xarray"}

DECORATE = """
import applyufunc

@applyufunc.gufunc("(n),(n)->(k)", output_dtypes=float, output_sizes={"k": 1}, dims={"n": "time"}, vectorize=True)
def dot(x, y):
    return (x * y).sum(keepdims=True)
"""

PRINT_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"

TO_DECORATE = {
    "_casting",
    "_compiled",
    "_compute_dtype",
    "_declared_dtypes",
    "_dim_mapping",
    "_direct",
    "_entry",
    "_errors",
    "_expressions",
    "_gufunc",
    "_kernel",
    "_lexer",
    "_option_values",
    "_options",
    "_rules",
    "_signature",
    "_typing",
}
"""What is loaded before the first call."""


def loaded_by(program: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after a program."""
    command = [sys.executable, "-c", f"{program}\n{PRINT_LOADED}"]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout))


def own_modules(loaded: set[str]) -> set[str]:
    return {name.removeprefix("applyufunc.") for name in loaded if name.startswith("applyufunc.")}


@pytest.mark.parametrize("program", ["import applyufunc", DECORATE], ids=["import", "decorate"])
def test_import_and_decorating_load_no_more_than_decorating_needs(program: str) -> None:
    loaded = loaded_by(program)
    assert own_modules(loaded) == TO_DECORATE
    added = {name.partition(".")[0] for name in loaded - loaded_by("import numpy")}
    assert not added & (OPTIONAL | {"array_api_compat", "difflib", "string", "threading", "uuid"})


def test_first_call_loads_the_machinery_of_calls_and_no_other_library() -> None:
    loaded = loaded_by(f"{DECORATE}\nassert dot([1.0, 2.0], [3.0, 4.0]).tolist() == [11.0]")
    assert own_modules(loaded) > TO_DECORATE | {"_blocks", "_evaluate", "_lowering", "_lowering._eager", "_plan"}
    assert not {name for name in own_modules(loaded) if name.startswith(("_core_chunks", "_explain", "_lazy_apply"))}
    assert {name.partition(".")[0] for name in loaded} & OPTIONAL == set()


def test_first_call_may_come_from_several_threads_at_once() -> None:
    program = f"""{DECORATE}
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

start = Barrier(8)

def call(value):
    start.wait()
    return dot([value, 2.0], [3.0, 4.0]).tolist()

with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(call, range(8))) == [[3.0 * value + 8.0] for value in range(8)]
"""
    assert "_evaluate" in own_modules(loaded_by(program))


def test_every_public_name_is_there_however_it_is_asked_for() -> None:
    asked = ", ".join(applyufunc.__all__)
    loaded = own_modules(loaded_by(f"from applyufunc import {asked}"))
    assert {"_apply", "_core_chunks", "_explanation", "_failures", "_lazy_apply", "_transfer", "reductions"} <= loaded
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


def test_a_call_works_while_another_thread_imports_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # nothing is in it yet
    total = applyufunc.gufunc("(n)->()")(lambda row: row.sum(-1))
    assert total(np.ones((2, 3))).tolist() == [3, 3]
    assert applyufunc.apply_ufunc(np.vecdot, None, np.ones(3), np.ones(3)) == 3
    assert applyufunc.lazy_apply(np.sort, np.array([2, 1]), shape=(2,)).tolist() == [1, 2]
