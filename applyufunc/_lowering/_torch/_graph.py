"""Calls inside ``torch.compile``: one node in the graph, in which the call runs as anywhere else, on symbolic tensors.

Dynamo reads `call_in_graph` in place of the public function that was called, and so it is plain code: what is no tensor
goes into a table when the call is compiled, and the node has its number. In: a public function and its arguments. Out:
what it returns.

Names of PyTorch that this relies on beyond the documented ones, seen in 2.13: the attribute that
`torch._dynamo.assume_constant_result` sets, `torch._dynamo.exc.Unsupported`, which Dynamo hands on as it is;
`torch.fx.experimental.symbolic_shapes.guard_scalar`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import torch
from torch._dynamo.exc import Unsupported
from torch.fx.experimental.symbolic_shapes import guard_scalar

from ..._errors import ApplyUfuncError, KernelError
from ..._option_values import UpTo
from ..._typing import Array
from .._identity import identity_of
from ._values import has_values

__all__ = ["call_in_graph"]


def call_in_graph(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return what a public function of this package returns, from a node of the graph that Dynamo is building."""
    given = [*args, *keywords.values()]
    arrays = [value for value in given if isinstance(value, _ARRAYS)]
    values = [None if isinstance(value, _ARRAYS) else _constant(value) for value in given]  # each by itself, as objects
    places = tuple([place for place, value in enumerate(given) if isinstance(value, _ARRAYS)])
    number = _remember(function, places, tuple(keywords), *values)
    result = _run(number, *map(torch.as_tensor, arrays))
    if any(isinstance(array, torch.Tensor) for array in arrays):
        return result
    return tuple([each.numpy() for each in result]) if isinstance(result, tuple) else result.numpy()


_ARRAYS: Final = (torch.Tensor, np.ndarray)
"""NumPy's are tensors to Dynamo, which hides it."""


def _constant(value: Any) -> Any:
    """Return a value such that the program is compiled anew for another one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return guard_scalar(value)  # which may be symbolic
    if isinstance(value, UpTo):  # of which Dynamo makes none that was made in the program
        return (UpTo, _constant(value.bound), _constant(value.fill_value))
    if type(value) in (tuple, torch.Size):
        return tuple([_constant(part) for part in value])
    if type(value) is list:
        return [_constant(part) for part in value]
    if type(value) is dict:
        return {name: _constant(part) for name, part in value.items()}
    if callable(value):
        id(value)  # of which Dynamo takes note; by itself it would tell functions apart by their code alone
    return value


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A call with room for tensors."""

    function: Callable[..., Any]
    places: tuple[int, ...]  # of tensors among the values
    names: tuple[str, ...]  # of the values that are keywords, the last ones
    values: tuple[Any, ...]

    def __call__(self, *tensors: Array) -> Any:
        given = list(self.values)
        for place, tensor in zip(self.places, tensors, strict=True):
            given[place] = tensor
        n_args = len(given) - len(self.names)
        return self.function(*given[:n_args], **dict(zip(self.names, given[n_args:], strict=True)))

    @property
    def identity(self) -> tuple[Any, ...]:
        """What tells the node from others for as long as it is kept."""
        return identity_of(self.function), self.places, self.names, tuple(map(identity_of, self.values))


def _remember(function: Callable[..., Any], places: tuple[int, ...], names: tuple[str, ...], *values: Any) -> int:
    """Return the number of a call; Dynamo runs this while it compiles, with the real objects."""
    node = _Node(function, places, names, tuple(map(_rebuilt, values)))
    with _lock:
        number = _numbers.setdefault(node.identity, next(_unused))
        _nodes.setdefault(number, node)
        _nodes.move_to_end(number)
        if len(_nodes) > _KEPT:
            _, oldest = _nodes.popitem(last=False)
            del _numbers[oldest.identity]
        return number


_remember._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _rebuilt(value: Any) -> Any:
    """Return a value as it was before `_constant` took an `UpTo` apart."""
    if type(value) is tuple:
        return UpTo(*value[1:]) if value[:1] == (UpTo,) else tuple(map(_rebuilt, value))
    if type(value) is list:
        return list(map(_rebuilt, value))
    return {name: _rebuilt(part) for name, part in value.items()} if type(value) is dict else value


def _run_node(number: int, *tensors: Array) -> Any:
    """Return what the call of a number gives; Dynamo makes a node of this, and looks what symbolic tensors become."""
    if number not in _nodes:
        raise KernelError(f"a compiled program has a call that was compiled before {_KEPT} others: compile it again")
    try:
        return _nodes[number](*tensors)
    except ApplyUfuncError as error:
        if all(map(has_values, tensors)):
            raise
        raise _handed_on(error) from error


# Disabled, since Dynamo runs it by itself after a graph break, and would come back here by the public function.
_run = torch.compiler.allow_in_graph(torch.compiler.disable(_run_node))


def _handed_on(error: ApplyUfuncError) -> Exception:
    """Return an error of the same kind that Dynamo takes for one of its own, which it does not wrap in another."""
    kind = type(error)
    made: type[Exception] = type(kind.__name__, (kind, Unsupported), {"__module__": kind.__module__})
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    handed_on = made(text)
    Unsupported.__init__(handed_on, text)  # which is not the first in line
    return handed_on


_KEPT: Final = 4096
"""Calls that are kept: each keeps its kernel alive, and its keywords."""

_lock: Final = threading.Lock()
_unused: Final = count()
_numbers: Final[dict[Any, int]] = {}
_nodes: Final[OrderedDict[int, _Node]] = OrderedDict()
