"""The direct road: calls that look like earlier ones, at the speed of the kernel, or of Dask where it builds layers.

In: the arguments and keywords of a call of a gufunc object. Out: what `evaluate` gives. What types, shapes and dtypes
decide is found once, on the common road, and remembered as a `Recipe` for the next call that looks the same. What is
unusual in any way takes the common road, which is imported when it is first taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ._errors import ApplyUfuncError
from ._kernel import Kernel
from ._options import CALL_OPTIONS, Options, Parameters
from ._signature import Signature
from ._typing import Array

if TYPE_CHECKING:
    from ._call import Lowering
    from ._recipes import Recipe

__all__ = ["UNUSUAL", "DirectCalls", "direct_calls"]

_Repeat: TypeAlias = Callable[[Sequence[Array]], tuple[Array, ...]]

UNUSUAL: Final = object()
"""Stands for the result of a call that was not made."""


def direct_calls(kernel: Kernel, signature: Signature, options: Options, parameters: Parameters) -> DirectCalls | None:
    """Return the direct road for a kernel under these options; None where they are unusual themselves."""
    has_demands = kernel.gets_copies or kernel.needs_contiguous or kernel.fills_outputs or kernel.parallel
    plain_kernel = kernel.arrays == "numpy" and not (kernel.vectorize or kernel.writable or has_demands)
    plain_run = kernel.thread_safe and kernel.compute_dtype is None and kernel.block_bytes is None
    plain_chunks = options.core_chunks in ("merge", "refuse")
    plain_axes = options.axes is None and options.axis is None and options.keepdims is False
    plain_sizes = all(type(size) is int for _, size in options.output_sizes) and not options.output_coords
    plain_values = all(type(value) in _PLAIN for value in options.kwargs.values())
    stretches = any(dim.stretches for dims in signature.inputs for dim in dims)
    plain = plain_kernel and plain_run and plain_chunks and plain_axes and plain_sizes and plain_values
    if plain and not stretches:
        return DirectCalls(kernel, signature, options, parameters.names - set(CALL_OPTIONS))
    return None


class DirectCalls:
    """The calls of one kernel, by one signature and under one set of options."""

    # A library calls its kernels in inner loops, on arrays so small that the way to the kernel takes longer than the
    # kernel. Here, therefore, a loop stands where a comprehension or a helper would stand elsewhere, no object is made
    # that can be remembered, and what can be compared is not called: a call costs 50 to 100 ns, an attribute 20 to 60.

    __slots__ = ("_bound", "_func", "_kernel", "_lowerings", "_names", "_options", "_plans", "_recipes", "_signature")

    def __init__(self, kernel: Kernel, signature: Signature, options: Options, names: frozenset[str]) -> None:
        self._kernel, self._signature, self._options, self._names = kernel, signature, options, names
        self._func = kernel.func
        self._bound = dict(options.kwargs)
        self._lowerings: dict[type, Lowering | None] = {}
        self._recipes: dict[tuple[Any, ...], Recipe | None] = {}  # by look; None: what looks so is unusual
        self._plans: dict[Hashable, _Repeat | None] = {}  # of lazy calls

    def __call__(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return the outputs as `evaluate` does, or `UNUSUAL`, with nothing done."""
        if keywords:
            for name, value in keywords.items():
                if name not in self._names or type(value) not in _PLAIN:
                    return UNUSUAL
        look: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is _ndarray:
                look.append(arg.shape)
                look.append(arg.dtype)
            elif kind in _CONSTANTS:
                look.append(kind)
            else:
                return self._run_lent(args, keywords)
        key = tuple(look)
        try:
            recipe = self._recipes[key]
        except KeyError:
            return self._run_first(key, args, keywords, args)
        if recipe is None:
            return UNUSUAL
        if self._bound:
            keywords = {**self._bound, **keywords}
        outputs = recipe.run(self._func, args, keywords)
        return tuple(outputs) if recipe.is_tuple else outputs[0]

    def _run_lent(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return the outputs for arrays of another library, where its lowering lends them to the kernel."""
        lowering = self._lowering(args)
        lent = None if lowering is None else lowering.lend(args)
        if lent is None:
            return UNUSUAL if lowering is None or keywords else self._run_lazy(args, lowering)
        try:
            recipe = self._recipes[lent.look]
        except KeyError:
            return self._run_first(lent.look, args, keywords, lent.args)
        if recipe is None:
            return UNUSUAL
        outputs = recipe.run(self._func, lent.args, {**self._bound, **keywords})
        given_back = [lent.give_back(output, position) for position, output in enumerate(outputs)]
        return tuple(given_back) if recipe.is_tuple else given_back[0]

    def _run_lazy(self, args: tuple[Any, ...], lowering: Lowering) -> Any:
        """Return outputs that are computed later, by way of what was planned for arguments of the same look."""
        look = lowering.look(args, self._kernel)
        if look is None:
            return UNUSUAL
        try:
            repeat = self._plans[look]
        except KeyError:
            return self._plan_first(look, args)
        if repeat is None:
            return UNUSUAL
        return self._as_returned(repeat(args))

    def _lowering(self, args: tuple[Any, ...]) -> Lowering | None:
        """Return the lowering for arrays that are all of one type, which is looked for once; None for a mixture."""
        kinds = set(map(type, args)) - _CONSTANTS
        kind = kinds.pop()
        if kinds or kind in _CONTAINERS:
            return None
        if kind not in self._lowerings:
            from ._lowering import find_lowering

            if len(self._lowerings) >= _CACHE_SIZE:
                self._lowerings.clear()
            try:
                self._lowerings[kind] = find_lowering(args)
            except ApplyUfuncError:  # on the common road, where others of the type may be taken, such as labelled ones
                self._lowerings[kind] = None
        return self._lowerings[kind]

    def _run_first(
        self, key: tuple[Any, ...], args: tuple[Any, ...], keywords: Mapping[str, Any], seen: Sequence[Any]
    ) -> Any:
        """Return the outputs by the common road, and remember what can be for the next call; `seen` by the kernel."""
        from ._evaluate import prepare
        from ._recipes import find_recipe

        options = dataclasses.replace(self._options, kwargs={**self._bound, **keywords}) if keywords else self._options
        prepared = prepare(self._kernel, self._signature, args, options)
        if len(self._recipes) >= _CACHE_SIZE:
            self._recipes.clear()
        self._recipes[key] = find_recipe(prepared, seen, is_lent=seen is not args)
        return prepared.run()

    def _plan_first(self, look: Hashable, args: tuple[Any, ...]) -> Any:
        """Return the outputs by the common road, and remember the plan for the next call."""
        from ._evaluate import prepare
        from ._recipes import find_repeat

        prepared = prepare(self._kernel, self._signature, args, self._options)
        if len(self._plans) >= _CACHE_SIZE:
            self._plans.clear()
        repeat = self._plans[look] = find_repeat(prepared)
        return prepared.run() if repeat is None else self._as_returned(repeat(prepared.arrays))

    def _as_returned(self, outputs: tuple[Array, ...]) -> Any:
        return outputs if len(outputs) > 1 or self._signature.always_tuple else outputs[0]


_ndarray: Final = np.ndarray
_CONSTANTS: Final = frozenset({bool, int, float, complex, NoneType})  # those of `is_constant`
_PLAIN: Final = _CONSTANTS | {str, bytes}
"""Types of keywords that reach a kernel as they are, and that nobody can change."""

_CONTAINERS: Final = frozenset({list, tuple, dict})  # of which it is their parts that decide
_CACHE_SIZE: Final = 256  # recipes of a gufunc object, each about a kilobyte; all are forgotten when it is full
