"""Recipes: what a call leaves behind for those that look the same.

In: a call that is ready to run. Out: its `Recipe`, which runs the kernel on other arrays of the same types, shapes and
dtypes: what it gets is protected, and what it returns is checked, as on the common road. Of a lazy call what lowers it
again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import getrefcount
from types import EllipsisType
from typing import Any, Final, TypeAlias

import numpy as np

from ._arguments import is_constant
from ._blocks import BlockRunner
from ._evaluate import Prepared, unbox
from ._expectation import Expectation
from ._ownership import own
from ._plan import Operand, Plan
from ._results import check_batch
from ._typing import Array, KernelFunction

__all__ = ["Recipe", "find_recipe", "find_repeat"]

_Index: TypeAlias = EllipsisType | tuple[EllipsisType | None, ...]
"""What makes of an array, as an index, the view that the kernel gets."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that is known of a call before its values are."""

    views: tuple[tuple[int, _Index], ...]  # positions of the arguments that are arrays
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any] | None], ...]  # shape and dtype; None: whatever is returned
    is_tuple: bool  # whether the kernel returns, and the caller gets, a tuple
    is_lent: bool  # whether the outputs go back to another library, which is not to lose what an array of one item says
    runner: BlockRunner
    expected: Expectation

    def run(self, func: KernelFunction, args: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        """Call the kernel on read-only views, and return its outputs, checked."""
        seen = list(args)
        for position, index in self.views:
            seen[position] = seen[position][index]
            seen[position].setflags(False)
        try:
            returned = [func(*seen, **keywords)]  # a list that alone holds it, so that other holders can be told
            outputs: Any = returned[0] if self.is_tuple else returned
            if not self._are_usual(outputs) or getrefcount(outputs) != _TWO_HOLDERS:
                seen.clear()
                del outputs  # which would count as a holder, as the views would
                checked = own(check_batch(returned.pop(), self.expected))
                outputs = checked if self.is_lent else tuple(map(unbox, checked))
        except Exception as error:
            self._add_note(error, args)
            raise
        return outputs  # type: ignore[no-any-return]  # a list or a tuple

    def _are_usual(self, outputs: Any) -> bool:
        """Tell outputs that need nothing done: of the right number, shape and dtype, in memory that is theirs alone."""
        if type(outputs) not in _SEQUENCES or len(outputs) != len(self.outputs):
            return False
        for place, (shape, dtype) in enumerate(self.outputs):
            output = outputs[place]
            kind = type(output)
            if kind is _ndarray:
                if output.shape != shape or not shape or output.base is not None or getrefcount(output) != _TWO_HOLDERS:
                    return False
                flags = output.flags
                if not (flags.owndata and flags.writeable):
                    return False
            elif shape or kind not in _NUMBERS:
                return False
            if dtype is not None and output.dtype != dtype:
                return False
        return True

    def _add_note(self, error: Exception, args: Sequence[Any]) -> None:
        constants = tuple((position, arg) for position, arg in enumerate(args) if is_constant(arg))
        arrays = [arg for arg in args if not is_constant(arg)]
        dataclasses.replace(self.runner, constants=constants).add_note(error, arrays, self.expected)


def find_recipe(prepared: Prepared, seen: Sequence[Any], *, is_lent: bool) -> Recipe | None:
    """Return the recipe of a call whose kernel sees these arguments, lent ones or not; None where it is unusual."""
    return _make_recipe(prepared, seen, is_lent) if _is_usual(prepared) else None


def find_repeat(prepared: Prepared) -> Callable[[Sequence[Array]], tuple[Array, ...]] | None:
    """Return what lowers a lazy call again, on other arrays of the same look; None where it is unusual."""
    return prepared.lowering.repeat(prepared.call, prepared.arrays) if _is_usual(prepared) else None


def _is_usual(prepared: Prepared) -> bool:
    """Tell a call of which the kernel gets views of whole arguments, and whose outputs need no more than a check."""
    call, layout = prepared.call, prepared.layout
    is_moved = bool(layout.absent) or any(permutation is not None for permutation in layout.permutations)
    is_warned = call.dtypes_from == "declared" and call.wanted != call.dtypes
    return not (is_moved or is_warned or call.plan.is_empty or prepared.lowering.traces(call.kernel))


def _make_recipe(prepared: Prepared, seen: Sequence[Any], is_lent: bool) -> Recipe:
    runner, plan = prepared.call.runner, prepared.call.plan
    expected = runner.expectation([arg for arg in seen if not is_constant(arg)])
    views = tuple((position, _index(plan.inputs[position], plan)) for position in runner.array_positions)
    shapes = (tuple(size or 0 for size in output.shape) for output in plan.outputs)  # all are known
    is_tuple = len(plan.outputs) > 1 or plan.signature.always_tuple
    outputs = tuple(zip(shapes, runner.dtypes or (None,) * len(plan.outputs), strict=True))
    return Recipe(views, outputs, is_tuple, is_lent, dataclasses.replace(runner, constants=()), expected)


def _index(operand: Operand | None, plan: Plan) -> _Index:
    missing = 0 if operand is None else plan.n_loop - operand.n_loop
    return (None,) * missing + (...,) if missing else ...


def _count_two_holders() -> int:
    """Return what `getrefcount` says of an object that one container holds, and one local name."""
    container = [object()]
    local = container[0]
    return getrefcount(local)


_ndarray: Final = np.ndarray
_NUMBERS: Final = frozenset(np.dtype(code).type for code in "?bhilqBHILQefdgFDG")
_SEQUENCES: Final = (list, tuple)  # whose parts nobody else holds because of them
_TWO_HOLDERS: Final = _count_two_holders()
