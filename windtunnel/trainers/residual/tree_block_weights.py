"""Weights in [0, 1] of blocks of boosted trees, which scale down late trees that overfit."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss
from windtunnel.program.program import Program
from windtunnel.program.records.number_text import value_text
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.significance.significance_test import SignificanceTest, compare_losses_and_metrics
from windtunnel.trainers.significance.validation_halves import ValidationHalves

TREE_BLOCKS = 10
"""Blocks of rounds of equal length, each with a weight."""
STEPS = 200
LEARNING_RATE = 0.02
"""Steps of Adam and their rate: from 1 every weight can reach 0."""
MAX_FITTED_ROWS = 10_000
"""Validation rows that the weights are fitted on; few weights need no more."""


@dataclass(frozen=True)
class ScaledTrees:
    """Boosted trees with scaled leaf values."""

    trees: HardTrees
    weights: Tensor  # ``[TREE_BLOCKS]``


@dataclass(frozen=True)
class WeightedTrees:
    """Scaled trees, and their test against the trees of the source."""

    position: int  # of their program step
    trees: HardTrees
    weights: Tensor  # ``[TREE_BLOCKS]``
    test: SignificanceTest


def fit_tree_block_weights(
    net: TranslatedPipeline,
    program: Program,
    valid: LabelledRows,
    split: ValidationHalves,
    evaluator: Evaluator,
    generator: torch.Generator,
) -> WeightedTrees | None:
    """Fit tree-block weights on the validation rows, and test those of each half on the other.

    For the test each half of the rows has the scores of weights that were fitted on the other half. Weights that worsen
    the metric of the rows that they are fitted on are not significant. Returns None if the program ends in no boosted
    trees, or if all weights are 1.
    """
    position = len(program.steps) - 1
    trees: Any = net.exact_modules.get(position, program.steps[position].module)
    if not isinstance(trees, HardTrees):
        return None
    trees, program = deepcopy(trees).cpu(), program.with_modules(net.exact_modules).eval()
    inputs = net.run_in_slices(partial(program.inputs_of, position), valid.rows)
    rows = valid.with_rows(inputs)
    fit = partial(fit_block_weights, trees, loss=evaluator.averaged_loss, generator=generator)
    weighted = fit(rows.take(split.all_rows))
    if weighted is None:
        return None
    of_halves = [fit(rows.take(half)) for half in split.halves]
    trees_of_halves = [trees if half is None else half.trees for half in of_halves]
    with torch.no_grad():
        before = trees(inputs)
        after = before.clone()
        for half_trees, (_, tested) in zip(trees_of_halves, split.tested_on(), strict=True):
            after[tested] = half_trees(inputs[tested])
        fitted = weighted.trees(inputs)
    test = compare_losses_and_metrics(evaluator, split, before, after, valid.targets)
    if test.significant:
        old, new = (evaluator.metric_of_scores(each, valid.targets) for each in (before, fitted))
        if evaluator.metric.better(old, new):
            values = f"{value_text(old)} -> {value_text(new)}"
            reason = f"the loss is lower, but {evaluator.metric.name} gets worse on all rows ({values})"
            test = replace(test, reason=reason)
    if test.significant:
        weighted = _shrunken(trees, weighted, test.shrinkage, inputs.dtype)
    return WeightedTrees(position, weighted.trees, weighted.weights, test)


def fit_block_weights(
    trees: HardTrees, rows: LabelledRows, loss: Loss, generator: torch.Generator
) -> ScaledTrees | None:
    """Scale the leaf values of each block of boosting rounds by its weight; None where all weights are 1.

    With v_b the sum of the trees of block b, the weights minimise loss(base + sum_b w_b v_b) over w in [0, 1] by
    projected gradient steps from w = 1. If boosting stopped early, all weights stay at 1; if it went on too
    long, the last blocks lose most of their weight. The scores of all classes share the weights.

    ``rows`` hold inputs of the trees ``[N, width]``, and the trees were not fitted on these rows; more than
    ``MAX_FITTED_ROWS`` are sampled. The trees are boosted, with one value per leaf. ``loss`` takes raw scores, targets
    and weights.
    """
    if trees.vector or trees.divisor != 1 or trees.root.shape[0] < TREE_BLOCKS * trees.outputs:
        return None
    rows = rows.random(MAX_FITTED_ROWS, generator)
    inputs: Tensor = rows.rows
    values = trees.leaf_values(inputs)  # [N, K, rounds]
    rounds = values.shape[2]
    block = torch.arange(rounds) * TREE_BLOCKS // rounds
    sums = values.new_zeros(*values.shape[:2], TREE_BLOCKS).index_add_(2, block, values).to(inputs.dtype)
    weights = _minimise(sums, trees.base.to(sums.dtype), loss, rows.targets)
    if bool((weights > 0.99).all()):
        return None
    ensemble = trees.ensemble()
    round_of_tree = pd.Series(ensemble.output).groupby(ensemble.output).cumcount().to_numpy()  # by output
    per_tree = weights[block].double().numpy()[round_of_tree]
    per_leaf = np.repeat(per_tree, np.diff(ensemble.leaf_start))
    return ScaledTrees(_with_leaves(ensemble, ensemble.leaf_value * per_leaf, inputs.dtype), weights)


def _shrunken(trees: HardTrees, scaled: ScaledTrees, factor: float, dtype: torch.dtype) -> ScaledTrees:
    """The trees with ``factor`` times what the weights change in their leaves."""
    old, new = trees.ensemble(), scaled.trees.ensemble()
    shrunken = _with_leaves(old, old.leaf_value + factor * (new.leaf_value - old.leaf_value), dtype)
    return ScaledTrees(shrunken, 1 + factor * (scaled.weights - 1))


def _with_leaves(ensemble: TreeEnsemble, values: NDArray[np.float64], dtype: torch.dtype) -> HardTrees:
    """The trees of an ensemble with other values of the leaves."""
    trees = HardTrees.of(replace(ensemble, leaf_value=values))
    trees.cast(dtype)
    return fastest(trees)


def _minimise(sums: Tensor, base: Tensor, loss: Loss, targets: Targets) -> Tensor:
    weights = torch.ones(TREE_BLOCKS, dtype=sums.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([weights], LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(loss(base + sums @ weights, *targets))
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(0, 1)
    return weights.detach()
