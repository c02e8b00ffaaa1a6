"""Kernels that JAX traces: no callback, and JAX itself batches, differentiates, compiles and shards them.

Derivative kernels, where there are any, take the place of JAX's own derivatives.
In: a call, and arrays, traced or not. Out: JAX arrays. A kernel that takes loop dims is called once with all of them;
one that takes an item is mapped by one `jax.vmap` for each loop dim, from the innermost, as `jax.numpy.vectorize` does,
so that nothing is broadcast before it has to be.

Names of JAX: `jax.errors.ConcretizationTypeError`, ``TracerArrayConversionError`` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from ..._blocks import BlockRunner
from ..._call import Call
from ..._derivatives import Derivatives, find_derivatives
from ..._errors import OptionError
from ..._plan import Plan
from ..._typing import Array, Staged
from ._derivatives import Run, differentiable

__all__ = ["check_whole", "trace"]


def trace(call: Call, arrays: Sequence[Array], run: Run) -> tuple[Array, ...]:
    """Return the outputs of the kernel as a part of whatever program is being built, or at once where none is.

    `run` is for the calls of its derivative kernels.
    """
    check_whole(call)
    function: Staged = partial(_run, call)
    derivatives = find_derivatives(call)
    with _explained(call):
        if derivatives.rules:
            _check_rules(call, derivatives)
            function = differentiable(function, _with_dtypes(call.runner, function, arrays), derivatives, run)
        return function(*map(jnp.asarray, arrays))


def check_whole(call: Call) -> None:
    """Refuse to cut what is not there when the kernel is called."""
    if call.kernel.block_bytes is not None:
        raise OptionError(
            f"block_bytes cuts what a kernel gets at once, and kernel {call.kernel.name!r} is traced by JAX: drop it, "
            f"or pass kernel_arrays='numpy'"
        )


def _run(call: Call, *arrays: Array) -> tuple[Array, ...]:
    runner = _on_whole_blocks(call.runner)
    if call.plan.is_empty:
        return _empty(runner, call.plan, arrays)
    outputs = _map_items(runner, call.plan, arrays) if call.kernel.vectorize else runner(*arrays)
    # Results of callbacks are strongly typed, and so are these.
    return tuple(jnp.asarray(output, output.dtype) for output in outputs)


def _on_whole_blocks(runner: BlockRunner) -> BlockRunner:
    """Return a runner that calls the kernel once: with a batch, or, inside `jax.vmap`, with one item."""
    kernel = dataclasses.replace(runner.kernel, arrays="traced", vectorize=False)
    return dataclasses.replace(runner, kernel=kernel)


def _check_rules(call: Call, derivatives: Derivatives) -> None:
    """Refuse to differentiate by calls on NumPy arrays what JAX has to trace."""
    if derivatives.jac is not None and derivatives.jac.step is not None:
        raise OptionError(
            f"jac={derivatives.jac.step!r} calls the kernel on NumPy arrays, and kernel {call.kernel.name!r} is traced "
            f"by JAX, which differentiates it itself: drop jac"
        )


def _with_dtypes(runner: BlockRunner, function: Staged, arrays: Sequence[Array]) -> BlockRunner:
    """Return a runner with the dtypes that the trace finds, where none are declared."""
    if runner.dtypes is not None:
        return runner
    types = jax.eval_shape(function, *arrays)
    return dataclasses.replace(runner, dtypes=tuple(np.dtype(output.dtype) for output in types))


@contextmanager
def _explained(call: Call) -> Iterator[None]:
    """Say, where the kernel asked for values that are not there yet, how it gets them."""
    try:
        yield
    except _UNTRACEABLE as error:
        error.add_note(
            f"kernel {call.kernel.name!r} is traced by JAX, and takes no branch by a value; "
            f"kernel_arrays='numpy' runs it on the host"
        )
        raise


def _empty(runner: BlockRunner, plan: Plan, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return outputs without items; of undeclared dtypes, those that the kernel would have for one item."""
    if runner.dtypes is not None:
        return runner(*arrays)
    types = jax.eval_shape(runner, *map(_item_type, arrays, runner.n_core_inputs))
    return tuple(jnp.zeros((*plan.loop_shape, *item.shape), item.dtype) for item in types)


def _item_type(array: Array, n_core: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[array.ndim - n_core :], array.dtype)


def _map_items(runner: BlockRunner, plan: Plan, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a kernel of one item on every item of the loop."""
    n_core = runner.n_core_inputs
    function: Staged = runner
    single = []
    for axis in range(-1, -1 - plan.n_loop, -1):
        in_axes = tuple(0 if _varies(array, axis - n) else None for array, n in zip(arrays, n_core, strict=True))
        if any(in_axis == 0 for in_axis in in_axes):
            function = jax.vmap(function, in_axes)
        else:
            single.append(axis)
    outputs = function(*map(_without_single, arrays, n_core))
    places = tuple(plan.n_loop + axis for axis in single)
    return tuple(jnp.expand_dims(output, places) for output in outputs)


def _varies(array: Array, axis: int) -> bool:
    return bool(array.ndim >= -axis and array.shape[axis] != 1)


def _without_single(array: Array, n_core: int) -> Array:
    """Return an array without its loop dims of length 1."""
    return jnp.squeeze(array, tuple(axis for axis in range(array.ndim - n_core) if array.shape[axis] == 1))


_UNTRACEABLE: Final[tuple[type[Exception], ...]] = (
    jax.errors.ConcretizationTypeError,  # of which the errors for bool and int are kinds
    jax.errors.TracerArrayConversionError,
)
"""What JAX raises where code asks a traced array for its values."""
