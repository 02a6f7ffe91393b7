"""Exact inference of shallow trees that are completed to perfect ones, so that a child is found by arithmetic."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.trees.laid_out import LaidOutTrees


class PerfectTrees(LaidOutTrees):
    """The sums of ``HardTrees``; every tree is perfect, of its own depth, and node n leads to 2 n and 2 n + 1.

    i <- 2 i + (value[column[i]] > split[i]) + the place where the next level starts

    A leaf above the last level of its tree stands for the whole subtree below it. Trees are ordered by depth, the
    deepest first, and a tree leaves the loop when its depth is reached: none is padded to the deepest one.

    Shape
    -----
    forward : float32 or float64 [B, width] -> the same [B, K], for any B from 0 up

    Raises
    ------
    UnfaithfulOption
        A tree is deeper than ``DEEPEST``; the tables double with each level.
    """

    DEEPEST: Final = 10

    table_column: Tensor
    table_split: Tensor
    table_split32: Tensor
    table_position: Tensor
    first: Tensor
    bare: Tensor
    back: Tensor
    readings: list[int]  # again, as TorchScript reads the lists that may be empty off the class itself
    counts: list[int]
    steps: list[int]
    shuffled: bool

    def arrange(self) -> None:
        """Lay out the levels one after the other; level l holds the trees that reach it, 2^l places each."""
        super().arrange()
        root, follow, is_node = self._positions()
        depths = _depths(root, follow, is_node)
        deepest = int(depths.max(initial=0))
        if deepest > self.DEEPEST:
            raise UnfaithfulOption(
                f"perfect trees take a depth of {self.DEEPEST} at most, as each level doubles them; the deepest tree "
                f"has a depth of {deepest}. Choose strategy='tree_traversal' or 'auto'."
            )
        order = np.argsort(-depths, kind="stable")
        counts = [int((depths > level).sum()) for level in range(deepest)] + [0]
        levels = [root[order][: counts[0], None]]
        for count in counts[:-1]:
            at = levels[-1][:count]
            children = np.where(is_node[at], follow[at], at)[:, :, None] + is_node[at][:, :, None] * np.arange(2)
            levels.append(children.reshape(count, -1))
        start = np.cumsum([0, *(level.size for level in levels)])
        position = np.concatenate([level.reshape(-1) for level in levels])
        column, split, split32 = self._nodes()
        left = [order[fewer:more] for fewer, more in zip(counts, [len(root), *counts], strict=False)]
        back = np.argsort(np.concatenate(left))
        self._hold(
            table_column=column[position],
            table_split=split[position],
            table_split32=split32[position],
            table_position=position,
            first=(2 * np.arange(counts[0]) + start[1]).astype(np.int32),
            bare=root[order][counts[0] :],
            back=back,
        )
        self.counts = counts
        self.steps = [int(start[level + 1] - 2 * start[level]) for level in range(deepest)]
        self.shuffled = bool((back != np.arange(len(back))).any())

    def _leaves(self, x: Tensor) -> Tensor:
        """The position of the leaf that each row falls into in each tree, ``[b * trees]``."""
        rows = x.shape[0]
        found = [self.bare.repeat(rows, 1)]
        if len(self.steps) > 0:
            wide = x.dtype == torch.float64 and self.reads == "float64"
            split = self.table_split if wide else self.table_split32
            values = self._values(x if wide else x.to(torch.float32))
            count = self.counts[0]
            right = values.index_select(1, self.table_column[:count]) > split[:count]
            at = self.first + right.to(torch.int32)  # [b, trees], and half the bytes of int64
            for level in range(1, len(self.steps)):
                fewer = self.counts[level]
                if fewer < count:
                    found.append(self._ended(at[:, fewer:]))
                    at, count = at[:, :fewer].contiguous(), fewer
                flat = at.view(-1)
                column = self.table_column.index_select(0, flat).view(rows, count)
                right = values.gather(1, column) > split.index_select(0, flat).view(rows, count)
                at = at.mul_(2).add_(right.to(torch.int32)).add_(self.steps[level])
            found.append(self._ended(at))
        leaves = torch.cat(found, dim=1)
        if self.shuffled:
            leaves = leaves.index_select(1, self.back)
        return leaves.reshape(-1)

    def _ended(self, at: Tensor) -> Tensor:
        return self.table_position.index_select(0, at.reshape(-1)).view(at.shape[0], at.shape[1])


def _depths(root: NDArray[np.int64], follow: NDArray[np.int64], is_node: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many splits the longest way down each tree has."""
    depths = np.zeros(len(root), np.int64)
    at, tree, depth = root, np.arange(len(root)), 0
    while is_node[at].any():
        depth += 1
        at, tree = at[is_node[at]], tree[is_node[at]]
        depths[tree] = depth
        at, tree = np.concatenate([follow[at], follow[at] + 1]), np.concatenate([tree, tree])
    return depths
