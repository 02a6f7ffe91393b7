"""Exact inference of trees of up to 64 leaves as bitvectors, with one bit per leaf."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.errors import InvalidOption
from windtunnel.modules.base import derived
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.forms.bitvector_tables import BitvectorNodes, LeafBitvectors
from windtunnel.modules.trees.forms.tree_form import TreeForm
from windtunnel.modules.trees.leaf_steps import leaf_steps
from windtunnel.modules.trees.walk_layout import positions_of


class BitvectorTrees(TreeForm):
    """The sums of ``HardTrees``; a tree is a 64-bit word with one bit per leaf, and each column clears some bits.

    leaf[t] = number of the lowest set bit of word[t]

    Leaves are numbered from left to right, and a node at which a row goes right rules out the leaves to its left
    (QuickScorer, Lucchese et al. 2015). Which nodes of one column do so depends only on the rank of the
    value among the thresholds of that column, or on its category. So the bits that they clear together are a row of a
    table, and no node is visited. Trees are taken in blocks, as the tables grow with the square of the trees in them.

    Raises
    ------
    InvalidOption
        A tree has more than 64 leaves.
    """

    __constants__: ClassVar[list[str]] = [*TreeForm.__constants__, "DE_BRUIJN"]
    MOST_LEAVES = 64
    BLOCK = 128
    DE_BRUIJN = 0x0218A392CD3D5DBF  # every six bits of it differ

    places: Tensor = derived()
    readings: list[int] = derived()  # again, as TorchScript reads the lists that may be empty off the class itself

    def arrange(self) -> None:
        """Lay out the words of each block of trees; sets of categories need no columns."""
        most = int(self._leaf_counts().max(initial=1))
        if most > self.MOST_LEAVES:
            raise InvalidOption(
                f"bitvectors take trees of {self.MOST_LEAVES} leaves at most; the largest tree has {most:,}. "
                "Choose strategy='tree_traversal' or 'auto'."
            )
        ensemble, root = self.ensemble(), self.root.cpu().numpy()
        slot, real = np.zeros(ensemble.trees, np.int64), root < ensemble.trees
        slot[root[real]] = np.flatnonzero(real)  # where each tree stands in the output
        rank, cleared = _ranks_and_words(ensemble)
        position = positions_of(ensemble)
        at, of_leaf = position[: len(cleared)], position[len(cleared) : -1]
        column, missing_right, features = self._merged(self.column.cpu().numpy())
        split, start, last, goes_right = (
            buffer.cpu().numpy() for buffer in (self.split.double(), self.set_start, self.set_last, self.set_goes_right)
        )
        tree = np.repeat(slot, np.diff(ensemble.node_start))
        nodes = BitvectorNodes(column[at], split[at], missing_right[at], start[at], last[at], cleared, tree)
        self.words = nn.ModuleList()
        for first in range(0, len(root), self.BLOCK):
            block = nodes.picked((tree >= first) & (tree < first + self.BLOCK))
            block, trees = block._replace(tree=block.tree - first), min(self.BLOCK, len(root) - first)
            self.words.append(LeafBitvectors(block, trees, features, goes_right, self.threshold.device))
        # A leaf has its place by its lowest bit; all other places are those of the leaf of value 0.
        leaves = np.full((len(root), self.MOST_LEAVES), position[-1])
        leaves[np.repeat(slot, np.diff(ensemble.leaf_start)), _hashed(self.MOST_LEAVES, self.DE_BRUIJN)[rank]] = of_leaf
        self._register(places=np.arange(len(root)) * self.MOST_LEAVES + self.MOST_LEAVES // 2)
        self._register(value=self.value.cpu().numpy()[leaves.reshape(-1)])
        self.row_cost = max(1, len(root) // 2)

    def _merged(self, column: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Take the two readings of a feature that differ in missing values alone for one.

        Returns the column at each position; whether a missing value goes right there; and for each column the feature
        whose missing values it keeps apart, ``width`` where it does not.
        """
        features = np.full((len(self.readings) + 1) * self.width + 1, self.width)
        missing_right = np.zeros(len(column), np.bool_)
        if self.LOW in self.readings and self.HIGH in self.readings:
            low, high = (self.readings.index(reading) * self.width for reading in (self.LOW, self.HIGH))
            features[high : high + self.width] = np.arange(self.width)
            missing_right = (column >= high) & (column < high + self.width)
            column = np.where((column >= low) & (column < low + self.width), column - low + high, column)
        return column, missing_right, features

    def _leaves(self, x: Tensor) -> Tensor:
        """The number of the leaf that each row falls into in each tree, ``[b * trees]``."""
        values = self._readings(x.to(self.split.dtype)).to(torch.float64).t()
        missing = torch.nn.functional.pad(torch.isnan(x).t().to(torch.int32), [0, 0, 0, 1])  # [features + 1, b]
        parts: list[Tensor] = []
        for block in self.words:
            parts.append(block(values, missing))
        words = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        # A power of two times a de Bruijn number: the six highest bits, from -32 to 31, tell which power it was.
        lowest = words.neg().bitwise_and_(words)
        return lowest.mul_(self.DE_BRUIJN).bitwise_right_shift_(58).add_(self.places).view(-1)


def _hashed(leaves: int, de_bruijn: int) -> NDArray[np.int64]:
    """Where the product with the de Bruijn number leads from each of the lowest bits."""
    powers = np.left_shift(np.uint64(1), np.arange(leaves, dtype=np.uint64))
    return (((powers * np.uint64(de_bruijn)).view(np.int64) >> 58) + 32).astype(np.int64)


def _ranks_and_words(ensemble: TreeEnsemble) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each leaf how many of its tree are to its left, and for each node the bits of the leaves on its left side."""
    leaf, node, _, right = leaf_steps(ensemble)
    leaves_left = np.bincount(node[~right], minlength=len(ensemble.feature))
    passed = leaves_left[node[right]]
    rank = np.bincount(leaf[right], passed, minlength=len(ensemble.leaf_value)).astype(np.int64)
    words = np.zeros(len(leaves_left), np.uint64)
    np.bitwise_or.at(words, node[~right], np.uint64(1) << rank[leaf[~right]].astype(np.uint64))
    return rank, words.view(np.int64)
