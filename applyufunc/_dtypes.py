"""The outputs' dtypes where nobody declares them: from the kernel's own table, or from one call on made values.

In: the inputs' dtypes, a block runner without dtypes. Out: one NumPy dtype per output. Knows no backend but by what the
caller passes: how a block is made, and a value that tells one kind of blocks from another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ._blocks import BlockRunner
from ._casting import numpy_dtype
from ._compiled import compiles_for_dtypes
from ._declared_dtypes import InputDType
from ._errors import UnknownDTypeError
from ._identity import IdentityMap, is_plain
from ._option_values import UpTo
from ._plan import Operand, Plan
from ._typing import Array

if TYPE_CHECKING:
    from ._explanation import DTypeSource

__all__ = ["discovered_dtypes"]

_Memory: TypeAlias = dict[tuple[Any, ...], tuple[np.dtype[Any], ...]]

PROBE_LIMIT: Final = 100_000  # core elements, of inputs and outputs together
_REMEMBERED: Final = 64  # dtypes remembered per kernel


def discovered_dtypes(
    runner: BlockRunner,
    plan: Plan,
    input_dtypes: Sequence[InputDType],
    as_block: Callable[[Array], Array],
    block_kind: tuple[Any, ...],
    *,
    may_try: bool = True,
) -> tuple[DTypeSource, tuple[np.dtype[Any], ...] | None]:
    """
    Return the NumPy dtypes that the kernel itself shows: from its table, else from one call on made-up values.

    `as_block` turns those into what the kernel takes, and `block_kind` tells it from what else it could take. Without
    `may_try` that call is not made, and None stands for what it would show.
    """
    table = runner.compiled_dtypes(plan, input_dtypes) or _table_dtypes(runner, input_dtypes)
    if table is not None:
        return "table", table
    memory, key = _memory_of(runner, plan, input_dtypes, block_kind)
    found = memory.get(key)
    if found is not None:
        return "remembered", found
    _check_probe_size(runner, plan)
    if not may_try:
        return "trial call", None
    if len(memory) >= _REMEMBERED:
        memory.clear()
    found = memory[key] = _probe(runner, plan, input_dtypes, as_block)
    return "trial call", found


def _table_dtypes(runner: BlockRunner, input_dtypes: Sequence[InputDType]) -> tuple[np.dtype[Any], ...] | None:
    """Return what a ufunc's own type resolution says; None where there is none."""
    is_cast = runner.kernel.compute_dtype is not None
    resolve = (
        None
        if runner.kernel.fills_outputs or is_cast
        else getattr(_ufunc_of(runner.kernel.func), "resolve_dtypes", None)
    )
    is_bounded = any(isinstance(size, UpTo) for _, size in runner.output_sizes)  # a fill value may widen the dtype
    if resolve is None or runner.keywords or is_bounded or any(dtype is None for dtype in input_dtypes):
        return None
    nin, nout = runner.signature.nin, runner.signature.nout
    try:
        resolved: tuple[np.dtype[Any], ...] = resolve((*input_dtypes, *(None,) * nout))
    except TypeError as error:
        if compiles_for_dtypes(runner.kernel.func):  # a call of it adds to the table
            return None
        error.add_note(f"in kernel {runner.kernel.name!r}, when its output dtypes were looked up")
        raise
    return tuple(resolved[nin:])


def _ufunc_of(func: Any) -> Any:
    """Return the NumPy ufunc inside a Numba one, which has the table."""
    return func if isinstance(func, np.ufunc) else getattr(func, "ufunc", None)


def _memory_of(
    runner: BlockRunner, plan: Plan, input_dtypes: Sequence[InputDType], block_kind: tuple[Any, ...]
) -> tuple[_Memory, tuple[Any, ...]]:
    """Return where the dtypes of one probe are kept for the next call like this one; nowhere: a memory for now."""
    operands = tuple(None if operand is None else (operand.n_loop, operand.core_shape) for operand in plan.inputs)
    values = [value for _, value in runner.constants] + list(runner.keywords.values())
    if not all(map(is_plain, values)):
        return {}, ()
    key = (_freeze(runner), operands, tuple(input_dtypes), *block_kind)
    try:
        return _memories.setdefault(runner.kernel.func, {}), key
    except TypeError:  # no weak reference
        return {}, key


def _probe(
    runner: BlockRunner, plan: Plan, input_dtypes: Sequence[InputDType], as_block: Callable[[Array], Array]
) -> tuple[np.dtype[Any], ...]:
    """Call the kernel once, on well-conditioned values with the real core sizes and one loop item."""
    samples = _samples(runner, plan, input_dtypes)
    try:
        outputs = runner(*map(as_block, samples))
    except Exception as error:
        raise UnknownDTypeError(
            f"the output dtypes of kernel {runner.kernel.name!r} are not known, and a call on made-up values to learn "
            f"them "
            f"raised {type(error).__name__}: {error}; pass output_dtypes, and the kernel is not called for them"
        ) from error
    return tuple(numpy_dtype(output.dtype) for output in outputs)


def _check_probe_size(runner: BlockRunner, plan: Plan) -> None:
    cores = [operand.core_shape for operand in (*plan.inputs, *plan.outputs) if operand is not None]
    unknown = [d for d, size in plan.sizes if size is None]
    if unknown:
        raise UnknownDTypeError(
            f"the output dtypes of kernel {runner.kernel.name!r} cannot be found before it runs, since the size of "
            f"core dimension "
            f"{unknown[0]!r} is unknown; pass output_dtypes"
        )
    elements = sum(math.prod(size or 0 for size in core) for core in cores)
    if elements > PROBE_LIMIT:
        raise UnknownDTypeError(
            f"the output dtypes of kernel {runner.kernel.name!r} are not known, and one item has {elements:,} core "
            f"elements, too many "
            f"for a call to learn them (limit {PROBE_LIMIT:,}); pass output_dtypes"
        )


def _samples(runner: BlockRunner, plan: Plan, input_dtypes: Sequence[InputDType]) -> list[np.ndarray[Any, Any]]:
    constants = {position for position, _ in runner.constants}
    pairs = enumerate(zip(plan.inputs, input_dtypes, strict=True))
    return [
        _sample(operand, dtype)
        for position, (operand, dtype) in pairs
        if position not in constants and operand is not None
    ]


def _sample(operand: Operand, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return distinct values between 0.5 and 1.5, with a large diagonal where the last two dims are square."""
    shape = (*(1,) * operand.n_loop, *(size or 0 for size in operand.core_shape))
    if dtype.kind not in "iufcOV" or dtype.type is np.void:  # text, times and records: whatever zero means there
        return np.zeros(shape, dtype)
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    if operand.n_core >= 2 and shape[-1] == shape[-2]:
        values = values + 2 * shape[-1] * np.eye(shape[-1])
    return values.astype(dtype) if dtype.kind not in "iu" else np.ceil(values).astype(dtype)


def _freeze(runner: BlockRunner) -> tuple[Any, ...]:
    """Return what else than inputs decides what the kernel returns."""
    keywords = tuple(sorted(runner.keywords.items(), key=itemgetter(0)))
    # As text, since 1, 1.0 and True are equal.
    return (
        runner.signature,
        runner.kernel.vectorize,
        runner.kernel.arrays,
        str(runner.kernel.compute_dtype),
        runner.output_sizes,
        repr((runner.constants, keywords)),
    )


_memories: IdentityMap[_Memory] = IdentityMap()
