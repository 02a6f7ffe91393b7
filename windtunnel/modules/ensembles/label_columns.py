"""Predicted labels as columns, whose gradient goes to the scores."""

from typing import Optional

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded


class OneHotLabel(Module):
    """A column per class, 1 at the label.

    y_k = 1 where k = index, else 0
    """

    classes: int = bounded(1, 2**16)  # K
    smooth: bool = False
    """Whether the gradient is that of softmax(s), or of [1 - sigmoid(s), sigmoid(s)] for a single score. Without, or
    where there are other than one or K scores, no gradient flows."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1 + S], the index of the label and the scores, -> [B, K]."""
        label = torch.nn.functional.one_hot(x[:, 0].to(torch.int64), self.classes).to(x.dtype)
        if not self.smooth:
            return label
        scores = x[:, 1:]
        if scores.shape[1] == self.classes:
            probability = torch.softmax(scores, dim=1)
        elif scores.shape[1] == 1 and self.classes == 2:
            positive = torch.sigmoid(scores)
            probability = torch.cat([1 - positive, positive], dim=1)
        else:
            return label
        return label + (probability - probability.detach())

    def soft(self, sample: Optional[Tensor]) -> Module:  # noqa: UP045  TorchScript
        """The same columns with the gradient of the probabilities that the scores stand for."""
        return OneHotLabel(self.classes, smooth=True)


class LabelValues(Module):
    """The number that stands for the label.

    y = sum_k values_k x_k
    """

    values: Tensor  # [K], labels that are numbers, or their positions

    def forward(self, x: Tensor) -> Tensor:
        """[B, K], 1 at the label and 0 elsewhere, -> [B, 1]."""
        return (x * self.values).sum(dim=1, keepdim=True)
