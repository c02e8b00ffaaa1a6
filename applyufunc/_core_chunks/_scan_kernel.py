"""A kernel run as a `Scan`: `ScanKernel` runs the start and the steps, each with all checks of a kernel.

In: pieces of all arguments, core dims last, and the carry. Out: outputs and carry. Called as a function it runs one
step on the whole, and so takes the kernel's place where a block holds whole core dims. Knows no chunks, graphs or
traces.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device

from .._arguments import is_constant
from .._blocks import BlockRunner, add_note, input_shapes
from .._casting import numpy_dtype
from .._errors import OutputDTypeError, OutputShapeError
from .._identity import IdentityMap
from .._kernel import Kernel, function_name, parameters_of
from .._option_values import OutputSizes, SizeRule
from .._options import Options
from .._plan import core_sizes, fix_output_sizes, make_plan
from .._signature import CoreDim, Signature
from .._typing import Array, KernelFunction, Keywords
from ._scan import Scan

__all__ = ["Carry", "ScanKernel", "scanned"]

_SizeRules: TypeAlias = tuple[tuple[str, SizeRule], ...]
_REMEMBERED: Final = 64  # kernels of one scan

Carry: TypeAlias = tuple[Array, ...]
"""What a piece leaves to the next."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ScanKernel:
    """A scan as one function on whole blocks, and its parts."""

    step: Kernel
    initial: Kernel | Carry
    carry: tuple[tuple[CoreDim, ...], ...]
    dim: str
    signature: Signature  # of the kernel
    size_rules: _SizeRules  # as the option output_sizes has them

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return the outputs for whole arguments."""
        if self.piece_size(args) == 0:
            return self._without_elements(args, keywords)
        sizes = fix_output_sizes(
            self.size_rules, core_sizes(self.signature, input_shapes(args, self.signature)), keywords
        )
        outputs, _ = self.advance(args, self.start(args, keywords), keywords, sizes)
        return outputs if len(outputs) > 1 or self.signature.always_tuple else outputs[0]

    def start(self, args: Sequence[Any], keywords: Keywords, location: Sequence[slice] = ()) -> Carry:
        """Return the carry before the first piece, of which `args` are the arguments."""
        constants, arrays = _split(args)
        if not isinstance(self.initial, Kernel):
            return tuple(_like(value, arrays) for value in self.initial)
        parameters = parameters_of(self.initial.func, self.signature.nin)
        taken = {name: v for name, v in keywords.items() if parameters.open_ended or name in parameters.names}
        signature = Signature(self.signature.inputs, self.carry)
        runner = BlockRunner(self.initial, signature, constants, taken, self._carry_sizes, dtypes=None)
        return runner(*arrays, location=location)

    def advance(
        self,
        args: Sequence[Any],
        carry: Carry,
        keywords: Keywords,
        output_sizes: OutputSizes,
        dtypes: tuple[np.dtype[Any], ...] | None = None,
        location: Sequence[slice] = (),
    ) -> tuple[tuple[Array, ...], Carry]:
        """Return the outputs for a piece with elements, and the carry that it leaves."""
        constants, arrays = _split(args)
        kept = () if dtypes is None else tuple(numpy_dtype(array.dtype) for array in carry)
        signature = Signature((*self.signature.inputs, *self.carry), (*self.signature.outputs, *self.carry))
        all_dtypes = None if dtypes is None else (*dtypes, *kept)
        runner = BlockRunner(
            _detaching(self.step, self.signature.nout), signature, constants, keywords, output_sizes, all_dtypes
        )
        try:
            returned = runner(*arrays, *carry, location=location)
        except (OutputShapeError, OutputDTypeError) as error:
            add_note(error, _step_text(self.signature.nout, carry))
            raise
        return returned[: self.signature.nout], returned[self.signature.nout :]

    def piece_size(self, args: Sequence[Any]) -> int | None:
        """Return the size of a piece along the dim."""
        return core_sizes(self.signature, input_shapes(args, self.signature))[self.dim]

    def empty_outputs(
        self, args: Sequence[Any], output_sizes: OutputSizes, dtypes: Sequence[np.dtype[Any]]
    ) -> tuple[Array, ...]:
        """Return NumPy arrays for a piece without elements."""
        plan = make_plan(self.signature, input_shapes(args, self.signature), output_sizes)
        shapes = (tuple(size or 0 for size in output.shape) for output in plan.outputs)
        return tuple(np.empty(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))

    @property
    def _carry_sizes(self) -> OutputSizes:
        """The sizes of dims that only the carry has: whatever it starts with."""
        of_inputs = {dim.label for dims in self.signature.inputs for dim in dims}
        new = dict.fromkeys(dim.label for dims in self.carry for dim in dims if dim.size is None)
        return tuple((label, None) for label in new if label not in of_inputs)

    def _without_elements(self, args: Sequence[Any], keywords: Keywords) -> Any:
        """Return the outputs where there is nothing to go along: what a made-up element gives, without it."""
        made = [
            arg if is_constant(arg) else _with_size_one(arg, dims, self.dim)
            for arg, dims in zip(args, self.signature.inputs, strict=True)
        ]
        returned = self(*made, **keywords)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        pairs = zip(outputs, self.signature.output_labels, strict=True)
        cut = tuple(output[(..., slice(0), *_whole(labels, self.dim))] for output, labels in pairs)
        return cut if isinstance(returned, tuple) else cut[0]


def scanned(kernel: Kernel, signature: Signature, options: Options) -> Kernel:
    """Return the kernel that runs the scan of `options` on whole blocks."""
    scan = options.core_chunks
    assert isinstance(scan, Scan)  # of which this is called
    func = _remembered(kernel, signature, scan, options.output_sizes)
    return dataclasses.replace(
        kernel, func=func, vectorize=False, writable=False, thread_safe=True, token=None, home=None
    )


def _remembered(kernel: Kernel, signature: Signature, scan: Scan, size_rules: _SizeRules) -> ScanKernel:
    """Return the same object for the same call, by which JAX, and the memory of dtypes, know it again."""
    memory = _memories.setdefault(scan, {})
    # By identity: the scan kernel that is kept holds these objects.
    func = None if scan.step is not None else id(kernel.func)
    inside = kernel.thread_safe, kernel.threads, kernel.compute_dtype, kernel.contiguous
    how = (kernel.name, kernel.vectorize, kernel.arrays, kernel.writable, inside, kernel.token, kernel.home)
    key = func, how, signature, tuple((label, id(rule) if callable(rule) else repr(rule)) for label, rule in size_rules)
    found = memory.get(key)
    if found is None:
        if len(memory) >= _REMEMBERED:
            memory.clear()
        found = memory.setdefault(key, _scan_kernel(kernel, signature, scan, size_rules))
    return found


def _scan_kernel(kernel: Kernel, signature: Signature, scan: Scan, size_rules: _SizeRules) -> ScanKernel:
    dim = scan.find_dim(signature, size_rules)
    step = kernel if scan.step is None else _part(kernel, scan.step, function_name(scan.step))
    initial = _part(kernel, scan.initial, f"{step.name}: initial") if callable(scan.initial) else scan.initial
    return ScanKernel(step, initial, scan.carry_dims, dim, signature, size_rules)


def _part(kernel: Kernel, func: Any, name: str) -> Kernel:
    """Return another function as a kernel that is run as this one is."""
    return dataclasses.replace(kernel, func=func, name=name, token=None, home=None)


def _step_text(nout: int, carry: Carry) -> str:
    """Say what a step has to return."""
    dtypes = ", ".join(str(array.dtype) for array in carry)
    return (
        f"a step of a Scan returns {nout + len(carry)}, the last {len(carry)} of them the carry, in the dtype that its "
        f"initial has ({dtypes}): initial=0 is int64, initial=0.0 float64"
    )


def _detaching(step: Kernel, nout: int) -> Kernel:
    """Return a step whose carry is no view of an output or of an argument, each of which it would keep."""
    if step.vectorize or step.gets_copies:  # items are copied, and Numba's functions fill arrays of their own
        return step
    return dataclasses.replace(step, func=_detached(step.func, nout))


def _detached(func: KernelFunction, nout: int) -> KernelFunction:
    @functools.wraps(func)
    def detached(*args: Any, **keywords: Any) -> Any:
        returned = func(*args, **keywords)
        if not isinstance(returned, tuple):
            return returned
        return (*returned[:nout], *(value.copy() if _is_view(value) else value for value in returned[nout:]))

    return detached


def _is_view(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.base is not None


def _split(args: Sequence[Any]) -> tuple[tuple[tuple[int, Any], ...], list[Array]]:
    """Return the constants with their positions, and the arrays."""
    constants = tuple((position, arg) for position, arg in enumerate(args) if is_constant(arg))
    return constants, [arg for arg in args if not is_constant(arg)]


def _like(value: np.ndarray[Any, Any], arrays: Sequence[Array]) -> Array:
    """Return a NumPy array in the library, and on the device, of `arrays`."""
    if all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return value
    return array_namespace(*arrays).asarray(value, device=device(arrays[0]))


def _with_size_one(array: Array, dims: Sequence[CoreDim], label: str) -> Array:
    """Return an array of ones whose size along the dim is 1."""
    n_loop = array.ndim - len(dims)
    pairs = zip(dims, array.shape[n_loop:], strict=True)
    shape = (*array.shape[:n_loop], *(1 if dim.label == label else size for dim, size in pairs))
    if isinstance(array, np.ndarray):
        return np.ones_like(array, shape=shape)
    return array_namespace(array).ones(shape, dtype=array.dtype, device=device(array))


def _whole(labels: Sequence[str], label: str) -> tuple[slice, ...]:
    """Return a full slice for each dim behind one."""
    return (slice(None),) * (len(labels) - labels.index(label) - 1)


_memories: IdentityMap[dict[tuple[Any, ...], ScanKernel]] = IdentityMap()
