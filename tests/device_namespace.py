"""Array libraries on a device that does not exist, which let nothing go to the host unasked.

Two libraries, `GETTING` and `EXPORTING`, with two devices each. No value leaves an array but by the one way that its
library has: `get()`, as CuPy's arrays, or DLPack, as those that offer nothing else. All else that would read a value,
such as `bool`, `float`, `len` of a loop or NumPy itself, raises. So does making an array without a device, which in
such libraries lands on whichever device is the current one. `Library.copies` says what went to the host, and how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

__all__ = ["EXPORTING", "GETTING", "Device", "Library"]


@dataclass(frozen=True)
class Device:
    """One of a library's devices."""

    library: str
    number: int

    def __str__(self):
        return f"<{self.library} device {self.number}>"


class Array:
    """An array on a device, as far as the array API has one."""

    def __init__(self, values, device, key):
        assert key is _KEY, "made by its library alone"
        self._values, self.device = values, device

    dtype = property(lambda self: self._values.dtype)
    shape = property(lambda self: self._values.shape)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)

    # What Dask asks of the arrays in its chunks.
    nbytes = property(lambda self: self._values.nbytes)
    itemsize = property(lambda self: self._values.itemsize)
    T = property(lambda self: self._like(self._values.T))

    def astype(self, dtype, **_how):
        return self._like(self._values.astype(dtype))

    def reshape(self, *shape):
        return self._like(self._values.reshape(*shape))

    def transpose(self, *axes):
        return self._like(self._values.transpose(*axes))

    def sum(self, *args, **keywords):
        return self._like(self._values.sum(*args, **keywords))

    def __array_function__(self, function, types, args, keywords):
        own = {np.concatenate: self.library.concat, np.sum: self.library.sum, np.transpose: self.library.permute_dims}
        return own[function](*args, **keywords) if function in own else NotImplemented

    def __array_namespace__(self, api_version=None):
        return self.library

    def __getitem__(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        own = tuple(self._own(part) if isinstance(part, Array) else part for part in parts)
        return self._like(self._values[own if isinstance(index, tuple) else own[0]])

    def __setitem__(self, index, value):
        self._values[index] = self._own(value)

    def __repr__(self):
        return f"<{self.dtype} array of shape {self.shape} on {self.device}>"

    def _like(self, values):
        return type(self)(np.asarray(values), self.device, _KEY)

    def _own(self, other):
        """Return the values of what may take part in arithmetic: Python's numbers, and arrays of the same device."""
        if isinstance(other, (bool, int, float, complex)):
            return other
        if type(other) is not type(self) or other.device != self.device:
            raise TypeError(f"{other!r} is not on {self.device}")
        return other._values

    def _refuse(self, *_args, **_keywords):
        raise TypeError(f"implicit conversion of an array on {self.device}")

    __array__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __len__ = _refuse
    __array_ufunc__ = None

    __hash__ = None


def _binary(name):
    def method(self, other):
        return self._like(getattr(self._values, name)(self._own(other)))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "matmul", "and", "or", "xor"):
    setattr(Array, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(Array, f"__r{_name}__", _binary(f"__r{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Array, f"__{_name}__", _binary(f"__{_name}__"))
Array.__neg__ = lambda self: self._like(-self._values)


class GettingArray(Array):
    """An array that goes to the host by `get()` alone."""

    def get(self):
        self.library.copies += 1
        return self._values.copy()


class ExportingArray(Array):
    """An array that goes to the host by DLPack alone, where its consumer asks for a copy there."""

    def __dlpack_device__(self):
        return 2, self.device.number  # CUDA's number, as the standard has it

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is None or dl_device[0] != 1 or copy is False:
            raise BufferError(f"an array on {self.device} is exported to the host as a copy alone")
        self.library.copies += 1
        return self._values.copy().__dlpack__(max_version=max_version)


class Library:
    """A namespace of the array API; its functions take and give arrays of its own."""

    def __init__(self, name, array_type, bits):
        self.default_bits = bits
        self.__name__ = name
        self.devices = Device(name, 0), Device(name, 1)
        self.copies = 0  # to the host
        self.array_type = array_type
        array_type.library = self

    def __reduce__(self):
        return self.__name__.upper()  # there is one in a process, as of a module

    def __array_namespace_info__(self):
        return SimpleNamespace(default_dtypes=lambda device: self.default_dtypes)

    @property
    def default_dtypes(self):
        names = {"real floating": "float", "integral": "int"}
        defaults = {kind: np.dtype(f"{name}{self.default_bits}") for kind, name in names.items()}
        return defaults | {"complex floating": np.dtype(f"complex{2 * self.default_bits}")}

    def asarray(self, obj, /, *, dtype=None, device=None, copy=None):
        assert device in self.devices, f"an array on the device that happens to be the current one, not {device}"
        if isinstance(obj, Array):
            if type(obj) is not self.array_type:
                raise TypeError(f"{obj!r} is of another library")
            assert device == obj.device, "an array that changes its device unasked"
        values = obj._values if isinstance(obj, Array) else obj
        dtype = dtype or getattr(values, "dtype", None) or self._default_dtype(values)
        return self.array_type(np.array(values, dtype, copy=copy), device, _KEY)

    def empty(self, shape, *, dtype=None, device=None):
        return self.asarray(np.zeros(shape, dtype or self.default_dtypes["real floating"]), device=device)

    zeros = empty

    def ones(self, shape, *, dtype=None, device=None):
        return self.asarray(np.ones(shape, dtype or self.default_dtypes["real floating"]), device=device)

    def stack(self, arrays, /, *, axis=0):
        return arrays[0]._like(np.stack([arrays[0]._own(array) for array in arrays], axis=axis))

    def concat(self, arrays, /, *, axis=0):
        return arrays[0]._like(np.concat([arrays[0]._own(array) for array in arrays], axis=axis))

    def astype(self, array, dtype, /, *, copy=True, device=None):
        return array._like(array._values.astype(dtype, copy=copy))

    def result_type(self, *args):
        return np.result_type(*(arg.dtype if isinstance(arg, Array) else arg for arg in args))

    def _default_dtype(self, values):
        kinds = {"f": "real floating", "i": "integral", "c": "complex floating"}
        dtype = np.asarray(values).dtype
        return self.default_dtypes.get(kinds.get(dtype.kind), dtype)


def _unary(function):
    def method(self, array, /, *args, **keywords):
        return array._like(function(array._values, *args, **keywords))

    return method


for _name in ("sum", "min", "max", "any", "all", "sort", "flip", "broadcast_to", "expand_dims", "permute_dims"):
    setattr(Library, _name, _unary(getattr(np, _name)))
for _name in ("reshape", "squeeze", "sqrt", "abs"):
    setattr(Library, _name, _unary(getattr(np, _name)))
for _name in ("bool", "int8", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128"):
    setattr(Library, _name, np.dtype(_name))

_KEY = object()

GETTING = Library("getting", GettingArray, bits=64)
EXPORTING = Library("exporting", ExportingArray, bits=32)
