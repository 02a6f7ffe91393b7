"""Rows most of whose numbers are 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def dense_slices(rows: sparse.csr_array, size: int) -> Iterator[Tensor]:
    """The rows as dense numbers, ``size`` at a time, each in the memory of the one before."""
    slices = [rows[start : start + size] for start in range(0, max(rows.shape[0], 1), size)]
    # Column by column: trees read the same few columns of all rows.
    dense = np.zeros((min(size, rows.shape[0]), rows.shape[1]), rows.dtype, order="F")
    for part in slices:
        places = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr)), part.indices
        dense[places] = part.data
        yield torch.from_numpy(dense[: part.shape[0]])
        dense[places] = 0  # to clear all of it takes longer than to predict
