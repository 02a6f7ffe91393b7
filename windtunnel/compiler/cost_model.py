"""The cost of each strategy for trees: a linear model whose coefficients ``tree_costs`` fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.modules.trees.forms.bitvectors import BitvectorTrees
from windtunnel.modules.trees.forms.oblivious import ObliviousTrees, oblivious
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.walk_layout import depths_of
from windtunnel.program.row_slices import least_rows_of, rows_per_thread

MOST_PRODUCTS = 1 << 18
"""The largest sum of squared leaf counts; beyond it, matrix products are far slower than the other strategies."""
MOST_WORDS = 1 << 24
"""The most words in the tables of bitvectors by category: 128 MiB."""
DEEPEST_PERFECT = 10
"""The deepest trees that are tried as perfect ones unless asked for."""
HOLLOW = 8
"""The largest ratio of the leaves of the perfect trees to those of the trees."""


@dataclass(frozen=True)
class EnsembleShape:
    """The features of an ensemble that the cost depends on."""

    trees: int
    columns: int  # that some node reads
    sets: int  # nodes that split by a set of categories
    codes: int  # the sum of the largest code in the sets of each column
    levels: int  # the depth of the deepest tree
    visits: int  # the sum of the depths of all trees
    most_leaves: int  # leaves of the largest tree
    leaves: int  # of all trees
    perfect: int  # leaves of all trees completed to perfect ones
    products: int  # the sum of the squared numbers of leaves
    comparisons: int  # depth of the deepest tree times trees, for oblivious trees; else 0

    @classmethod
    def of(cls, trees: HardTrees) -> EnsembleShape:
        """The shape of an ensemble."""
        root, follow, column, start, last = (
            tensor.cpu().numpy() for tensor in (trees.root, trees.follow, trees.column, trees.set_start, trees.set_last)
        )
        is_node = follow != np.arange(len(follow))
        depths = depths_of(root, follow, is_node)
        # Each set of categories counts as a column.
        asks = np.where(start > 0, -1 - start, column)
        same = oblivious((root, follow, is_node), asks, trees.split.cpu().numpy()) is not None
        leaves = np.diff(trees.leaf_start.cpu().numpy())
        return cls(
            trees=len(root),
            columns=len(np.unique(column[is_node] % max(1, trees.width))),
            sets=int((start > 0).sum()),
            codes=sum(int(last[(column == number) & (start > 0)].max()) for number in np.unique(column[start > 0])),
            levels=int(depths.max(initial=0)),
            visits=int(depths.sum()),
            most_leaves=int(leaves.max(initial=1)),
            leaves=int(leaves.sum()),
            perfect=int((1 << np.minimum(depths, 40)).sum()),
            products=int((leaves**2).sum()),
            comparisons=int(depths.max(initial=0)) * len(root) if same else 0,
        )

    def terms(self, strategy: str, rows: int) -> list[float]:
        """The terms of a strategy's cost: a call, its steps, and rows times columns, trees and work."""
        # Sets count as columns, except for the walk, which looks them up at each node, and for bitvectors.
        columns = self.columns + (0 if strategy in ("tree_traversal", "bitvectors") else self.sets)
        steps = {"gemm": 1, "bitvectors": math.ceil(self.trees / BitvectorTrees.BLOCK)}.get(strategy, self.levels)
        work = WORK[strategy](self)
        return [1.0, float(steps), float(rows * columns), float(rows * self.trees), float(rows * work)]

    def takes(self, strategy: str) -> bool:
        """Whether the strategy can run the trees at a cost within the model's range."""
        return {
            "perfect_tree_traversal": self.levels <= DEEPEST_PERFECT and self.perfect <= HOLLOW * self.leaves,
            "gemm": self.products <= MOST_PRODUCTS,
            "bitvectors": self.most_leaves <= BitvectorTrees.MOST_LEAVES and self.codes * self.trees <= MOST_WORDS,
            "oblivious": 0 < self.comparisons and self.trees << self.levels <= ObliviousTrees.MOST,
        }.get(strategy, True)

    def seconds(self, rows: int, coefficients: Mapping[str, Sequence[float]], threads: int = 1) -> dict[str, float]:
        """The expected seconds of one call with ``rows`` rows by strategy, the fastest first.

        Each thread runs a slice of the rows, so that a call takes the time of one slice.
        """
        rows = rows_per_thread(rows, threads, least_rows_of(self.leaves))
        expected = {
            strategy: float(np.dot(weights, self.terms(strategy, rows)))
            for strategy, weights in coefficients.items()
            if self.takes(strategy)
        }
        return dict(sorted(expected.items(), key=lambda item: item[1]))


WORK: dict[str, Callable[[EnsembleShape], int]] = {
    "gemm": lambda shape: shape.products,
    "tree_traversal": lambda shape: shape.trees * shape.levels * (2 if shape.sets else 1),
    "perfect_tree_traversal": lambda shape: shape.visits,
    "ranked_traversal": lambda shape: shape.visits,
    "bitvectors": lambda shape: shape.trees * shape.columns,
    "oblivious": lambda shape: shape.comparisons,
}
"""Strategy -> its work for a row, besides columns and trees."""
