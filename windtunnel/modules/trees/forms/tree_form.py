"""The base class of the forms of hard trees other than the walk."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.base import derived
from windtunnel.modules.trees.hard import HardTrees


class TreeForm(HardTrees):
    """Hard trees in another layout; the saved tensors, the readings of features and the sums of leaves stay the same.

    A form finds the leaf, as its position in the layout of ``HardTrees``. Each set of categories becomes one more
    column, 1 where the set sends a row to the right and 0 elsewhere, so that all nodes compare with a threshold.
    """

    set_node: Tensor = derived()
    set_column: Tensor = derived()
    has_columns: bool = derived()

    def arrange(self) -> None:
        """Give each node that splits on a set its own column."""
        sets = np.flatnonzero(self.set_start.cpu().numpy())
        self._register(set_node=sets, set_column=self.column.cpu().numpy()[sets])
        self.has_columns = len(sets) > 0

    def _nodes(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Column and threshold at each position, each set as its own column."""
        column, split = self.column.cpu().numpy().copy(), self.split.double().cpu().numpy().copy()
        sets = self.set_node.cpu().numpy()
        column[sets] = max(1, len(self.readings)) * self.width + np.arange(len(sets))
        split[sets] = 0.5
        return column, split

    def _positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Roots, in the order of the output; where the children of a position are; which positions are nodes."""
        follow = self.follow.cpu().numpy()
        return self.root.cpu().numpy(), follow, follow != np.arange(len(follow))

    def _leaf_counts(self) -> NDArray[np.int64]:
        """The number of leaves of each tree, in the order of the output; 1 for trees that pad a score."""
        counts = np.append(np.diff(self.leaf_start.cpu().numpy()), 1)
        return np.take(counts, self.root.cpu().numpy(), mode="clip")

    def _register(self, **arrays: NDArray[np.generic]) -> None:
        self.register_derived(self.threshold.device, **arrays)

    def _values(self, x: Tensor) -> Tensor:
        """The input of the nodes, ``[b, columns]``: the readings of the features, then the columns of the sets."""
        values = self._readings(x)
        if self.has_columns:
            right = self._right_by_set(values.index_select(1, self.set_column), self.set_node)
            values = torch.cat([values, right.to(values.dtype)], dim=1)
        return values
