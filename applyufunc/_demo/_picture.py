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
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
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
    south_north, west_east = _edges(sea.latitudes, sea.spacing).clip(-90, 90), _edges(sea.longitudes, sea.spacing)
    mesh = axes.pcolormesh(west_east, south_north, np.ma.masked_invalid(slope), **colours)
    at_latitude, at_longitude = np.nonzero(run.p_value < SIGNIFICANT)
    axes.plot(sea.longitudes[at_longitude], sea.latitudes[at_latitude], "k.", markersize=2.5)
    axes.add_patch(_frame(*west_east[pixel[1] :][:2], *south_north[pixel[0] :][:2]))
    aspect = 1 / np.cos(np.deg2rad(np.mean(sea.latitudes)))
    axes.set_aspect(aspect, anchor="W")  # centred, the layout would leave too little room for the labels
    axes.xaxis.set_major_formatter(lambda degrees, _: _longitude(degrees))
    axes.yaxis.set_major_formatter(lambda degrees, _: _latitude(degrees))
    axes.set_title(f"Trend of winter sea temperature; dots: p < {SIGNIFICANT:g}, grey: land")
    figure.colorbar(mesh, ax=axes, label="Theil-Sen slope (°C per decade)", extend="both", panchor=False)


def _colour_limit(slope: NDArray[np.float64]) -> float:
    """Return the slope of the strongest colour; a few pixels go beyond it, so that the others differ in colour."""
    return max(float(np.nanquantile(np.abs(slope), 0.98)), 0.01) if np.isfinite(slope).any() else 1.0


def _edges(centres: NDArray[np.float64], spacing: float) -> NDArray[np.float64]:
    """Return where pixels begin and end, one more than there are pixels; of one pixel too."""
    return np.append(centres, centres[-1] + spacing) - spacing / 2


def _frame(west: float, east: float, south: float, north: float) -> Rectangle:
    """Return a frame around a pixel, with a white rim, or it is lost on dark pixels; at the map's edge it is whole."""
    rim = [withStroke(linewidth=4, foreground="w")]
    corner, width, height = (west, south), east - west, north - south
    return Rectangle(corner, width, height, fill=False, linewidth=1.5, path_effects=rim, clip_on=False, zorder=3)


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
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.15 * (high - low))  # room for the legend
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def _longitude(degrees: float) -> str:
    """Return degrees east, which run beyond 180, as on a map."""
    if degrees in {0, 180}:
        return f"{degrees:g}°"
    return f"{degrees:g}°E" if degrees < 180 else f"{360 - degrees:g}°W"


def _latitude(degrees: float) -> str:
    return f"{abs(degrees):g}°{'' if degrees == 0 else 'N' if degrees > 0 else 'S'}"
