"""The loop over a kernel that takes one item, compiled by Numba into a true gufunc; imported when the first one is.

In: a kernel, its arguments as it will see them, what is expected of its outputs. Out: the outputs, or the dtypes that
Numba infers for them. A kernel has a gufunc for each set of dtypes, numbers of core dims and layouts in memory that it
is called with; sizes do not matter.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import FunctionType
from typing import Any, Final, TypeAlias

import numba
import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.np.numpy_support import as_dtype

from ._errors import ArgumentError, OptionError, OutputShapeError
from ._expectation import Expectation
from ._identity import is_plain
from ._kernel import Kernel
from ._plan import Operand, Plan
from ._results import broadcast_to, cast_output
from ._typing import Array, DType, KernelFunction, Keywords, Shape

__all__ = ["compiled_dtypes", "run_compiled"]


def run_compiled(
    kernel: Kernel, args: Sequence[Any], keywords: Keywords, expected: Expectation
) -> tuple[Array, ...] | None:
    """Return the outputs of the compiled loop; None where an item failed, of which a loop in Python can say more."""
    plan = expected.plan
    if expected.masked:
        raise ArgumentError(f"{_asked(kernel.name)}: Numba knows no masked arrays; fill them, or {_CURE}")
    given = [_given(arg, operand, kernel, plan) for arg, operand in zip(args, plan.inputs, strict=True)]
    named = {name: _keyword(value, name, kernel) for name, value in keywords.items()}
    loop = _compile(kernel, plan, [part for part, _ in given], {name: part for name, (part, _) in named.items()})
    inputs = [array for _, array in (*given, *named.values()) if array is not None]
    sizes = [np.broadcast_to(_NOTHING, _known(output.core_shape)) for output in plan.outputs]
    pairs = zip(plan.outputs, loop.dtypes, strict=True)
    outputs = [np.empty(_known(output.shape), dtype) for output, dtype in pairs]
    try:
        with np.errstate(all="ignore"):  # compiled code sets the processor's flags as it likes
            loop.gufunc(*inputs, *sizes, *outputs)
    except Exception:  # noqa: BLE001  # whatever the kernel raises
        return None
    return tuple(_as_declared(output, position, expected) for position, output in enumerate(outputs))


def compiled_dtypes(
    kernel: Kernel, plan: Plan, dtypes: Sequence[DType], keywords: Keywords
) -> tuple[np.dtype[Any], ...]:
    """Return the outputs' dtypes for arguments of these dtypes; the type of a Python scalar, None for None."""
    args = [
        _NONE if operand is None else _Passed(np.dtype(dtype), _n_core(dtype, operand))
        for dtype, operand in zip(dtypes, plan.inputs, strict=True)
    ]
    parts = {name: _keyword(value, name, kernel)[0] for name, value in keywords.items()}
    return _compile(kernel, plan, args, parts).dtypes


@dataclass(frozen=True, slots=True)
class _Passed:
    """What the compiled function is given: an array, or a number where there are no core dims."""

    dtype: np.dtype[Any]
    n_core: int
    is_contiguous: bool = True  # along its core dims

    def __str__(self) -> str:
        return f"{self.dtype} with {self.n_core} core dimension{'' if self.n_core == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What is compiled into the function: None, text, and tuples of what is plain."""

    value: Any = field(compare=False)
    text: str  # since 1, 1.0 and True are equal


_Part: TypeAlias = _Passed | _Fixed


