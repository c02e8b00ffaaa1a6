"""What a call would do, as a value and as text: `Explanation`, and `Execution`, the part that an array library knows.

In: dims, sizes, dtypes and chunks, as planning found them. Out: fields to read, and a text of 80 columns. Pure data
that knows no array library.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ._plan import Plan
from ._typing import Chunks, DType, Shape

__all__ = [
    "ArgumentBlocks",
    "CoreWay",
    "DTypeSource",
    "Execution",
    "ExplainedOperand",
    "Explanation",
    "Rechunking",
    "Way",
    "bytes_text",
    "in_one_block",
]

DTypeSource: TypeAlias = Literal["declared", "table", "remembered", "trial call", "returned"]
"""Where the outputs' dtypes come from: the caller, the kernel's own table, an earlier call, a call to come, or what the
kernel returns."""

Way: TypeAlias = Literal["direct", "traced", "callback", "blocks"]
"""How the kernel gets to run: at once, as a part of a traced program, in a host callback of one, or block by block when
computed."""

CoreWay: TypeAlias = Literal["whole", "reduction", "scan", "overlap"]
"""What a block has of core dims: all of them, or for some of them a piece, and how pieces go together."""


@dataclass(frozen=True, slots=True)
class Rechunking:
    """How one argument is cut anew, and why. Figures are None where sizes are unknown."""

    before: tuple[Chunks, ...]  # along each axis, core dims last
    after: tuple[Chunks, ...]
    via: tuple[Chunks, ...] | None  # the chunks to which it is rechunked first, where that takes less
    merged: tuple[str, ...]  # core dims that were in several chunks
    unified: tuple[str, ...]  # loop dims that take the chunks of other arguments
    split: tuple[str, ...]  # loop dims that are split, for some operand to stay within the budget
    bytes_moved: int | None  # copied into new blocks, estimated
    n_tasks: int | None  # estimated
    n_steps: int | None


@dataclass(frozen=True, slots=True)
class ArgumentBlocks:
    """The blocks of one array argument, or of an output."""

    chunks: tuple[Chunks, ...]  # along each axis, core dims last, as the kernel's blocks are cut
    rechunking: Rechunking | None = None  # None: the argument is left as it is
    in_memory: bool = False  # a host array beside lazy ones: held whole, and cut by views


@dataclass(frozen=True, slots=True)
class Execution:
    """What the array library does with a call."""

    way: Way
    loop: tuple[tuple[str, Chunks], ...]  # the chunks of the outputs' loop dims, from the left
    arguments: tuple[ArgumentBlocks, ...]  # of each array argument in turn
    core: CoreWay = "whole"
    kept: tuple[tuple[str, Chunks], ...] = ()  # core dims that stay in chunks
    reason: str = ""  # why core dims are merged, although they could be reduced where they lie
    state_bytes: int | None = None  # of the largest state of a block that is reduced
    n_tasks: int | None = None  # of the results' whole graph, the arguments' own tasks included; None: no graph
    n_tasks_is_estimate: bool = False  # counted in a plan, before optimisation; else in the optimised graph
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedOperand:
    """One argument or output of an explained call."""

    name: str  # "argument 0", "output 1"
    dims: tuple[str, ...]  # loop dims "-1", "-2" from the right, then core dims; none: a constant
    shape: Shape  # in the order of `dims`; None: unknown
    n_core: int
    dtype: DType  # NumPy's; the type of a Python scalar; None: of None, and of an output that the kernel decides
    blocks: ArgumentBlocks | None  # None: no array

    @property
    def is_output(self) -> bool:
        return self.name.startswith("output")

    @property
    def bytes_before(self) -> int | None:
        """Bytes of the largest block as the caller cut it; None: unknown, or an output."""
        if self.blocks is None or self.is_output:
            return None
        rechunking = self.blocks.rechunking
        return self._largest(self.blocks.chunks if rechunking is None else rechunking.before)

    @property
    def bytes_after(self) -> int | None:
        """Bytes of the largest block that the kernel gets or returns; None: unknown."""
        return None if self.blocks is None else self._largest(self.blocks.chunks)

    def _largest(self, chunks: Iterable[Chunks]) -> int | None:
        return None if self.dtype is None else _product([self.dtype.itemsize, *map(_width, chunks)])


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    What a call would do: `explain` and `GUFunc.explain` return it, and ``str`` makes it a text of 80 columns.

    Dims are as the kernel sees them: loop dims ``"-1"``, ``"-2"`` from the right, then core dims. A core dim that is
    left out has size 1.

    Attributes
    ----------
    kernel, signature : str
        The name of the kernel, and the signature.
    arguments, outputs : tuple of ExplainedOperand
        For each operand: `name`, `dims`, `shape` (None: unknown), `n_core`, `dtype`, `blocks` (its `chunks`, and its
        `rechunking`, which says from what to what and why; None: left as it is), and `bytes_before` and `bytes_after`
        of its largest block.
    way : {"direct", "traced", "callback", "blocks"}
        How the kernel gets to run: at once on the whole arrays, as code that JAX traces, in a host callback, or block
        by block.
    loop : tuple of (str, tuple of int)
        Loop dims, from the left, and their chunks.
    core : {"whole", "reduction", "scan", "overlap"}
        What a block has of core dims: all of them, or pieces that go together as the option `core_chunks` says.
    kept : tuple of (str, tuple of int)
        Core dims that stay in chunks, and their chunks.
    reason : str
        Why core dims are merged all the same, where `core_chunks` would have them stay; empty where they are not.
    slices : tuple of (str, int)
        Loop dims, and the sizes along them of the slices in which the kernel gets the largest block; empty where it
        gets blocks whole.
    state_bytes : int or None
        Bytes of the largest state of a block that is reduced. None: unknown, or nothing is reduced.
    n_calls : int or None
        Calls of the kernel: one for each block that is not empty, or for each item with ``vectorize=True``; of the
        `chunk` of a `Reduction` one for each piece, of which a large block has several; with `block_bytes` one for each
        slice. None: unknown until computed.
    dtypes_from : {"declared", "table", "remembered", "trial call", "returned"}
        Where the outputs' dtypes come from. "trial call": the kernel would be called once, on made-up values, before
        there is data.
    n_tasks : int or None
        Tasks of the results' whole graph, the arguments' own included. None: there is no graph.
    n_tasks_is_estimate : bool
        Whether the tasks were estimated, as many tasks are; else they were counted in the optimised graph.
    warnings : tuple of str
        What the call would warn of.
    """

    kernel: str
    signature: str
    arguments: tuple[ExplainedOperand, ...]
    outputs: tuple[ExplainedOperand, ...]
    way: Way
    loop: tuple[tuple[str, Chunks], ...]
    core: CoreWay
    kept: tuple[tuple[str, Chunks], ...]
    reason: str
    slices: tuple[tuple[str, int], ...]
    state_bytes: int | None
    n_calls: int | None
    vectorize: bool
    dtypes_from: DTypeSource
    n_tasks: int | None
    n_tasks_is_estimate: bool
    warnings: tuple[str, ...]

    @property
    def n_blocks(self) -> int:
        """The number of blocks, empty ones included."""
        return math.prod(len(chunks) for _, chunks in self.loop + self.kept)

    @property
    def bytes_moved(self) -> int | None:
        """Bytes that rechunking copies into new blocks, estimated; None: unknown."""
        return _total(rechunking.bytes_moved for rechunking in self._rechunkings)

    @property
    def largest_before(self) -> int | None:
        """Bytes of the largest block of the arguments as the caller cut them; None: unknown."""
        return max((n for n in (o.bytes_before for o in self._cut_operands) if n is not None), default=None)

    @property
    def largest_after(self) -> int | None:
        """Bytes of the largest block that the kernel gets or returns, as far as they are known."""
        return max((n for n in (o.bytes_after for o in self._cut_operands) if n is not None), default=None)

    @property
    def calls_kernel_for_dtypes(self) -> bool:
        """Whether the call would run the kernel once on made-up values, to learn the outputs' dtypes."""
        return self.dtypes_from == "trial call"

    @property
    def _cut_operands(self) -> Iterator[ExplainedOperand]:
        """The operands of which a block is a piece of its own."""
        return (o for o in (*self.arguments, *self.outputs) if o.blocks is not None and not o.blocks.in_memory)

    @property
    def _rechunkings(self) -> Iterator[Rechunking]:
        return (o.blocks.rechunking for o in self.arguments if o.blocks is not None and o.blocks.rechunking is not None)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def in_one_block(plan: Plan, array_positions: Iterable[int], way: Way, warnings: tuple[str, ...] = ()) -> Execution:
    """Return the execution of a call whose kernel gets the arguments at these positions whole."""
    operands = (plan.inputs[position] for position in array_positions)
    whole = tuple(ArgumentBlocks(_whole(operand.shape)) for operand in operands if operand is not None)
    loop = zip(map(str, range(-plan.n_loop, 0)), _whole(plan.loop_shape), strict=True)
    return Execution(way, tuple(loop), whole, warnings=warnings)


