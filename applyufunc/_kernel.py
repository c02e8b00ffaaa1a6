"""The user's function and how it is to be called: `Kernel`, a value that pickles.

Knows neither signature nor shapes. A kernel that a module holds as a gufunc object pickles by that object's name, since
the name of its function leads to the object and no longer to the function.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

import numpy as np

from . import _compiled
from ._compute_dtype import read_compute_dtype
from ._errors import OptionError
from ._option_values import KernelArrays, Vectorize
from ._options import Options, Parameters
from ._typing import KernelFunction

__all__ = ["Home", "Kernel", "describes_itself", "function_name", "make_kernel", "parameters_of"]


class Home(NamedTuple):
    """Where a module holds the gufunc object of a kernel."""

    module: str
    qualname: str

    def find(self) -> object:
        """Return what is there now; None where nothing is, or the module is not loaded."""
        if self.module in sys.modules:
            with contextlib.suppress(AttributeError, ImportError):  # of a module that loads its parts when asked
                return functools.reduce(getattr, self.qualname.split("."), sys.modules[self.module])
        return None

    def load(self) -> object:
        """Return what is there, importing the module."""
        return functools.reduce(getattr, self.qualname.split("."), importlib.import_module(self.module))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function with what it takes: an item or a batch, which arrays, whether it writes or may run twice at once."""

    func: KernelFunction
    name: str
    vectorize: Vectorize = False
    arrays: KernelArrays = "numpy"
    arrays_by_type: bool = False  # whether nobody said which, so that a function of a library's own may be traced
    writable: bool = False
    contiguous: bool = False  # whether it needs NumPy arrays in C order
    is_filling: bool = False  # whether it gets arrays for its outputs behind its arguments
    thread_safe: bool = True
    threads: int = 1  # over which the items of a loop are spread
    parallel: bool = False  # whether it runs in threads of Numba's, which one caller at a time may start
    block_bytes: int | None = None  # that a call of it may have in all operands together; None: no limit
    compute_dtype: np.dtype[Any] | None = None  # that it gets numbers of the same family in; None: their own
    token: str | None = None  # the caller's own identity for the kernel
    home: Home | None = None

    # What the function is known to do or to demand; it is asked once, since every call looks at it.
    gets_copies: bool = dataclasses.field(default=False, init=False)  # it writes into read-only arrays, or refuses them
    needs_contiguous: bool = dataclasses.field(default=False, init=False)
    fills_outputs: bool = dataclasses.field(default=False, init=False)

    def __post_init__(self) -> None:
        known = _compiled.Demands() if self.vectorize == "numba" else _compiled.demands_of(self.func)
        self._set("gets_copies", known.gets_copies)
        self._set("needs_contiguous", self.contiguous or known.needs_contiguous)
        self._set("fills_outputs", self.is_filling or known.fills_outputs)
        if self.parallel or known.runs_in_parallel:
            self._set("parallel", True)
            self._set("threads", 1)

    def guard(self) -> contextlib.AbstractContextManager[Any]:
        """Return what to hold while the function runs: a lock where it must not run twice at once."""
        if self.thread_safe and not self.parallel:
            return contextlib.nullcontext()
        from ._locks import lock_of  # with `threading`, which few kernels need

        return lock_of(_lock_key(self))

    def is_traced_by(self, library: str) -> bool:
        """Tell whether a library that builds programs takes the function itself for a part of one."""
        return self.arrays == "traced" or (self.arrays_by_type and _is_of(self.func, _PACKAGES[library]))

    @property
    def is_found_at_home(self) -> bool:
        """Whether the kernel's home still leads to it, so that its name can stand for it."""
        if self.home is None or self.home.module == "__main__":
            return False
        return getattr(self.home.find(), "__wrapped__", None) is self.func

    def _set(self, name: str, value: object) -> None:
        """Complete a kernel that is being made."""
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., Kernel], tuple[Any, ...]]:
        how: dict[str, Any] = {"vectorize": self.vectorize, "arrays": self.arrays, "writable": self.writable}
        how |= {"thread_safe": self.thread_safe, "token": self.token, "arrays_by_type": self.arrays_by_type}
        how |= {"threads": self.threads, "compute_dtype": self.compute_dtype, "block_bytes": self.block_bytes}
        how |= {"contiguous": self.contiguous, "is_filling": self.is_filling, "parallel": self.parallel}
        if self.is_found_at_home:
            return _load_from_home, (self.home, self.name, how)
        if isinstance(self.func, MethodType) and _is_decorated(self.func):
            return _load_method, (self.func.__self__, self.func.__name__, self.name, how)
        return _load, (self.func, self.name, how, self.home)


