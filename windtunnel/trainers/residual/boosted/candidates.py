"""The boosted residual among the candidates of ``fit``: on top of the pipeline, and of the residual model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.objectives.losses import CustomLoss
from windtunnel.objectives.metrics import Metric
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.loop.evaluation import evaluate_both
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.boosted.features import BoostedFeatures, fit_features
from windtunnel.trainers.residual.boosted.fit_boosted import fit_boosted
from windtunnel.trainers.residual.candidates import Candidate, select
from windtunnel.trainers.residual.init_scores import InputColumns, concat, in_slices
from windtunnel.trainers.residual.installation import FrozenPipeline
from windtunnel.trainers.residual.setup import ResidualSetup, significant_trees
from windtunnel.trainers.residual.significance import compare_scores

MIN_ROWS = 3000
"""Training rows from which target statistics of interactions say more than noise."""
STANDARD_ERRORS = 2
"""By which the loss must be lower than that of the best other candidate, as trees fit what changes with time too."""
NO_TREE = "no tree lowers the loss of the validation rows"


@dataclass(frozen=True)
class AdditiveScores:
    """Scores of the residual model that boosting starts from: 0 without one.

    Attributes
    ----------
    train, valid : Tensor
        ``[N, K]``, of rows that had no part in fitting the interactions.
    residual : ResidualModel or None
    inputs : InputColumns or None
    """

    train: Tensor
    valid: Tensor
    residual: ResidualModel | None = None
    inputs: InputColumns | None = None

    @classmethod
    def of(cls, candidate: Candidate, setup: ResidualSetup) -> AdditiveScores:
        """The scores of a candidate with a residual model."""
        initial, residual, inputs = setup.initial, candidate.residual, candidate.inputs
        assert residual is not None and inputs is not None

        def columns(rows: Batch) -> Tensor:
            return in_slices(
                lambda x: residual.column_scores(residual.codes(x)), concat(inputs.select(setup.without_scores(rows)))
            )

        offset = initial.offset if setup.mask is None else initial.offset[setup.mask]
        crossfitted = initial.crossfitted * bool(len(residual.interactions))
        return cls(offset + columns(setup.items[0][0]), crossfitted + columns(setup.items[1][0]), residual, inputs)

    def scores(self, rows: Batch) -> Tensor | float:
        """Scores of new rows without init scores."""
        if self.residual is None or self.inputs is None:
            return 0.0
        return in_slices(self.residual, concat(self.inputs.select(rows)))


def add_boosted(
    net: TranslatedPipeline, setup: ResidualSetup, candidates: Sequence[Candidate], recipe: Recipe, metric: Metric
) -> list[Candidate]:
    """The candidates, and behind them the boosted residual on top of the best of these.

    There is none with fewer than ``MIN_ROWS`` training rows, or with a custom loss, whose derivatives for single rows
    may not be defined.
    """
    if isinstance(setup.initial.loss, CustomLoss) or len(setup.items[0][1]) < MIN_ROWS:
        return list(candidates)
    features = fit_features(net.head, setup.initial.coder, *setup.items, setup.initial.loss, recipe.seed)
    if features is None:
        return list(candidates)
    pipeline = FrozenPipeline(net.program, dict(net.exact_modules) | significant_trees(setup.weighted), net.head)
    best = select(candidates, metric)
    of_train, of_valid = (torch.zeros_like(setup.init_scores(rows)) for rows, *_ in setup.items)
    additive = AdditiveScores(of_train, of_valid) if best.residual is None else AdditiveScores.of(best, setup)
    return [*candidates, _candidate(best, additive, pipeline, setup, features, recipe, metric)]


def _candidate(
    best: Candidate,
    additive: AdditiveScores,
    pipeline: FrozenPipeline,
    setup: ResidualSetup,
    features: BoostedFeatures,
    recipe: Recipe,
    metric: Metric,
) -> Candidate:
    """A boosted residual on top of the best candidate; rejected unless its loss is lower than that of this one."""
    name = "boosted residual" if best.residual is None else f"{best.name} + boosted"
    loss, (train, valid) = setup.initial.loss, setup.items
    pipeline_scores, of_train = setup.init_scores(valid[0]), setup.init_scores(train[0])
    start = pipeline_scores + additive.valid
    boosted = fit_boosted(
        features, (of_train + additive.train, *train[1:]), (start, *valid[1:]), setup.split.halves, loss, recipe.seed
    )
    if boosted is None:
        return Candidate(name, None, rejected=NO_TREE)

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        rows = Batch(numbers, ids)
        encoded = setup.without_scores(rows)
        return boosted.scores(encoded, setup.init_scores(rows) + additive.scores(encoded))

    val_loss, value = evaluate_both(metric, loss, scores, setup.valid)
    test = compare_scores(metric, loss, setup.split, pipeline_scores, boosted.crossfitted, *valid[1:])
    of_trees = compare_scores(metric, loss, setup.split, start, boosted.crossfitted, *valid[1:])
    rejected = test.reason
    if not rejected and of_trees.gain <= STANDARD_ERRORS * of_trees.standard_error:
        change = f"loss {-of_trees.gain:+.4f} ± {of_trees.standard_error:.4f}"
        rejected = f"compared with {best.name}: {change}; needs more than {STANDARD_ERRORS} standard errors"
    elif not rejected and not of_trees.significant:
        rejected = f"compared with {best.name}: {of_trees.reason}"
    return Candidate(
        name,
        value,
        val_loss,
        test=test,
        rejected=rejected,
        pipeline=pipeline,
        residual=additive.residual,
        inputs=additive.inputs,
        boosted=boosted,
    )
