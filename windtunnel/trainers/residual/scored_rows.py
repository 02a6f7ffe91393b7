"""Rows with the scores of a pipeline beside their numbers, and a residual model that is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.encode import Batch
from windtunnel.modules.ensembles.log_pool import LogProbabilities
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.head import Head
from windtunnel.program.program import Program
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.batches import Batches

USUAL_SLOPE = 0.4
"""The slope of the log loss where a fifth of the rows is positive: sqrt(0.2 (1 - 0.2))."""

ROWS_AT_ONCE = 65_536


class Beside(nn.Module):
    """The columns of a residual model on rows whose last numbers are scores, which stay as they are.

    These are the scores of the pipeline with what the combinations of the residual model add to them.

    Shape
    -----
    numbers ``[B, n + K]``, ids int64 ``[B, m]`` -> ``[B, K]``

    Parameters
    ----------
    residual model : ResidualModel
    head : Head
    slope : float
        Root mean square of the loss's slope by the residual model, over rows and raw scores; weight decay is relative to it.
    """

    def __init__(self, residual: ResidualModel, head: Head, slope: float) -> None:
        super().__init__()
        self.residual, self.head = residual, head
        self.decay_scale = slope / USUAL_SLOPE

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores beside the numbers plus those of the columns."""
        rows, scores = apart(Batch(numbers, ids), len(self.residual.unit))
        return scores + self.residual.by_columns(self.residual.codes(side_by_side(rows)))


class Mapped:
    """A loader of encoded batches, each changed on its way."""

    def __init__(self, loader: Any, change: Callable[[Batch], Batch]) -> None:
        self.loader, self.change = loader, change

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on."""
        self.loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        for rows, *rest in self.loader:
            yield self.change(rows), *rest


class Scorer:
    """Puts the scores of a pipeline beside the numbers of its rows: once where they lie in memory, else as they come.

    The trees are as the source has them, or gated, in the place of the soft ones; other steps are those of the
    translation.
    """

    def __init__(self, net: TranslatedPipeline, gates: dict[int, HardTrees]) -> None:
        self.net = net
        self.program = net.program.with_modules({**net.exact_modules, **gates}).eval()

    def __call__(self, loader: Any) -> Any:
        """The same batches with scores: those that the loader itself brings, or the program's."""
        known = getattr(loader, "scores", None)
        return mapped(loader, self.of if known is None else lambda rows: with_scores(rows, known))

    def of(self, rows: Batch) -> Batch:
        """Rows with scores."""
        return with_scores(rows, self._raw(self.answers(self.program, *rows)))

    def as_given(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores of the translation as it is, soft trees included."""
        return self._raw(self.answers(self.net.program, numbers, ids))

    def answers(self, program: Program, numbers: Tensor, ids: Tensor) -> Tensor:
        """What a program gives, probabilities as they are."""
        return self.net.run_in_slices(program, Batch(numbers, ids))

    def _raw(self, scores: Tensor) -> Tensor:
        return LogProbabilities()(scores) if self.net.head.link in PROBABILITIES else scores


def branch_head(head: Head) -> Head:
    """The head behind a residual model, which adds to scores that are no probabilities."""
    return replace(head, link="softmax", loss="softmax") if head.link in PROBABILITIES else head


@dataclass(frozen=True)
class Inputs:
    """The columns of a batch that a residual model reads: positions among its numbers, and among its ids."""

    numbers: list[int]
    ids: list[int]


def mapped(loader: Any, change: Callable[[Batch], Batch]) -> Any:
    """The batches of a loader, changed at once where they lie in memory, else as they come."""
    if type(loader) is not Batches:
        return Mapped(loader, change)
    return loader._with(change(loader.rows), loader.target, loader.weight, shuffle=loader.shuffle)


def with_scores(rows: Batch, scores: Tensor) -> Batch:
    """Rows with scores after their numbers."""
    return Batch(torch.cat([rows.numbers, scores.to(rows.numbers)], dim=1), rows.ids)


def apart(rows: Batch, outputs: int) -> tuple[Batch, Tensor]:
    """Rows with scores as rows and scores."""
    return Batch(rows.numbers[:, :-outputs], rows.ids), rows.numbers[:, -outputs:]


def narrowed(rows: Batch, inputs: Inputs, outputs: int) -> Batch:
    """Rows with scores, with no more columns than a residual model reads."""
    rows, scores = apart(rows, outputs)
    return Batch(torch.cat([rows.numbers[:, inputs.numbers], scores], dim=1), rows.ids[:, inputs.ids])


def raised(rows: Batch, more: Tensor) -> Batch:
    """Rows with scores, and more ``[N, K]`` added to the scores."""
    rows, scores = apart(rows, more.shape[1])
    return with_scores(rows, scores + more)


def in_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a function of rows gives, a part of them after the other: what it keeps for a row is large."""
    with torch.no_grad():
        return torch.cat([function(part) for part in torch.split(x, ROWS_AT_ONCE)])


def side_by_side(rows: Batch) -> Tensor:
    """What a residual model takes: numbers and ids side by side."""
    return torch.cat([rows.numbers, rows.ids.to(rows.numbers.dtype)], dim=1)
