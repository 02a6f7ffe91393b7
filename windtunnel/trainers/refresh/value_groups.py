"""Values that a refresh moves, in groups: every row reads one value of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from windtunnel.objectives.losses import Loss, logistic, softmax, squared

STEP = 0.1
"""Fraction of a Newton step. Low, so that overlapping groups can share a signal."""


@dataclass(frozen=True)
class RefreshRows:
    """Rows that values are fitted on: raw scores float64 ``[N, K]``, targets, weights ``[N]``."""

    scores: Tensor
    target: Tensor
    weight: Tensor


@dataclass
class ValueGroup:
    """Values of which each row and output reads one, such as the leaf values of a round of trees.

    score[i, k] = ... + unit[k] values[cells[i, k]]

    Attributes
    ----------
    cells : Tensor
        int64 ``[N, K]``, positions in ``values``; -1 where a row reads nothing.
    values : Tensor
        float64 ``[M]``.
    unit : Tensor
        float64 ``[K]``.
    """

    cells: Tensor
    values: Tensor
    unit: Tensor
    used: Tensor = field(init=False)
    place: Tensor = field(init=False)
    moved: Tensor = field(init=False)

    def __post_init__(self) -> None:
        mark = torch.zeros(len(self.values) + 1, dtype=torch.bool)
        mark[self.cells] = True  # -1 is the last position
        mark[-1] = False
        self.used = torch.nonzero(mark)[:, 0]
        lookup = torch.full((len(mark),), len(self.used))
        lookup[self.used] = torch.arange(len(self.used))
        self.place = lookup[self.cells]
        self.moved = torch.zeros(len(self.used) + 1, dtype=torch.float64)

    def move(self, rows: RefreshRows, gradient: Tensor, curvature: Tensor, anchor: float) -> None:
        """Move the values by a part of a Newton step, and add the change to the scores of the rows.

        With gradient G and curvature H of the loss, summed over the rows that read the value v, and p the curvature
        of ``anchor`` average rows: v - STEP (G + p (v - v0)) / (H + p), v0 being the value before the refresh.
        """
        place, size = self.place.flatten(), len(self.moved)
        total = rows.scores.new_zeros(size).index_add_(0, place, (gradient * self.unit).flatten())
        curved = curvature * self.unit.square()
        bend = rows.scores.new_zeros(size).index_add_(0, place, curved.flatten())
        prior = anchor * float(curved.sum() / (rows.weight.sum() * curved.shape[1])) + torch.finfo(torch.float64).tiny
        change = -STEP * (total + prior * self.moved) / (bend + prior)
        change[-1] = 0
        self.moved += change
        rows.scores.add_(change[self.place] * self.unit)

    def moved_values(self) -> Tensor:
        """The values after the refresh."""
        values = self.values.clone()
        values[self.used] += self.moved[:-1]
        return values


def fit_groups(rows: RefreshRows, groups: Sequence[Sequence[ValueGroup]], loss: Loss, anchor: float) -> None:
    """Move the values of all groups, pass by pass; the curvature is computed once per pass."""
    for part in groups:
        _, curvature = derivatives(loss, rows, second=True)
        for group in part:
            gradient, _ = derivatives(loss, rows)
            group.move(rows, gradient, curvature, anchor)


def derivatives(loss: Loss, rows: RefreshRows, *, second: bool = False) -> tuple[Tensor, Tensor]:
    """First derivatives of each row's weighted loss by its scores ``[N, K]``; with ``second`` also the second ones.

    Closed forms of the three usual losses, else by autograd. Second derivatives are kept above a hundredth of their
    mean; a loss without any, as the absolute error, gets the mean size of its first ones.
    """
    scores, weight = rows.scores, rows.weight.unsqueeze(1)
    if loss is logistic and scores.shape[1] == 1:
        chance = scores.sigmoid()
        return weight * (chance - rows.target.to(scores.dtype).reshape(scores.shape)), weight * chance * (1 - chance)
    if loss is softmax:
        chance = scores.softmax(dim=1)
        gradient = chance.clone()
        gradient[torch.arange(len(scores)), rows.target] -= 1
        return weight * gradient, weight * chance * (1 - chance)
    if loss is squared:
        outputs = scores.shape[1]
        residual = scores - rows.target.to(scores.dtype).reshape(scores.shape)
        return 2 * weight * residual / outputs, (2 * weight / outputs).expand_as(scores)
    return _by_autograd(loss, rows, second)


def _by_autograd(loss: Loss, rows: RefreshRows, second: bool) -> tuple[Tensor, Tensor]:
    scores = rows.scores.detach().clone().requires_grad_()
    value = loss(scores, rows.target, rows.weight) * rows.weight.sum()
    (gradient,) = torch.autograd.grad(value, scores, create_graph=second)
    curvature = torch.zeros_like(rows.scores)
    if second and gradient.requires_grad:
        for output in range(scores.shape[1]):
            (row,) = torch.autograd.grad(gradient[:, output].sum(), scores, retain_graph=True)
            curvature[:, output] = row[:, output]
    gradient = gradient.detach()
    curvature = curvature.clamp_min(0)
    if second and not curvature.any():
        curvature = gradient.abs().mean().expand_as(gradient)
    return gradient, curvature.clamp_min(0.01 * float(curvature.mean()))
