"""Which of two labels, by a threshold on the answer of a classifier."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class PastThreshold(Module):
    """The position of the positive label where its answer reaches a bound, that of the other one elsewhere.

    y = positive where sign s >= bound, else 1 - positive

    Shape
    -----
    ``[B, 1]`` -> int64 ``[B]``.

    Parameters
    ----------
    bound : Tensor
        A number, in the unit of the answer.
    positive : int
        0 or 1.
    sign : int
        -1 where the answer is a decision for the other label, else 1.

    Examples
    --------
    >>> import torch
    >>> PastThreshold(torch.tensor(0.3), 0, 1)(torch.tensor([[0.2], [0.3]])).tolist()
    [1, 0]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("positive", "sign")
    bound: Tensor
    positive: int
    sign: int

    def __init__(self, bound: Tensor, positive: int, sign: int) -> None:
        super().__init__()
        self.register_buffer("bound", bound.detach().clone())
        self.positive, self.sign = int(positive), int(sign)

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        past = (scores[:, 0] * self.sign >= self.bound).to(torch.int64)
        return past if self.positive == 1 else 1 - past
