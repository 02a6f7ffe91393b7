"""The candidates of the training of a residual model, without the boosted residual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windtunnel.modules.base import Module
from windtunnel.program.records.fit_record import FEWEST_ROWS
from windtunnel.program.records.number_text import estimate_text
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.candidates.candidate import Candidate
from windtunnel.trainers.candidates.installed_part import part_to_install
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import evaluate_program
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.half_models import HalfModels
from windtunnel.trainers.residual.init_scores import InitScorer
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.residual.preparation import ResidualSetup
from windtunnel.trainers.residual.residual_training import NO_COLUMN, TrainedResidual
from windtunnel.trainers.significance.significance_test import SignificanceTest

TREE_BLOCK_WEIGHTS = "tree-block weights"
"""The name of the candidate."""


def residual_candidates(
    net: TranslatedPipeline,
    data: DataModule,
    setup: ResidualSetup,
    trained: TrainedResidual,
    recipe: Recipe,
) -> list[Candidate]:
    """Candidates, simplest first: translation, source pipeline, tree-block weights, interactions, residual model."""
    of_model = [
        _interactions_candidate(setup),
        _residual_candidate(setup.half_models, trained, recipe),
    ]
    return _pipeline_candidates(net, data, setup, recipe) + [
        replace(
            candidate,
            pipeline=setup.pipeline,
            tested_against=extended_candidate(setup),
            installed_part=part_to_install(candidate.test, recipe),
        )
        for candidate in of_model
        if candidate is not None
    ]


def extended_candidate(setup: ResidualSetup) -> str:
    """The candidate that residual models extend: the tree-block weights if they passed, else none: the source."""
    return TREE_BLOCK_WEIGHTS if setup.has_block_weights else ""


def _pipeline_candidates(
    net: TranslatedPipeline, data: DataModule, setup: ResidualSetup, recipe: Recipe
) -> list[Candidate]:
    """The candidates without a residual model."""
    source, weighted = PipelineState.source(net), setup.weighted_trees
    base = setup.pipeline.program

    def candidate(name: str, modules: Mapping[int, Module]) -> Candidate:
        """The program with these modules in place of its own, evaluated."""
        if modules == setup.pipeline.modules:
            evaluation = setup.evaluator.evaluate(setup.initial.init_scores, setup.valid)
            # Epoch 0 has the interactions too, and the random factors of the columns.
            is_epoch_0 = not len(setup.initial.model.interactions) and not setup.initial.reads_columns
            epoch = 0 if is_epoch_0 else None
        else:
            scorer = InitScorer(net, base.with_modules(modules).eval())
            evaluation = setup.evaluator.evaluate(scorer.scores, data.valid)
            epoch = None
        if base is not net.program and setup.evaluator.metric.name != "loss":
            # Outputs of the source: clipping of probabilities alone lowers the log loss, and labels may differ.
            program = net.program.with_modules(modules).eval()
            evaluation = evaluation._replace(metric=evaluate_program(net, program, recipe, data.valid).metric)
        return Candidate(name, evaluation, epoch)

    candidates = [replace(candidate("translation", {}), pipeline=net.state())]
    if source.modules:
        candidates.append(replace(candidate("source pipeline", source.modules), pipeline=source))
    if weighted is not None:
        modules, test = {**source.modules, weighted.position: weighted.trees}, weighted.test
        trees = candidate(TREE_BLOCK_WEIGHTS, modules)
        details = f"weights of the first to the last block {', '.join(f'{each:.2g}' for each in weighted.weights)}"
        trees = replace(trees, test=test, rejected=test.reason, details=details, pipeline=setup.pipeline)
        candidates.append(trees)
    return candidates


def _interactions_candidate(setup: ResidualSetup) -> Candidate | None:
    """The interactions alone, where any were selected."""
    initial, halves = setup.initial, setup.half_models
    if halves.interaction_test is None:
        return None
    if not halves.interaction_test.significant:
        test, scores = halves.interaction_test, halves.pipeline_scores + halves.interaction_scores
        evaluation = setup.evaluator.evaluate_scores(scores, halves.rows.targets)
        return Candidate("interactions", evaluation, test=test, rejected=test.reason)
    test = halves.compare(halves.pipeline_scores, halves.scores_with_interactions)
    return Candidate(
        "interactions",
        setup.evaluator.evaluate(initial.init_scores, initial.validation_batches(setup.valid)),
        epoch=0,
        test=test,
        rejected=test.reason,
        residual=initial.interactions_alone,
        other_half_scores=halves.scores_with_interactions,
    )


def _residual_candidate(halves: HalfModels, trained: TrainedResidual, recipe: Recipe) -> Candidate:
    """The whole residual model, with the columns of the best epoch.

    It is rejected where the test rows show no gain, of the whole model or of its columns. A gain need not exceed its
    standard error: the models that are tested were selected on half of the rows, so that they are worse than this one.
    """
    training = trained.training
    if not training.best_epoch:
        change = "lowers the loss of epoch 0 and improves" if recipe.epoch_by_loss else "improves"
        reason = f"no epoch {change} {halves.evaluator.metric.name}" if trained.residual.reads_columns else NO_COLUMN
        return Candidate("residual model", None, rejected=reason)
    other_half_scores = halves.scores_with_interactions + trained.scores
    test = halves.compare(halves.pipeline_scores, other_half_scores)
    columns = halves.compare(halves.scores_with_interactions, other_half_scores)
    rejected = _why_rejected(test, trained)
    if not rejected and (reason := _why_rejected(columns, trained)):
        rejected = f"its columns alone: loss {estimate_text(-columns.gain, columns.standard_error)}; {reason}"
    return Candidate(
        "residual model",
        training.best,
        epoch=training.best_epoch,
        test=test,
        rejected="" if recipe.select == "best_epoch" else rejected,
        residual=trained.residual.installable,
        other_half_scores=other_half_scores,
    )


def _why_rejected(test: SignificanceTest, trained: TrainedResidual) -> str:
    """Why a residual model is rejected; empty where it is not."""
    may_gain = trained.is_tested_by_halves and test.gain > 0 and not test.worse and test.rows >= FEWEST_ROWS
    return "" if may_gain else test.reason
