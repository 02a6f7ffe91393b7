"""How many validation rows are training rows too, on which a gain says nothing about new rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows


def shared_fraction(train: EncodedRows, valid: EncodedRows) -> float | None:
    """The fraction of validation rows that are training rows, in [0, 1]; None for rows that are not encoded in memory.

    Rows are equal if all columns and the target are. It is the fraction of validation rows that equal a training row,
    less the fraction of training rows that equal another one: in tables of few categories rows are equal by chance.
    """
    if isinstance(train, LazilyEncodedRows) or isinstance(valid, LazilyEncodedRows):
        return None
    if train.target is None or valid.target is None or not len(valid.target):
        return None
    of_train, of_valid = pd.Series(_hashes(train, train.target)), pd.Series(_hashes(valid, valid.target))
    return max(float(of_valid.isin(of_train).mean() - of_train.duplicated(keep=False).mean()), 0.0)


def _hashes(rows: EncodedRows, target: Tensor) -> NDArray[np.uint64]:
    """A hash of each row and its target."""
    total = np.zeros(len(target), np.uint64)
    for block in (rows.rows.numbers, rows.rows.ids, target.reshape(len(target), -1)):
        for column in block.t():
            # 0.0 and -0.0 are equal; 31 keeps the order of the columns.
            total = total * np.uint64(31) + pd.util.hash_array(column.double().numpy(force=True) + 0.0)
    return total
