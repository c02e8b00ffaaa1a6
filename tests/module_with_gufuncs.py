"""Gufunc objects and kernels that a module holds, for tests of pickles."""

from __future__ import annotations

import numpy as np

import applyufunc as au


@au.gufunc("(n)->()", output_dtypes=float)
def spread(row, *, scale=1):
    """Return the largest less the smallest."""
    return scale * (row.max(axis=-1) - row.min(axis=-1))


spread_of_items = spread.with_options(vectorize=True)
dot = au.gufunc()(np.vecdot)


class Scaled:
    """A class with a kernel for a method."""

    def __init__(self, factor):
        self.factor = factor

    @au.gufunc("(n)->()")
    def total(self, row):
        """Return the scaled sum."""
        return self.factor * row.sum(axis=-1)

    @au.gufunc("(n)->(n)", axis=0)
    def running_total(self, rows):
        """Return the sum so far, of each column."""
        return self.factor * np.cumsum(rows, axis=-1)

    @staticmethod
    @au.gufunc("(n)->()")
    def plain(row):
        return row.sum(axis=-1)
