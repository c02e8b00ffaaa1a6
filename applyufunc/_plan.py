"""Shapes against a signature: `make_plan` gives the dims and sizes of every operand, or says what does not fit.

In: a `Signature`, the shapes of the arguments with core dims last, sizes of output dims. Out: a `Plan`, hashable and
without arrays. Sizes are ints, or None where nobody knows them before the kernel runs. Knows no array library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any, Final

from ._errors import DimensionError, OptionError, UnknownSizeError
from ._option_values import OutputSize, OutputSizes, SizeRule, UpTo
from ._options import check_output_dims
from ._signature import CoreDim, Signature
from ._typing import Shape

__all__ = ["Operand", "Plan", "core_sizes", "fix_output_sizes", "make_plan", "shape_text"]

_CACHE_SIZE: Final = 4096  # plans; one is a few hundred bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument or output: loop dims ``"-1"``, ``"-2"`` from the right, then core dims by label."""

    dims: tuple[str, ...]
    shape: Shape  # None: unknown
    n_core: int

    @property
    def n_loop(self) -> int:
        return len(self.dims) - self.n_core

    @property
    def loop_shape(self) -> Shape:
        return self.shape[: self.n_loop]

    @property
    def core_shape(self) -> Shape:
        return self.shape[self.n_loop :]


@dataclass(frozen=True, slots=True)
class Plan:
    """The dims and sizes of a whole call."""

    signature: Signature
    inputs: tuple[Operand | None, ...]  # None: an argument without a shape
    outputs: tuple[Operand, ...]
    loop_shape: Shape
    sizes: tuple[tuple[str, int | None], ...]  # of the inputs' core dims
    bounds: tuple[tuple[str, UpTo], ...]  # of output dims that are known by their bound

    @property
    def n_loop(self) -> int:
        return len(self.loop_shape)

    @property
    def is_empty(self) -> bool:
        """Whether no loop item exists, so that the kernel has nothing to do."""
        return 0 in self.loop_shape

    @property
    def unknown_output_dims(self) -> tuple[str, ...]:
        """Labels of the outputs' core dims whose size only the kernel will tell."""
        cores = ((o.dims[o.n_loop :], o.core_shape) for o in self.outputs)
        return tuple(
            dict.fromkeys(d for dims, sizes in cores for d, size in zip(dims, sizes, strict=True) if size is None)
        )


@lru_cache(maxsize=_CACHE_SIZE)
def make_plan(signature: Signature, shapes: tuple[Shape | None, ...], output_sizes: OutputSizes = ()) -> Plan:
    """Return the plan for arguments of these shapes; None stands for an argument without a shape."""
    sizes = core_sizes(signature, shapes)
    inputs = tuple(
        None if shape is None else _operand(dims, shape) for dims, shape in zip(signature.inputs, shapes, strict=True)
    )
    loop_shape = _broadcast_loops(inputs)
    check_output_dims(signature, (label for label, _ in output_sizes))
    given = dict(output_sizes)
    outputs = tuple(_output(dims, loop_shape, sizes, given) for dims in signature.outputs)
    bounds = tuple((label, size) for label, size in output_sizes if isinstance(size, UpTo))
    return Plan(signature, inputs, outputs, loop_shape, tuple(sizes.items()), bounds)


def core_sizes(signature: Signature, shapes: tuple[Shape | None, ...]) -> dict[str, int | None]:
    """Return the size of every core dim of the inputs; a size-1 axis of a ``|1`` dim has no say."""
    found: dict[str, list[_Found]] = {}
    for position, (dims, shape) in enumerate(zip(signature.inputs, shapes, strict=True)):
        if shape is None:
            continue
        _check_ndim(position, dims, shape)
        for dim, size in zip(dims, shape[len(shape) - len(dims) :], strict=True):
            found.setdefault(dim.label, []).append(_Found(position, dim, size))
    return {label: _common_size(label, places) for label, places in found.items()}


def fix_output_sizes(
    rules: tuple[tuple[str, SizeRule], ...], sizes: Mapping[str, int | None], keywords: Mapping[str, Any]
) -> OutputSizes:
    """Replace callables by the sizes that they give, for the known sizes and those keywords that they take."""
    return tuple((label, _fixed_size(label, rule, sizes, keywords)) for label, rule in rules)


def shape_text(shape: Iterable[int | None]) -> str:
    """Write a shape as NumPy does, with ``?`` for an unknown size."""
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _fixed_size(label: str, rule: SizeRule, sizes: Mapping[str, int | None], keywords: Mapping[str, Any]) -> OutputSize:
    if not callable(rule):
        return rule
    size = _called_rule(label, rule, sizes, keywords)
    if size is None or isinstance(size, UpTo):
        return size
    try:
        size = index(size)
    except TypeError:
        raise OptionError(f"output_sizes[{label!r}]: the callable returned {size!r}, expected an int") from None
    if size < 0:
        raise DimensionError(f"output_sizes[{label!r}]: the callable returned {size}, expected at least 0")
    return size


def _called_rule(
    label: str, rule: Callable[..., Any], sizes: Mapping[str, int | None], keywords: Mapping[str, Any]
) -> Any:
    unknown = [name for name, size in sizes.items() if size is None]
    try:
        return rule(dict(sizes), **_taken(rule, keywords))
    except Exception as error:
        if unknown and isinstance(error, TypeError):  # arithmetic on None
            raise UnknownSizeError(
                f"output_sizes[{label!r}]: the callable needs sizes, and that of core dimension {unknown[0]!r} is "
                f"unknown until "
                f"computed; pass an int, UpTo(bound), or None"
            ) from error
        error.add_note(
            f"in the callable that output_sizes has for dimension {label!r}, called with sizes {dict(sizes)}"
        )
        raise


