"""The boosted residual among the candidates of ``fit``: on top of the pipeline, and of the residual model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.objectives.losses import CustomLoss
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.fit_record import FEWEST_ROWS, PREFERRED
from windtunnel.trainers.candidates.candidate import Candidate, select
from windtunnel.trainers.candidates.installed_part import part_to_install
from windtunnel.trainers.candidates.residual_candidates import extended_candidate
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.boosted.features import BoostedFeatures, fit_features
from windtunnel.trainers.residual.boosted.fit_boosted import fit_boosted
from windtunnel.trainers.residual.preparation import ResidualSetup

MIN_ROWS = 3000
"""With fewer training rows, target statistics of interactions are mostly noise."""
NO_TREE = "no tree lowers the loss of the validation rows"


def add_boosted(setup: ResidualSetup, candidates: Sequence[Candidate], recipe: Recipe) -> list[Candidate]:
    """The candidates, and behind them the boosted residual, which is built on the best of them.

    If it passes its test, it replaces all candidates that change the scores of the pipeline. With fewer than
    ``MIN_ROWS`` training rows there is no boosted residual, and none with a custom loss, whose derivatives for single
    rows may not be defined.
    """
    if isinstance(setup.evaluator.loss, CustomLoss) or len(setup.train_rows) < MIN_ROWS:
        return list(candidates)
    rows, metric = (setup.train_rows, setup.half_models.rows), setup.evaluator.metric
    features = fit_features(setup.pipeline.head, setup.coder, *rows, setup.evaluator.loss, recipe.seed)
    if features is None:
        return list(candidates)
    boosted = _candidate(select(candidates, metric), setup, features, recipe)
    return [*candidates, boosted] if recipe.select == "best_epoch" else replace_by_boosted(boosted, candidates, metric)


def replace_by_boosted(boosted: Candidate, candidates: Sequence[Candidate], metric: Metric) -> list[Candidate]:
    """The candidates and the boosted residual, which replaces those that change the scores of the pipeline.

    These are rejected even if their metric is better: the validation rows selected their interactions, so that it is
    too good. Where their metric was better in our experiments, the boosted residual was as good or better on other
    rows (docs/tried.md). If the boosted residual is rejected itself, or the metric of the pipeline is better, it
    replaces nothing.
    """
    unchanged = [candidate for candidate in candidates if not candidate.changes_scores]
    if select([*unchanged, boosted], metric) is not boosted:
        return [*candidates, boosted]
    reason = f"{boosted.name} {PREFERRED}, whatever their {metric.name}"
    others = [
        replace(each, rejected=reason, is_replaced=True) if each.changes_scores and not each.rejected else each
        for each in candidates
    ]
    return [*others, boosted]


def _candidate(best: Candidate, setup: ResidualSetup, features: BoostedFeatures, recipe: Recipe) -> Candidate:
    """A boosted residual on top of the best candidate; rejected where it is significantly worse than the pipeline.

    A mean of models that err differently errs less than either. In our experiments half of the change gained on rows
    that no decision saw, even where the test saw a small loss (docs/tried.md). With fewer than ``FEWEST_ROWS`` rows
    hardly any change is significantly worse; there it must be significantly better.
    """
    name = "boosted residual" if best.residual is None else f"{best.name} + boosted"
    halves, residual, train = setup.half_models, best.residual, setup.train_rows
    of_best = halves.pipeline_scores if best.other_half_scores is None else best.other_half_scores
    rows = train.with_rows(setup.split_scores(train.rows)[1]), halves.rows.with_rows(of_best)
    boosted = fit_boosted(features, *rows, halves.split, setup.evaluator.loss, setup.initial.model.unit, recipe.seed)
    if boosted is None:
        return Candidate(name, None, rejected=NO_TREE)

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        encoded, start = setup.split_scores(Batch(numbers, ids))
        return boosted.scores(encoded, start if residual is None else start + residual.scores(encoded))

    test = halves.compare(halves.pipeline_scores, boosted.other_half_scores)
    return Candidate(
        name,
        setup.evaluator.evaluate(scores, setup.valid),
        test=test,
        tested_against=extended_candidate(setup),
        rejected=test.reason if recipe.select == "test" and (test.worse or test.rows < FEWEST_ROWS) else "",
        epoch=None if residual is None else best.epoch,
        pipeline=setup.pipeline,
        residual=residual,
        boosted=boosted,
        installed_part=part_to_install(test, recipe),
    )
