"""`Overlap`: a kernel that looks at the neighbours of each element, so that a piece needs some of the next ones.

In: how many elements before and after. Out: a frozen value, checked, and for a signature the `Halo` of each dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import TypeAlias

from .._errors import OptionError
from .._option_values import CoreChunksRule, SizeRule
from .._signature import Signature
from ._kept_dims import check_kept_dim, only_kept_dim

__all__ = ["Halo", "Overlap"]

_Widths: TypeAlias = int | Mapping[str, int] | tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Halo:
    """How many elements of its neighbours a piece gets along one dim."""

    dim: str
    before: int
    after: int

    @property
    def widest(self) -> int:
        return max(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Overlap(CoreChunksRule):
    """
    A stencil, for `core_chunks`: an element of the outputs depends on its neighbours in the inputs alone.

    On Dask a core dimension in several chunks stays so: the kernel gets each chunk with the last `before` elements of
    the one before it and the first `after` elements of the one after it, and what it returns for these is cut off. At
    the two ends of the array the kernel gets no more than there is, so that it treats the edges as it does on the whole
    array. Chunks that are smaller than `before` or `after` are first merged with the next ones. On arrays of other
    libraries the kernel gets whole core dimensions, as always.

    Every output needs the dimension, in the size that the inputs have.

    Parameters
    ----------
    before : int or dict of str to int
        How many elements before its own an element of the outputs depends on: along the only core dimension that an
        input and all outputs have, or along each dimension that is named.
    after : int or dict of str to int, optional
        How many elements after its own; by default as many as before.

    Raises
    ------
    OptionError
        If a number is no integer, or negative.

    Notes
    -----
    What the outputs depend on has to count for all the steps that a kernel takes: two passes of a filter that looks at
    one neighbour need a halo of 2.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> @au.gufunc("(n)->(n)", output_dtypes=float, core_chunks=au.Overlap(1))
    ... def slope(x):
    ...     return np.gradient(x, axis=-1)
    >>> slope(np.arange(5.0) ** 2)
    array([1., 2., 4., 6., 7.])
    """

    before: _Widths
    after: _Widths | None = None

    def __post_init__(self) -> None:
        after = self.before if self.after is None else self.after
        object.__setattr__(self, "before", _checked(self.before, "before"))
        object.__setattr__(self, "after", _checked(after, "after"))

    def halos(self, signature: Signature, output_sizes: tuple[tuple[str, SizeRule], ...] = ()) -> tuple[Halo, ...]:
        """Return the halo along each dim of a kernel with this signature; refuse one that it does not fit."""
        named = [dim for widths in (self.before, self.after) if isinstance(widths, tuple) for dim, _ in widths]
        dims = tuple(dict.fromkeys(named)) or (only_kept_dim(signature, "Overlap"),)
        for dim in dims:
            check_kept_dim(dim, signature, output_sizes, "Overlap")
        return tuple(Halo(dim, _width(self.before, dim), _width(self.after, dim)) for dim in dims)


def _checked(widths: object, name: str) -> int | tuple[tuple[str, int], ...]:
    if isinstance(widths, tuple):  # of an Overlap that is copied
        widths = dict(widths)
    if not isinstance(widths, Mapping):
        return _checked_width(widths, f"Overlap: {name}")
    for dim in widths:
        if not isinstance(dim, str):
            raise OptionError(f"Overlap: {name} takes names of core dimensions, got {dim!r}")
    return tuple((dim, _checked_width(width, f"Overlap: {name}[{dim!r}]")) for dim, width in widths.items())


def _checked_width(width: object, name: str) -> int:
    try:
        number = index(width)  # type: ignore[arg-type]  # what has no __index__ raises
    except TypeError:
        raise OptionError(f"{name} takes a number of elements, got {width!r}") from None
    if number < 0 or isinstance(width, bool):  # bool has __index__
        raise OptionError(f"{name} takes a number of elements of at least 0, got {width!r}")
    return number


def _width(widths: _Widths | None, dim: str) -> int:
    """Return the number for one dim; where dims are named, the others have none."""
    if isinstance(widths, int):
        return widths
    return dict(widths or ()).get(dim, 0)
