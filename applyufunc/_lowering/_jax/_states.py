"""A call on one shard; a `Reduction` whose core dim is cut reduces its part, and the shards' states are gathered.

In: what runs a kernel on traced arrays, the plan of the whole call, its cut, and one device's shards. Out: that
device's outputs. States travel as bytes, with their dtypes, since nobody knows these before the kernel has run, and JAX
may not hold them.

Names of JAX: `jax.lax.all_gather`, `jax.lax.axis_index` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._blocks import BlockRunner
from ..._call import input_dtype
from ..._core_chunks import PiecewiseKernel, ReductionRunner, State
from ..._derivatives import Derivatives
from ..._errors import OutputDTypeError
from ..._plan import Plan
from ..._signature import CoreDim, Signature
from ..._typing import Array
from .._identity import Identified, identify
from ._cuts import Cut, reduced_dims
from ._xla_abi import DTYPES

__all__ = ["RunIdentified", "run_on_shard"]

RunIdentified: TypeAlias = Callable[..., tuple[Array, ...]]
"""What runs the kernel of an `Identified` on traced arrays: once, on whatever shapes they have."""


def run_on_shard(run: RunIdentified, identified: Identified, plan: Plan, cut: Cut, *shards: Array) -> tuple[Array, ...]:
    """Return one device's outputs for its shards; `plan` is that of the whole arrays."""
    runner = identified.runner
    reduced = reduced_dims(runner)
    names = [name for label in reduced for name in cut.along(label)]
    if not names:
        return run(identified, *shards)
    parts = _parts(runner, plan, shards)
    sizes = dict(runner.plan(shards).sizes)
    lengths = tuple(sizes[label] or 0 for label in reduced)
    states = run(identify(_states_runner(runner, parts, lengths), Derivatives()), *shards, _places(cut, reduced))
    gathered = [jax.lax.all_gather(state, tuple(names), axis=plan.n_loop) for state in states]
    return run(identify(_outputs_runner(runner, parts), Derivatives()), *gathered)


def _parts(runner: BlockRunner, plan: Plan, shards: Sequence[Array]) -> ReductionRunner:
    piecewise = runner.kernel.func
    assert isinstance(piecewise, PiecewiseKernel)
    dtypes = tuple(map(input_dtype, runner.insert_constants(shards)))
    return piecewise.runner(plan, runner.constants, runner.keywords, runner.output_sizes, dtypes, runner.dtypes)


def _places(cut: Cut, reduced: Sequence[str]) -> Array:
    """Return how many shards come before this device's along each reduced dim; not elements, which may pass 32 bits."""
    return jnp.stack([jnp.int32(jax.lax.axis_index(cut.along(label)) if cut.along(label) else 0) for label in reduced])


def _states_runner(runner: BlockRunner, parts: ReductionRunner, lengths: tuple[int, ...]) -> BlockRunner:
    """Return what makes states, as bytes, of a shard and its places, one along each of its reduced dims."""
    state = parts.chunk.signature
    inputs = *(state.inputs[position] for position in runner.array_positions), (_fixed(len(parts.reduced)),)
    signature = Signature(inputs, tuple((*dims, _BYTES) for dims in state.outputs), always_tuple=True)
    kernel = dataclasses.replace(runner.kernel, func=_Packed(parts, lengths), token=None, home=None)
    dtypes = (np.dtype(np.uint8),) * signature.nout
    return BlockRunner(kernel, signature, (), {}, parts.chunk.output_sizes, dtypes)


def _outputs_runner(runner: BlockRunner, parts: ReductionRunner) -> BlockRunner:
    """Return what makes the outputs of the states of all shards, as bytes."""
    aggregate = parts.aggregate
    inputs = tuple((_SHARDS, *dims, _BYTES) for dims in aggregate.signature.inputs)
    signature = Signature(inputs, aggregate.signature.outputs, always_tuple=True)
    kernel = dataclasses.replace(runner.kernel, func=_Combined(parts, len(inputs)), token=None, home=None)
    return BlockRunner(kernel, signature, (), {}, aggregate.output_sizes, runner.dtypes)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Packed:
    """The states of a shard, as a kernel."""

    parts: ReductionRunner
    lengths: tuple[int, ...]  # of a shard, along its reduced dims

    def __call__(self, *blocks: Array) -> tuple[Array, ...]:
        places = map(int, blocks[-1].ravel())
        starts = {
            label: place * length for label, place, length in zip(self.parts.reduced, places, self.lengths, strict=True)
        }
        return tuple(map(_pack, self.parts.state(blocks[:-1], starts)))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Combined:
    """The outputs for the states of all shards, as a kernel."""

    parts: ReductionRunner
    n_states: int

    def __call__(self, *gathered: Array) -> tuple[Array, ...]:
        n_core = [len(dims) for dims in self.parts.aggregate.signature.inputs]
        pieces = [np.moveaxis(each, each.ndim - n - 2, 0) for each, n in zip(gathered, n_core, strict=True)]
        states: list[State] = [tuple(map(_unpack, state)) for state in zip(*pieces, strict=True)]
        return self.parts.outputs(reduce(self.parts.combined, states))


def _pack(state: Array) -> np.ndarray[Any, Any]:
    """Return an array with the bytes of each element along a last axis, behind the code of the dtype."""
    state = np.ascontiguousarray(state).reshape(np.shape(state))  # which makes an array of what has no axis
    if state.dtype not in _CODES:
        raise OutputDTypeError(
            f"a state of dtype {state.dtype} cannot be sent from one device to another: make it of numbers or bool"
        )
    packed = np.zeros((*state.shape, _WIDTH), np.uint8)
    packed[..., 0] = _CODES[state.dtype]
    packed[..., 1 : 1 + state.dtype.itemsize] = state[..., None].view(np.uint8)
    return packed


def _unpack(packed: Array) -> np.ndarray[Any, Any]:
    if not packed.size:
        return np.empty(packed.shape[:-1], bool)
    dtype = DTYPES[int(packed.flat[0])]
    values: np.ndarray[Any, Any] = np.ascontiguousarray(packed[..., 1 : 1 + dtype.itemsize]).view(dtype)
    return values[..., 0]


def _fixed(size: int) -> CoreDim:
    return CoreDim(str(size), size)


_CODES: Final = {dtype: code for code, dtype in DTYPES.items()}
_WIDTH: Final = 1 + max(dtype.itemsize for dtype in _CODES)  # bytes
_BYTES: Final = _fixed(_WIDTH)
_SHARDS: Final = CoreDim("shards of all devices")  # no name that a signature can have
