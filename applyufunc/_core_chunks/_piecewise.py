"""A kernel run piece by piece: `ReductionRunner` runs the parts of a `Reduction`, each with all checks of a kernel.

In: blocks, core dims last. Out: states, and in the end outputs. `PiecewiseKernel` is all of it as one function, which
takes the kernel's place where a block holds whole core dims. Knows no chunks, graphs or traces.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from .._arguments import is_constant
from .._blocks import BlockRunner, add_note, input_shapes
from .._call import input_dtype
from .._casting import numpy_dtype
from .._declared_dtypes import InputDType, declared_dtypes
from .._errors import OptionError, UnknownSizeError
from .._kernel import Kernel, parameters_of
from .._option_values import OutputSizes, SizeRule
from .._options import Options
from .._plan import Operand, Plan, core_sizes, fix_output_sizes, make_plan
from .._signature import Signature
from .._typing import Array, KernelFunction, Keywords, Shape
from ._concat import concat
from ._reduction import Reduction, aggregate_signature, check_kernel, combine_signature

__all__ = [
    "EmptyPiece",
    "PiecewiseKernel",
    "ReductionRunner",
    "State",
    "cut_in_pieces",
    "in_parts",
    "piecewise_kernel",
]

State: TypeAlias = tuple[Array, ...]
"""What is known of a piece: one array for each output of `chunk`."""

PIECE_BYTES: Final = 16 * 2**20  # bytes of all arguments in a piece: what bounds the temporaries of `chunk`


@dataclass(frozen=True, slots=True)
class EmptyPiece:
    """The blocks of a piece without any element: `chunk` may have no answer for it, and beside others it needs none."""

    blocks: tuple[Array, ...]
    keywords: Keywords  # of the kernel


@dataclass(frozen=True, slots=True)
class ReductionRunner:
    """The parts of a reduction with all that a call needs but the blocks."""

    chunk: BlockRunner
    combine: BlockRunner
    aggregate: BlockRunner
    reduced: tuple[str, ...]
    takes_offset: bool

    def has_elements(self, blocks: Sequence[Array]) -> bool:
        """Tell blocks that hold something to reduce, for some loop item."""
        plan = _plan_of(self.chunk, blocks)
        return not plan.is_empty and all(size != 0 for label, size in plan.sizes if label in self.reduced)

    def state(self, blocks: Sequence[Array], starts: Mapping[str, int], location: Sequence[slice] = ()) -> State:
        """Return the state of blocks that begin at `starts` along the reduced dims."""
        plan = _plan_of(self.chunk, blocks)
        rows = []
        for row in _pieces(plan, self.reduced, _n_bytes(plan, blocks)):
            states = (self._piece_state(blocks, plan, piece, starts, location) for piece in row.pieces)
            rows.append(reduce(partial(self.combined, location=location), states))
        return rows[0] if len(rows) == 1 else tuple(concat(arrays, row.axis) for arrays in zip(*rows, strict=True))

    def combined(self, state: State, following: State, location: Sequence[slice] = ()) -> State:
        """Return the state of two pieces, the second of which follows the first."""
        try:
            return self.combine(*state, *following, location=location)
        except TypeError as error:
            add_note(error, f"combine gets {2 * len(state)} arrays, combine(*first, *second)")
            raise

    def outputs(self, state: State, location: Sequence[slice] = ()) -> tuple[Array, ...]:
        """Return the outputs for the state of all pieces."""
        return self.aggregate(*state, location=location)

    def with_keywords(self, keywords: Keywords) -> ReductionRunner:
        """Return a runner whose parts take their keywords from these."""
        parts = {name: getattr(self, name) for name in ("chunk", "combine", "aggregate")}
        taken = {
            name: dataclasses.replace(part, keywords={key: keywords[key] for key in part.keywords})
            for name, part in parts.items()
        }
        return dataclasses.replace(self, **taken)

    def chunk_at(self, offset: Mapping[str, int]) -> BlockRunner:
        """Return `chunk` for a piece that begins there."""
        if not self.takes_offset:
            return self.chunk
        return dataclasses.replace(self.chunk, keywords={**self.chunk.keywords, "offset": offset})

    def _piece_state(
        self, blocks: Sequence[Array], plan: Plan, piece: _Piece, starts: Mapping[str, int], location: Sequence[slice]
    ) -> State:
        operands = (plan.inputs[position] for position in self.chunk.array_positions)
        parts = [_part(block, operand, piece) for block, operand in zip(blocks, operands, strict=True)]
        offset = {label: starts.get(label, 0) + piece.start(label) for label in self.reduced}
        return self.chunk_at(offset)(*parts, location=location)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PiecewiseKernel:
    """A reduction as one function on whole blocks: what runs in place of the kernel."""

    reduction: Reduction
    signature: Signature  # of the kernel
    chunk: Kernel
    combine: Kernel
    aggregate: Kernel
    size_rules: tuple[tuple[str, SizeRule], ...]  # as the option output_sizes has them

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return what the kernel would."""
        shapes = input_shapes(args, self.signature)
        sizes = fix_output_sizes(self.size_rules, core_sizes(self.signature, shapes), keywords)
        constants = tuple((position, arg) for position, arg in enumerate(args) if is_constant(arg))
        plan = make_plan(self.signature, shapes, sizes)
        runner = self.runner(plan, constants, keywords, sizes, tuple(map(input_dtype, args)))
        outputs = runner.outputs(runner.state([arg for arg in args if not is_constant(arg)], {}))
        return outputs if len(outputs) > 1 or self.signature.always_tuple else outputs[0]

    def runner(
        self,
        plan: Plan,
        constants: tuple[tuple[int, Any], ...],
        keywords: Keywords,
        output_sizes: OutputSizes,
        input_dtypes: Sequence[InputDType],
        output_dtypes: tuple[np.dtype[Any], ...] | None = None,
    ) -> ReductionRunner:
        """Return what runs the parts in a call whose whole arrays have this plan."""
        state = self.reduction.signature
        states = _fixed_for(state, output_sizes)
        state_dtypes = self.state_dtypes(input_dtypes)
        taken = partial(_taken, keywords=keywords)
        own = BlockRunner(self.chunk, state, constants, taken(self.chunk.func, state.nin), states, state_dtypes)
        both = combine_signature(self.reduction)
        combine = BlockRunner(self.combine, both, (), taken(self.combine.func, both.nin), (), state_dtypes)
        last = aggregate_signature(self.reduction, self.signature)
        sizes = _aggregate_sizes(plan, last, output_sizes)
        aggregate = BlockRunner(self.aggregate, last, (), taken(self.aggregate.func, last.nin), sizes, output_dtypes)
        return ReductionRunner(own, combine, aggregate, self.reduction.reduced, self.reduction.offset)

    def state_dtypes(self, input_dtypes: Sequence[InputDType]) -> tuple[np.dtype[Any], ...] | None:
        """Return the dtypes of the arrays of a state, as far as they were declared."""
        # Other libraries hold other dtypes, and may be told to narrow them: their own word is waited for.
        if self.reduction.state_dtypes is None or self.chunk.arrays != "numpy":
            return None
        return declared_dtypes(self.reduction.state_dtypes, input_dtypes, self.reduction.signature.nout, np.dtype)


