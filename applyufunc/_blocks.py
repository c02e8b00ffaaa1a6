"""The block engine: `BlockRunner` calls or loops the kernel on one block of each argument, and checks what it returned.

One picklable object that every lowering runs. In: blocks, core dims last. Out: a tuple with one array per output, loop
dims first. Knows nothing of chunks, graphs, traces or devices; the shapes that count are those of the blocks
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, Final

import numpy as np
from array_api_compat import device, is_jax_array, is_torch_array

from ._arguments import arrange, count_items, is_constant, library_of, walk_all
from ._casting import family, numpy_dtype
from ._compiled import advice_for, is_numba
from ._compute_dtype import dtype_of_results
from ._errors import ApplyUfuncError, OutputShapeError, UnknownDTypeError, UnknownSizeError
from ._expectation import Expectation
from ._items import Column, collect_items
from ._kernel import Kernel
from ._option_values import OutputSizes, UpTo
from ._ownership import own
from ._plan import Operand, Plan, make_plan, shape_text
from ._results import cast_output, check_batch, check_items, empty_outputs
from ._returned import kind_text
from ._signature import CoreDim, Signature
from ._slices import Cut, assemble, cut_loop, slice_of, slice_sizes, within
from ._threads import SharedItems, collect_in_threads
from ._typing import Array, DType, Keywords, Namespace, Shape

__all__ = ["BlockRunner", "Selection", "add_note", "input_shapes", "location_text"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of the outputs that a function returns are wanted, for messages to those who wrote it."""

    signature: Signature  # with all outputs
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockRunner:
    """A kernel with all that a call of it needs but the blocks."""

    kernel: Kernel
    signature: Signature
    constants: tuple[tuple[int, Any], ...]  # (position among the arguments, Python scalar or None)
    keywords: Keywords
    output_sizes: OutputSizes
    dtypes: tuple[np.dtype[Any], ...] | None  # of the outputs; None: whatever the kernel returns
    found: bool = False  # whether the dtypes are those that a call on made-up values gave
    selected: Selection | None = None  # where the function returns more outputs than the signature has
    filled_dtypes: tuple[np.dtype[Any], ...] | None = None  # of arrays that the kernel fills, before they are narrowed

    def __call__(self, *blocks: Array, location: Sequence[slice] = ()) -> tuple[Array, ...]:
        """Return the outputs for one block of each array argument, which nobody else holds.

        `location` says, for messages, which part of each loop dim the block is.
        """
        cuts = self.cuts(blocks)
        if cuts:
            return self._run_cut(blocks, cuts, location)
        return self._run_whole(blocks, location)

    def cuts(self, blocks: Sequence[Array]) -> Sequence[Cut]:
        """Return the slices in which the kernel gets such blocks; none, where it gets them whole."""
        limit = self.kernel.block_bytes
        if limit is None:
            return ()
        try:
            plan = self.plan(blocks)
        except ApplyUfuncError:  # which comes again, with a note, where nothing is cut
            return ()
        cuts = cut_loop(plan, slice_sizes(plan, self.itemsizes([block.dtype for block in blocks]), limit))
        return cuts if len(cuts) > 1 else ()

    def itemsizes(self, dtypes: Sequence[DType]) -> list[int | None]:
        """Return the bytes of an element of each argument, for arrays of these dtypes, and of each output."""
        sizes = [numpy_dtype(dtype).itemsize for dtype in dtypes]
        own = dict(zip(self.array_positions, sizes, strict=True))
        widest = max(sizes, default=np.dtype(float).itemsize)  # as the outputs will be, for all that is known
        outputs = [widest] * self.signature.nout if self.dtypes is None else [dtype.itemsize for dtype in self.dtypes]
        return [*map(own.get, range(self.signature.nin)), *outputs]

    def run_slices(
        self, blocks: Sequence[Array], cuts: Sequence[Cut], location: Sequence[slice] = ()
    ) -> Iterator[tuple[Cut, tuple[Array, ...]]]:
        """Yield the slices, each with the outputs of the kernel on it."""
        runner = replace(self, kernel=replace(self.kernel, block_bytes=None))
        operands = [self.plan(blocks).inputs[position] for position in self.array_positions]
        pairs = [(block, operand) for block, operand in zip(blocks, operands, strict=True) if operand]
        known: dict[tuple[Shape, ...], Expectation] = {}  # most slices have the same shape
        for cut in cuts:
            parts = [slice_of(block, operand, cut) for block, operand in pairs]
            shapes = tuple(part.shape for part in parts)
            if shapes not in known:
                known[shapes] = runner.expectation(parts)
            yield cut, runner._run_whole(parts, within(location, cut), known[shapes])

    def expectation(self, blocks: Sequence[Array]) -> Expectation:
        """Return what the outputs for such blocks have to be."""
        return _expectation(self, self.plan(blocks), blocks)

    def plan(self, blocks: Sequence[Array]) -> Plan:
        """Return the plan for blocks, or types, of such shapes."""
        shapes = input_shapes(self.insert_constants(blocks), self.signature)
        try:
            return make_plan(self.signature, shapes, self.output_sizes)
        except TypeError:  # a compiler's symbolic sizes have no hash
            return make_plan.__wrapped__(self.signature, shapes, self.output_sizes)

    def function(self, expected: Expectation) -> Callable[..., Any]:
        """Return the function to call with the arguments alone."""
        function = partial(self._fill, expected) if self.kernel.fills_outputs else self.kernel.func
        return partial(function, **self.keywords) if self.keywords else function

    def compiled_dtypes(self, plan: Plan, dtypes: Sequence[DType]) -> tuple[np.dtype[Any], ...] | None:
        """Return what a compiled loop says of its outputs for such inputs; None where there is none."""
        if self.kernel.vectorize != "numba" or self.kernel.compute_dtype is not None:
            return None
        from ._compiled_loop import compiled_dtypes  # imports Numba

        return compiled_dtypes(self.kernel, plan, dtypes, self.keywords)

    def add_note(self, error: Exception, blocks: Sequence[Array], expected: Expectation) -> None:
        """Say, of an exception, what the kernel was called with."""
        add_note(error, _Situation(self, self.insert_constants(blocks), (), expected, None).text(error))

    def insert_constants(self, blocks: Sequence[Array]) -> tuple[Any, ...]:
        """Return all arguments in the signature's order."""
        args = list(blocks)
        for position, value in self.constants:  # in ascending order, so that each lands where it was
            args.insert(position, value)
        return tuple(args)

    @property
    def array_positions(self) -> tuple[int, ...]:
        """Positions, among all arguments, of those that are arrays."""
        constants = dict(self.constants)
        return tuple(position for position in range(self.signature.nin) if position not in constants)

    @property
    def n_core_inputs(self) -> tuple[int, ...]:
        """How many core dims each argument has that is an array."""
        return tuple(len(self.signature.inputs[position]) for position in self.array_positions)

    def _run_whole(
        self, blocks: Sequence[Array], location: Sequence[slice], expected: Expectation | None = None
    ) -> tuple[Array, ...]:
        """Return the outputs of the kernel on whole blocks, or on each of their items."""
        args = self.insert_constants(blocks)
        waiting: Sequence[Iterator[Any]] | SharedItems | None = None
        try:
            expected = expected or self.expectation(blocks)
            plan = expected.plan
            if plan.is_empty and self.dtypes is not None:
                return empty_outputs(expected)
            if not self.kernel.vectorize:
                return self._finish(self._run_on_batch(args, expected), blocks, expected)
            outputs = self._run_compiled(args, expected)
            if outputs is not None:
                return self._finish(outputs, blocks, expected)
            waiting = _share(walk_all(arrange(args, plan, self.kernel), plan, self.kernel), plan, self.kernel)
            returned = self._run_on_items(waiting, expected)
            waiting = None
            return self._finish(check_items(returned, expected), blocks, expected)
        except Exception as error:
            add_note(error, _Situation(self, args, location, expected, waiting).text(error))
            raise

    def _run_cut(self, blocks: Sequence[Array], cuts: Sequence[Cut], location: Sequence[slice]) -> tuple[Array, ...]:
        """Return the outputs of the kernel, slice by slice."""
        try:
            parts = self.run_slices(blocks, cuts, location)
            return assemble(parts, self.plan(blocks), _namespace(blocks, self.kernel))
        except Exception as error:
            if not getattr(error, "__notes__", ()):  # of slices that do not fit together
                self.add_note(error, blocks, self.expectation(blocks))
            raise

    def _run_on_batch(self, args: Sequence[Any], expected: Expectation) -> tuple[Array, ...]:
        with self.kernel.guard():  # until the outputs are out of the reach of the kernel's next call
            return own(self._call_on_batch(args, expected))

    def _call_on_batch(self, args: Sequence[Any], expected: Expectation) -> tuple[Array, ...]:
        """Return the outputs of one call; what was arranged for it is gone then, so that only the outputs are left."""
        return check_batch(self.function(expected)(*arrange(args, expected.plan, self.kernel)), expected)

    def _run_compiled(self, args: Sequence[Any], expected: Expectation) -> tuple[Array, ...] | None:
        """Return the outputs of a compiled loop; None where there is none, or where it failed."""
        if self.kernel.vectorize != "numba":
            return None
        from ._compiled_loop import run_compiled  # imports Numba

        arranged = arrange(args, expected.plan, self.kernel)
        with self.kernel.guard():
            return run_compiled(self.kernel, arranged, self.keywords, expected)

    def _run_on_items(self, items: Sequence[Iterator[Any]] | SharedItems, expected: Expectation) -> tuple[Column, ...]:
        """Return what the kernel returned for each item."""
        function = self.function(expected)
        with self.kernel.guard():
            if isinstance(items, SharedItems):
                return collect_in_threads(function, items, expected)
            returned = map(function, *items) if items else starmap(function, [()])
            call = (function, items[0]) if len(items) == 1 else None
            return collect_items(returned, expected, count_items(expected.plan), call)

    def _finish(self, outputs: tuple[Array, ...], blocks: Sequence[Array], expected: Expectation) -> tuple[Array, ...]:
        """Return outputs of dtypes that nobody declared as if the kernel had computed in those of the blocks."""
        compute = self.kernel.compute_dtype
        if compute is None or self.dtypes is not None:
            return outputs
        own = [block.dtype for block in blocks]
        return tuple(_back(output, own, compute, expected.name(n), expected) for n, output in enumerate(outputs))

    def _fill(self, expected: Expectation, *args: Any, **keywords: Any) -> Any:
        """Call a kernel that has to be given arrays for its outputs."""
        if self.dtypes is None:
            raise UnknownDTypeError(
                f"kernel {self.kernel.name!r} fills arrays that are made for its outputs: pass output_dtypes"
            )
        pairs = zip(expected.plan.outputs, map(self._filled_dtype, self.filled_dtypes or self.dtypes), strict=True)
        outputs = tuple(self._to_fill(operand, dtype, dict(expected.plan.bounds)) for operand, dtype in pairs)
        returned = self.kernel.func(*args, *outputs, **keywords)
        if self.kernel.is_filling and not (returned is None or any(returned is output for output in outputs)):
            raise OutputShapeError(
                f"kernel returned {kind_text(returned)}, expected None: with fills_outputs=True it fills the "
                f"{len(outputs)} array(s) that it gets behind its arguments"
            )
        return outputs if len(outputs) > 1 or self.signature.always_tuple else outputs[0]

    def _to_fill(self, operand: Operand, dtype: np.dtype[Any], bounds: Mapping[str, UpTo]) -> np.ndarray[Any, Any]:
        """Return an array for an output; where only a bound of a size is known, filled with what pads it."""
        shape = operand.core_shape if self.kernel.vectorize else operand.shape
        for dim, size in zip(operand.dims, operand.shape, strict=True):
            if size is None:
                raise UnknownSizeError(
                    f"kernel {self.kernel.name!r} fills arrays that are made for its outputs, and the size of output "
                    f"dimension {dim!r} is unknown until computed: pass a size, or UpTo(bound), in output_sizes"
                )
        known = tuple(size or 0 for size in shape)
        bound = next((bounds[dim] for dim in operand.dims if dim in bounds), None)
        return np.empty(known, dtype) if bound is None else np.full(known, bound.fill_value, dtype)

    def _filled_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the array that a kernel fills for an output of a declared one."""
        compute = self.kernel.compute_dtype
        return dtype if compute is None or family(compute) != family(dtype) else compute


def input_shapes(
    args: Sequence[Any], signature: Signature, shape_of: Callable[[Array], Shape] | None = None
) -> tuple[Shape | None, ...]:
    """Return the shapes of all arguments as planning takes them; `shape_of` gives that of an array."""
    shape_of = shape_of or _shape
    pairs = zip(args, signature.inputs, strict=True)
    return tuple(_constant_shape(arg, dims) if is_constant(arg) else shape_of(arg) for arg, dims in pairs)


def location_text(location: Sequence[slice], of: str = "the loop dimensions") -> str:
    """Write which part of some dims a block is; NaN is a bound that is unknown."""
    parts = (f"{_bound_text(part.start)}:{_bound_text(part.stop)}" for part in location)
    return f"[{', '.join(parts)}] of {of}"


def add_note(error: Exception, note: str) -> None:
    """Add a note, once to an exception that is raised again, and not where the exception takes none."""
    with suppress(Exception):
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _shape(array: Array) -> Shape:
    return tuple(array.shape)


def _bound_text(bound: float) -> str:
    return "?" if math.isnan(bound) else str(bound)


def _constant_shape(arg: object, dims: Sequence[CoreDim]) -> Shape | None:
    """Return the shape of a constant: None has none, a scalar size 1 along the optional dims it does without."""
    return None if arg is None else (1,) * len(dims)


def _namespace(blocks: Sequence[Array], kernel: Kernel) -> Namespace:
    """Return the library in which the outputs are: NumPy, or that of the blocks."""
    return np if kernel.arrays == "numpy" or not blocks else library_of(blocks)


def _expectation(runner: BlockRunner, plan: Plan, blocks: Sequence[Array]) -> Expectation:
    xp = _namespace(blocks, runner.kernel)
    # JAX moves what is made on its default device to where it is needed by itself, and a sharding fits one shape only.
    place = None if xp is np or is_jax_array(blocks[0]) else device(blocks[0])
    masked = any(isinstance(block, np.ma.MaskedArray) for block in blocks)
    objects = xp is np and any(block.dtype.kind == "O" for block in blocks)
    strings = next((block.dtype for block in blocks if xp is np and block.dtype.kind == "T"), None)
    thin = _thin_axes(plan, dict(runner.constants))
    may_be_traced = runner.kernel.arrays == "traced" and xp is not np
    has_values = not may_be_traced or not (is_jax_array(blocks[0]) or is_torch_array(blocks[0]))
    places = None if runner.selected is None else runner.selected.places
    return Expectation(plan, runner.dtypes, runner.found, thin, xp, place, masked, objects, has_values, strings, places)


def _thin_axes(plan: Plan, constants: Collection[int]) -> tuple[bool, ...]:
    operands = [operand for position, operand in enumerate(plan.inputs) if operand and position not in constants]
    return tuple(any(_is_thin(operand, axis) for operand in operands) for axis in range(-plan.n_loop, 0))


def _is_thin(operand: Operand, axis: int) -> bool:
    return operand.n_loop < -axis or operand.loop_shape[axis] == 1


def _back(output: Array, own: Sequence[DType], compute: np.dtype[Any], what: str, expected: Expectation) -> Array:
    dtype = dtype_of_results(output.dtype, own, compute, what)
    return output if dtype is None else cast_output(output, dtype, what, expected)


def _share(items: list[Iterator[Any]], plan: Plan, kernel: Kernel) -> list[Iterator[Any]] | SharedItems:
    """Return the items as they are taken: by the one thread that there is, or by several."""
    if kernel.threads == 1 or not items:
        return items
    return SharedItems(zip(*items, strict=False), count_items(plan), kernel.threads)


@dataclass(frozen=True, slots=True)
class _Situation:
    """What was going on when something failed."""

    runner: BlockRunner
    args: Sequence[Any]
    location: Sequence[slice]
    expected: Expectation | None  # None: the shapes do not fit
    waiting: Sequence[Iterator[Any]] | SharedItems | None  # items not called with yet; None: the kernel does not run

    def text(self, error: Exception) -> str:
        """Write what the kernel was called with, and, where that is something else, what the caller gave."""
        given = ", ".join(map(_describe, self.args))
        seen = given if self.expected is None else ", ".join(_seen(self.runner, self.args, self.expected.plan))
        source = "" if seen == given else f", for arguments {given}"
        block = f", block {location_text(self.location)}" if self.location else ""
        selected = self.runner.selected
        name, signature = self.runner.kernel.name, str(selected.signature if selected else self.runner.signature)
        where = f"{self._item()}{source}{block}{self._cure(error)}"
        return f"in kernel {name!r} with signature {signature!r}, called with {seen}{where}"

    def _cure(self, error: Exception) -> str:
        """Write the option that a kernel lacks which failed in NumPy's usual words for that."""
        is_known = type(error) in (BufferError, TypeError, ValueError) or is_numba(error)
        words = str(error) if is_known else ""  # an exception's own text may fail in any way
        has_batch = self.expected is not None and self.expected.plan.n_loop and not self.runner.kernel.vectorize
        if has_batch and any(text in words for text in _OF_ONE_ITEM):
            return " (a kernel that takes one item at a time needs vectorize=True)"
        advice = advice_for(words)
        return "" if advice is None else f" ({advice})"

    def _item(self) -> str:
        """Write which item the kernel was called with last, found from how many are left."""
        if self.waiting is None or self.expected is None or not self.expected.plan.n_loop:
            return ""
        n_left = self.waiting.n_left if isinstance(self.waiting, SharedItems) else sum(1 for _ in self.waiting[0])
        item = self.expected.item_text(count_items(self.expected.plan) - 1 - n_left)
        return f" (item {item} of the block)" if self.location else f" (item {item})"


