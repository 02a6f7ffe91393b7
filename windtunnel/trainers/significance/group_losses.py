"""Losses of groups of rows, and their standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.objectives.row_blocks import balanced_order
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets

GROUPS = 100
"""Groups of rows whose mean losses give the standard error."""


@dataclass(frozen=True)
class GroupLosses:
    """Losses of groups of rows, or differences of such losses."""

    loss: Tensor  # ``[G]``, mean loss of each group
    weight: Tensor  # ``[G]``, weight of its rows, or their number

    def __sub__(self, other: GroupLosses) -> GroupLosses:
        """Difference of the losses of the same rows."""
        return GroupLosses(self.loss - other.loss, self.weight)

    @property
    def mean(self) -> float:
        """sum_g W_g d_g / sum_g W_g over the groups where d_g is defined; NaN without such a group."""
        defined = self._defined()
        return float((defined.weight * defined.loss).sum() / defined.weight.sum())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean m, which is a ratio of sums over G groups.

        sqrt(G / (G - 1) sum_g (W_g (d_g - m))^2) / sum_g W_g; for equal weights the standard deviation of d over
        sqrt(G). Scaling all weights does not change it.
        """
        defined, count = self._defined(), int((~self.loss.isnan()).sum())
        deviation = defined.weight * (defined.loss - self.mean)
        return float((deviation.square().sum() * count / (count - 1)).sqrt() / defined.weight.sum())

    def exceeds_standard_error(self) -> bool:
        """Whether the mean exceeds its standard error, or 0 if there is a single group; False without a group.

        A group where a custom loss is undefined, because it lacks a class, does not count.
        """
        count = int((~self.loss.isnan()).sum())
        return count > 0 and math.isfinite(self.mean) and self.mean > (self.standard_error if count > 1 else 0.0)

    def _defined(self) -> GroupLosses:
        defined = ~self.loss.isnan()
        return GroupLosses(self.loss[defined], self.weight[defined])


def group_losses(loss: Loss, scores: Tensor, targets: Targets) -> GroupLosses:
    """Loss of each of ``GROUPS`` groups of neighbouring rows, or of each row.

    Neighbouring rows are grouped, so that the standard error includes correlation over time. Rows of weight 0 are left
    out.
    """
    counted = LabelledRows(scores, targets).counted()
    order = balanced_order(counted.targets.target)
    groups = [counted.take(rows) for rows in order.tensor_split(min(GROUPS, len(order)))]
    losses = torch.stack([loss(group.rows, *group.targets) for group in groups])
    weights = [len(group) if group.targets.weight is None else float(group.targets.weight.sum()) for group in groups]
    return GroupLosses(losses, losses.new_tensor(weights))
