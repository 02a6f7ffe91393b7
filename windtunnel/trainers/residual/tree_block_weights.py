"""Gates on blocks of boosted trees: late trees that only hold for the rows they were fitted on count for less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss

BLOCKS = 10
STEPS = 200
RATE = 0.02
MOST_ROWS = 10_000


@dataclass(frozen=True)
class Judged:
    """Rows that the source was not fitted on: what reaches its trees ``[N, width]``, targets and weights."""

    inputs: Tensor
    target: Tensor
    weight: Tensor | None = None

    def some(self, generator: torch.Generator) -> Judged:
        """At most ``MOST_ROWS`` of them, at random."""
        if len(self.target) <= MOST_ROWS:
            return self
        rows = torch.randperm(len(self.target), generator=generator)[:MOST_ROWS]
        return Judged(self.inputs[rows], self.target[rows], None if self.weight is None else self.weight[rows])


def gated(trees: HardTrees, judged: Judged, loss: Loss, generator: torch.Generator) -> HardTrees | None:
    """Boosted trees with the values of each block of rounds scaled by its gate; None where no gate closes.

    With v_b the sum of the trees of block b, the gates minimise loss(base + sum_b g_b v_b) over g in [0, 1], from 1 on
    by projected gradient steps. A source that stopped early by rows of its own keeps its trees as they are; one that
    went on too long loses most of its last ones. There is one gate for the scores of all classes.

    Parameters
    ----------
    trees : HardTrees
        With one value per leaf, adding up (boosted, not averaged).
    judged : Judged
    loss : callable
        Of raw scores, targets and weights.
    generator : torch.Generator
        Draws the rows where there are more than ``MOST_ROWS``.
    """
    if trees.vector or trees.divisor != 1 or trees.root.shape[0] < BLOCKS * trees.outputs:
        return None
    judged = judged.some(generator)
    values = trees.leaf_values(judged.inputs)  # [N, K, rounds]
    rounds = values.shape[2]
    block = torch.arange(rounds) * BLOCKS // rounds
    sums = values.new_zeros(*values.shape[:2], BLOCKS).index_add_(2, block, values).to(judged.inputs.dtype)
    gates = _closed(sums, trees.base.to(sums.dtype), judged, loss)
    if bool((gates > 0.99).all()):
        return None
    ensemble = trees.ensemble()
    per_tree = gates[block].double().numpy()[_rounds(ensemble.output)]
    per_leaf = np.repeat(per_tree, np.diff(ensemble.leaf_start))
    closed = HardTrees.of(replace(ensemble, leaf_value=ensemble.leaf_value * per_leaf))
    closed.cast(judged.inputs.dtype)
    return fastest(closed)


def _closed(sums: Tensor, base: Tensor, judged: Judged, loss: Loss) -> Tensor:
    gates = torch.ones(BLOCKS, dtype=sums.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([gates], RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(base + sums @ gates, judged.target, judged.weight).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            gates.clamp_(0, 1)
    return gates.detach()


def _rounds(output: Any) -> Any:
    """The round of each tree: its place among the trees of its score."""
    rounds = np.empty(len(output), dtype=np.int64)
    for score in np.unique(output):
        of_score = np.flatnonzero(output == score)
        rounds[of_score] = np.arange(len(of_score))
    return rounds
