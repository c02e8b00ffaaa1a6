"""Names in graphs: a token for all that a call has but its arrays, and a name for the eye.

Equal calls get equal tokens, in every process; what differs in anything that could change a value gets another. Where
the identity of a kernel, or of a keyword, cannot be told for certain, the token is one that nobody else has.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Hashable, MutableMapping
from typing import Any

from dask.base import tokenize

from ..._blocks import BlockRunner
from ..._kernel import Kernel

__all__ = ["call_token", "readable_name"]


def call_token(runner: BlockRunner) -> str:
    """Return the token of a call without its arrays."""
    identity, kernel = _kernel_identity(runner.kernel), runner.kernel
    how = (kernel.vectorize, kernel.arrays, kernel.writable, kernel.thread_safe)
    what = (runner.constants, dict(runner.keywords), runner.output_sizes, runner.dtypes)
    token = _stable_token(identity, how, runner.signature.text, what)
    return token if token is not None else uuid.uuid4().hex


def readable_name(kernel: Kernel) -> str:
    """Return a name without the characters that mean something in Dask's keys."""
    return re.sub(r"\W+", "_", kernel.name, flags=re.ASCII).strip("_") or "kernel"


def _kernel_identity(kernel: Kernel) -> Hashable:
    if kernel.token is not None:
        return "token", kernel.token
    if kernel.home is not None and kernel.is_found_at_home:
        return "home", kernel.home.module, kernel.home.qualname
    token = _stable_token(*_parts(kernel.func))
    return ("function", token) if token is not None else ("object", _own_token(kernel.func))


def _parts(func: Any) -> tuple[Any, ...]:
    """Return what makes up a function: a Numba dispatcher itself has an identity that differs between processes."""
    if type(func).__module__.partition(".")[0] != "numba" or not hasattr(func, "targetoptions"):
        return (func,)
    # A dispatcher that compiles when called has as many signatures as it has met, which say nothing of what it is.
    fixed = () if getattr(func, "_can_compile", True) else tuple(map(str, func.signatures))
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
    except TypeError:  # no weak reference, or no hash
        return uuid.uuid4().hex


_own_tokens: MutableMapping[Any, str] = weakref.WeakKeyDictionary()
