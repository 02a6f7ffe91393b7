"""Data sets as streams of periods: the rows of a folder, cut by their dates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.accuracy.task import Rows

VALIDATION_FRACTION = 0.2
"""Fraction of a period's rows, the last ones, that validate models."""


@dataclass(frozen=True)
class Period:
    """The rows of a stretch of time, in two parts: the last rows validate."""

    train: Rows
    valid: Rows

    @property
    def every(self) -> Rows:
        """Both parts."""
        return concat([self.train, self.valid])


@dataclass(frozen=True)
class Stream:
    """Periods in the order of time; models start on the first ``start`` of them.

    ``kind`` is "binary", "multiclass" or "regression".
    """

    name: str
    kind: str
    start: int
    periods: list[Period]


def concat(parts: list[Rows]) -> Rows:
    """The rows of several parts, one after the other."""
    return Rows(
        pd.concat([part.X for part in parts], ignore_index=True), np.concatenate([np.asarray(part.y) for part in parts])
    )


def _flights(folder: Path) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Months of 2008, each as days 1 to 20 and the rest, which is the stored split."""
    d = pd.read_parquet(folder / "flights2008" / "data.parquet")
    return d, 2 * d.month.astype(int).to_numpy() + (d["__split"] != "train").to_numpy()


def _taxi(folder: Path) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Quarters from 2018 to 2020."""
    d = pd.read_parquet(folder / "taxi_duration" / "data.parquet").sort_values("days", kind="stable")
    return d, (d.days // 91.4).astype(int).to_numpy()


def _football(folder: Path) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Ten years until 1999, then five."""
    d = pd.read_parquet(folder / "football_results" / "data.parquet")
    year = d.year.to_numpy()
    return d, np.where(year < 2000, year // 10 * 10, year // 5 * 5)


def _hotel(folder: Path) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Quarters of arrival from 2015 to 2017."""
    d = pd.read_parquet(folder / "hotel_bookings" / "combined.parquet")
    day = d.ArrivalDateYear.astype(str) + "-" + d.ArrivalDateMonth + "-" + d.ArrivalDateDayOfMonth.astype(str)
    d = d.assign(arrival=pd.to_datetime(day, format="%Y-%B-%d")).sort_values("arrival", kind="stable")
    period = 4 * d.arrival.dt.year.to_numpy() + d.arrival.dt.quarter.to_numpy()
    leaking = ["ReservationStatus", "ReservationStatusDate", "AssignedRoomType", "ArrivalDateYear", "arrival"]
    d = d.drop(columns=leaking).rename(columns={"IsCanceled": "__y"})
    d["Children"] = d.Children.fillna(0)
    texts = d.select_dtypes(exclude="number").columns
    d[texts] = d[texts].astype(object).fillna("NA").astype(str).apply(lambda column: column.str.strip())
    return d, period


STREAMS: dict[str, tuple[Callable[[Path], tuple[pd.DataFrame, NDArray[Any]]], str, int]] = {
    "flights2008": (_flights, "binary", 2),
    "taxi_duration": (_taxi, "regression", 4),
    "football_results": (_football, "multiclass", 5),
    "hotel_bookings": (_hotel, "binary", 2),
}
"""Name -> loader of rows and periods, what is predicted, periods to start on."""


def load(name: str, folder: Path, most_rows: int) -> Stream:
    """Load a stream; of longer periods ``most_rows`` rows are drawn with seed 0, in their order."""
    loader, kind, start = STREAMS[name]
    d, period = loader(folder)
    generator = np.random.default_rng(0)
    periods = []
    for value in np.unique(period):
        rows = np.flatnonzero(period == value)
        if len(rows) > most_rows:
            rows = np.sort(generator.choice(rows, most_rows, replace=False))
        part = d.iloc[rows]
        y = part["__y"].to_numpy().astype(float if kind == "regression" else int)
        X = part.drop(columns=["__y", "__split"], errors="ignore").reset_index(drop=True)
        coded = X.columns[[isinstance(dtype, pd.CategoricalDtype) for dtype in X.dtypes]]
        X[coded] = X[coded].astype(object).fillna("NA").astype(str)
        cut = int(len(X) * (1 - VALIDATION_FRACTION))
        valid = Rows(X.iloc[cut:].reset_index(drop=True), y[cut:])
        periods.append(Period(Rows(X.iloc[:cut], y[:cut]), valid))
    return Stream(name, kind, start, periods)
