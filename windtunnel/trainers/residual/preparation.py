"""All that precedes the training of a residual model: tree-block weights, init scores, interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.base import Module
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.program.residual_base import ResidualBase
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.collected_rows import MAX_RESIDUAL_ROWS
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.loop.data_module import DataModule, Loaders
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.column_coder import ColumnCoder
from windtunnel.trainers.residual.half_models import HalfModels
from windtunnel.trainers.residual.init_scores import InitScorer, split_scores
from windtunnel.trainers.residual.interactions import RowsWithResiduals, fit_interactions
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.residual.residual_stages import ResidualForTraining
from windtunnel.trainers.residual.tree_block_weights import WeightedTrees, fit_tree_block_weights
from windtunnel.trainers.significance.validation_halves import split_in_halves


@dataclass(frozen=True)
class ResidualSetup:
    """A residual model before its training, and the rows to train and validate it on."""

    initial: ResidualForTraining
    half_models: HalfModels
    coder: ColumnCoder
    # gives the init scores: the source pipeline, with tree-block weights where they are significant
    pipeline: PipelineState
    weighted_trees: WeightedTrees | None
    # train, valid: the rows of ``fit`` with init scores
    train: EncodedLoader
    valid: EncodedLoader
    train_rows: LabelledRows  # training rows with init scores, without those of weight 0: all, or a sample of a stream

    @property
    def evaluator(self) -> Evaluator:
        """Evaluates scores of the pipeline, with and without a residual model."""
        return self.initial.evaluator

    @property
    def has_block_weights(self) -> bool:
        """Whether the pipeline has tree-block weights, as they are significant."""
        return _are_significant(self.weighted_trees)

    def split_scores(self, rows: Batch) -> tuple[Batch, Tensor]:
        """Rows without init scores, and these ``[N, K]``."""
        return split_scores(rows, self.initial.outputs)

    def training_loaders(self) -> Loaders:
        """The same rows with the scores of the interactions added, and only the columns that the model reads."""
        train = self.initial.training_batches(self.train)
        return Loaders(train, self.initial.validation_batches(self.valid))


@dataclass(frozen=True)
class NoResidual:
    """Why no residual model can be trained."""

    reason: str
    only_rows_prevent_it: bool  # whether the translation and the loss would take one


def residual_base_for_loss(net: TranslatedPipeline, recipe: Recipe) -> ResidualBase | None:
    """The base of a residual model with the loss of a recipe; None where a residual model is impossible.

    A loss of the scores of the source, which may be margins, does not fit the logarithms of its probabilities.
    """
    base = net.residual_base()
    of_log_probabilities = base is not None and base.program is not net.program and net.head.link not in PROBABILITIES
    of_source_scores = recipe.loss not in (None, "softmax") or recipe.metric == "loss"
    return None if of_log_probabilities and of_source_scores else base


def why_impossible(net: TranslatedPipeline, recipe: Recipe) -> str:
    """Why ``residual_base_for_loss`` gives None; empty where it does not."""
    if residual_base_for_loss(net, recipe) is not None:
        return ""
    reason = net.why_no_residual_model()
    return f"the translation takes none: {reason or 'the loss is of scores that its probabilities do not follow from'}"


def prepare_residual(net: TranslatedPipeline, data: DataModule, recipe: Recipe) -> ResidualSetup | NoResidual:
    """Fit tree-block weights and interactions.

    That needs two validation rows: one half of them takes part in fitting, the other half tests the result.
    """
    base = residual_base_for_loss(net, recipe)
    if base is None:
        return NoResidual(why_impossible(net, recipe), only_rows_prevent_it=False)
    generator = torch.Generator().manual_seed(recipe.seed)
    validation = LabelledRows.of(data.valid.collect(MAX_RESIDUAL_ROWS))
    halves = split_in_halves(validation, recipe.seed)
    if not all(map(len, halves.halves)):
        return NoResidual("a residual model needs two validation rows", only_rows_prevent_it=True)
    evaluator = Evaluator.of_scores(recipe, base.head, base.program)
    weighted = fit_tree_block_weights(net, base.program, validation, halves, evaluator, generator)
    pipeline = PipelineState(base.program, _modules_below(net, weighted), base.head)
    scorer = InitScorer(net, pipeline.exact_program())
    train, valid = scorer.add_to(data.train), scorer.add_to(data.valid)
    train_rows = LabelledRows.of(train.collect(MAX_RESIDUAL_ROWS)).counted()
    valid_rows = validation.with_rows(scorer.add_init_scores(validation.rows) if valid.rows is None else valid.rows)
    rows = RowsWithResiduals.of(net, base.head, train_rows, valid_rows, evaluator, generator)
    initial, half_models = fit_interactions(rows, valid_rows, halves, recipe.residual_rank, generator)
    return ResidualSetup(
        initial=initial,
        half_models=half_models,
        coder=rows.coder,
        pipeline=pipeline,
        weighted_trees=weighted,
        train=train,
        valid=valid,
        train_rows=train_rows,
    )


def _modules_below(net: TranslatedPipeline, weighted: WeightedTrees | None) -> dict[int, Module]:
    """The exact modules of the pipeline below a residual model, with tree-block weights where they are significant."""
    modules = dict(net.exact_modules)
    if _are_significant(weighted):
        modules[weighted.position] = weighted.trees
    return modules


def _are_significant(weighted: WeightedTrees | None) -> TypeGuard[WeightedTrees]:
    """Whether there are tree-block weights that passed their test."""
    return weighted is not None and weighted.test.significant
