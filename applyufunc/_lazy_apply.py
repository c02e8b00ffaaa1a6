"""`lazy_apply`: a function on whole arrays, without a signature.

In: a function, its arguments, the shapes and dtypes of its outputs. Out: one array, or a tuple of arrays. Where the
result is lazy, the call gets a signature that says nothing but shapes, and takes the road of every other call;
otherwise the function is called at once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias, overload

import array_api_compat
import numpy as np

from ._arguments import is_constant
from ._entry import call_in_graph, is_read_by_torch
from ._errors import ArgumentError, DimensionError, OptionError, UnknownSizeError
from ._evaluate import evaluate
from ._kernel import function_name, make_kernel
from ._lowering import find_lowering, to_host
from ._option_values import OutputSize, UpTo
from ._options import Options, make_options
from ._plan import make_plan
from ._signature import CoreDim, Signature
from ._transfer import transfer_is_allowed
from ._typing import Array, DType, KernelFunction, Keywords, Namespace, Shape

__all__ = ["lazy_apply"]

_OutputShape: TypeAlias = tuple[OutputSize, ...]


@overload
def lazy_apply(
    func: Callable[..., Any],
    *args: Any,
    shape: tuple[int | UpTo | None, ...] | None = None,
    dtype: DType | None = None,
    as_numpy: bool = False,
    xp: Namespace | None = None,
    allow_transfer: bool = False,
    **kwargs: Any,
) -> Array: ...
@overload
def lazy_apply(
    func: Callable[..., Any],
    *args: Any,
    shape: Sequence[tuple[int | UpTo | None, ...]],
    dtype: Sequence[DType] | None = None,
    as_numpy: bool = False,
    xp: Namespace | None = None,
    allow_transfer: bool = False,
    **kwargs: Any,
) -> tuple[Array, ...]: ...
def lazy_apply(
    func: Callable[..., Any],
    *args: Any,
    shape: tuple[int | UpTo | None, ...] | Sequence[tuple[int | UpTo | None, ...]] | None = None,
    dtype: DType | Sequence[DType] | None = None,
    as_numpy: bool = False,
    xp: Namespace | None = None,
    allow_transfer: bool = False,
    **kwargs: Any,
) -> Any:
    """
    Call a function on whole arrays; where they are lazy, when the result is computed.

    It takes no signature, since no dimension is looped over: all are core dimensions. It takes the arguments of
    ``array_api_extra.lazy_apply``.

    Parameters
    ----------
    func : callable
        Takes the arguments and returns one array, or a sequence of arrays where `shape` has several shapes. A number
        or a list stands for the array that it becomes.
    *args : array, scalar or None
        At least one array. Python scalars and None reach `func` as they are.
    shape : tuple, or sequence of tuples, optional
        The shape of the output, or the shapes of several outputs. A size is an int, None where nobody knows it before
        `func` has run, or an `UpTo` where a bound is known. Without it there is one output, of the shape to which the
        arguments broadcast.
    dtype : dtype, or sequence of dtypes, optional
        The dtype of the output, or one for each shape. Without it, every output has the result type of the arguments.
    as_numpy : bool, default False
        Give NumPy arrays to `func`; otherwise it gets concrete arrays of the library that the arguments, or the
        chunks of Dask arrays, come from.
    xp : namespace, optional
        The namespace whose ``asarray`` makes the results that are there at once; by default that of the arguments.
    allow_transfer : bool, default False
        With ``as_numpy=True``, move arrays to the host, and make them dense, where their library refuses to do so
        unasked. `allow_transfer` gives the same leave to all calls in a block.
    **kwargs
        Keyword arguments for `func`.

    Returns
    -------
    array or tuple of arrays
        Of the library of the arguments. A tuple where `shape` is a sequence of tuples, even of one.

    Raises
    ------
    ArgumentError
        If no argument is an array, or arrays come from two libraries.
    DimensionError
        If `shape` is left out and the arguments do not broadcast.
    OptionError
        If `shape` has something else than sizes, or `dtype` another number of dtypes than `shape` has shapes.
    UnknownSizeError
        Inside ``jax.jit`` and ``torch.compile``, if `shape` has a None.
    OutputShapeError, OutputDTypeError, OutputRangeError
        When a lazy result is computed, if `func` returns another number of outputs, another shape, or a dtype that
        does not cast to the declared one.

    See Also
    --------
    apply_ufunc : The same by a signature, with dimensions that are looped over, or worked on chunk by chunk.

    Notes
    -----
    On arrays that hold their values, `func` is called once and at once, with the arrays themselves: it may write into
    them, what it returns is converted and not checked, and with ``as_numpy=True`` the library's own rules decide
    whether an array may be moved to the host or made dense without leave. Where the result is lazy, or `shape` has an
    `UpTo`, inputs are read-only, outputs are checked, and such arrays are refused without leave.

    Dask: every argument is merged into one chunk, and every output is one chunk, so that one worker has to hold them
    all.

    JAX: in a transformation `func` runs on the host, through a callback. Under ``vmap`` there is one callback for the
    whole batch, which calls `func` for each item.

    PyTorch: likewise, inside ``torch.compile`` and ``torch.vmap``.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> table = np.array([[3, 1], [2, 3]])
    >>> au.lazy_apply(np.sort, table, shape=table.shape)
    array([[1, 3],
           [2, 3]])
    >>> values, counts = au.lazy_apply(np.unique_counts, table, shape=((None,), (None,)), dtype=(int, int))
    >>> values.shape, counts.shape
    ((3,), (3,))
    >>> au.lazy_apply(np.flatnonzero, table == 3, shape=(au.UpTo(4, fill_value=-1),), dtype=int)
    array([ 0,  3, -1, -1])
    """
    if is_read_by_torch():
        how = {"shape": shape, "dtype": dtype, "as_numpy": as_numpy, "xp": xp}
        return call_in_graph(lazy_apply, (func, *args), {**how, **kwargs})
    whole = _Whole.of(func, args)
    shapes, is_tuple = _read_shapes(shape) if shape is not None else ((whole.broadcast_shape(),), False)
    dtypes = _read_dtypes(dtype, len(shapes), is_tuple=is_tuple) or (whole.result_type(),) * len(shapes)
    if not whole.is_lazy and not any(isinstance(size, UpTo) for sizes in shapes for size in sizes):
        library = whole.library if xp is None else xp
        leave = transfer_is_allowed(allow_transfer)
        return _call_at_once(func, whole, kwargs, library, as_numpy=as_numpy, leave=leave, is_tuple=is_tuple)
    options = {
        "allow_transfer": allow_transfer,
        "output_dtypes": dtypes,
        "vectorize": whole.may_be_batched,
        "kernel_arrays": "numpy" if as_numpy else "same",
        "budget": sys.maxsize,  # whole arrays are what was asked for, however large
        "kwargs": kwargs,
    }
    return _call_by_signature(func, whole, shapes, options, is_tuple=is_tuple)


@dataclass(frozen=True, slots=True)
class _Whole:
    """The arguments as arrays of one library, and what their lowering says about them."""

    args: tuple[Any, ...]
    arrays: tuple[Array, ...]  # at least one
    shapes: tuple[Shape, ...]  # of the arguments
    is_lazy: bool

    @classmethod
    def of(cls, func: KernelFunction, args: Sequence[Any]) -> _Whole:
        arrays = tuple(arg for arg in args if not is_constant(arg))
        if arrays and all(type(array) is np.ndarray for array in arrays):  # as a lowering would leave them
            return cls(tuple(args), arrays, tuple(() if is_constant(arg) else arg.shape for arg in args), is_lazy=False)
        lowering = find_lowering(args)
        converted = lowering.convert(args, Options(), make_kernel(func, Options(kernel_arrays="same")))
        arrays = tuple(arg for arg in converted if not is_constant(arg))
        if not arrays:
            name = function_name(func)
            raise ArgumentError(
                f"lazy_apply takes at least one array, and {name!r} got {len(args)} argument(s), none of which is one"
            )
        shapes = tuple(() if is_constant(arg) else lowering.shape(arg) for arg in converted)
        return cls(converted, arrays, shapes, lowering.is_lazy(arrays))

    @property
    def leading(self) -> Array:
        """The first array that is not NumPy's; where all are, the first."""
        return next((array for array in self.arrays if not isinstance(array, np.ndarray)), self.arrays[0])

    @property
    def library(self) -> Namespace:
        """The namespace of the arrays; NumPy arrays go with those of any other library."""
        return np if isinstance(self.leading, np.ndarray) else array_api_compat.array_namespace(self.leading)

    @property
    def device(self) -> Any:
        """The device of the arrays; None, the library's default, for NumPy's."""
        return None if isinstance(self.leading, np.ndarray) else array_api_compat.device(self.leading)

    @property
    def may_be_batched(self) -> bool:
        """Whether the arrays may have further dims that only their library sees, as under a ``vmap``."""
        return array_api_compat.is_jax_array(self.leading) or array_api_compat.is_torch_array(self.leading)

    def result_type(self) -> DType:
        """Return the dtype to which the arguments promote in their library."""
        args = [arg for arg in self.args if arg is not None]
        if hasattr(type(self.leading), "__dask_graph__"):  # not every front end of Dask has the function
            return np.result_type(*(arg if is_constant(arg) else arg.dtype for arg in args))
        return self.library.result_type(*args)

    def broadcast_shape(self) -> Shape:
        """Return the shape to which the arguments broadcast."""
        elementwise = Signature(((),) * len(self.shapes), ((),))
        try:
            return make_plan(elementwise, self.shapes).loop_shape
        except DimensionError as error:
            message = f"without shape, the output has that to which the arguments broadcast: {error}"
            raise DimensionError(message) from None


