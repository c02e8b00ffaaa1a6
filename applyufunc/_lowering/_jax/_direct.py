"""The kernel called directly on concrete arrays: no compilation, no copies of the arguments, and its own exceptions.

In: a call, and arrays whose values this process holds. Out: JAX arrays. Of traces it knows how to tell that there is
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from ..._blocks import BlockRunner
from ..._call import Call
from ..._casting import cast
from ..._errors import OutputDTypeError
from ..._typing import Array
from ._dtypes import narrow

__all__ = ["call_directly", "is_concrete", "run_on_numpy"]


def is_concrete(arrays: Sequence[Array]) -> bool:
    """Tell whether the values are here and no transformation is under way."""
    return all(map(_has_values, arrays)) and _trace_state() == _NO_TRACE


def call_directly(call: Call, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of the kernel on the whole arrays, on the device of the arguments."""
    if call.kernel.arrays == "same":
        return call.runner(*map(jnp.asarray, arrays))
    device = _device(arrays)
    outputs = run_on_numpy(call.runner, arrays)
    return tuple(jax.device_put(_own(output), device) for output in outputs)


def run_on_numpy(runner: BlockRunner, blocks: Sequence[Array]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the outputs of a kernel that takes NumPy arrays, with dtypes that JAX has."""
    outputs = runner(*map(np.asarray, blocks))  # a view where the values are in the host's memory
    return tuple(_held(output, f"output {position}") for position, output in enumerate(outputs))


def _has_values(array: Array) -> bool:
    if isinstance(array, np.ndarray):
        return True
    return not isinstance(array, jax.core.Tracer) and array.is_fully_addressable


def _trace_state() -> object:
    return get_opaque_trace_state(convention="flax")


def _device(arrays: Sequence[Array]) -> jax.Device | None:
    """Return the one device that arguments are committed to; None, which is JAX's default, for none or several."""
    committed = [array.devices() for array in arrays if isinstance(array, jax.Array) and array.committed]
    devices = set().union(*committed)
    return devices.pop() if len(devices) == 1 else None


def _held(output: Array, what: str) -> Array:
    """Return an output with the dtype that it would have had if it had been looked for before the call."""
    if isinstance(output, np.ma.MaskedArray):
        raise OutputDTypeError(f"{what}: kernel returned a masked array, whose mask JAX arrays cannot keep")
    return cast(output, narrow(output.dtype, declared=False), what)


def _own(output: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an output that shares nothing with an argument: what was passed through is still flagged read-only."""
    return output if output.flags.writeable else output.copy()


with ThreadPoolExecutor(max_workers=1) as _thread:
    # In a thread of its own, since this module may be imported while the importing one is tracing.
    _NO_TRACE: Final = _thread.submit(_trace_state).result()
