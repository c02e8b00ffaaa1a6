"""The door of the public functions: labelled arguments go round by xarray, all others straight to their library.

In: a call, with labelled arguments or without. Out: what `evaluate` and `explain_call` give, with labels where there
were some. What calls need is imported by the first one, what knows of labels where xarray has been, and what knows of
graphs where ``torch.compile`` builds one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._dim_mapping import sized_by_coords
from ._kernel import Kernel
from ._options import Options
from ._signature import Signature

if TYPE_CHECKING:
    from ._explanation import Explanation

__all__ = ["call_in_graph", "evaluate", "evaluate_any", "explain_any", "is_read_by_torch"]


def is_read_by_torch() -> bool:
    """Tell whether ``torch.compile`` reads this line in place of running it; public functions ask first."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "compiler"):  # which is there once another thread has imported all of it
        return False
    return torch.compiler.is_dynamo_compiling()  # type: ignore[no-any-return]


def call_in_graph(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return what a public function returns, from a node of the graph that ``torch.compile`` builds."""
    from ._lowering._torch._graph import call_in_graph

    return call_in_graph(function, args, keywords)


def evaluate(kernel: Kernel, signature: Signature, args: Sequence[Any], options: Options) -> Any:
    """Return the outputs of `kernel` applied to `args`, none of which has labels."""
    return _evaluation()(kernel, signature, args, options)


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


@cache  # an import statement would cost each call a microsecond
def _evaluation() -> Callable[[Kernel, Signature, Sequence[Any], Options], Any]:
    """Return `evaluate` of the machinery of calls, which the first one imports."""
    from ._evaluate import evaluate

    return evaluate


@cache
def _import_labelled() -> ModuleType:
    """Return the module for what has labels."""
    from . import _labelled

    return _labelled
