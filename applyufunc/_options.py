"""What a caller may ask for: `Options`, `UpTo`, and which keyword is an option and which the kernel's.

In: keywords as they were written. Out: a frozen `Options` with every value checked, and the kernel's own keywords.
Knows no array library, and no kernel but by the names of its parameters.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, Final, Literal, TypeAlias, TypedDict

from ._errors import OptionError

__all__ = [
    "CALL_OPTIONS",
    "OPTION_NAMES",
    "CoreChunksRule",
    "OptionKeywords",
    "Options",
    "OutputSize",
    "OutputSizes",
    "Parameters",
    "UpTo",
    "make_options",
    "read_options",
    "split_keywords",
]


@dataclass(frozen=True, slots=True, eq=False)
class UpTo:
    """
    The size of an output dimension of which only a bound is known.

    The dimension has size `bound` on every backend: what the kernel returns is padded at its end with `fill_value`, and
    a kernel that returns more is refused. To learn how much was returned, let the kernel return the count as a further
    output.

    Parameters
    ----------
    bound : int
        The size that the dimension has in the result; at least 0.
    fill_value : scalar, default 0
        What the padding is filled with, cast to the dtype of the output.

    Raises
    ------
    OptionError
        If `bound` is no integer, or negative, or if `fill_value` is no scalar.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> def distinct(row):
    ...     values = np.unique(row)
    ...     return values, len(values)
    >>> rows = np.array([[3, 1, 3], [2, 2, 2]])
    >>> values, count = au.apply_ufunc(
    ...     distinct, "(n)->(k),()", rows,
    ...     vectorize=True, output_sizes={"k": au.UpTo(3, fill_value=-1)},
    ... )
    >>> values
    array([[ 1,  3, -1],
           [ 2, -1, -1]])
    >>> count
    array([2, 1])
    """

    bound: int
    fill_value: Any = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _size(self.bound, "UpTo: bound"))
        try:
            hash(self)
        except TypeError:
            raise OptionError(f"UpTo: fill_value takes a scalar, got {self.fill_value!r}") from None

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, UpTo) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        """What equality compares: 0, 0.0, -0.0 and False fill differently, and a NaN fills as every other NaN does."""
        fill = self.fill_value
        return self.bound, type(fill), repr(fill) if isinstance(fill, (float, complex)) else fill


class CoreChunksRule:
    """What `core_chunks` takes beyond words and functions: how pieces of a core dim are worked on."""

    __slots__ = ()


CoreChunks: TypeAlias = Literal["merge", "refuse"] | CoreChunksRule | Callable[..., Any]

OutputSize: TypeAlias = int | UpTo | None
"""A size of a dim in the outputs; None: unknown until computed."""

OutputSizes: TypeAlias = tuple[tuple[str, OutputSize], ...]
"""Sizes by dim label, hashable."""

SizeRule: TypeAlias = OutputSize | Callable[..., int | None]
"""A size, or a callable that gets the mapping of known sizes and the kernel's keywords."""


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of a call, checked; the public functions document them."""

    axes: Any = None
    axis: Any = None
    keepdims: Any = False
    output_dtypes: Any = None
    output_sizes: tuple[tuple[str, SizeRule], ...] = ()
    vectorize: bool = False
    kernel_arrays: Literal["numpy", "same"] = "numpy"
    callback: Literal["auto", "ffi", "pure_callback"] = "auto"
    core_chunks: Any = "merge"  # CoreChunks
    budget: int | Literal["keep"] | None = None  # bytes; None: Dask's array.chunk-size
    allow_transfer: bool = False
    writable: bool = False
    thread_safe: bool = True
    kernel_token: str | None = None
    meta: Any = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class OptionKeywords(TypedDict, total=False):
    """The options as keywords, for static checkers."""

    axes: Any
    axis: int | None
    keepdims: bool
    output_dtypes: Any
    output_sizes: Mapping[str, Any] | None
    vectorize: bool | None
    kernel_arrays: Literal["numpy", "same"]
    callback: Literal["auto", "ffi", "pure_callback"]
    core_chunks: CoreChunks
    allow_rechunk: bool
    budget: int | str | None
    allow_transfer: bool
    writable: bool
    thread_safe: bool
    kernel_token: str | None
    meta: Any
    kwargs: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Parameters:
    """The names that a kernel takes by keyword; `open_ended`: it takes others too, or nobody can tell."""

    names: frozenset[str]
    open_ended: bool


OPTION_NAMES: Final = (*(field.name for field in dataclasses.fields(Options)), "allow_rechunk")

CALL_OPTIONS: Final = ("axes", "axis", "keepdims")
"""The options that a call of a gufunc object takes; all others are bound to the object."""


def make_options(base: Options, changes: Mapping[str, Any]) -> Options:
    """Return `base` with `changes`, each checked."""
    if "allow_rechunk" in changes and "core_chunks" in changes:
        raise OptionError("allow_rechunk and core_chunks say the same thing: pass one of them")
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "allow_rechunk":
            checked["core_chunks"] = _read_allow_rechunk(value)
        else:
            checked[name] = _CHECKS[name](value, name) if name in _CHECKS else value
    if checked.get("axis") is not None:  # replaces what was bound, and the other way round
        checked.setdefault("axes", None)
    elif checked.get("axes") is not None:
        checked.setdefault("axis", None)
    return dataclasses.replace(base, **checked)


def split_keywords(
    keywords: Mapping[str, Any], parameters: Parameters, options: Collection[str], kernel_name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords that are options and those that are the kernel's own; refuse what is neither, or both."""
    for_options: dict[str, Any] = {}
    for_kernel: dict[str, Any] = {}
    for name, value in keywords.items():
        if name in options:
            _refuse_shared(name, parameters, options, kernel_name)
            for_options[name] = value
        elif _belongs_to_kernel(name, parameters):
            for_kernel[name] = value
        else:
            raise OptionError(_unknown_keyword(name, parameters, options, kernel_name))
    return for_options, for_kernel


