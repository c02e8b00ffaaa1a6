"""Kernels' exceptions where only a text can travel: kept here under a token, and raised again by `reraise`.

In: an exception on the host side of a callback. Out: the words to send in its place, and later the exception itself.
Knows no array library: an error that carries such words is known by the token in its text.
"""

from __future__ import annotations

import itertools
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeAlias

__all__ = ["keep_failure", "reraise"]


@contextmanager
def reraise() -> Iterator[None]:
    """
    Raise what the kernel raised, in place of the error that JAX makes of it inside ``jax.jit``.

    JAX passes on only the text of an exception. When such an error leaves the block, the kernel's own exception is
    raised instead, with its own type, the kernel's frames in its traceback, and JAX's error as its cause. Any other
    exception passes as it is. The last 16 exceptions of a process are kept for this.

    JAX returns before the kernel has run, so call `jax.block_until_ready` inside the block. JAX also logs each such
    text as an error, on the logger ``jax._src.callback``, whether or not the exception is restored.

    Examples
    --------
    >>> import applyufunc as au
    >>> with au.reraise():
    ...     pass  # jax.block_until_ready(step(x))
    """
    try:
        yield
    except Exception as error:
        kept = _find_failure(error)
        if kept is None:
            raise
        exception, traceback = kept
        exception.__cause__ = exception.__cause__ or error  # one that the kernel chained stays
        raise exception.with_traceback(traceback)  # noqa: B904  # the cause is set above


def keep_failure(kernel_name: str, error: Exception) -> str:
    """Return the words to send in place of `error`: kernel and error first, the token last."""
    token = f"{_PROCESS}-{next(_count)}"
    with _lock:
        _kept[token] = error, error.__traceback__
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    lines = (f"kernel {kernel_name!r} failed with {type(error).__name__}: {error}", *getattr(error, "__notes__", ()))
    return "\n".join((*lines, f"[applyufunc.reraise() around the call raises this exception itself; failure {token}]"))


def _find_failure(error: BaseException | None) -> _Failure | None:
    """Return the kept exception, with its traceback, that `error`, or what it was raised from, stands for."""
    while error is not None:
        match = _TOKEN.search(str(error))
        if match and (kept := _kept.get(match[1])):
            return kept
        error = error.__cause__
    return None


_Failure: TypeAlias = tuple[Exception, TracebackType | None]
_KEPT: Final = 16  # exceptions; each holds the blocks of its call through its frames
_PROCESS: Final = uuid.uuid4().hex[:8]  # an error may come from another process, or another copy of this package
_TOKEN: Final = re.compile(rf"failure ({_PROCESS}-\d+)\]")
_kept: OrderedDict[str, _Failure] = OrderedDict()
_count = itertools.count(1)
_lock = threading.Lock()
