"""Non-negative weights of fixed components, by coordinate descent."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.loops import while_loop


class NonNegativeDescent(Module):
    """Steps of coordinate descent towards the non-negative weights W of fixed components H.

    min over W >= 0 of    1/2 |X - W H|^2 + l1 |W|_1 + l2 / 2 |W|^2

    From zeros, one step sets each column of W in turn to what is best for it alone. The steps end when the projected
    gradient, summed over *all rows that are given together*, has shrunk to ``tolerance`` of what it was at first.
    """

    BATCH_DEPENDENT: ClassVar[bool] = True
    components: Tensor = learned()  # [K, width]
    order: Tensor  # int64 [steps, K], the order of the columns in each step
    l1: float  # penalties
    l2: float
    tolerance: float  # of the projected gradient, relative to that of the first step

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]; NaN for rows with negative values."""
        # In float64 whatever the type, as a step more or less moves the output by the tolerance.
        components, count = self.components.double(), self.components.shape[0]
        gram = components @ components.t() + self.l2 * torch.eye(count, dtype=components.dtype, device=x.device)
        products = x.double() @ components.t() - self.l1  # [B, K]
        weights = torch.zeros_like(products)
        first = torch.zeros([], dtype=products.dtype, device=x.device)
        going = torch.ones([], dtype=torch.bool, device=x.device)
        step = torch.zeros([1], dtype=torch.int64, device=x.device)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                state, facts = (going, step, first, weights), (self.order, gram, products)
                return self.checked(x, while_loop(self.step, state, facts, self.order.shape[0])[3])
        for _ in range(self.order.shape[0]):
            going, step, first, weights = self.step(going, step, first, weights, self.order, gram, products)
            if not bool(going):
                break
        return self.checked(x, weights)

    def step(
        self, going: Tensor, step: Tensor, first: Tensor, weights: Tensor, order: Tensor, gram: Tensor, products: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Whether to go on, the next step ``[1]``, the first projected gradient ``[]``, and the weights so far."""
        violation = torch.zeros_like(first)
        places = torch.arange(gram.shape[0], device=gram.device)
        columns = order.index_select(0, step).squeeze(0)
        for at in range(gram.shape[0]):
            column = columns[at : at + 1]
            row, old = gram.index_select(0, column).squeeze(0), weights.index_select(1, column)
            gradient = (weights @ row).unsqueeze(1) - products.index_select(1, column)
            projected = torch.where(old == 0, gradient.clamp_max(0.0), gradient)
            violation = violation + projected.detach().abs().sum()
            diagonal = row.index_select(0, column)
            best = (old - gradient / torch.where(diagonal == 0, torch.ones_like(diagonal), diagonal)).clamp_min(0.0)
            weights = torch.where((places == column) & (diagonal != 0), best, weights)
        first = torch.where(step[0] == 0, violation, first)
        return ~((first == 0) | (violation / first <= self.tolerance)), step + 1, first, weights

    def checked(self, x: Tensor, weights: Tensor) -> Tensor:
        """The weights, NaN for rows that the source rejects."""
        rejected = (x < 0).any(dim=1, keepdim=True)
        return torch.where(rejected, torch.full_like(weights, float("nan")), weights).to(x.dtype)