def _read_shapes(shape: Any) -> tuple[tuple[_OutputShape, ...], bool]:
    """Return the shape of each output, and whether several were meant."""
    entries = _entries(shape)
    if all(map(_is_size, entries)):
        return (tuple(map(_read_size, entries)),), False
    return tuple(tuple(map(_read_size, _entries(entry))) for entry in entries), True


def _entries(shape: Any) -> tuple[Any, ...]:
    try:
        return tuple(shape)
    except TypeError:
        raise OptionError(f"shape takes a tuple of sizes, or a sequence of such tuples, got {shape!r}") from None


def _is_size(entry: object) -> bool:
    return entry is None or isinstance(entry, (UpTo, float)) or hasattr(entry, "__index__")


def _read_size(entry: Any) -> OutputSize:
    """Return a size; NaN is how Dask's own shapes say None."""
    if entry is None or isinstance(entry, UpTo):
        return entry
    if isinstance(entry, float) and math.isnan(entry):
        return None
    if not hasattr(entry, "__index__") or (size := index(entry)) < 0:
        raise OptionError(f"shape takes sizes that are integers of at least 0, UpTo, or None (unknown), got {entry!r}")
    return size


def _read_dtypes(dtype: Any, nout: int, *, is_tuple: bool) -> tuple[DType, ...]:
    """Return the dtype of each output, nothing where they are left out."""
    if dtype is None:
        return ()
    is_listed = isinstance(dtype, (tuple, list))
    if is_listed and not is_tuple:
        raise OptionError(f"dtype has {len(dtype)} dtype(s) in a sequence and shape is one shape: pass one dtype")
    if is_tuple and not is_listed:
        raise OptionError(f"shape has {nout} shape(s) and dtype is one dtype: pass a sequence with one for each shape")
    dtypes = tuple(dtype) if is_listed else (dtype,)
    if len(dtypes) != nout:
        raise OptionError(f"shape has {nout} shape(s) and dtype has {len(dtypes)} dtype(s): pass one for each shape")
    return dtypes


