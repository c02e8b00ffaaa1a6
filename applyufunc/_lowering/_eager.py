"""Calls on arrays that hold their values: NumPy's, and those of any array-API library.

The kernel runs once, with the whole arrays as its block; what a NumPy kernel returns goes back to the library and
device of the inputs. Implements the functions of `Lowering`; knows no lazy library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from .._arguments import is_constant
from .._arrays import is_array
from .._call import Call
from .._casting import numpy_dtype
from .._errors import ArgumentError, OptionError, OutputDTypeError
from .._kernel import Kernel
from .._options import Options
from .._typing import Array, Namespace, Shape
from ._host import as_numpy, check_one_device, check_transfer, library_name, like, to_host
from ._plain import lend, look, narrow, repeat, settled, traces, untraced

if TYPE_CHECKING:
    from .._explanation import Execution

__all__ = [
    "as_block",
    "block_kind",
    "convert",
    "default_dtype",
    "explain",
    "is_lazy",
    "lend",
    "look",
    "lower",
    "namespace",
    "narrow",
    "repeat",
    "settled",
    "shape",
    "traces",
    "untraced",
]


def convert(args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
    """Return NumPy arrays, or the library's own; refuse first what would have to be moved without leave."""
    if kernel.arrays == "numpy":
        for position, arg in enumerate(args):
            if _is_foreign(arg):
                check_transfer(arg, options.allow_transfer, f"argument {position}")
    check_one_device({f"argument {position}": arg for position, arg in enumerate(args) if _is_foreign(arg)})
    foreign = [arg for arg in args if _is_foreign(arg)]
    return tuple(_convert(arg, position, foreign, kernel) for position, arg in enumerate(args))


def namespace(array: Array) -> Namespace:
    """Return the module with the library's functions."""
    return np if isinstance(array, np.ndarray) else array_api_compat.array_namespace(array)


def shape(array: Array) -> Shape:
    """Return the shape; every size is known."""
    return tuple(array.shape)


def is_lazy(arrays: Sequence[Array]) -> bool:
    """Tell that results are there at once."""
    return False


def default_dtype(kind: type, arrays: Sequence[Array]) -> np.dtype[Any]:
    """Return the dtype that the library of the arrays takes for Python's bool, int, float or complex."""
    foreign = [array for array in arrays if _is_foreign(array)]
    if not foreign or kind is bool:
        return np.dtype(kind)
    xp = namespace(foreign[0])
    if not hasattr(xp, "__array_namespace_info__"):  # as sparse before 0.17
        return np.dtype(kind)
    name = {int: "integral", float: "real floating", complex: "complex floating"}[kind]
    return numpy_dtype(xp.__array_namespace_info__().default_dtypes(device=array_api_compat.device(foreign[0]))[name])


def as_block(array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array in the library, and on the device, of `arrays`."""
    foreign = [array for array in arrays if _is_foreign(array)]
    return like(array, foreign[0], copy=True) if foreign else array


def block_kind(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return the type of those blocks."""
    return (next((type(array) for array in arrays if _is_foreign(array)), np.ndarray),)


def lower(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of the kernel on the whole arrays."""
    foreign = _check_held(call, arrays)
    if call.kernel.arrays != "numpy":
        return call.runner(*arrays)
    outputs = call.runner(*map(to_host, arrays))
    return tuple(_given_back(output, foreign[0], n) for n, output in enumerate(outputs)) if foreign else outputs


def explain(call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]) -> Execution:
    """Say that the kernel gets the whole arrays at once."""
    from .._explanation import in_one_block

    _check_held(call, arrays)
    return in_one_block(call.plan, call.runner.array_positions, "direct")


def _is_foreign(arg: Any) -> bool:
    """Tell an array of another library than NumPy."""
    return not isinstance(arg, (np.ndarray, np.generic)) and is_array(arg)


def _convert(arg: Any, position: int, foreign: Sequence[Array], kernel: Kernel) -> Any:
    if is_constant(arg) or _is_foreign(arg):
        return arg
    array = as_numpy(arg, f"argument {position}")
    if not foreign or kernel.arrays == "numpy":
        return array
    if not _holds(foreign[0], array.dtype):
        raise ArgumentError(
            f"argument {position} has dtype {array.dtype}, which {library_name(foreign[0])} arrays cannot hold"
        )
    return like(array, foreign[0], copy=True)


def _check_held(call: Call, arrays: Sequence[Array]) -> list[Array]:
    """Return the arrays that are not NumPy's; refuse dtypes that their library does not have, before any work."""
    foreign = [array for array in arrays if _is_foreign(array)]
    for position, dtype in enumerate(call.runner.dtypes or ()):
        if not foreign or _holds(foreign[0], dtype):
            continue
        if call.runner.found:
            raise _not_held(position, dtype, foreign[0])
        raise OptionError(f"output_dtypes has {dtype}, which {library_name(foreign[0])} arrays cannot hold")
    return foreign


def _given_back(output: np.ndarray[Any, Any], other: Array, position: int) -> Array:
    """Return an output in the library of the inputs."""
    if not _holds(other, output.dtype):
        raise _not_held(position, output.dtype, other)
    return like(output, other)


def _not_held(position: int, dtype: np.dtype[Any], other: Array) -> OutputDTypeError:
    return OutputDTypeError(
        f"output {position}: kernel returned {dtype}, which {library_name(other)} arrays cannot hold: "
        f"pass output_dtypes"
    )


def _holds(other: Array, dtype: np.dtype[Any]) -> bool:
    """Tell whether the library of an array has a dtype."""
    if hasattr(namespace(other), dtype.name):
        return True
    try:
        like(np.empty(0, dtype), other)
    except (TypeError, ValueError):
        return False
    return True