def _taken(rule: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the kernel's keywords that a callable has parameters for."""
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):  # builtins without a text signature
        return {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(keywords)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in keywords.items() if name in named}


@dataclass(frozen=True, slots=True)
class _Found:
    """A core dim as one argument has it."""

    position: int
    dim: CoreDim
    size: int | None


def _check_ndim(position: int, dims: tuple[CoreDim, ...], shape: Shape) -> None:
    if len(shape) < len(dims):
        wanted = ",".join(map(str, dims))
        raise DimensionError(
            f"argument {position} has shape {shape_text(shape)}, too few dimensions for its core dimensions ({wanted})"
        )


def _common_size(label: str, places: list[_Found]) -> int | None:
    for place in places:
        _check_fixed_size(place)
    binding = [place for place in places if place.size is not None and not (place.dim.stretches and place.size == 1)]
    if not binding:
        is_unknown = any(place.size is None for place in places)
        return places[0].dim.size if is_unknown else 1
    first = binding[0]
    for place in binding[1:]:
        if place.size != first.size:
            raise DimensionError(
                f"core dimension {label!r} is {_sizes_text(first, place)}: core dimensions do not "
                f"broadcast{_cure(label, first, place)}"
            )
    return first.size


def _sizes_text(first: _Found, other: _Found) -> str:
    if first.position == other.position:
        return f"{first.size} and {other.size} in argument {first.position}"
    return f"{first.size} in argument {first.position} and {other.size} in argument {other.position}"


def _cure(label: str, *places: _Found) -> str:
    """Say what to write where size 1 is meant to broadcast."""
    is_one = any(place.size == 1 and not place.dim.stretches for place in places)
    return f" (write '{label}|1' where size 1 may)" if is_one else ""


def _check_fixed_size(place: _Found) -> None:
    if place.dim.size is not None and place.size not in (None, place.dim.size):
        raise DimensionError(f"argument {place.position}: core dimension fixed to {place.dim.size}, got {place.size}")


def _operand(dims: tuple[CoreDim, ...], shape: Shape) -> Operand:
    labels = tuple(dim.label for dim in dims)
    return Operand((*_loop_dims(len(shape) - len(dims)), *labels), shape, len(dims))


def _loop_dims(n_loop: int) -> tuple[str, ...]:
    return tuple(str(axis) for axis in range(-n_loop, 0))


def _broadcast_loops(inputs: tuple[Operand | None, ...]) -> Shape:
    operands = [(position, operand) for position, operand in enumerate(inputs) if operand is not None]
    n_loop = max((operand.n_loop for _, operand in operands), default=0)
    return tuple(_loop_size(axis, operands) for axis in range(-n_loop, 0))


def _loop_size(axis: int, operands: list[tuple[int, Operand]]) -> int | None:
    result: int | None = 1
    source = 0
    for position, operand in operands:
        if operand.n_loop < -axis or (size := operand.loop_shape[axis]) == 1 or size == result:
            continue
        if result == 1 or (result is None and size is not None):
            result, source = size, position
        elif size is not None:
            raise DimensionError(
                f"loop dimension {axis} (from the right) is {result} in argument {source} and {size} in argument "
                f"{position}: "
                f"loop shapes {_loop_shapes(operands)} do not broadcast"
            )
    return result


def _loop_shapes(operands: list[tuple[int, Operand]]) -> str:
    return " and ".join(shape_text(operand.loop_shape) for _, operand in operands)


def _output(
    dims: tuple[CoreDim, ...], loop_shape: Shape, sizes: Mapping[str, int | None], given: Mapping[str, OutputSize]
) -> Operand:
    labels = tuple(dim.label for dim in dims)
    core_shape = tuple(_output_size(dim, sizes, given) for dim in dims)
    return Operand((*_loop_dims(len(loop_shape)), *labels), (*loop_shape, *core_shape), len(dims))


def _output_size(dim: CoreDim, sizes: Mapping[str, int | None], given: Mapping[str, OutputSize]) -> int | None:
    if dim.label in given:
        return _checked_fixed_output(dim, _bound(given[dim.label]))
    if dim.size is not None:
        return dim.size
    if dim.expression is not None:
        new = {label: _bound(size) for label, size in given.items() if label not in sizes}
        return _evaluate(dim, {**sizes, **new})
    if dim.label in sizes:
        return sizes[dim.label]
    raise _missing_size(dim.label)


def _checked_fixed_output(dim: CoreDim, size: int | None) -> int | None:
    if dim.size is not None and size != dim.size:
        raise DimensionError(f"output_sizes[{dim.label!r}] is {size}: the signature fixes this dimension to {dim.size}")
    return size


def _evaluate(dim: CoreDim, sizes: Mapping[str, int | None]) -> int | None:
    try:
        return dim.evaluate(sizes)
    except KeyError as missing:
        raise _missing_size(str(missing.args[0])) from None


def _missing_size(label: str) -> UnknownSizeError:
    return UnknownSizeError(
        f"the size of output dimension {label!r} is not known: no input has it; "
        f"pass output_sizes={{{label!r}: ...}} with an int, a callable of the known sizes, UpTo(bound), or None "
        f"(unknown until computed)"
    )


def _bound(size: OutputSize) -> int | None:
    return size.bound if isinstance(size, UpTo) else size
