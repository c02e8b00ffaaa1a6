"""No JAX inside a kernel that JAX waits for: what it would compute may need the thread that is waiting.

In: a kernel. Out: what to hold while such a kernel runs, so that the first operation of JAX in it raises.

Names of JAX: `jax.core.Trace`, `jax.extend.core.set_current_trace` (tried with 0.10.2 and 0.12.0).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NoReturn

import jax
from jax.extend.core import set_current_trace

from ..._errors import KernelError
from ..._kernel import Kernel
from ..._threads import hold_on_threads

__all__ = ["without_jax"]


def without_jax(kernel: Kernel) -> AbstractContextManager[None]:
    """Return what to hold for every operation of JAX to raise where the kernel runs, compiled functions' too."""
    if kernel.threads == 1:
        return set_current_trace(_NO_JAX)  # for one thread
    return hold_on_threads(partial(set_current_trace, _NO_JAX))


class _NoJax(jax.core.Trace):
    """The trace under way, to JAX: one that takes no operation."""

    def process_primitive(self, *_args: Any, **_keywords: Any) -> NoReturn:
        raise KernelError(
            "the kernel calls JAX, which waits for the kernel inside jit and vmap: a kernel that takes NumPy arrays "
            "uses NumPy; kernel_arrays='traced' is for one of JAX's operations, kernel_arrays='same' for a mixed one"
        )

    stage_value = process_call = process_custom_jvp_call = process_custom_vjp_call = process_primitive

    def invalidate(self) -> None:
        pass


_NO_JAX: Final = _NoJax()  # type: ignore[no-untyped-call]
