"""What the value of one option may be: the types of those that have one, and `read_value`, which checks them all.

In: a value as it was written, and the name of its option. Out: the value as `Options` keeps it. Knows no array library,
and of no option what another one says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Final, Literal, TypeAlias, get_args

from ._errors import OptionError

__all__ = [
    "NUMERIC_STEPS",
    "Callback",
    "CoreChunks",
    "CoreChunksRule",
    "DimMapping",
    "KernelArrays",
    "OutputSize",
    "OutputSizes",
    "SizeRule",
    "UpTo",
    "Vectorize",
    "read_value",
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


KernelArrays: TypeAlias = Literal["numpy", "same", "traced"]

Vectorize: TypeAlias = bool | Literal["numba"]

Callback: TypeAlias = Literal["auto", "ffi", "pure_callback"]

CoreChunks: TypeAlias = Literal["merge", "refuse"] | CoreChunksRule | Callable[..., Any]

OutputSize: TypeAlias = int | UpTo | None
"""A size of a dim in the outputs; None: unknown until computed."""

OutputSizes: TypeAlias = tuple[tuple[str, OutputSize], ...]
"""Sizes by dim label, hashable."""

SizeRule: TypeAlias = OutputSize | Callable[..., int | None]
"""A size, or a callable that gets the mapping of known sizes and the kernel's keywords."""

DimMapping: TypeAlias = str | tuple[tuple[str, Hashable], ...]
"""Names of dims by core dim label; text alone: of the only core dim."""

NUMERIC_STEPS: Final = ("complex-step", "finite-difference")
"""What `jac` takes beyond kernels: ways to differentiate the kernel itself by calling it."""


def read_value(name: str, value: Any) -> Any:
    """Return the value of an option, checked; later the caller may change what it gave."""
    checked = _READERS[name](value, name) if name in _READERS else value
    return checked if name == "kwargs" else _copied(checked)  # keywords are the kernel's, as they are when it runs


def _copied(value: Any) -> Any:
    """Return containers copied, and what is in them as it is."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map(_copied, value))
    return {key: _copied(part) for key, part in value.items()} if kind is dict else value


def _allow_rechunk(value: object, name: str) -> str:
    return "merge" if _flag(value, name) else "refuse"


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name} takes True or False, got {value!r}")
    return value


def _vectorize(value: object, name: str) -> Vectorize:
    if value is None:  # as dask.array.apply_gufunc spells "no"
        return False
    if isinstance(value, str) and value == "numba":
        return "numba"
    if not isinstance(value, bool):
        raise OptionError(f"{name} takes True, False or 'numba', got {value!r}")
    return value


def _size(value: object, name: str) -> int:
    try:
        size = index(value)  # type: ignore[arg-type]  # what has no __index__ raises
    except TypeError:
        raise OptionError(f"{name} takes an integer, got {value!r}") from None
    if size < 0 or isinstance(value, bool):  # bool has __index__
        raise OptionError(f"{name} takes an integer of at least 0, got {value!r}")
    return size


def _threads(value: object, name: str) -> int:
    try:
        number = _size(value, name)
    except OptionError:
        number = 0
    if not number:
        raise OptionError(f"{name} takes an integer of at least 1, got {value!r}")
    return number


def _size_rules(value: object, name: str) -> tuple[tuple[str, SizeRule], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} takes a mapping of dimension names to sizes, got {type(value).__name__}")
    return tuple((_label(label, name), _size_rule(size, f"{name}[{label!r}]")) for label, size in value.items())


def _label(label: object, name: str) -> str:
    if not isinstance(label, str):
        raise OptionError(f"{name}: dimension names are strings, got {label!r}")
    return "".join(label.split())


def _size_rule(value: Any, name: str) -> SizeRule:
    if value is None or isinstance(value, UpTo) or (callable(value) and not isinstance(value, type)):
        return value
    try:
        return _size(value, name)
    except OptionError:
        raise OptionError(f"{name} takes an int of at least 0, a callable, UpTo or None, got {value!r}") from None


def _kernel_arrays(value: object, name: str) -> str | None:
    return None if value is None else _word(value, name, get_args(KernelArrays))


def _callback(value: object, name: str) -> str:
    return _word(value, name, get_args(Callback))


def _word(value: object, name: str, words: Sequence[str]) -> str:
    if value not in words:
        first, last = ", ".join(map(repr, words[:-1])), repr(words[-1])
        raise OptionError(f"{name} takes {first} or {last}, got {value!r}")
    return str(value)


def _core_chunks(value: Any, name: str) -> Any:
    is_rule = isinstance(value, CoreChunksRule) or (callable(value) and not isinstance(value, type))
    if not is_rule and value not in ("merge", "refuse"):
        raise OptionError(f"{name} takes {_CORE_CHUNKS}, got {value!r}")
    function = getattr(value, "__name__", "")
    if getattr(value, "__module__", None) == "numpy" and function in _COMBINING:
        raise OptionError(
            f"{name} takes a function that combines two outputs, got np.{function}, which reduces one array: "
            f"did you mean {_COMBINING[function]}?"
        )
    return value


def _budget(value: object, name: str) -> int | Literal["keep"] | None:
    """Return bytes; "keep" and None are the lowering's to read."""
    return "keep" if value == "keep" else _bytes(value, name, " or 'keep',")


