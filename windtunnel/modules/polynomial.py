"""Products of columns."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class Polynomial(Module):
    """Products of columns, a column as often as its power says.

    y_k = product over d of x_{factors[k, d]}, where the position ``width`` stands for 1

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    factors : Tensor
        int64 ``[K, degree]``, positions of columns, or ``width`` for no further factor.

    Examples
    --------
    >>> import torch
    >>> Polynomial(torch.tensor([[2, 2], [0, 2], [0, 1], [1, 1]]))(torch.tensor([[2.0, 3.0]])).tolist()
    [[1.0, 2.0, 6.0, 9.0]]
    """

    factors: Tensor

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.register_buffer("factors", factors.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        padded = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        y = padded.index_select(1, self.factors[:, 0])
        for degree in range(1, self.factors.shape[1]):
            y = y * padded.index_select(1, self.factors[:, degree])
        return y
