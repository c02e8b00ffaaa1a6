"""A traced call as one host callback, whatever transformation it stands in.

From the outside in: derivatives are calls of their own, a mapped axis is one more loop dim of the same callback, and
JAX's arrays reach the kernel by one of two routes, the fast call of `_foreign` on the CPU, `jax.pure_callback`
elsewhere. In: a call and its arrays. Out: traced arrays, of the dtypes that the call has found.

Names of JAX: `jax.pure_callback`, `jax.lax.platform_dependent`, `jax.lax.optimization_barrier`, ``inline`` of `jax.jit`
(tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from ..._blocks import BlockRunner
from ..._call import Call
from ..._derivatives import find_derivatives
from ..._errors import KernelError, OptionError, UnknownSizeError
from ..._failures import keep_failure, reraise
from ..._option_values import Callback
from ..._typing import Array, Staged
from .._identity import Identified, identify
from ._batching import batch_in_one_call
from ._derivatives import Run, differentiable
from ._direct import common_device, run_on_numpy
from ._explicit import call_on_typed_shards
from ._guard import without_jax
from ._partition import call_per_shard
from ._self_test import why_unavailable
from ._states import RunIdentified
from ._types import output_types
from ._varying import vary_alike
from ._xla_abi import DTYPES

__all__ = ["call_back", "call_on_shards", "find_route", "is_gathered"]


def call_back(call: Call, arrays: Sequence[Array], run: Run) -> tuple[Array, ...]:
    """Return the outputs of a callback that runs the kernel once for the whole batch; `run` is for derivatives."""
    route = find_route(call, arrays)
    staged = _staged(identify(call.runner, find_derivatives(call)), route, run)
    with reraise():  # under an eager vmap the kernel runs now
        return tuple(staged(*arrays))


def call_on_shards(call: Call, arrays: Sequence[Array], run: Run) -> tuple[Array, ...]:
    """Return the outputs for concrete arrays that lie on several devices, from each device for its own shards."""
    common_device(arrays, call.runner)
    with reraise():
        return jax.block_until_ready(call_back(call, arrays, run))  # type: ignore[no-any-return]


def is_gathered(call: Call, arrays: Sequence[Array]) -> bool:
    """Tell a call that takes concrete arrays whole, on however many devices they lie."""
    return bool(call.plan.unknown_output_dims) or _choose_route(call, arrays) == "pure_callback"


def find_route(call: Call, arrays: Sequence[Array]) -> Callback:
    """Return how to reach the kernel; refuse a call that no callback can be made of, and a choice without effect."""
    _check_sizes(call)
    return _choose_route(call, arrays)


def _check_sizes(call: Call) -> None:
    """Refuse sizes that nobody knows before the kernel has run."""
    for label in call.plan.unknown_output_dims:
        raise UnknownSizeError(
            f"the size of output dimension {label!r} of kernel {call.kernel.name!r} is unknown until it has run, and "
            f"JAX has to know it before: pass output_sizes={{{label!r}: applyufunc.UpTo(bound)}}, or call it outside "
            f"jit and vmap"
        )


def _choose_route(call: Call, arrays: Sequence[Array]) -> Callback:
    """Return the caller's choice; where that is left open, the fast call unless something speaks against it."""
    wanted: Callback = call.options.callback
    if wanted == "pure_callback":
        return wanted
    reason = _why_not_foreign(call, arrays)
    if reason and wanted == "ffi":
        raise OptionError(
            f"callback='ffi' cannot be had for kernel {call.kernel.name!r}: {reason}; callback='auto' takes "
            f"jax.pure_callback there"
        )
    return "pure_callback" if reason else wanted


def _why_not_foreign(call: Call, arrays: Sequence[Array]) -> str:
    if call.kernel.arrays == "same":
        return "a kernel that takes JAX arrays calls JAX, which must not be called from there"
    dtypes = {np.dtype(array.dtype) for array in arrays} | set(call.runner.dtypes or ())
    strange = dtypes - set(DTYPES.values())
    if strange:
        return f"dtype {', '.join(sorted(map(str, strange)))} has no memory layout that is sure"
    return why_unavailable()


def _staged(identified: Identified, route: Callback, run: Run) -> Staged:
    """Return the function that JAX traces for a runner, the same one at every call while it is remembered."""
    remembered = _staged_with_data if identified.holds_data else _staged_alone
    return remembered(identified, route, run)


def _make_staged(identified: Identified, route: Callback, run: Run) -> Staged:
    runner = identified.runner
    function = partial(_stage, partial(_run, route), identified)
    function.__name__ = runner.kernel.name  # type: ignore[attr-defined]  # as programs and profiles show it
    # Compiled as a whole where nothing else is: the barrier has to stand in the callback's own program.
    staged = jax.jit(batch_in_one_call(function, runner), inline=True)
    return differentiable(staged, runner, identified.derivatives, run)


def _stage(run: RunIdentified, identified: Identified, *arrays: Array) -> tuple[Array, ...]:
    """Return the outputs of the call on traced arrays, with the types that JAX has for them."""
    return vary_alike(call_on_typed_shards(run, identified, *arrays), arrays)


def _run(route: Callback, identified: Identified, *arrays: Array) -> tuple[Array, ...]:
    """Return the outputs of the callback on traced arrays."""
    on_cpu = call_per_shard(identified)
    anywhere = partial(_call_anywhere, identified)
    if route == "auto":
        return tuple(jax.lax.platform_dependent(*arrays, cpu=on_cpu, default=anywhere))
    return on_cpu(*arrays) if route == "ffi" else anywhere(*arrays)


def _call_anywhere(identified: Identified, *arrays: Array) -> tuple[Array, ...]:
    runner = identified.runner
    outputs = jax.pure_callback(partial(_run_on_host, runner), output_types(runner, arrays), *arrays)
    # Else the callback's own placement, with zeros on every device but one, leaves the program:
    # https://github.com/jax-ml/jax/issues/38164
    return tuple(jax.lax.optimization_barrier(outputs))


def _run_on_host(runner: BlockRunner, *blocks: Array) -> tuple[np.ndarray[Any, Any], ...]:
    """Run the kernel on blocks that JAX hands over; what it raises travels as text."""
    try:
        if runner.kernel.arrays == "same":
            return tuple(map(np.asarray, runner(*blocks)))
        arrays = list(map(np.asarray, blocks))
        with without_jax(runner.kernel):
            return run_on_numpy(runner, arrays)
    except BaseException as error:  # noqa: BLE001  # whatever it is, JAX would keep its text alone
        message = keep_failure(runner.kernel.name, error)
    raise KernelError(message)  # outside of except, so that JAX does not print the kernel's traceback too


# Functions; JAX compiles anew for one that it has not seen. Each keeps its kernel alive, and its keywords.
_staged_alone = lru_cache(maxsize=64)(_make_staged)
_staged_with_data = lru_cache(maxsize=8)(_make_staged)
