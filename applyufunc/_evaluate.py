"""The one road of every public function: arguments → lowering → core dims last → call → outputs → the caller's axes.

In: a kernel, a signature, options, the arguments as the caller gave them. Out: one array, or a tuple of arrays.
`prepare` is the part of the road before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ._arguments import is_constant
from ._axes import CoreAxes, find_core_axes, from_core_last, to_core_last
from ._call import Call, Lowering, make_call
from ._errors import ArgumentError
from ._kernel import Kernel
from ._lexer import shortened
from ._lowering import convert_keywords, find_lowering
from ._options import Options
from ._signature import CoreDim, Signature
from ._typing import Array

__all__ = ["Prepared", "check_number", "evaluate", "prepare", "unbox"]


def evaluate(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Any:
    """Return the outputs of `kernel` applied to `args`: one, or a tuple where the signature says so."""
    return prepare(kernel, signature, args, options).run()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call and all that it takes to run it."""

    call: Call
    args: tuple[Any, ...]  # converted, core dims last
    layout: Layout
    lowering: Lowering

    @property
    def arrays(self) -> list[Array]:
        """The arguments that are arrays."""
        return [arg for arg in self.args if not is_constant(arg)]

    def run(self) -> Any:
        """Return the outputs: one, or a tuple where the signature says so."""
        finished = self.finish(self.lowering.lower(self.call, self.arrays))
        signature = self.call.runner.signature
        return finished if signature.nout > 1 or signature.always_tuple else finished[0]

    def finish(self, outputs: Sequence[Array]) -> tuple[Any, ...]:
        """Return outputs as the caller gets them."""
        return tuple(
            _finish(output, axes, dims, self.layout, self.lowering)
            for output, axes, dims in zip(
                outputs, self.layout.axes.outputs, self.call.runner.signature.outputs, strict=True
            )
        )


def prepare(
    kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options, *, may_try: bool = True
) -> Prepared:
    """Return the call of `kernel` on `args`; without `may_try`, dtypes that it takes a call to learn stay unknown."""
    check_number(args, signature, kernel)
    if not isinstance(options.core_chunks, str):
        from ._core_chunks import in_pieces

        kernel = in_pieces(kernel, signature, options)
    lowering = find_lowering(args)
    converted = lowering.convert(args, options, kernel)
    keywords = convert_keywords(options, kernel, lowering, [arg for arg in converted if not is_constant(arg)])
    ndims = tuple(None if arg is None else 0 if is_constant(arg) else arg.ndim for arg in converted)
    layout = _find_layout(signature, ndims, options, kernel.name)
    core_last = tuple(
        arg if is_constant(arg) else _core_last(arg, permutation, dims, layout.absent, lowering)
        for arg, permutation, dims in zip(converted, layout.permutations, signature.inputs, strict=True)
    )
    call = make_call(kernel, signature, core_last, keywords, options, lowering, may_try=may_try)
    return Prepared(call, core_last, layout, lowering)


def unbox(output: Array) -> Any:
    """Return a 0-d NumPy result as a scalar, as NumPy's own functions do."""
    return output[()] if isinstance(output, np.ndarray) and output.ndim == 0 else output


def check_number(args: Sequence[Any], signature: Signature, kernel: Kernel) -> None:
    """Refuse another number of arguments than the signature has."""
    if len(args) != signature.nin:
        more = "; what else it takes is passed by keyword" if len(args) > signature.nin else ""
        number = f"{signature.nin} argument{'' if signature.nin == 1 else 's'}"
        raise ArgumentError(
            f"kernel {kernel.name!r} takes {number} by its signature {shortened(signature.text)!r}, "
            f"got {len(args)}{more}"
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """Where core dims are, and how they get to the end."""

    absent: frozenset[str]  # labels of the optional dims that are left out
    axes: CoreAxes
    permutations: tuple[tuple[int, ...] | None, ...]  # of each input; None: nothing to move


def _find_layout(signature: Signature, ndims: tuple[int | None, ...], options: Options, name: str) -> Layout:
    """Return the layout for inputs with these numbers of dims; remembered where the options are plain values."""
    axes, axis, keepdims = options.axes, options.axis, options.keepdims
    is_plain = axes is None and type(keepdims) is bool and (axis is None or type(axis) is int)
    find = _remembered_layout if is_plain else _layout
    return find(signature, ndims, axes, axis, keepdims, name)


def _layout(
    signature: Signature, ndims: tuple[int | None, ...], axes: object, axis: object, keepdims: object, name: str
) -> Layout:
    absent = signature.absent(ndims)
    present = signature.without(absent) if absent else signature
    core_axes = find_core_axes(
        present.input_labels,
        present.output_labels,
        ndims,
        declared=(signature.input_labels, signature.output_labels),
        axes=axes,
        axis=axis,
        keepdims=keepdims,
        name=name,
    )
    moves = zip(ndims, core_axes.inputs, strict=True)
    return Layout(absent, core_axes, tuple(None if n is None else to_core_last(n, own) for n, own in moves))


_remembered_layout = lru_cache(maxsize=1024)(_layout)


def _core_last(
    array: Array,
    permutation: tuple[int, ...] | None,
    dims: Sequence[CoreDim],
    absent: frozenset[str],
    lowering: Lowering,
) -> Array:
    """Return an argument with its core dims last, and an axis of length 1 for each absent one."""
    if permutation is not None:
        array = lowering.namespace(array).permute_dims(array, permutation)
    for axis, dim in enumerate(reversed(dims) if absent else ()):
        if dim.label in absent:
            array = lowering.namespace(array).expand_dims(array, axis=-1 - axis)
    return array


def _finish(output: Array, axes: Sequence[int], dims: Sequence[CoreDim], layout: Layout, lowering: Lowering) -> Array:
    """Return an output without its absent dims, with its kept ones, its core dims where they belong."""
    xp = lowering.namespace(output)
    for axis, dim in enumerate(reversed(dims) if layout.absent else ()):
        if dim.label in layout.absent:
            from_right = -1 - axis + _dropped_behind(dims, axis, layout.absent)
            output = xp.squeeze(output, axis=output.ndim + from_right)  # sparse before 0.18 takes no negative axis
    for _ in range(layout.axes.n_kept):
        output = xp.expand_dims(output, axis=-1)
    permutation = from_core_last(output.ndim, axes)
    if permutation is not None:
        output = lowering.settled(xp.permute_dims(output, permutation))
    return unbox(output)


def _dropped_behind(dims: Sequence[CoreDim], axis: int, absent: frozenset[str]) -> int:
    """Count the absent dims behind one, which are dropped already."""
    return sum(dim.label in absent for dim in dims[len(dims) - axis :])