def read_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords that are all options; one that is none is refused with the nearest one's name."""
    for name in keywords:
        if name in _FOREIGN:
            raise OptionError(_FOREIGN[name])
        if name not in OPTION_NAMES:
            cure = f"keywords of the kernel go into each call, or are bound as kwargs={{{name!r}: ...}}"
            raise OptionError(f"{name!r} is no option{_nearest(name, OPTION_NAMES) or f'; {cure}'}")
    return dict(keywords)


def _refuse_shared(name: str, parameters: Parameters, options: Collection[str], kernel_name: str) -> None:
    if name not in parameters.names:
        return
    if "kwargs" in options:
        cure = f"pass kwargs={{{name!r}: ...}} to reach the kernel, or wrap the kernel in a function that lacks it"
    else:
        cure = (
            f"bind it first, with .with_options({name}=...) for the option or "
            f".with_options(kwargs={{{name!r}: ...}}) for the kernel"
        )
    raise OptionError(f"keyword {name!r} is an option and also a parameter of kernel {kernel_name!r}: {cure}")


def _belongs_to_kernel(name: str, parameters: Parameters) -> bool:
    if name == "out":
        return False
    return name in parameters.names or (parameters.open_ended and name not in _FOREIGN and name not in OPTION_NAMES)


def _unknown_keyword(name: str, parameters: Parameters, options: Collection[str], kernel_name: str) -> str:
    if name in _FOREIGN:
        return _FOREIGN[name]
    if name in OPTION_NAMES:
        return f"option {name!r} is bound to a gufunc object before it is called: use .with_options({name}=...)"
    hint = _nearest(name, {*options, *parameters.names}) or f"; the options are {', '.join(options)}"
    return f"keyword {name!r} is neither an option nor a parameter of kernel {kernel_name!r}{hint}"


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _read_allow_rechunk(value: object) -> str:
    return "merge" if _flag(value, "allow_rechunk") else "refuse"


def _flag(value: object, name: str) -> bool:
    if value is None and name == "vectorize":  # as dask.array.apply_gufunc spells "no"
        return False
    if not isinstance(value, bool):
        raise OptionError(f"{name} takes True or False, got {value!r}")
    return value


