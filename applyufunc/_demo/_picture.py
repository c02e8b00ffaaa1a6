"""The picture of the main job: a map of the trends, and the series of the pixel where a trend is clearest.

Drawn without a display; only here is matplotlib imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ._report import SIGNIFICANT
from ._runs import Run
from ._sea import Sea

__all__ = ["draw"]

LAND: Final = "0.82"
LINE: Final = "#b2182b"  # the dark red of the map's colours
DECADE: Final = 10  # years


def draw(sea: Sea, run: Run, path: Path) -> None:
    """Write the picture to `path`; its suffix says the format."""
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"}):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, width_ratios=(1.55, 1))
        pixel = _clearest(run)
        _draw_map(figure, left, sea, run, pixel)
        _draw_series(right, sea, run, pixel)
        figure.savefig(path, dpi=120)


def _clearest(run: Run) -> tuple[int, ...]:
    """Return (lat, lon) of the pixel with the smallest p-value: the steepest slope is that of a break in the data."""
    p_value = np.nan_to_num(run.p_value, nan=np.inf)
    return tuple(map(int, np.unravel_index(p_value.argmin(), p_value.shape)))


def _draw_map(figure: Figure, axes: Any, sea: Sea, run: Run, pixel: tuple[int, ...]) -> None:
    slope = DECADE * run.slope
    limit = _colour_limit(slope)
    axes.set_facecolor(LAND)
    colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}  # told apart with any colour vision
    mesh = axes.pcolormesh(sea.longitudes, sea.latitudes, np.ma.masked_invalid(slope), shading="nearest", **colours)
    at_latitude, at_longitude = np.nonzero(run.p_value < SIGNIFICANT)
    axes.plot(sea.longitudes[at_longitude], sea.latitudes[at_latitude], "k.", markersize=2.5)
    framed = (sea.longitudes[pixel[1]], sea.latitudes[pixel[0]])
    for colour, width in (("w", 4), ("k", 1.5)):  # a white rim, or the frame is lost on dark pixels
        axes.plot(*framed, "s", color=colour, markersize=13, fillstyle="none", markeredgewidth=width)
    axes.set_aspect(1 / np.cos(np.deg2rad(np.mean(sea.latitudes))))
    axes.xaxis.set_major_formatter(lambda degrees, _: _longitude(degrees))
    axes.yaxis.set_major_formatter(lambda degrees, _: _latitude(degrees))
    axes.set_title(f"Trend of winter sea temperature; dots: p < {SIGNIFICANT:g}, grey: land")
    figure.colorbar(mesh, ax=axes, label="Theil-Sen slope (°C per decade)", extend="both")


def _colour_limit(slope: NDArray[np.float64]) -> float:
    """Return the slope of the strongest colour; a few pixels go beyond it, so that the others differ in colour."""
    return max(float(np.nanquantile(np.abs(slope), 0.98)), 0.01) if np.isfinite(slope).any() else 1.0


def _draw_series(axes: Any, sea: Sea, run: Run, pixel: tuple[int, ...]) -> None:
    series = sea.anomalies[:, pixel[0], pixel[1]]
    slope = float(run.slope[pixel])
    line = np.median(series) + slope * (sea.years - np.median(sea.years))  # through the medians, as theilslopes puts it
    axes.axhline(0, color="0.7", linewidth=0.8)
    axes.plot(sea.years, series, "o-", color="0.25", markersize=3, linewidth=0.8, label="winter mean")
    label = f"{DECADE * slope:+.2f} °C per decade, p = {run.p_value[pixel]:.1g}"
    axes.plot(sea.years, line, color=LINE, linewidth=2, label=label)
    axes.set_title(f"The framed pixel: {_latitude(sea.latitudes[pixel[0]])}, {_longitude(sea.longitudes[pixel[1]])}")
    axes.set_xlabel("winter (January)")
    axes.set_ylabel("anomaly (°C)")
    axes.margins(x=0.02, y=0.2)
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def _longitude(degrees: float) -> str:
    """Return degrees east, which run beyond 180, as on a map."""
    if degrees in {0, 180}:
        return f"{degrees:g}°"
    return f"{degrees:g}°E" if degrees < 180 else f"{360 - degrees:g}°W"


def _latitude(degrees: float) -> str:
    return f"{abs(degrees):g}°{'' if degrees == 0 else 'N' if degrees > 0 else 'S'}"
