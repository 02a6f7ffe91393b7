"""Leaf values of forests in a refresh: means of targets, which new rows join."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.ensembles.log_pool import LogProbabilities, log_probabilities
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.program import position_of
from windtunnel.program.translated import TranslatedPipeline

EQUAL_ANCHOR = 50.0
"""The anchor with which a training row of a leaf weighs as much as a new row."""


@dataclass(frozen=True)
class ForestLeaves:
    """A forest whose leaves hold the mean target, or the class frequencies, of their training rows."""

    position: int  # the program step of the forest
    trees: HardTrees
    leaf: Tensor  # int64 ``[N, T]``, the position in ``trees.value`` of the leaf that a row falls into
    takes_log: bool  # whether the scores are the logarithms of the output
    weight: float  # the weight of these scores in the raw scores

    @classmethod
    def of(cls, net: TranslatedPipeline, position: int, weight: float, rows: Batch) -> ForestLeaves | None:
        """The leaves that rows fall into, of the forest that gives the scores of a program step; None without one."""
        step: Any = net.program.steps[position]
        if takes_log := isinstance(step.module, LogProbabilities):
            position = position_of(step.takes[0].slot)
            step = net.program.steps[position]
        forest = step.module
        if not isinstance(forest, HardTrees) or not forest.vector or forest.divisor != len(forest.root):
            return None
        trees, leaves = leaves_of(net, position, forest, rows)
        return cls(position, trees, leaves[:, 0], takes_log, weight)

    def fit(self, target: Tensor, weight: Tensor, anchor: float) -> Tensor:
        """The values ``[positions, K]`` once the rows have joined the training rows of each leaf.

        value = (p old + sum of w y) / (p + sum of w), for classes with y = 1 for the class and 0 else. p is the number
        of training rows of the leaf times ``anchor / EQUAL_ANCHOR``; ``anchor`` itself where the trees do not store it.
        """
        old, prior = self.trees.value, self._prior(anchor)
        outputs = old.shape[1]
        y = target.double().view(len(target), -1)
        if not target.is_floating_point():
            y = torch.nn.functional.one_hot(target, outputs).double()
        total, count = torch.zeros_like(old), torch.zeros(len(old), 1, dtype=old.dtype)
        for leaf in self.leaf.t():
            total.index_add_(0, leaf, y * weight.unsqueeze(1))
            count.index_add_(0, leaf, weight.unsqueeze(1))
        return torch.where(prior + count > 0, (prior * old + total) / (prior + count), old)

    def _prior(self, anchor: float) -> Tensor:
        """The weight of the old value at each position, ``[positions, 1]``."""
        if self._training_rows is None:
            return torch.full((len(self.trees.value), 1), anchor, dtype=torch.float64)
        return self._training_rows * (anchor / EQUAL_ANCHOR)

    @cached_property
    def _training_rows(self) -> Tensor | None:
        """The number of training rows at each position, ``[positions, 1]``; None where the trees do not store it."""
        ensemble = self.trees.ensemble()
        if ensemble.leaf_cover is None:
            return None
        cover = np.broadcast_to(ensemble.leaf_cover[:, None], ensemble.leaf_value.shape)
        return HardTrees.of(replace(ensemble, leaf_value=cover)).value[:, :1]

    def change(self, value: Tensor) -> Tensor:
        """How other values change the raw scores of the rows, ``[N, K]``."""
        return self.weight * (self._scores(value) - self._scores(self.trees.value))

    def _scores(self, value: Tensor) -> Tensor:
        total = self.trees.base.expand(len(self.leaf), -1).clone()
        for leaf in self.leaf.t():
            total += value[leaf]
        mean = total / self.trees.divisor
        return log_probabilities(mean) if self.takes_log else mean


def leaves_of(net: TranslatedPipeline, position: int, trees: HardTrees, rows: Batch) -> tuple[HardTrees, Tensor]:
    """The trees of a program step in the plain form, and the positions in its ``value`` of the leaves of rows."""
    plain = HardTrees.of(trees.ensemble())  # other forms lay leaves out otherwise
    inputs = net.step_inputs(position, rows)
    plain.cast(inputs.dtype)
    return plain, plain.leaf_positions(inputs)
