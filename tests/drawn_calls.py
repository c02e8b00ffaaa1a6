"""Drawn calls and their right results: a signature, arguments, a kernel, and what a plain loop gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

SIZES = st.integers(0, 3)
DTYPES = ("float64", "float32", "int64", "int32", "complex128", "bool")


@dataclass(frozen=True)
class Kernel:
    """A kernel for one item or for a batch: every output is a weighted sum of what the arguments have in it.

    All values are small whole numbers, or a little more where that is exact in float64, so that the order in which they
    are added is no matter, and a detour through fewer bits shows.
    """

    core_in: tuple[str, ...]  # letters, one per core dim
    core_out: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    __name__ = "weighted_sum"

    def __call__(self, *blocks):
        outputs = tuple(self._output(blocks, out, start) for start, out in enumerate(self.core_out))
        return outputs if len(outputs) > 1 else outputs[0]

    def _output(self, blocks, out, start):
        total = start
        for weight, (block, dims) in enumerate(zip(blocks, self.core_in, strict=True), start=1):
            new = [label for label in out if label not in dims]
            ones = [np.ones(dict(self.sizes)[label], dtype=np.int32) for label in new]
            formula = f"{','.join([f'...{dims}', *new])}->...{out}"
            total = total + weight * np.einsum(formula, np.asarray(block) * np.int32(1), *ones)
        return total


@dataclass(frozen=True)
class DrawnCall:
    """A call as a user writes it, and the result that it has to have."""

    kernel: Kernel
    signature: str
    args: tuple[np.ndarray[Any, Any], ...]
    options: dict[str, Any]
    expected: tuple[np.ndarray[Any, Any], ...]

    def __repr__(self):
        args = ", ".join(f"{arg.dtype}{arg.shape}" for arg in self.args)
        return f"{self.signature!r} on {args} with {self.options}"


@st.composite
def drawn_calls(draw, max_loop=3):
    """Draw a call that is right."""
    core_in = draw(st.lists(_core_dims("mnp"), min_size=1, max_size=3).map(tuple))
    core_out = draw(st.lists(_core_dims("mnpk"), min_size=1, max_size=2).map(tuple))
    labels = sorted(set("".join(core_in + core_out)))
    sizes = {label: draw(SIZES) for label in labels}
    loop_shape = draw(st.lists(SIZES, max_size=max_loop).map(tuple))
    stretched = draw(_stretched_dims(core_in))
    args = tuple(
        draw(_argument(dims, {**sizes, **{label: 1 for label in stretched if position == 0}}, loop_shape))
        for position, dims in enumerate(core_in)
    )
    kernel = Kernel(core_in, core_out, tuple(sizes.items()))
    new = {label: sizes[label] for label in labels if label not in "".join(core_in)}
    options = {"vectorize": draw(st.booleans()), "output_sizes": new}
    expected = loop_over_items(kernel, _stretch(args, core_in[0], stretched, sizes))
    if draw(st.booleans()):
        options["output_dtypes"] = [draw(st.sampled_from(_wider(value.dtype))) for value in expected]
        expected = tuple(value.astype(dtype) for value, dtype in zip(expected, options["output_dtypes"], strict=True))
    signature = _signature(core_in, core_out, stretched, draw(_fixed_sizes(sizes, new, stretched)))
    args, placed, expected = draw(_placed(core_in, core_out, args, expected))
    return DrawnCall(kernel, signature, args, options | placed, expected)


def loop_over_items(kernel, args):
    """Return what a plain Python loop over the loop dims gives."""
    n_core = [len(dims) for dims in kernel.core_in]
    loop_shape = np.broadcast_shapes(*(arg.shape[: arg.ndim - n] for arg, n in zip(args, n_core, strict=True)))
    spread = [np.broadcast_to(arg, loop_shape + arg.shape[arg.ndim - n :]) for arg, n in zip(args, n_core, strict=True)]
    one = _as_tuple(kernel(*(np.ones(arg.shape[len(loop_shape) :], arg.dtype) for arg in spread)))
    outputs = tuple(np.empty(loop_shape + np.shape(value), np.asarray(value).dtype) for value in one)
    for index in np.ndindex(loop_shape):
        for output, value in zip(outputs, _as_tuple(kernel(*(arg[index] for arg in spread))), strict=True):
            output[index] = value
    return outputs


def _as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _core_dims(labels):
    return st.lists(st.sampled_from(labels), max_size=2, unique=True).map("".join)


def _signature(core_in, core_out, stretched, fixed):
    """Write the signature: the first input's dims in `stretched` as ``n|1``, those in `fixed` as their size."""

    def side(operands, flags=""):
        dims = ([f"{fixed.get(label, label)}{'|1' if label in flags else ''}" for label in dims] for dims in operands)
        return ",".join(f"({','.join(labels)})" for labels in dims)

    inputs = ",".join([side(core_in[:1], stretched), *([side(core_in[1:])] if core_in[1:] else [])])
    return f"{inputs}->{side(core_out)}"


