"""Method outputs of an estimator as columns for another estimator."""

from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.links import LINKS


class LinkOutput(Module):
    """A link of raw scores: probabilities of a classifier, values of a regressor.

    y = link(scale s)
    """

    link: str  # a name in ``LINKS``
    scale: float = 1.0  # what the scores are multiplied by first

    def __post_init__(self) -> None:
        self.function = LINKS[self.link]

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> [B, classes] or [B, K]."""
        return self.function(scores if self.scale == 1.0 else scores * self.scale)


class CastColumns(Module):
    """The output of a method, whole numbers too, in the type that is computed in."""

    like: Tensor  # a number of the type that is computed in

    def forward(self, output: Tensor) -> Tensor:
        """[B, columns] -> [B, columns]."""
        return output.to(self.like.dtype)
