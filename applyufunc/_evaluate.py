"""The one road of every public function: arguments → lowering → core dims last → call → outputs → the caller's axes.

In: a kernel, a signature, options, the arguments as the caller gave them. Out: one array, or a tuple of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._axes import CoreAxes, find_core_axes, from_core_last, to_core_last
from ._blocks import is_constant
from ._call import Lowering, make_call
from ._errors import ArgumentError
from ._kernel import Kernel
from ._lowering import convert_keywords, find_lowering
from ._options import Options
from ._signature import CoreDim, Signature
from ._typing import Array

__all__ = ["evaluate"]


def evaluate(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Any:
    """Return the outputs of `kernel` applied to `args`: one, or a tuple where the signature says so."""
    _check_number(args, signature, kernel)
    lowering = find_lowering(args)
    converted = lowering.convert(args, options, kernel)
    keywords = convert_keywords(options, kernel, lowering, [arg for arg in converted if not is_constant(arg)])
    ndims = tuple(None if arg is None else 0 if is_constant(arg) else arg.ndim for arg in converted)
    absent = signature.absent(ndims)
    core_axes = _find_axes(signature, absent, ndims, options, kernel)
    prepared = [
        arg if is_constant(arg) else _core_last(arg, axes, dims, absent, lowering)
        for arg, axes, dims in zip(converted, core_axes.inputs, signature.inputs, strict=True)
    ]
    call = make_call(kernel, signature, prepared, keywords, options, lowering)
    outputs = lowering.lower(call, [arg for arg in prepared if not is_constant(arg)])
    finished = tuple(
        _finish(output, axes, dims, absent, core_axes.n_kept, lowering)
        for output, axes, dims in zip(outputs, core_axes.outputs, signature.outputs, strict=True)
    )
    return finished if signature.nout > 1 or signature.always_tuple else finished[0]


def _check_number(args: Sequence[Any], signature: Signature, kernel: Kernel) -> None:
    if len(args) != signature.nin:
        more = "; what else it takes is passed by keyword" if len(args) > signature.nin else ""
        raise ArgumentError(
            f"kernel {kernel.name!r} takes {signature.nin} argument{'' if signature.nin == 1 else 's'} by its "
            f"signature "
            f"{str(signature)!r}, got {len(args)}{more}"
        )


def _find_axes(
    signature: Signature, absent: frozenset[str], ndims: Sequence[int | None], options: Options, kernel: Kernel
) -> CoreAxes:
    present = signature.without(absent) if absent else signature
    return find_core_axes(
        present.input_labels,
        present.output_labels,
        ndims,
        declared=(signature.input_labels, signature.output_labels),
        axes=options.axes,
        axis=options.axis,
        keepdims=options.keepdims,
        name=kernel.name,
    )


def _core_last(
    array: Array, axes: Sequence[int], dims: Sequence[CoreDim], absent: frozenset[str], lowering: Lowering
) -> Array:
    """Return an argument with its core dims last, and an axis of length 1 for each absent one."""
    permutation = to_core_last(array.ndim, axes)
    if permutation is not None:
        array = lowering.namespace(array).permute_dims(array, permutation)
    for axis, dim in enumerate(reversed(dims)):
        if dim.label in absent:
            array = lowering.namespace(array).expand_dims(array, axis=-1 - axis)
    return array


def _finish(
    output: Array, axes: Sequence[int], dims: Sequence[CoreDim], absent: frozenset[str], n_kept: int, lowering: Lowering
) -> Array:
    """Return an output without its absent dims, with its kept ones, its core dims where they belong."""
    xp = lowering.namespace(output)
    for axis, dim in enumerate(reversed(dims)):
        if dim.label in absent:
            output = xp.squeeze(output, axis=-1 - axis + _dropped_behind(dims, axis, absent))
    for _ in range(n_kept):
        output = xp.expand_dims(output, axis=-1)
    permutation = from_core_last(output.ndim, axes)
    if permutation is not None:
        output = xp.permute_dims(output, permutation)
    return _unbox(output)


def _dropped_behind(dims: Sequence[CoreDim], axis: int, absent: frozenset[str]) -> int:
    """Count the absent dims behind one, which are dropped already."""
    return sum(dim.label in absent for dim in dims[len(dims) - axis :])


def _unbox(output: Array) -> Any:
    """Return a 0-d NumPy result as a scalar, as NumPy's own functions do."""
    return output[()] if isinstance(output, np.ndarray) and output.ndim == 0 else output
