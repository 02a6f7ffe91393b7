"""How many validation rows are training rows too, on which a gain says nothing about new rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.row_hashes import hash_rows

LEAST_EXCESS = 0.1
"""The fraction of validation rows that equal a training row must exceed the fraction of training rows that equal
another one by this much."""


def shared_fraction(train: EncodedRows, valid: EncodedRows) -> float | None:
    """The fraction of validation rows that are training rows, in [0, 1]; None for rows that are not encoded in memory.

    Rows of weight 0 do not count. Rows are equal if all columns and the target are, in tables of few categories by
    chance: if p of the training rows equal another one, so do p of the validation rows that are no training rows. With
    q of the validation rows equal to a training row, the fraction is (q - p) / (1 - p); 0 unless q exceeds p by more
    than 0.1, as then it would be noise, but 1 if the rows are the same.
    """
    if isinstance(train, LazilyEncodedRows) or isinstance(valid, LazilyEncodedRows):
        return None
    if train.target is None or valid.target is None or not len(valid.target):
        return None
    train_hashes, valid_hashes = pd.Series(_hashes(train, train.target)), pd.Series(_hashes(valid, valid.target))
    if np.array_equal(np.sort(train_hashes), np.sort(valid_hashes)):
        return 1.0
    equal, by_chance = float(valid_hashes.isin(train_hashes).mean()), float(train_hashes.duplicated(keep=False).mean())
    return (equal - by_chance) / (1 - by_chance) if equal - by_chance > LEAST_EXCESS else 0.0


def _hashes(rows: EncodedRows, target: Tensor) -> NDArray[np.uint64]:
    """A hash of each row of a weight above 0 and its target."""
    blocks = (rows.rows.numbers, rows.rows.ids, target.reshape(len(target), -1))
    # Types may differ between training and validation rows; 0.0 and -0.0 are equal.
    hashes = hash_rows(*(column.double().numpy(force=True) + 0.0 for block in blocks for column in block.t()))
    return hashes if rows.weight is None else hashes[rows.weight.numpy(force=True) > 0]