@dataclass(frozen=True, slots=True)
class _Layout:
    """All but the kernel that decides on what is compiled."""

    args: tuple[_Part, ...]
    keywords: tuple[tuple[str, _Part], ...]
    outputs: tuple[int, ...]  # numbers of core dims
    is_tuple: bool
    writable: bool

    @property
    def names(self) -> dict[str, _Part]:
        """Arguments and keywords, by the names that they have in the compiled function."""
        args = {f"a{n}": part for n, part in enumerate(self.args)}
        return args | {f"k{n}": part for n, (_, part) in enumerate(self.keywords)}

    @property
    def passed(self) -> dict[str, _Passed]:
        """Those that are the function's parameters."""
        return {name: part for name, part in self.names.items() if isinstance(part, _Passed)}


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled loop, which takes inputs, then an array of the core shape of each output, then the outputs."""

    gufunc: Callable[..., Any]
    dtypes: tuple[np.dtype[Any], ...]


def _given(arg: Any, operand: Operand | None, kernel: Kernel, plan: Plan) -> tuple[_Part, Array | None]:
    """Return an argument as the compiled function gets it."""
    if arg is None or operand is None:
        return _NONE, None
    n_core = _n_core(arg, operand)
    array = _native(np.asarray(arg))
    if kernel.writable and isinstance(arg, np.ndarray):
        array = broadcast_to(array, (*_known(plan.loop_shape), *array.shape[array.ndim - n_core :]), np).copy()
    return _Passed(array.dtype, n_core, _is_contiguous(array, n_core)), array


def _keyword(value: Any, name: str, kernel: Kernel) -> tuple[_Part, Array | None]:
    """Return a keyword as the compiled function gets it."""
    is_number = type(value) in _NUMBERS or isinstance(value, np.generic | np.ndarray)
    if not name.isidentifier() or not (is_number or is_plain(value)):
        kind = type(value).__name__
        raise OptionError(f"{_asked(kernel.name)}: keyword {name!r} is a {kind}, which is not compiled; {_CURE}")
    if not is_number:
        return _Fixed(value, repr(value)), None
    array = _native(np.asarray(value))
    return _Passed(array.dtype, array.ndim, _is_contiguous(array, array.ndim)), array


def _n_core(arg: Any, operand: Operand) -> int:
    """Return the number of core dims; a Python scalar, or its type, has none of those that are optional."""
    return operand.n_core if isinstance(arg, np.ndarray | np.dtype) else 0


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_contiguous(array: Array, n_core: int) -> bool:
    """Tell whether the elements of each item lie one behind the other."""
    wanted = array.itemsize
    for axis in range(-1, -1 - n_core, -1):
        if array.shape[axis] != 1 and array.strides[axis] != wanted:
            return False
        wanted *= array.shape[axis]
    return True


def _compile(kernel: Kernel, plan: Plan, args: Sequence[_Part], keywords: Mapping[str, _Part]) -> _Loop:
    """Return the loop, compiled now if it was not before; another thread that needs it waits."""
    unknown = [*(label for label, _ in plan.bounds), *plan.unknown_output_dims]
    if unknown:
        raise OptionError(
            f"{_asked(kernel.name)}: the size of output dimension {unknown[0]!r} has to be known, and the same for "
            f"every item; {_CURE}"
        )
    is_tuple = plan.signature.nout > 1 or plan.signature.always_tuple
    outputs = tuple(output.n_core for output in plan.outputs)
    layout = _Layout(tuple(args), tuple(keywords.items()), outputs, is_tuple, kernel.writable)
    with _compiling:
        return _compiled_loop(kernel.func, kernel.name, layout)


@lru_cache(maxsize=64)  # loops; each keeps its kernel alive
def _compiled_loop(func: KernelFunction, name: str, layout: _Layout) -> _Loop:
    if not isinstance(func, FunctionType | Dispatcher):
        kind = type(func).__name__
        raise OptionError(f"{_asked(name)}: it is a {kind}, and Numba compiles plain Python functions; {_CURE}")
    seen = ", ".join(map(str, layout.passed.values()))
    try:
        given = _input_types(layout)
        call = _compiled_call(func, layout, given)
        returned = _output_types(call.nopython_signatures[0].return_type, name, layout)
        return _Loop(_compiled_gufunc(call, layout, given, returned), tuple(map(as_dtype, returned)))
    except OutputShapeError:
        raise
    except Exception as error:  # Numba's own, and others where it has a fault
        raise OptionError(f"{_asked(name)}: Numba does not compile it for {seen}: {_reason(error)}") from error


def _input_types(layout: _Layout) -> tuple[Any, ...]:
    """Return Numba's types of what is passed; what is read-only is compiled so, which refuses a kernel that writes."""
    return tuple(
        _array_type(numba.from_dtype(part.dtype), part.n_core, part.is_contiguous, layout.writable and name[0] == "a")
        for name, part in layout.passed.items()
    )


def _array_type(element: Any, n_core: int, is_contiguous: bool, is_writable: bool) -> Any:
    if not n_core:
        return element
    return types.Array(element, n_core, "C" if is_contiguous else "A", readonly=not is_writable)


def _compiled_call(func: KernelFunction, layout: _Layout, given: Sequence[Any]) -> Any:
    """Return a compiled function that calls the kernel with what is passed and what is fixed."""
    # By zero it divides as NumPy's scalars do.
    kernel = func if isinstance(func, Dispatcher) else numba.njit(error_model="numpy")(func)
    fixed = {name: part.value for name, part in layout.names.items() if isinstance(part, _Fixed)}
    arguments = [f"a{n}" for n in range(len(layout.args))]
    arguments += [f"{keyword}=k{n}" for n, (keyword, _) in enumerate(layout.keywords)]
    call = numba.njit(
        _function(f"({', '.join(layout.passed)}): return kernel({', '.join(arguments)})", {"kernel": kernel, **fixed})
    )
    call.compile(tuple(given))
    return call


