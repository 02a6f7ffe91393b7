"""Rows scaled to unit norm."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module

# scikit-learn takes a norm under ten float64 epsilons for zero and leaves the row as it is.
NEGLIGIBLE = 10 * 2.0**-52
ORDERS = {"l1": 1.0, "l2": 2.0, "max": float("inf")}


class Normalizer(Module):
    """Divide each row by its norm.

    y = x / |x|, and y = x where |x| is zero or negligible (under 2.2e-15).
    """

    CHOICES = {"norm": tuple(ORDERS)}
    norm: str  # "l1" (sum of absolute values), "l2" (Euclidean) or "max" (greatest absolute value)

    def __post_init__(self) -> None:
        self.order = ORDERS[self.norm]
        self.negligible = NEGLIGIBLE

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        # In float64 whatever the rows are: there no square of a float32 number overflows, and float64 rows overflow as
        # they do in the source.
        wide = x.to(torch.float64)
        size = self.size(wide)
        return (wide / torch.where(size < self.negligible, 1.0, size)).to(x.dtype)

    def size(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, 1]."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling() and self.norm != "max":
                # Native code takes three times as long to sum short rows one after the other.
                ones = torch.ones(x.shape[1], 1, dtype=x.dtype, device=x.device)
                total = (x.abs() if self.norm == "l1" else x * x) @ ones
                return total if self.norm == "l1" else total.sqrt()
        size: Tensor = torch.linalg.vector_norm(x, self.order, dim=1, keepdim=True)
        return size
