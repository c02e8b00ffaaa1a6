"""The kernel called directly on concrete arrays: no compilation, no copies of the arguments, and its own exceptions.

In: a call, and arrays whose values this process holds. Out: JAX arrays. Of traces it knows how to tell that there is
none, and how to leave them for a while.

Names of JAX: `jax.core.Tracer`, `jax.core.eval_context`, `jax.extend.core.get_opaque_trace_state`, ``jax_disable_jit``
of `jax.config`; ``committed`` and ``is_fully_addressable`` of arrays (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jax.sharding import SingleDeviceSharding

from ..._arguments import is_constant
from ..._blocks import BlockRunner
from ..._call import Call, Lent
from ..._casting import cast
from ..._errors import ArgumentError, OutputDTypeError
from ..._transfer import transfer_is_allowed
from ..._typing import Array
from ._dtypes import narrow

__all__ = [
    "call_directly",
    "common_device",
    "is_concrete",
    "is_spread",
    "lend",
    "refuse_mask",
    "run_on_numpy",
    "untraced",
]


def is_concrete(arrays: Sequence[Array]) -> bool:
    """Tell whether the values are here and no transformation is under way."""
    return all(map(_has_values, arrays)) and _trace_state() == _NO_TRACE


def is_spread(arrays: Sequence[Array]) -> bool:
    """Tell whether concrete arrays lie on several devices, which can work at the same time."""
    is_off = jax.config.jax_disable_jit  # type: ignore[attr-defined]
    return not is_off and any(isinstance(array, jax.Array) and len(array.devices()) > 1 for array in arrays)


def untraced() -> AbstractContextManager[None]:
    """Return what to hold for JAX's functions to run at once, whatever trace is under way.

    Not `jax.ensure_compile_time_eval`: that leaves the trace where it is, and so cannot tell what none looks like.
    """
    return jax.core.eval_context()


def call_directly(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of the kernel on the whole arrays, on the device of the arguments."""
    device = common_device(arrays, call.runner)
    if call.kernel.arrays == "same":
        outputs = call.runner(*map(jnp.asarray, arrays))
        return outputs if device is None else tuple(jax.device_put(output, device) for output in outputs)
    # A copy that was asked for is an explicit one, to JAX's transfer guard too.
    leave = transfer_is_allowed(call.options.allow_transfer)
    outputs = run_on_numpy(call.runner, jax.device_get(arrays) if leave else arrays)
    return tuple(jax.device_put(output, device) for output in outputs)


def common_device(arrays: Sequence[Array], runner: BlockRunner) -> jax.Device | None:
    """Return the one device that arguments are committed to; None, JAX's default, for none or a sharded one.

    Arguments on two devices are refused by name.
    """
    committed: dict[frozenset[Any], int] = {}
    for position, array in zip(runner.array_positions, arrays, strict=True):
        if isinstance(array, jax.Array) and array.committed:
            committed.setdefault(frozenset(array.devices()), position)
    if len(committed) > 1:
        named = ", ".join(f"argument {position} is on {_names(devices)}" for devices, position in committed.items())
        raise ArgumentError(f"{named}: arrays of two devices do not mix; move them to one with jax.device_put")
    devices = next(iter(committed), frozenset())
    return next(iter(devices)) if len(devices) == 1 else None


def run_on_numpy(runner: BlockRunner, blocks: Sequence[Array]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the outputs of a kernel that takes NumPy arrays, with dtypes that JAX has."""
    outputs = runner(*map(np.asarray, blocks))  # a view where the values are in the host's memory
    return tuple(_held(output, f"output {position}") for position, output in enumerate(outputs))


def lend(args: Sequence[Any]) -> Lent | None:
    """Return arguments lent to a kernel: arrays of one device, and Python scalars; None for what is less plain."""
    if _trace_state() != _NO_TRACE:
        return None
    look: list[Any] = [jax.config.jax_enable_x64]  # type: ignore[attr-defined]
    lent: list[Any] = []
    devices: set[jax.Device] = set()
    for arg in args:
        if is_constant(arg):
            look.append(type(arg))
            lent.append(arg)
            continue
        if not isinstance(arg, jax.Array) or isinstance(arg, jax.core.Tracer):
            return None
        aval, own = arg.aval, arg.sharding.device_set
        has_numbers = isinstance(aval.dtype, np.dtype) and aval.dtype.kind in "biufc"  # a key's dtype is JAX's own
        is_plain = type(arg.sharding) is SingleDeviceSharding and not aval.weak_type and has_numbers
        if not is_plain or not own <= _on_host() or (arg.committed and devices and own != devices):
            return None
        if arg.committed:
            devices = own
        try:
            lent.append(np.asarray(arg))
        except RuntimeError:  # of an array that was donated, which the common road tells
            return None
        look.append(aval)
    return Lent(tuple(look), tuple(lent), partial(_give_back, device=next(iter(devices), None)))


def refuse_mask(output: Array, what: str) -> None:
    """Refuse a masked array by name."""
    if isinstance(output, np.ma.MaskedArray):
        raise OutputDTypeError(f"{what}: kernel returned a masked array, whose mask JAX arrays cannot keep")


def _give_back(output: Array, position: int, *, device: jax.Device | None) -> Array:
    """Return an output as `call_directly` does, on the device of the arguments."""
    return jax.device_put(_held(output, f"output {position}"), device)


def _has_values(array: Array) -> bool:
    if isinstance(array, np.ndarray):
        return True
    return not isinstance(array, jax.core.Tracer) and array.is_fully_addressable


@cache
def _on_host() -> frozenset[jax.Device]:
    """Return the devices whose memory NumPy reads; from others a copy is made, with leave, on the common road."""
    return frozenset(jax.local_devices(backend="cpu"))


def _trace_state() -> object:
    return get_opaque_trace_state(convention="flax")


def _names(devices: frozenset[jax.Device]) -> str:
    return " and ".join(sorted(map(str, devices)))


def _held(output: Array, what: str) -> Array:
    """Return an output with the dtype that it would have had if it had been looked for before the call."""
    refuse_mask(output, what)
    return cast(output, narrow(output.dtype, declared=False), what)


with untraced():  # this module may be imported while the importing one is tracing
    _NO_TRACE: Final = _trace_state()
