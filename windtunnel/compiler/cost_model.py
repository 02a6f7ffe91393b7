"""What the strategies for trees cost: a sum of terms, the coefficients of which ``tree_costs`` learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.modules.trees.forms.bitvectors import BitvectorTrees
from windtunnel.modules.trees.forms.oblivious import ObliviousTrees, oblivious
from windtunnel.modules.trees.forms.perfect import PerfectTrees
from windtunnel.modules.trees.forms.ranked import depths_of
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.row_slices import least_of, share

MOST_PRODUCTS = 1 << 18
"""Leaves squared, added up; beyond, matrix products are nowhere near the others."""
MOST_WORDS = 1 << 24
"""Words in the tables of bitvectors that categories look up: 128 MiB."""
HOLLOW = 8
"""How many times more leaves perfect trees may have than the trees that they stand for."""


@dataclass(frozen=True)
class Shape:
    """What the cost of an ensemble depends on.

    Attributes
    ----------
    trees, columns : int
        Trees, and columns that some node reads.
    sets, codes : int
        Nodes that split by a set of categories; the largest codes in the sets of each column, added up.
    levels, visits : int
        Splits on the longest way down: of the deepest tree, and of all trees added up.
    most_leaves, leaves, perfect, products : int
        Leaves of the largest tree; of all trees, as they are and completed to perfect ones; their squares added up.
    asked : int
        Levels of the deepest tree times trees, where they are oblivious; else 0.
    """

    trees: int
    columns: int
    sets: int
    codes: int
    levels: int
    visits: int
    most_leaves: int
    leaves: int
    perfect: int
    products: int
    asked: int

    @classmethod
    def of(cls, trees: HardTrees) -> Shape:
        """Read it off an ensemble."""
        root, follow, column, start, last = (
            held.cpu().numpy() for held in (trees.root, trees.follow, trees.column, trees.set_start, trees.set_last)
        )
        is_node = follow != np.arange(len(follow))
        depths = depths_of(root, follow, is_node)
        # The node that a set belongs to is a column of its own.
        asks = np.where(start > 0, -1 - start, column)
        same = oblivious((root, follow, is_node), asks, trees.split.cpu().numpy()) is not None
        leaves = np.diff(trees.leaf_start.cpu().numpy())
        return cls(
            trees=len(root),
            columns=len(np.unique(column[is_node] % max(1, trees.width))),
            sets=int((start > 0).sum()),
            codes=sum(int(last[(column == one) & (start > 0)].max()) for one in np.unique(column[start > 0])),
            levels=int(depths.max(initial=0)),
            visits=int(depths.sum()),
            most_leaves=int(leaves.max(initial=1)),
            leaves=int(leaves.sum()),
            perfect=int((1 << np.minimum(depths, 40)).sum()),
            products=int((leaves**2).sum()),
            asked=int(depths.max(initial=0)) * len(root) if same else 0,
        )

    def terms(self, strategy: str, rows: int) -> list[float]:
        """What the seconds of a strategy are a sum of: a call, its steps, and for the rows columns, trees and work."""
        # Sets are columns of their own, but for the walk, which looks each up where it stands, and for bitvectors.
        columns = self.columns + (0 if strategy in ("tree_traversal", "bitvectors") else self.sets)
        steps = {"gemm": 1, "bitvectors": math.ceil(self.trees / BitvectorTrees.BLOCK)}.get(strategy, self.levels)
        work = WORK[strategy](self)
        return [1.0, float(steps), float(rows * columns), float(rows * self.trees), float(rows * work)]

    def takes(self, strategy: str) -> bool:
        """Whether the trees can be run that way at a cost that the model knows."""
        return {
            "perfect_tree_traversal": self.levels <= PerfectTrees.DEEPEST and self.perfect <= HOLLOW * self.leaves,
            "gemm": self.products <= MOST_PRODUCTS,
            "bitvectors": self.most_leaves <= BitvectorTrees.MOST_LEAVES and self.codes * self.trees <= MOST_WORDS,
            "oblivious": 0 < self.asked and self.trees << self.levels <= ObliviousTrees.MOST,
        }.get(strategy, True)

    def seconds(self, rows: int, coefficients: Mapping[str, Sequence[float]], threads: int = 1) -> dict[str, float]:
        """The seconds that one call with so many rows is expected to take, for each strategy, the fastest first.

        Threads answer slices of the rows, each by itself: a call takes what the rows of one thread take.
        """
        rows = share(rows, threads, least_of(self.leaves))
        expected = {
            strategy: float(np.dot(known, self.terms(strategy, rows)))
            for strategy, known in coefficients.items()
            if self.takes(strategy)
        }
        return dict(sorted(expected.items(), key=lambda one: one[1]))


WORK: dict[str, Callable[[Shape], int]] = {
    "gemm": lambda of: of.products,
    "tree_traversal": lambda of: of.trees * of.levels * (2 if of.sets else 1),
    "perfect_tree_traversal": lambda of: of.visits,
    "ranked_traversal": lambda of: of.visits,
    "bitvectors": lambda of: of.trees * of.columns,
    "oblivious": lambda of: of.asked,
}
"""What each strategy does for a row, beside columns and trees."""