def bytes_text(n_bytes: int) -> str:
    """Write a number of bytes with four digits and a unit."""
    size, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def _whole(shape: Shape) -> tuple[Chunks, ...]:
    return tuple((size,) for size in shape)


def _width(chunks: Chunks) -> int | None:
    """Return the size of the largest chunk; None: unknown."""
    known = [size for size in chunks if size is not None]
    return max(known, default=0) if len(known) == len(chunks) else None


def _product(factors: Iterable[int | None]) -> int | None:
    known = list(factors)
    return None if None in known else math.prod(factor or 0 for factor in known)


def _total(summands: Iterable[int | None]) -> int | None:
    known = list(summands)
    return None if None in known else sum(summand or 0 for summand in known)


_WIDTH: Final = 80  # columns of the text
_LABEL: Final = 16  # columns of the labels in it

_CORE_IN_ONE: Final = "the kernel needs it whole"

_PIECES: Final[dict[CoreWay, str]] = {
    "whole": "",
    "reduction": "each chunk gives a state, and states are combined in a tree",
    "scan": "one after the other, each with what the one before it leaves",
    "overlap": "each with the edges of its neighbours",
}

_DTYPES_FROM: Final[dict[DTypeSource, str]] = {
    "declared": "declared, so that the kernel is not called for them",
    "table": "from the kernel's own table; it is not called for them",
    "remembered": "remembered from an earlier call; the kernel is not called for them",
    "trial call": "found by one trial call of the kernel on made-up values, before there is data",
    "returned": "those that the kernel returns",
}


