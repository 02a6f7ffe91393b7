"""The scores of an isolation forest."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class IsolationScore(Module):
    """From the path length of a row, over the expected one, to its score: the lower, the more abnormal.

    y = -2^(-s) - offset

    Shape
    -----
    ``[B, 1]`` -> ``[B]``.

    Parameters
    ----------
    offset : Tensor
        A number: 0 for ``score_samples``, ``offset_`` for ``decision_function``.

    Source
    ------
    sklearn.ensemble.IsolationForest: ``offset_``.
    """

    offset: Tensor

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        return -torch.exp2(-scores[:, 0]) - self.offset
