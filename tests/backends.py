"""The backends that tests run on: how arrays get there, how a call is made, and how values come back."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import applyufunc as au
from applyufunc._options import OPTION_NAMES


class Backend:
    """How a test hands arrays to a library, calls, and gets values back."""

    examples = 150
    lazy = False  # the result is built before the kernel runs
    traces = False
    compiles = False
    keeps_masks = True
    batch = ()  # loop dims that the backend puts in front
    scalar: Any = np.generic  # the type of a 0-d result

    def put(self, array, data=None):
        """Return `array` in the library; `data` draws what may vary, such as chunks."""
        return array

    def call(self, kernel, signature, args, options):
        return au.apply_ufunc(kernel, signature, *args, **options)

    def get(self, result):
        return result

    def check_type(self, result):
        assert type(result) is np.ndarray if np.ndim(result) else isinstance(result, self.scalar)

    def check_blocks(self, result):
        """Check what a lazy result promised of its parts."""

    def context(self):
        return contextlib.nullcontext()


class Strict(Backend):
    """array-api-strict, which takes nothing that the standard does not promise."""

    keeps_masks = False

    def __init__(self):
        self.xp = pytest.importorskip("array_api_strict")

    def put(self, array, data=None):
        return self.xp.asarray(array)

    def get(self, result):
        return np.asarray(result)

    def check_type(self, result):
        assert type(result) is type(self.xp.zeros(1))


class Dask(Backend):
    """Dask, with chunks of any sizes on every axis; building computes nothing."""

    lazy = True

    def __init__(self):
        pytest.importorskip("dask.array")
        import dask
        import dask.array as da

        self.dask, self.da = dask, da

    def put(self, array, data=None):
        chunks = -1 if data is None else tuple(data.draw(_chunks(size)) for size in array.shape)
        return self.da.from_array(array, chunks=chunks)

    def call(self, kernel, signature, args, options):
        def scheduler(*args, **kwargs):
            raise AssertionError("building a lazy result computed something")

        with self.dask.config.set(scheduler=scheduler):
            return super().call(kernel, signature, args, options)

    def get(self, result):
        value = result.compute(scheduler="sync")
        assert (result.shape, result.dtype) == (value.shape, value.dtype), "the lazy array promised something else"
        return value

    def check_type(self, result):
        assert type(result) is self.da.Array

    def check_blocks(self, result):
        for index in np.ndindex(result.numblocks):
            block = result.blocks[index]
            assert block.shape == np.shape(block.compute(scheduler="sync"))


class Jax(Backend):
    """JAX arrays outside any trace; 64-bit dtypes are enabled, so that every dtype is the one of NumPy."""

    keeps_masks = False

    def __init__(self):
        self.jax = pytest.importorskip("jax")

    def put(self, array, data=None):
        return self.jax.numpy.asarray(array)

    def get(self, result):
        return np.asarray(result)

    def check_type(self, result):
        assert isinstance(result, self.jax.Array)

    def context(self):
        return self.jax.enable_x64(True)


class JaxJit(Jax):
    """JAX inside `jax.jit`."""

    examples = 50
    lazy = True
    traces = True

    def call(self, kernel, signature, args, options):
        return self.jax.jit(lambda *traced: super(JaxJit, self).call(kernel, signature, traced, options))(*args)


class JaxVmap(Jax):
    """JAX inside ``jit(vmap(...))``: the first argument is mapped, the others are the same for the whole batch."""

    examples = 50
    lazy = True
    traces = True
    batch = (2,)

    def call(self, kernel, signature, args, options):
        batch = self.jax.numpy.stack([args[0], args[0]])
        in_axes = (0, *(None,) * (len(args) - 1))
        call = super().call
        mapped = self.jax.vmap(lambda *traced: call(kernel, signature, traced, options), in_axes=in_axes)
        both = self.jax.jit(mapped)(batch, *args[1:])
        return tuple(self._one(batched) for batched in both) if isinstance(both, tuple) else self._one(both)

    def _one(self, both):
        np.testing.assert_array_equal(both[0], both[1])
        return both[0]


class Torch(Backend):
    """PyTorch tensors on the CPU, which hold their values; its default dtype is float64, as NumPy's is."""

    keeps_masks = False

    def __init__(self):
        self.torch = pytest.importorskip("torch")

    def put(self, array, data=None):
        copy = np.array(array, order="C")
        if copy.dtype.kind != "V":
            return self.torch.from_numpy(copy)
        return self.torch.from_numpy(copy.view(f"u{copy.itemsize}")).view(getattr(self.torch, copy.dtype.name))

    def get(self, result):
        name = str(result.dtype).removeprefix("torch.")
        if not name.startswith(("bfloat", "float8")):
            return result.numpy()
        return result.view(getattr(self.torch, f"uint{8 * result.itemsize}")).numpy().view(name)

    def check_type(self, result):
        assert type(result) is self.torch.Tensor
        assert result.is_contiguous()

    @contextlib.contextmanager
    def context(self):
        before = self.torch.get_default_dtype()
        self.torch.set_default_dtype(self.torch.float64)
        try:
            yield
        finally:
            self.torch.set_default_dtype(before)


class TorchCompile(Torch):
    """PyTorch inside `torch.compile`, in one graph of operators."""

    examples = 5
    lazy = True
    compiles = True

    def call(self, kernel, signature, args, options):
        own = {name: value for name, value in options.items() if name not in OPTION_NAMES}
        if any(isinstance(value, np.ndarray) for value in own.values()):  # in a program a tensor like all others
            bound = {name: value for name, value in options.items() if name not in own}
            call = au.gufunc(signature, **bound, kwargs=own)(kernel)
        else:
            call = lambda *args: au.apply_ufunc(kernel, signature, *args, **options)
        self.torch.compiler.reset()  # each example is another program
        return self.torch.compile(call, backend="aot_eager", fullgraph=True)(*args)


class TorchVmap(Torch):
    """PyTorch inside `torch.vmap`: the first argument is mapped, the others are the same for the whole batch."""

    examples = 50
    lazy = True
    batch = (2,)

    def call(self, kernel, signature, args, options):
        batch = self.torch.stack([args[0], args[0]])
        in_dims = (0, *(None,) * (len(args) - 1))
        call = super().call
        both = self.torch.vmap(lambda *args: call(kernel, signature, args, options), in_dims)(batch, *args[1:])
        return tuple(self._one(batched) for batched in both) if isinstance(both, tuple) else self._one(both)

    def _one(self, both):
        np.testing.assert_array_equal(self.get(both[0]), self.get(both[1]))
        return both[0]


BACKENDS = {
    "numpy": Backend,
    "strict": Strict,
    "dask": Dask,
    "jax": Jax,
    "jax-jit": JaxJit,
    "jax-vmap": JaxVmap,
    "torch": Torch,
    "torch-compile": TorchCompile,
    "torch-vmap": TorchVmap,
}


def _chunks(size):
    """Draw chunk sizes that add up to `size`; some are 0."""
    cuts = st.lists(st.integers(0, size), max_size=3).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))
