"""The boosted residual among the candidates of ``fit``: on top of the pipeline, and of the residual model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.objectives.losses import CustomLoss
from windtunnel.objectives.metrics import Metric
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.loop.evaluation import evaluate_both
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.boosted.features import BoostedFeatures, fit_features
from windtunnel.trainers.residual.boosted.fit_boosted import fit_boosted
from windtunnel.trainers.residual.candidates import Candidate, select, shrinkage
from windtunnel.trainers.residual.setup import ResidualSetup
from windtunnel.trainers.residual.significance import compare_scores
from windtunnel.trainers.residual.training import FittedResidual

MIN_ROWS = 3000
"""With fewer training rows, target statistics of interactions are mostly noise."""
STANDARD_ERRORS = 2
"""The loss must be this many standard errors below that of the best other candidate: trees also fit what changes with
time."""
NO_TREE = "no tree lowers the loss of the validation rows"


def add_boosted(
    net: TranslatedPipeline, setup: ResidualSetup, candidates: Sequence[Candidate], recipe: Recipe, metric: Metric
) -> list[Candidate]:
    """The candidates, and behind them the boosted residual on top of the best of these.

    With fewer than ``MIN_ROWS`` training rows there is no boosted residual, and none with a custom loss, whose
    derivatives for single rows may not be defined.
    """
    if isinstance(setup.initial.loss, CustomLoss) or len(setup.items[0][1]) < MIN_ROWS:
        return list(candidates)
    features = fit_features(net.head, setup.initial.coder, *setup.items, setup.initial.loss, recipe.seed)
    if features is None:
        return list(candidates)
    best = select(candidates, metric)
    return [*candidates, _candidate(best, setup, features, recipe, metric)]


def _init_scores(residual: FittedResidual | None, setup: ResidualSetup) -> tuple[Tensor, Tensor]:
    """Scores that boosting starts from, of training rows and of validation rows ``[N, K]``.

    They are those of the pipeline and of a residual model whose interactions were fitted without the row.
    """
    (train, of_train), (valid, of_valid) = (setup.split_scores(rows) for rows, *_ in setup.items)
    if residual is None:
        return of_train, of_valid
    crossfitted = setup.initial.crossfitted * bool(len(residual.model.interactions))
    of_train = of_train + (setup.initial.offset + residual.column_scores(train))
    return of_train, of_valid + (crossfitted + residual.column_scores(valid))


def _candidate(
    best: Candidate,
    setup: ResidualSetup,
    features: BoostedFeatures,
    recipe: Recipe,
    metric: Metric,
) -> Candidate:
    """A boosted residual on top of the best candidate; rejected unless it beats the pipeline and that candidate."""
    name = "boosted residual" if best.residual is None else f"{best.name} + boosted"
    residual, loss, split, (train, valid) = best.residual, setup.initial.loss, setup.initial.split, setup.items
    of_train, of_valid = _init_scores(residual, setup)
    boosted = fit_boosted(features, (of_train, *train[1:]), (of_valid, *valid[1:]), split.halves, loss, recipe.seed)
    if boosted is None:
        return Candidate(name, None, rejected=NO_TREE)

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        encoded, start = setup.split_scores(Batch(numbers, ids))
        return boosted.scores(encoded, start if residual is None else start + residual.scores(encoded))

    val_loss, value = evaluate_both(metric, loss, scores, setup.valid)
    _, of_pipeline = setup.split_scores(valid[0])
    test, test_on_best = (
        compare_scores(metric, loss, split, before, boosted.crossfitted, *valid[1:])
        for before in (of_pipeline, of_valid)
    )
    rejected = test.reason
    if not rejected and test_on_best.gain <= STANDARD_ERRORS * test_on_best.standard_error:
        change = f"loss {-test_on_best.gain:+.4f} ± {test_on_best.standard_error:.4f}"
        rejected = f"compared with {best.name}: {change}; needs more than {STANDARD_ERRORS} standard errors"
    elif not rejected and not test_on_best.significant:
        rejected = f"compared with {best.name}: {test_on_best.reason}"
    return Candidate(
        name,
        value,
        val_loss,
        test=test,
        rejected=rejected,
        pipeline=setup.pipeline,
        residual=residual,
        boosted=boosted,
        shrinkage=shrinkage(test, recipe),
    )
