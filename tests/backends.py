"""The backends that tests run on: how arrays get there, how a call is made, and how values come back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import device_namespace
import numpy as np
import pytest
from hypothesis import strategies as st

import applyufunc as au

WITH_LEAVE: Final[Mapping[str, Any]] = {"allow_transfer": True}


class Backend:
    """How a test hands arrays to a library, calls, and gets values back."""

    title = "NumPy"  # of its column in the table of what runs where
    options: ClassVar[Mapping[str, Any]] = {}  # with which every call is made
    needs_leave = False  # for a kernel that takes NumPy arrays
    has_chunks = False
    takes_unknown_sizes = True
    examples = 150
    lazy = False  # the result is built before the kernel runs
    traces = False
    keeps_masks = True
    has_short_floats = True
    gives_jax_blocks = True  # that functions of JAX take, as they take NumPy arrays
    batch = ()  # loop dims that the backend puts in front
    scalar: Any = np.generic  # the type of a 0-d result

    def put(self, array, data=None):
        """Return `array` in the library; `data` draws what may vary, such as chunks."""
        return array

    def run(self, function, args):
        """Return what `function` gives for arrays of the library, called where the backend calls functions."""
        return function(*args)

    def call(self, kernel, signature, args, options):
        return self.run(lambda *args: au.apply_ufunc(kernel, signature, *args, **{**self.options, **options}), args)

    def get(self, result):
        return result

    def is_own(self, block):
        """Tell what a kernel with ``kernel_arrays="same"`` gets: concrete, of the library and device of a block."""
        return type(block) is np.ndarray

    def check_type(self, result):
        assert type(result) is np.ndarray if np.ndim(result) else isinstance(result, self.scalar)

    def check_blocks(self, result):
        """Check what a lazy result promised of its parts."""

    def context(self):
        return contextlib.nullcontext()


class Strict(Backend):
    """array-api-strict, which takes nothing that the standard does not promise."""

    title = "array-api-strict"
    gives_jax_blocks = False
    keeps_masks = False
    has_short_floats = False
    device_name = "CPU_DEVICE"

    def __init__(self):
        self.xp = pytest.importorskip("array_api_strict")
        self.device = self.xp.Device(self.device_name)

    def put(self, array, data=None):
        return self.xp.asarray(array, device=self.device, copy=True)

    def get(self, result):
        return np.asarray(result.to_device(self.xp.Device("CPU_DEVICE")))

    def check_type(self, result):
        assert self.is_own(result)

    def is_own(self, block):
        return type(block) is type(self.xp.zeros(1)) and block.device == self.device


class StrictDevice(Strict):
    """The second device of array-api-strict, which NumPy kernels get arrays from with leave alone."""

    title = "array-api-strict, second device"
    options = WITH_LEAVE
    needs_leave = True
    examples = 50
    device_name = "device1"


class OnDevice(Backend):
    """The second device of a library whose arrays go to the host by their own `get()` alone, as CuPy's."""

    title = "GPU (simulated)"
    options = WITH_LEAVE
    needs_leave = True
    examples = 50
    gives_jax_blocks = False
    keeps_masks = False

    def __init__(self):
        self.xp = device_namespace.GETTING
        self.device = self.xp.devices[1]

    def put(self, array, data=None):
        return self.xp.asarray(array, device=self.device, copy=True)

    def get(self, result):
        return result.get()

    def check_type(self, result):
        assert self.is_own(result)

    def is_own(self, block):
        return type(block) is self.xp.array_type and block.device == self.device


class Sparse(Backend):
    """COO arrays of `sparse`, of which NumPy kernels get dense ones with leave alone."""

    title = "sparse"
    options = WITH_LEAVE
    needs_leave = True
    examples = 30
    gives_jax_blocks = False
    keeps_masks = False

    def __init__(self):
        self.sparse = pytest.importorskip("sparse")

    def put(self, array, data=None):
        return self.sparse.COO.from_numpy(np.asarray(array))

    def get(self, result):
        return result.todense()

    def check_type(self, result):
        assert self.is_own(result)

    def is_own(self, block):
        return type(block) is self.sparse.COO


