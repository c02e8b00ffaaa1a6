"""The main job, `python -m applyufunc`: reads the command line, and runs what `_demo` holds.

Nothing heavy is imported before the arguments are known to be good.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from . import __version__

__all__ = ["main"]

BACKENDS: Final = ("numpy", "dask", "jax")
SUFFIXES: Final = (".pdf", ".png", ".svg")

DESCRIPTION: Final = """\
Robust trends of the sea-surface temperature of the Pacific, 50 winters of it, for every pixel.

One function of SciPy's, which neither Dask nor JAX has, and one signature, "(t),(t)->(),()",
are applied to a NumPy array, to a Dask array with time in several chunks, and to a JAX array
under jit(vmap(vmap(...))). A table says how often the function ran, on which shapes and how
long it took; the results are compared, and drawn as a map.
"""

EPILOG: Final = """\
examples:
  applyufunc                                   everything
  applyufunc --backends dask --chunks 25 6 10  Dask against NumPy, in other chunks
  applyufunc --stride 3 --no-picture           a ninth of the pixels, no picture

exit status: 0 all agree; 1 they do not, or data or picture are missing; 2 bad arguments
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job by the command line, and return the exit status."""
    arguments = _parser().parse_args(argv)
    missing = [name for name in ("eofs", "scipy") if find_spec(name) is None]
    if missing:
        print(f"applyufunc: error: it needs {' and '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 1
    from ._demo._job import Job, run_job

    picture = None if arguments.no_picture else arguments.picture
    backends = tuple(name for name in BACKENDS if name == "numpy" or name in arguments.backends)
    try:
        status = run_job(Job(backends, tuple(arguments.chunks), arguments.stride, picture))
        sys.stdout.flush()
    except BrokenPipeError:
        return _stop_printing()
    return status


def _stop_printing() -> int:
    """Leave in silence when the reader has gone, as `head` does, with the status of a command that SIGPIPE ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails to flush at the end
    return 128 + 13


class _Parser(argparse.ArgumentParser):
    """Answers bad arguments with one line, not with the usage as well."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="applyufunc",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        default=BACKENDS,
        metavar="NAME",
        help="what to run on, of: %(choices)s; by default all; NumPy always runs, for comparison",
    )
    parser.add_argument(
        "--chunks",
        nargs=3,
        type=_positive,
        default=(10, 9, 15),
        metavar=("TIME", "LAT", "LON"),
        help="Dask: largest chunks of the input, in winters and pixels; by default 10 9 15",
    )
    parser.add_argument(
        "--stride", type=_positive, default=1, metavar="N", help="take every Nth latitude and longitude; by default 1"
    )
    parser.add_argument(
        "--picture",
        type=_picture_path,
        default=Path("applyufunc-trend.png"),
        metavar="PATH",
        help="where to write the picture, as .png, .svg or .pdf; by default %(default)s",
    )
    parser.add_argument("--no-picture", action="store_true", help="write no picture")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def _picture_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"expected a name that ends in {', '.join(SUFFIXES)}, got {text!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r} for the picture")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