def make_kernel(func: KernelFunction, options: Options, home: Home | None = None) -> Kernel:
    """Return the kernel for `func` under `options`."""
    if options.vectorize == "numba":
        _check_numba()
    return Kernel(
        func,
        name=function_name(func),
        vectorize=options.vectorize,
        arrays=options.kernel_arrays or "numpy",
        arrays_by_type=options.kernel_arrays is None and options.vectorize != "numba",
        writable=options.writable,
        contiguous=options.contiguous,
        is_filling=options.fills_outputs,
        thread_safe=options.thread_safe,
        threads=options.threads,
        block_bytes=options.block_bytes,
        compute_dtype=read_compute_dtype(options.compute_dtype),
        token=options.kernel_token,
        home=home,
    )


def function_name(func: KernelFunction) -> str:
    """Return the name under which messages and graphs know a function."""
    name = getattr(func, "__name__", None)
    if name is None and isinstance(func, functools.partial):
        return function_name(func.func)
    return name if isinstance(name, str) else type(func).__name__


def describes_itself(func: object) -> bool:
    """Tell whether `func` says how many inputs and outputs it has, as NumPy's and Numba's ufuncs do."""
    return isinstance(getattr(func, "nin", None), int) and isinstance(getattr(func, "nout", None), int)


def parameters_of(func: KernelFunction, nin: int) -> Parameters:
    """Return the names that `func` takes by keyword, beyond its `nin` arguments."""
    if isinstance(func, np.ufunc) or (describes_itself(func) and _compiled.is_numba(func)):
        return Parameters(_UFUNC_KEYWORDS, open_ended=False)
    if type(func) is FunctionType and not vars(func):  # nothing says that it has another signature than its code
        return _parameters_of_code(func.__code__, nin)
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):  # builtins without a text signature
        return Parameters(frozenset(), open_ended=True)
    keyword_only = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name for p in positional[nin:] if p.kind is p.POSITIONAL_OR_KEYWORD}
    return Parameters(frozenset(keyword_only | named), any(p.kind is p.VAR_KEYWORD for p in parameters))


def _parameters_of_code(code: CodeType, nin: int) -> Parameters:
    """Return what `inspect.signature` would tell, which takes twenty times as long."""
    n_positional = code.co_argcount
    named = code.co_varnames[max(nin, code.co_posonlyargcount) : n_positional]
    keyword_only = code.co_varnames[n_positional : n_positional + code.co_kwonlyargcount]
    return Parameters(frozenset(named + keyword_only), bool(code.co_flags & inspect.CO_VARKEYWORDS))


def _check_numba() -> None:
    from importlib.util import find_spec

    if find_spec("numba") is None:
        raise OptionError("vectorize='numba' needs Numba, which is not installed: pip install numba")


def _is_of(func: Any, packages: Collection[str]) -> bool:
    """Tell what ``jax.jit`` and its like make, PyTorch's modules, and the functions of such a package itself."""
    if isinstance(func, functools.partial):
        return _is_of(func.func, packages)
    if isinstance(func, MethodType):
        return _is_of(func.__func__, packages)
    homes = (getattr(func, "__module__", None), *(base.__module__ for base in type(func).__mro__))
    return any(isinstance(home, str) and home.partition(".")[0] in packages for home in homes)


def _load_from_home(home: Home, name: str, how: dict[str, Any]) -> Kernel:
    gufunc: Any = home.load()
    return _load(gufunc.__wrapped__, name, how, home)


def _is_decorated(method: MethodType) -> bool:
    """Tell a method whose name leads to a gufunc object, by which it would be pickled."""
    found = getattr(getattr(method.__self__, method.__name__, None), "__wrapped__", None)
    return isinstance(found, MethodType) and found.__func__ is method.__func__


def _load_method(instance: object, method_name: str, name: str, how: dict[str, Any]) -> Kernel:
    return _load(getattr(instance, method_name).__wrapped__, name, how, None)


def _load(func: KernelFunction, name: str, how: dict[str, Any], home: Home | None) -> Kernel:
    return Kernel(func, name, home=home, **how)


def _lock_key(kernel: Kernel) -> Hashable:
    """
    Return under what the lock of a kernel is found: a name, since every unpickled copy of a function is another object.

    All that run in threads of Numba's have one, since they start the same threads.
    """
    if kernel.parallel:
        return "numba", "parallel"
    func = kernel.func
    return getattr(func, "__module__", ""), getattr(func, "__qualname__", kernel.name)


_PACKAGES: Final = {"jax": ("jax", "jaxlib"), "torch": ("torch",)}
_UFUNC_KEYWORDS: Final = frozenset({"casting", "dtype", "order", "subok"})
