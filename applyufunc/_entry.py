"""The door of the public functions: labelled arguments go round by xarray, all others straight to their library.

In: a call, with labelled arguments or without. Out: what `evaluate` and `explain_call` give, with labels where there
were some. What knows of labels is imported where xarray has been.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._dim_names import sized_by_coords
from ._evaluate import evaluate
from ._kernel import Kernel
from ._options import Options
from ._signature import Signature

if TYPE_CHECKING:
    from ._explanation import Explanation

__all__ = ["evaluate_any", "explain_any"]


def evaluate_any(
    kernel: Kernel,
    signature: Signature,
    args: Sequence[Any],
    options: Options,
    evaluate_arrays: Callable[[Kernel, Signature, Sequence[Any], Options], Any] = evaluate,
) -> Any:
    """Return the outputs of `kernel` applied to `args`; `evaluate_arrays` gives those of arrays that had labels."""
    options = sized_by_coords(options, signature)
    if sys.modules.get("xarray") is not None:
        labelled = _import_labelled()
        kinds = labelled.find_kinds(args)
        if kinds is not None:
            return labelled.evaluate_labelled(kernel, signature, args, options, kinds, evaluate_arrays)
    return evaluate(kernel, signature, args, options)


def explain_any(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Explanation:
    """Return what `evaluate_any` would do, with the names of dims where there are some."""
    from ._labelled import explain_labelled, find_kinds

    options, kinds = sized_by_coords(options, signature), find_kinds(args)
    if kinds is not None:
        return explain_labelled(kernel, signature, args, options, kinds)
    from ._explain import explain_call

    return explain_call(kernel, signature, args, options)


@cache
def _import_labelled() -> ModuleType:  # once, since an import statement takes longer than to look at the arguments
    from . import _labelled

    return _labelled
