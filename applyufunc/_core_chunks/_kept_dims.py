"""Core dims that outputs keep, so that a piece of the inputs makes a piece of the outputs.

In: a signature, and the label of a dim or none. Out: the label, or a refusal that names what does not fit.
"""

from __future__ import annotations

from typing import Final

from .._errors import SignatureError
from .._option_values import SizeRule
from .._signature import Signature

__all__ = ["check_kept_dim", "only_kept_dim"]


def only_kept_dim(signature: Signature, rule: str) -> str:
    """Return the one dim that an input and every output have; `rule` says, in messages, who asks."""
    of_inputs = dict.fromkeys(label for dims in signature.input_labels for label in dims)
    kept = [label for label in of_inputs if all(label in dims for dims in signature.output_labels)]
    if len(kept) != 1:
        found = f"{len(kept)} of {str(signature)!r} ({', '.join(kept)})" if kept else f"none of {str(signature)!r}"
        cure = f": say which, as in {_NAMING[rule].format(kept[-1])}" if kept else ""
        raise SignatureError(f"{rule} goes along a core dimension that an input and every output have, {found}{cure}")
    return kept[0]


def check_kept_dim(label: str, signature: Signature, output_sizes: tuple[tuple[str, SizeRule], ...], rule: str) -> None:
    """Refuse a dim that is not cut alike in the inputs and outputs."""
    problem = _problem(label, signature, output_sizes)
    if problem:
        raise SignatureError(f"{rule} goes along core dimension {label!r}, {problem}")


_NAMING: Final = {"Scan": "Scan(..., dim={!r})", "Overlap": "Overlap({{{!r}: 1}})"}


def _problem(label: str, signature: Signature, output_sizes: tuple[tuple[str, SizeRule], ...]) -> str:
    inputs, outputs, text = signature.input_labels, signature.output_labels, repr(str(signature))
    if all(label not in dims for dims in inputs):
        return f"which no input of {text} has"
    if any(dim.label == label and dim.size is not None for dims in signature.inputs for dim in dims):
        return f"whose size {text} fixes, so that no piece of it fits"
    if any(size_label == label for size_label, _ in output_sizes):
        return "which output_sizes gives another size in the outputs"
    for kind, operands in (("input", inputs), ("output", outputs)):
        for position, dims in enumerate(operands):
            if dims.count(label) > 1:
                return f"which {kind} {position} of {text} has twice"
    lacking = [position for position, dims in enumerate(outputs) if label not in dims]
    return f"which output {lacking[0]} of {text} does not have" if lacking else ""
