"""Metrics over rows that count by their weights, as scikit-learn's ``sample_weight`` has it.

torchmetrics has them without weights. These are its ``Metric`` objects all the same: batch by batch, and of the rows of
all processes where there are several. ``update`` takes what is judged, the encoded target, and the weight ``[B]``, from
above 0, of each row; all is added up in float64.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torchmetrics
from torch import Tensor


class Sums(torchmetrics.Metric):
    """Adds up columns of numbers."""

    full_state_update = False
    sums: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")


class Accuracy(Sums):
    """sum_i w_i [label_i = target_i] / sum_i w_i of labels int64 ``[B]``."""

    def __init__(self) -> None:
        super().__init__(2)

    def update(self, label: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        right = (label == target).double()
        self.sums += torch.stack([(weight.double() * right).sum(), weight.double().sum()])

    def compute(self) -> Tensor:
        """Give the share."""
        return self.sums[0] / self.sums[1]


class LogLoss(Sums):
    """-sum_i w_i log p_i / sum_i w_i, p_i that of the row's class among probabilities ``[B, classes]``.

    They are taken as they are, rows that do not sum to 1 too, and kept off 0 and 1, as scikit-learn's log_loss does.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def update(self, probability: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        share = probability.double().gather(1, target.unsqueeze(1))[:, 0]
        eps = torch.finfo(torch.float64).eps
        rows = -share.clamp(eps, 1 - eps).log()
        self.sums += torch.stack([(weight.double() * rows).sum(), weight.double().sum()])

    def compute(self) -> Tensor:
        """Give the mean."""
        return self.sums[0] / self.sums[1]


class F1(Sums):
    """2 TP / (2 TP + FP + FN) of labels int64 ``[B]``, in weights: of the second of two classes, 0 where that is 0 / 0.

    Of more classes it is the mean over those that some row has, or is taken for.
    """

    def __init__(self, classes: int) -> None:
        super().__init__(3, classes)

    def update(self, label: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        weight = weight.double()
        of_class = [(target[label == target], weight[label == target]), (label, weight), (target, weight)]
        self.sums += torch.stack([torch.zeros_like(self.sums[0]).index_add_(0, *one) for one in of_class])

    def compute(self) -> Tensor:
        """Give the score."""
        score: Tensor = 2 * self.sums[0] / (self.sums[1] + self.sums[2])
        return score[1].nan_to_num() if len(score) == 2 else score.nanmean()


class RMSE(Sums):
    """sqrt(sum_i w_i (value_i - target_i)^2 / sum_i w_i) of values ``[B, K]``, the mean over the outputs."""

    def __init__(self, outputs: int) -> None:
        super().__init__(2, outputs)

    def update(self, value: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        value, weight = value.double(), weight.double().unsqueeze(1)
        error = weight * (value - target.double().reshape(value.shape)).square()
        self.sums += torch.stack([error.sum(dim=0), weight.expand_as(value).sum(dim=0)])

    def compute(self) -> Tensor:
        """Give the error."""
        return (self.sums[0] / self.sums[1]).sqrt().mean()


class R2(torchmetrics.Metric):
    """1 - sum_i w_i (value_i - target_i)^2 / sum_i w_i (target_i - mean)^2 of values ``[B, K]``, the mean over K.

    NaN of fewer than two rows. Of a target that is constant it is 1 where every value is right, and else 0.
    """

    full_state_update = False
    moments: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        # Rows, error, weight, mean of the targets, sum of squares around it. Sums of squares alone would leave nothing
        # of the spread of targets such as years.
        self.add_state("moments", torch.zeros(5, outputs, dtype=torch.float64), dist_reduce_fx=_all_merged)

    def update(self, value: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        if len(value) == 0:
            return
        value, weight = value.double(), weight.double().unsqueeze(1)
        target = target.double().reshape(value.shape)
        total = weight.sum(dim=0).expand(value.shape[1])
        mean = (weight * target).sum(dim=0) / total
        error, around = ((weight * (target - one).square()).sum(dim=0) for one in (value, mean))
        rows = torch.full_like(total, len(value))
        self.moments = _merged(self.moments, torch.stack([rows, error, total, mean, around]))

    def compute(self) -> Tensor:
        """Give the score."""
        rows, error, weight, mean, around = self.moments
        # What rounding leaves of equal targets is no spread.
        constant = around <= 1e-28 * weight * mean.square()
        score = torch.where(constant, (error == 0).double(), 1 - error / torch.where(constant, 1.0, around))
        return torch.where(rows < 2, torch.nan, score).mean()


def _merged(one: Tensor, other: Tensor) -> Tensor:
    """The moments of the rows of both (Chan, Golub and LeVeque 1979)."""
    rows, error, weight = one[:3] + other[:3]
    share, apart = other[2] / weight.clamp(min=torch.finfo(weight.dtype).tiny), other[3] - one[3]
    mean, around = one[3] + apart * share, one[4] + other[4] + apart.square() * one[2] * share
    return torch.stack([rows, error, weight, mean, around])


def _all_merged(moments: Tensor) -> Tensor:
    merged: Tensor = reduce(_merged, moments)
    return merged


class Ranking(torchmetrics.Metric):
    """Keeps ``[B]`` numbers that are larger for the second of two classes, or ``[B, classes]`` such.

    Of more classes it is the mean over them, each against the others, but for those where it is not defined.
    """

    full_state_update = False
    numbers: list[Tensor]
    targets: list[Tensor]
    weights: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("numbers", "targets", "weights"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, number: Tensor, target: Tensor, weight: Tensor) -> None:
        """Take in a batch."""
        self.numbers.append(number)
        self.targets.append(target)
        self.weights.append(weight)

    def compute(self) -> Tensor:
        """Give the mean; NaN where no class defines it."""
        # The state is a tensor already where it came from several processes.
        number, target, weight = map(_joined, (self.numbers, self.targets, self.weights))
        if number.dim() == 1:
            return self.area(*steps(number, target == 1, weight))
        classes = range(number.shape[1])
        return torch.stack([self.area(*steps(number[:, k], target == k, weight)) for k in classes]).nanmean()

    def area(self, positive: Tensor, negative: Tensor) -> Tensor:
        """The metric of two classes, of what ``steps`` gives."""
        raise NotImplementedError


class AUROC(Ranking):
    """The share of pairs of rows, one of each class, weighing the product of both, in the right order; ties count half.

    NaN of one class.
    """

    def area(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Trapezoids under the rate of true positives, over that of false ones."""
        return torch.trapezoid(positive, negative) / (positive[-1] * negative[-1])


class AveragePrecision(Ranking):
    """sum_n (R_n - R_{n-1}) P_n over the distinct numbers, R recall and P precision; NaN without a positive row."""

    def area(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Precision times what each step adds to the recall."""
        precision = positive[1:] / (positive[1:] + negative[1:])
        return (positive.diff() * precision).sum() / positive[-1]


def steps(number: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of positive and of negative rows from the largest number down to each distinct one, float64, from 0."""
    number, order = number.sort(descending=True)
    weight, positive = weight[order].double(), positive[order]
    last = torch.cat([number[1:] != number[:-1], number.new_ones(min(len(number), 1), dtype=torch.bool)])
    sums = [torch.where(chosen, weight, 0.0).cumsum(0)[last] for chosen in (positive, ~positive)]
    return tuple(torch.cat([one.new_zeros(1), one]) for one in sums)  # type: ignore[return-value]


def _joined(state: Any) -> Tensor:
    return torch.cat(state) if isinstance(state, list) else state