def _call_at_once(
    func: KernelFunction,
    whole: _Whole,
    keywords: Keywords,
    library: Namespace,
    *,
    as_numpy: bool,
    leave: bool,
    is_tuple: bool,
) -> Any:
    """Return what `func` gives for the arrays themselves, as arrays of the library on the device of the arguments."""
    args = [arg if is_constant(arg) else _for_func(arg, whole, as_numpy=as_numpy, leave=leave) for arg in whole.args]
    try:
        returned = func(*args, **keywords)
    except Exception as error:
        error.add_note(f"in {function_name(func)!r}, called by lazy_apply with arguments of shapes {whole.shapes}")
        raise
    if is_tuple:
        return tuple(_as_array(value, library, whole.device) for value in returned)
    return _as_array(returned, library, whole.device)


def _for_func(array: Array, whole: _Whole, *, as_numpy: bool, leave: bool) -> Array:
    """Return an array of the library that `func` works with."""
    if as_numpy:
        return to_host(array) if leave else _as_array(array, np, None)
    is_guest = isinstance(array, np.ndarray) and not isinstance(whole.leading, np.ndarray)
    return whole.library.asarray(array, device=whole.device) if is_guest else array


def _as_array(value: Any, library: Namespace, device: Any) -> Array:
    """Return a value as an array of the library; a mask stays where there is room for it."""
    if isinstance(value, np.ma.MaskedArray) and array_api_compat.is_numpy_namespace(library):
        return value
    return library.asarray(value, device=device)


