"""What an estimator makes of its raw scores, as columns that another estimator reads."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.links import LINKS


class Linked(Module):
    """A link of raw scores: probabilities of a classifier, values of a regressor.

    y = link(scale s)

    Shape
    -----
    ``[B, K]`` -> ``[B, classes]`` or ``[B, K]``.

    Parameters
    ----------
    link : str
        A name in ``LINKS``.
    scale : float
        What the scores are multiplied by first.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("link", "scale")

    def __init__(self, link: str, scale: float = 1.0) -> None:
        super().__init__()
        self.link = link
        self.scale = float(scale)
        self.function = LINKS[link]

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> ``[B, classes]`` or ``[B, K]``."""
        return self.function(scores if self.scale == 1.0 else scores * self.scale)


class Positions(Module):
    """The position of the label: of one score whether it is above 0, of several the greatest, the first of equal ones.

    Shape
    -----
    ``[B, K]`` -> int64 ``[B]``.
    """

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> ``[B]``."""
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).to(torch.int64)
        return scores.argmax(dim=1)


class AsColumns(Module):
    """What a method returns, whole numbers too, in the type that is computed in.

    Shape
    -----
    ``[B, columns]`` -> ``[B, columns]``.

    Parameters
    ----------
    like : Tensor
        A number of the type that is computed in.
    """

    like: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("like", like.detach().clone())

    def forward(self, answer: Tensor) -> Tensor:
        """``[B, columns]`` -> ``[B, columns]``."""
        return answer.to(self.like.dtype)
