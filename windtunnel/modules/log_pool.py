"""The logarithmic mean of the probabilities of several classifiers."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class LogPool(Module):
    """The mean over members of the logarithm of each probability, as scores of a softmax.

    s_k = mean over m of log max(p_mk, 1e-7); of two classes the log-odds s_1 - s_0.

    Shape
    -----
    ``[B, members * classes]`` -> ``[B, classes]``, or ``[B, 1]`` for two classes.

    Parameters
    ----------
    classes : int

    Examples
    --------
    >>> import torch
    >>> LogPool(2)(torch.tensor([[0.5, 0.5, 0.2, 0.8]])).sigmoid()
    tensor([[0.6667]])
    """

    FACTS: ClassVar[tuple[str, ...]] = ("classes",)
    classes: int

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = int(classes)

    def forward(self, x: Tensor) -> Tensor:
        """The pooled scores."""
        scores = torch.log(torch.clamp(x, min=1e-7)).reshape(x.shape[0], -1, self.classes).mean(dim=1)
        return scores[:, 1:] - scores[:, :1] if self.classes == 2 else scores
