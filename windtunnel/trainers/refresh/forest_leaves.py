"""Leaf values of forests in a refresh: means of targets, which new rows join."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windtunnel.modules.ensembles.log_pool import LogProbabilities, log_probabilities
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.translated import TranslatedPipeline

EVEN = 50.0
"""The anchor with which a training row of a leaf weighs as much as a new row."""


@dataclass(frozen=True)
class ForestLeaves:
    """A forest whose leaves hold the mean target, or the class frequencies, of their training rows.

    Attributes
    ----------
    position : int
        Its program step.
    trees : HardTrees
    leaf : Tensor
        int64 ``[N, T]``, the position in ``trees.value`` of the leaf that a row falls into.
    takes_log : bool
        Whether the raw score is the logarithm of the output.
    """

    position: int
    trees: HardTrees
    leaf: Tensor
    takes_log: bool

    @classmethod
    def of(cls, net: TranslatedPipeline, position: int, inputs: Tensor) -> ForestLeaves:
        """The leaves of ``inputs`` ``[N, width]`` of the forest in a program step."""
        step: Any = net.program.steps[position]
        trees = HardTrees.of(step.module.ensemble())
        trees.cast(inputs.dtype)
        following: Any = net.program.steps[position + 1]
        leaf = trees.leaf_positions(inputs)[:, 0]
        return cls(position, trees, leaf, isinstance(following.module, LogProbabilities))

    def fit(self, target: Tensor, weight: Tensor, anchor: float) -> Tensor:
        """The values ``[positions, K]`` once the rows have joined the training rows of each leaf.

        value = (p old + sum of w y) / (p + sum of w), for classes with y = 1 for the class and 0 else. p is the number
        of training rows of the leaf times ``anchor / EVEN``; ``anchor`` itself where the trees do not store it.
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
        ensemble = self.trees.ensemble()
        if ensemble.leaf_cover is None:
            return torch.full((len(self.trees.value), 1), anchor, dtype=torch.float64)
        cover = np.broadcast_to(ensemble.leaf_cover[:, None], ensemble.leaf_value.shape)
        return HardTrees.of(replace(ensemble, leaf_value=cover)).value[:, :1] * (anchor / EVEN)

    def change(self, value: Tensor) -> Tensor:
        """How other values change the raw scores of the rows, ``[N, K]``."""
        return self._scores(value) - self._scores(self.trees.value)

    def _scores(self, value: Tensor) -> Tensor:
        total = self.trees.base.expand(len(self.leaf), -1).clone()
        for leaf in self.leaf.t():
            total += value[leaf]
        mean = total / self.trees.divisor
        return log_probabilities(mean) if self.takes_log else mean


def forest_position(net: TranslatedPipeline, before: int) -> int | None:
    """The program step of the forest whose scores, or their logarithms, enter step ``before``; None without one."""
    for position in (before - 1, before - 2):
        step: Any = net.program.steps[position]
        trees = step.module
        if isinstance(trees, HardTrees) and trees.vector and trees.divisor == len(trees.root):
            return position
        if not isinstance(trees, LogProbabilities):
            return None
    return None
