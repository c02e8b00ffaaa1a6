"""`Site`: a call without its arrays, which a node of a graph stands for; and the sites by the names that nodes have.

In: calls. Out: sites. A name says all that the types of the outputs depend on, so that a program that a compiler keeps
on disk is never taken for one whose outputs are others. Knows no operators and no gradients.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from ..._blocks import BlockRunner
from ..._call import Call
from ..._derivatives import Derivatives
from ..._errors import KernelError
from .._identity import identify
from ._derivatives import Linear, Run

__all__ = ["Site", "find_site", "make_site", "name_site"]


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What runs a kernel, with its derivative."""

    runner: BlockRunner
    linear: Linear
    is_traced: bool  # whether the kernel's own operations go into the graph


def make_site(call: Call, derivatives: Derivatives, run: Run, *, is_traced: bool = False) -> Site:
    """Return the site of a call; `run` is for the calls of its derivative kernels."""
    return Site(call.runner, Linear(call.runner, derivatives, run), is_traced)


def name_site(site: Site) -> tuple[str, Site]:
    """Return the name under which a site is found, and the first site that did the same, which has the name."""
    key = identify(site.runner, site.linear.derivatives).identity
    with _lock:
        if key not in _names:
            name = f"{_text(site.runner)} #{next(_numbers)}"
            _names[key], _sites[name] = name, (key, site)
            _forget_oldest()
        name = _names[key]
        _sites.move_to_end(name)
        return name, _sites[name][1]


def find_site(name: str) -> Site:
    """Return the site of a name."""
    try:
        return _sites[name][1]
    except KeyError:
        raise KernelError(
            f"the compiled program calls {name!r}, which was compiled before {_KEPT} others, or in another process: "
            f"compile it again"
        ) from None


def _text(runner: BlockRunner) -> str:
    """Write what the outputs' types depend on: what shapes follow from, and dtypes."""
    dtypes = "?" if runner.dtypes is None else ",".join(map(str, runner.dtypes))
    without = "".join(f" without {position}" for position, value in runner.constants if value is None)
    sizes = "".join(f" {label}={size!r}" for label, size in runner.output_sizes)
    return f"{runner.kernel.name} {runner.signature} {dtypes}{without}{sizes}"


def _forget_oldest() -> None:
    if len(_sites) > _KEPT:
        _, (key, _) = _sites.popitem(last=False)
        del _names[key]


_KEPT: Final = 4096
"""Sites that are kept: each keeps its kernel alive, and its keywords."""

_lock: Final = threading.Lock()
_numbers: Final = count()
_names: Final[dict[Any, str]] = {}
_sites: Final[OrderedDict[str, tuple[Any, Site]]] = OrderedDict()
