"""``take_rows``: some rows of any kind of raw rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Rows
from windtunnel.encode.rows import as_frame


def take_rows(rows: Rows, positions: list[int] | NDArray[np.intp]) -> Rows:
    """The rows at some positions, of the same kind where that is quick, else as a DataFrame."""
    if hasattr(rows, "iloc"):
        return rows.iloc[positions]
    if isinstance(rows, np.ndarray) or hasattr(rows, "tocsr"):
        return rows[positions]
    if isinstance(rows, Mapping) and all(type(column) is list for column in rows.values()):
        return {name: [column[position] for position in positions] for name, column in rows.items()}
    if isinstance(rows, list) and not isinstance(rows[0], list | tuple):
        return [rows[position] for position in positions]
    return as_frame(rows).iloc[positions]
