"""What every task carries to a worker process: `travel_advice` refuses what cannot be pickled, and tells of large data.

In: a `BlockRunner` as it will be in the tasks. Out: None, a text to warn with, or an `ArgumentError` that names the
variable. Looks only where tasks will be pickled: a client of `distributed` is active, or Dask is configured for
processes; never imports `distributed` itself.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pickle import PickleBuffer
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias

import cloudpickle
import dask

from ..._blocks import BlockRunner
from ..._core_chunks import PiecewiseKernel, ScanKernel
from ..._errors import ArgumentError
from ..._kernel import Kernel
from ._keywords import LARGE, Opened

__all__ = ["destination", "travel_advice"]


SHARE: Final = "pass large data as NumPy arrays in keywords of the kernel, or as arguments, which go to a worker once"
"""The cure for large data in a kernel."""


def travel_advice(runner: BlockRunner, n_tasks: int, cure: str = SHARE) -> str | None:
    """Refuse a kernel that cannot travel to the workers of an active client; say what makes it slow to."""
    aim = destination()
    if aim is None:
        return None
    try:
        n_bytes = _pickled_size(runner)
    except Exception as error:  # as many kinds as there are ways to write a __reduce__
        if aim == "client":
            raise _refusal(runner) from error
        return None
    return _advice(runner, n_bytes, n_tasks, cure) if n_bytes > LARGE and n_tasks > 1 else None


def destination() -> str | None:
    """Return "client" or "processes" where tasks will be pickled for them, as Dask itself would find out."""
    scheduler = dask.config.get("scheduler", None)
    if scheduler in ("processes", "multiprocessing"):
        return "processes"
    is_for_client = scheduler in (None, "distributed", "dask.distributed") or "Client" in type(scheduler).__name__
    return "client" if is_for_client and _client_is_active() else None


def _client_is_active() -> bool:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.default_client()
    except (AttributeError, ValueError):  # half imported; no client
        return False
    return True


def _pickled_size(value: Any) -> int:
    """Return the bytes of a pickle, for which the memory of arrays is not copied."""
    buffers: list[PickleBuffer] = []
    pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(pickled) + sum(buffer.raw().nbytes for buffer in buffers)


def _refusal(runner: BlockRunner) -> ArgumentError:
    trail = _trail(runner, lambda value: _pickle_error(value) is not None)
    culprit = trail[-1].value if trail else runner
    is_lock = "lock" in type(culprit).__name__.lower()
    cure = _lock_cure(runner.kernel) if is_lock else "make it in the kernel, or in a module of the workers"
    return ArgumentError(
        f"kernel {runner.kernel.name!r} cannot travel to the workers of the active distributed client, since "
        f"{_path(trail) or 'the kernel'}, of type {_type_name(culprit)}, does not pickle ({_pickle_error(culprit)}): "
        f"{cure}"
    )


def _lock_cure(kernel: Kernel) -> str:
    if kernel.thread_safe:
        return "remove the lock from the kernel and pass thread_safe=False"
    return "thread_safe=False is set: remove the lock from the kernel"


def _advice(runner: BlockRunner, n_bytes: int, n_tasks: int, cure: str) -> str:
    trail = _trail(runner, _is_large)
    where = f", for {_path(trail)}, of type {_type_name(trail[-1].value)}" if trail else ""
    return (
        f"kernel {runner.kernel.name!r} carries {n_bytes / 1e6:.1f} MB in each of its {n_tasks:,} tasks{where}: {cure}"
    )


class _Step(NamedTuple):
    """One step into a value."""

    name: str  # as messages say it; empty: not worth saying
    value: Any


_Steps: TypeAlias = Iterable[_Step]


def _trail(value: Any, is_guilty: Callable[[Any], bool]) -> list[_Step]:
    """Return the steps into a value that lead to the innermost part that is guilty."""
    trail: list[_Step] = []
    while len(trail) < _DEPTH:
        guilty = (step for step in islice(_parts(value), _PARTS_LOOKED_AT) if is_guilty(step.value))
        step = next(guilty, None)
        if step is None:
            break
        trail.append(step)
        value = step.value
    return trail


def _path(trail: Iterable[_Step]) -> str:
    return " of ".join(step.name for step in reversed(list(trail)) if step.name)


def _pickle_error(value: Any) -> str | None:
    try:
        _pickled_size(value)
    except Exception as error:  # noqa: BLE001  # see travel_advice
        return f"{type(error).__name__}: {error}"
    return None


def _is_large(value: Any) -> bool:
    try:
        return _pickled_size(value) > LARGE
    except Exception:  # noqa: BLE001  # see travel_advice
        return False


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _parts(value: Any) -> _Steps:
    """Return the parts that a value is pickled with; of what is an array, none."""
    if hasattr(type(value), "__array__"):
        return ()
    kinds = (kind for kind in _PARTS_OF if isinstance(value, kind))
    return _PARTS_OF.get(next(kinds, object), _object_parts)(value)


def _runner_parts(runner: BlockRunner) -> Iterator[_Step]:
    yield _Step("", runner.kernel)
    yield from (_Step(f"keyword {name!r}", value) for name, value in runner.keywords.items())


def _kernel_parts(kernel: Kernel) -> Iterator[_Step]:
    yield _Step("", kernel.func)


def _piecewise_parts(piecewise: PiecewiseKernel) -> Iterator[_Step]:
    for name in ("chunk", "combine", "aggregate"):
        yield _Step(f"the Reduction's {name}", getattr(piecewise, name))
    yield _Step("the Reduction's state_dtypes", piecewise.reduction.state_dtypes)
    yield from _size_rule_parts(piecewise)


def _scan_parts(scan: ScanKernel) -> Iterator[_Step]:
    yield from (_Step(f"the Scan's {name}", getattr(scan, name)) for name in ("step", "initial"))
    yield from _size_rule_parts(scan)


def _size_rule_parts(function: PiecewiseKernel | ScanKernel) -> Iterator[_Step]:
    yield from (_Step(f"output_sizes[{label!r}]", rule) for label, rule in function.size_rules)


def _function_parts(function: FunctionType) -> Iterator[_Step]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield from (_Step(f"variable {name!r} in the closure of {function.__name__!r}", v) for v in _content(cell))
    used = dict.fromkeys(_global_names(function.__code__))
    yield from (_Step(f"global variable {n!r}", function.__globals__[n]) for n in used if n in function.__globals__)
    yield from (_Step(f"the default of {name!r}", value) for name, value in _defaults(function).items())
    yield from _attributes(vars(function))


def _content(cell: Any) -> tuple[Any, ...]:
    """Return what a closure holds in one place; nothing where it is still empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _global_names(code: CodeType) -> Iterator[str]:
    """Return the globals that a function reads, and those that functions in it do."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _defaults(function: FunctionType) -> dict[str, Any]:
    positional, values = function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()
    return dict(zip(reversed(positional), reversed(values), strict=False)) | (function.__kwdefaults__ or {})


def _method_parts(method: MethodType) -> Iterator[_Step]:
    yield _Step("the object that has the method", method.__self__)
    yield _Step("", method.__func__)


def _partial_parts(bound: functools.partial[Any]) -> Iterator[_Step]:
    yield from (_Step(f"argument {place} of the partial", value) for place, value in enumerate(bound.args))
    yield from (_Step(f"keyword {name!r} of the partial", value) for name, value in bound.keywords.items())
    yield _Step("", bound.func)


def _items(container: dict[Any, Any]) -> Iterator[_Step]:
    yield from (_Step(f"item {key!r}", value) for key, value in container.items())


def _members(container: Iterable[Any]) -> Iterator[_Step]:
    yield from (_Step(f"item {place}", value) for place, value in enumerate(container))


def _object_parts(value: Any) -> Iterator[_Step]:
    """Return the attributes that an object is pickled with, and its class, which may be pickled with it."""
    try:
        _, arguments, *states = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # see travel_advice
        return
    for state in states[0] if states and isinstance(states[0], tuple) else states[:1]:
        yield from _attributes(_named(value, state))
    for place, argument in enumerate(arguments):
        yield _Step("the class" if argument is type(value) else f"argument {place} of __reduce__", argument)


def _named(value: Any, state: Any) -> Any:
    """Return the state of an object with names; that of a frozen dataclass with slots is a list without."""
    if not dataclasses.is_dataclass(value) or not isinstance(state, list):
        return state
    return dict(zip((field.name for field in dataclasses.fields(value)), state, strict=False))


def _attributes(state: Any) -> Iterator[_Step]:
    yield from (_Step(f"attribute {name!r}", v) for name, v in (state.items() if isinstance(state, dict) else ()))


_DEPTH: Final = 10  # steps; what holds itself has no innermost part
_PARTS_LOOKED_AT: Final = 1000
_PARTS_OF: Final[dict[type, Callable[[Any], _Steps]]] = {
    BlockRunner: _runner_parts,
    Kernel: _kernel_parts,
    PiecewiseKernel: _piecewise_parts,
    ScanKernel: _scan_parts,
    Opened: lambda opened: _parts(opened.closed()),
    FunctionType: _function_parts,
    MethodType: _method_parts,
    functools.partial: _partial_parts,
    dict: _items,
    list: _members,
    tuple: _members,
    set: _members,
    type: lambda kind: _attributes(dict(vars(kind))),
}
