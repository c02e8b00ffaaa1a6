"""The options as keywords, for static checkers: nothing imports this when it runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, TypedDict

from ._option_values import Callback, CoreChunks, KernelArrays, Vectorize

__all__ = ["OptionKeywords"]


class OptionKeywords(TypedDict, total=False):
    """The options as keywords, for static checkers."""

    axes: Any
    axis: int | None
    keepdims: bool
    output_dtypes: Any
    output_sizes: Mapping[str, Any] | None
    vectorize: Vectorize | None
    kernel_arrays: KernelArrays | None
    callback: Callback
    core_chunks: CoreChunks
    allow_rechunk: bool
    budget: int | str | None
    extra_projected_mem: int | str
    block_bytes: int | str | None
    allow_transfer: bool
    writable: bool
    contiguous: bool
    fills_outputs: bool
    thread_safe: bool
    threads: int
    compute_dtype: Any
    jac: Callable[..., Any] | Literal["complex-step", "finite-difference"] | None
    vjp: Callable[..., Any] | None
    jvp: Callable[..., Any] | None
    kernel_token: str | None
    meta: Any
    dims: Mapping[str, Hashable] | str | None
    output_coords: Mapping[Any, Any] | None
    join: Literal["outer", "inner", "left", "right", "exact", "override"] | None
    dataset_join: Literal["outer", "inner", "left", "right", "exact"] | None
    dataset_fill_value: Any
    keep_attrs: Any
    on_missing_core_dim: Literal["raise", "copy", "drop"] | None
    kwargs: Mapping[str, Any] | None
