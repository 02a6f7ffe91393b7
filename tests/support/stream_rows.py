"""Parquet files of a few numbered rows, and a translation that reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel

PATTERN = "*.parquet"
ROWS = 350
NUMBERS, TEXTS = ["row", "x"], ["c", "d"]


def table(count: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Columns: row (0, 1, ...), x, c and d (categories), click (0 or 1), weight (row + 1).

    A click follows from x, and from c and d together.
    """
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"row": np.arange(float(count)), "x": random.normal(size=count)})
    frame["c"] = [f"c{code}" for code in random.integers(0, 6, count)]
    frame["d"] = [f"d{code}" for code in random.integers(0, 3, count)]
    crossed = np.where((frame["c"].str[1:].astype(int) + frame["d"].str[1:].astype(int)) % 2 == 0, 1.5, -1.5)
    frame["click"] = (frame["x"] + crossed + random.normal(size=count) > 0).astype(int)
    frame["weight"] = frame["row"] + 1
    return frame


def write(folder: Path, frame: pd.DataFrame, files: int = 3, row_group: int = 40) -> None:
    """The rows in order, in files of as many row groups as it takes; the last of each is smaller."""
    for number, part in enumerate(np.array_split(np.arange(len(frame)), files)):
        arrow = pa.Table.from_pandas(frame.iloc[part])
        pq.write_table(arrow, folder / f"{number}.parquet", row_group_size=row_group)


def pipeline(**encoder: Any) -> Pipeline:
    """One-hot encoded texts and scaled numbers before a logistic regression."""
    frame = table(4000, seed=5)
    encode = OneHotEncoder(**{"handle_unknown": "ignore", **encoder})
    columns = make_column_transformer((encode, TEXTS), (StandardScaler(), NUMBERS))
    return make_pipeline(columns, LogisticRegression()).fit(frame[[*TEXTS, *NUMBERS]], frame["click"])


@cache
def _fitted() -> Pipeline:
    return pipeline()


def click_net() -> Any:
    """A translation that reads the numbers row and x, in this order, and the texts."""
    return windtunnel.translate(_fitted())


def valid_rows(count: int = 301) -> tuple[pd.DataFrame, Any]:
    """Validation rows."""
    frame = table(count, seed=1)
    return frame[[*TEXTS, *NUMBERS]], frame["click"].to_numpy()


def numbers_of(batches: Any) -> list[int]:
    """The numbers of the rows in batches of a ``click_net``."""
    return torch.cat([item[0][0][:, 0] for item in batches]).long().tolist()
