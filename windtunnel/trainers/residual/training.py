"""The residual model as it is trained: on rows with init scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.objectives.losses import Loss
from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.residual.init_scores import (
    InputColumns,
    add_offset,
    concat,
    in_slices,
    select_columns,
    split_scores,
)
from windtunnel.trainers.residual.significance import SignificanceTest, compare_scores
from windtunnel.trainers.residual.validation_rows import Items

USUAL_GRADIENT = 0.4
"""Gradient of the log loss where a fifth of the rows is positive: sqrt(0.2 (1 - 0.2))."""

Score = Callable[[Tensor, Tensor], Tensor]
"""Numbers and ids to scores."""


class ResidualOnScores(nn.Module):
    """Init scores plus the column scores of a residual model; the init scores include those of its interactions.

    Shape
    -----
    numbers ``[B, n + K]``, ids int64 ``[B, m]`` -> ``[B, K]``

    Parameters
    ----------
    residual : ResidualModel
    head : Head
    gradient : float
        Root mean square of the loss's gradient by the scores; weight decay is relative to it.
    """

    def __init__(self, residual: ResidualModel, head: Head, gradient: float) -> None:
        super().__init__()
        self.residual, self.head = residual, head
        self.decay_scale = gradient / USUAL_GRADIENT

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores of rows with init scores."""
        rows, scores = split_scores(Batch(numbers, ids), len(self.residual.unit))
        return scores + self.residual.column_scores(self.residual.codes(concat(rows)))


@dataclass(frozen=True)
class InitialResidual:
    """A residual model with fitted interactions and columns of score 0, and the rows to train and test it on.

    Attributes
    ----------
    model : ResidualOnScores
    inputs : InputColumns
        What the residual model reads.
    loss : callable
    offset : Tensor
        ``[N, K]``, scores of the interactions for each training row, fitted without that row.
    test_rows : tuple of Batch, Tensor, Tensor or None
        Validation rows that had no part in the above: selected columns with init scores, targets, weights.
    interaction_test : SignificanceTest or None
        Test of the interactions, where any were selected.
    """

    model: ResidualOnScores
    inputs: InputColumns
    loss: Loss
    offset: Tensor
    test_rows: Items
    interaction_test: SignificanceTest | None = None

    @property
    def residual(self) -> ResidualModel:
        """The residual model itself."""
        return self.model.residual

    @property
    def outputs(self) -> int:
        """The number K of raw scores."""
        return len(self.residual.unit)

    def for_rows(self, mask: Tensor | None) -> InitialResidual:
        """The same with an offset for all training rows: 0 for rows outside the mask, whose weight is 0."""
        if mask is None:
            return self
        offset = self.offset.new_zeros(len(mask), self.offset.shape[1])
        offset[mask] = self.offset
        return replace(self, offset=offset)

    def training_batches(self, loader: EncodedLoader) -> EncodedLoader:
        """Training batches whose init scores include the interactions, each row's fitted without that row.

        Rows of a stream get the plain scores of the interactions, which are fitted on a sample of the stream.
        """
        return loader.map(self.add_interactions, lambda rows: add_offset(self.select_columns(rows), self.offset))

    def validation_batches(self, loader: EncodedLoader) -> EncodedLoader:
        """Validation batches whose init scores include the interactions."""
        return loader.map(self.add_interactions)

    def add_interactions(self, rows: Batch) -> Batch:
        """Selected columns, with init scores that include the interactions."""
        rows = self.select_columns(rows)
        return add_offset(rows, self.scores_with_interactions(*rows) - self.init_scores(*rows))

    def select_columns(self, rows: Batch) -> Batch:
        """Rows with init scores, and only the columns that the residual model reads."""
        return select_columns(rows, self.inputs, self.outputs)

    def init_scores(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores of the pipeline."""
        return split_scores(Batch(numbers, ids), self.outputs)[1]

    def scores_with_interactions(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Init scores plus the scores of the interactions, for rows with selected columns."""
        rows, scores = split_scores(Batch(numbers, ids), self.outputs)
        return scores + in_slices(lambda x: self.residual.interaction_scores(self.residual.codes(x)), concat(rows))

    def scores(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores of the pipeline plus the residual model, for selected columns."""
        rows, scores = split_scores(Batch(numbers, ids), self.outputs)
        return scores + in_slices(self.residual, concat(rows))

    def compare(self, metric: Metric, before: Score, after: Score) -> SignificanceTest:
        """Test on the test rows whether ``after`` has better scores than ``before``."""
        rows, *rest = self.test_rows
        with torch.no_grad():
            return compare_scores(metric, self.loss, before(*rows), after(*rows), *rest)


def residual_head(head: Head) -> Head:
    """The head of a model with a residual, whose scores are no probabilities."""
    return replace(head, link="softmax", loss="softmax") if head.link in PROBABILITIES else head
