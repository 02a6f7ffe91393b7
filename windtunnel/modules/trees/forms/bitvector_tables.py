"""Lookup tables of bitvectors: a word has one bit per leaf of a tree, and each column of a row clears some."""

from functools import reduce
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.modules.trees.fixed_precision import FixedPrecision
from windtunnel.modules.trees.forms.ranks import Ranks


class BitvectorNodes(NamedTuple):
    """Facts of nodes, ``[n]`` each."""

    column: NDArray[Any]  # int64, what a node reads
    split: NDArray[Any]  # float64, the threshold above which it sends a row to the right
    missing_right: NDArray[Any]  # bool, whether a missing value goes right where the column keeps them apart
    set_start: NDArray[Any]  # int64, where its set of categories begins, as in ``HardTrees``; 0 where it has none
    set_last: NDArray[Any]  # int64, the last place of its set
    cleared: NDArray[Any]  # int64, one word: the bits of the leaves that a step to the right rules out
    tree: NDArray[Any]  # int64, the number of its tree among those that are looked up together

    def picked(self, which: NDArray[np.bool_]) -> "BitvectorNodes":
        """The nodes at some positions."""
        return BitvectorNodes(*(fact[which] for fact in self))

    def by_column(self) -> tuple[NDArray[np.int64], list["BitvectorNodes"]]:
        """The columns, and the nodes of each."""
        used = np.unique(self.column)
        return used, [self.picked(self.column == column) for column in used]


