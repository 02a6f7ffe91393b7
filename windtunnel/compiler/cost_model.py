"""The strategies for trees, and the cost of each: a linear model whose coefficients ``tree_costs`` fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.modules.trees.forms.bitvectors import BitvectorTrees
from windtunnel.modules.trees.forms.gemm import GemmTrees
from windtunnel.modules.trees.forms.oblivious import ObliviousTrees, oblivious
from windtunnel.modules.trees.forms.perfect import PerfectTrees
from windtunnel.modules.trees.forms.ranked_walk import RankedWalkTrees
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
        conditions = np.where(start > 0, -1 - start, column)
        same = oblivious((root, follow, is_node), conditions, trees.split.cpu().numpy()) is not None
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

    def seconds(self, rows: int, coefficients: Mapping[str, Sequence[float]], threads: int = 1) -> dict[str, float]:
        """The expected seconds of one call with ``rows`` rows by strategy, the fastest first.

        Each thread runs a slice of the rows, so that a call takes the time of one slice.
        """
        rows = rows_per_thread(rows, threads, least_rows_of(self.leaves))
        expected = {
            name: float(np.dot(weights, TREE_STRATEGIES[name].terms(self, rows)))
            for name, weights in coefficients.items()
            if TREE_STRATEGIES[name].takes(self)
        }
        return dict(sorted(expected.items(), key=lambda item: item[1]))


@dataclass(frozen=True)
class TreeStrategy:
    """A way to run trees: the form of their module, and what the time of a call depends on."""

    form: type[HardTrees]
    steps: Callable[[EnsembleShape], int]  # operations of a call that follow one another
    work: Callable[[EnsembleShape], int]  # for a row, besides columns and trees
    reads_sets: bool = True  # whether a set of categories takes as long as a column; if not, it is in the work
    takes: Callable[[EnsembleShape], bool] = lambda shape: True  # whether the model holds for an ensemble

    def terms(self, shape: EnsembleShape, rows: int) -> list[float]:
        """What the coefficients are multiplied by: a call, its steps, and rows times columns, trees and work."""
        columns = shape.columns + (shape.sets if self.reads_sets else 0)
        numbers = (1, self.steps(shape), rows * columns, rows * shape.trees, rows * self.work(shape))
        return [*map(float, numbers)]


TREE_STRATEGIES = {
    "gemm": TreeStrategy(
        GemmTrees,
        steps=lambda shape: 1,
        work=lambda shape: shape.products,
        takes=lambda shape: shape.products <= MOST_PRODUCTS,
    ),
    "tree_traversal": TreeStrategy(
        HardTrees,
        steps=lambda shape: shape.levels,
        work=lambda shape: shape.trees * shape.levels * (2 if shape.sets else 1),
        reads_sets=False,
    ),
    "perfect_tree_traversal": TreeStrategy(
        PerfectTrees,
        steps=lambda shape: shape.levels,
        work=lambda shape: shape.visits,
        takes=lambda shape: shape.levels <= DEEPEST_PERFECT and shape.perfect <= HOLLOW * shape.leaves,
    ),
    "ranked_traversal": TreeStrategy(
        RankedWalkTrees, steps=lambda shape: shape.levels, work=lambda shape: shape.visits
    ),
    "bitvectors": TreeStrategy(
        BitvectorTrees,
        steps=lambda shape: math.ceil(shape.trees / BitvectorTrees.BLOCK),
        work=lambda shape: shape.trees * shape.columns,
        reads_sets=False,
        takes=lambda shape: shape.most_leaves <= BitvectorTrees.MOST_LEAVES and shape.codes * shape.trees <= MOST_WORDS,
    ),
    "oblivious": TreeStrategy(
        ObliviousTrees,
        steps=lambda shape: shape.levels,
        work=lambda shape: shape.comparisons,
        takes=lambda shape: 0 < shape.comparisons and shape.trees << shape.levels <= ObliviousTrees.MOST,
    ),
}
"""The strategies by name; all give the same bits.

- "tree_traversal" goes down one level of every tree at a time.
- "ranked_traversal" does so over ranks, and stops where a tree ends.
- "perfect_tree_traversal" completes trees to perfect ones.
- "bitvectors" clears the bits of leaves that a row does not reach, up to 64 leaves.
- "oblivious" compares once for each level, if all nodes of a level have the same split.
- "gemm" compares at every node and multiplies matrices, for few leaves.
"""


def strategies_of(shape: EnsembleShape) -> list[str]:
    """The strategies that run an ensemble at a cost within the range of the model."""
    return [name for name, strategy in TREE_STRATEGIES.items() if strategy.takes(shape)]
