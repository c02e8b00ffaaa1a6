"""The backends that tests run on: how arrays get there, how a call is made, and how values come back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import device_namespace
import numpy as np
import pytest
from hypothesis import reject
from hypothesis import strategies as st

import applyufunc as au
from applyufunc._axes import find_core_axes
from applyufunc._options import OPTION_NAMES

WITH_LEAVE: Final[Mapping[str, Any]] = {"allow_transfer": True}


class Backend:
    """How a test hands arrays to a library, calls, and gets values back."""

    title = "NumPy"  # of its column in the table of what runs where
    options: ClassVar[Mapping[str, Any]] = {}  # with which every call is made
    needs_leave = False  # for a kernel that takes NumPy arrays
    has_chunks = False
    works_on_pieces = True  # reductions and their like leave a core dim in its chunks
    has_lazy_apply = True
    has_explain = True
    takes_axes = True
    takes_unknown_sizes = True
    examples = 150
    lazy = False  # the result is built before the kernel runs
    traces = False
    compiles = False
    keeps_masks = True
    named = False  # axes have names, which `call` gives them
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

    def rechunk(self, array, sizes):
        return array.rechunk(dict(enumerate(sizes)))

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


class Cubed(Backend):
    """cubed, with regular chunks of any size; building computes nothing."""

    title = "cubed"
    examples = 50
    lazy = True
    has_chunks = True
    works_on_pieces = False
    takes_unknown_sizes = False
    keeps_masks = False
    has_short_floats = False  # Zarr, in which cubed stores arrays, has none

    def __init__(self):
        self.cubed = pytest.importorskip("cubed")
        self.spec = self.cubed.Spec(allowed_mem="100MB", executor_name="single-threaded")

    def put(self, array, data=None):
        sizes = st.tuples(*(st.integers(1, max(size, 1)) for size in array.shape))
        return self.cubed.asarray(array, chunks=-1 if data is None else data.draw(sizes), spec=self.spec)

    def rechunk(self, array, sizes):
        return array.rechunk(sizes)

    def run(self, function, args):
        with self.cubed.raise_if_computes():
            return function(*args)

    def get(self, result):
        value = result.compute()
        assert (result.shape, result.dtype) == (value.shape, value.dtype), "the lazy array promised something else"
        return value

    def check_type(self, result):
        assert type(result) is self.cubed.Array

    def check_blocks(self, result):
        assert result.shape == tuple(map(sum, result.chunks))


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


class Torch(Backend):
    """PyTorch tensors on the CPU, which hold their values; its default dtype is float64, as NumPy's is."""

    title = "PyTorch"
    gives_jax_blocks = False
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

    def is_own(self, block):
        return type(block) is self.torch.Tensor

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

    title = "PyTorch, `compile`"
    examples = 5
    lazy = True
    compiles = True
    takes_unknown_sizes = False
    has_explain = False  # of a program, before it is compiled

    def run(self, function, args):
        self.torch.compiler.reset()  # each example is another program
        return self.torch.compile(function, backend="aot_eager", fullgraph=True)(*args)

    def call(self, kernel, signature, args, options):
        own = {name: value for name, value in options.items() if name not in OPTION_NAMES}
        if any(isinstance(value, np.ndarray) for value in own.values()):  # in a program a tensor like all others
            bound = {name: value for name, value in options.items() if name not in own}
            call = au.gufunc(signature, **bound, kwargs=own)(kernel)
        else:
            call = lambda *args: au.apply_ufunc(kernel, signature, *args, **options)
        return self.run(call, args)


class TorchVmap(Torch):
    """PyTorch inside `torch.vmap`: the first argument is mapped, the others are the same for the whole batch."""

    title = "PyTorch, `vmap`"
    examples = 50
    lazy = True
    batch = (2,)

    def run(self, function, args):
        batch = self.torch.stack([args[0], args[0]])
        in_dims = (0, *(None,) * (len(args) - 1))
        both = self.torch.vmap(function, in_dims)(batch, *args[1:])
        return tuple(self._one(batched) for batched in both) if isinstance(both, tuple) else self._one(both)

    def _one(self, both):
        np.testing.assert_array_equal(self.get(both[0]), self.get(both[1]))
        return both[0]