class LeafBitvectors(nn.Module):
    """One word per row and tree of a block; the bits of the leaves that a row does not fall into are cleared."""

    trees: int

    def __init__(
        self,
        nodes: BitvectorNodes,
        trees: int,
        features: NDArray[np.int64],
        goes_right: NDArray[np.bool_],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.trees = trees
        self.parts = nn.ModuleList()
        if (nodes.set_start == 0).any():
            self.parts.append(RankLookup(nodes.picked(nodes.set_start == 0), trees, features, device))
        if (nodes.set_start > 0).any():
            self.parts.append(CategoryLookup(nodes.picked(nodes.set_start > 0), trees, goes_right, device))

    def forward(self, values: Tensor, missing: Tensor) -> Tensor:
        """float64 [columns, B], int32 [features + 1, B] -> int64 [B, trees]."""
        parts: list[Tensor] = []
        for part in self.parts:
            parts.append(part(values, missing))
        if len(parts) == 0:  # trees without a split
            return torch.full((values.shape[1], self.trees), -1, dtype=torch.int64, device=values.device)
        return parts[0] if len(parts) == 1 else parts[0].bitwise_and_(parts[1])


class TableLookup(FixedPrecision):
    """Words that are looked up by column.

    word[t] = AND over columns c of table[row of value[c], t]

    Many rows of the tables clear nothing, the lowest rank of a column among them. If most
    look-ups of a sample read such rows, as with one-hot columns and counts of words, these look-ups are left out.
    """

    AT_ONCE: Final = 1 << 18  # the most words at once, which a processor's cache holds
    SAMPLE: Final = 64  # rows; of fewer rows no sample is taken
    FEW: Final = 0.5  # the fraction of look-ups that clear bits, below which all others are left out
    # For classes that derive from this one: TorchScript reads Final off the class itself only.
    __constants__: ClassVar[list[str]] = ["AT_ONCE", "SAMPLE", "FEW"]

    table: Tensor
    clears: Tensor

    def look_up(self, tables: list[NDArray[np.int64]], device: torch.device) -> None:
        """Register the tables, one below the other, and which of their rows clear anything."""
        table = np.concatenate(tables)
        self.register_derived(device, table=table, clears=(table != -1).any(axis=1))

    def rows(self, values: Tensor, missing: Tensor) -> Tensor:
        """The row of the table for each value."""
        raise NotImplementedError

    def forward(self, values: Tensor, missing: Tensor) -> Tensor:
        """float64 [columns, B], int32 [features + 1, B] -> int64 [B, trees]."""
        row = self.rows(values, missing)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return self._fused(row)
        rows, trees = row.shape[1], self.table.shape[1]
        few = self._clears_little(row)
        at_once = max(1, self.AT_ONCE // (trees * (2 if few else row.shape[0])))
        if rows <= at_once:
            return self._left_by_few(row) if few else self._left(row)
        words = torch.empty((rows, trees), dtype=torch.int64, device=values.device)
        for start in range(0, rows, at_once):
            part = row[:, start : start + at_once]
            words[start : start + at_once] = self._left_by_few(part) if few else self._left(part)
        return words

    def _clears_little(self, row: Tensor) -> bool:
        if row.shape[1] < self.SAMPLE:
            return False
        sample = row[:, :: row.shape[1] // self.SAMPLE].reshape(-1)
        return int(self.clears.index_select(0, sample).sum()) < self.FEW * sample.shape[0]

    @torch.jit.unused
    def _fused(self, row: Tensor) -> Tensor:
        """``_left``, read row by row: a compiler makes one loop of it, which keeps the words in registers."""
        # Rows are within the table by construction, so that no look-up has to be checked. One word after the other, as
        # torch, which steps through the graph of other programs, keeps what is used later.
        looked_up = (torch.ops.aten._unsafe_index(self.table, [index]) for index in row.unbind())
        words: Tensor = reduce(torch.bitwise_and, looked_up)  # [b, trees]
        return words

    def _left(self, row: Tensor) -> Tensor:
        """``[tables, b]`` -> ``[b, trees]``."""
        part = self.table.index_select(0, row.reshape(-1)).view(row.shape[0], row.shape[1], self.table.shape[1])
        count = row.shape[0]
        while count > 1:
            half = count // 2
            part[:half].bitwise_and_(part[count - half : count])
            count = count - half
        return part[0]

    def _left_by_few(self, row: Tensor) -> Tensor:
        """``_left`` from the table rows that clear bits alone: the first of each row, then the second, and so on."""
        clears = self.clears.index_select(0, row.reshape(-1)).view_as(row).t()  # [b, tables]
        read, count = row.t().masked_select(clears), clears.sum(1)
        first = count.cumsum(0) - count
        count, order = count.sort(descending=True)
        first = first.index_select(0, order)
        words = torch.full((row.shape[1], self.table.shape[1]), -1, dtype=torch.int64, device=row.device)
        for at in range(int(count[0])):
            rows = int((count > at).sum())
            part = self.table.index_select(0, read.index_select(0, first[:rows] + at))
            words[:rows].bitwise_and_(part)
        return torch.empty_like(words).index_copy_(0, order, words)


class RankLookup(TableLookup):
    """The row of a number is its rank among the thresholds of its column, of a missing value the rank above all others.

    Columns of few thresholds, such as one-hot ones, share a table, with a row for all of their ranks together: the sum
    of each rank times its stride.
    """

    SHARED: Final = 81  # rows of a table that columns share

    used: Tensor
    missing: Tensor
    layered: Tensor
    in_order: bool
    stride: Tensor
    layers: list[int]

    def __init__(self, nodes: BitvectorNodes, trees: int, features: NDArray[np.int64], device: torch.device) -> None:
        super().__init__()
        used, of_column = nodes.by_column()
        thresholds = [np.unique(facts.split) for facts in of_column]
        tables = [_by_rank(facts, trees, split) for facts, split in zip(of_column, thresholds, strict=True)]
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
        alone_last = np.argsort([len(thresholds[c]) == 1 for c in order], kind="stable")
        ranked = order[alone_last]
        self.ranks = Ranks([thresholds[c] for c in ranked], start[ranked], device)
        # A compiler keeps what is put into another order in memory, and not in registers.
        self.in_order = bool((ranked == order).all())
        self.register_derived(
            device,
            used=used[ranked],
            missing=features[used[ranked]],
            layered=np.argsort(alone_last),
            stride=stride[order][:, None],
        )
        self.look_up([_together([tables[c] for c in group]) for group in groups], device)

    def rows(self, values: Tensor, missing: Tensor) -> Tensor:
        """The row of the table for each group of columns."""
        rank: Tensor = self.ranks(values.index_select(0, self.used)).add_(missing.index_select(0, self.missing))
        if not self.in_order:
            rank = rank.index_select(0, self.layered)
        row, start = rank[: self.layers[0]], self.layers[0]
        for count in self.layers[1:]:
            more = rank[start : start + count] * self.stride[start : start + count]
            row, start = torch.cat([row[:count] + more, row[count:]]), start + count
        return row


class CategoryLookup(TableLookup):
    """The row of a category: the first for a missing one, one more than its code, the last for all beyond the sets."""

    used: Tensor
    last: Tensor
    start: Tensor

    def __init__(self, nodes: BitvectorNodes, trees: int, goes_right: NDArray[np.bool_], device: torch.device) -> None:
        super().__init__()
        used, of_column = nodes.by_column()
        tables = [_by_code(facts, trees, goes_right) for facts in of_column]
        sizes = np.array(list(map(len, tables)))
        start = np.cumsum([0, *sizes])[:-1].astype(np.int32)
        self.register_derived(device, used=used, last=sizes[:, None] - 1.0, start=start[:, None])
        self.look_up(tables, device)

    def rows(self, values: Tensor, missing: Tensor) -> Tensor:
        """The row of the table for each feature."""
        code = values.index_select(0, self.used) + 1
        return torch.minimum(code, self.last).to(torch.int32) + self.start


def _by_rank(nodes: BitvectorNodes, trees: int, thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The words that the nodes of one column leave, ``[ranks, trees]``."""
    last = len(thresholds)
    table = np.full((last + 2, trees), -1, np.int64)
    np.bitwise_and.at(table, (1 + np.searchsorted(thresholds, nodes.split), nodes.tree), ~nodes.cleared)
    np.bitwise_and.accumulate(table[: last + 1], axis=0, out=table[: last + 1])
    right = nodes.picked(nodes.missing_right)
    np.bitwise_and.at(table[last + 1], right.tree, ~right.cleared)
    return table


def _by_code(nodes: BitvectorNodes, trees: int, goes_right: NDArray[np.bool_]) -> NDArray[np.int64]:
    """What the nodes of one feature leave, ``[categories, trees]``."""
    code = np.arange(nodes.set_last.max() + 1)
    table = np.full((len(code), trees), -1, np.int64)
    for start, last, tree, cleared in zip(nodes.set_start, nodes.set_last, nodes.tree, nodes.cleared, strict=True):
        table[goes_right[start + np.minimum(code, last)], tree] &= ~cleared
    return table


def _sharing(rows: NDArray[np.int64], most: int) -> list[list[int]]:
    """Group columns so that a shared table has at most ``most`` rows; the largest groups come first."""
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
