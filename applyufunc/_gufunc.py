"""`gufunc`: a kernel and a signature, bound once, called on any array."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from ._declared_dtypes import check_declared
from ._dim_mapping import check_dims, sized_by_coords
from ._direct import UNUSUAL, DirectCalls, direct_calls
from ._entry import call_in_graph, evaluate, evaluate_any, explain_any, is_read_by_torch
from ._errors import OptionError, SignatureError
from ._kernel import Home, Kernel, describes_itself, function_name, make_kernel, parameters_of
from ._options import (
    CALL_OPTIONS,
    Options,
    Parameters,
    check_output_dims,
    make_options,
    read_options,
    split_keywords,
)
from ._rules import RULE_KINDS, BoundKernel, RuleKind, check_rules, rule_options, rule_signature
from ._signature import Signature
from ._typing import OneOutput, SeveralOutputs

if TYPE_CHECKING:
    from ._explanation import Explanation
    from ._option_keywords import OptionKeywords

__all__ = ["GUFunc", "gufunc", "read_signature"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class _KernelSignature:
    """The Python signature of a gufunc object: that of its kernel. The class itself has its own."""

    def __get__(self, gufunc: GUFunc[Any, Any] | None, owner: type | None = None) -> inspect.Signature:
        try:
            return inspect.signature(gufunc.__wrapped__)  # type: ignore[union-attr]  # None has none
        except (TypeError, ValueError) as error:  # builtins without a text signature
            raise AttributeError(str(error)) from None


class GUFunc(BoundKernel, Generic[P, R]):
    """
    A kernel bound to a signature and options; `gufunc` makes one.

    Calling it applies the kernel. A call takes as many arrays as the signature has inputs, the options `axes`, `axis`
    and `keepdims`, and the kernel's own keywords; every other option is bound, and changed with `with_options`.

    In the body of a class `gufunc` decorates a method: the signature counts the arguments after ``self``.

    Attributes
    ----------
    signature : Signature
        The signature, parsed.
    nin, nout : int
        Numbers of inputs and outputs.
    """

    __signature__ = _KernelSignature()

    def __init__(self, func: Callable[P, R], signature: Signature, options: Options, home: Home | None = None) -> None:
        functools.update_wrapper(self, func, updated=())
        self.__wrapped__ = func
        self.__name__ = function_name(func)
        self._signature = signature
        self._options = options
        self._home = home
        self._kernel = make_kernel(func, options, home)

    @property
    def signature(self) -> Signature:
        """The parsed signature."""
        return self._signature

    @property
    def nin(self) -> int:
        """The number of inputs."""
        return self._signature.nin

    @property
    def nout(self) -> int:
        """The number of outputs."""
        return self._signature.nout

    def __call__(self, /, *args: Any, **keywords: Any) -> R:
        """Apply the kernel to arrays; keywords are `axes`, `axis`, `keepdims` and the kernel's own."""
        if is_read_by_torch():
            return call_in_graph(self, args, keywords)  # type: ignore[no-any-return]
        direct = self._direct
        if direct is not None:
            result = direct(args, keywords)
            if result is not UNUSUAL:
                return result  # type: ignore[no-any-return]  # as the kernel says
        options = self._options_with(keywords) if keywords else self._options
        return evaluate_any(self._kernel, self._signature, args, options, self._evaluate)  # type: ignore[no-any-return]

    def __get__(self, instance: object, owner: type | None = None) -> GUFunc[Any, R]:
        """Bind a kernel that is a method to its instance, as functions do."""
        if instance is not None and is_read_by_torch():
            return _in_graph(_call_method, self, instance, owner)
        bind = getattr(type(self.__wrapped__), "__get__", None)
        if instance is None or bind is None:
            return self
        given = {kind: getattr(self._options, kind) for kind in RULE_KINDS}
        bound: dict[str, Any] = {
            kind: rule.__get__(instance, owner) for kind, rule in given.items() if hasattr(rule, "__get__")
        }
        options = make_options(self._options, bound) if bound else self._options
        return GUFunc(bind(self.__wrapped__, instance, owner), self._signature, options)

    @property
    def _parts(self) -> tuple[Kernel, Signature, Options]:
        return self._kernel, self._signature, self._options

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return parameters_of(self.__wrapped__, self.nin)

    @functools.cached_property
    def _direct(self) -> DirectCalls | None:
        return direct_calls(self._kernel, self._signature, self._options, self._parameters)

    def _evaluate(self, kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Any:
        """Return what `evaluate` does, for arrays that were labelled, by the direct road where the options allow."""
        direct = self._direct if options is self._options else None
        result = UNUSUAL if direct is None else direct(tuple(args), {})
        return evaluate(kernel, signature, args, options) if result is UNUSUAL else result

    def _options_with(self, keywords: Mapping[str, Any]) -> Options:
        """Return the options under the keywords of a call."""
        chosen, own = split_keywords(keywords, self._parameters, CALL_OPTIONS, self._kernel.name)
        return make_options(self._options, {**chosen, "kwargs": {**self._options.kwargs, **own}})

    def explain(self, *args: Any, **keywords: Any) -> Explanation:
        """
        Return what a call would do: what is rechunked and why, blocks, bytes, tasks, and calls of the kernel.

        The kernel is not called, and nothing is computed.

        Parameters
        ----------
        *args : array, scalar or None
            As for a call.
        **keywords
            As for a call.

        Returns
        -------
        Explanation
            Fields to read, and a text by ``str``.

        Raises
        ------
        DimensionError, AxisError, OptionError, ArgumentError
            Before any work, as a call does.
        AlignmentError, UnknownDTypeError, UnknownSizeError
            Where a lazy result could not be built.

        See Also
        --------
        explain : The same, unbound.

        Examples
        --------
        >>> import numpy as np
        >>> import applyufunc as au
        >>> @au.gufunc("(n)->()", vectorize=True)
        ... def middle(row):
        ...     return row[len(row) // 2]
        >>> middle.explain(np.arange(6).reshape(2, 3)).n_calls
        2
        """
        return explain_any(self._kernel, self._signature, args, self._options_with(keywords))

    def with_options(self, **options: Unpack[OptionKeywords]) -> GUFunc[P, R]:
        """
        Return the same kernel and signature under other options.

        Parameters
        ----------
        **options
            Any option of `gufunc`; those not named stay as they are.

        Returns
        -------
        GUFunc
            A new object; this one is unchanged.

        Raises
        ------
        OptionError
            If a name is no option, or a value is none that it takes with this signature.

        Examples
        --------
        >>> import numpy as np
        >>> import applyufunc as au
        >>> @au.gufunc("(n)->()")
        ... def middle(row):
        ...     return row[len(row) // 2]
        >>> middle.with_options(vectorize=True)(np.arange(6).reshape(2, 3))
        array([1, 4])
        """
        if is_read_by_torch():  # in whose graphs no object of ours can be made
            return _in_graph(_call_with_options, self, options)
        changed = make_options(self._options, read_options(options))
        _check_options(changed, self._signature)
        return type(self)(self.__wrapped__, self._signature, changed, self._home)

    def jac(self, func: Callable[Q, Any]) -> GUFunc[Q, Any]:
        """
        Declare the kernel of the Jacobian; a decorator.

        Parameters
        ----------
        func : callable
            Called as the kernel is. Returns, for each output and each argument, the derivative, with the core
            dimensions of the output and then of the argument; None for zero.

        Returns
        -------
        GUFunc
            The derivative as a gufunc object of its own, which may be given rules in turn.

        Raises
        ------
        OptionError
            If `func` is a gufunc object whose signature does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> import applyufunc as au
        >>> @au.gufunc("(n)->()")
        ... def energy(x):
        ...     return (x**2).sum(axis=-1)
        >>> @energy.jac
        ... def energy_jac(x):
        ...     return 2 * x
        >>> energy_jac
        <gufunc energy_jac '(n)->(n)'>
        """
        return self._declare("jac", func)

    def vjp(self, func: Callable[Q, Any]) -> GUFunc[Q, Any]:
        """
        Declare the kernel that takes cotangents back; a decorator.

        Parameters
        ----------
        func : callable
            Called with the arguments and one cotangent for each output, of its shape. Returns a cotangent for each
            argument; None for zero. A gufunc object may have a signature that takes the outputs as well, between the
            arguments and the cotangents.

        Returns
        -------
        GUFunc
            The derivative as a gufunc object of its own, which may be given rules in turn.

        Raises
        ------
        OptionError
            If `func` is a gufunc object whose signature does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> import applyufunc as au
        >>> @au.gufunc("(n)->(n)")
        ... def running_sum(x):
        ...     return np.cumsum(x, axis=-1)
        >>> @running_sum.vjp
        ... def running_sum_vjp(x, cotangent):
        ...     return np.cumsum(cotangent[..., ::-1], axis=-1)[..., ::-1]
        >>> running_sum_vjp
        <gufunc running_sum_vjp '(n),(n)->(n)'>
        """
        return self._declare("vjp", func)

    def jvp(self, func: Callable[Q, Any]) -> GUFunc[Q, Any]:
        """
        Declare the kernel that takes tangents forward; a decorator.

        Parameters
        ----------
        func : callable
            Called with the arguments and one tangent for each, of its core shape. Returns a tangent for each output;
            None for zero.

        Returns
        -------
        GUFunc
            The derivative as a gufunc object of its own, which may be given rules in turn.

        Raises
        ------
        OptionError
            If `func` is a gufunc object whose signature does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> import applyufunc as au
        >>> @au.gufunc("(n)->(n)")
        ... def running_sum(x):
        ...     return np.cumsum(x, axis=-1)
        >>> @running_sum.jvp
        ... def running_sum_jvp(x, tangent):
        ...     return np.cumsum(tangent, axis=-1)
        >>> running_sum_jvp
        <gufunc running_sum_jvp '(n),(n)->(n)'>
        """
        return self._declare("jvp", func)

    def _declare(self, kind: RuleKind, func: Any) -> GUFunc[Any, Any]:
        if not callable(func):
            raise OptionError(
                f"{kind}(...) declares a derivative of {self._kernel.name!r} and takes a function, got {func!r}: "
                f"JAX's transformations, such as jax.grad, call it"
            )
        rule = func if isinstance(func, GUFunc) else self._rule(kind, func)
        options = make_options(self._options, {kind: rule})
        _check_options(options, self._signature)
        self._options = options
        vars(self).pop("_direct", None)  # made under the options of before
        return rule

    def _rule(self, kind: RuleKind, func: Any) -> GUFunc[Any, Any]:
        """Return a derivative kernel as a gufunc object that is called as this one's kernel is."""
        own = sized_by_coords(self._options, self._signature)
        signature = rule_signature(kind, self._signature, [label for label, _ in own.output_sizes])
        options = rule_options(kind, own, self._signature)
        return _Decorator(signature, options)(func)

    def __repr__(self) -> str:
        return f"<gufunc {self._kernel.name} {str(self._signature)!r}>"

    def __reduce__(self) -> Any:
        home = self._home
        if home is not None and home.module != "__main__" and home.find() is self:
            return home.qualname  # pickle looks it up in __module__
        return _rebuild, (self._kernel, self._signature, self._options)


class _Decorator:
    """What `gufunc` returns: binds a function to the signature and the options."""

    def __init__(self, signature: Signature | None, options: Options) -> None:
        self._signature = signature
        self._options = options

    @overload
    def __call__(self, func: Callable[P, OneOutput]) -> GUFunc[P, Any]: ...
    @overload
    def __call__(self, func: Callable[P, SeveralOutputs]) -> GUFunc[P, SeveralOutputs]: ...
    def __call__(self, func: Callable[P, Any]) -> GUFunc[P, Any]:
        if isinstance(func, staticmethod):
            raise OptionError("gufunc(...) decorates a function, got a staticmethod: put @staticmethod above it")
        if isinstance(func, classmethod):  # which does not pass its class on to other objects since Python 3.13
            raise OptionError("gufunc(...) decorates a function, got a classmethod: decorate one that the method calls")
        if not callable(func):
            raise OptionError(f"gufunc(...) decorates a function, got {func!r}: call the object that comes out of it")
        signature = read_signature(self._signature, func)
        _check_options(self._options, signature)
        return GUFunc(func, signature, self._options, home_of(func))


def gufunc(signature: str | Signature | None = None, /, **options: Unpack[OptionKeywords]) -> _Decorator:
    """
    Bind a function on small arrays to a gufunc signature, so that it applies to arrays with any further dimensions.

    The function, called the kernel, gets arrays with its core dimensions last and any number of loop dimensions first,
    or one item at a time with ``vectorize=True``. The object that takes its place applies it to NumPy, Dask, JAX and
    other arrays, and to xarray's objects, whose dimensions it finds by name; it returns arrays or objects of the same
    library, and lazy ones stay lazy.

    Parameters
    ----------
    signature : str
        The core dimensions of every argument and output, such as ``"(n),(n)->()"``. A NumPy or Numba ufunc brings its
        own.
    axes : list of tuple of int, optional
        For each operand, the axes of its core dimensions, as for NumPy's gufuncs; by default the last ones. The outputs
        may be left out where none has core dimensions.
    axis : int, optional
        The axis of the only core dimension that all operands share. Of `axes` and `axis`, the one that a call gives
        replaces the one that is bound.
    keepdims : bool, default False
        Keep the core dimensions that are reduced, with size 1.
    output_dtypes : dtype, sequence of dtypes, or callable, optional
        One dtype for all outputs, one per output, or a callable that gets the inputs' dtypes. Python's ``bool``,
        ``int``, ``float`` and ``complex`` mean the array library's default dtype of that kind. Without it, eager calls
        return what the kernel returned, and lazy calls ask the kernel's own type table, or call it once on made-up
        values of the real core sizes.
    output_sizes : dict of str to int, callable, UpTo or None, optional
        Sizes of dimensions that only outputs have, or that the kernel resizes. None: unknown until computed. A callable
        is called as ``f(sizes, **keywords)``, with a mapping of the known sizes and those of the kernel's keywords that
        it names, and returns an int, UpTo or None.
    vectorize : bool or "numba", default False
        The kernel takes one item; it is called once for each. An argument without core dimensions arrives as a NumPy
        scalar. ``"numba"``: Numba, where it is installed, compiles the kernel, a plain Python function, and the loop.
    kernel_arrays : {"numpy", "same", "traced"}, optional
        What the kernel takes: NumPy arrays; concrete arrays of the inputs' own library; or those, and what JAX or
        PyTorch traces, so that the library itself maps, differentiates and compiles the kernel. By default that is so
        for what ``jax.jit`` made, for functions of these libraries, and for PyTorch's modules, on their own arrays;
        every other kernel takes NumPy arrays, and none is tried.
    callback : {"auto", "ffi", "pure_callback"}, default "auto"
        JAX, inside ``jit`` and ``vmap``: how the kernel is reached. ``"ffi"``: as a foreign function of XLA's, on the
        CPU, in XLA's own memory. ``"pure_callback"``: by `jax.pure_callback`, on any device. ``"auto"``: the first
        where it works.
    core_chunks : {"merge", "refuse"}, Reduction, Scan, Overlap or callable, default "merge"
        Dask: what is done with a core dimension in several chunks. ``allow_rechunk=True`` and ``False`` say the same as
        the words. A `Reduction` works on them piece by piece; a binary ufunc, or a function of two states, such as
        `numpy.add`, combines what the kernel itself returns for each chunk. A `Scan` carries something from chunk to
        chunk, an `Overlap` gives each chunk some elements of its neighbours.
    budget : int or str, optional
        Dask: bytes that the largest block may have when core dimensions are merged; by default ``array.chunk-size``.
        ``"keep"``: as many as the largest block that an argument has.
    extra_projected_mem : int or str, default 0
        Bytes that a call of the kernel takes beside its inputs and outputs, for cubed's limit on memory.
    block_bytes : int or str, optional
        Call the kernel on slices of the loop dimensions that have at most so many bytes in all operands together, such
        as ``"1 MiB"``, so that its temporaries stay in cache. By default it gets a block whole.
    allow_transfer : bool, default False
        Copy arrays to the host where their own library would refuse to do so unasked.
    writable : bool, default False
        The kernel gets private copies that it may write into; otherwise its inputs are read-only.
    contiguous : bool, default False
        The kernel gets NumPy arrays in C order, as compiled functions may demand; what is in another order is copied.
    fills_outputs : bool, default False
        The kernel gets, behind its arguments, an array to fill for each output, of the declared dtype and size, and
        returns None. Needs `output_dtypes`.
    thread_safe : bool, default True
        False: one call of this kernel at a time in a process.
    threads : int, default 1
        Spread the items of ``vectorize=True`` over this many threads inside of each call of a kernel that takes NumPy
        arrays: for kernels that release the interpreter lock. Results, and which exception is raised, are those of one
        thread.
    compute_dtype : dtype, optional
        The dtype in which the kernel gets arrays of the same family: floats, complex numbers or integers. Outputs of
        that family go back to `output_dtypes`, or else to what the arguments' own dtypes promote to.
    jac, vjp, jvp : callable, optional
        JAX, PyTorch: kernels for derivatives, as `GUFunc.jac`, `GUFunc.vjp` and `GUFunc.jvp` describe them; any one of
        them will do for what it can give. ``jac="complex-step"`` and ``jac="finite-difference"`` call the kernel
        itself, in double precision.
    kernel_token : str, optional
        Dask: a stable identity for a kernel that has none, for deterministic names.
    meta : array or tuple of arrays, optional
        Dask: as in `dask.array.apply_gufunc`.
    dims : dict of str to hashable, or str, optional
        Names of core dimensions in labelled arguments and results, where they are not the signature's own; a string
        where the signature has one.
    output_coords : dict of hashable to sequence, optional
        Coordinates of dimensions that only outputs have, or that change their size, by the dimension's name in labelled
        results. As many values as the dimension is long; its size then need not be in `output_sizes`, on other arrays
        either.
    join, dataset_join, dataset_fill_value, keep_attrs, on_missing_core_dim : optional
        As in `xarray.apply_ufunc`, with its defaults, for labelled arguments.
    kwargs : dict, optional
        Keyword arguments for the kernel, for names that are also options.

    Returns
    -------
    decorator
        Turns a function into a `GUFunc`.

    Raises
    ------
    SignatureError
        If the signature does not follow the grammar.
    OptionError
        If a keyword is no option, or has a value that it cannot have with this signature.

    Examples
    --------
    >>> import numpy as np
    >>> import applyufunc as au
    >>> @au.gufunc("(n),(n)->()", output_dtypes=float)
    ... def dot(x, y):
    ...     return (x * y).sum(axis=-1)
    >>> dot(np.ones((2, 3, 4)), np.arange(4.0)).shape
    (2, 3)
    """
    if callable(signature):
        raise SignatureError("gufunc takes the signature before the function: @gufunc('(n),(n)->()')")
    parsed = None if signature is None else read_signature(signature, None)
    return _Decorator(parsed, make_options(Options(), read_options(options)))


def read_signature(signature: object, func: object) -> Signature:
    """Return the parsed signature; without one, that of a NumPy or Numba ufunc."""
    if isinstance(signature, Signature):
        return signature
    if isinstance(signature, str):
        return Signature.parse(signature)
    if signature is None and describes_itself(func):
        own: Any = func
        return Signature.parse(str(getattr(own, "signature", None) or f"{_scalars(own.nin)}->{_scalars(own.nout)}"))
    if signature is None:
        raise SignatureError(
            f"{function_name(func)!r} has no signature of its own, so it needs one: a string such as '(n),(n)->()'"  # type: ignore[arg-type]
        )
    raise SignatureError(f"the signature is a string such as '(n),(n)->()', got {type(signature).__name__}")


def home_of(func: object) -> Home | None:
    """Return where a module will hold the gufunc object of a function, if it decorates one at its place."""
    module, qualname = getattr(func, "__module__", None), getattr(func, "__qualname__", None)
    return Home(module, qualname) if isinstance(module, str) and isinstance(qualname, str) else None


def _in_graph(call: Callable[..., Any], *first: Any) -> GUFunc[Any, Any]:
    """Return a function that ``torch.compile`` makes a node of, which has these arguments before its own."""
    return cast("GUFunc[Any, Any]", lambda *args, **keywords: call_in_graph(call, (*first, *args), keywords))


def _call_with_options(gufunc: GUFunc[Any, R], options: Mapping[str, Any], /, *args: Any, **keywords: Any) -> R:
    return gufunc.with_options(**options)(*args, **keywords)


def _call_method(gufunc: GUFunc[Any, R], instance: object, owner: type | None, /, *args: Any, **keywords: Any) -> R:
    return gufunc.__get__(instance, owner)(*args, **keywords)


def _check_options(options: Options, signature: Signature) -> None:
    """Refuse what no call could use: dtypes and sizes that do not fit the signature."""
    check_declared(options.output_dtypes, signature.nout)
    check_output_dims(signature, (label for label, _ in options.output_sizes))
    check_dims(options, signature)
    check_rules(options, signature)


def _scalars(number: int) -> str:
    return ",".join(["()"] * number)


def _rebuild(kernel: Kernel, signature: Signature, options: Options) -> GUFunc[Any, Any]:
    return GUFunc(kernel.func, signature, options, kernel.home)
