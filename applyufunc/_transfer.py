"""Leave to move arrays to the host or to densify them: a context manager, local to the thread and the task.

Says whether leave was given; moves nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["allow_transfer", "transfer_is_allowed"]

_allowed: ContextVar[bool] = ContextVar("applyufunc_allow_transfer", default=False)


@contextmanager
def allow_transfer() -> Iterator[None]:
    """
    Let kernels that take NumPy arrays be applied to arrays whose library refuses a hidden copy to the host.

    Inside the block every call behaves as with the option ``allow_transfer=True``. Without leave, an array on another
    device, or one that would have to be densified, is refused by name before any work. The leave holds for the current
    thread and the current `asyncio` task alone.

    Examples
    --------
    >>> import applyufunc as au
    >>> with au.allow_transfer():
    ...     pass  # calls on arrays of another device
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def transfer_is_allowed(option: bool) -> bool:
    """Tell whether leave was given, by the option or by the context."""
    return option or _allowed.get()
