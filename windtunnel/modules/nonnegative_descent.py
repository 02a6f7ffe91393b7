"""Non-negative weights of fixed components, by coordinate descent."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class NonNegativeDescent(Module):
    """Steps of coordinate descent towards the non-negative weights W of fixed components H.

    min over W >= 0 of    1/2 |X - W H|^2 + l1 |W|_1 + l2 / 2 |W|^2

    From zeros, one step sets each column of W in turn to what is best for it alone. The steps end when the projected
    gradient, summed over *all rows that are given together*, has shrunk to ``tolerance`` of what it was at first.

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``; NaN for rows with negative values.

    Parameters
    ----------
    components : Tensor
        ``[K, width]``; learned.
    order : Tensor
        int64 ``[steps, K]``, the order of the columns in each step; a fact.
    l1, l2 : float
        Penalties.
    tolerance : float
        Of the projected gradient, relative to that of the first step.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("l1", "l2", "tolerance")
    WHOLE: ClassVar[bool] = True
    order: Tensor

    def __init__(self, components: Tensor, order: Tensor, l1: float, l2: float, tolerance: float) -> None:
        super().__init__()
        self.components = nn.Parameter(components.detach().clone())
        self.register_buffer("order", order.detach().clone())
        self.l1, self.l2, self.tolerance = float(l1), float(l2), float(tolerance)

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # In float64 whatever the type, as a step more or less moves the answer by the tolerance.
        components, count = self.components.double(), self.components.shape[0]
        gram = components @ components.t() + self.l2 * torch.eye(count, dtype=components.dtype, device=x.device)
        given = x.double() @ components.t() - self.l1  # [B, K]
        weights = torch.zeros_like(given)
        first = torch.zeros([], dtype=given.dtype, device=x.device)
        for step in range(self.order.shape[0]):
            violation = torch.zeros([], dtype=given.dtype, device=x.device)
            columns = [weights[:, one] for one in range(count)]
            for at in range(count):
                column = int(self.order[step, at])
                gradient = torch.stack(columns, dim=1) @ gram[column] - given[:, column]
                projected = torch.where(columns[column] == 0, gradient.clamp_max(0.0), gradient)
                violation = violation + projected.detach().abs().sum()
                if bool(gram[column, column] != 0):
                    columns[column] = (columns[column] - gradient / gram[column, column]).clamp_min(0.0)
            weights = torch.stack(columns, dim=1)
            if step == 0:
                first = violation
            if bool(first == 0) or bool(violation / first <= self.tolerance):
                break
        refused = (x < 0).any(dim=1, keepdim=True)
        return torch.where(refused, torch.full_like(weights, float("nan")), weights).to(x.dtype)
