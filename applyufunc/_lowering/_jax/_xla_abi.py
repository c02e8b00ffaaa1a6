"""XLA's foreign-function interface on the CPU, spoken through ctypes: the structs of a call, and how to answer it.

In: what XLA hands to a handler, a pointer to a call frame. Out: its operands as NumPy arrays over XLA's own memory, its
attribute, and the error to answer with. Knows no kernels, no traces and nothing of JAX.

The structs are those of ``xla/ffi/api/c_api.h``, which jaxlib ships in ``jax.ffi.include_dir()``: its API 0.3 (jaxlib
0.10.2) and 0.5 (jaxlib 0.12.0) agree in all that is read here. A later one may append fields, and says so in the sizes
that `layout_problem` looks at.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

__all__ = [
    "DTYPES",
    "ArrayMaker",
    "Frame",
    "Handler",
    "OperandType",
    "arrays_at",
    "attribute",
    "create_error",
    "describe_handler",
    "is_execution",
    "layout_problem",
    "makers_to_fill",
    "makers_to_read",
    "operand_types",
    "read_frame",
]


class _Extension(Structure):
    pass


_Extension._fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", POINTER(_Extension))]


class _ApiVersion(Structure):
    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class _Api(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", _ApiVersion),
        ("internal_api", c_void_p),
        ("create_error", c_void_p),
    ]  # and more functions, of which none is called


class _Buffer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Buffers(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int)),
        ("buffers", c_void_p),
    ]


class _Scalar(Structure):
    _fields_ = [("dtype", c_int), ("value", POINTER(c_int64))]


class _Attributes(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int)),
        ("names", c_void_p),
        ("values", c_void_p),
    ]


class _CallFrame(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("inputs", _Buffers),
        ("outputs", _Buffers),
        ("attributes", _Attributes),
    ]


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _ApiVersion), ("traits", c_uint32)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _ErrorArguments(Structure):
    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


Handler: Final = ctypes.CFUNCTYPE(c_void_p, c_void_p)
"""The type of a function that XLA calls, with the address of a call frame; it answers None, or an error."""


class Frame(NamedTuple):
    """What a call frame says."""

    extension: int  # an address, as are those below; 0: none
    api: int
    stage: int
    n_inputs: int
    inputs: int
    n_outputs: int
    outputs: int
    n_attributes: int
    attributes: int


_CODES: Final = {
    1: np.bool_,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.uint8,
    7: np.uint16,
    8: np.uint32,
    9: np.uint64,
    10: np.float16,
    11: np.float32,
    12: np.float64,
    15: np.complex64,
    16: ml_dtypes.bfloat16,
    18: np.complex128,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e4m3fn,
    23: ml_dtypes.float8_e4m3b11fnuz,
    24: ml_dtypes.float8_e5m2fnuz,
    25: ml_dtypes.float8_e4m3fnuz,
    28: ml_dtypes.float8_e4m3,
    29: ml_dtypes.float8_e3m4,
}

OperandType: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
"""A dtype, and a shape."""

ArrayMaker: TypeAlias = Callable[[int], np.ndarray[Any, Any]]
"""Makes an array over the memory that begins so many bytes after `_START`."""

DTYPES: Final = {code: np.dtype(kind) for code, kind in _CODES.items()}
"""NumPy's dtypes by XLA's codes; not those of less than a byte, which XLA packs as it likes."""


def read_frame(address: int) -> Frame:
    """Return what a call frame at an address says; all at once, since this is what a small call costs."""
    return _as_frame(Frame, _FRAME.unpack_from(_TO_READ, address - _START))


def layout_problem(address: int) -> str:
    """Return what is not as it was when the structs were written down; nothing where all is."""
    frame = _CallFrame.from_address(address)
    version = frame.api.contents.version
    parts = (frame.inputs, frame.outputs, frame.attributes)
    is_known = version.major == 0 and frame.struct_size >= ctypes.sizeof(_CallFrame) == _FRAME.size
    if is_known and all(part.struct_size == ctypes.sizeof(type(part)) for part in parts):
        return ""
    return f"version {version.major}.{version.minor} of XLA's foreign-function interface has another layout"


def is_execution(frame: Frame) -> bool:
    """Tell a call in which there is something to compute from those that ask something, or prepare it."""
    return frame.stage == _EXECUTE and not frame.extension


def attribute(frame: Frame) -> int:
    """Return the value of the only attribute, an integer."""
    (scalar,) = _integer_at(_TO_READ, frame.attributes - _START)
    (value,) = _integer_at(_TO_READ, scalar + _VALUE)
    return _integer_at(_TO_READ, value - _START)[0]  # type: ignore[no-any-return]


def describe_handler(frame: Frame) -> bool:
    """Answer XLA's question, asked once, what interface a handler was written for; tell whether it was asked."""
    if not frame.extension:
        return False
    extension = _MetadataExtension.from_address(frame.extension)
    if extension.base.type != _METADATA:
        return False
    version = extension.metadata.contents.version
    version.major, version.minor, extension.metadata.contents.traits = 0, 1, 0
    return True


