"""The residual model at its stages, from the fitted interactions to what is installed.

1. ``ResidualModel`` (in ``modules/linear``): tables of interactions and columns, a factorization machine.
2. ``ResidualForTraining``: one with fitted interactions and untrained columns, with the columns of the rows that it
   reads. ``interactions.fit_interactions`` makes it.
3. ``ResidualOnInitScores``: the module that Lightning trains, on rows with init scores.
4. ``TrainedResidual`` (in ``residual_training``): the trained one, with the scores that test it.
5. ``InstallableResidual``: what ``installation.install_residual`` adds to the program.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

from torch import Tensor, nn

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.program.head import Head
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.residual.init_scores import (
    ResidualInputs,
    add_offset,
    append_scores,
    concat,
    in_row_blocks,
    split_scores,
)

USUAL_GRADIENT = 0.4
"""Gradient of the log loss where a fifth of the rows is positive: sqrt(0.2 (1 - 0.2))."""


class ResidualOnInitScores(nn.Module):
    """Init scores plus the column scores of a residual model; the init scores include those of its interactions.

    Shape
    -----
    numbers ``[B, n + K]``, ids int64 ``[B, m]`` -> ``[B, K]``
    """

    def __init__(self, residual: ResidualModel) -> None:
        super().__init__()
        self.residual = residual

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores of rows with init scores."""
        rows, scores = split_scores(Batch(numbers, ids), len(self.residual.unit))
        return scores + self.residual.column_scores(self.residual.codes(concat(rows)))


@dataclass(frozen=True)
class InstallableResidual:
    """A residual model, and the columns of encoded rows that it reads."""

    model: ResidualModel
    inputs: ResidualInputs

    def scores(self, rows: Batch) -> Tensor:
        """Scores of its columns and interactions ``[N, K]``, for rows without init scores."""
        return in_row_blocks(self.model, concat(self.inputs.select(rows)))

    def shrunken(self, factor: float) -> InstallableResidual:
        """A copy whose scores have this factor."""
        model = deepcopy(self.model)
        model.unit = model.unit * factor
        return InstallableResidual(model, self.inputs)

    def column_scores(self, rows: Batch) -> Tensor:
        """Scores of its columns alone."""
        codes = self.model.codes
        return in_row_blocks(lambda x: self.model.column_scores(codes(x)), concat(self.inputs.select(rows)))


@dataclass(frozen=True)
class ResidualForTraining:
    """A residual model with fitted interactions and untrained columns, and what its training adds to the rows."""

    module: ResidualOnInitScores
    inputs: ResidualInputs  # the columns that the residual model reads
    head: Head  # of the pipeline with the residual model
    evaluator: Evaluator
    gradient: float  # root mean square of the loss's gradient by the scores; 0 where the scores are perfect
    # ``[N, K]``, scores of the interactions for each training row, fitted without that row
    offset: Tensor

    @property
    def model(self) -> ResidualModel:
        """The residual model itself."""
        return self.module.residual

    @property
    def net_to_train(self) -> NetToTrain:
        """Its module, as Lightning trains it."""
        scale = self.gradient / USUAL_GRADIENT or 1.0
        return NetToTrain(self.module, self.head, self.evaluator.metric, gradient_scale=scale)

    def copy(self) -> ResidualForTraining:
        """One with weights of its own, to train."""
        return replace(self, module=deepcopy(self.module))

    @property
    def installable(self) -> InstallableResidual:
        """The residual model, and the columns that it reads."""
        return InstallableResidual(self.model, self.inputs)

    @property
    def interactions_alone(self) -> InstallableResidual:
        """The interactions without the columns, whose factors are random until they are trained."""
        return InstallableResidual(self.model.interactions_alone(), self.inputs)

    @property
    def reads_columns(self) -> bool:
        """Whether any column was selected; without one there is nothing to train, and no interaction."""
        return bool(self.inputs.numbers or self.inputs.ids)

    @property
    def outputs(self) -> int:
        """The number K of raw scores."""
        return len(self.model.unit)

    def training_batches(self, loader: EncodedLoader) -> EncodedLoader:
        """Training batches whose init scores include the interactions, fitted for each row without that row.

        Rows of a stream get the plain ones, which are fitted on a sample of the stream.
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
        rows, scores = split_scores(rows, self.outputs)
        return append_scores(self.inputs.select(rows), scores)

    def init_scores(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores of the pipeline."""
        return split_scores(Batch(numbers, ids), self.outputs)[1]

    def scores_with_interactions(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Init scores plus the scores of the interactions, for rows with selected columns."""
        rows, scores = split_scores(Batch(numbers, ids), self.outputs)
        return scores + in_row_blocks(lambda x: self.model.interaction_scores(self.model.codes(x)), concat(rows))