class Labelled(Backend):
    """xarray: every axis gets the name of the dim that it is to the signature; names take it to its place again."""

    title = "xarray"
    has_lazy_apply = False
    takes_axes = False  # `call` makes names of them
    examples = 50
    keeps_masks = False
    named = True

    def __init__(self):
        super().__init__()
        self.xarray = pytest.importorskip("xarray")

    def put(self, array, data=None):
        return self.xarray.DataArray(super().put(array, data))

    def call(self, kernel, signature, args, options):
        parsed = au.gufunc(signature)(kernel).signature
        if any(len(set(labels)) < len(labels) for labels in parsed.input_labels + parsed.output_labels):
            reject()  # a dim twice, such as "(2,2)", is refused
        if len(args) != parsed.nin:
            return super().call(kernel, signature, args, options)
        ndims = tuple(getattr(arg, "ndim", 0) for arg in args)
        places = {name: options[name] for name in ("axes", "axis", "keepdims") if name in options}
        options = {name: value for name, value in options.items() if name not in places}
        try:
            present = parsed.without(parsed.absent(ndims))
            axes = find_core_axes(present.input_labels, present.output_labels, ndims, **places)
        except au.DimensionError:  # too few dims, for the call itself to refuse
            present, axes = parsed, None
        names = {label: label if label.isidentifier() else f"_{label}" for label in _labels(parsed)}
        dims = [
            _dims(labels, ndim, None if axes is None else axes.inputs[position], names)
            for position, (labels, ndim) in enumerate(zip(present.input_labels, ndims, strict=True))
        ]
        result = super().call(kernel, signature, _named(args, dims), {"dims": names} | options)
        results = result if isinstance(result, tuple) else (result,)
        n_loop = max(sum(name.startswith("loop") for name in own) for own in dims)
        finished = tuple(
            _placed(value, [names[label] for label in labels], own, axes.n_kept, n_loop)
            for value, labels, own in zip(results, present.output_labels, axes.outputs, strict=True)
        )
        return finished if isinstance(result, tuple) else finished[0]

    def get(self, result):
        return super().get(result.data)

    def check_type(self, result):
        assert type(result) is self.xarray.DataArray


class LabelledDask(Labelled, Dask):
    """xarray's objects with Dask arrays in them."""

    title = "xarray of Dask"
    examples = 25

    def rechunk(self, array, sizes):
        return array.chunk(dict(zip(array.dims, sizes, strict=True)))

    def check_blocks(self, result):
        super().check_blocks(result.data)


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
    "torch": Torch,
    "torch-compile": TorchCompile,
    "torch-vmap": TorchVmap,
    "cubed": Cubed,
    "xarray": Labelled,
    "xarray-dask": LabelledDask,
}


def _labels(signature):
    return {label for labels in signature.input_labels + signature.output_labels for label in labels}


def _dims(labels, ndim, axes, names):
    """Name the axes of an argument: core dims where `axes` has them, loop dims by their place from the right."""
    if axes is None:
        labels = labels[max(len(labels) - ndim, 0) :]
        axes = range(-len(labels), 0)
    core = {axis + ndim: names[label] for axis, label in zip(axes, labels, strict=True)}
    n_loop = ndim - len(core)
    loop = iter([f"loop{place}" for place in range(n_loop, 0, -1)])
    return [core.get(axis) or next(loop) for axis in range(ndim)]


def _named(args, dims):
    """Return arguments with these dims; a loop dim of length 1 that is longer elsewhere has no place among names."""
    shapes = [dict(zip(own, np.shape(arg), strict=True)) for arg, own in zip(args, dims, strict=True)]
    longer = {name for sizes in shapes for name, size in sizes.items() if size != 1 and name.startswith("loop")}

    def named(arg, own):
        if not hasattr(arg, "dims"):
            return arg
        arg = arg.rename(dict(zip(arg.dims, own, strict=True)))
        return arg.isel({name: 0 for name, size in arg.sizes.items() if size == 1 and name in longer})

    return tuple(map(named, args, dims))


def _placed(value, core, axes, n_kept, n_loop):
    """Return an output with dims where a call on arrays without names has them."""
    kept = [f"kept{place}" for place in range(n_kept)]
    core, loop = [*core, *kept], iter([f"loop{place}" for place in range(n_loop, 0, -1)])
    by_axis = {axis + n_loop + len(core): name for axis, name in zip(axes, core, strict=True)}
    order = [by_axis.get(axis) or next(loop) for axis in range(n_loop + len(core))]
    return value.expand_dims(kept).transpose(*order)


def _chunks(size):
    """Draw chunk sizes that add up to `size`; some are 0."""
    cuts = st.lists(st.integers(0, size), max_size=3).map(sorted)
    return cuts.map(lambda cut: tuple(np.diff([0, *cut, size]).tolist()))
