"""Numbers put into bins: hard ones as a discretizer makes them, and soft ones with a sigmoid at each edge."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.slices import cache_slices, join_slices

SLOPE_FRACTIONS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)
"""Candidates for the fraction of the rows on the slope of an edge, softest first."""
FIDELITY = 0.9998
"""The R2 of the soft bins against the hard ones on the sample."""
SLOPE = 5.0
"""Half the slope of an edge, in widths: a sigmoid there is within 0.7 % of 0 or 1."""


def count_or_flag(passed: Tensor, kept: Tensor, ordinal: bool) -> Tensor:
    """Bin numbers or flags, from whether each edge is passed, ``[B, width, edges]``."""
    if ordinal:
        return passed.sum(dim=2)
    ends = torch.ones_like(passed[:, :, :1]) if passed.shape[2] > 0 else passed.new_ones(passed.shape[:2] + (1,))
    # [B, width, edges + 1]: a bin holds what has passed the edge before it and not the one behind it.
    bins = torch.cat([ends, passed], dim=2) - torch.cat([passed, torch.zeros_like(ends)], dim=2)
    return bins.flatten(1).index_select(1, kept)


class Bins(Module):
    """The bin of each number, as its position or as flags.

    bin_j(x) = number of the edges e of column j with e <= x

    Examples
    --------
    >>> edges, there = torch.tensor([[1.0, 2.0]]), torch.ones(1, 2)
    >>> Bins(edges, there, torch.arange(3), ordinal=False)(torch.tensor([[0.5], [2.0]])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    edges: Tensor  # [width, E], the inner edges of each column in its unit, ascending; padded
    there: Tensor  # [width, E], 1 for an edge and 0 for padding
    kept: Tensor  # int64 positions of the flags of bins that there are, among ``width * (E + 1)``
    ordinal: bool  # whether positions are given, and no flags
    seen: bool = False  # whether edges are values seen in the data, such as quantiles
    single: bool = False  # whether the source takes numbers in float32 first

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype``; edges become the least number that is not below them, unless they are seen values."""
        exact = self.edges
        self.to(dtype)
        if not self.seen:
            # A float32 number is at or above the edge where it is at or above that one.
            up = torch.nextafter(self.edges, torch.full_like(self.edges, float("inf")))
            self.edges = torch.where(self.edges.double() < exact.double(), up, self.edges)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width], or [B, len(kept)] flags."""
        if self.single:
            x = x.to(torch.float32).to(x.dtype)
        if self.ordinal and self.edges.shape[1] == 1:
            # In place, and nothing to count; no number comes up to NaN, which stands for padding.
            return x.detach().clone().ge_(torch.where(self.there[:, 0] > 0, self.edges[:, 0], float("nan")))
        return join_slices([self._binned(part) for part in cache_slices(x, self.edges.numel())])

    def _binned(self, x: Tensor) -> Tensor:
        passed = (x.unsqueeze(2) >= self.edges).to(x.dtype) * self.there  # [B, width, E]
        return count_or_flag(passed, self.kept, self.ordinal)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """The columns that the wanted bins are of."""
        return list(wanted) if self.ordinal else sorted(set((self.kept[list(wanted)] // self._bins()).tolist()))

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted bins, of the needed columns."""
        edges, there, kept = self.edges[list(needed)], self.there[list(needed)], self.kept
        if not self.ordinal:
            place = torch.zeros(width, dtype=torch.int64, device=kept.device)
            place[list(needed)] = torch.arange(len(needed), device=place.device)
            kept = kept[list(wanted)]
            kept = place[kept // self._bins()] * self._bins() + kept % self._bins()
        return Bins(edges, there, kept, self.ordinal, self.seen, self.single)

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """None: the output is finite whatever the input."""
        return [Finite()] * (width if self.ordinal else len(self.kept))

    def _bins(self) -> int:
        return self.edges.shape[1] + 1

    def soft(self, sample: Tensor | None) -> Module:
        """``SoftBins`` with the softest edges that keep 99.98 % of the variance on the sample."""
        if sample is None or len(sample) < 2:
            return self._without_rows()
        with torch.no_grad():
            exact = self(sample)
            variance = (exact - exact.mean(dim=0)).square().sum()
            soft = self._with_slope(sample, SLOPE_FRACTIONS[-1])
            for fraction in SLOPE_FRACTIONS:
                soft = self._with_slope(sample, fraction)
                if (soft(sample) - exact).square().sum() <= (1 - FIDELITY) * variance:
                    break
        return soft

    def _without_rows(self) -> "SoftBins":
        """Slopes of a hundredth of the narrowest bin, just below the edges, which may be values of a column."""
        edges, gaps = self.edges, self.edges.diff(dim=1)
        gaps = torch.where(self.there[:, 1:] > 0, gaps, torch.full_like(gaps, float("inf")))
        least = gaps.amin(dim=1, keepdim=True) if gaps.shape[1] else torch.full_like(edges[:, :1], float("inf"))
        size = edges.abs() * 0.1 + 0.1
        width = 0.01 * torch.where(torch.isfinite(least).expand_as(edges), least.expand_as(edges), size)
        return SoftBins(edges - SLOPE * width, width, self.there, self.kept, self.ordinal)

    def _with_slope(self, sample: Tensor, fraction: float) -> "SoftBins":
        """Each edge midway between neighbouring values of the sample, with ``fraction`` of the rows on its slope."""
        edges, width = self.edges.clone(), torch.ones_like(self.edges)
        for column in range(edges.shape[0]):
            values = sample[:, column]
            values = values[torch.isfinite(values)]
            for at in range(edges.shape[1]):
                if self.there[column, at] == 0 or len(values) == 0:
                    continue
                edges[column, at], width[column, at] = _center_in_gap(self.edges[column, at], values, fraction)
        return SoftBins(edges, width, self.there, self.kept, self.ordinal)


def _center_in_gap(edge: Tensor, values: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """The middle of the gap that an edge lies in, and a width for it."""
    below, above = values[values < edge], values[values >= edge]
    low = below.max() if len(below) else edge - (values.max() - edge).clamp_min(1e-6)
    high = above.min() if len(above) else edge + (edge - values.min()).clamp_min(1e-6)
    middle = (low + high) / 2
    reach = (values - middle).abs().sort().values
    room = reach[min(int(fraction * len(values)), len(values) - 1)]
    least = torch.finfo(edge.dtype).eps * (edge.abs() + 1e-6)
    # Float32 puts the middle of a gap of one step onto one of its ends.
    return (middle if low < middle else high), torch.maximum(torch.maximum(room, (high - low) / 2) / SLOPE, least)


class SoftBins(Module):
    """Bins whose edges are sigmoids.

    passed_e = 1 / (1 + exp(-(x - e) / width_e)); a position is their sum, the flag of a bin the difference of its two.
    """

    edges: Tensor = learned()  # [width, E], in the unit of the column
    slope_width: Tensor  # [width, E], the same unit
    there: Tensor  # this and the next two as in ``Bins``
    kept: Tensor
    ordinal: bool

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width], or [B, len(kept)] flags."""
        passed = torch.sigmoid((x.unsqueeze(2) - self.edges) / self.slope_width) * self.there
        return count_or_flag(passed, self.kept, self.ordinal)
