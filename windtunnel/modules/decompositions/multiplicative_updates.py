"""Non-negative weights of fixed components, by multiplicative updates."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import EPSILON, Module, bounded, learned
from windtunnel.modules.loops import while_loop

LEAST = 1.1920928955078125e-07
"""float32's epsilon, below which the source takes a number for zero, in whatever type it computes."""


def beta_divergence(x: Tensor, weights: Tensor, components: Tensor, beta: float, least: float) -> Tensor:
    """sqrt(2 d) with the beta-divergence d of X and W H, summed over all rows; beta 2 is the Frobenius norm."""
    product = weights @ components
    if beta == 2.0:
        return torch.sqrt(((x - product) ** 2).sum())
    inside, none = x > least, torch.zeros_like(x)
    values, fitted = torch.where(inside, x, torch.ones_like(x)), product.clamp_min(least)
    if beta == 1.0:
        each = torch.where(inside, values * torch.log(values / fitted) - values, none)
        divergence = each.sum() + product.sum()
    elif beta == 0.0:
        ratio = values / fitted
        divergence = (torch.where(inside, ratio - torch.log(ratio), none) - 1.0).sum()
    else:
        each = torch.where(inside, values**beta - beta * (values * fitted ** (beta - 1.0)), none)
        divergence = (each.sum() + (product**beta).sum() * (beta - 1.0)) / (beta * (beta - 1.0))
    return torch.sqrt(2.0 * divergence.clamp_min(0.0))


class MultiplicativeUpdates(Module):
    """Multiplicative steps towards the non-negative weights W of fixed components H.

    W <- W * ((X (W H)^(beta - 2)) H^T / ((W H)^(beta - 1) H^T + l1 + l2 W))^gamma

    From sqrt(mean(X) / K) in all places. The steps end by a rule over *all rows that are given together*. With
    ``watches`` "divergence" they go on while the beta-divergence of X and W H, computed every ten steps, falls by at
    least ``tolerance`` of its first value; with "change" while W changes by more than ``tolerance`` of its norm.
    """

    BATCH_DEPENDENT: ClassVar[bool] = True
    components: Tensor = learned()  # [K, width]
    beta: float  # 2 for the Frobenius norm, 1 for Kullback-Leibler, 0 for Itakura-Saito, or another
    l1: float  # penalties
    l2: float
    steps: int = bounded(0, 10_000)  # at most
    tolerance: float  # 0 for all steps
    watches: str  # "divergence" (NMF) or "change" (MiniBatchNMF, which rejects no rows)

    def __post_init__(self) -> None:
        self.stride = 10 if self.watches == "divergence" else 1
        self.least, self.epsilon = LEAST, EPSILON
        self.gamma = 1.0 / (2.0 - self.beta) if self.beta < 1 else 1.0 / (self.beta - 1.0) if self.beta > 2 else 1.0

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values; negative ones, or zeros where beta is 0 or less, only NMF rejects."""
        rejected = ~torch.isfinite(x)
        if self.watches == "divergence":
            rejected = rejected | (x < 0) | (x == 0) & (self.beta <= 0)
        return rejected.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]; NaN for rows that the source rejects (negative values; zeros where beta <= 0)."""
        # In float64 whatever the type, as a step more or less moves the output by the tolerance.
        dtype, x, components = x.dtype, x.double(), self.components.double()
        count = components.shape[0]
        weights = torch.sqrt(x.mean() / count).repeat(x.shape[0], count)
        start = beta_divergence(x, weights, components, self.beta, self.least).detach()
        going, error, looks = torch.ones_like(start, dtype=torch.bool), start.clone(), self.steps // self.stride
        in_graph = False
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            in_graph = torch.compiler.is_exporting()
            if in_graph:
                state, facts = (going, error, weights), (x, components, start)
                going, error, weights = while_loop(self.strides, state, facts, looks)
        if not in_graph:
            for _ in range(looks):
                if bool(going):
                    going, error, weights = self.strides(going, error, weights, x, components, start)
        for _ in range(self.steps - looks * self.stride):
            weights = torch.where(going, self.step(weights, x, components), weights)
        if self.watches != "divergence":
            return weights.to(dtype)
        rejected = (x < 0) | (x == 0) & (self.beta <= 0)
        return torch.where(rejected.any(dim=1, keepdim=True), torch.full_like(weights, float("nan")), weights).to(dtype)

    def strides(
        self, going: Tensor, before: Tensor, weights: Tensor, x: Tensor, components: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The steps up to the next look: whether to go on ``[]``, the divergence seen, and the weights."""
        last = weights
        for _ in range(self.stride):
            last, weights = weights, self.step(weights, x, components)
        if self.tolerance <= 0:
            return going.clone(), before.clone(), weights
        if self.watches == "divergence":
            error = beta_divergence(x, weights, components, self.beta, self.least).detach()
            return ~((before - error) / start < self.tolerance), error, weights
        change = torch.linalg.vector_norm((weights - last).detach())
        return ~(change / torch.linalg.vector_norm(weights.detach()) <= self.tolerance), before.clone(), weights

    def step(self, weights: Tensor, x: Tensor, components: Tensor) -> Tensor:
        """The weights ``[B, K]`` after one step."""
        weights = weights * self.factor(x, weights, components)
        if self.watches == "divergence" and self.beta < 1:
            weights = torch.where(weights < self.epsilon, torch.zeros_like(weights), weights)
        return weights

    def factor(self, x: Tensor, weights: Tensor, components: Tensor) -> Tensor:
        """The factor of each weight in a step, ``[B, K]``."""
        if self.beta == 2.0:
            above = x @ components.t()
            below = weights @ (components @ components.t())
        else:
            product = weights @ components
            base = product.clamp_min(self.least) if self.beta < 2 else product
            above = (x * base ** (self.beta - 2.0)) @ components.t()
            powers = product.clamp_min(self.least) if self.beta < 1 else product
            if self.beta == 1.0:
                below = components.sum(dim=1).unsqueeze(0)
            else:
                below = powers ** (self.beta - 1.0) @ components.t()
        below = below + self.l1 + self.l2 * weights
        ratio = above / torch.where(below == 0, torch.full_like(below, self.least), below)
        return ratio if self.gamma == 1.0 else ratio**self.gamma
