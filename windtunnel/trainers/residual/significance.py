"""How sure it is that scores got better: on rows that had no part in making them so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.objectives.losses import Loss
from windtunnel.objectives.metrics import Metric
from windtunnel.trainers.data.batches import Batches
from windtunnel.trainers.data.loader import Encoded
from windtunnel.trainers.loop.processes import summed
from windtunnel.trainers.residual.scored_rows import Mapped
from windtunnel.trainers.residual.screening import MOST_ROWS

GROUPS = 100
"""Groups of rows whose mean losses tell how sure a gain is."""


def collected(loader: Any) -> tuple[Any, ...]:
    """Rows, targets and, where there are any, weights.

    All that lie in memory; of a loader ``MOST_ROWS``, from all over where it can give a sample, else the first ones.
    """
    if type(loader) is Batches:
        return (loader.rows, loader.target) if loader.weight is None else (loader.rows, loader.target, loader.weight)
    if isinstance(loader, Mapped):
        rows, *rest = collected(loader.loader)
        return loader.change(rows), *rest
    if isinstance(loader, Encoded) and (sample := loader.sample(MOST_ROWS)) is not None:
        return sample
    parts, count = [], 0
    for item in loader:
        parts.append(item)
        count += len(item[1])
        if count >= MOST_ROWS:
            break
    rows, *rest = zip(*parts, strict=True)
    blocks = Batch(*(torch.cat(list(blocks)) for blocks in zip(*rows, strict=True)))
    return blocks, *(torch.cat(list(one)) for one in rest)


def halves(items: tuple[Any, ...], order: Tensor) -> list[tuple[Any, ...]]:
    """Two halves of collected rows, drawn by an order; within each, rows stay in the order in which they came.

    So groups of neighbouring rows are stretches of time where rows are, and a gain that comes and goes with the days
    is as unsure as it is: on flights and bookings in the order of their dates, the standard error of a gain is two to
    four times what rows in a random order say.
    """

    def part(index: Tensor) -> tuple[Any, ...]:
        return Batch(items[0].numbers[index], items[0].ids[index]), *(one[index] for one in items[1:])

    return [part(index.sort().values) for index in order.tensor_split(2)]


def counted(items: tuple[Any, ...], generator: torch.Generator) -> Tensor:
    """The numbers of collected rows in random order, but for those of weight 0."""
    order = torch.randperm(len(items[1]), generator=generator)
    return order if len(items) == 2 else order[items[2].cpu()[order] > 0]


def helps(judge: Metric, loss: Loss, before: Tensor, after: Tensor, *rest: Tensor) -> bool:
    """Whether scores got better: the metric is no worse, and the loss lower by more than a standard error."""
    was, now = (metric(judge, loss, lambda scores: scores, [((scores,), *rest)]) for scores in (before, after))
    return gains(loss, before, after, *rest).clear() and not judge.better(was, now)


@dataclass(frozen=True)
class Groups:
    """The mean loss of each group of rows ``[G]``, or a difference of such, and what its rows weigh ``[G]``."""

    loss: Tensor
    weight: Tensor

    def __sub__(self, other: Groups) -> Groups:
        """The difference of the losses of the same rows; a group where one is undefined does not count."""
        return Groups(self.loss - other.loss, self.weight)

    @property
    def mean(self) -> float:
        """sum_g W_g d_g / sum_g W_g over the groups where d_g is finite; NaN where there is none."""
        defined = self._defined()
        return float((defined.weight * defined.loss).sum() / defined.weight.sum())

    @property
    def error(self) -> float:
        """The standard error of the mean m, that of a ratio of sums over G groups which are drawn together.

        sqrt(G / (G - 1) sum_g (W_g (d_g - m))^2) / sum_g W_g, with groups of equal weight the deviation of d over
        sqrt(G). A group counts by its weight squared: where a few rows weigh most, the mean is as unsure as they are
        few. The unit of the weights makes no difference.
        """
        defined, count = self._defined(), int(self.loss.isfinite().sum())
        around = defined.weight * (defined.loss - self.mean)
        return float((around.square().sum() * count / (count - 1)).sqrt() / defined.weight.sum())

    def clear(self) -> bool:
        """Whether the mean is more than its standard error.

        A group where a loss of one's own is undefined, for want of a class, does not count; one group alone says
        nothing against it.
        """
        count = int(self.loss.isfinite().sum())
        return count == 1 or (count > 1 and self.mean > self.error)

    def _defined(self) -> Groups:
        finite = self.loss.isfinite()
        return Groups(self.loss[finite], self.weight[finite])


def gains(loss: Loss, before: Tensor, after: Tensor, *rest: Tensor) -> Groups:
    """By how much the loss of scores is lower afterwards, group by group; ``rest`` are targets and maybe weights."""
    return group_losses(loss, before, *rest) - group_losses(loss, after, *rest)


def group_losses(loss: Loss, scores: Tensor, *rest: Tensor) -> Groups:
    """The loss of each of ``GROUPS`` groups of neighbouring rows, or of each row; ``rest`` is target and maybe weight.

    Rows of weight 0 are in no group: all is as if they were not there.
    """
    parts = [scores, *rest]
    if len(rest) == 2:
        parts = [one[rest[1] > 0] for one in parts]
    order = evenly(parts[1])
    groups = zip(*(one[order].tensor_split(min(GROUPS, len(order))) for one in parts), strict=True)
    found = [
        (loss(part, target, *(weight or [None])), float(weight[0].sum() if weight else len(part)))
        for part, target, *weight in groups
    ]
    losses = torch.stack([one for one, _ in found])
    return Groups(losses, losses.new_tensor([weight for _, weight in found]))


def evenly(target: Tensor) -> Tensor:
    """An order in which the kinds of a target come evenly, each in the order of its rows; of several targets the first.

    Files are often sorted by what they answer. Groups of one class each would differ by the class, whatever helps.
    """
    first = target.reshape(len(target), -1)[:, 0]
    kind: Tensor
    distinct, kind = torch.unique(first, return_inverse=True)
    if len(distinct) > GROUPS:  # numbers: tenths of the rows, from low to high
        kind = first.argsort(stable=True).argsort() * 10 // len(first)
    by_kind, count = kind.argsort(stable=True), kind.bincount()
    rank = torch.arange(len(first), device=first.device) - (count.cumsum(0) - count).repeat_interleave(count)
    place = (rank + 0.5) / count.repeat_interleave(count)
    order: Tensor = by_kind[place.argsort(stable=True)]
    return order


def metric(
    judge: Metric, loss: Loss, score: Callable[..., Tensor], loader: Any, answer: Callable[..., Tensor] | None = None
) -> float:
    """The metric of scores over the rows of a loader, of all processes where there are several.

    ``answer`` gives what the source's method ``judge.method`` does, where that has a step of its own.
    """
    judge.reset()
    total: Tensor | float = 0.0
    count: Tensor | float = 0
    with torch.no_grad():
        for rows, target, *weight in loader:
            scores = score(*rows)
            judge.update(scores, target, *weight, answer=None if answer is None else answer(*rows))
            if judge.name == "loss":  # which one of one's own may take long to tell
                size = float(weight[0].sum()) if weight else len(target)
                total, count = total + float(loss(scores, target, *(weight or [None]))) * size, count + size
    if judge.name == "loss":
        total, count = summed(total, count)
        value = float(total / count)
    else:
        value = judge.compute()
    judge.reset()
    return value
