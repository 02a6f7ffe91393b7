"""Encoded rows: a block of numbers and a block of category ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Encoded rows: ``numbers`` float32 or float64 [B, n] (NaN where missing) and ``ids`` int64 [B, m]."""

    numbers: Tensor
    ids: Tensor

    @classmethod
    def of_numbers(cls, numbers: Tensor) -> Batch:
        """Rows that have no categories."""
        return cls(numbers, torch.empty((len(numbers), 0), dtype=torch.int64))

    @classmethod
    def concatenate(cls, parts: Iterable[Batch]) -> Batch:
        """The rows of several batches, one after the other."""
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    def take(self, rows: Tensor | slice) -> Batch:
        """Rows by their numbers, by a mask, or a slice of them."""
        return Batch(self.numbers[rows], self.ids[rows])