def _output_types(returned: Any, name: str, layout: _Layout) -> list[Any]:
    """Return Numba's types of the outputs' elements; refuse what has not the number of dims that is declared."""
    parts = [returned]
    if layout.is_tuple:
        parts = list(getattr(returned, "types", ()))
        if len(parts) != len(layout.outputs):
            raise OutputShapeError(
                f"kernel {name!r} returns {returned} by Numba's type inference, expected a tuple of "
                f"{len(layout.outputs)}: one array per output"
            )
    pairs = enumerate(zip(parts, layout.outputs, strict=True))
    return [_element(types.unliteral(part), position, name, n_core) for position, (part, n_core) in pairs]


def _element(type_: Any, position: int, name: str, n_core: int) -> Any:
    if n_core and isinstance(type_, types.Array) and type_.ndim == n_core:
        return type_.dtype
    if not n_core and isinstance(type_, types.Number | types.Boolean | types.NPDatetime | types.NPTimedelta):
        return type_
    wanted = f"an array of {n_core} dimension{'' if n_core == 1 else 's'}" if n_core else "a number"
    raise OutputShapeError(
        f"output {position}: kernel {name!r} returns {type_} by Numba's type inference, expected {wanted}"
    )


def _compiled_gufunc(call: Any, layout: _Layout, given: tuple[Any, ...], returned: Sequence[Any]) -> Callable[..., Any]:
    """Return the gufunc that fills its outputs with what the call returns for each item."""
    # A size that only an output has is told by an input: Numba refuses a dim that no input has.
    sizes = tuple(_array_type(types.uint8, n, is_contiguous=False, is_writable=False) for n in layout.outputs)
    filled = tuple(types.Array(t, max(n, 1), "A") for t, n in zip(returned, layout.outputs, strict=True))
    function = _function(_loop_text(layout), {"call": call})
    dims = map("d{}".format, count())
    inputs = [_dims_text([next(dims) for _ in range(part.n_core)]) for part in layout.passed.values()]
    outputs = [_dims_text([next(dims) for _ in range(n)]) for n in layout.outputs]
    text = f"{','.join([*inputs, *outputs])}->{','.join(outputs)}"
    gufunc = numba.guvectorize([given + sizes + filled], text, nopython=True)(function)
    filler: Callable[..., Any] = getattr(gufunc, "ufunc", gufunc)
    return filler


def _dims_text(dims: Sequence[str]) -> str:
    return f"({','.join(dims)})"


def _loop_text(layout: _Layout) -> str:
    """Write the function that Numba makes a gufunc of."""
    places = range(len(layout.outputs))
    parameters = [*layout.passed, *(f"s{n}" for n in places), *(f"o{n}" for n in places)]
    results = ", ".join(f"r{n}" for n in places)
    lines = [f"({', '.join(parameters)}):", f"{results}{',' * layout.is_tuple} = call({', '.join(layout.passed)})"]
    for place, n_core in enumerate(layout.outputs):
        if n_core:
            lines += [f"if r{place}.shape != o{place}.shape:", "    raise ValueError"]
        lines += [f"o{place}[{'...' if n_core else '0'}] = r{place}"]
    return "\n    ".join(lines)


def _function(text: str, names: Mapping[str, Any]) -> Any:
    """Return a function whose code, after its name, is `text`: Numba takes no ``*args`` there."""
    namespace = dict(names)
    exec(f"def function{text}", namespace)
    return namespace["function"]


def _as_declared(output: Array, position: int, expected: Expectation) -> Array:
    dtype = expected.dtype(position)
    if dtype is None:
        return output
    # Numba has an integer of its own choice where Python has one without a dtype.
    is_weak = not expected.plan.outputs[position].n_core
    return cast_output(output, dtype, f"output {position}", expected, weak=is_weak)


def _known(shape: Shape) -> tuple[int, ...]:
    """Return the sizes of a block, which are all known."""
    return tuple(size or 0 for size in shape)


def _asked(name: str) -> str:
    return f"vectorize='numba' cannot be had for kernel {name!r}"


def _reason(error: Exception) -> str:
    """Return the line that tells most of an error of Numba's, with what to do."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failed in ")]
    if "readonly array" in text and "setitem" in text:
        return "it writes into an argument; pass writable=True"
    return f"{lines[0].rstrip(' :') if lines else type(error).__name__}; {_CURE}"


def _forget_lock() -> None:
    """Give a forked process a lock of its own: nobody there will release one that another thread held."""
    global _compiling  # noqa: PLW0603
    _compiling = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)

_CURE: Final = "pass vectorize=True, which calls it in Python"
_NONE: Final = _Fixed(None, "None")
_NOTHING: Final = np.uint8(0)  # what tells sizes has no values
_NUMBERS: Final = frozenset({bool, int, float, complex})
_compiling = threading.RLock()
