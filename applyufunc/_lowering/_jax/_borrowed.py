"""A kernel on memory that is XLA's: read where it is, filled in place, and left alone when the call is over.

In: the frame of one call. Out: nothing, or the words of an error. XLA uses memory again as soon as the call has
ended, so that a kernel which keeps a view of its argument would read something else later. The first call of a kernel
therefore gets copies; one that keeps them gets copies ever after. One that begins to keep its arguments later is
refused, for that call; and an exception, whose frames hold them, is kept without its local variables, for that call.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..._blocks import BlockRunner
from ..._errors import KernelError
from ..._failures import failure_text, keep_failure
from ..._typing import Array
from ._filling import Filler, make_filler
from ._guard import without_jax
from ._pages import LARGE, ask_for_large_pages
from ._xla_abi import ArrayMaker, Frame, OperandType, arrays_at, makers_to_fill, makers_to_read

__all__ = ["BorrowingKernel", "Form", "make_form"]


class BorrowingKernel:
    """A block runner as XLA calls it, with what is known of how its kernel treats its arguments."""

    __slots__ = ("__weakref__", "_gets_copies", "runner")

    def __init__(self, runner: BlockRunner) -> None:
        self.runner = runner
        self._gets_copies: bool | None = None  # None: until it is known whether it keeps them

    def __call__(self, form: Form, frame: Frame) -> str:
        """Fill the outputs; return what went wrong, in words that can travel, or nothing."""
        gets_copies = self._gets_copies  # another thread may learn otherwise meanwhile
        lent = arrays_at(frame.inputs, frame.n_inputs, form.inputs)
        if gets_copies is not False:
            lent = list(map(_copied, lent))
        filled = arrays_at(frame.outputs, frame.n_outputs, form.outputs)
        for position in form.large_outputs:
            ask_for_large_pages(filled[position])
        try:
            with without_jax(self.runner.kernel):
                form.filler(lent, filled)
        except BaseException as error:  # noqa: BLE001  # what leaves a foreign call is lost, and the call a success
            return self._keep_failure(error, lent, is_borrowed=gets_copies is False)
        else:
            if gets_copies is False:
                return self._refuse_kept(lent) if _is_any_held(lent) else ""
            if gets_copies is None and not form.is_empty:  # without elements the kernel has not run
                self._gets_copies = _is_any_held(lent) or bool(self._gets_copies)
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
                error = KernelError(failure_text(error))
        return keep_failure(self.runner.kernel.name, error)


@dataclass(frozen=True, slots=True)
class Form:
    """What the calls with operands of certain types have in common."""

    inputs: tuple[ArrayMaker, ...]
    outputs: tuple[ArrayMaker, ...]
    filler: Filler
    is_empty: bool  # whether an operand has no elements
    large_outputs: tuple[int, ...]  # the positions of those that are worth large pages


def make_form(runner: BlockRunner, inputs: tuple[OperandType, ...], outputs: tuple[OperandType, ...]) -> Form:
    """Return the form of the calls with operands of these types."""
    blocks = [np.broadcast_to(np.zeros((), dtype), shape) for dtype, shape in inputs]
    is_empty = any(0 in shape for _, shape in (*inputs, *outputs))
    large = tuple(n for n, (dtype, shape) in enumerate(outputs) if dtype.itemsize * math.prod(shape) >= LARGE)
    return Form(makers_to_read(inputs), makers_to_fill(outputs), make_filler(runner, blocks), is_empty, large)


def _copied(view: Array) -> Array:
    """Return the values in memory of their own, which nobody can make writable, as nobody can XLA's."""
    return np.ndarray(view.shape, view.dtype, view.tobytes())


def _is_any_held(lent: list[Array]) -> bool:
    """Tell whether something else leads still to one of the arrays, be it through a view."""
    for count in map(sys.getrefcount, lent):  # noqa: SIM110  # a generator costs a small call a microsecond more
        if count > _ONE_HOLDER:
            return True
    return False


def _wait_for_release(lent: list[Array]) -> list[int]:
    """Return the places of what is still held when reference cycles are gone, and other threads have let go."""
    gc.collect()
    end = time.monotonic() + _PATIENCE
    while _is_any_held(lent) and time.monotonic() < end:
        time.sleep(0.001)
    return [place for place, count in enumerate(map(sys.getrefcount, lent)) if count > _ONE_HOLDER]


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
        waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


_ONE_HOLDER: Final = max(map(sys.getrefcount, [np.empty(0)]))
"""What `sys.getrefcount` says of an object that one list holds."""

_PATIENCE: Final = 0.1  # seconds
