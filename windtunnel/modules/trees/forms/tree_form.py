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

    set_column: Tensor = derived()
    set_from: Tensor = derived()
    set_to: Tensor = derived()
    has_columns: bool = derived()

    def arrange(self) -> None:
        """Give each node that splits on a set its own column."""
        sets = torch.nonzero(self.set_start > 0).squeeze(1)
        for name, buffer in (("set_column", self.column), ("set_from", self.set_start), ("set_to", self.set_last)):
            self.register_buffer(name, buffer[sets], persistent=False)
        self.has_columns = len(sets) > 0

    def _nodes(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Column and threshold at each position, each set as its own column."""
        column, split = self.column.cpu().numpy().copy(), self.split.double().cpu().numpy().copy()
        sets = np.flatnonzero(self.set_start.cpu().numpy())
        column[sets] = max(1, len(self.readings)) * self.width + np.arange(len(sets))
        split[sets] = 0.5
        return column, split

    def _positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Roots, in the order of the output; where the children of a position are; which positions are nodes."""
        follow = self.follow.cpu().numpy()
        return self.root.cpu().numpy(), follow, follow != np.arange(len(follow))

    def _register(self, **arrays: NDArray[np.generic]) -> None:
        """Register buffers that follow from the saved tensors and are not saved."""
        for name, array in arrays.items():
            buffer = torch.from_numpy(np.ascontiguousarray(array)).to(self.threshold.device)
            self.register_buffer(name, buffer, persistent=False)

    def _values(self, x: Tensor) -> Tensor:
        """What nodes read, ``[b, columns]``: the readings of the features, then the columns of the sets."""
        values = self._readings(x)
        if self.has_columns:
            code = values.index_select(1, self.set_column).clamp(-1.0, self.NO_CODE).to(torch.int64) + 1
            # Not their minimum, which ONNX Runtime gets wrong where they are over 2^31 apart.
            place = torch.where(code < self.set_to, code, self.set_to) + self.set_from
            right = self.set_goes_right.index_select(0, place.reshape(-1)).view(place.shape[0], place.shape[1])
            values = torch.cat([values, right.to(values.dtype)], dim=1)
        return values