def _bytes(value: object, name: str, others: str = "") -> int | None:
    """Return bytes, given as a number or as text such as "128 MiB"."""
    if value is None:
        return None
    size = _n_bytes(value, name)
    if not size:
        raise OptionError(f"{name} takes a positive number of bytes, text such as '128 MiB',{others} got {value!r}")
    return size


def _extra_memory(value: object, name: str) -> int:
    size = _n_bytes(value, name)
    if size is None:
        raise OptionError(f"{name} takes a number of bytes, or text such as '128 MiB', got {value!r}")
    return size


def _n_bytes(value: object, name: str) -> int | None:
    return _read_bytes(value) if isinstance(value, str) else _size(value, f"{name} (bytes)")


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


def _derivative(value: object, name: str) -> object:
    words = NUMERIC_STEPS if name == "jac" else ()
    if value is not None and not callable(value) and value not in words:
        raise OptionError(f"{name} takes {' or '.join(('a kernel', *map(repr, words)))}, got {value!r}")
    return value


def _meta(value: object, name: str) -> object:
    for array in value if isinstance(value, (tuple, list)) else [value]:
        if array is not None and not (hasattr(array, "dtype") and hasattr(array, "shape")):
            raise OptionError(f"{name} takes an array, or a tuple with one for each output, got {array!r}")
    return value


def _dims(value: object, name: str) -> DimMapping:
    if value is None or isinstance(value, str):
        return () if value is None else value
    if not isinstance(value, Mapping):
        raise OptionError(
            f"{name} takes a mapping of core dimensions to names of dimensions, or the name of the only one, got "
            f"{type(value).__name__}"
        )
    return tuple((_label(label, name), _dim(dim, f"{name}[{label!r}]")) for label, dim in value.items())


def _dim(value: object, name: str) -> Hashable:
    if not isinstance(value, Hashable):
        raise OptionError(f"{name} takes the name of a dimension, got {value!r}")
    return value


def _coords(value: object, name: str) -> tuple[tuple[Hashable, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} takes a mapping of dimensions of the result to coordinates, got {value!r}")
    return tuple((dim, _coord(coord, f"{name}[{dim!r}]")) for dim, coord in value.items())


def _coord(value: Any, name: str) -> Any:
    is_flat = getattr(value, "ndim", 1) == 1 and hasattr(value, "__len__") and not isinstance(value, (str, Mapping))
    if not is_flat:
        raise OptionError(f"{name} takes the values along one dimension, got {value!r}")
    return list(value) if isinstance(value, tuple) else value  # to xarray a tuple is dims, values and attributes


def _join(value: object, name: str) -> str | None:
    words = ("outer", "inner", "left", "right", "exact", *(["override"] if name == "join" else []))
    return None if value is None else _word(value, name, words)


def _keep_attrs(value: object, name: str) -> object:
    if value is None or isinstance(value, bool) or callable(value):
        return value
    return _word(value, name, ("drop", "identical", "no_conflicts", "drop_conflicts", "override"))


def _on_missing_core_dim(value: object, name: str) -> str | None:
    return None if value is None else _word(value, name, ("raise", "copy", "drop"))


def _kwargs(value: object, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name} takes a mapping of the kernel's keyword arguments, got {value!r}")
    return dict(value)


_READERS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "output_sizes": _size_rules,
    "keepdims": _flag,
    "vectorize": _vectorize,
    "kernel_arrays": _kernel_arrays,
    "callback": _callback,
    "core_chunks": _core_chunks,
    "allow_rechunk": _allow_rechunk,
    "budget": _budget,
    "extra_projected_mem": _extra_memory,
    "block_bytes": _bytes,
    "allow_transfer": _flag,
    "writable": _flag,
    "contiguous": _flag,
    "fills_outputs": _flag,
    "thread_safe": _flag,
    "threads": _threads,
    "jac": _derivative,
    "vjp": _derivative,
    "jvp": _derivative,
    "kernel_token": _text,
    "meta": _meta,
    "dims": _dims,
    "output_coords": _coords,
    "join": _join,
    "dataset_join": _join,
    "keep_attrs": _keep_attrs,
    "on_missing_core_dim": _on_missing_core_dim,
    "kwargs": _kwargs,
}

_COMBINING: Final = {
    "sum": "np.add",
    "prod": "np.multiply",
    "max": "np.maximum",
    "min": "np.minimum",
    "nansum": "np.add",
    "nanprod": "np.multiply",
    "nanmax": "np.fmax",
    "nanmin": "np.fmin",
    "any": "np.logical_or",
    "all": "np.logical_and",
    "mean": "applyufunc.reductions.mean_var",
    "nanmean": "applyufunc.reductions.nanmean_var",
}
"""NumPy's reductions, with what combines their outputs or does what they do."""

_CORE_CHUNKS: Final = "'merge', 'refuse', a Reduction, Scan or Overlap, or a function that combines"