def operand_types(pointers: int, n_operands: int) -> tuple[OperandType, ...]:
    """Return the dtype and the shape of each operand, for programs that did not know them when they were made."""
    buffers = (POINTER(_Buffer) * n_operands).from_address(pointers)
    return tuple(_operand_type(pointer.contents) for pointer in buffers)


def makers_to_read(types: Sequence[OperandType]) -> tuple[ArrayMaker, ...]:
    """Return what makes arrays of these types that nobody can make writable."""
    return tuple(partial(np.ndarray, shape, dtype, _TO_READ) for dtype, shape in types)


def makers_to_fill(types: Sequence[OperandType]) -> tuple[ArrayMaker, ...]:
    """Return what makes writable arrays of these types."""
    return tuple(partial(np.ndarray, shape, dtype, _TO_FILL) for dtype, shape in types)


def arrays_at(pointers: int, n_operands: int, makers: Sequence[ArrayMaker]) -> list[np.ndarray[Any, Any]]:
    """Return what makers make over the elements of operands; `pointers` is where XLA tells of them."""
    if n_operands != len(makers):
        raise ValueError(f"{n_operands} operands, expected {len(makers)}")
    arrays = []
    pointer = pointers - _START
    for make in makers:  # no comprehension, which costs a small call a microsecond more
        (buffer,) = _integer_at(_TO_READ, pointer)
        (place,) = _integer_at(_TO_READ, buffer + _DATA)
        arrays.append(make(place and place - _START))
        pointer += 8
    return arrays


def create_error(frame: Frame, message: str) -> Any:
    """Return XLA's own error with a text, to answer with."""
    arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message.encode(errors="replace"), _INTERNAL)
    create = ctypes.cast(_Api.from_address(frame.api).create_error, _ErrorFunction)
    return create(ctypes.byref(arguments))


def _operand_type(buffer: Any) -> OperandType:
    return DTYPES[buffer.dtype], tuple(buffer.dims[: buffer.rank]) if buffer.rank else ()


# A prototype of its own: what `ctypes.pythonapi` gives by name is shared with everyone who sets its types.
_MemoryFunction: Final = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_ssize_t, c_int)
_memory: Final = _MemoryFunction(("PyMemoryView_FromMemory", ctypes.pythonapi))
# All that can be addressed: an array over a part of it costs less than a buffer made for it. 0 is where nothing is.
_START: Final = 1
_TO_READ: Final = _memory(_START, sys.maxsize, 0x100)  # PyBUF_READ
_TO_FILL: Final = _memory(_START, sys.maxsize, 0x200)  # PyBUF_WRITE
_FRAME: Final = Struct("=8x QQ8xi4x 16xq8xQ 16xq8xQ 16xq16xQ")  # of a _CallFrame, what a Frame has
_as_frame: Final = tuple.__new__  # what Frame._make does, with a third of its cost
_integer_at: Final = Struct("=q").unpack_from
_DATA: Final = _Buffer.data.offset - _START
_VALUE: Final = _Scalar.value.offset - _START
_METADATA: Final = 1  # XLA_FFI_Extension_Metadata
_EXECUTE: Final = 3  # XLA_FFI_ExecutionStage_EXECUTE
_INTERNAL: Final = 13  # XLA_FFI_Error_Code_INTERNAL, as JAX's own callbacks fail
_ErrorFunction: Final = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
