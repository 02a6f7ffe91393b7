"""Hard trees that compare ranks: a number says both what a node reads and where it splits."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.ranks import Ranks
from windtunnel.modules.trees.forms.tree_form import TreeForm


class RankedTrees(TreeForm):
    """Hard trees whose nodes compare the rank of a value among the thresholds on its column.

    word[node] = column 2^shift + number of thresholds on the column below the node's
    word[value] = column 2^shift + number of thresholds on the column that the value is above
    the row goes right where word[value] > word[node]

    Ranks cost a few passes over the values of a row, once for all trees; a visit of a node then reads one small number
    for its column and threshold, and one for the value.
    """

    used: Tensor = derived()
    word: Tensor = derived()
    back: Tensor = derived()
    shift: int = derived()
    shuffled: bool = derived()

    def arrange(self) -> None:
        """Rank the thresholds, and give each position its word; that of a leaf is above every value's."""
        super().arrange()
        _, _, is_node = self._positions()
        column, split = self._nodes()
        used, place = np.unique(column[is_node], return_inverse=True)
        split = split[is_node]
        thresholds = [np.unique(split[place == c]) for c in range(len(used))]
        shift = max(map(len, thresholds), default=1).bit_length()
        dtype = np.int32 if (len(used) + 1) << shift < 1 << 31 else np.int64
        word = np.full(len(column), (1 << shift) - 1, dtype)
        rank = np.zeros(len(split), np.int64)
        for c, splits in enumerate(thresholds):
            rank[place == c] = np.searchsorted(splits, split[place == c])
        word[is_node] = (place << shift) + rank
        self.shift = shift
        offset = (np.arange(max(1, len(used))) << shift).astype(dtype)
        self.ranks = Ranks(thresholds or [np.zeros(1)], offset, self.threshold.device)
        self._register(used=used, word=word)

    def _ranked(self, x: Tensor) -> Tensor:
        """The words of the values, ``[b, columns]``."""
        values = self._values(x.to(self.split.dtype)).to(torch.float64)
        ranked: Tensor = self.ranks(values.t().index_select(0, self.used))
        return ranked.t().contiguous()

    def _order_by_depth(self, depths: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        """The trees, deepest first, and how many go beyond each level; registers the way back for ``_joined``."""
        order = np.argsort(-depths, kind="stable")
        counts = [int((depths > level).sum()) for level in range(int(depths.max(initial=0)) + 1)]
        ended = [order[fewer:more] for fewer, more in zip(counts, [len(depths), *counts], strict=False)]
        back = np.argsort(np.concatenate(ended))
        self._register(back=back.astype(np.int32))
        self.shuffled = bool((back != np.arange(len(back))).any())
        return order, counts

    def _joined(self, ended: list[Tensor]) -> Tensor:
        """The leaves of the trees that end at each level, in the order of the trees, ``[b * trees]``."""
        leaves = torch.cat(ended, dim=1)
        if self.shuffled:
            leaves = leaves.gather(1, self.back.repeat(leaves.shape[0], 1))
        return leaves.view(-1)
