"""Gufunc objects for unbound calls: `find_gufunc` returns the one that an equal call before has left.

In: a function, a signature, the keywords that are options. Out: a gufunc object, or None where none may be left: only
functions that their module holds are remembered, so that nothing else is kept alive. Knows no arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Final, cast

import numpy as np

from ._dim_mapping import check_dims
from ._gufunc import GUFunc
from ._identity import is_plain_dtype
from ._options import Options, make_options
from ._rules import check_rules
from ._signature import Signature

__all__ = ["find_gufunc", "read_chosen"]


def find_gufunc(func: Any, signature: Signature, chosen: Mapping[str, Any]) -> GUFunc[..., Any] | None:
    """Return the gufunc object for a function under the options that are chosen; made if there is none yet."""
    key = _key(func, signature, chosen)
    if key is None:
        return None
    code = getattr(func, "__code__", None)
    made, of = _gufuncs.get(key, _NOBODY)
    if made is not None and of is code:  # which a tool that reloads modules replaces in the function itself
        return made
    gufunc: GUFunc[..., Any] = GUFunc(func, signature, read_chosen(signature, chosen))
    _forget_replaced()
    if len(_gufuncs) >= _CACHE_SIZE:
        _gufuncs.clear()
    _gufuncs[key] = gufunc, code
    return gufunc


def read_chosen(signature: Signature, chosen: Mapping[str, Any]) -> Options:
    """Return the options of an unbound call, checked."""
    options = make_options(Options(), chosen)
    check_dims(options, signature)
    check_rules(options, signature)
    return options


def _key(func: object, signature: Signature, chosen: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return what tells a call from others, without its arguments and the kernel's own keywords."""
    if not _is_held_by_its_module(func):
        return None
    try:  # the function stays what its id says, since what is kept holds it
        key = id(func), signature, *[(name, _frozen(value)) for name, value in chosen.items()]
    except TypeError:
        return None
    return None if _holds_lists(chosen.get("kwargs")) else key


def _is_held_by_its_module(func: object) -> bool:
    """Tell a function that is kept alive anyway, by its name."""
    module, name = getattr(func, "__module__", "numpy"), getattr(func, "__name__", None)  # ufuncs do not say
    return type(module) is str and getattr(sys.modules.get(module), "__dict__", _NOTHING).get(name) is func


def _forget_replaced() -> None:
    """Forget functions in whose place their module has others by now, or none."""
    for key, (gufunc, _) in _gufuncs.copy().items():  # which other threads cannot change meanwhile
        if not _is_held_by_its_module(gufunc.__wrapped__):
            _gufuncs.pop(key, None)


def _frozen(value: object) -> tuple[object, ...]:
    """Return what tells an option's value from others, hashable; TypeError where it may change and look the same."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value  # 1 and True are equal
    if kind is list or kind is tuple:
        return kind, *map(_frozen, cast(Iterable[object], value))
    if kind is dict:
        return kind, *map(_frozen, cast(Mapping[object, object], value).items())
    if isinstance(value, np.dtype) and is_plain_dtype(value):
        return kind, value
    raise TypeError


def _holds_lists(keywords: object) -> bool:
    """Tell keywords of which the kernel gets, and may change, the caller's own lists or dicts, not their equals."""
    return type(keywords) is dict and any(map(_is_container, keywords.values()))


def _is_container(value: object) -> bool:
    return type(value) in (list, dict) or (type(value) is tuple and any(map(_is_container, value)))


_CACHE_SIZE: Final = 256  # all go when it is full, as to keep their order would take longer than to make one again
_NOTHING: Final[Mapping[object, object]] = MappingProxyType({})
_PLAIN: Final = frozenset({bool, int, str, bytes, NoneType, type})  # no float: 0.0 and -0.0 are equal
_NOBODY: Final = (None, None)
_gufuncs: dict[tuple[object, ...], tuple[GUFunc[..., Any], object]] = {}  # each with the code of its function
