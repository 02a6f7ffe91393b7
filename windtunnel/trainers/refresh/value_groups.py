"""Values that a refresh moves, in groups: every row reads one value of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.objectives.derivatives import derivatives
from windtunnel.objectives.losses import Loss

STEP = 0.1
"""Fraction of a Newton step. Low, so that overlapping groups can share a signal."""
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class ScoredTargets:
    """Raw scores float64 ``[N, K]``, targets, and weights ``[N]``; rows of weight 0 are scored but not fitted."""

    scores: Tensor
    target: Tensor
    weight: Tensor


@dataclass(frozen=True)
class ValueGroup:
    """Values of which each row and output reads one, such as the leaf values of a round of trees.

    score[i, k] = ... + unit[k] values[cells[i, k]]
    """

    used: Tensor  # int64 ``[m]``, the cells that some row reads
    place: Tensor  # int64 ``[N, K]``, position in ``used`` of the cell that a row reads; m where it reads none
    unit: Tensor  # float64 ``[K]``

    @classmethod
    def of(cls, cells: Tensor, size: int, unit: Tensor) -> ValueGroup:
        """The group of ``size`` values whose cells int64 ``[N, K]`` are read; -1 where a row reads none."""
        read = torch.zeros(size + 1, dtype=torch.bool)
        read[cells] = True  # -1 is the last position
        read[-1] = False
        used = torch.nonzero(read)[:, 0]
        lookup = torch.full((size + 1,), len(used))
        lookup[used] = torch.arange(len(used))
        return cls(used, lookup[cells], unit)

    def sum(self, parts: Tensor) -> Tensor:
        """Sum over the rows that read each value, ``[m + 1]``, of parts ``[N, K]``."""
        total = parts.new_zeros(len(self.used) + 1)
        return total.index_add_(0, self.place.flatten(), (parts * self.unit).flatten())


def fit_groups(
    rows: ScoredTargets, groups: Sequence[ValueGroup], passes: int, loss: Loss, anchor: float
) -> list[Tensor]:
    """Move the values of all groups, group by group in ``passes`` passes, and with them the scores of the rows.

    A value v moves by a part of a Newton step with a penalty towards its old value v0. With gradient G and curvature H
    of the loss, summed over the rows that read it, and p the curvature of ``anchor`` average rows, it becomes

        v - STEP (G + p (v - v0)) / (H + p)

    Curvatures are those before the first pass. Returns v - v0 of each group, float64 ``[m + 1]`` with 0 at the end.
    """
    _, curvature = row_derivatives(loss, rows, second=True)
    curvatures = [group.sum(curvature * group.unit) for group in groups]
    moved = [torch.zeros_like(summed) for summed in curvatures]
    mean = curvature.sum(dim=0) / max(float(rows.weight.sum()) * curvature.shape[1], 1.0)
    priors = [anchor * float((mean * group.unit.square()).sum()) + TINY for group in groups]
    for _ in range(passes):
        for group, summed, move, prior in zip(groups, curvatures, moved, priors, strict=True):
            gradient, _ = row_derivatives(loss, rows)
            change = -STEP * (group.sum(gradient) + prior * move) / (summed + prior)
            change[-1] = 0
            move += change
            rows.scores.add_(change[group.place] * group.unit)
    return moved


def row_derivatives(loss: Loss, rows: ScoredTargets, *, second: bool = False) -> tuple[Tensor, Tensor]:
    """First and, with ``second``, second derivatives of each row's weighted loss by its scores, ``[N, K]``.

    Second derivatives are kept above a hundredth of their mean. A loss without any, such as the absolute error, gets
    the mean size of its first ones.
    """

    def total(scores: Tensor) -> Tensor:
        return loss(scores, rows.target, rows.weight) * rows.weight.sum()

    gradient, curvature = derivatives(total, rows.scores, second=second)
    curvature = curvature.clamp_min(0)
    if second and not curvature.any():
        curvature = gradient.abs().mean().expand_as(gradient)
    return gradient, curvature.clamp_min(0.01 * float(curvature.mean()))
