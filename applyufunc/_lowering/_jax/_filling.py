"""A kernel's outputs written where they belong: `Filler` runs a block runner and fills arrays that are there already.

In: NumPy blocks of numbers, read-only, and the arrays to fill, all of the shapes and dtypes that a filler was made for.
Out: nothing; what goes wrong is raised with the runner's note. Does what the runner does, without looking again at
what is the same at every call, and writes each output once. Knows no memory but NumPy's, and nothing of XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._arguments import is_constant
from ..._blocks import BlockRunner
from ..._expectation import Expectation
from ..._results import check_batch
from ..._slices import Cut
from ..._typing import Array, Shape
from ._direct import refuse_mask

__all__ = ["Filler", "make_filler"]


@dataclass(frozen=True, slots=True)
class Filler:
    """A block runner for blocks of certain shapes and dtypes."""

    runner: BlockRunner
    expected: Expectation
    arrange: Callable[[Sequence[Array]], Sequence[Any]] | None  # makes arguments of blocks; None: blocks are arguments
    function: Callable[..., Any] | None  # None: it takes more than to call it, such as a loop
    is_ufunc: bool  # whether NumPy's own `out` gives the declared dtypes
    cuts: Sequence[Cut]  # slices in which the kernel gets blocks; none, where it gets them whole
    is_single: bool  # whether the kernel returns its only output, and no tuple

    def __call__(self, blocks: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Fill `outputs` with what the kernel returns for one block of each array argument."""
        if self.cuts:
            for cut, values in self.runner.run_slices(blocks, self.cuts):
                self._copy(values, [output[cut] for output in outputs])
            return
        if self.function is None:
            self._copy(self.runner(*blocks), outputs)
            return
        try:
            args = blocks if self.arrange is None else self.arrange(blocks)
            with self.runner.kernel.guard():  # until nothing is left that the kernel's next call might change
                if self.is_ufunc:
                    self.function(*args, out=tuple(outputs))
                else:
                    self._deliver(self.function(*args), outputs)
        except Exception as error:
            self.runner.add_note(error, blocks, self.expected)
            raise

    def _deliver(self, returned: Any, outputs: Sequence[Array]) -> None:
        """Copy what the kernel returned; the usual case, an array that is as declared, needs no more than a look."""
        is_array = type(returned) is np.ndarray and self.is_single
        if is_array and (returned.shape, returned.dtype) == (outputs[0].shape, outputs[0].dtype):
            np.copyto(outputs[0], returned)
        else:
            self._copy(check_batch(returned, self.expected), outputs)

    @staticmethod
    def _copy(values: Sequence[Array], outputs: Sequence[Array]) -> None:
        for position, value in enumerate(values):  # no name for an output: the caller empties the list
            refuse_mask(value, f"output {position}")
            np.copyto(outputs[position], value)


def make_filler(runner: BlockRunner, blocks: Sequence[Array]) -> Filler:
    """Return the filler for blocks such as these."""
    expected = runner.expectation(blocks)
    shapes = _aligned_shapes(runner, expected)
    arrange = partial(_arrange, runner, shapes) if runner.constants or any(shapes) else None
    function = runner.function(expected) if _is_called_as_it_is(runner, expected) else None
    is_ufunc = function is not None and _is_plain_ufunc(runner, blocks)
    is_single = runner.signature.nout == 1 and not runner.signature.always_tuple
    return Filler(runner, expected, arrange, function, is_ufunc, runner.cuts(blocks), is_single)


def _aligned_shapes(runner: BlockRunner, expected: Expectation) -> tuple[Shape | None, ...]:
    """Return the shape that each block has with the loop dims that it lacks; None where it lacks none."""
    n_loop = expected.plan.n_loop
    operands = [expected.plan.inputs[position] for position in runner.array_positions]
    missing = [(operand, n_loop - operand.n_loop) for operand in operands if operand is not None]
    return tuple((1,) * n_missing + operand.shape if n_missing else None for operand, n_missing in missing)


def _arrange(runner: BlockRunner, shapes: Sequence[Shape | None], blocks: Sequence[Array]) -> Sequence[Any]:
    pairs = zip(blocks, shapes, strict=True)
    return runner.insert_constants([block if shape is None else block.reshape(shape) for block, shape in pairs])


def _is_called_as_it_is(runner: BlockRunner, expected: Expectation) -> bool:
    """Tell a kernel that takes the whole block, read-only, with nothing stretched."""
    kernel = runner.kernel
    needs_work = kernel.vectorize or kernel.writable or kernel.gets_copies or kernel.compute_dtype is not None
    return not (needs_work or expected.plan.is_empty) and not any(
        dim.stretches for dims in runner.signature.inputs for dim in dims
    )


def _is_plain_ufunc(runner: BlockRunner, blocks: Sequence[Array]) -> bool:
    """Tell a ufunc that has outputs of the declared dtypes and of the loop's shape by itself, and takes no turns."""
    func, signature = runner.kernel.func, runner.signature
    has_core_dims = any((*signature.inputs, *signature.outputs))
    if not isinstance(func, np.ufunc) or has_core_dims or runner.keywords or not runner.kernel.thread_safe:
        return False
    if func.signature is not None:  # a gufunc, which would stretch an output that has lost loop dims
        return False
    args = runner.insert_constants(blocks)
    dtypes: list[Any] = [type(arg) if is_constant(arg) else arg.dtype for arg in args]
    try:
        resolved = func.resolve_dtypes((*dtypes, *(None,) * func.nout))
    except TypeError:
        return False
    return resolved[func.nin :] == runner.dtypes
