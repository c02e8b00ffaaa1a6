"""Anything array-like as a NumPy array, and arrays of other libraries brought to the host, with leave where needed.

Imports no library but NumPy: what an array is, is read off the array itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat
import numpy as np

from .._errors import ArgumentError, TransferError
from .._transfer import transfer_is_allowed
from .._typing import Array

__all__ = [
    "as_numpy",
    "check_one_device",
    "check_transfer",
    "is_jax_literal",
    "library_name",
    "like",
    "refuse_transfer",
    "to_host",
]


def as_numpy(arg: Any, what: str) -> np.ndarray[Any, Any]:
    """Return an array-like as exactly `numpy.ndarray`, or as a masked array where one was given."""
    if type(arg) in (np.ndarray, np.ma.MaskedArray):
        return arg  # type: ignore[no-any-return]  # the type was asked for
    if arg is np.ma.masked:
        return np.ma.MaskedArray(0.0, mask=True)
    if isinstance(arg, np.ndarray) and not isinstance(arg, np.memmap):
        raise ArgumentError(
            f"{what} is {_full_name(arg)}, a subclass of numpy.ndarray whose meaning would be lost: "
            f"pass numpy.asarray(...) of it"
        )
    try:
        array = np.asarray(arg)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} is {_full_name(arg)}, which does not become an array: {error}") from error
    if array.dtype == object and not hasattr(arg, "__array__") and not isinstance(arg, (list, tuple)):
        raise ArgumentError(
            f"{what} is {_full_name(arg)}, expected an array, a sequence of numbers, a Python scalar or None"
            f" ({_cure_for(arg)})"
        )
    return array


def check_transfer(array: Array, option: bool, what: str) -> None:
    """Refuse an array whose library refuses to copy it to the host by itself, unless leave was given."""
    if not transfer_is_allowed(option):
        refuse_transfer(array, what)


def refuse_transfer(array: Array, what: str) -> None:
    """Refuse an array whose library refuses to copy it to the host by itself."""
    reason = _why_leave_is_needed(array)
    if reason:
        raise TransferError(
            f"{what} is {_full_name(array)} {reason}, and the kernel takes NumPy arrays: pass allow_transfer=True, or "
            f"use `with applyufunc.allow_transfer():`, to copy it to the host"
        )


def check_one_device(arrays: Mapping[str, Array]) -> None:
    """Refuse arrays of two devices, given by what messages call them: the result could only be on one of them."""
    devices = {what: array_api_compat.device(array) for what, array in arrays.items()}
    first = next(iter(devices), "")
    for what, device in devices.items():
        follows = array_api_compat.is_torch_array(arrays[what]) and not (arrays[what].ndim and arrays[first].ndim)
        if device != devices[first] and not follows:  # torch lets 0-d arrays follow
            raise ArgumentError(
                f"{first} is on device {devices[first]} and {what} on device {device}: arrays of two devices do not "
                f"mix; move them to one"
            )


def to_host(array: Array) -> np.ndarray[Any, Any]:
    """Return a NumPy array with the values of an array of any library; leave has been checked."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().resolve_conj().resolve_neg().cpu().numpy())
    if array_api_compat.is_pydata_sparse_array(array):
        return np.asarray(array.todense())
    if hasattr(type(array), "get"):  # of CuPy and its like
        return np.asarray(array.get())
    try:
        return np.asarray(array)
    except (RuntimeError, TypeError, BufferError):  # as array-api-strict says off its CPU device
        return np.from_dlpack(array, device="cpu", copy=True)


def like(array: np.ndarray[Any, Any], other: Array, *, copy: bool | None = None) -> Array:
    """Return a NumPy array in the library of another, on its device."""
    return array_api_compat.array_namespace(other).asarray(array, device=array_api_compat.device(other), copy=copy)


def is_jax_literal(arg: object) -> bool:
    """Tell a subclass of NumPy's or Python's types as which JAX hands on what it knows while it differentiates."""
    return library_name(arg) == "jax" and isinstance(arg, (np.ndarray, int, float, complex))


def library_name(array: Array) -> str:
    """Return the name of the package that an array comes from, as messages say it."""
    return type(array).__module__.partition(".")[0]


def _cure_for(arg: object) -> str:
    if hasattr(type(arg), "materialise"):
        return "a value of quax is taken inside of quax.quaxify"
    return "a kernel's own settings are passed by keyword"


def _why_leave_is_needed(array: Array) -> str:
    if array_api_compat.is_pydata_sparse_array(array):
        return "that would be made dense"
    if array_api_compat.is_numpy_array(array) or array_api_compat.is_jax_array(array):
        return ""  # JAX has a transfer guard of its own
    if array_api_compat.is_torch_array(array) and array.requires_grad:
        return "that requires grad, which a kernel on the host would cut off"
    device = array_api_compat.device(array)
    return "" if _is_cpu(device) else f"on device {device}"


def _is_cpu(device: Any) -> bool:
    name = getattr(device, "type", device)  # torch
    return "cpu" in str(name).lower()


def _full_name(arg: object) -> str:
    """Return an array's type as messages say it: its package, its name, and an article."""
    name = type(arg).__qualname__
    if library_name(arg) != "builtins":
        name = f"{library_name(arg)}.{name}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
