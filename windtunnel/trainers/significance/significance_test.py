"""Significance of a decrease of the loss, from groups of rows that had no part in fitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import balanced_order
from windtunnel.program.records.fit_record import NEEDS_MORE_ROWS
from windtunnel.program.records.number_text import estimate_text
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.significance.group_losses import GroupLosses, group_losses
from windtunnel.trainers.significance.validation_halves import ValidationHalves

METRIC_GROUPS = 20
"""Groups of rows whose metrics give the standard error of the metric."""
CORRELATED = 1.3
"""Neighbouring rows count as correlated if grouping them makes the standard error this many times larger. Without
correlation the ratio of two standard errors from 100 groups is 1 with a standard deviation of 0.1."""


@dataclass(frozen=True)
class SignificanceTest:
    """Comparison of two models on rows that had no part in fitting them."""

    gain: float  # mean decrease of the loss
    standard_error: float  # of the gain
    rows: int  # that were compared, without those of weight 0
    reason: str = ""  # why it is not significant; empty where it is
    worsens_metric: bool = False  # whether the loss gets lower, but the metric worsens by more than its standard error

    @property
    def significant(self) -> bool:
        """Whether the gain exceeds its standard error, and the metric is not worse by more than its own."""
        return not self.reason

    @property
    def worse(self) -> bool:
        """Whether the loss rises by more than its standard error, or the metric worsens by more than its own.

        It counts as worse, too, if there is no standard error: of fewer than two groups of rows.
        """
        if self.significant or self.gain == math.inf:
            return False
        # Not significant although the gain exceeds its error: the metric worsened. NaN is within no error.
        within_error = abs(self.gain) <= self.standard_error
        return self.worsens_metric or not within_error

    @property
    def shrinkage(self) -> float:
        """The factor of a change of the scores that is significantly better, in (0, 1].

        1 - (e / g)^2 for a gain g and its standard error e: little of a gain that is hardly above its standard error,
        nearly all of a certain one. 1 without a standard error.

        Source
        ------
        The shrinkage of a mean by James and Stein (1961), for one mean.
        """
        if not math.isfinite(self.standard_error):
            return 1.0
        return 1 - (self.standard_error / self.gain) ** 2


def compare_losses_and_metrics(
    evaluator: Evaluator, split: ValidationHalves, before: Tensor, after: Tensor, targets: Targets
) -> SignificanceTest:
    """Test whether scores lower the loss, and do not worsen the metric by more than its standard error.

    ``after`` has for each half the scores of the model of the other half, where models were fitted on validation rows;
    joint training passes the scores of one model.
    """
    metric, test = evaluator.metric, compare_losses(evaluator.loss, split.shuffled, before, after, targets)
    if not test.gain > 0:
        return test
    groups = _metric_groups(metric, split.shuffled_halves, targets.target)
    old, new = (_metric_of_groups(evaluator, groups, scores, targets) for scores in (before, after))
    change, error = float((new - old).mean()), float((new - old).std() / max(len(groups) - 1, 1) ** 0.5)
    if abs(change) <= error or not metric.better(float(old.mean()), float(new.mean())):
        return test
    changes = "gets worse (these are too few for its standard error)"
    if len(groups) > 1:
        changes = f"changes by {estimate_text(change, error)}"
    reason = f"on rows that had no part in fitting {metric.name} {changes}, though the loss is lower"
    return replace(test, reason=reason, worsens_metric=True)


def _metric_groups(metric: Metric, halves: Sequence[Tensor], target: Tensor) -> list[Tensor]:
    """Groups of rows whose metrics are averaged; a single group of all rows if a group would lack a class or two rows.

    A single group has no standard error, so that then any worsening of the metric counts.

    The halves may have the scores of two models, which do not rank together, so a group has rows of one half only.
    Halves in the order of a hash of their rows give the same groups for the same rows in any order.
    """
    groups = [group for half in halves for group in half[balanced_order(target[half])].tensor_split(METRIC_GROUPS // 2)]
    classes = len(np.unique(target.cpu())) if metric.needs_all_classes else 0
    if any(len(group) < 2 or len(np.unique(target[group].cpu())) < classes for group in groups):
        return [torch.cat(list(halves))]
    return groups


def _metric_of_groups(
    evaluator: Evaluator, groups: Sequence[Tensor], scores: Tensor, targets: Targets
) -> NDArray[np.float64]:
    return np.array([evaluator.metric_of_scores(scores[rows], targets.take(rows)) for rows in groups])


def compare_losses(loss: Loss, shuffled: Tensor, before: Tensor, after: Tensor, targets: Targets) -> SignificanceTest:
    """Test whether scores ``[N, K]`` decrease the loss.

    The standard error comes from groups of neighbouring rows if these are correlated. Otherwise ``shuffled``, the order
    of a hash of the rows, groups them, so that their own order does not matter.
    """
    neighbours = group_losses(loss, before, targets) - group_losses(loss, after, targets)
    old, new = (group_losses(loss, scores[shuffled], targets.take(shuffled)) for scores in (before, after))
    gains = old - new
    if neighbours.standard_error > CORRELATED * gains.standard_error:
        gains = neighbours
    rows = len(before) if targets.weight is None else int((targets.weight > 0).sum())
    return SignificanceTest(gains.mean, gains.standard_error, rows, _why_insignificant(gains))


def _why_insignificant(gains: GroupLosses) -> str:
    """Why a gain is not significant; empty where it exceeds its standard error."""
    if gains.exceeds_standard_error():
        return ""
    if gains.mean == math.inf:
        return "the loss before is infinite, so that no gain can be tested"
    if gains.mean > 0:
        return f"needs more than 1 standard error. {NEEDS_MORE_ROWS}"
    return "the loss gets no lower on rows that had no part in fitting"
