"""The Jacobian of a kernel found by calling it: by complex steps, or by central differences, in float64.

In: a runner of the kernel, and NumPy blocks. Out: arrays with the core dims of an output, then of an argument, as a
kernel would return them. Knows no transformations, and how a derivative is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ._arguments import is_constant
from ._blocks import BlockRunner, add_note, input_shapes
from ._errors import OutputDTypeError
from ._plan import make_plan

__all__ = ["NumericJacobian"]


@dataclass(frozen=True, slots=True, eq=False)
class NumericJacobian:
    """A function on blocks that returns the wanted parts of the Jacobian."""

    runner: BlockRunner  # of the kernel, whose outputs come as it returns them
    step: Literal["complex-step", "finite-difference"]
    wanted: tuple[int, ...]  # places in the row of all outputs' derivatives by all arguments

    def __call__(self, *args: Any) -> Any:
        nin = self.runner.signature.nin
        blocks = {position: _in_float64(arg) for position, arg in enumerate(args) if not is_constant(arg)}
        arguments = sorted({place % nin for place in self.wanted})
        found = {place: part for a in arguments for place, part in self._by_argument(blocks, a).items()}
        parts = tuple(found[place] for place in self.wanted)
        return parts if len(parts) > 1 else parts[0]

    def _by_argument(self, blocks: _Blocks, argument: int) -> dict[int, _Block]:
        """Return the wanted derivatives by one argument."""
        signature = self.runner.signature
        core = blocks[argument].shape[blocks[argument].ndim - len(signature.inputs[argument]) :]
        columns = {
            place: [self._no_column(blocks, place)] for place in self.wanted if place % signature.nin == argument
        }
        for directions in _directions(blocks[argument], core):
            changes = self._changes(blocks, argument, directions)
            for place, found in columns.items():
                found.append(np.moveaxis(changes[place // signature.nin], 0, -1))
        joined = {place: np.concatenate(found, axis=-1) for place, found in columns.items()}
        return {place: array.reshape((*array.shape[:-1], *core)) for place, array in joined.items()}

    def _no_column(self, blocks: _Blocks, place: int) -> _Block:
        """Return a part of the Jacobian before any column of it is found."""
        shapes = input_shapes(self.runner.insert_constants(tuple(blocks.values())), self.runner.signature)
        plan = make_plan(self.runner.signature, shapes, self.runner.output_sizes)
        output = plan.outputs[place // self.runner.signature.nin]
        return np.empty((*(size or 0 for size in output.shape), 0))

    def _changes(self, blocks: _Blocks, argument: int, directions: _Block) -> list[_Block]:
        """Return how fast each output changes in each direction, the first axis."""
        block = blocks[argument]
        if self.step == "complex-step":
            outputs = self._call(blocks, argument, block + 1j * _STEP * directions)
            _check_complex(outputs, argument)
            return [np.imag(output) / _STEP for output in outputs]
        step = _RELATIVE * np.maximum(1, np.abs(block)) * directions
        above, below = (self._call(blocks, argument, block + sign * step) for sign in (1, -1))
        n_core = len(self.runner.signature.inputs[argument])
        width = step.sum(axis=tuple(range(step.ndim - n_core, step.ndim)))  # of one element each, along the loop
        return [_slope(*pair, width) for pair in zip(above, below, strict=True)]

    def _call(self, blocks: _Blocks, argument: int, changed: _Block) -> tuple[_Block, ...]:
        """Return the outputs with one more loop dim in front, that of the directions."""
        given = {position: block[None] for position, block in blocks.items()} | {argument: changed}
        try:
            return self.runner(*given.values())
        except TypeError as error:
            if self.step == "complex-step":
                add_note(error, "complex-step calls the kernel on complex numbers; jac='finite-difference' does not")
            raise


def _in_float64(block: _Block) -> _Block:
    """Return a block of short floats, those of ml_dtypes too, as one that small steps do not get lost in."""
    return block.astype(np.float64) if block.dtype.kind in "fV" else block


def _directions(block: _Block, core: Sequence[int]) -> Iterator[_Block]:
    """Return unit steps of each core element, as many at once as the block leaves room for."""
    n_elements = math.prod(core)
    n_at_once = max(1, _BYTES // max(1, block.nbytes))
    for start in range(0, n_elements, n_at_once):
        units = np.eye(min(n_at_once, n_elements - start), n_elements, start)
        yield units.reshape((len(units), *(1,) * (block.ndim - len(core)), *core))


def _slope(above: _Block, below: _Block, width: _Block) -> _Block:
    change: _Block = above.astype(np.result_type(above, np.float64)) - below
    change /= 2 * width.reshape((*width.shape, *(1,) * (change.ndim - width.ndim)))
    return change


def _check_complex(outputs: Sequence[_Block], argument: int) -> None:
    """Refuse a kernel whose outputs have lost the imaginary part, which a derivative of zero would look like."""
    if not any(np.iscomplexobj(output) for output in outputs):
        raise OutputDTypeError(
            f"complex-step: kernel returned no complex output for a complex argument {argument}, so that it cannot be "
            f"differentiated so: pass jac='finite-difference', or a kernel for jac, vjp or jvp"
        )


_Block: TypeAlias = np.ndarray[Any, Any]
_Blocks: TypeAlias = dict[int, _Block]  # by position of the argument

_STEP: Final = 1e-30  # of the imaginary part; its square vanishes beside any real part
_RELATIVE: Final = float(np.cbrt(np.finfo(np.float64).eps))  # balances rounding and the third derivative
_BYTES: Final = 16 * 2**20  # bytes of the changed argument that one call of the kernel gets
