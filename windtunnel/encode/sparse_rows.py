"""Rows most of whose numbers are 0."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class SparseRows(NamedTuple):
    """The numbers of sparse rows, row by row."""

    values: Tensor  # [n], floats
    columns: Tensor  # int64 [n], the column of each
    starts: Tensor  # int64 [B + 1]: row b has the numbers from ``starts[b]`` up to ``starts[b + 1]``

    def times(self, weight: Tensor) -> Tensor:
        """X W^T of weights ``[K, width]``: ``[B, K]``."""
        return functional.embedding_bag(
            self.columns, weight.t(), self.starts, mode="sum", per_sample_weights=self.values, include_last_offset=True
        )

    def sums(self, values: Tensor) -> Tensor:
        """The sum per row of values ``[n]``: ``[B]``."""
        rows = torch.repeat_interleave(self.starts.diff())
        return values.new_zeros(len(self.starts) - 1).index_add(0, rows, values)
