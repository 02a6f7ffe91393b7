"""Rows of a sparse matrix as dense numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor


def dense_rows(rows: sparse.csr_array, unstored: float) -> Tensor:
    """The rows as dense numbers, row by row; ``unstored`` is the number of entries that are not stored."""
    dense = np.full(rows.shape, unstored, rows.dtype)
    dense[_stored_places(rows)] = rows.data
    return torch.from_numpy(dense)


def dense_slices(rows: sparse.csr_array, size: int, unstored: float) -> Iterator[Tensor]:
    """The rows as dense numbers, ``size`` at a time, each in the memory of the one before.

    ``unstored`` is the number of entries that are not stored.
    """
    parts = [rows[start : start + size] for start in range(0, max(rows.shape[0], 1), size)]
    # Column by column: trees read the same few columns of all rows.
    dense = np.full((min(size, rows.shape[0]), rows.shape[1]), unstored, rows.dtype, order="F")
    for part in parts:
        places = _stored_places(part)
        dense[places] = part.data
        yield torch.from_numpy(dense[: part.shape[0]])
        dense[places] = unstored  # to clear all of it takes longer than to predict


def _stored_places(rows: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices
