"""Hashes of rows, by which equal rows are found."""

from __future__ import annotations

from typing import Any

import pandas as pd
from numpy.typing import NDArray


def hash_rows(*columns: NDArray[Any]) -> NDArray[Any]:
    """Hash of each row of the columns ``[N]``, uint64 ``[N]``."""
    return pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False).to_numpy()
