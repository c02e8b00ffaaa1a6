"""Kernels' exceptions where only a text can travel: kept here under a token, and raised again by `reraise`.

In: an exception on the host side of a callback. Out: the words to send in its place, and later the exception itself.
Knows no array library: an error that carries such words is known by the token in its text.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeAlias

from ._errors import KernelError

__all__ = ["failure_text", "keep_failure", "reraise"]


class reraise:  # noqa: N801  # used as a function, as contextlib.suppress is
    """
    Raise what the kernel raised, in place of the error that JAX makes of it inside ``jax.jit``.

    JAX passes on only the text of an exception. When such an error leaves the block, the kernel's own exception is
    raised instead, with its own type, the kernel's frames in its traceback, and JAX's error as its cause. Any other
    exception passes as it is, and so does one that a block inside this one has raised. The last 16 exceptions of a
    process are kept for this, each until it is raised: where JAX fails once more for the same result, its own error is
    what comes.

    JAX returns before the kernel has run, so call `jax.block_until_ready` inside the block. With
    ``callback="pure_callback"`` JAX also logs each such text as an error, on the logger ``jax._src.callback``, whether
    or not the exception is restored.

    Examples
    --------
    >>> import applyufunc as au
    >>> with au.reraise():
    ...     pass  # jax.block_until_ready(step(x))
    """

    # No generator, in which a StopIteration of the kernel would become another error.

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        kept = None if error is None else _take_failure(error)
        if kept is None:
            return
        exception, own_traceback = kept
        with contextlib.suppress(Exception):  # an exception may refuse attributes
            if exception.__cause__ is None:  # one that the kernel chained stays
                exception.__cause__ = error
        try:
            raise exception.with_traceback(own_traceback)
        finally:
            del kept, exception, own_traceback  # which lead back to this frame, and would keep the blocks alive


def keep_failure(kernel_name: str, error: BaseException) -> str:
    """Return the words to send in place of `error`: kernel and error first, the token last."""
    token = f"{_PROCESS}-{next(_count)}"
    with _lock:
        _kept[token] = error, object.__getattribute__(error, "__traceback__")
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    lines = [
        f"kernel {kernel_name!r} failed with {failure_text(error)}",
        *_notes(error),
        f"[applyufunc.reraise() around the call raises this exception itself; failure {token}]",
    ]
    # In C a text ends at the first zero; JAX ends the process where one has no bytes in UTF-8.
    return "\n".join(lines).replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def failure_text(error: BaseException) -> str:
    """Return the type and the text of an exception, either of which may fail in any way where it is asked for."""
    return f"{_words(lambda: type(error).__name__)}: {_words(lambda: str(error))}"


def _notes(error: BaseException) -> list[str]:
    try:
        return [f"{note}" for note in getattr(error, "__notes__", None) or ()]
    except BaseException as other:  # noqa: BLE001  # as its text may
        return [f"(its notes raised {type(other).__name__})"]


def _words(ask: Callable[[], str]) -> str:
    try:
        return f"{ask()}"
    except BaseException as other:  # noqa: BLE001  # what it raises must not take the place of the exception itself
        return f"(its text raised {type(other).__name__})"


def _take_failure(error: BaseException) -> _Failure | None:
    """Return the kept exception, with its traceback, that an error of JAX stands for, and forget it.

    Where a kernel passes on JAX's own error, it is the exception that this one stands for; where it writes such an
    error into a text of its own, the token that counts is the last one.
    """
    found: _Failure | None = None
    while issubclass(type(error), KernelError) or _is_of_jax(error):
        tokens = _TOKEN.findall(str(error))
        with _lock:
            kept = _kept.pop(tokens[-1], None) if tokens else None
        if kept is None:
            break
        found, error = kept, kept[0]
    return found


def _is_of_jax(error: BaseException) -> bool:
    """Tell an error of JAX's, which is a plain ValueError where several results are waited for at once."""
    is_of_status = type(error) is ValueError and failure_text(error).startswith("ValueError: INTERNAL: ")
    return is_of_status or type(error).__module__.partition(".")[0] in ("jax", "jaxlib")


_Failure: TypeAlias = tuple[BaseException, TracebackType | None]
_KEPT: Final = 16  # exceptions; each holds the blocks of its call through its frames
_PROCESS: Final = uuid.uuid4().hex[:8]  # an error may come from another process, or another copy of this package
_TOKEN: Final = re.compile(rf"failure ({_PROCESS}-\d+)\]")
_kept: OrderedDict[str, _Failure] = OrderedDict()
_count = itertools.count(1)
_lock = threading.Lock()
