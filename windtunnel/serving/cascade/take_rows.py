"""``take_rows``: some rows of any kind of raw rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Rows
from windtunnel.encode.rows import as_frame, as_series, dimensions


def take_rows(rows: Rows, positions: list[int] | NDArray[np.intp]) -> Rows:
    """The rows at some positions, of a kind that is read in the same way: with names, or without."""
    if hasattr(rows, "iloc"):
        return rows.iloc[positions]
    if isinstance(rows, np.ndarray | Tensor):
        return rows[positions]
    if hasattr(rows, "tocsr"):  # some sparse formats cannot be indexed
        return rows.tocsr()[positions]
    if isinstance(rows, Mapping) and all(dimensions(column) == 1 for column in rows.values()):
        return {name: _values_at(column, positions) for name, column in rows.items()}
    if isinstance(rows, list | tuple):
        return [rows[position] for position in positions]
    return as_frame(rows).iloc[positions]


def _values_at(column: Any, positions: list[int] | NDArray[np.intp]) -> Any:
    if type(column) is list:
        return [column[position] for position in positions]
    return as_series(column).iloc[positions]