def _seen(runner: BlockRunner, args: Sequence[Any], plan: Plan) -> Iterator[str]:
    """Return each argument as the kernel sees it: see `arrange` and `walk_all`."""
    sizes = dict(plan.sizes)
    for arg, operand, dims in zip(args, plan.inputs, plan.signature.inputs, strict=True):
        if is_constant(arg) or operand is None:
            yield _describe(arg)
            continue
        loop = (1,) * (plan.n_loop - operand.n_loop) + operand.loop_shape
        pairs = zip(dims, operand.core_shape, strict=True)
        core = tuple(sizes[dim.label] if dim.stretches else size for dim, size in pairs)
        dtype = _seen_dtype(arg.dtype, runner.kernel.compute_dtype)
        yield f"{dtype}{shape_text(core if runner.kernel.vectorize else (*loop, *core))}"


def _seen_dtype(own: DType, compute: np.dtype[Any] | None) -> DType:
    return own if compute is None or family(numpy_dtype(own)) != family(compute) else compute


def _describe(arg: Any) -> str:
    return repr(arg) if is_constant(arg) else f"{arg.dtype}{shape_text(arg.shape)}"


_OF_ONE_ITEM: Final = ("truth value of an array", "arrays can be converted to Python scalars")
"""NumPy's words where a batch, or an array that refuses writing, is taken for something else."""