def _lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines of the text: what is called, the operands, their chunks, the run, the warnings."""
    yield from _wrapped(f"kernel {explanation.kernel!r}, signature {explanation.signature!r}", "")
    yield from ("", "operands")
    for operand in (*explanation.arguments, *explanation.outputs):
        yield from _entry(operand.name, f"{_dtype_text(operand)}; {_dims_text(operand)}")
    if explanation.way == "blocks":
        yield from ("", "blocks")
        for operand in (*explanation.arguments, *explanation.outputs):
            if operand.blocks is not None:
                yield from _entry(operand.name, *_block_lines(operand, operand.blocks, explanation))
    yield from ("", "run")
    for label, text in _run_entries(explanation):
        yield from _entry(label, text)
    yield from ("", "warnings") if explanation.warnings else ()
    for warning in explanation.warnings:
        yield from _wrapped(warning, "  ")


def _entry(label: str, *texts: str) -> Iterator[str]:
    """Yield the lines of one entry: a label, and texts beside it that each begin a line."""
    lines = [line for text in texts for line in _wrapped(text, " " * (_LABEL + 2), hang="  ")]
    yield f"  {label:<{_LABEL}}{lines[0].lstrip()}"
    yield from lines[1:]


def _wrapped(text: str, indent: str, hang: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + hang, break_on_hyphens=False)


def _dtype_text(operand: ExplainedOperand) -> str:
    if operand.dtype is None:
        return "None" if operand.blocks is None else "dtype not known yet"
    return f"Python {operand.dtype.__name__}" if isinstance(operand.dtype, type) else str(operand.dtype)


def _dims_text(operand: ExplainedOperand) -> str:
    sized = [f"{dim}: {_size_text(size)}" for dim, size in zip(operand.dims, operand.shape, strict=True)]
    n_loop = len(sized) - operand.n_core
    loop, core = ", ".join(sized[:n_loop]), ", ".join(sized[n_loop:])
    parts = [f"{kind} {dims}" for kind, dims in (("loop", loop), ("core", core)) if dims]
    return "; ".join(parts) or "no dims"


def _size_text(size: int | None) -> str:
    return "?" if size is None else f"{size:,}"


def _block_lines(operand: ExplainedOperand, blocks: ArgumentBlocks, explanation: Explanation) -> list[str]:
    if blocks.in_memory:
        return ["in memory: held whole, each block sees its part"]
    if blocks.rechunking is None:
        if operand.dtype is None:
            return ["blocks of unknown bytes: their dtype is not known yet"]
        left = "" if operand.is_output else "left as it is; "
        return [f"{left}largest block {_maybe_bytes(operand.bytes_after)}"]
    return [*_change_lines(operand, blocks.rechunking, explanation), _cost_text(operand, blocks.rechunking)]


def _change_lines(operand: ExplainedOperand, rechunking: Rechunking, explanation: Explanation) -> Iterator[str]:
    """Yield, for each dim that is cut anew, from what to what and why."""
    core = set(operand.dims[len(operand.dims) - operand.n_core :]) - {dim for dim, _ in explanation.kept}
    for dim, before, after in zip(operand.dims, rechunking.before, rechunking.after, strict=True):
        if before != after:
            reason = _CORE_IN_ONE if dim in core else _cut_reason(dim, before, after, rechunking)
            yield f"{dim}: {_chunks_text(before)} -> {_chunks_text(after)}: {reason}"


def _cut_reason(dim: str, before: Chunks, after: Chunks, rechunking: Rechunking) -> str:
    unified = "cut as other arguments are" if dim in rechunking.unified else ""
    split = "split to keep blocks within the budget" if dim in rechunking.split else ""
    is_merged = len(after) < sum(size != 0 for size in before) and not unified and not split
    merged = "no chunk is smaller than the halo" if is_merged else ""
    is_joined = None not in before + after and sum(filter(None, after)) > sum(filter(None, before))
    joined = "each with the edges of its neighbours" if is_joined else ""
    return ", ".join(filter(None, (unified, split, merged, joined))) or "without empty chunks"


def _chunks_text(chunks: Chunks) -> str:
    """Write how many chunks there are, and of which size."""
    width = _width(chunks)
    many = "chunk" if len(chunks) == 1 else "chunks"
    if width is None:
        return f"{len(chunks):,} {many} of unknown size"
    return f"{len(chunks):,} {many} of {'' if len(set(chunks)) == 1 else 'up to '}{width:,}"


def _cost_text(operand: ExplainedOperand, rechunking: Rechunking) -> str:
    largest = f"largest block {_arrow(operand.bytes_before, operand.bytes_after)}"
    if rechunking.bytes_moved is None or rechunking.n_tasks is None or rechunking.n_steps is None:
        return f"{largest}; at a cost that is unknown, as sizes are"
    moved = f"{largest}; {bytes_text(rechunking.bytes_moved)} moved"
    if not rechunking.n_steps:
        return moved
    steps = "1 step" if rechunking.n_steps == 1 else f"{rechunking.n_steps} steps"
    via = "" if rechunking.via is None else ", core dimensions first"
    return f"{moved} by about {rechunking.n_tasks:,} tasks, {steps}{via}"


def _arrow(before: int | None, after: int | None) -> str:
    return f"{_maybe_bytes(before)} -> {_maybe_bytes(after)}"


def _maybe_bytes(n_bytes: int | None) -> str:
    return "of unknown size" if n_bytes is None else bytes_text(n_bytes)


def _run_entries(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield what the call costs as a whole, as labels and texts."""
    before, after = explanation.largest_before, explanation.largest_after
    yield "blocks", _blocks_text(explanation)
    yield from _core_entries(explanation)
    if explanation.slices:
        yield "slices", _slices_text(explanation.slices)
    yield "largest block", _arrow(before, after) if before != after else _maybe_bytes(after)
    if explanation.way == "blocks":
        moved = explanation.bytes_moved
        yield "bytes moved", "unknown" if moved is None else bytes_text(moved)
    yield "kernel calls", _calls_text(explanation)
    if explanation.n_tasks is not None:
        yield "tasks", _tasks_text(explanation.n_tasks, explanation.n_tasks_is_estimate)
    yield "output dtypes", _DTYPES_FROM[explanation.dtypes_from] + _assumption(explanation)


