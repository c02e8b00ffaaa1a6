"""The block engine: `BlockRunner` calls or loops the kernel on one block of each argument, and checks what it returned.

One picklable object that every lowering runs. In: blocks, core dims last. Out: a tuple with one array per output, loop dims first.
Knows nothing of chunks, graphs, traces or devices; the shapes that count are those of the blocks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ._kernel import Kernel
from ._options import OutputSizes
from ._plan import Operand, Plan, make_plan, shape_text
from ._results import Expectation, broadcast_to, check_batch, check_items, empty_outputs
from ._signature import Signature
from ._typing import Array, Keywords, Namespace, Shape

__all__ = ["BlockRunner", "is_constant"]


@dataclass(frozen=True, slots=True)
class BlockRunner:
    """A kernel with all that a call of it needs but the blocks."""

    kernel: Kernel
    signature: Signature
    constants: tuple[tuple[int, Any], ...]  # (position among the arguments, Python scalar or None)
    keywords: Keywords
    output_sizes: OutputSizes
    dtypes: tuple[np.dtype[Any], ...] | None  # of the outputs; None: whatever the kernel returns

    def __call__(self, *blocks: Array, location: str = "") -> tuple[Array, ...]:
        """Return the outputs for one block of each array argument; `location` says which, for messages."""
        args = self.insert_constants(blocks)
        plan = make_plan(self.signature, tuple(map(_shape, args)), self.output_sizes)
        expected = Expectation(plan, self.dtypes, _thin_axes(plan), _namespace(blocks, self.kernel))
        if plan.is_empty and self.dtypes is not None:
            return empty_outputs(expected)
        try:
            return self._run(_arrange(args, plan, self.kernel), expected)
        except Exception as error:
            error.add_note(_situation(self, args, location))
            raise

    def insert_constants(self, blocks: Sequence[Array]) -> tuple[Any, ...]:
        """Return all arguments in the signature's order."""
        args = list(blocks)
        for position, value in self.constants:  # in ascending order, so that each lands where it was
            args.insert(position, value)
        return tuple(args)

    def _run(self, args: list[Any], expected: Expectation) -> tuple[Array, ...]:
        with self.kernel.guard():
            if not self.kernel.vectorize:
                return check_batch(self.kernel(*args, **self.keywords), expected)
            items = _items(args, expected.plan, self.kernel)
            returned = [self.kernel(*item, **self.keywords) for item in items]
        return check_items(returned, expected)


def is_constant(arg: object) -> bool:
    """Tell whether an argument reaches the kernel as it is: a Python scalar, or None."""
    return arg is None or type(arg) in (bool, int, float, complex)


def _shape(arg: Any) -> Shape | None:
    return None if arg is None else () if is_constant(arg) else arg.shape


def _namespace(blocks: Sequence[Array], kernel: Kernel) -> Namespace:
    """Return the library in which the outputs are: NumPy, or that of the blocks."""
    return np if kernel.arrays == "numpy" or not blocks else _library(blocks)


def _library(blocks: Sequence[Array]) -> Namespace:
    return np if all(isinstance(block, np.ndarray | np.generic) for block in blocks) else array_namespace(*blocks)


def _thin_axes(plan: Plan) -> tuple[bool, ...]:
    operands = [operand for operand in plan.inputs if operand is not None]
    return tuple(any(_is_thin(operand, axis) for operand in operands) for axis in range(-plan.n_loop, 0))


def _is_thin(operand: Operand, axis: int) -> bool:
    return operand.n_loop < -axis or operand.loop_shape[axis] == 1


def _arrange(args: Sequence[Any], plan: Plan, kernel: Kernel) -> list[Any]:
    """Return the arguments as the kernel sees them: equal loop rank, ``|1`` dims stretched, read-only or private."""
    sizes = dict(plan.sizes)
    arranged = []
    for arg, operand, dims in zip(args, plan.inputs, plan.signature.inputs, strict=True):
        if operand is None or is_constant(arg):
            arranged.append(arg)
            continue
        array = arg[(None,) * (plan.n_loop - operand.n_loop) + (...,)] if operand.n_loop < plan.n_loop else arg
        if any(dim.stretches for dim in dims):
            core_shape = tuple(sizes[dim.label] for dim in dims)
            array = _stretch(array, (*array.shape[: plan.n_loop], *core_shape))
        arranged.append(_protect(array, kernel))
    return arranged


def _stretch(array: Array, shape: tuple[int, ...]) -> Array:
    if array.shape == shape:
        return array
    return broadcast_to(array, shape, _library([array]))


def _protect(array: Array, kernel: Kernel) -> Array:
    """Return a NumPy array that the kernel cannot harm; other libraries' arrays only where it asked to write."""
    if kernel.writable or (kernel.ignores_read_only and isinstance(array, np.ndarray)):
        return array.copy() if isinstance(array, np.ndarray) else _library([array]).asarray(array, copy=True)
    if not isinstance(array, np.ndarray):
        return array
    return _read_only_masked(array) if isinstance(array, np.ma.MaskedArray) else _read_only(array)


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _read_only_masked(array: Any) -> Any:
    """Return a masked view whose data refuse writing, and whose mask is its own."""
    view = np.ma.MaskedArray(np.ma.getdata(array).view(), mask=np.ma.getmask(array), copy=False, fill_value=array.fill_value)
    view.flags.writeable = False
    view.unshare_mask()
    return view


def _items(args: Sequence[Any], plan: Plan, kernel: Kernel) -> Iterator[list[Any]]:
    """Yield each loop item's arguments, core dims only."""
    loop_shape = tuple(int(size) for size in plan.loop_shape if size is not None)
    spread = [
        arg if operand is None or is_constant(arg) else _stretch(arg, (*loop_shape, *arg.shape[plan.n_loop :]))
        for arg, operand in zip(args, plan.inputs, strict=True)
    ]
    varies = [not (operand is None or is_constant(arg)) for arg, operand in zip(args, plan.inputs, strict=True)]
    for index in np.ndindex(loop_shape):
        yield [_item(arg, index, kernel) if v else arg for arg, v in zip(spread, varies, strict=True)]


def _item(array: Array, index: tuple[int, ...], kernel: Kernel) -> Any:
    item = array[index]
    return item.copy() if kernel.writable and isinstance(item, np.ndarray) else item  # a stretched axis is shared


def _situation(runner: BlockRunner, args: Sequence[Any], location: str) -> str:
    block = f", block {location}" if location else ""
    described = ", ".join(map(_describe, args))
    return f"in kernel {runner.kernel.name!r} with signature {str(runner.signature)!r}, called with {described}{block}"


def _describe(arg: Any) -> str:
    return repr(arg) if is_constant(arg) else f"{arg.dtype}{shape_text(arg.shape)}"
