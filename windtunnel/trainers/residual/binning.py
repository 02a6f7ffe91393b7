"""Bins of numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BINS = 32
"""Approximate number of bins; a column with fewer distinct values has a bin for each."""


def bin_edges(numbers: Tensor) -> Tensor:
    """Edges between the bins of each number ``[n, E]``, padded with infinity."""
    edges = [_column_edges(column[torch.isfinite(column)]) for column in numbers.t()]
    width = max(map(len, edges), default=0)
    padded = [nn.functional.pad(column, (0, width - len(column)), value=torch.inf) for column in edges]
    return torch.stack(padded) if padded else numbers.new_zeros(0, 0)


def _column_edges(column: Tensor) -> Tensor:
    """Quantiles of a column; a value that alone fills a bin gets one, and the other values share the rest."""
    values: Tensor
    values, counts = torch.unique(column, return_counts=True)
    if len(values) <= BINS:
        return values
    frequent = counts * BINS >= len(column)
    rest = torch.repeat_interleave(values[~frequent], counts[~frequent])
    bins = max(BINS - int(frequent.sum()), 2)
    place = torch.linspace(0, len(rest) - 1, bins + 1, dtype=torch.float64)[1:-1]
    below = values[:-1][frequent[1:]]  # lower edges of the bins of frequent values
    edges: Tensor = torch.unique(torch.cat([rest[place.round().long()], values[frequent], below]))
    return edges
