"""What a caller may ask for: `Options`, and which keyword is an option and which the kernel's.

In: keywords as they were written. Out: a frozen `Options` with every value checked, and the kernel's own keywords.
Knows no array library, and no kernel but by the names of its parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from ._errors import OptionError
from ._option_values import Callback, DimMapping, KernelArrays, SizeRule, Vectorize, read_value
from ._signature import Signature

__all__ = [
    "CALL_OPTIONS",
    "OPTION_NAMES",
    "Options",
    "Parameters",
    "check_output_dims",
    "make_options",
    "nearest",
    "read_options",
    "split_keywords",
]


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of a call, checked; the public functions document them."""

    axes: Any = None
    axis: Any = None
    keepdims: Any = False
    output_dtypes: Any = None
    output_sizes: tuple[tuple[str, SizeRule], ...] = ()
    vectorize: Vectorize = False
    kernel_arrays: KernelArrays | None = None  # None: by the kernel's type
    callback: Callback = "auto"
    core_chunks: Any = "merge"  # CoreChunks
    budget: int | Literal["keep"] | None = None  # bytes; None: Dask's array.chunk-size
    extra_projected_mem: int = 0  # bytes
    block_bytes: int | None = None  # None: a kernel gets a block whole
    allow_transfer: bool = False
    writable: bool = False
    contiguous: bool = False
    fills_outputs: bool = False
    thread_safe: bool = True
    threads: int = 1
    compute_dtype: Any = None
    jac: Any = None  # a kernel, or a word of NUMERIC_STEPS
    vjp: Any = None
    jvp: Any = None
    kernel_token: str | None = None
    meta: Any = None
    dims: DimMapping = ()
    output_coords: tuple[tuple[Hashable, Any], ...] = ()  # by dim of the result
    join: str | None = None  # None, here and below: xarray's own default
    dataset_join: str | None = None
    dataset_fill_value: Any = None
    keep_attrs: Any = None
    on_missing_core_dim: str | None = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Parameters(NamedTuple):
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
        checked["core_chunks" if name == "allow_rechunk" else name] = read_value(name, value)
    if checked.get("axis") is not None:  # replaces what was bound, and the other way round
        checked.setdefault("axes", None)
    elif checked.get("axes") is not None:
        checked.setdefault("axis", None)
    made = dataclasses.replace(base, **checked)
    _check_threads(made)
    _check_memory(made)
    _check_compiled(made)
    _check_slices(made)
    return made


def check_output_dims(signature: Signature, labels: Iterable[str]) -> None:
    """Refuse labels in `output_sizes` that no output has."""
    of_inputs = {dim.label for dims in signature.inputs for dim in dims}
    of_outputs = {dim.label for dims in signature.outputs for dim in dims}
    in_expressions = {name for dims in signature.outputs for dim in dims for name in dim.names}
    known = of_outputs | (in_expressions - of_inputs)
    for label in labels:
        if label not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise OptionError(
                f"output_sizes names dimension {label!r}, which no output of {str(signature)!r} has; the outputs' "
                f"dimensions: {listed}"
            )


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
            raise OptionError(f"{name!r} is no option{nearest(name, OPTION_NAMES) or f'; {cure}'}")
    return dict(keywords)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question after the name that looks most like `name`; nothing where none does."""
    import difflib  # which is slow to import, and only a refusal needs it

    alike = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {alike[0]!r}?" if alike else ""


def _refuse_shared(name: str, parameters: Parameters, options: Collection[str], kernel_name: str) -> None:
    if name not in parameters.names:
        return
    if "kwargs" in options and name == "axis":
        cure = (
            "pass axes= in place of axis= for the option, and kwargs={'axis': -1} for the kernel, or wrap the kernel "
            "in a function that lacks it"
        )
    elif "kwargs" in options:
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
    hint = nearest(name, {*options, *parameters.names}) or f"; the options are {', '.join(options)}"
    return f"keyword {name!r} is neither an option nor a parameter of kernel {kernel_name!r}{hint}"


def _check_threads(options: Options) -> None:
    """Refuse threads where there is no loop, or where the kernel may not run in several."""
    if options.threads == 1:
        return
    given = f"threads={options.threads}"
    if not options.vectorize:
        raise OptionError(f"{given} spreads the items of a loop, and there is none: pass vectorize=True with it")
    if not options.thread_safe:
        raise OptionError(f"{given} runs the kernel in several threads, and thread_safe=False allows one: drop either")
    if options.kernel_arrays in ("same", "traced"):
        raise OptionError(
            f"{given} is for kernels that take NumPy arrays, got kernel_arrays={options.kernel_arrays!r}: what other "
            f"libraries are set to holds for one thread"
        )


def _check_memory(options: Options) -> None:
    """Refuse what is said of NumPy's arrays where the kernel takes others."""
    for name in ("contiguous", "fills_outputs"):
        if getattr(options, name) and options.kernel_arrays in ("same", "traced"):
            raise OptionError(
                f"{name}=True is for kernels that take NumPy arrays, got kernel_arrays={options.kernel_arrays!r}"
            )
    if options.fills_outputs and options.jac == "complex-step":
        raise OptionError("jac='complex-step' is for kernels that return, got fills_outputs=True: give a kernel")


def _check_compiled(options: Options) -> None:
    """Refuse what a loop that Numba compiles has no use for."""
    if options.vectorize != "numba":
        return
    if options.kernel_arrays in ("same", "traced"):
        raise OptionError(f"vectorize='numba' is for NumPy arrays, got kernel_arrays={options.kernel_arrays!r}")
    if options.threads != 1:
        raise OptionError(f"threads={options.threads} spreads a loop in Python, and vectorize='numba' has none")


def _check_slices(options: Options) -> None:
    """Refuse slices for kernels of items, of pieces, and of what a library traces and cuts itself."""
    if options.block_bytes is None:
        return
    if options.vectorize:
        raise OptionError("block_bytes cuts what a kernel gets at once, which is one item with vectorize: drop either")
    if options.kernel_arrays == "traced":
        raise OptionError("block_bytes cuts what a kernel gets at once, and a traced one gets nothing: drop either")
    if options.core_chunks not in ("merge", "refuse"):
        raise OptionError(
            f"block_bytes cuts what a kernel gets at once, and core_chunks={type(options.core_chunks).__name__} has "
            f"pieces of its own: drop either"
        )


_FOREIGN: Final = {
    "out": "out= is not taken: every call returns its results, on every backend",
    "input_core_dims": "input_core_dims= is not taken: the signature, such as '(n),(n)->()', names the core dimensions",
    "output_core_dims": "output_core_dims= is not taken: the signature, such as '(n)->(n)', names the core dimensions",
    "exclude_dims": "exclude_dims= is not taken: dimensions that change size are named in output_sizes",
    "dask": "dask= is not taken: Dask arrays stay lazy by themselves",
    "dask_gufunc_kwargs": "dask_gufunc_kwargs= is not taken: pass output_sizes, allow_rechunk and meta themselves",
}
"""Keywords of the peers that no option answers, each with what to write instead."""