def _size(value: object, name: str) -> int:
    try:
        size = index(value)  # type: ignore[arg-type]  # what has no __index__ raises
    except TypeError:
        raise OptionError(f"{name} takes an integer, got {value!r}") from None
    if size < 0 or isinstance(value, bool):  # bool has __index__
        raise OptionError(f"{name} takes an integer of at least 0, got {value!r}")
    return size


def _size_rules(value: object, name: str) -> tuple[tuple[str, SizeRule], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} takes a mapping of dimension names to sizes, got {type(value).__name__}")
    return tuple((_label(label), _size_rule(size, f"{name}[{label!r}]")) for label, size in value.items())


def _label(label: object) -> str:
    if not isinstance(label, str):
        raise OptionError(f"output_sizes: dimension names are strings, got {label!r}")
    return "".join(label.split())


def _size_rule(value: Any, name: str) -> SizeRule:
    if value is None or isinstance(value, UpTo) or (callable(value) and not isinstance(value, type)):
        return value
    try:
        return _size(value, name)
    except OptionError:
        raise OptionError(f"{name} takes an int of at least 0, a callable, UpTo or None, got {value!r}") from None


def _one_of(*allowed: str) -> Callable[[object, str], str]:
    def check(value: object, name: str) -> str:
        if value not in allowed:
            raise OptionError(f"{name} takes {' or '.join(map(repr, allowed))}, got {value!r}")
        return str(value)

    return check


_CORE_CHUNKS: Final = "'merge', 'refuse', a Reduction, Scan or Overlap, or a function that combines"


def _core_chunks(value: Any, name: str) -> Any:
    is_rule = isinstance(value, CoreChunksRule) or (callable(value) and not isinstance(value, type))
    if not is_rule and value not in ("merge", "refuse"):
        raise OptionError(f"{name} takes {_CORE_CHUNKS}, got {value!r}")
    return value


def _budget(value: object, name: str) -> int | Literal["keep"] | None:
    """Return bytes, given as a number or as text such as "128 MiB"; "keep" and None are the lowering's to read."""
    if value is None:
        return None
    if value == "keep":
        return "keep"
    size = _read_bytes(value) if isinstance(value, str) else _size(value, f"{name} (bytes)")
    if not size:
        raise OptionError(f"{name} takes a positive number of bytes, text such as '128 MiB', or 'keep', got {value!r}")
    return size


def _read_bytes(text: str) -> int | None:
    """Return the number of bytes that a text names; None where it names none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None:
        return None
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))


def _text(value: object, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{name} takes a string, got {value!r}")
    return value


def _meta(value: object, name: str) -> object:
    for array in value if isinstance(value, (tuple, list)) else [value]:
        if array is not None and not (hasattr(array, "dtype") and hasattr(array, "shape")):
            raise OptionError(f"{name} takes an array, or a tuple with one for each output, got {array!r}")
    return value


def _kwargs(value: object, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name} takes a mapping of the kernel's keyword arguments, got {value!r}")
    return dict(value)


_CHECKS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "output_sizes": _size_rules,
    "keepdims": _flag,
    "vectorize": _flag,
    "kernel_arrays": _one_of("numpy", "same"),
    "callback": _one_of("auto", "ffi", "pure_callback"),
    "core_chunks": _core_chunks,
    "budget": _budget,
    "allow_transfer": _flag,
    "writable": _flag,
    "thread_safe": _flag,
    "kernel_token": _text,
    "meta": _meta,
    "kwargs": _kwargs,
}

_FOREIGN: Final = {
    "out": "out= is not taken: every call returns its results, on every backend",
    "input_core_dims": "input_core_dims= is not taken: the signature, such as '(n),(n)->()', names the core dimensions",
    "output_core_dims": "output_core_dims= is not taken: the signature, such as '(n)->(n)', names the core dimensions",
    "exclude_dims": "exclude_dims= is not taken: dimensions that change size are named in output_sizes",
    "dask": "dask= is not taken: Dask arrays stay lazy by themselves",
    "dask_gufunc_kwargs": "dask_gufunc_kwargs= is not taken: pass output_sizes, allow_rechunk and meta themselves",
}
"""Keywords of the peers that no option answers, each with what to write instead."""
