"""Exact inference of small trees as matrix products (GEMM): the decisions of all nodes give the leaf."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import InvalidOption
from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.tree_form import TreeForm
from windtunnel.modules.trees.leaf_steps import PaddedTrees
from windtunnel.modules.trees.walk_layout import positions_of


class GemmTrees(TreeForm):
    """The sums of ``HardTrees``; each tree is a product of its nodes' decisions with the matrix of its paths.

    right[n] = value[column[n]] > split[n]
    leaf = max over l of (sum over n of right[n] way[n, l] + bias[l])

    ``way[n, l]`` is +S where leaf l lies to the right of node n, -S to the left, and 0 elsewhere, for a power of two S
    of at least the number of leaves; ``bias[l]`` is l - S times the number of steps to the right on the way to l. So
    every leaf is below 0 except the one that a row falls into, which gives its own number. All of these are whole
    numbers that float32 holds exactly.

    The value of that leaf is looked up. A product with the values would multiply infinite ones by 0, and round the sum
    in another order than the source. Columns are gathered for the same reason: 0 times a missing value is missing.

    Trees are grouped by the power of two above their number of leaves, and padded to the largest of their group.

    Raises
    ------
    InvalidOption
        The matrices would hold more than ``MOST`` numbers; they grow with the square of the leaves.
    """

    MOST = 1 << 26

    node_column: Tensor = derived()
    node_split: Tensor = derived()
    way: Tensor = derived()
    bias: Tensor = derived()
    leaf_position: Tensor = derived()
    first: Tensor = derived()
    bare: Tensor = derived()
    back: Tensor = derived()
    readings: list[int] = derived()  # again, as TorchScript reads the lists that may be empty off the class itself
    trees: list[int] = derived()
    leaves: list[int] = derived()
    shuffled: bool = derived()

    def arrange(self) -> None:
        """Lay out the matrices of each group of trees, one after the other."""
        super().arrange()
        counts, root = self._leaf_counts(), self.root.cpu().numpy()
        sizes = np.array([int(count - 1).bit_length() for count in counts], np.int64)
        single, *groups = (np.flatnonzero(sizes == size) for size in (0, *np.unique(sizes[sizes > 0])))
        self.trees = [len(group) for group in groups]
        self.leaves = [int(counts[group].max()) for group in groups]
        self._check_size()
        matrices = [self._matrices(root[group]) for group in groups]
        node, way, bias, leaf_position = (
            np.concatenate([np.empty(0), *(arrays[part].reshape(-1) for arrays in matrices)]) for part in range(4)
        )
        column, split = self._nodes()
        node = node.astype(np.int64)
        back = np.argsort(np.concatenate([single, *groups]))
        self._register(
            node_column=column[node],
            node_split=split[node].astype(self.split.cpu().numpy().dtype),
            way=way.astype(np.float32),
            bias=bias.astype(np.float32),
            leaf_position=leaf_position.astype(np.int64),
            first=np.cumsum([0, *np.repeat(self.leaves, self.trees)])[:-1].astype(np.int64),
            bare=root[single],
            back=back,
        )
        self.shuffled = bool((back != np.arange(len(back))).any())
        # A product pays over a few dozen rows, and most of what it makes is used at once.
        self.row_cost = max(len(root), len(node) // 8)

    def _matrices(self, trees: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Node positions ``[T, n]``, ways ``[T, n, l]``, biases and leaf positions ``[T, l]`` of a group of T trees.

        What pads a tree are nodes at which no row goes right, and leaves that are below 0.
        """
        ensemble = self.ensemble()
        position, padded = positions_of(ensemble), PaddedTrees.of(ensemble, trees)
        scale, number = _scale(padded.leaf.shape[1]), np.arange(padded.leaf.shape[1])
        bias = np.where(padded.leaf >= 0, number - scale * (padded.path > 0).sum(axis=1), -1)
        leaf = np.where(padded.leaf >= 0, len(ensemble.feature) + padded.leaf, -1)
        # The last position, that of number -1, is a leaf that pads.
        return position[padded.node], scale * padded.path, bias, position[leaf]

    def _check_size(self) -> None:
        size = sum(trees * leaves**2 for trees, leaves in zip(self.trees, self.leaves, strict=True))
        most = max(self.leaves, default=1)
        if size > self.MOST or 2 * self.depth * _scale(most) >= 1 << 24:
            raise InvalidOption(
                f"as matrix products these trees (depth {self.depth}, {most:,} leaves in the largest) would take "
                f"{size:,} numbers; {self.MOST:,} are accepted, and they grow with the square of the leaves. "
                "Choose strategy='tree_traversal' or 'auto'."
            )

    def _leaves(self, x: Tensor) -> Tensor:
        """The position of the leaf that each row falls into in each tree, ``[b * trees]``."""
        exits_of_groups = [self.bare.repeat(x.shape[0], 1)]
        if len(self.trees) > 0:
            values = self._values(x.to(self.split.dtype))
            tree, node, way, leaf = 0, 0, 0, 0
            for group in range(len(self.trees)):
                trees, leaves = self.trees[group], self.leaves[group]
                nodes = leaves - 1
                column = self.node_column[node : node + trees * nodes]
                right = values.index_select(1, column) > self.node_split[node : node + trees * nodes]
                ways = self.way[way : way + trees * nodes * leaves].view(trees, nodes, leaves)
                bias = self.bias[leaf : leaf + trees * leaves].view(trees, 1, leaves)
                exits_of_groups.append(self._exits(right, ways, bias, self.first[tree : tree + trees]))
                tree, node = tree + trees, node + trees * nodes
                way, leaf = way + trees * nodes * leaves, leaf + trees * leaves
        exits = torch.cat(exits_of_groups, dim=1)
        if self.shuffled:
            exits = exits.index_select(1, self.back)
        return exits.reshape(-1)

    def _exits(self, right: Tensor, ways: Tensor, bias: Tensor, first: Tensor) -> Tensor:
        """``[b, trees * nodes]`` -> ``[b, trees]``, the positions of the leaves."""
        rows, trees = right.shape[0], ways.shape[0]
        decisions = right.to(torch.float32).view(rows, trees, ways.shape[1]).transpose(0, 1)
        number = torch.baddbmm(bias, decisions, ways).amax(2)  # [trees, b]
        leaf = number.t().to(torch.int64) + first
        return self.leaf_position.index_select(0, leaf.reshape(-1)).view(rows, trees)


def _scale(leaves: int) -> int:
    return 1 << (leaves - 1).bit_length()
