"""Losses of one's own over many rows at once, in time that grows with the rows alone."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.errors import BadInput
from windtunnel.objectives.losses import Loss, OwnLoss

ROWS = 512
"""Rows of a block, about as many as a step trains on."""
MAX_CLASSES = 100
"""Distinct targets up to which each is a class of its own."""


def by_blocks(loss: Loss) -> Loss:
    """The mean of a loss over blocks of rows, each with the kinds of targets evenly; losses by name are left alone.

    A loss of one's own may compare every row with every other, as one of pairs does: over 10,000 rows that takes a
    hundred million pairs for each of hundreds of steps. Blocks count by the weight of their rows, and not at all where
    the loss is NaN, as it is of pairs where a block has one class only.
    """
    if not isinstance(loss, OwnLoss):
        return loss

    def mean(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        total, size = scores.new_zeros(()), 0.0
        for rows in balanced_order(target).tensor_split(-(-len(target) // ROWS)):
            of_rows = None if weight is None else weight[rows]
            value = loss(scores[rows], target[rows], of_rows)
            if not value.isnan():  # else its gradient would be NaN too, however little it counts
                counts = float(len(rows)) if of_rows is None else float(of_rows.sum())
                total, size = total + counts * value, size + counts
        return total / size if size else loss(scores, target, weight)

    return mean


def of_any_rows(loss: Loss) -> Loss:
    """A loss that is given rows in blocks of whatever size; one of one's own that fails on them says what to do.

    Raises
    ------
    BadInput
        When it is called.
    """
    if not isinstance(loss, OwnLoss):
        return loss
    own = loss.function
    name = getattr(own, "__name__", type(own).__name__)

    def explained(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        try:
            return own(scores, target, weight)
        except Exception as error:
            raise BadInput(
                f"loss={name} failed on {len(target)} rows ({type(error).__name__}: {error}). For a residual model, fit gives "
                "it rows in blocks of any size; a loss over whole groups of rows (queries) needs residual=False, and "
                "loaders for training and validation whose batches are whole groups."
            ) from error

    return OwnLoss(explained)


def balanced_order(target: Tensor) -> Tensor:
    """An order of the rows in which every stretch has the classes of the whole; rows of a class keep their order.

    Of several targets the first counts; numbers count by tenths, from low to high. Files are often sorted by their
    target, and groups of one class each would differ by the class.
    """
    first = target.reshape(len(target), -1)[:, 0]
    kind: Tensor
    distinct, kind = torch.unique(first, return_inverse=True)
    if len(distinct) > MAX_CLASSES:
        kind = first.argsort(stable=True).argsort() * 10 // len(first)
    by_kind, count = kind.argsort(stable=True), kind.bincount()
    rank = torch.arange(len(first), device=first.device) - (count.cumsum(0) - count).repeat_interleave(count)
    place = (rank + 0.5) / count.repeat_interleave(count)
    order: Tensor = by_kind[place.argsort(stable=True)]
    return order
