"""Names in graphs: a token for all that a call has but its arrays, and a name for the eye.

Equal calls get equal tokens, in every process; what differs in anything that could change a value gets another. Where
the identity of a kernel cannot be told for certain, its token is one that no other object has; where that of a keyword
cannot, the token is new at each call.
"""

from __future__ import annotations

import hashlib
import re
import sys
import uuid
from collections.abc import Hashable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from dask.base import tokenize

from ..._blocks import BlockRunner
from ..._compiled import compiles_for_dtypes, is_made_by_numba, is_numba
from ..._core_chunks import ScanKernel
from ..._identity import IdentityMap, is_plain, is_plain_dtype
from ..._kernel import Kernel, describes_itself

__all__ = ["call_token", "dtype_text", "kernel_identity", "known_identity", "readable_name"]


def call_token(runner: BlockRunner) -> str:
    """Return the token of a call without its arrays."""
    identity, kernel = kernel_identity(runner.kernel), runner.kernel
    how = (
        *(kernel.vectorize, kernel.arrays, kernel.writable, kernel.contiguous, kernel.is_filling),
        *(kernel.thread_safe, str(kernel.compute_dtype)),
    )
    keywords = [(name, runner.keywords[name]) for name in sorted(runner.keywords)]
    plain = (runner.constants, tuple(keywords), runner.output_sizes)
    if is_plain(plain):  # as text, since Dask would look at every part of it
        dtypes = None if runner.dtypes is None else tuple(map(dtype_text, runner.dtypes))
        text = repr((identity, how, runner.signature.text, plain, dtypes))
        return hashlib.sha256(text.encode()).hexdigest()
    # No dict: before version 2025.4 Dask sorts one by the hashes of its keys (https://github.com/dask/dask/pull/11867).
    ordered = [(name, _ordered(value)) for name, value in keywords]
    what = (runner.constants, ordered, runner.output_sizes, runner.dtypes)
    token = _stable_token(identity, how, runner.signature.text, what)
    return token if token is not None else uuid.uuid4().hex


def readable_name(kernel: Kernel) -> str:
    """Return a name without the characters that mean something in Dask's keys."""
    return re.sub(r"\W+", "_", kernel.name, flags=re.ASCII).strip("_") or "kernel"


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return all that a dtype is."""
    return _remembered_text(dtype) if is_plain_dtype(dtype) else repr(dtype)


@lru_cache(maxsize=256)
def _remembered_text(dtype: np.dtype[Any]) -> str:  # NumPy puts it together in Python
    return repr(dtype)


def _ordered(value: Any) -> Any:
    """Return what stands for a value: the order of a set differs between processes, also in the text Dask sorts by."""
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(tokenize(_ordered(member)) for member in value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [_ordered(member) for member in value]
    if isinstance(value, dict):
        return "dict", [(_ordered(key), _ordered(member)) for key, member in value.items()]
    return value


Identity: TypeAlias = tuple[str, ...]


def kernel_identity(kernel: Kernel) -> Identity:
    """Return what tells a kernel from others, in every process."""
    if isinstance(kernel.func, ScanKernel):
        return _scan_identity(kernel.func)
    return known_identity(kernel) or _function_identity(kernel.func)


def known_identity(kernel: Kernel) -> Identity | None:
    """Return the same where it takes no time; None where the function has to be read by value."""
    if kernel.token is not None:
        return "token", kernel.token
    if kernel.home is not None and kernel.is_found_at_home:
        return "home", kernel.home.module, kernel.home.qualname
    if isinstance(kernel.func, np.ufunc):
        return _read_identity(kernel.func)
    contents = _contents(kernel.func)
    if contents is None:
        return None
    remembered = _remembered.setdefault(kernel.func, {})
    if contents not in remembered:
        remembered[contents] = _function_identity(kernel.func)
    return remembered[contents]


def _scan_identity(scan: ScanKernel) -> Identity:
    initial, step = scan.initial, scan.step
    start = kernel_identity(initial) if isinstance(initial, Kernel) else (_stable_token(initial) or uuid.uuid4().hex,)
    carry = tuple(tuple(map(str, dims)) for dims in scan.carry)
    how = repr((scan.dim, carry, step.vectorize, step.writable, step.thread_safe, str(step.compute_dtype)))
    return "scan", *kernel_identity(step), "from", *start, how


def _contents(func: Any) -> Hashable | None:
    """Return all that a plain function is made of; None where something in it may change and still look the same."""
    if type(func) is not FunctionType or func.__closure__:
        return None
    defaults = (func.__defaults__, tuple((func.__kwdefaults__ or {}).items()))
    used = [func.__globals__[name] for name in _names(func.__code__) if name in func.__globals__]
    if not all(map(_is_module, used)) or not is_plain(tuple(defaults)):
        return None
    return func.__code__, repr(defaults), tuple(used)  # as text, since 1, 1.0 and True are equal


def _names(code: CodeType) -> Iterator[str]:
    """Return the names, in a function and in those that it makes, that may be of globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_module(value: object) -> bool:
    """Tell a module that is known by its name."""
    return isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value


def _function_identity(func: Any) -> Identity:
    return _read_identity(func) or ("object", _own_token(func))


def _read_identity(func: Any) -> Identity | None:
    """Return the identity of what makes up a function; None where Dask cannot vouch for it."""
    # A ufunc pickles by its name, under which another one may be tomorrow.
    token = None if is_made_by_numba(func) else _stable_token(*_parts(func))
    return None if token is None else ("function", token)


def _parts(func: Any) -> tuple[Any, ...]:
    """Return what makes up a function: a Numba dispatcher itself has an identity that differs between processes."""
    if not is_numba(func) or not hasattr(func, "targetoptions"):
        return (func,)
    # What compiles when it is called has as many signatures as it has met, which say nothing of what it is.
    fixed = () if getattr(func, "_can_compile", True) else tuple(map(str, func.signatures))
    if describes_itself(func):  # a ufunc
        fixed = () if compiles_for_dtypes(func) else tuple(func.types)
        func = func._dispatcher
    return "numba", func.py_func, sorted(func.targetoptions.items()), fixed


def _stable_token(*parts: Any) -> str | None:
    """Return a token that is the same in every process; None where Dask cannot vouch for that."""
    try:
        return str(tokenize(*parts, ensure_deterministic=True))
    except RuntimeError:  # dask.tokenize.TokenizationError, which older versions do not have
        return None


def _own_token(func: Any) -> str:
    """Return a token that only this object has, for as long as it lives."""
    try:
        return _own_tokens.setdefault(func, uuid.uuid4().hex)
    except TypeError:  # no weak reference
        return uuid.uuid4().hex


_remembered: IdentityMap[dict[Hashable, Identity]] = IdentityMap()  # to read a function by value takes milliseconds
_own_tokens: IdentityMap[str] = IdentityMap()
