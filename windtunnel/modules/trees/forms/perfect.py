"""Exact inference of shallow trees that are completed to perfect ones, so that a child is found by arithmetic."""

import numpy as np
from torch import Tensor

from windtunnel.errors import InvalidOption
from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.ranked import RankedTrees
from windtunnel.modules.trees.walk_layout import depths_of


class PerfectTrees(RankedTrees):
    """The sums of ``HardTrees``; every tree is perfect, of its own depth, and node n leads to 2 n and 2 n + 1.

    i <- 2 i + (word of the value > word[i])

    A leaf above the last level of its tree stands for the whole subtree below it. Trees are ordered by depth, the
    deepest first, and a tree leaves the loop when its depth is reached: none is padded to the deepest one.

    Raises
    ------
    InvalidOption
        The tables, which double with each level, would have more than ``MOST_PLACES`` places.
    """

    MOST_PLACES = 2**25

    first: Tensor = derived()
    bare: Tensor = derived()
    readings: list[int] = derived()  # again, as TorchScript reads the lists that may be empty off the class itself
    counts: list[int] = derived()
    starts: list[int] = derived()
    exits: list[int] = derived()

    def arrange(self) -> None:
        """Lay out the levels one after the other; level l holds the trees that go beyond it, 2^l places each."""
        super().arrange()
        root, follow, is_node = self._positions()
        depths = depths_of(root, follow, is_node)
        places = int((2.0 ** np.minimum(depths, 60)).sum())
        if places > self.MOST_PLACES:
            raise InvalidOption(
                f"as perfect trees these would have {places:,} leaves, of at most {self.MOST_PLACES:,}, as each level "
                f"doubles them; the deepest tree has a depth of {depths.max()}. Choose strategy='tree_traversal' or "
                "'auto'."
            )
        order, counts = self._order_by_depth(depths)
        levels = [root[order][:, None]]
        for count in counts[:-1]:
            at = levels[-1][:count]
            children = np.where(is_node[at], follow[at], at)[:, :, None] + is_node[at][:, :, None] * np.arange(2)
            levels.append(children.reshape(count, -1))
        nodes = [level[:count].reshape(-1) for level, count in zip(levels, counts, strict=True)]
        leaves = [level[count:].reshape(-1) for level, count in zip(levels, counts, strict=True)]
        ends = np.cumsum([0, *map(len, leaves)]).tolist()
        self._register(
            first=2 * np.arange(counts[0], dtype=np.int32),
            bare=np.arange(ends[1], dtype=np.int32),
            word=self.word.cpu().numpy()[np.concatenate(nodes)],
            value=self.value.cpu().numpy()[np.concatenate(leaves)],
        )
        self.counts = counts
        self.starts = np.cumsum([0, *map(len, nodes)]).tolist()
        # From a place in a level to the leaf of a tree that ends there, behind the trees that go on.
        self.exits = [ends[level] - (count << level) for level, count in enumerate(counts)]

    def _leaves(self, x: Tensor) -> Tensor:
        """The number of the leaf that each row falls into in each tree, ``[b * trees]``."""
        rows = x.shape[0]
        parts = [self.bare.repeat(rows, 1)]
        count = self.counts[0]
        if count > 0:
            values = self._ranked(x)
            word = self.word[:count].repeat(rows, 1)
            at = values.gather(1, word >> self.shift).gt_(word).add_(self.first)  # [b, trees]
            for level in range(1, len(self.counts)):
                fewer = self.counts[level]
                if fewer < count:
                    parts.append(at[:, fewer:] + self.exits[level])
                    at, count = at[:, :fewer].contiguous(), fewer
                if count > 0:
                    words = self.word[self.starts[level] : self.starts[level + 1]]
                    word = words.index_select(0, at.view(-1)).view(rows, count)
                    at = values.gather(1, word >> self.shift).gt_(word).add_(at, alpha=2)
        return self._joined(parts)
