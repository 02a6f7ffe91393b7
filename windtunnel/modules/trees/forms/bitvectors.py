"""Exact inference of trees of up to 64 leaves as bitvectors, with one bit per leaf."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.errors import InvalidOption
from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.bitvector_tables import BitvectorNodes, LeafBitvectors
from windtunnel.modules.trees.forms.tree_form import TreeForm


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
        root, follow, is_node = self._positions()
        column, missing_right, features = self._merged(self.column.cpu().numpy())
        split, start, last, right = (
            buffer.cpu().numpy() for buffer in (self.split.double(), self.set_start, self.set_last, self.set_goes_right)
        )
        trees = [_in_order(at, follow, is_node, (column, split, missing_right, start, last)) for at in root]
        most = max((len(tree.leaf) for tree in trees), default=1)
        if most > self.MOST_LEAVES:
            raise InvalidOption(
                f"bitvectors take trees of {self.MOST_LEAVES} leaves at most; the largest tree has {most:,}. "
                "Choose strategy='tree_traversal' or 'auto'."
            )
        device = self.threshold.device
        blocks = [trees[start : start + self.BLOCK] for start in range(0, len(trees), self.BLOCK)]
        self.words = nn.ModuleList(
            LeafBitvectors([tree.nodes for tree in block], features, right, device) for block in blocks
        )
        leaves = np.zeros((len(trees), self.MOST_LEAVES), np.int64)
        for places, tree in zip(leaves, trees, strict=True):
            places[_hashed(len(tree.leaf), self.DE_BRUIJN)] = tree.leaf
        self._register(places=np.arange(len(trees)) * self.MOST_LEAVES + self.MOST_LEAVES // 2)
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


class _Tree(NamedTuple):
    """Its nodes, and the positions of its leaves from left to right."""

    nodes: BitvectorNodes
    leaf: NDArray[np.int64]


def _hashed(leaves: int, de_bruijn: int) -> NDArray[np.int64]:
    """Where the product with the de Bruijn number leads from each of the lowest bits."""
    powers = np.left_shift(np.uint64(1), np.arange(leaves, dtype=np.uint64))
    return (((powers * np.uint64(de_bruijn)).view(np.int64) >> 58) + 32).astype(np.int64)


def _in_order(
    root: np.int64, follow: NDArray[np.int64], is_node: NDArray[np.bool_], facts: tuple[NDArray[Any], ...]
) -> _Tree:
    """Read a tree with its leaves from left to right; ``facts`` are those that ``BitvectorNodes`` begin with."""
    leaf: list[int] = []
    nodes: list[tuple[int, int]] = []
    open_nodes: list[tuple[int, int]] = []
    stack = [int(root)]
    while stack:
        at = stack.pop()
        if at < 0:  # the left side of this node is done
            node, first = open_nodes.pop()
            nodes.append((node, ((1 << len(leaf)) - (1 << first)) & ((1 << 64) - 1)))
        elif is_node[at]:
            open_nodes.append((at, len(leaf)))
            stack += [int(follow[at]) + 1, -1, int(follow[at])]
        else:
            leaf.append(at)
    places = np.array([node for node, _ in nodes], np.int64)
    cleared = np.array([cleared for _, cleared in nodes], np.uint64).view(np.int64)
    facts = (*(fact[places] for fact in facts), cleared, np.zeros_like(places))
    return _Tree(BitvectorNodes(*facts), np.array(leaf, np.int64))
