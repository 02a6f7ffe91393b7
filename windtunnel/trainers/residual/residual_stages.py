"""The residual model at its stages, from the fitted interactions to what is installed.

1. ``ResidualModel`` (in ``modules/linear``): tables of interactions and columns, a factorization machine.
2. ``ResidualForTraining``: one with fitted interactions and untrained columns, with the columns of the rows that it
   reads. ``interactions.fit_interactions`` makes it.
3. ``ResidualOnInitScores``: the module that Lightning trains, on the codes of rows and their init scores. Codes are
   looked up once, not in each epoch.
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
    init scores ``[B, K]``, codes int64 ``[B, columns]`` -> ``[B, K]``
    """

    def __init__(self, residual: ResidualModel) -> None:
        super().__init__()
        self.residual = residual

    def forward(self, scores: Tensor, codes: Tensor) -> Tensor:
        """The sum of both."""
        return scores + self.residual.column_scores(codes)


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
        """Codes of training rows, with init scores that include the interactions, fitted for each row without that row.

        Rows of a stream get the plain ones, which are fitted on a sample of the stream.
        """
        return loader.map(self._coded_with_interactions, lambda rows: self._coded(rows, self.offset))

    def validation_batches(self, loader: EncodedLoader) -> EncodedLoader:
        """Codes of validation rows, with init scores that include the interactions."""
        return loader.map(self._coded_with_interactions)

    def init_scores(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The init scores of rows or codes that have some."""
        return split_scores(Batch(numbers, ids), self.outputs)[1]

    def _coded_with_interactions(self, rows: Batch) -> Batch:
        coded = self._coded(rows)
        return Batch(coded.numbers + in_row_blocks(self.model.interaction_scores, coded.ids), coded.ids)

    def _coded(self, rows: Batch, offset: Tensor | float = 0.0) -> Batch:
        """The codes of rows with init scores, and these scores plus an offset in the place of the numbers."""
        rows, scores = split_scores(rows, self.outputs)
        return Batch(scores + offset, in_row_blocks(self.model.codes, concat(self.inputs.select(rows))))
