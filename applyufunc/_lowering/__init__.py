"""From arguments to the lowering for them: which array library answers, and which mixtures none does.

Imports no optional library: an array's library is read off its type, and its lowering imported when its first array
arrives.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, cast

import array_api_compat
import numpy as np

from .._arguments import is_constant, read_only
from .._arrays import is_array
from .._call import Lowering
from .._casting import numpy_dtype
from .._errors import ArgumentError
from .._kernel import Kernel
from .._options import Options
from .._ownership import copy_of
from .._typing import Array
from ._host import as_numpy, check_one_device, check_transfer, is_jax_literal, library_name, to_host

__all__ = ["convert_keywords", "find_lowering", "to_host"]


def find_lowering(args: Sequence[Any]) -> Lowering:
    """Return the lowering for these arguments; two libraries other than NumPy are refused by name."""
    for position, arg in enumerate(args):
        _refuse_lazy_parts(arg, f"argument {position}")
    libraries = {
        position: _library(arg, f"argument {position}") for position, arg in enumerate(args) if not is_constant(arg)
    }
    rich = {position: library for position, library in libraries.items() if library != "numpy"}
    if len(set(rich.values())) > 1:
        named = ", ".join(f"argument {position} is from {library}" for position, library in rich.items())
        raise ArgumentError(f"{named}: arrays of two libraries do not mix; convert them to one")
    library = next(iter(rich.values()), "numpy")
    _refuse_masked(args, library)
    return cast(Lowering, _lowering_for(library))


def convert_keywords(options: Options, kernel: Kernel, lowering: Lowering, arrays: Sequence[Array]) -> dict[str, Any]:
    """Return the kernel's keywords, concrete arrays converted as the arguments were; lazy ones are refused by name.

    Where the kernel runs later, it gets their values of now.
    """
    return {
        name: _convert_keyword(value, f"keyword {name}", options, kernel, lowering, arrays)
        for name, value in options.kwargs.items()
    }


_DASK: Final = ("dask", "dask_array")  # two packages, whose arrays know nothing of each other; one lowering
_MODULES: Final = {**dict.fromkeys(_DASK, "._dask"), "cubed": "._cubed", "jax": "._jax", "torch": "._torch"}
_LAZY: Final = (*_DASK, "cubed")
_TRACING: Final = ("jax", "torch")  # whose arrays may stand for what a transformation will put there
_LIBRARIES_WITHOUT_LOWERING: Final = {"ndonnx", "dask_expr"}


def _library(arg: Any, what: str) -> str:
    """Return the name of the library whose lowering an argument needs; refuse what would be computed or unlabelled."""
    if is_jax_literal(arg):
        return "jax"
    if isinstance(arg, (np.ndarray, np.generic)):
        return "numpy"
    if array_api_compat.is_dask_array(arg):
        return "dask"
    if array_api_compat.is_jax_array(arg) or (hasattr(type(arg), "__jax_array__") and _is_installed("jax")):
        return "jax"
    if array_api_compat.is_torch_array(arg):  # of a class of somebody else's too
        return "torch"
    name = library_name(arg)
    is_collection = hasattr(type(arg), "__dask_graph__")  # an object may answer to every name
    if name == "dask_array" and is_collection:
        return name
    if name == "xarray":
        cure = "pass its .data" if hasattr(type(arg), "data") else "pass an array"
        raise ArgumentError(f"{what} is an {_type_name(arg)}: labelled objects are not taken here, {cure}")
    if name in _LIBRARIES_WITHOUT_LOWERING or is_collection:
        raise ArgumentError(
            f"{what} is a lazy {_type_name(arg)}, which no lowering takes: it would have to be computed"
        )
    return name if is_array(arg) else "numpy"


@cache
def _lowering_for(library: str) -> Any:
    return importlib.import_module(_MODULES.get(library, "._eager"), __name__)


def _type_name(arg: object) -> str:
    return f"{library_name(arg)}.{type(arg).__name__}"


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _refuse_masked(args: Sequence[Any], library: str) -> None:
    """Refuse masked arrays where nothing would keep their mask."""
    masked = [position for position, arg in enumerate(args) if isinstance(arg, np.ma.MaskedArray)]
    if masked and library not in ("numpy", *_DASK):
        raise ArgumentError(
            f"argument {masked[0]} is a masked array, whose mask {library} arrays cannot keep: fill it first"
        )


def _convert_keyword(
    value: Any, what: str, options: Options, kernel: Kernel, lowering: Lowering, arrays: Sequence[Array]
) -> Any:
    if not _is_array(value):
        _refuse_lazy_parts(value, what)
        return value
    library = _library(value, what)
    _refuse_lazy(value, library, what)
    if lowering.is_lazy(arrays) and library != "jax":  # whose arrays never change
        value = copy_of(as_numpy(value, what) if library == "numpy" else value)
    if kernel.arrays != "numpy":
        if library == "numpy":
            return _as_block(as_numpy(value, what), what, lowering, arrays)
        if library not in ("jax", *_DASK):  # JAX moves what is not committed to a device
            other = next((array for array in arrays if library_name(array) == library), value)
            check_one_device({"an argument": other, what: value})
        return value
    _refuse_extended(value, library, what)
    check_transfer(value, options.allow_transfer, what)
    return read_only(as_numpy(value, what) if library == "numpy" else to_host(value))


def _as_block(array: np.ndarray[Any, Any], what: str, lowering: Lowering, arrays: Sequence[Array]) -> Array:
    try:
        return lowering.as_block(read_only(array), arrays)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{what} has dtype {array.dtype}, which arrays such as the kernel gets cannot hold: {error}"
        ) from error


def _is_array(value: Any) -> bool:
    if isinstance(value, np.generic):
        return False
    is_known = isinstance(value, np.ndarray) or is_array(value)
    return is_known or hasattr(type(value), "__dask_graph__") or library_name(value) == "xarray"


def _refuse_extended(array: Array, library: str, what: str) -> None:
    """Refuse a JAX array of what NumPy has no dtype for, in the words for arguments."""
    try:
        numpy_dtype(array.dtype)
    except TypeError:
        cure = ": pass jax.random.key_data(...) of a key" if library == "jax" else ", which NumPy arrays cannot hold"
        raise ArgumentError(f"{what} is a {_type_name(array)} of dtype {array.dtype}{cure}") from None


def _refuse_lazy_parts(value: Any, what: str) -> None:
    """Refuse lazy and traced arrays in lists, tuples and dicts, where NumPy or the kernel would compute them."""
    waiting: deque[tuple[Any, str]] = deque([(value, what)] if isinstance(value, _CONTAINERS) else ())
    for _ in range(_PARTS_LOOKED_AT):
        if not waiting:
            return
        part, name = waiting.popleft()
        if isinstance(part, _CONTAINERS):
            items = part.items() if isinstance(part, dict) else enumerate(part)
            waiting.extend((item, f"{name}[{key!r}]") for key, item in islice(items, _PARTS_LOOKED_AT))
        elif type(part) not in _PLAIN and _is_array(part):
            _refuse_lazy(part, _library(part, name), name)


def _refuse_lazy(array: Array, library: str, what: str) -> None:
    if library in _LAZY or (library in _TRACING and _lowering_for(library).is_traced(array)):
        kind = "lazy" if library in _LAZY else "traced"
        raise ArgumentError(f"{what} is a {kind} {library} array: {_cure_for_lazy(array, library, what)}")


def _cure_for_lazy(array: Array, library: str, what: str) -> str:
    if what.startswith("argument"):
        stack = {"jax": "jax.numpy", "dask": "dask.array"}.get(library, library) + ".stack"
        return f"pass one array, such as {stack} makes of a list"
    cure = "" if array.ndim else " (for a scalar, add ',()' to the signature's inputs)"
    return f"pass it as an argument whose dims are all core{cure}"


_CONTAINERS: Final = (list, tuple, dict)
_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PARTS_LOOKED_AT: Final = 1000  # of a container: the first ones; a longer list holds numbers
