"""Exact inference of trees of up to 64 leaves as bitvectors: what a row rules out, one bit per leaf."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from functools import reduce
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.trees.laid_out import LaidOutTrees
from windtunnel.modules.trees.ranks import Keeps, Ranks


class Words(Keeps):
    """One word per row and tree, in which the bits of the leaves that a row does not fall into are cleared.

    word[t] = AND over columns c of table[rank of value[c] among the thresholds of c, t]

    A missing value has the rank above all others; it clears what its nodes say. Columns of few thresholds, such as
    one-hot ones, share a table, with a row for all of their ranks together: the sum of each rank times its stride.

    Shape
    -----
    forward : float64 [columns, B], int32 [features + 1, B] -> int64 [B, trees]
    """

    AT_ONCE: Final = 1 << 18  # words, so few that a processor's cache holds them

    SHARED: Final = 81  # rows of a table that columns share

    used: Tensor
    missing: Tensor
    stride: Tensor
    table: Tensor
    layers: list[int]

    def __init__(self, below: list["_Nodes"], features: NDArray[np.int64], device: torch.device) -> None:
        super().__init__()
        column, split, cleared, missing_right = (
            np.concatenate([getattr(nodes, name) for nodes in below])
            for name in ("column", "split", "cleared", "missing_right")
        )
        tree = np.repeat(np.arange(len(below)), [len(nodes.column) for nodes in below])
        used, of = np.unique(column, return_inverse=True)
        thresholds = [np.unique(split[of == c]) for c in range(len(used))]
        tables = []
        for c, one in enumerate(thresholds):
            table, mine, last = np.full((len(one) + 2, len(below)), -1, np.int64), of == c, len(one)
            np.bitwise_and.at(table, (1 + np.searchsorted(one, split[mine]), tree[mine]), ~cleared[mine])
            np.bitwise_and.accumulate(table[: last + 1], axis=0, out=table[: last + 1])
            mine &= missing_right
            np.bitwise_and.at(table[last + 1], tree[mine], ~cleared[mine])
            tables.append(table)
        sizes = np.array(list(map(len, tables)))
        groups = _sharing(sizes, self.SHARED)
        # The first column of each group, then the second of those that have one, and so on.
        layers = [[group[at] for group in groups if at < len(group)] for at in range(len(groups[0]))]
        order = np.concatenate(layers)
        self.layers = list(map(len, layers))
        start, stride = np.zeros((2, len(used)), np.int32)
        start[layers[0]] = np.cumsum([0, *(sizes[group].prod() for group in groups)])[:-1]
        for group in groups:
            stride[group] = np.cumprod([1, *sizes[group]])[:-1]
        self.ranks = Ranks([thresholds[c] for c in order], start[order], device)
        self.hold("used", used[order], device)
        self.hold("missing", features[used[order]], device)
        self.hold("stride", stride[order][:, None], device)
        self.hold("table", np.concatenate([_together([tables[c] for c in group]) for group in groups]), device)

    def forward(self, values: Tensor, missing: Tensor) -> Tensor:
        """The words of the rows."""
        rank = self.ranks(values.index_select(0, self.used)).add_(missing.index_select(0, self.missing))
        rank = self._together(rank)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return self._fused(rank)
        rows, trees = rank.shape[1], self.table.shape[1]
        at_once = max(1, self.AT_ONCE // (rank.shape[0] * trees))
        if rows <= at_once:
            return self._left(rank)
        words = torch.empty((rows, trees), dtype=torch.int64, device=values.device)
        for start in range(0, rows, at_once):
            words[start : start + at_once] = self._left(rank[:, start : start + at_once])
        return words

    def _together(self, rank: Tensor) -> Tensor:
        """The ranks of columns, ``[columns, B]``, to rows of the table, ``[tables, B]``."""
        row, start = rank[: self.layers[0]], self.layers[0]
        for count in self.layers[1:]:
            more = rank[start : start + count] * self.stride[start : start + count]
            row, start = torch.cat([row[:count] + more, row[count:]]), start + count
        return row

    @torch.jit.unused
    def _fused(self, rank: Tensor) -> Tensor:
        """The same, read row by row: a compiler makes one loop of it, which keeps the words in registers."""
        # Ranks are within the table by construction, so that no look-up has to be checked.
        found: list[Tensor] = [torch.ops.aten._unsafe_index(self.table, [one]) for one in rank.unbind()]
        return reduce(torch.bitwise_and, found)  # [b, trees]

    def _left(self, rank: Tensor) -> Tensor:
        """``[columns, b]`` -> ``[b, trees]``."""
        part = self.table.index_select(0, rank.reshape(-1)).view(rank.shape[0], rank.shape[1], self.table.shape[1])
        count = rank.shape[0]
        while count > 1:
            half = count // 2
            part[:half].bitwise_and_(part[count - half : count])
            count = count - half
        return part[0]


def _sharing(rows: NDArray[np.int64], most: int) -> list[list[int]]:
    """Columns that share a table of ``most`` rows at most, by the rows of their own ones; the largest groups first."""
    groups: list[list[int]] = []
    size = most + 1
    for column in np.argsort(rows, kind="stable").tolist():
        if size * rows[column] > most:
            groups.append([])
            size = 1
        groups[-1].append(column)
        size *= int(rows[column])
    return sorted(groups, key=len, reverse=True)


def _together(tables: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """A row for each way to take one of each table, that of the first changing fastest: what they leave together."""
    trees = tables[0].shape[1]
    return reduce(lambda first, second: (second[:, None] & first).reshape(-1, trees), tables)


class NoWords(nn.Module):
    """Trees without a split, all of whose leaves are left."""

    trees: int

    def __init__(self, trees: int) -> None:
        super().__init__()
        self.trees = trees

    def forward(self, values: Tensor, missing: Tensor) -> Tensor:
        """All bits set."""
        return torch.full((values.shape[1], self.trees), -1, dtype=torch.int64, device=values.device)


class BitvectorTrees(LaidOutTrees):
    """The sums of ``HardTrees``; a tree is a word of 64 bits, one per leaf, from which each column clears some.

    leaf[t] = number of the lowest set bit of word[t]

    Leaves are numbered from left to right, and a node at which a row goes right rules out the leaves to its left
    (QuickScorer, Lucchese et al. 2015). Which nodes on one column do so depends on nothing but the rank of the value
    among the thresholds on that column, so that what they clear together is a row of a table, and no node is visited.
    Trees are taken in blocks, as the tables grow with the square of the trees in them.

    Shape
    -----
    forward : float32 or float64 [B, width] -> the same [B, K], for any B from 0 up

    Raises
    ------
    UnfaithfulOption
        A tree has more than 64 leaves.
    """

    MOST_LEAVES: Final = 64
    BLOCK: Final = 128
    DE_BRUIJN: Final = 0x0218A392CD3D5DBF  # every six bits of it differ

    places: Tensor
    readings: list[int]  # again, as TorchScript reads the lists that may be empty off the class itself

    def arrange(self) -> None:
        """Lay out the words of each block of trees."""
        super().arrange()
        root, follow, is_node = self._positions()
        column, split, _ = self._nodes()
        column, missing_right, features = self._merged(column)
        trees = [_in_order(at, follow, is_node, (column, split, missing_right)) for at in root]
        most = max((len(tree.leaf) for tree in trees), default=1)
        if most > self.MOST_LEAVES:
            raise UnfaithfulOption(
                f"bitvectors take trees of {self.MOST_LEAVES} leaves at most; the largest tree has {most:,}. "
                "Choose strategy='tree_traversal' or 'auto'."
            )
        device = self.threshold.device
        blocks = [trees[start : start + self.BLOCK] for start in range(0, len(trees), self.BLOCK)]
        self.words = nn.ModuleList(
            Words(block, features, device) if any(len(tree.column) for tree in block) else NoWords(len(block))
            for block in blocks
        )
        leaves = np.zeros((len(trees), self.MOST_LEAVES), np.int64)
        for places, tree in zip(leaves, trees, strict=True):
            places[_hashed(len(tree.leaf), self.DE_BRUIJN)] = tree.leaf
        self._hold(places=np.arange(len(trees)) * self.MOST_LEAVES + self.MOST_LEAVES // 2)
        self._hold(value=self.value.cpu().numpy()[leaves.reshape(-1)])
        self.row_cost = max(1, len(root) // 16)

    def _merged(self, column: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Take the two readings of a feature that differ in missing values alone for one.

        Returns the column at each position; whether a missing value goes right there; and for each column the feature
        whose missing values it keeps apart, ``width`` where it does not.
        """
        features = np.full((len(self.readings) + 1) * self.width + len(self.set_column) + 1, self.width)
        missing_right = np.zeros(len(column), np.bool_)
        if self.LOW in self.readings and self.HIGH in self.readings:
            low, high = (self.readings.index(one) * self.width for one in (self.LOW, self.HIGH))
            features[high : high + self.width] = np.arange(self.width)
            missing_right = (column >= high) & (column < high + self.width)
            column = np.where((column >= low) & (column < low + self.width), column - low + high, column)
        return column, missing_right, features

    def _leaves(self, x: Tensor) -> Tensor:
        """The number of the leaf that each row falls into in each tree, ``[b * trees]``."""
        wide = x.dtype == torch.float64 and self.reads == "float64"
        # Of a float32 number and a threshold, float64 says the same as the largest float32 not above the threshold.
        values = self._values(x if wide else x.to(torch.float32)).to(torch.float64).t()
        missing = torch.nn.functional.pad(torch.isnan(x).t().to(torch.int32), [0, 0, 0, 1])  # [features + 1, b]
        found: list[Tensor] = []
        for one in self.words:
            found.append(one(values, missing))
        words = found[0] if len(found) == 1 else torch.cat(found, dim=1)
        # A power of two times a de Bruijn number: the six highest bits, from -32 to 31, tell which power it was.
        lowest = words.neg().bitwise_and_(words)
        return lowest.mul_(self.DE_BRUIJN).bitwise_right_shift_(58).add_(self.places).view(-1)


class _Nodes:
    """Of one tree: its leaves; of its nodes column, threshold, what a step to the right clears, what is missing."""

    def __init__(self, nodes: list[tuple[int, int]], leaf: list[int], facts: tuple[NDArray[Any], ...]) -> None:
        at = np.array([node for node, _ in nodes], np.int64)
        self.column, self.split, self.missing_right = (fact[at] for fact in facts)
        self.cleared = np.array([cleared for _, cleared in nodes], np.uint64).view(np.int64)
        self.leaf = np.array(leaf, np.int64)


def _hashed(leaves: int, de_bruijn: int) -> NDArray[np.int64]:
    """Where the product with the de Bruijn number leads from each of the lowest bits."""
    powers = np.left_shift(np.uint64(1), np.arange(leaves, dtype=np.uint64))
    return (((powers * np.uint64(de_bruijn)).view(np.int64) >> 58) + 32).astype(np.int64)


def _in_order(
    root: np.int64, follow: NDArray[np.int64], is_node: NDArray[np.bool_], facts: tuple[NDArray[Any], ...]
) -> _Nodes:
    """Read a tree with its leaves from left to right; ``facts`` are those of its nodes."""
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
    return _Nodes(nodes, leaf, facts)
