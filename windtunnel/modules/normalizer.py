"""Rows scaled to unit norm."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module

# scikit-learn takes a norm under ten float64 epsilons for zero and leaves the row as it is.
NEGLIGIBLE = 10 * 2.0**-52


class Normalizer(Module):
    """Divide each row by its norm.

    y = x / |x|, and y = x where |x| is zero or negligible (under 2.2e-15).

    Shape
    -----
    ``[B, width]`` -> ``[B, width]``.

    Parameters
    ----------
    norm : str
        "l1" (sum of absolute values), "l2" (Euclidean) or "max" (greatest absolute value).

    Examples
    --------
    >>> import torch
    >>> Normalizer("max")(torch.tensor([[3.0, -4.0], [0.0, 0.0]])).tolist()
    [[0.75, -1.0], [0.0, 0.0]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("norm",)

    def __init__(self, norm: str) -> None:
        super().__init__()
        if norm not in ("l1", "l2", "max"):
            raise ValueError(f"norm must be 'l1', 'l2' or 'max', however: norm={norm!r}")
        self.norm = norm
        self.negligible = NEGLIGIBLE

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        # [B, 1]; the norm is taken of x / greatest, so that no square overflows or underflows in float32. The norm
        # does not depend on this choice, hence neither does its gradient.
        greatest = x.detach().abs().amax(dim=1, keepdim=True)
        greatest = torch.where(greatest > 0, greatest, torch.ones_like(greatest))
        relative = x / greatest
        if self.norm == "l1":
            size = relative.abs().sum(dim=1, keepdim=True)
        elif self.norm == "l2":
            size = torch.linalg.vector_norm(relative, dim=1, keepdim=True)
        else:
            size = relative.abs().amax(dim=1, keepdim=True)
        small = size * greatest < self.negligible
        return torch.where(small, x, relative / torch.where(small, torch.ones_like(size), size))
