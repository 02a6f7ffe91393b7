"""Exact inference of oblivious trees, such as CatBoost's: all nodes of a level compare the same."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import InvalidOption
from windtunnel.modules.base import derived
from windtunnel.modules.trees.forms.ranks import Ranks
from windtunnel.modules.trees.forms.tree_form import TreeForm


class ObliviousTrees(TreeForm):
    """The sums of ``HardTrees``; the decisions of a tree's levels, read as bits, are the number of the leaf.

    leaf <- 2 leaf + (rank[level_column[level]] > bound[level]), level by level from the root on

    Ranks are bytes. Trees stand one below the other and rows side by side, so a level of all trees takes a copy, a
    comparison and a sum, each of which a processor does for dozens of bytes at a time. A column with more thresholds
    than a byte can count becomes several columns. Trees with fewer levels than the deepest one get further levels above
    their root, at which all rows go left.

    Raises
    ------
    InvalidOption
        Two nodes of a level compare different things, or the tables of leaves would be larger than ``MOST``.
    """

    __constants__: ClassVar[list[str]] = [*TreeForm.__constants__, "AT_ONCE", "ROWS"]
    MOST = 1 << 22
    NEVER = 255  # no rank is above it
    AT_ONCE = 1 << 18  # the most rows times trees at once
    ROWS = 2048  # the most rows at once; a processor's cache holds their ranks and leaf numbers

    used: Tensor = derived()
    level_column: Tensor = derived()
    bound: Tensor = derived()
    first: Tensor = derived()
    by_score: Tensor = derived()
    adds_to: Tensor = derived()
    readings: list[int] = derived()  # again, as TorchScript reads the lists that may be empty off the class itself
    levels: int = derived()

    def arrange(self) -> None:
        """Lay out the levels of all trees, and the leaves by their number."""
        super().arrange()
        column, split = self._nodes()
        trees = oblivious(self._positions(), column, split)
        if trees is None:
            raise InvalidOption(
                "oblivious trees ask the same at all nodes of a level, as CatBoost's do under its default grow_policy; "
                "these do not. Choose strategy='auto'."
            )
        self.levels = max((len(tree.column) for tree in trees), default=0)
        if len(trees) << self.levels > self.MOST:
            raise InvalidOption(
                f"as oblivious trees these {len(trees):,} trees of {self.levels} levels would take tables of "
                f"{len(trees) << self.levels:,} leaves; {self.MOST:,} are accepted. Choose strategy='auto'."
            )
        used, thresholds = _bytes_each(trees, self.NEVER)
        level_column = np.zeros((self.levels, len(trees)), np.int64)
        bound = np.full((self.levels, len(trees), 1), self.NEVER, np.uint8)
        places = np.full((len(trees), 1 << self.levels), len(self.value) - 1)  # the last leaf is 0
        place = {(c, split): (at, rank) for at, c in enumerate(used) for rank, split in enumerate(thresholds[at])}
        for at, tree in enumerate(trees):
            begin = self.levels - len(tree.column)
            for level, comparison in enumerate(zip(tree.column, tree.split, strict=True), begin):
                level_column[level, at], bound[level, at] = place[comparison]
            places[at, : len(tree.leaf)] = tree.leaf
        self.ranks = Ranks(thresholds, np.zeros(len(used), np.int32), self.threshold.device)
        value = self.value.cpu().numpy()[places.reshape(-1)]
        self._register(used=np.array(used, np.int64), level_column=level_column, bound=bound, value=value)
        self._register(first=(np.arange(len(trees), dtype=np.int32) << self.levels)[:, None])
        self._register(by_score=value.T if self.vector else value[None])
        each = len(trees) if self.vector else max(1, len(trees) // max(1, self.outputs))
        self._register(adds_to=np.arange(len(trees)) // each)
        self.row_cost = 1

    def _scores(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return self._in_a_graph(x)
        trees = self.first.shape[0]
        scores = torch.empty((self.outputs, x.shape[0]), dtype=torch.float64, device=x.device)
        at_once = min(self.ROWS, max(1, self.AT_ONCE // max(1, trees)))
        # In the shape of the ranks: a comparison with a single column takes ten times as long.
        bound = self.bound.expand(self.levels, trees, min(at_once, x.shape[0])).contiguous()
        for start in range(0, x.shape[0], at_once):
            part = self._ranked(x[start : start + at_once])
            leaf = self._numbers(part, bound[:, :, : part.shape[1]])
            if self.vector:
                for score in range(self.outputs):
                    self._add(leaf, score, scores[score : score + 1, start : start + at_once])
            else:
                self._add(leaf, 0, scores[:, start : start + at_once])
        return (scores / self.divisor).t().to(x.dtype)

    def _add(self, leaf: Tensor, score: int, into: Tensor) -> None:
        """Add base and trees one after the other, as the sources do: the order decides how a sum is rounded."""
        value = self.by_score[score].index_select(0, leaf.view(-1)).view_as(leaf)
        into.copy_(self.base[score : score + into.shape[0]].unsqueeze(1).expand_as(into))
        into.index_add_(0, self.adds_to, value)

    @torch.jit.unused
    def _in_a_graph(self, x: Tensor) -> Tensor:
        """The same in operations that compilers fuse into one loop."""
        return super()._scores(x)

    def _leaves(self, x: Tensor) -> Tensor:
        """The number of the leaf that each row falls into in each tree, ``[b * trees]``."""
        return self._numbers(self._ranked(x), self.bound).t().reshape(-1)

    def _ranked(self, x: Tensor) -> Tensor:
        """The ranks of the values, uint8 ``[columns, b]``."""
        if self.levels == 0:  # nothing is read, so that values may be missing
            return torch.zeros((0, x.shape[0]), dtype=torch.uint8, device=x.device)
        values = self._values(x.to(self.split.dtype)).to(torch.float64)
        ranks: Tensor = self.ranks(values.t().index_select(0, self.used))
        return ranks.to(torch.uint8)

    def _numbers(self, ranks: Tensor, bound: Tensor) -> Tensor:
        """``[columns, b]`` -> the numbers of the leaves among those of all trees, int32 ``[trees, b]``."""
        # More than eight bits do not fit a byte.
        kind = torch.uint8 if self.levels <= 8 else torch.int32
        number = torch.zeros((self.first.shape[0], ranks.shape[1]), dtype=kind, device=ranks.device)
        for level in range(self.levels):
            right = ranks.index_select(0, self.level_column[level]).gt_(bound[level])
            number = right.to(kind).add_(number, alpha=2)
        return number.to(torch.int32).add_(self.first)


class Levels(NamedTuple):
    """Column and threshold of each level of a tree, from the root on, and its leaves from left to right."""

    column: NDArray[np.int64]
    split: NDArray[np.float64]
    leaf: NDArray[np.int64]


def oblivious(
    positions: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
    column: NDArray[np.int64],
    split: NDArray[np.float64],
) -> list[Levels] | None:
    """Read trees by their levels; None if nodes of a level compare different things.

    The arguments are what ``TreeForm._positions`` and ``_nodes`` give.
    """
    roots, follow, is_node = positions
    trees = []
    for root in roots:
        at, level_column = np.array([root]), []
        while is_node[at].any():
            if not is_node[at].all() or (column[at] != column[at[0]]).any() or (split[at] != split[at[0]]).any():
                return None
            level_column.append(at[0])
            at = (follow[at][:, None] + np.arange(2)).reshape(-1)
        trees.append(Levels(column[level_column], split[level_column], at))
    return trees


def _bytes_each(trees: list[Levels], most: int) -> tuple[list[int], list[NDArray[np.float64]]]:
    """The columns, as often as their thresholds take bytes, and the thresholds of each; one at least."""
    column, split = (np.concatenate([np.zeros(0), *parts]) for parts in zip(*(tree[:2] for tree in trees), strict=True))
    used: list[int] = []
    thresholds: list[NDArray[np.float64]] = []
    for number in np.unique(column).astype(np.int64).tolist():
        every = np.unique(split[column == number])
        for start in range(0, len(every), most):
            used.append(number)
            thresholds.append(every[start : start + most])
    return used or [0], thresholds or [np.zeros(1)]
