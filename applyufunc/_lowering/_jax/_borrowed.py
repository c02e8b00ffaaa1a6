"""A kernel on memory that is XLA's: read where it is, filled in place, and left alone when the call is over.

In: the operands of one call. Out: nothing, or the words of an error. XLA uses memory again as soon as the call has
ended, so that a kernel which keeps a view of its argument would read something else later. The first call of a kernel
therefore gets copies; one that keeps them gets copies ever after. One that begins to keep its arguments later is
refused, for that call; and an exception, whose frames hold them, is kept without its local variables, for that call.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..._blocks import BlockRunner
from ..._errors import KernelError
from ..._failures import keep_failure
from ..._typing import Array
from ._filling import Filler, make_filler
from ._guard import without_jax
from ._xla_abi import OperandType, arrays_to_fill, arrays_to_read

__all__ = ["BorrowingKernel", "Form", "make_form"]


class BorrowingKernel:
    """A block runner as XLA calls it, with what is known of how its kernel treats its arguments."""

    __slots__ = ("__weakref__", "_gets_copies", "runner")

    def __init__(self, runner: BlockRunner) -> None:
        self.runner = runner
        self._gets_copies: bool | None = None  # None: until it is known whether it keeps them

    def __call__(self, form: Form, inputs: Sequence[int], outputs: Sequence[int]) -> str:
        """Fill the outputs; return what went wrong, in words that can travel, or nothing."""
        gets_copies = self._gets_copies  # another thread may learn otherwise meanwhile
        lent = arrays_to_read(form.inputs, inputs)
        if gets_copies is not False:
            lent = list(map(_copied, lent))
        filled = arrays_to_fill(form.outputs, outputs)
        try:
            with without_jax():
                form.filler(lent, filled)
        except BaseException as error:  # noqa: BLE001  # what leaves a foreign call is lost, and the call a success
            return self._keep_failure(error, lent, is_borrowed=gets_copies is False)
        else:
            if gets_copies is False:
                return self._refuse_kept(lent) if _held(lent) else ""
            if gets_copies is None and not form.is_empty:  # without elements the kernel has not run
                self._gets_copies = bool(_held(lent) or self._gets_copies)
            return ""
        finally:
            lent.clear()  # these lists are kept with the frames of what was raised
            filled.clear()

    def _refuse_kept(self, lent: list[Array]) -> str:
        """Return the words for a kernel that has kept arguments which are not copies; the next time they will be."""
        self._gets_copies = True
        held = _wait_for_release(lent)
        if not held:
            return ""
        named = ", ".join(f"argument {self.runner.array_positions[place]}" for place in held)
        error = KernelError(
            f"the kernel keeps a view of {named} after its call, when that memory holds other values: keep a copy of "
            f"it, or pass callback='pure_callback'"
        )
        return keep_failure(self.runner.kernel.name, error)

    def _keep_failure(self, error: BaseException, lent: list[Array], *, is_borrowed: bool) -> str:
        """Return the words for an exception, which is kept without what leads to memory that is XLA's."""
        if is_borrowed:
            self._gets_copies = True  # so that the next exception has its local variables
            _clear_frames(error)
            if _wait_for_release(lent):  # the exception itself holds an array
                error = KernelError(f"{type(error).__name__}: {error}")
        return keep_failure(self.runner.kernel.name, error)


@dataclass(frozen=True, slots=True)
class Form:
    """What the calls with operands of certain types have in common."""

    inputs: tuple[OperandType, ...]
    outputs: tuple[OperandType, ...]
    filler: Filler

    @property
    def is_empty(self) -> bool:
        """Whether an operand has no elements."""
        return any(0 in shape for _, shape in (*self.inputs, *self.outputs))


def make_form(runner: BlockRunner, inputs: tuple[OperandType, ...], outputs: tuple[OperandType, ...]) -> Form:
    """Return the form of the calls with operands of these types."""
    blocks = [np.broadcast_to(np.zeros((), dtype), shape) for dtype, shape in inputs]
    return Form(inputs, outputs, make_filler(runner, blocks))


def _copied(view: Array) -> Array:
    """Return the values in memory of their own."""
    copied = view.copy()
    copied.setflags(write=False)
    return copied


def _held(lent: list[Array]) -> list[int]:
    """Return the places of the arrays to which something else leads still, be it through a view."""
    return [place for place in range(len(lent)) if sys.getrefcount(lent[place]) > _ONE_HOLDER]


def _wait_for_release(lent: list[Array]) -> list[int]:
    """Return the places of what is still held when reference cycles are gone, and other threads have let go."""
    gc.collect()
    end = time.monotonic() + _PATIENCE
    while (held := _held(lent)) and time.monotonic() < end:
        time.sleep(0.001)
    return held


def _clear_frames(error: BaseException) -> None:
    """Take the local variables out of every frame that an exception, or one that led to it, keeps."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


_HOLDER: Final = [np.empty(0)]
_ONE_HOLDER: Final = sys.getrefcount(_HOLDER[0])
"""What `sys.getrefcount` says of an object that one list holds."""

_PATIENCE: Final = 0.1  # seconds
