"""The paper's three data sets, read from the files as they were published, whole or a random part of the rows.

Each function reads its files twice in a stream, once to count the rows and once to take those that were drawn, so that
memory holds the taken rows only. What comes back is a frame without the target (categories as text, missing values as
missing), the target (0 or 1) and the part of each row ("train", "valid", "test").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from windtunnel.errors import BadInput

Rows = tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.object_]]
Flags = NDArray[np.bool_]
BLOCK = 16 * 2**20
"""Bytes that are parsed at a time."""

CRITEO_NUMBERS = tuple(f"I{at}" for at in range(1, 14))
CRITEO_CATEGORIES = tuple(f"C{at}" for at in range(1, 27))
AVAZU_CATEGORIES = (
    *("C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *(f"C{at}" for at in range(14, 22)),
)
FLIGHT_CATEGORIES = ("Month", "DayofMonth", "DayOfWeek", "UniqueCarrier", "Origin", "Dest")
FLIGHT_NUMBERS = ("CRSDepTime", "Distance")
NEWER_NAMES = {"UniqueCarrier": "Reporting_Airline", "DayofMonth": "DayOfMonth"}
"""Columns that later editions of the on-time files name otherwise."""
LATE = 15
"""Minutes after the scheduled departure from which a flight is late."""


def criteo(path: Path, *, rows: int | None = None, share: float = 1.0, seed: int = 0) -> Rows:
    """Criteo's display advertising challenge: 13 numbers, 26 categories, clicked or not.

    The first 90 % of the file are for training, the next 5 % for validation, the last 5 % for the test, as in the
    paper, whatever part of the rows is taken.

    Parameters
    ----------
    path : Path
        ``train.txt`` or a folder that holds it: tab separated without a header; the label, 13 integers, 26 texts; both
        may be missing.
    rows : int, optional
        How many rows to draw, without replacement; all where there are no more.
    share : float
        The share of the rows to draw instead, in (0, 1].
    seed : int
        Of the draw.
    """
    types = dict.fromkeys(("label", *CRITEO_NUMBERS), pa.float64()) | dict.fromkeys(CRITEO_CATEGORIES, pa.string())
    source = Files([_file(path, "train.txt")], types, header=False)
    total = source.count()
    taken = drawn(np.ones(total, dtype=bool), rows, share, seed)
    frame = source.read(taken)
    at = np.flatnonzero(taken) / total
    split = np.where(at < 0.90, "train", np.where(at < 0.95, "valid", "test")).astype(object)
    return frame.drop(columns="label"), frame["label"].to_numpy().astype(np.int64), split


def avazu(path: Path, *, rows: int | None = None, share: float = 1.0, seed: int = 0) -> Rows:
    """Avazu's click-through challenge: 23 categories, clicked or not; rows fall into 90, 5 and 5 % at random.

    The paper counts 23 categories, and has one named "day of week": here ``hour``, YYMMDDHH, gives the hour of the day
    and the day of the week, and with the other 21 columns that makes 23.

    Parameters
    ----------
    path : Path
        ``train.csv`` or a folder that holds it: id, click, hour, C1, banner_pos, ...
    rows, share, seed
        As for ``criteo``; the seed is also that of the parts.
    """
    types = {"click": pa.int64(), "hour": pa.string()} | dict.fromkeys(AVAZU_CATEGORIES, pa.string())
    source = Files([_file(path, "train.csv")], types)
    frame = source.read(drawn(np.ones(source.count(), dtype=bool), rows, share, seed))
    when = pd.to_datetime(frame["hour"], format="%y%m%d%H")
    X = frame.drop(columns=["click", "hour"])
    X.insert(0, "hour_of_day", when.dt.hour.astype("str"))
    X.insert(1, "day_of_week", when.dt.day_of_week.astype("str"))
    chance = np.random.default_rng([seed, 1]).permutation(len(X)) / max(len(X), 1)
    split = np.where(chance < 0.90, "train", np.where(chance < 0.95, "valid", "test")).astype(object)
    return X, frame["click"].to_numpy(), split


def flight(path: Path, *, rows: int | None = None, share: float = 1.0, seed: int = 0) -> Rows:
    """US on-time data: did a flight leave 15 minutes late or more; 2006 and 2007 train, 2008 by halves valid and test.

    The paper names no columns. Its 6 categories have 694 values in all, about what month, day of month, day of week,
    carrier, origin and destination come to, and 20.4 % of its flights are late, which is nearer to departures than to
    arrivals. Its 2 numbers are taken to be the scheduled departure (here in minutes after midnight) and the distance;
    the actual departure, which some benchmarks take, gives part of the target away. Cancelled flights, which never
    left, are dropped.

    Parameters
    ----------
    path : Path
        A folder of CSV files (also .gz or .bz2) with a header, such as 2006.csv, 2007.csv and 2008.csv, or one such
        file. Read are Year, Month, DayofMonth, DayOfWeek, CRSDepTime, UniqueCarrier (Reporting_Airline), DepDelay,
        Origin, Dest and Distance; rows of other years are left out.
    rows, share, seed
        As for ``criteo``.
    """
    types = {"Year": pa.int64(), "DepDelay": pa.float64()}
    types |= dict.fromkeys(FLIGHT_CATEGORIES, pa.string()) | dict.fromkeys(FLIGHT_NUMBERS, pa.float64())
    source = Files(_csv_files(path), types)
    usable = source.flags(
        ("Year", "DepDelay"), lambda part: part["Year"].between(2006, 2008) & part["DepDelay"].notna()
    )
    frame = source.read(drawn(usable, rows, share, seed))
    later = frame["Month"].astype(int) > 6
    split = np.where(frame["Year"] < 2008, "train", np.where(later, "test", "valid")).astype(object)
    X = frame[[*FLIGHT_CATEGORIES, *FLIGHT_NUMBERS]].copy()
    X["CRSDepTime"] = X["CRSDepTime"] // 100 * 60 + X["CRSDepTime"] % 100
    return X, (frame["DepDelay"] >= LATE).to_numpy().astype(np.int64), split


@dataclass(frozen=True)
class Files:
    """Text files with the same columns, read as a stream.

    Attributes
    ----------
    paths : sequence of Path
    types : dict
        The columns to read and their Arrow types.
    header : bool
        Whether the first line of a file names its columns; without, ``types`` does, in order, and they are separated
        by tabs.
    """

    paths: Sequence[Path]
    types: dict[str, Any]
    header: bool = True

    def count(self) -> int:
        """How many rows there are."""
        first = next(iter(self.types))
        return sum(len(part) for part in self._parts([first]))

    def flags(self, columns: Sequence[str], holds: Callable[[pd.DataFrame], pd.Series]) -> Flags:
        """What a condition on some columns says of each row, bool ``[rows]``."""
        found = [holds(part.to_pandas()).to_numpy(dtype=bool) for part in self._parts(columns)]
        return np.concatenate([np.zeros(0, dtype=bool), *found])

    def read(self, taken: Flags) -> pd.DataFrame:
        """The flagged rows."""
        start, found = 0, list[pa.RecordBatch]()
        for part in self._parts(list(self.types)):
            found.append(part.filter(pa.array(taken[start : start + len(part)])))
            start += len(part)
        if not found or not taken.any():
            raise BadInput(
                f"{', '.join(path.name for path in self.paths)}: no row to take; give files with rows in them"
            )
        frame: pd.DataFrame = pa.Table.from_batches(found).to_pandas()
        return frame

    def _parts(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            names = self._names(path)
            found = [names[column] for column in columns]
            options = csv.ConvertOptions(
                include_columns=found,
                column_types={names[column]: self.types[column] for column in columns},
                strings_can_be_null=True,
                null_values=["", "NA"],
            )
            reading = csv.ReadOptions(block_size=BLOCK, column_names=None if self.header else list(self.types))
            parsing = csv.ParseOptions(delimiter="," if self.header else "\t")
            try:
                with csv.open_csv(path, reading, parsing, options) as stream:
                    for part in stream:
                        yield part.rename_columns(list(columns))
            except pa.ArrowInvalid as error:
                raise BadInput(f"{path} cannot be read in its published form: {error}") from error

    def _names(self, path: Path) -> dict[str, str]:
        """How this file names the columns."""
        if not self.header:
            return {name: name for name in self.types}
        there = pd.read_csv(path, nrows=0).columns
        names = {name: name if name in there else NEWER_NAMES.get(name, name) for name in self.types}
        if missing := sorted(name for name, own in names.items() if own not in there):
            raise BadInput(f"{path} has no column {', '.join(missing)}; it has {', '.join(there[:40])}")
        return names


def drawn(usable: Flags, rows: int | None, share: float, seed: int) -> Flags:
    """Flag so many of the usable rows, or a share of them, at random; all where there are no more."""
    if rows is not None and rows < 1:
        raise BadInput(f"rows={rows}; give 1 or more, or None for all")
    if not 0 < share <= 1:
        raise BadInput(f"share={share}; give a share above 0 and up to 1")
    there = int(usable.sum())
    wanted = max(1, round(share * there)) if rows is None else rows
    if wanted >= there:
        return usable
    taken = np.zeros_like(usable)
    chosen = np.random.default_rng(seed).choice(there, wanted, replace=False, shuffle=False)
    taken[np.flatnonzero(usable)[chosen]] = True
    return taken


def _file(path: Path, name: str) -> Path:
    """The file itself, or the one of that name in a folder, as it is or compressed."""
    candidates = [path] if not path.is_dir() else [path / name, path / f"{name}.gz", path / f"{name}.bz2"]
    for one in candidates:
        if one.is_file():
            return one
    raise FileNotFoundError(f"no file {' or '.join(map(str, candidates))}; give {name} or the folder that it is in")


def _csv_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [_file(path, "2006.csv")]
    found = sorted(one for one in path.iterdir() if one.name.lower().endswith((".csv", ".csv.gz", ".csv.bz2")))
    if not found:
        raise FileNotFoundError(
            f"{path} holds no .csv, .csv.gz or .csv.bz2 file; give the on-time files of 2006 to 2008"
        )
    return found
