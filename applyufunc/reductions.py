"""
Reductions that are ready to use, on every backend, and on Dask in the chunks in which an array lies.

Each is a gufunc object with a `Reduction` bound: it takes ``axis``, ``axes`` and ``keepdims``, and its own keywords.
Where a core dimension is in several chunks it is not rechunked: every block gives a state, and states are combined in
a tree; only chunks that are so short that states would save nothing are merged first. The functions themselves say in
NumPy's words what comes out; what runs are the parts of the `Reduction`.

Results have the dtypes of NumPy's functions. Sums and means of 16-bit and 32-bit floats are accumulated in 64 bits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ._core_chunks import Reduction
from ._gufunc import gufunc
from ._reduction_parts import extremes, moments, sums
from ._typing import Array

__all__ = [
    "argmax",
    "argmin",
    "covariance",
    "dot",
    "histogram",
    "logsumexp",
    "mean_var",
    "min_max",
    "nanargmax",
    "nanargmin",
    "nanmean_var",
    "nanmin_max",
    "nansum",
    "sum",
    "top_k",
]

# What twins have in common: the states of those that leave NaN out are of the same kind.
_by_moments = partial(Reduction, state="(n)->(),(),()", state_dtypes=moments.mean_var_state_dtypes)
_by_extremes = partial(Reduction, state="(n)->(),()", state_dtypes=extremes.same_dtypes)
_by_place = partial(Reduction, state="(n)->(),()", state_dtypes=extremes.place_state_dtypes, offset=True)


@gufunc(
    "(n)->()",
    output_dtypes=sums.sum_dtype,
    core_chunks=Reduction(sums.sum_chunk, np.add, state="(n)->()", state_dtypes=sums.sum_state_dtype),
)
def sum(x: Array, /) -> Array:  # noqa: A001  # NumPy's name
    """
    Return the sum.

    Parameters
    ----------
    x : array, (n)
        Numbers.

    Returns
    -------
    array, ()
        As `numpy.sum`; 0 where n is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.sum(np.arange(6).reshape(2, 3))
    array([ 3, 12])
    """
    return x.sum(axis=-1)


@gufunc(
    "(n)->()",
    output_dtypes=sums.sum_dtype,
    core_chunks=Reduction(sums.sum_of_numbers, np.add, state="(n)->()", state_dtypes=sums.sum_state_dtype),
)
def nansum(x: Array, /) -> Array:
    """
    Return the sum of the values that are no NaN.

    Parameters
    ----------
    x : array, (n)
        Numbers.

    Returns
    -------
    array, ()
        As `numpy.nansum`; 0 where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.nansum(np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan]]))
    array([3., 0.])
    """
    return np.nansum(x, axis=-1)


@gufunc(
    "(n)->(),()",
    output_dtypes=moments.mean_var_dtypes,
    core_chunks=_by_moments(moments.moments, moments.moments_of_both, moments.mean_var_of),
)
def mean_var(x: Array, /, *, ddof: float = 0) -> tuple[Array, Array]:
    """
    Return mean and variance, in one pass over the array.

    Parameters
    ----------
    x : array, (n)
        Numbers.
    ddof : float, default 0
        What is taken from n in the divisor of the variance.

    Returns
    -------
    mean, var : array, ()
        As `numpy.mean` and `numpy.var`; NaN where n is 0, without NumPy's warning.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> mean, var = reductions.mean_var(np.arange(6.0).reshape(2, 3), ddof=1)
    >>> mean, var
    (array([1., 4.]), array([1., 1.]))
    """
    return x.mean(axis=-1), x.var(axis=-1, ddof=ddof)


@gufunc(
    "(n)->(),()",
    output_dtypes=moments.mean_var_dtypes,
    core_chunks=_by_moments(moments.moments_of_numbers, moments.moments_of_both, moments.mean_var_of_numbers),
)
def nanmean_var(x: Array, /, *, ddof: float = 0) -> tuple[Array, Array]:
    """
    Return mean and variance of the values that are no NaN.

    Parameters
    ----------
    x : array, (n)
        Numbers.
    ddof : float, default 0
        What is taken from the number of values in the divisor of the variance.

    Returns
    -------
    mean, var : array, ()
        As `numpy.nanmean` and `numpy.nanvar`; NaN where there are too few values, without NumPy's warning.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> mean, var = reductions.nanmean_var(np.array([1.0, np.nan, 3.0]))
    >>> float(mean), float(var)
    (2.0, 1.0)
    """
    return np.nanmean(x, axis=-1), np.nanvar(x, axis=-1, ddof=ddof)


@gufunc(
    "(n)->(),()",
    output_dtypes=extremes.same_dtypes,
    core_chunks=_by_extremes(extremes.least_and_greatest, extremes.least_and_greatest_of_both),
)
def min_max(x: Array, /) -> tuple[Array, Array]:
    """
    Return minimum and maximum, in one pass over the array.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    least, greatest : array, ()
        As `numpy.min` and `numpy.max`: NaN where there is one.

    Raises
    ------
    ValueError
        If n is 0, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.min_max(np.array([[3, 1, 2], [5, 5, 5]]))
    (array([1, 5]), array([3, 5]))
    """
    return x.min(axis=-1), x.max(axis=-1)


@gufunc(
    "(n)->(),()",
    output_dtypes=extremes.same_dtypes,
    core_chunks=_by_extremes(extremes.least_and_greatest_number, extremes.least_and_greatest_number_of_both),
)
def nanmin_max(x: Array, /) -> tuple[Array, Array]:
    """
    Return minimum and maximum of the values that are no NaN.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    least, greatest : array, ()
        As `numpy.nanmin` and `numpy.nanmax`; NaN where all values are, without NumPy's warning.

    Raises
    ------
    ValueError
        If n is 0, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.nanmin_max(np.array([[3.0, np.nan, 2.0], [5.0, 5.0, 5.0]]))
    (array([2., 5.]), array([3., 5.]))
    """
    return np.nanmin(x, axis=-1), np.nanmax(x, axis=-1)


@gufunc(
    "(n)->()",
    output_dtypes=int,
    core_chunks=_by_place(extremes.find_least, extremes.keep_least, extremes.first_index),
)
def argmin(x: Array, /) -> Array:
    """
    Return where the minimum is first.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    array of int, ()
        As `numpy.argmin`: the first of several, and the first NaN where there is one.

    Raises
    ------
    ValueError
        If n is 0, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.argmin(np.array([[3, 1, 1], [5, 5, 4]]))
    array([1, 2])
    """
    return x.argmin(axis=-1)


@gufunc(
    "(n)->()",
    output_dtypes=int,
    core_chunks=_by_place(extremes.find_greatest, extremes.keep_greatest, extremes.first_index),
)
def argmax(x: Array, /) -> Array:
    """
    Return where the maximum is first.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    array of int, ()
        As `numpy.argmax`: the first of several, and the first NaN where there is one.

    Raises
    ------
    ValueError
        If n is 0, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.argmax(np.array([[3, 1, 3], [5, 5, 4]]))
    array([0, 0])
    """
    return x.argmax(axis=-1)


@gufunc(
    "(n)->()",
    output_dtypes=int,
    core_chunks=_by_place(extremes.find_least_number, extremes.keep_least_number, extremes.first_number_index),
)
def nanargmin(x: Array, /) -> Array:
    """
    Return where the minimum of the values that are no NaN is first.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    array of int, ()
        As `numpy.nanargmin`, but never the place of a NaN, which NumPy gives where all else is infinite.

    Raises
    ------
    ValueError
        If n is 0, or all values are NaN, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.nanargmin(np.array([[np.nan, 2.0, 1.0], [5.0, 5.0, np.nan]]))
    array([2, 0])
    """
    return np.nanargmin(x, axis=-1)


@gufunc(
    "(n)->()",
    output_dtypes=int,
    core_chunks=_by_place(extremes.find_greatest_number, extremes.keep_greatest_number, extremes.first_number_index),
)
def nanargmax(x: Array, /) -> Array:
    """
    Return where the maximum of the values that are no NaN is first.

    Parameters
    ----------
    x : array, (n)
        Values with an order.

    Returns
    -------
    array of int, ()
        As `numpy.nanargmax`, but never the place of a NaN, which NumPy gives where all else is infinite.

    Raises
    ------
    ValueError
        If n is 0, or all values are NaN, as NumPy; on Dask, when the result is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.nanargmax(np.array([[np.nan, 2.0, 1.0], [5.0, 5.0, np.nan]]))
    array([1, 0])
    """
    return np.nanargmax(x, axis=-1)


@gufunc(
    "(n),(n)->()",
    output_dtypes=np.result_type,
    core_chunks=Reduction(sums.dot_chunk, np.add, state="(n),(n)->()", state_dtypes=sums.dot_state_dtype),
)
def dot(x: Array, y: Array, /) -> Array:
    """
    Return the sum of products.

    Parameters
    ----------
    x, y : array, (n)
        Numbers.

    Returns
    -------
    array, ()
        As `numpy.dot` of two vectors: complex numbers are not conjugated. Products of 32-bit floats are summed in 32
        bits within a piece, as NumPy does, and in 64 bits from piece to piece. 0 where n is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.dot(np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    """
    return np.einsum("...n,...n->...", x, y)


@gufunc(
    "(n)->()",
    output_dtypes=sums.logsumexp_dtype,
    core_chunks=Reduction(
        sums.logsumexp_chunk,
        sums.logsumexp_combine,
        sums.logsumexp_of,
        state="(n)->(),()",
        state_dtypes=sums.logsumexp_state_dtypes,
    ),
)
def logsumexp(x: Array, /) -> Array:
    """
    Return the logarithm of the sum of exponentials, without overflow.

    Parameters
    ----------
    x : array of real numbers, (n)
        Logarithms.

    Returns
    -------
    array, ()
        As `numpy.logaddexp.reduce`; -inf where n is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.logsumexp(np.array([[1000.0, -np.inf], [0.0, 0.0]])).round(3).tolist()
    [1000.0, 0.693]
    """
    return np.logaddexp.reduce(x, axis=-1)


@gufunc(
    "(n)->(k)",
    output_dtypes=extremes.top_k_dtype,
    output_sizes={"k": extremes.n_greatest},
    core_chunks=Reduction(
        extremes.top_k_chunk,
        extremes.top_k_combine,
        extremes.top_k_of,
        state="(n)->(k)",
        state_dtypes=extremes.top_k_dtype,
    ),
)
def top_k(x: Array, /, *, k: int) -> Array:
    """
    Return the greatest values, the greatest first.

    Parameters
    ----------
    x : array of real numbers, (n)
        Values with an order.
    k : int
        How many values; 0 to n.

    Returns
    -------
    array, (k)
        The last `k` values of `numpy.sort`, in reverse: NaN is greater than all.

    Raises
    ------
    DimensionError
        If there are fewer than `k` values.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.top_k(np.array([[3, 1, 2, 3], [5, 7, 6, 4]]), k=2)
    array([[3, 3],
           [7, 6]])
    """
    return np.sort(x, axis=-1)[..., ::-1][..., :k]


@gufunc(
    "(n)->(b)",
    output_dtypes=int,
    output_sizes={"b": sums.n_bins},
    core_chunks=Reduction(sums.histogram_chunk, np.add, state="(n)->(b)", state_dtypes=np.int64),
)
def histogram(x: Array, /, *, edges: Any) -> Array:
    """
    Return how many values lie in each bin.

    Parameters
    ----------
    x : array of real numbers, (n)
        Values with an order.
    edges : sequence of numbers
        The edges of the bins in ascending order, one more than there are bins.

    Returns
    -------
    array of int, (b)
        As `numpy.histogram`: a bin has its lower edge, the last has its upper edge too; other values are not counted.

    Raises
    ------
    ArgumentError
        If there are fewer than two edges, or they do not ascend.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.histogram(np.array([[0.5, 1.5, 2.0], [0.0, 0.1, 9.0]]), edges=(0, 1, 2))
    array([[1, 2],
           [2, 0]])
    """
    edges = np.asarray(edges)
    counts = [np.histogram(row, edges)[0] for row in x.reshape(-1, x.shape[-1])]
    return np.reshape(counts, (*x.shape[:-1], edges.size - 1))


@gufunc(
    "(n,p)->(p,p)",
    output_dtypes=moments.covariance_dtype,
    core_chunks=Reduction(
        moments.covariance_chunk,
        moments.covariance_combine,
        moments.covariance_of,
        state="(n,p)->(),(p),(p,p)",
        state_dtypes=moments.covariance_state_dtypes,
    ),
)
def covariance(x: Array, /, *, ddof: float = 1) -> Array:
    """
    Return the covariance of every pair of variables.

    Parameters
    ----------
    x : array, (n,p)
        In every row one observation of p variables.
    ddof : float, default 1
        What is taken from n in the divisor.

    Returns
    -------
    array, (p,p)
        As `numpy.cov` with ``rowvar=False``, of 64 bits at least.

    Examples
    --------
    >>> import numpy as np
    >>> from applyufunc import reductions
    >>> reductions.covariance(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    array([[1., 2.],
           [2., 4.]])
    """
    deviations = x - x.mean(axis=-2, keepdims=True)
    return np.swapaxes(deviations, -1, -2) @ deviations.conj() / np.maximum(x.shape[-2] - ddof, 0)
