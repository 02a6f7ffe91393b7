"""Which label, for sources that decide otherwise than by the greatest score of a row."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class AtLeast(Module):
    """The position of the label, for sources that take the second one from a bound on.

    y = 1 where s >= bound, else 0

    Shape
    -----
    ``[B, 1]`` -> int64 ``[B]``.

    Parameters
    ----------
    bound : Tensor
        A number, in the unit of the score.

    Examples
    --------
    >>> import torch
    >>> AtLeast(torch.tensor(0.5))(torch.tensor([[0.4], [0.5]])).tolist()
    [0, 1]
    """

    bound: Tensor

    def __init__(self, bound: Tensor) -> None:
        super().__init__()
        self.register_buffer("bound", bound.detach().clone())

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        return (scores[:, 0] >= self.bound).to(torch.int64)


class PositionColumn(Module):
    """The position of the greatest score, the first of equal ones, as a column.

    Shape
    -----
    ``[B, K]`` -> int64 ``[B, 1]``.
    """

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> [B, 1]."""
        return scores.argmax(dim=1, keepdim=True)