def _call_by_signature(
    func: KernelFunction,
    whole: _Whole,
    shapes: tuple[_OutputShape, ...],
    options: Mapping[str, Any],
    *,
    is_tuple: bool,
) -> Any:
    """Return what a call gives whose signature says the sizes of all dims, or names those that are not known."""
    inputs = tuple(_core_dims(shape, f"in{position}") for position, shape in enumerate(whole.shapes))
    outputs = tuple(_core_dims(shape, f"out{position}") for position, shape in enumerate(shapes))
    sizes = zip((dim for dims in outputs for dim in dims), (size for shape in shapes for size in shape), strict=True)
    output_sizes = {dim.label: size for dim, size in sizes if dim.size is None}
    checked = make_options(Options(), {**options, "output_sizes": output_sizes})
    signature = Signature(inputs, outputs, always_tuple=is_tuple)
    as_items = checked.vectorize and checked.kernel_arrays == "numpy" and () in whole.shapes
    try:
        return evaluate(make_kernel(_OnArrays(func) if as_items else func, checked), signature, whole.args, checked)
    except UnknownSizeError as error:
        _explain_unknown_size(error, shapes, function_name(func))
        raise


@dataclass(frozen=True, slots=True)
class _OnArrays:
    """A function that gets an array without dims where an item of a loop is a NumPy scalar."""

    func: KernelFunction

    @property
    def __name__(self) -> str:
        return function_name(self.func)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.func(*(np.asarray(arg) if isinstance(arg, np.generic) else arg for arg in args), **keywords)


def _core_dims(shape: Sequence[OutputSize], operand: str) -> tuple[CoreDim, ...]:
    """Return a dim for each size: fixed, or with a name that says which axis of which operand it is."""
    return tuple(
        CoreDim(str(size), size=size) if isinstance(size, int) else CoreDim(f"{operand}_axis{axis}")
        for axis, size in enumerate(shape)
    )


def _explain_unknown_size(error: UnknownSizeError, shapes: Sequence[_OutputShape], name: str) -> None:
    """Raise the error in terms of `shape`, if that has the unknown size."""
    for position, shape in enumerate(shapes):
        if None in shape:
            raise UnknownSizeError(
                f"shape has None for axis {shape.index(None)} of output {position}, and under jit its size has to be "
                f"known before {name!r} runs: put UpTo(bound) there"
            ) from error
