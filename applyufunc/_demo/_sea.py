"""The data of the main job: sea-surface temperatures of the Pacific, out of the file to arrays.

Source: the file `sst_ndjfm_anom.nc`, which the package `eofs` of A. Dawson ships (doi:10.5334/jors.122). Its examples
describe it as "November-March averages of SST anomaly in the central and northern Pacific". Only the file is read; the
code of `eofs`, which is under GPL-3.0, is not imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.io import netcdf_file

__all__ = ["Sea", "read_sea"]

FILE: Final = "examples/example_data/sst_ndjfm_anom.nc"


@dataclass(frozen=True, slots=True, eq=False)
class Sea:
    """Winter means of temperature anomalies, over a grid."""

    source: str
    years: NDArray[np.float64]  # (time,): middle of each winter, in years AD
    latitudes: NDArray[np.float64]  # (lat,): centres of pixels, degrees north
    longitudes: NDArray[np.float64]  # (lon,): centres of pixels, degrees east, beyond 180 in the eastern Pacific
    spacing: float  # degrees between the centres of neighbouring pixels, in latitude and in longitude
    anomalies: NDArray[np.float64]  # (time, lat, lon): °C; NaN over land


def read_sea(stride: int = 1) -> Sea:
    """Read every `stride`-th pixel, in latitude and in longitude."""
    with netcdf_file(_path(), mmap=False) as file:
        days, latitudes, longitudes, anomalies = (
            np.array(file.variables[name][:], dtype=np.float64) for name in ("time", "latitude", "longitude", "sst")
        )
        missing = file.variables["sst"].missing_value
    return Sea(
        source=f"eofs {version('eofs')} from PyPI, eofs/{FILE}",
        years=1800 + days / 365.2425,  # "days since 1800-1-1 00:00:00"
        latitudes=latitudes[::stride],
        longitudes=longitudes[::stride],
        spacing=stride * float(latitudes[1] - latitudes[0]),  # 5 degrees, in longitude too
        anomalies=np.where(anomalies == missing, np.nan, anomalies)[:, ::stride, ::stride],
    )


def _path() -> Path:
    spec = find_spec("eofs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the data come with the package eofs: pip install eofs", name="eofs")
    return Path(spec.origin).parent / FILE
