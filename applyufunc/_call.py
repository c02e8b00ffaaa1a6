"""A call that is ready for a lowering: `Call`, and `make_call`, which plans it and finds its dtypes.

In: the kernel, the signature, the arguments' shapes and dtypes, the options. Out: a `Call`, without arrays.
What differs between array libraries comes in as a `Lowering`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ._arguments import is_constant
from ._blocks import BlockRunner, input_shapes
from ._casting import numpy_dtype
from ._compute_dtype import dtype_for_kernel
from ._declared_dtypes import InputDType, declared_dtypes
from ._dtypes import discovered_dtypes
from ._kernel import Kernel
from ._option_values import OutputSizes
from ._options import Options
from ._plan import Plan, core_sizes, fix_output_sizes, make_plan
from ._signature import Signature
from ._typing import Array, Keywords, Namespace, Shape

if TYPE_CHECKING:
    from ._explanation import DTypeSource, Execution

__all__ = ["Call", "Lent", "Lowering", "input_dtype", "make_call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what runs on a block, the dims and sizes of the whole, and the options."""

    runner: BlockRunner  # its dtypes are the outputs'; None where the lowering is eager, or the call only explained
    plan: Plan  # of the whole arrays
    options: Options
    dtypes_from: DTypeSource
    wanted: tuple[np.dtype[Any], ...] = ()  # what the outputs' dtypes were before the library narrowed them

    @property
    def kernel(self) -> Kernel:
        return self.runner.kernel

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """NumPy dtypes of the outputs; asked for only where the call is lazy, and then known."""
        assert self.runner.dtypes is not None
        return self.runner.dtypes

    def with_assumed_dtypes(self, dtype: np.dtype[Any]) -> Call:
        """Return the call with dtypes to plan by: those of blocks, numbers as float64 or more, if none are known."""
        if self.runner.dtypes is not None:
            return self
        assumed = np.result_type(dtype, np.float64) if dtype.kind in "biufc" else dtype
        runner = dataclasses.replace(self.runner, dtypes=(assumed,) * len(self.plan.outputs))
        return dataclasses.replace(self, runner=runner)


@dataclass(frozen=True, slots=True)
class Lent:
    """Arguments as NumPy arrays that a kernel can be called on at once; the arrays share memory with their owners'."""

    look: tuple[Any, ...]  # what decides on all that does not depend on values; hashable
    args: tuple[Any, ...]
    give_back: Callable[[Array, int], Array]  # takes an output, with its position, to where the arguments are


