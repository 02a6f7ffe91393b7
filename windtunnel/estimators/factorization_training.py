"""Fits a factorization machine by Adam on rows that may be sparse."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn import functional
from torch.optim import Adam

from windtunnel.modules.linear.factorization_machine import FactorizationMachine

LARGEST_BATCH = 4096
STEPS_PER_EPOCH = 20
"""Least number of steps per epoch with the default batch size."""


def fit_machine(
    machine: FactorizationMachine,
    X: Any,
    target: NDArray[Any],
    *,
    loss: str,
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    batch_size: int | None,
    seed: int,
) -> list[float]:
    """Minimise the loss of a machine in float64, in place; returns the mean loss of each epoch.

    ``X`` is a float64 array or CSR matrix ``[N, width]``, ``target`` is ``[N]``, ``loss`` is "logistic", "softmax" or
    "squared". Without a batch size it is 4096, or less so that an epoch has 20 steps.
    """
    targets = torch.tensor(target)
    size = batch_size or min(LARGEST_BATCH, max(1, len(targets) // STEPS_PER_EPOCH))
    random = torch.Generator().manual_seed(seed)
    optimizer = Adam(machine.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True)
    curve = []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(targets), generator=random).split(size):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            mean = row_losses(scores(machine, X[rows.numpy()]), targets[rows], loss).mean()
            mean.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(mean.detach()) * len(rows)
        curve.append(total / len(targets))
    return curve


def row_losses(scores: Tensor, target: Tensor, loss: str) -> Tensor:
    """The loss of each row ``[B]``, of scores ``[B, K]``."""
    if loss == "softmax":
        return functional.cross_entropy(scores, target, reduction="none")
    compare = functional.mse_loss if loss == "squared" else functional.binary_cross_entropy_with_logits
    return compare(scores[:, 0], target.to(scores.dtype), reduction="none")


def scores(machine: FactorizationMachine, X: Any) -> Tensor:
    """Scores float64 ``[B, K]`` of rows ``[B, width]``, in time linear in their non-zero columns.

    One product gives the weighted sums and the sums of factors: weights and factors are columns of one table.
    """
    outputs, width, length = machine.factors.shape
    table = torch.cat([machine.weight, machine.factors.permute(0, 2, 1).reshape(-1, width)]).t()
    sums = RowProduct.apply(X, table)  # type: ignore[no-untyped-call]
    squares = X.multiply(X) if sparse.issparse(X) else X * X
    diagonal = RowProduct.apply(squares, machine.factors.square().sum(dim=2).t())  # type: ignore[no-untyped-call]
    pairs = sums[:, outputs:].view(-1, outputs, length).square().sum(dim=2)
    scores: Tensor = machine.bias + sums[:, :outputs] + 0.5 * (pairs - diagonal)
    return scores


class RowProduct(torch.autograd.Function):
    """``rows @ table``, ``[B, width] x [width, columns]``, with a gradient for the table.

    SciPy multiplies sparse rows several times faster than an embedding bag of torch on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, rows: Any, table: Tensor) -> Tensor:
        """Return ``rows @ table``, ``[B, columns]``."""
        ctx.rows = rows
        return torch.from_numpy(rows @ table.detach().contiguous().numpy())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Return None for the rows and ``rows^T @ gradient`` for the table."""
        return None, torch.from_numpy(ctx.rows.T @ grads[0].contiguous().numpy())