def _blocks_text(explanation: Explanation) -> str:
    if explanation.way == "direct":
        how = "slice by slice" if explanation.slices else "at once"
        return f"1, the whole arrays, to which the kernel is applied {how}"
    if explanation.way == "traced":
        return "1, the whole arrays; JAX traces the kernel, which becomes a part of its program"
    if explanation.way == "callback":
        return "1, the whole arrays, in a host callback when the traced program runs"
    return f"{explanation.n_blocks:,}{_grid_text(explanation.loop, explanation.kept)}"


def _grid_text(loop: Sequence[tuple[str, Chunks]], kept: Sequence[tuple[str, Chunks]]) -> str:
    if len(loop) + len(kept) < 2:
        return ""
    along = [f"{kind} {', '.join(dim for dim, _ in dims)}" for kind, dims in (("loop", loop), ("core", kept)) if dims]
    return f": {' x '.join(f'{len(chunks):,}' for _, chunks in (*loop, *kept))} along {' and '.join(along)}"


def _core_entries(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield how core dims that stay in chunks are worked on, or why they do not stay."""
    if explanation.kept:
        numbers = ", ".join(f"{dim} in {len(chunks):,} chunks" for dim, chunks in explanation.kept)
        yield "core dims", f"{explanation.core}: {numbers}, {_PIECES[explanation.core]}"
    if explanation.state_bytes is not None:
        yield "largest state", bytes_text(explanation.state_bytes)
    if explanation.reason:
        yield "core dims", f"merged, although they could be reduced in their chunks: {explanation.reason}"


def _slices_text(slices: Sequence[tuple[str, int]]) -> str:
    sizes = " x ".join(f"{size:,}" for _, size in slices)
    return f"up to {sizes} along loop {', '.join(dim for dim, _ in slices)}: the kernel gets one at a time"


def _calls_text(explanation: Explanation) -> str:
    if explanation.n_calls is None:
        return "unknown until sizes are" if explanation.core == "reduction" else "unknown: one for each item"
    if explanation.n_calls == 0:
        return "0: there is no item"
    of_part = " of the part that makes states" if explanation.core == "reduction" else ""
    return f"{explanation.n_calls:,}{of_part}, one for each {_called_for(explanation.n_calls, explanation)}"


def _called_for(n_calls: int, explanation: Explanation) -> str:
    """Say what the kernel is called for, once each."""
    is_in_pieces = explanation.core != "whole"
    if explanation.vectorize:
        return "item of a piece" if is_in_pieces else "item"
    if n_calls > explanation.n_blocks:
        return "slice of a block" if explanation.slices else "piece of a block"
    return "block" if n_calls == explanation.n_blocks else "block that is not empty"


def _tasks_text(n_tasks: int, is_estimate: bool) -> str:
    if is_estimate:
        return f"about {n_tasks:,} before optimisation, an estimate; the arguments' own included"
    return f"{n_tasks:,} after optimisation, the arguments' own included"


def _assumption(explanation: Explanation) -> str:
    is_assumed = explanation.way == "blocks" and any(output.dtype is None for output in explanation.outputs)
    return "; until then the bytes of its outputs are a guess" if is_assumed else ""
