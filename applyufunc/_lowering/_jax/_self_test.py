"""Whether the fast call works in this process: `why_unavailable` tries it once, before anything relies on it.

In: nothing. Out: words that say what does not work, or nothing. The interface that `_xla_abi` speaks is XLA's own, and
may change with any version: a program with an operand of every dtype is compiled and run, and run again to fail.

Names of JAX: `jax.enable_x64` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

import jax
import numpy as np

from ..._blocks import BlockRunner
from ..._derivatives import Derivatives
from ..._failures import reraise
from ..._kernel import Kernel
from ..._signature import Signature
from ..._typing import Array
from .._identity import identify
from ._foreign import foreign_call
from ._xla_abi import DTYPES

__all__ = ["why_unavailable"]


def why_unavailable() -> str:
    """Return why the fast call cannot be had in this process; nothing where it can."""
    with _lock:
        if not _found:
            _found.append(_try_on_a_thread())
        return _found[0]


def _try_on_a_thread() -> str:
    """Try it where no trace, guard, mesh or setting of the caller's is under way, and where it may hang alone."""
    outcome = ["it did not end"]
    thread = threading.Thread(target=partial(_try, outcome), name="applyufunc-self-test", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # no thread can start
        return str(error)
    thread.join(_PATIENCE)
    return outcome[0]


def _try(outcome: list[str]) -> None:
    try:
        with jax.enable_x64(True):
            outcome[0] = _problem()
    except Exception as error:  # noqa: BLE001  # whatever it is, the other route is there
        outcome[0] = f"{type(error).__name__}: {error}"


def _problem() -> str:
    """Run a kernel that returns what it gets, and one that fails; return what is not as it was expected."""
    device = jax.local_devices(backend="cpu")[0]
    arrays = [_values(dtype) for dtype in DTYPES.values()]
    program = jax.jit(partial(foreign_call, identify(_runner(len(arrays)), Derivatives()), tuple(map(_type, arrays))))
    operands = jax.device_put(arrays, device)
    results = jax.device_get(program(*operands))
    wrong = [str(a.dtype) for a, b in zip(arrays, results, strict=True) if not _are_equal(a, b)]
    if wrong:
        return f"values of {', '.join(wrong)} do not arrive"
    operands[0] = jax.device_put(~arrays[0], device)
    try:
        with reraise():
            jax.block_until_ready(program(*operands))
    except _ExpectedError:
        return ""
    return "an error does not arrive"


def _values(dtype: np.dtype[Any]) -> Array:
    """Return values of which no two dtypes have the same bytes."""
    if dtype == np.bool_:
        return np.array([[True, False, False]])
    return np.array([[1, 0, 2]]).astype(dtype)


def _type(array: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _runner(n_operands: int) -> BlockRunner:
    operands = ",".join(["(n)"] * n_operands)
    signature = Signature.parse(f"{operands}->{operands}")
    return BlockRunner(Kernel(_check, "self_test"), signature, (), {}, (), tuple(DTYPES.values()))


def _check(first: Array, *others: Array) -> tuple[Array, ...]:
    if not first[0, 0]:
        raise _ExpectedError
    return first, *others


class _ExpectedError(Exception):
    pass


def _are_equal(expected: Array, result: Array) -> bool:
    return bool(expected.dtype == result.dtype and expected.tobytes() == result.tobytes())


_PATIENCE: Final = 60  # seconds
_lock = threading.Lock()
_found: list[str] = []
