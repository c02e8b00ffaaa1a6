"""The fast call on the CPU: a kernel as a foreign function of XLA's, which reads and writes XLA's memory itself.

In: a block runner with its identity, the outputs' types, traced arrays. Out: traced arrays. One call for whatever
shapes the arrays have in the program; batching, shards and derivatives are the caller's to deal with. No code of ours
is compiled: XLA calls Python through ctypes, which holds the interpreter's lock meanwhile.

Names of JAX: `jax.ffi.ffi_call`, `jax.ffi.register_ffi_target`, `jax.ffi.pycapsule`; `jax.extend.core.Primitive`,
`jax.interpreters.mlir.register_lowering`, ``LoweringRuleContext.module_context`` with ``add_keepalive``,
``keepalives`` and ``lowering_parameters.for_export`` (tried with 0.10.2 and 0.12.0). `_self_test` finds out whether
they work.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import MutableMapping, Sequence
from functools import cache
from hashlib import blake2b
from threading import get_ident
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ..._blocks import BlockRunner
from ..._errors import OptionError
from ..._typing import Array
from .._identity import Identified
from ._borrowed import BorrowingKernel, Form, make_form
from ._exit import running, wait_at_exit
from ._xla_abi import (
    Frame,
    Handler,
    OperandType,
    attribute,
    create_error,
    describe_handler,
    is_execution,
    layout_problem,
    operand_types,
    read_frame,
)

__all__ = ["Program", "find_call", "foreign_call"]


def foreign_call(
    identified: Identified, output_types: Sequence[jax.ShapeDtypeStruct], *arrays: Array
) -> tuple[Array, ...]:
    """Return the outputs of the kernel, run once on whole arrays; `_self_test.why_unavailable` has been asked."""
    call = find_call(identified, arrays, output_types)
    results = jax.ffi.ffi_call(_target(), tuple(output_types))(*arrays, call=np.int64(call.number))
    return tuple(_keep_alive.bind(*results, call=call))


def find_call(identified: Identified, arrays: Sequence[Any], output_types: Sequence[jax.ShapeDtypeStruct]) -> _Call:
    """Return what a program calls for such arrays: the same for as long as a program, a trace or a caller holds it."""
    inputs, outputs = tuple(map(_type, arrays)), tuple(map(_type, output_types))
    key = identified, inputs, outputs
    with _lock:
        call = _calls.get(key)
        if call is None:
            kernel = _kernels.setdefault(identified, BorrowingKernel(identified.runner))
            number = _free_number(identified.runner, inputs, outputs)
            call = _Call(kernel, _form(kernel.runner, inputs, outputs), number)
            _calls[key] = _by_number[call.number] = call
    return call


class _Call:
    """A kernel with the types of its operands, which XLA knows by a number."""

    __slots__ = ("__weakref__", "form", "kernel", "number")

    def __init__(self, kernel: BorrowingKernel, form: Form | None, number: int) -> None:
        self.kernel = kernel
        self.form = form  # None: the program has it at each call, since a size is a symbol
        self.number = number

    def __call__(self, frame: Frame) -> str:
        form = self.form
        if form is None:
            types = (operand_types(frame.inputs, frame.n_inputs), operand_types(frame.outputs, frame.n_outputs))
            form = make_form(self.kernel.runner, *types)
        return self.kernel(form, frame)


class Program:
    """What lives as long as a program, with the calls in it, which live on while it may be under way."""

    __slots__ = ("__weakref__", "calls")

    def __init__(self) -> None:
        self.calls: set[_Call] = set()
        finalize(self, _outlive_program, self.calls).atexit = False


def _type(array: Array | jax.ShapeDtypeStruct) -> OperandType:
    return np.dtype(array.dtype), tuple(array.shape)


@cache
def _target() -> str:
    """Return the name under which XLA knows the handler: registered now, once in a process."""
    jax.local_devices(backend="cpu")  # a name that is taken, before JAX has its backends, takes all of them down
    capsule = jax.ffi.pycapsule(ctypes.cast(_handle, ctypes.c_void_p).value)
    for attempt in range(_COPIES):  # of this package under one name, one after the other
        name = f"{_PACKAGE}.call{f'#{attempt}' if attempt else ''}"
        try:
            jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
        except jax.errors.JaxRuntimeError:
            if attempt == _COPIES - 1:
                raise
        else:
            wait_at_exit()
            return name
    raise AssertionError


def _form(runner: BlockRunner, inputs: tuple[OperandType, ...], outputs: tuple[OperandType, ...]) -> Form | None:
    is_known = all(isinstance(size, int) for _, shape in (*inputs, *outputs) for size in shape)
    return make_form(runner, inputs, outputs) if is_known else None


def _free_number(runner: BlockRunner, inputs: tuple[OperandType, ...], outputs: tuple[OperandType, ...]) -> int:
    """Return what stands for a call in programs: the same in every process, so that JAX's cache on disk finds them.

    Calls that are alike in all that can be told get numbers in the order in which they come.
    """
    func = runner.kernel.func
    where = getattr(func, "__module__", ""), getattr(func, "__qualname__", ""), runner.kernel.name
    how = str(runner.signature), tuple(runner.keywords), str((inputs, outputs))
    number = int.from_bytes(blake2b(repr((where, how)).encode(errors="replace"), digest_size=7).digest())
    while number in _by_number:
        number += 1
    return number


@Handler  # type: ignore[untyped-decorator]  # of ctypes
def _handle(address: int) -> Any:
    """Answer XLA's question of what this is, and its calls."""
    frame = read_frame(address)
    try:
        message = _run(frame) if is_execution(frame) else _introduce(frame, address)
    except BaseException as error:  # noqa: BLE001  # ctypes would print it, and XLA take the call for a success
        message = f"{_PACKAGE} failed with {type(error).__name__}: {error}"
    return create_error(frame, message) if message else None


