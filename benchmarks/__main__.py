"""The command line of the benchmarks, `python -m benchmarks`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ._machine import limit_threads

__all__ = ["main"]

DOCS: Final = Path(__file__).parents[1] / "docs"

# Written out, since the module that has them imports NumPy, for which `limit_threads` comes too late then.
FAMILY_NAMES: Final = "dask_graphs, dask_chunks, dask_reductions, jax_calls, torch_calls"

DESCRIPTION: Final = """\
What applyufunc costs beside its peers: seconds, tasks, memory, the largest block. Every run has a process of its own,
and results are compared. Without names, all cases run, and the figures are written into the documentation.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks by the command line; return 0 if all bars are reached, 1 if not."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    limit_threads()
    from ._page import PICTURES, all_bars, table, write_page
    from ._runs import FAMILIES, run_all, select

    try:
        cases = select(arguments.names)
    except ValueError as error:
        parser.error(str(error))
    n_rounds = arguments.rounds or (1 if arguments.quick else 3)
    results = run_all(cases, n_rounds, quick=arguments.quick, say=_say)
    print("\n\n".join(table(name, results) for name in FAMILIES if name in dict(cases)))
    if arguments.quick:
        return 0
    if not arguments.names:
        from ._picture import draw

        write_page(DOCS / "explanation/benchmarks.md", results, n_rounds)
        for library, picture in PICTURES.items():
            draw(DOCS / picture, library, results)
    missed = [bar for bar, ways in all_bars(results) if not bar.is_reached(ways)]
    print("\n".join(f"missed: {bar.case}, {bar.text}" for bar in missed) or "All bars are reached.")
    return bool(missed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"cases to run, or families ({FAMILY_NAMES}); by default all"
    )
    parser.add_argument("--quick", action="store_true", help="small arrays, to see that all runs; writes nothing")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each way runs; by default 3, or 1 if quick")
    return parser


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
