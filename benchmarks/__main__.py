"""The command line of the benchmarks, `python -m benchmarks`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ._families import FAMILIES, GROWTH, missing
from ._machine import limit_threads

if TYPE_CHECKING:
    from ._growth import Grown
    from ._runs import Results

__all__ = ["main"]

DOCS: Final = Path(__file__).parents[1] / "docs"

DESCRIPTION: Final = """\
What applyufunc costs beside its peers: seconds, tasks, memory, the largest block. Every run has a process of its own,
and results are compared. Without names, all cases run, and the figures are written into the documentation.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks by the command line; return 0 if all bars are reached, 1 if not."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    limit_threads()
    from ._runs import grow_all, run_all, select

    try:
        cases = select(arguments.names)
    except ValueError as error:
        parser.error(str(error))
    n_rounds = arguments.rounds or (1 if arguments.quick else 3)
    wanted = [name for name in (*FAMILIES, GROWTH) if not arguments.names or name in arguments.names]
    for name in filter(missing, wanted):
        _say(f"skipped: {name}, which needs {missing(name)}")
    results = run_all(cases, n_rounds, quick=arguments.quick, say=_say)
    grows = GROWTH in wanted and not missing(GROWTH)
    grown = grow_all(quick=arguments.quick, say=_say) if grows else {}
    print("\n\n".join(_tables(results, grown)))
    if arguments.quick:
        return 0
    if not arguments.names:
        _write(DOCS, results, grown, n_rounds)
    return _judge(results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION)
    known = ", ".join(FAMILIES)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"cases to run, families ({known}), or {GROWTH}; by default all"
    )
    parser.add_argument("--quick", action="store_true", help="small arrays, to see that all runs; writes nothing")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each way runs; by default 3, or 1 if quick")
    return parser


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _tables(results: Results, grown: Grown) -> list[str]:
    from ._page import growth_table, table

    names = dict.fromkeys(name for name, _ in results)
    return [*(table(name, results) for name in names), *([growth_table(grown)] if grown else [])]


def _write(docs: Path, results: Results, grown: Grown, n_rounds: int) -> None:
    """Write the page, and draw its pictures."""
    from ._page import GROWTH_PICTURE, pictures, write_page
    from ._picture import draw, draw_growth

    write_page(docs / "explanation/benchmarks.md", results, grown, n_rounds)
    for library, picture in pictures(results).items():
        draw(docs / picture, library, results)
    if grown:
        draw_growth(docs / GROWTH_PICTURE, grown)


def _judge(results: Results) -> bool:
    """Print the bars; return whether any is missed."""
    from ._page import all_bars, bars_table

    print(f"\n{bars_table(results)}\n")
    missed = [bar for bar, ways in all_bars(results) if not bar.is_reached(ways)]
    print("\n".join(f"missed: {bar.case}, {bar.text}" for bar in missed) or "All bars are reached.")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