def _run(frame: Frame) -> str:
    number = attribute(frame)
    call = _by_number.get(number)
    if call is None:
        return f"{_PACKAGE}: call {number} of this program is not known to this process: trace the call here first"
    thread = get_ident()
    running[thread] = frame
    try:
        return call(frame)
    finally:
        running.pop(thread, None)  # gone already where the kernel has called another on this thread


def _introduce(frame: Frame, address: int) -> str:
    """Answer a call that computes nothing; that one layout is known is found out when the first of them comes."""
    problem = layout_problem(address)
    if not problem:
        describe_handler(frame)
    return problem


def _as_they_are(*operands: Any, call: _Call) -> Sequence[Any]:
    return operands


def _keep_with_program(context: Any, *operands: Any, call: _Call) -> Sequence[Any]:
    """Tie the life of a call, and of its kernel, to that of the program that is being made."""
    if context.module_context.lowering_parameters.for_export:  # JAX refuses to write down what keeps objects alive
        _exported.add(call)
    else:
        _program_of(context.module_context).calls.add(call)
    return operands


def _program_of(context: Any) -> Program:
    """Return what is kept with the program that is being made."""
    for kept in context.keepalives:
        if isinstance(kept, Program):
            return kept
    program = Program()
    context.add_keepalive(program)
    return program


def _outlive_program(calls: set[_Call]) -> None:
    if calls:
        _ended().append(calls)


@cache
def _ended() -> deque[set[_Call]]:
    """Return the calls of the last programs that JAX has dropped: as many as XLA lets be under way at once."""
    return deque(maxlen=_UNDER_WAY * len(jax.local_devices(backend="cpu")))


def _refuse_platform(context: Any, *operands: Any, call: _Call) -> Sequence[Any]:
    raise OptionError(
        f"callback='ffi' is a call on the CPU, and kernel {call.kernel.runner.kernel.name!r} is compiled for "
        f"{' and '.join(context.module_context.platforms)}: pass callback='auto'"
    )


_PACKAGE: Final = __name__.removesuffix("._lowering._jax._foreign")
_COPIES: Final = 100
_UNDER_WAY: Final = 32  # computations on a device, XLA's max_inflight_computations_per_device
_lock = threading.Lock()
# Weak: a kernel lives as long as the programs and traces that it stands in, and a while longer.
_kernels: MutableMapping[Identified, BorrowingKernel] = WeakValueDictionary()
_calls: MutableMapping[tuple[Any, ...], _Call] = WeakValueDictionary()
_by_number: MutableMapping[int, _Call] = WeakValueDictionary()
_exported: set[_Call] = set()  # kept for good, since nobody knows when the last program with them is gone

_keep_alive: Final = Primitive(f"{_PACKAGE}.keep_alive")
_keep_alive.multiple_results = True
_keep_alive.def_impl(_as_they_are)
_keep_alive.def_abstract_eval(_as_they_are)
mlir.register_lowering(_keep_alive, _refuse_platform)
mlir.register_lowering(_keep_alive, _keep_with_program, platform="cpu")
