"""A traced call as one host callback, whatever transformation it stands in.

Every argument gets the same number of loop dims before the callback, so that the axes which ``vmap`` puts in front
line up; a mapped axis is one more loop dim of the same callback. In: a call and its arrays. Out: traced arrays, of the
dtypes that the call has found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._blocks import BlockRunner, input_shapes
from ..._call import Call
from ..._derivatives import find_derivatives
from ..._errors import KernelError, UnknownSizeError
from ..._failures import keep_failure, reraise
from ..._plan import Plan, make_plan
from ..._typing import Array, Staged
from ._derivatives import differentiable
from ._direct import run_on_numpy
from ._identity import Identified, identify

__all__ = ["call_back", "check_sizes"]


def call_back(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a callback that runs the kernel once for the whole batch."""
    check_sizes(call)
    staged = _staged(identify(call.runner, find_derivatives(call)))
    with reraise():  # under an eager vmap the kernel runs now
        return tuple(staged(*arrays))


def check_sizes(call: Call) -> None:
    """Refuse sizes that nobody knows before the kernel has run."""
    for label in call.plan.unknown_output_dims:
        raise UnknownSizeError(
            f"the size of output dimension {label!r} of kernel {call.kernel.name!r} is unknown until it has run, and "
            f"JAX has to know it before: pass output_sizes={{{label!r}: applyufunc.UpTo(bound)}}, or call it outside "
            f"jit and vmap"
        )


def _staged(identified: Identified) -> Staged:
    """Return the function that JAX traces for a runner, the same one at every call while it is remembered."""
    return _staged_with_data(identified) if identified.holds_data else _staged_alone(identified)


def _make_staged(identified: Identified) -> Staged:
    runner = identified.runner
    function = partial(_stage, runner, partial(_run_on_host, runner))
    function.__name__ = runner.kernel.name  # type: ignore[attr-defined]  # as programs and profiles show it
    # Compiled as a whole where nothing else is: the barrier has to stand in the callback's own program.
    return differentiable(jax.jit(function, inline=True), runner, identified.derivatives, call_back)


def _stage(runner: BlockRunner, on_host: Callable[..., Any], *arrays: Array) -> tuple[Array, ...]:
    """Return the outputs of the callback on traced arrays."""
    plan = _plan(runner, arrays)
    assert runner.dtypes is not None
    declared = zip(plan.outputs, runner.dtypes, strict=True)
    types = tuple(jax.ShapeDtypeStruct(output.shape, dtype) for output, dtype in declared)
    outputs = jax.pure_callback(on_host, types, *_align(arrays, runner, plan), vmap_method="expand_dims")
    # Else the callback's own placement, with zeros on every device but one, leaves the program:
    # https://github.com/jax-ml/jax/issues/38164
    return tuple(jax.lax.optimization_barrier(outputs))


def _plan(runner: BlockRunner, arrays: Sequence[Array]) -> Plan:
    shapes = input_shapes(runner.insert_constants(arrays), runner.signature)
    return make_plan(runner.signature, shapes, runner.output_sizes)


def _align(arrays: Sequence[Array], runner: BlockRunner, plan: Plan) -> list[Array]:
    """Return the arrays with as many loop dims as the call has: new ones in front, of length 1."""
    n_core = [len(runner.signature.inputs[position]) for position in runner.array_positions]
    n_missing = [plan.n_loop - (array.ndim - n) for array, n in zip(arrays, n_core, strict=True)]
    return [jnp.expand_dims(array, tuple(range(n))) for array, n in zip(arrays, n_missing, strict=True)]


def _run_on_host(runner: BlockRunner, *blocks: Array) -> tuple[np.ndarray[Any, Any], ...]:
    """Run the kernel on blocks that JAX hands over; what it raises travels as text."""
    try:
        if runner.kernel.arrays == "same":
            return tuple(map(np.asarray, runner(*blocks)))
        return run_on_numpy(runner, blocks)
    except Exception as error:  # noqa: BLE001  # whatever it is, JAX would keep its text alone
        message = keep_failure(runner.kernel.name, error)
    raise KernelError(message)  # outside of except, so that JAX does not print the kernel's traceback too


# Functions; JAX compiles anew for one that it has not seen. Each keeps its kernel alive, and its keywords.
_staged_alone = lru_cache(maxsize=64)(_make_staged)
_staged_with_data = lru_cache(maxsize=8)(_make_staged)