def _stretched_dims(core_in):
    """Draw dims of the first input that have size 1 there, and another size in another input."""
    return st.sets(st.sampled_from(sorted(set(core_in[0]) & set("".join(core_in[1:]))) or [""])).map(
        lambda labels: "".join(sorted(labels))
    )


def _stretch(args, dims, stretched, sizes):
    """Return the arguments with size-1 dims of the first as large as they are elsewhere."""
    n_loop = args[0].ndim - len(dims)
    core = tuple(
        sizes[label] if label in stretched else size for label, size in zip(dims, args[0].shape[n_loop:], strict=True)
    )
    return (np.broadcast_to(args[0], args[0].shape[:n_loop] + core), *args[1:])


def _fixed_sizes(sizes, new, stretched):
    """Draw dims that the signature writes as their size."""
    candidates = [label for label in sizes if label not in new and label not in stretched]
    return st.sets(st.sampled_from(candidates or [""])).map(
        lambda labels: {label: str(sizes[label]) for label in labels if label}
    )


@st.composite
def _argument(draw, dims, sizes, loop_shape):
    """Draw an array whose loop shape broadcasts to `loop_shape`."""
    own_loop = loop_shape[draw(st.integers(0, len(loop_shape))) :]
    own_loop = tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in own_loop)
    shape = own_loop + tuple(sizes[label] for label in dims)
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 4, shape)
    dtype = draw(st.sampled_from(DTYPES))
    return values + 2.0**-40 if dtype == "float64" else values.astype(dtype)


def _wider(dtype):
    return [wide for wide in ("float32", "float64", "complex128") if np.can_cast(dtype, wide, "same_kind")]


@st.composite
def _placed(draw, core_in, core_out, args, expected):
    """Draw where core dims are, and move those of the arguments and results there."""
    way = draw(st.sampled_from(["last", "axes", "axis", "keepdims"]))
    shared = set(core_in) == {core_in[0]} and set(core_out) <= {"", core_in[0]}
    if way == "axes" or (way == "axis" and (not shared or len(core_in[0]) != 1)):
        return draw(_placed_by_axes(args, [len(dims) for dims in core_in], expected, [len(dims) for dims in core_out]))
    if way == "axis":
        n_loop = min(array.ndim for array in (*args, *(e for e, o in zip(expected, core_out, strict=True) if o))) - 1
        axis = draw(st.integers(-1 - n_loop, -1))
        moved = tuple(np.moveaxis(e, -1, axis) if out else e for e, out in zip(expected, core_out, strict=True))
        return tuple(np.moveaxis(arg, -1, axis) for arg in args), {"axis": axis}, moved
    if way == "keepdims" and len({len(dims) for dims in core_in}) == 1 and not any(core_out):
        kept = (None,) * len(core_in[0])
        return args, {"keepdims": True}, tuple(e[(..., *kept)] for e in expected)
    return args, {}, expected


@st.composite
def _placed_by_axes(draw, args, n_core_in, expected, n_core_out):
    moved, axes = [], []
    for array, n_core in [*zip(args, n_core_in, strict=True), *zip(expected, n_core_out, strict=True)]:
        where = tuple(draw(st.permutations(range(-array.ndim, 0)))[:n_core])
        moved.append(np.moveaxis(array, tuple(range(-n_core, 0)), where))
        axes.append(where)
    return tuple(moved[: len(args)]), {"axes": axes}, tuple(moved[len(args) :])