class Dask(Backend):
    """Dask, with chunks of any sizes on every axis; building computes nothing."""

    title = "Dask"
    lazy = True
    has_chunks = True

    def __init__(self):
        pytest.importorskip("dask.array")
        import dask
        import dask.array as da

        self.dask, self.da = dask, da

    def put(self, array, data=None):
        chunks = -1 if data is None else tuple(data.draw(_chunks(size)) for size in array.shape)
        return self.da.from_array(array, chunks=chunks)

    def run(self, function, args):
        def scheduler(*args, **kwargs):
            raise AssertionError("building a lazy result computed something")

        with self.dask.config.set(scheduler=scheduler):
            return function(*args)

    def get(self, result):
        value = result.compute(scheduler="sync")
        shape = tuple(
            size if math.isnan(promised) else promised for promised, size in zip(result.shape, value.shape, strict=True)
        )
        assert (shape, result.dtype) == (value.shape, value.dtype), "the lazy array promised something else"
        return value

    def check_type(self, result):
        assert type(result) is self.da.Array

    def check_blocks(self, result):
        for index in np.ndindex(result.numblocks):
            block = result.blocks[index]
            assert block.shape == np.shape(block.compute(scheduler="sync"))


class DaskOfSparse(Dask):
    """Dask arrays whose chunks are COO arrays of `sparse`."""

    title = "Dask of sparse"
    options = WITH_LEAVE
    needs_leave = True
    examples = 15
    gives_jax_blocks = False
    keeps_masks = False

    def __init__(self):
        super().__init__()
        self.sparse = pytest.importorskip("sparse")

    def put(self, array, data=None):
        to_sparse = self.sparse.COO.from_numpy
        return super().put(array, data).map_blocks(to_sparse, meta=to_sparse(np.empty((0,) * array.ndim, array.dtype)))

    def get(self, result):
        value = super().get(result)
        # Of what has no dims, Dask makes the meta a NumPy array.
        assert type(value) is type(result._meta) or not result.ndim
        return value if isinstance(value, np.ndarray | np.generic) else value.todense()

    def is_own(self, block):
        return type(block) is self.sparse.COO


class Jax(Backend):
    """JAX arrays outside any trace; 64-bit dtypes are enabled, so that every dtype is the one of NumPy."""

    title = "JAX"
    keeps_masks = False

    def __init__(self):
        self.jax = pytest.importorskip("jax")

    def put(self, array, data=None):
        return self.jax.numpy.asarray(array)

    def get(self, result):
        return np.asarray(result)

    def check_type(self, result):
        assert self.is_own(result)

    def is_own(self, block):
        return isinstance(block, self.jax.Array) and not isinstance(block, self.jax.core.Tracer)

    def context(self):
        return self.jax.enable_x64(True)


class JaxJit(Jax):
    """JAX inside `jax.jit`."""

    title = "JAX, `jit`"
    examples = 50
    lazy = True
    traces = True
    takes_unknown_sizes = False

    def run(self, function, args):
        return self.jax.jit(function)(*args)


class JaxVmap(Jax):
    """JAX inside ``jit(vmap(...))``: the first argument is mapped, the others are the same for the whole batch."""

    title = "JAX, `vmap`"
    examples = 50
    lazy = True
    traces = True
    takes_unknown_sizes = False
    batch = (2,)

    def run(self, function, args):
        batch = self.jax.numpy.stack([args[0], args[0]])
        in_axes = (0, *(None,) * (len(args) - 1))
        both = self.jax.jit(self.jax.vmap(function, in_axes=in_axes))(batch, *args[1:])
        return tuple(self._one(batched) for batched in both) if isinstance(both, tuple) else self._one(both)

    def _one(self, both):
        np.testing.assert_array_equal(both[0], both[1])
        return both[0]


BACKENDS = {
    "numpy": Backend,
    "strict": Strict,
    "strict-device": StrictDevice,
    "gpu": OnDevice,
    "sparse": Sparse,
    "dask": Dask,
    "dask-sparse": DaskOfSparse,
    "jax": Jax,
    "jax-jit": JaxJit,
    "jax-vmap": JaxVmap,
}


def _chunks(size):
    """Draw chunk sizes that add up to `size`; some are 0."""
    cuts = st.lists(st.integers(0, size), max_size=3).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))
