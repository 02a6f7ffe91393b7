"""The models that ``fit`` evaluates on the validation rows, and the selection of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.objectives.metrics import Metric
from windtunnel.program.history import CandidateResult
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.loop.evaluation import evaluate
from windtunnel.trainers.loop.module import DataModule
from windtunnel.trainers.loop.training import TrainingResult
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.init_scores import InputColumns, PipelineScorer
from windtunnel.trainers.residual.installation import FrozenPipeline
from windtunnel.trainers.residual.setup import ResidualSetup, significant_trees
from windtunnel.trainers.residual.significance import SignificanceTest
from windtunnel.trainers.residual.training import ResidualOnScores


@dataclass(frozen=True)
class Candidate:
    """A model that ``fit`` may install.

    Attributes
    ----------
    name : str
        See ``CandidateResult``.
    metric : float
        On all validation rows.
    loss : float or None
        On all validation rows, where it is computed.
    epoch : int
        The epoch of training whose weights it has; 0 without training.
    test : SignificanceTest or None
        Test on half of the validation rows against the pipeline that it extends.
    rejected : str
        Why it cannot be selected; empty where it can.
    pipeline : FrozenPipeline or None
        None leaves the program as it is.
    residual : ResidualModel or None
    inputs : InputColumns or None
        Of the residual model.
    """

    name: str
    metric: float
    loss: float | None = None
    epoch: int = 0
    test: SignificanceTest | None = None
    rejected: str = ""
    pipeline: FrozenPipeline | None = None
    residual: ResidualModel | None = None
    inputs: InputColumns | None = None


def select(candidates: Sequence[Candidate], metric: Metric) -> Candidate:
    """The candidate with the best metric; of equal ones the first."""
    best, *others = candidates
    for candidate in others:
        if not candidate.rejected and metric.better(candidate.metric, best.metric):
            best = candidate
    return best


def candidate_results(candidates: Sequence[Candidate], best: Candidate) -> list[CandidateResult]:
    """The numbers of all candidates, and the reason why each was kept or not."""
    return [
        CandidateResult(
            name=candidate.name,
            metric=candidate.metric,
            loss=candidate.loss,
            gain=None if candidate.test is None else candidate.test.gain,
            standard_error=None if candidate.test is None else candidate.test.standard_error,
            kept=candidate is best,
            reason="best metric" if candidate is best else candidate.rejected or f"{best.name} has the better metric",
        )
        for candidate in candidates
    ]


def residual_candidates(
    net: TranslatedPipeline,
    data: DataModule,
    setup: ResidualSetup,
    model: ResidualOnScores,
    training: TrainingResult,
    recipe: Recipe,
) -> list[Candidate]:
    """Candidates, simplest first: translation, source pipeline, tree-block weights, then the residual model.

    Without a significant residual model, its interactions alone take its place.
    """
    metric = recipe.metric_for(model)
    exact, weights = dict(net.exact_modules), significant_trees(setup.weighted)
    trees = exact | weights
    residual = _residual_candidate(net, setup, model, training, metric)

    def pipeline_metric(scorer: PipelineScorer) -> float:
        loss = setup.initial.loss
        if net.head.link in PROBABILITIES and metric.name != "loss":
            # Probabilities as the pipeline outputs them: the init scores are clipped, which alone lowers the log loss.
            return evaluate(recipe.metric_for(net), loss, scorer.outputs, data.valid)
        if scorer is as_is and trees:
            return evaluate(metric, loss, scorer.scores, data.valid)
        rows = setup.valid if scorer is setup.scorer else scorer.add_to(data.valid)
        return evaluate(metric, loss, setup.initial.init_scores, rows)

    as_is = PipelineScorer(net, net.program) if trees else setup.scorer
    candidates = [Candidate("translation", pipeline_metric(as_is))]
    if exact:
        scorer = PipelineScorer(net, net.program.with_modules(exact).eval()) if weights else setup.scorer
        pipeline = FrozenPipeline(net.program, exact, net.head)
        candidates.append(Candidate("source pipeline", pipeline_metric(scorer), pipeline=pipeline))
    pipeline = FrozenPipeline(net.program, trees, net.head)
    if weights and setup.weighted is not None:
        value = pipeline_metric(setup.scorer)
        candidates.append(Candidate("tree-block weights", value, test=setup.weighted.test, pipeline=pipeline))
    return candidates if residual is None else [*candidates, replace(residual, pipeline=pipeline)]


def _residual_candidate(
    net: TranslatedPipeline, setup: ResidualSetup, model: ResidualOnScores, training: TrainingResult, metric: Metric
) -> Candidate | None:
    """The residual model of the best epoch, where its columns are significant; else its interactions, if it has any."""
    trained = replace(setup.initial, model=model)
    if training.best_epoch and trained.compare(metric, trained.scores_with_interactions, trained.scores).significant:
        name, value, chosen = "residual model", training.best_metric, trained
        test = trained.compare(metric, trained.init_scores, trained.scores)
    elif len(setup.initial.residual.interactions):
        name, value, chosen = "interactions", training.epochs[0].metric, setup.initial
        test = chosen.compare(metric, chosen.init_scores, chosen.scores_with_interactions)
    else:
        return None
    epoch = training.best_epoch if chosen is trained else 0
    return Candidate(
        name,
        value,
        loss=training.epochs[epoch].val_loss if epoch < len(training.epochs) else None,
        epoch=epoch,
        test=test,
        rejected="" if test.significant else "not significant on validation rows that had no part in fitting",
        residual=chosen.residual,
        inputs=chosen.inputs,
    )