def in_parts(kernel: Kernel, signature: Signature, options: Options) -> Kernel:
    """Return the kernel that runs on whole core dims: the three parts of the reduction in `options`."""
    piecewise = _made(kernel, signature, options)
    _check_keywords(piecewise, options.kwargs, kernel.name)
    # One token for the kernel may stand for its parts too, but not for the kernel as it was.
    token = None if kernel.token is None else f"{kernel.token}, in pieces"
    return dataclasses.replace(kernel, func=piecewise, vectorize=False, writable=False, token=token, home=None)


def piecewise_kernel(kernel: Kernel, signature: Signature, options: Options) -> PiecewiseKernel | None:
    """Return the parts of a call's kernel; None where its core dims are not reduced piece by piece."""
    if isinstance(kernel.func, PiecewiseKernel):
        return kernel.func
    if not callable(options.core_chunks):
        return None
    reduction = Reduction(kernel.func, options.core_chunks, state=signature, state_dtypes=options.output_dtypes)
    # What combines its outputs returns them, and one token for the kernel says nothing of it.
    _, combine, aggregate = _parts(dataclasses.replace(kernel, token=None, is_filling=False), reduction, signature)
    return PiecewiseKernel(reduction, signature, kernel, combine, aggregate, options.output_sizes)


def cut_in_pieces(
    loop_sizes: Mapping[str, int], core_sizes: Mapping[str, int], n_bytes: int
) -> tuple[tuple[str, list[slice]], tuple[str, list[slice]]]:
    """Cut the longest loop dim, whose pieces need no combining, and then the longest reduced dim."""
    n_pieces = -(-n_bytes // PIECE_BYTES)
    loop_cut = _cut_longest(loop_sizes, n_pieces)
    return loop_cut, _cut_longest(core_sizes, -(-n_pieces // len(loop_cut[1])))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the loop, and of one reduced dim."""

    slices: tuple[tuple[str, slice], ...]

    def along(self, dim: str) -> slice:
        return dict(self.slices).get(dim, slice(None))

    def start(self, dim: str) -> int:
        return self.along(dim).start or 0


@dataclass(frozen=True, slots=True)
class _Row:
    """Pieces with the same part of the loop, in the order in which they lie; `axis`: the loop axis that is cut."""

    pieces: tuple[_Piece, ...]
    axis: int


def _plan_of(runner: BlockRunner, blocks: Sequence[Array]) -> Plan:
    shapes = input_shapes(runner.insert_constants(blocks), runner.signature)
    return make_plan(runner.signature, shapes, runner.output_sizes)


def _n_bytes(plan: Plan, blocks: Sequence[Array]) -> int:
    """Return the bytes of all arguments, each stretched over the whole loop as `chunk` will do with it."""
    widest = max((numpy_dtype(block.dtype).itemsize for block in blocks), default=0)
    cores = sum(_product(operand.core_shape) for operand in plan.inputs if operand is not None)
    return widest * cores * _product(plan.loop_shape)


def _product(shape: Shape) -> int:
    return math.prod(size or 0 for size in shape)


def _pieces(plan: Plan, reduced: Sequence[str], n_bytes: int) -> list[_Row]:
    loop_sizes = {str(axis - plan.n_loop): size or 0 for axis, size in enumerate(plan.loop_shape)}
    core_sizes = {label: size or 0 for label, size in plan.sizes if label in reduced}
    (loop_dim, loop_slices), (core_dim, core_slices) = cut_in_pieces(loop_sizes, core_sizes, n_bytes)
    axis = plan.n_loop + int(loop_dim or 0)
    return [_Row(tuple(_Piece(((loop_dim, a), (core_dim, b))) for b in core_slices), axis) for a in loop_slices]


def _cut_longest(sizes: Mapping[str, int], n_pieces: int) -> tuple[str, list[slice]]:
    """Return the longest dim and its slices, as even as can be; one of all of it where nothing is to be cut."""
    longest = max(sizes, key=sizes.__getitem__, default="")
    n_slices = max(1, min(n_pieces, sizes.get(longest, 1)))
    if n_slices == 1:
        return longest, [slice(None)]
    return longest, [slice(a, b) for a, b in pairwise(i * sizes[longest] // n_slices for i in range(n_slices + 1))]


def _part(block: Array, operand: Operand | None, piece: _Piece) -> Array:
    """Return a view of the part of a block; size 1 broadcasts, or is there only once."""
    assert operand is not None  # of an array
    index = tuple(
        slice(None) if size == 1 else piece.along(dim) for dim, size in zip(operand.dims, operand.shape, strict=True)
    )
    return block if all(part == slice(None) for part in index) else block[index]


def _fixed_for(signature: Signature, output_sizes: OutputSizes) -> OutputSizes:
    """Return those sizes that the arrays of a state have; states are combined, so all have to be known."""
    names = {name for dims in signature.outputs for dim in dims for name in (dim.label, *dim.names)}
    sizes = tuple((label, size) for label, size in output_sizes if label in names)
    for label, size in sizes:
        if size is None:
            raise UnknownSizeError(
                f"core_chunks: the states of {str(signature)!r} have dimension {label!r}, whose size is unknown until "
                f"computed (output_sizes has None): pass UpTo(bound)"
            )
    return sizes


def _aggregate_sizes(plan: Plan, signature: Signature, output_sizes: OutputSizes) -> OutputSizes:
    """Return the sizes of output dims that no state has, from the whole call."""
    of_state = {dim.label for dims in signature.inputs for dim in dims}
    of_outputs = {dim.label for dims in signature.outputs for dim in dims}
    given = {label: size for label, size in output_sizes if label in of_outputs}
    found = {
        label: size
        for operand in plan.outputs
        for label, size in zip(operand.dims[operand.n_loop :], operand.core_shape, strict=True)
        if label not in of_state
    }
    return tuple({**found, **given}.items())


def _taken(func: KernelFunction, n_args: int, keywords: Keywords) -> dict[str, Any]:
    """Return those keywords of the kernel that a part takes."""
    if not keywords:
        return {}
    parameters = parameters_of(func, n_args)
    return {name: value for name, value in keywords.items() if name in parameters.names or parameters.open_ended}


@dataclass(frozen=True, slots=True, eq=False)
class _ByParts:
    """A reduction as a key: equal to those that have the very same functions, whatever these say of each other."""

    reduction: Reduction

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByParts) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        own = self.reduction
        dtypes = id(own.state_dtypes) if callable(own.state_dtypes) else own.state_dtypes
        return (
            id(own.chunk),
            id(own.combine),
            id(own.aggregate),
            own.signature,
            own.offset,
            own.independent_dims,
            dtypes,
        )


def _made(kernel: Kernel, signature: Signature, options: Options) -> PiecewiseKernel:
    """Return the same object for the same call, by which JAX and the memory of dtypes know it again."""
    how = dataclasses.replace(kernel, func=_all, home=None)  # the kernel's own function is none of the parts
    given = (_ByParts(options.core_chunks), how, signature, options.output_sizes)
    try:
        return _same(*given, str(options.output_sizes))
    except TypeError:  # a rule, or dtypes, without a hash
        return _same.__wrapped__(*given, "")


@lru_cache(maxsize=256)  # reductions
def _same(
    parts: _ByParts,
    how: Kernel,
    signature: Signature,
    size_rules: tuple[tuple[str, SizeRule], ...],
    _text: str,  # tells sizes that are equal, such as 1 and True
) -> PiecewiseKernel:
    check_kernel(parts.reduction, signature)
    return PiecewiseKernel(parts.reduction, signature, *_parts(how, parts.reduction, signature), size_rules)


def _parts(kernel: Kernel, reduction: Reduction, signature: Signature) -> tuple[Kernel, Kernel, Kernel]:
    last = reduction.aggregate or (_all if signature.nout > 1 or signature.always_tuple else _only)
    combine = reduction.combine
    if isinstance(combine, np.ufunc):
        combine = _Elementwise(combine, is_tuple=reduction.signature.nout > 1 or reduction.signature.always_tuple)
    return (
        _part_kernel(kernel, reduction.chunk, "chunk"),
        _part_kernel(kernel, combine, "combine"),
        _part_kernel(kernel, last, "aggregate"),
    )


def _part_kernel(kernel: Kernel, func: KernelFunction, part: str) -> Kernel:
    """Return one part as a kernel; what it may not do at the same time is guarded around all three."""
    is_batch = isinstance(func, (np.ufunc, _Elementwise)) or func is _all or func is _only
    return dataclasses.replace(
        kernel,
        func=func,
        name=f"{kernel.name} ({part})",
        vectorize=False if is_batch else kernel.vectorize,
        thread_safe=True,
        token=None if kernel.token is None else f"{kernel.token}, {part}",
        home=None,
    )


@dataclass(frozen=True, slots=True)
class _Elementwise:
    """A binary ufunc on each array of two states."""

    ufunc: np.ufunc
    is_tuple: bool

    def __call__(self, *states: Array) -> Any:
        n_states = len(states) // 2
        combined = tuple(map(self.ufunc, states[:n_states], states[n_states:]))
        return combined if self.is_tuple else combined[0]


def _only(state: Array) -> Array:
    return state


def _all(*states: Array) -> tuple[Array, ...]:
    return states


def _check_keywords(piecewise: PiecewiseKernel, keywords: Keywords, name: str) -> None:
    """Refuse what no part takes, and an `offset` that would be hidden."""
    reduction = piecewise.reduction
    n_states = reduction.signature.nout
    parts = ((piecewise.chunk, reduction.signature.nin), (piecewise.combine, 2 * n_states))
    taken = {key for part, n in (*parts, (piecewise.aggregate, n_states)) for key in _taken(part.func, n, keywords)}
    for key in keywords:
        if key not in taken:
            raise OptionError(f"keyword {key!r} of kernel {name!r} is taken by no part of its Reduction")
        if key == "offset" and reduction.offset:
            raise OptionError(f"keyword 'offset' of kernel {name!r}: with offset=True the Reduction itself passes it")
