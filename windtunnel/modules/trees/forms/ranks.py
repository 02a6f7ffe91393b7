"""The ranks of values among thresholds."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.trees.fixed_precision import FixedPrecision

CELLS = 4
"""Cells per threshold, so that few hold more than one."""
MOST_CELLS = 4096
MOST_STEPS = 5
"""Where a cell holds so many thresholds that more steps are needed, a search over all of them is as fast."""


class Ranks(FixedPrecision):
    """How many thresholds of its column a value is above.

    The span of a column's thresholds is cut into cells of one width. Rounding keeps the order of differences and
    products, so a value is above all thresholds in the cells below its own. A few steps of a binary search count those
    in its own cell. The result is exactly that of comparisons, in half a dozen passes over the values. Columns of one
    threshold that come last take a single comparison. ``thresholds`` has at least one for each column, float64 in
    order, each once; ``offset`` is int32 or int64 ``[C]``.
    """

    low: Tensor
    scale: Tensor
    last: Tensor
    cell: Tensor
    below: Tensor
    moved: Tensor
    bound: Tensor
    only: Tensor
    only_moved: Tensor
    several: int
    steps: int
    searched: bool

    def __init__(self, thresholds: list[NDArray[np.float64]], offset: NDArray[Any], device: torch.device) -> None:
        super().__init__()
        # One column at least is searched, so that there are no empty tensors.
        self.several = max((at + 1 for at, splits in enumerate(thresholds) if len(splits) > 1), default=1)
        only = np.array([splits[0] for splits in thresholds[self.several :]])
        self.register_derived(device, only=only[:, None], only_moved=offset[self.several :, None])
        thresholds, offset = thresholds[: self.several], offset[: self.several]
        counts = np.array([len(splits) for splits in thresholds])
        layout = [cells(splits) for splits in thresholds]
        most = max(
            int(np.diff(below, append=len(splits)).max())
            for (_, _, below), splits in zip(layout, thresholds, strict=True)
        )
        self.steps = most.bit_length()
        finite = all(np.isfinite(scale) and scale > 0 for _, scale, _ in layout)
        self.searched = self.steps > MOST_STEPS or not finite
        # Behind its thresholds each column has room for the last steps of a search.
        room = int(counts.max()) + 1 - counts if self.searched else np.full(len(counts), 1 << self.steps)
        bound = [np.append(splits, np.full(more, np.inf)) for splits, more in zip(thresholds, room, strict=True)]
        sizes = np.array([len(below) for _, _, below in layout])
        start = np.cumsum([0, *map(len, bound)])[:-1]
        below = [below + at for (_, _, below), at in zip(layout, start, strict=True)]
        moved = offset if self.searched else offset - start
        self.register_derived(
            device,
            low=np.array([[low] for low, _, _ in layout]),
            scale=np.array([[scale] for _, scale, _ in layout]),
            last=sizes[:, None] - 1.0,
            cell=np.cumsum([0, *sizes])[:-1, None].astype(np.int32),
            below=np.concatenate(below).astype(np.int32),
            moved=moved[:, None].astype(offset.dtype),
            bound=np.stack(bound) if self.searched else np.concatenate(bound),
        )

    def forward(self, values: Tensor) -> Tensor:
        """float64 [C, B], no NaN -> [C, B], the rank plus the offset of the column, in the type of the offsets."""
        if self.several == values.shape[0]:
            return self._among_several(values)
        above = (values[self.several :] > self.only).to(self.only_moved.dtype).add_(self.only_moved)
        return torch.cat([self._among_several(values[: self.several]), above])

    def _among_several(self, values: Tensor) -> Tensor:
        if self.searched:
            return torch.searchsorted(self.bound, values.contiguous(), out_int32=True) + self.moved
        at = torch.minimum((values - self.low).mul_(self.scale).clamp_(min=0.0), self.last).to(torch.int32)
        rank = self.below.index_select(0, at.add_(self.cell).view(-1))
        values = values.reshape(-1)
        step = 1 << self.steps
        while step > 1:
            step = step // 2
            above = values > self.bound.index_select(0, rank + (step - 1))
            rank = rank.add_(above, alpha=step)
        return rank.view_as(at) + self.moved


def cells(thresholds: NDArray[np.float64]) -> tuple[float, float, NDArray[np.int64]]:
    """Lower end, cells per unit, and for each cell how many thresholds lie in the cells below it."""
    finite = thresholds[np.isfinite(thresholds)]
    low, high = (finite[0], finite[-1]) if len(finite) else (0.0, 0.0)
    cells = min(MOST_CELLS, 1 << (CELLS * len(thresholds) - 1).bit_length())
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scale = np.float64(cells) / (high - low) if high > low else np.float64(1.0)
        at = np.minimum(np.maximum((thresholds - low) * scale, 0.0), cells - 1.0)
    at = np.nan_to_num(at).astype(np.int64)
    return float(low), float(scale), np.searchsorted(at, np.arange(cells))
