"""Where numbers are cut into bins."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BINS = 32
"""Bins of a number, about as many; of fewer values each has its own."""


def bin_edges(numbers: Tensor) -> Tensor:
    """Edges between the bins of each number ``[n, E]``, padded with infinity."""
    edges = [_of_column(column[torch.isfinite(column)]) for column in numbers.t()]
    width = max(map(len, edges), default=0)
    padded = [nn.functional.pad(one, (0, width - len(one)), value=torch.inf) for one in edges]
    return torch.stack(padded) if padded else numbers.new_zeros(0, 0)


def _of_column(known: Tensor) -> Tensor:
    """Quantiles of the rows; values that fill a bin have one of their own, so that the others share the rest."""
    values: Tensor
    values, counts = torch.unique(known, return_counts=True)
    if len(values) <= BINS:
        return values
    heavy = counts * BINS >= len(known)
    rest = torch.repeat_interleave(values[~heavy], counts[~heavy])
    bins = max(BINS - int(heavy.sum()), 2)
    place = torch.linspace(0, len(rest) - 1, bins + 1, dtype=torch.float64)[1:-1]
    before = values[:-1][heavy[1:]]  # the edges below the values that fill a bin
    edges: Tensor = torch.unique(torch.cat([rest[place.round().long()], values[heavy], before]))
    return edges
