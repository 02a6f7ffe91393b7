"""Custom losses over many rows at once, in blocks, so that their time is linear in the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.errors import BadInput
from windtunnel.objectives.losses import CustomLoss, Loss

ROWS = 512
"""Rows per block, about as many as a training step has."""
MAX_CLASSES = 100
"""With more distinct targets than this, classes are deciles."""


def average_over_blocks(loss: Loss) -> Loss:
    """The mean of a custom loss over blocks of rows, each with the class frequencies of all; other losses unchanged.

    A custom loss may compare all pairs of rows: for 10,000 rows a hundred million pairs in each of hundreds of steps.
    Blocks are weighted by the weight of their rows. Blocks whose loss is NaN are left out, such as a pairwise loss on
    rows of one class.
    """
    if not isinstance(loss, CustomLoss):
        return loss

    def mean(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        total, size = scores.new_zeros(()), 0.0
        for rows in balanced_order(target).tensor_split(-(-len(target) // ROWS)):
            row_weight = None if weight is None else weight[rows]
            value = loss(scores[rows], target[rows], row_weight)
            if not value.isnan():  # a NaN times 0 has a NaN gradient
                block = float(len(rows)) if row_weight is None else float(row_weight.sum())
                total, size = total + block * value, size + block
        return total / size if size else loss(scores, target, weight)

    return mean


def explain_failures(loss: Loss) -> Loss:
    """A custom loss whose errors say what to do about blocks of any size; other losses unchanged.

    Raises
    ------
    BadInput
        When the loss is called, for any error of the custom loss.
    """
    if not isinstance(loss, CustomLoss):
        return loss
    function = loss.function
    name = getattr(function, "__name__", type(function).__name__)

    def explained(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        try:
            return function(scores, target, weight)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if weight is None and "NoneType" in reason:
                reason += "; no rows have weights, so weight is None"
            raise BadInput(
                f"loss={name} failed on {len(target)} rows ({reason}). For a residual model, fit gives it rows in "
                "blocks of any size; a loss over whole groups of rows (queries) needs residual=False, and loaders for "
                "training and validation whose batches are whole groups."
            ) from error

    return CustomLoss(explained)


def balanced_order(target: Tensor) -> Tensor:
    """An order in which neighbouring rows have the class frequencies of all rows; rows of a class stay in order.

    Many distinct numbers are classed by deciles; of several targets the first counts. Files are often sorted by their
    target, so that without this a group of neighbouring rows would have a single class.
    """
    first = target.reshape(len(target), -1)[:, 0]
    stratum: Tensor
    distinct, stratum = torch.unique(first, return_inverse=True)
    if len(distinct) > MAX_CLASSES:
        stratum = first.argsort(stable=True).argsort() * 10 // len(first)
    by_stratum, count = stratum.argsort(stable=True), stratum.bincount()
    rank = torch.arange(len(first), device=first.device) - (count.cumsum(0) - count).repeat_interleave(count)
    place = (rank + 0.5) / count.repeat_interleave(count)
    order: Tensor = by_stratum[place.argsort(stable=True)]
    return order
