"""The label that an estimator gives, as columns that others read; the gradient goes to what the label was chosen by."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar, Optional

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class Chosen(Module):
    """A column per class, 1 at the label.

    y_k = 1 where k = position, else 0

    Shape
    -----
    ``[B, 1 + S]``, the position of the label and the scores, -> ``[B, K]``. No gradient flows.

    Parameters
    ----------
    classes : int
        K.

    Examples
    --------
    >>> import torch
    >>> Chosen(3)(torch.tensor([[2.0, 0.1]])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("classes",)
    classes: int

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = int(classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1 + S] -> [B, K]."""
        return torch.nn.functional.one_hot(x[:, 0].to(torch.int64), self.classes).to(x.dtype)

    def soft(self, sample: Optional[Tensor]) -> Module:  # noqa: UP045  TorchScript
        """The same columns with the gradient of the probabilities that the scores stand for."""
        return ChosenSoftly(self.classes)


class ChosenSoftly(Module):
    """A column per class, 1 at the label, with the gradient of probabilities.

    Forward as ``Chosen``; backward as softmax(s), or as [1 - sigmoid(s), sigmoid(s)] for a single score. Where there
    are other than one or K scores no gradient flows.

    Shape
    -----
    ``[B, 1 + S]``, the position of the label and the scores, -> ``[B, K]``.

    Parameters
    ----------
    classes : int
        K.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("classes",)
    classes: int

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = int(classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1 + S] -> [B, K]."""
        chosen = torch.nn.functional.one_hot(x[:, 0].to(torch.int64), self.classes).to(x.dtype)
        scores = x[:, 1:]
        if scores.shape[1] == self.classes:
            likely = torch.softmax(scores, dim=1)
        elif scores.shape[1] == 1 and self.classes == 2:
            positive = torch.sigmoid(scores)
            likely = torch.cat([1 - positive, positive], dim=1)
        else:
            return chosen
        return chosen + (likely - likely.detach())


class LabelValues(Module):
    """The number that stands for the label.

    y = sum_k values_k x_k

    Shape
    -----
    ``[B, K]``, 1 at the label and 0 elsewhere, -> ``[B, 1]``.

    Parameters
    ----------
    values : Tensor
        ``[K]``, labels that are numbers, or their positions.

    Examples
    --------
    >>> import torch
    >>> LabelValues(torch.tensor([3.0, 7.0]))(torch.tensor([[0.0, 1.0]])).tolist()
    [[7.0]]
    """

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, K] -> [B, 1]."""
        return (x * self.values).sum(dim=1, keepdim=True)


class Logarithm(Module):
    """The natural logarithm of probabilities; minus infinity at 0, where the gradient is 0.

    y = log(p)

    Shape
    -----
    ``[B, K]`` -> ``[B, K]``.
    """

    PARTIAL: ClassVar[bool] = True

    def forward(self, p: Tensor) -> Tensor:
        """[B, K] -> [B, K]."""
        inside = p > 0
        return torch.where(inside, torch.log(torch.where(inside, p, torch.ones_like(p))), torch.log(p.detach()))


class WholeNumbers(Module):
    """Columns as whole numbers, such as the positions of labels.

    Shape
    -----
    ``[B, K]`` -> int64 ``[B, K]``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, K] -> [B, K]."""
        return x.to(torch.int64)


class WeightedMean(Module):
    """The weighted mean of what E members answer, each with K columns.

    y_k = sum_e w_e x_{e K + k} / sum_e w_e

    The sum runs in the order of the members, as in the source, so that ties stay ties.

    Shape
    -----
    ``[B, E K]`` -> ``[B, K]``.

    Parameters
    ----------
    weight : Tensor
        ``[E]``; learned.

    Examples
    --------
    >>> import torch
    >>> WeightedMean(torch.tensor([1.0, 3.0]))(torch.tensor([[0.0, 1.0, 1.0, 0.0]])).tolist()
    [[0.75, 0.25]]
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, E K] -> [B, K]."""
        members = self.weight.shape[0]
        each = x.reshape(x.shape[0], members, x.shape[1] // members) * self.weight.unsqueeze(1)
        return each.cumsum(1)[:, -1] / self.weight.sum()