class Lowering(Protocol):
    """What every module of `_lowering` offers: the same functions, on the arrays of its library."""

    def convert(self, args: Sequence[Any], options: Options, kernel: Kernel) -> tuple[Any, ...]:
        """Return each argument as an array of the library, or as it is where it is a Python scalar or None."""

    def namespace(self, array: Array) -> Namespace:
        """Return the module with the library's `permute_dims`, `expand_dims` and `reshape`."""

    def shape(self, array: Array) -> Shape:
        """Return the shape, None for a size that is unknown."""

    def is_lazy(self, arrays: Sequence[Array]) -> bool:
        """Tell whether the result is built without running the kernel, so that its dtypes have to be known before."""

    def traces(self, kernel: Kernel) -> bool:
        """Tell whether the kernel itself becomes part of a program, whose dtypes are known when it is built."""

    def default_dtype(self, kind: type, arrays: Sequence[Array]) -> np.dtype[Any]:
        """Return the dtype that the library takes for Python's bool, int, float or complex."""

    def narrow(self, dtype: np.dtype[Any], *, declared: bool) -> np.dtype[Any]:
        """Return the dtype that the library holds in place of `dtype`; `declared`: the caller asked for it by name.

        Where that is another one, `lower` warns, and `explain` tells.
        """

    def as_block(self, array: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
        """Return a NumPy array as what a kernel with ``kernel_arrays="same"`` gets for one of `arrays`."""

    def block_kind(self, arrays: Sequence[Array]) -> tuple[Any, ...]:
        """Return what tells such blocks from others for which the same kernel may return another dtype; hashable."""

    def untraced(self) -> AbstractContextManager[None]:
        """Return what to hold while a kernel is tried, so that what it does is done at once and staged nowhere."""

    def lend(self, args: Sequence[Any]) -> Lent | None:
        """Return arguments lent to a kernel that takes NumPy arrays, or None where it takes more to call it."""

    def look(self, args: Sequence[Any], kernel: Kernel) -> Hashable | None:
        """Return what decides on how a lazy call is lowered, but the arrays themselves; None where that is unusual."""

    def repeat(self, call: Call, arrays: Sequence[Array]) -> Callable[[Sequence[Array]], tuple[Array, ...]]:
        """Return what `lower` does with a call whose arguments have a look, for further ones that look the same."""

    def settled(self, output: Array) -> Array:
        """Return an output whose axes were moved, laid out in memory as results of the library are."""

    def lower(self, call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs of a call, core dims last."""

    def explain(
        self, call: Call, arrays: Sequence[Array], finish: Callable[[Sequence[Array]], Sequence[Array]]
    ) -> Execution:
        """Return what `lower` would do, and `finish` with its outputs; run and warn of nothing."""


def make_call(
    kernel: Kernel,
    signature: Signature,
    args: Sequence[Any],
    keywords: Keywords,
    options: Options,
    lowering: Lowering,
    *,
    may_try: bool = True,
) -> Call:
    """
    Return the call of `kernel` on converted arguments with core dims last.

    Without `may_try` the kernel is not called, and where its dtypes take a call to learn, the call has none.
    """
    _check_compute_dtype(kernel, args)
    shapes = input_shapes(args, signature, lowering.shape)
    sizes: OutputSizes = ()
    if options.output_sizes:
        sizes = fix_output_sizes(options.output_sizes, core_sizes(signature, shapes), keywords)
    plan = make_plan(signature, shapes, sizes)
    constants = tuple((position, arg) for position, arg in enumerate(args) if is_constant(arg))
    runner = BlockRunner(kernel, signature, constants, keywords, sizes, dtypes=None)
    source, wanted = _find_dtypes(runner, plan, args, options, lowering, may_try)
    is_declared = source == "declared"
    dtypes = None if wanted is None else tuple(lowering.narrow(dtype, declared=is_declared) for dtype in wanted)
    found = dtypes is not None and not is_declared
    filled = wanted if kernel.fills_outputs else None
    runner = dataclasses.replace(runner, dtypes=dtypes, found=found, filled_dtypes=filled)
    return Call(runner, plan, options, source, wanted or ())


def input_dtype(arg: Any) -> InputDType:
    """Return an argument's dtype, the type of a scalar that has none, or None."""
    if arg is None:
        return None
    if is_constant(arg):
        return np.dtype(bool) if isinstance(arg, bool) else type(arg)
    return numpy_dtype(arg.dtype)


def _check_compute_dtype(kernel: Kernel, args: Sequence[Any]) -> None:
    """Refuse arguments of integers that the kernel's own dtype does not hold."""
    if kernel.compute_dtype is not None:
        for position, arg in enumerate(args):
            if not is_constant(arg):
                dtype_for_kernel(arg.dtype, kernel.compute_dtype, f"argument {position}")


def _find_dtypes(
    runner: BlockRunner, plan: Plan, args: Sequence[Any], options: Options, lowering: Lowering, may_try: bool
) -> tuple[DTypeSource, tuple[np.dtype[Any], ...] | None]:
    """Return where the outputs' dtypes come from, and them, or None where the kernel's own word is waited for."""
    input_dtypes = tuple(map(input_dtype, args))
    arrays = [arg for arg in args if not is_constant(arg)]
    wanted = _wanted_dtypes(options)
    if wanted is not None:
        default_dtype = partial(lowering.default_dtype, arrays=arrays)
        return "declared", declared_dtypes(wanted, input_dtypes, runner.signature.nout, default_dtype)
    if lowering.traces(runner.kernel) or (not lowering.is_lazy(arrays) and not plan.is_empty):
        return "returned", None
    return _discover_dtypes(runner, plan, input_dtypes, arrays, lowering, may_try)


def _discover_dtypes(
    runner: BlockRunner,
    plan: Plan,
    input_dtypes: Sequence[InputDType],
    arrays: Sequence[Array],
    lowering: Lowering,
    may_try: bool,
) -> tuple[DTypeSource, tuple[np.dtype[Any], ...] | None]:
    """Return the outputs' dtypes as the kernel shows them, on blocks such as it will get."""

    def as_block(array: np.ndarray[Any, Any]) -> Array:
        return array if runner.kernel.arrays == "numpy" else lowering.as_block(array, arrays)

    block_kind = () if runner.kernel.arrays == "numpy" else lowering.block_kind(arrays)
    with lowering.untraced():
        return discovered_dtypes(runner, plan, input_dtypes, as_block, block_kind, may_try=may_try)


def _wanted_dtypes(options: Options) -> Any:
    """Return what the caller says of the outputs' dtypes: by `output_dtypes`, else by what `meta` has."""
    if options.output_dtypes is not None or options.meta is None:
        return options.output_dtypes
    return tuple(m.dtype for m in options.meta) if isinstance(options.meta, (list, tuple)) else options.meta.dtype
