"""Exact inference of trees of any shape: every row walks down every tree, in ranks, and stops where the tree does."""

import numpy as np
from torch import Tensor

from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.ranked import RankedTrees
from windtunnel.modules.trees.walk_layout import depths_of


class RankedWalkTrees(RankedTrees):
    """The sums of ``HardTrees``, by the same walk over ranks.

    i <- child[i] + (word of the value > word[i])

    Trees are ordered by depth, the deepest first, and a tree leaves the loop when its depth is reached.
    """

    start: Tensor = derived()
    child: Tensor = derived()
    readings: list[int] = derived()  # again, as TorchScript reads the lists that may be empty off the class itself
    counts: list[int] = derived()

    def arrange(self) -> None:
        """Order the trees by depth."""
        super().arrange()
        root, follow, is_node = self._positions()
        order, self.counts = self._order_by_depth(depths_of(root, follow, is_node))
        self._register(start=root[order].astype(np.int32), child=follow.astype(np.int32))

    def _leaves(self, x: Tensor) -> Tensor:
        """The position of the leaf that each row falls into in each tree, ``[b * trees]``."""
        rows = x.shape[0]
        parts: list[Tensor] = []
        at, count = self.start.repeat(rows, 1), self.start.shape[0]
        if self.counts[0] > 0:
            values = self._ranked(x)
            for fewer in self.counts:
                if fewer < count:
                    parts.append(at[:, fewer:])
                    at, count = at[:, :fewer].contiguous(), fewer
                if count > 0:
                    flat = at.view(-1)
                    word = self.word.index_select(0, flat).view(rows, count)
                    right = values.gather(1, word >> self.shift).gt_(word).view(-1)
                    at = self.child.index_select(0, flat).add_(right).view(rows, count)
        else:
            parts.append(at)
        return self._joined(parts)
