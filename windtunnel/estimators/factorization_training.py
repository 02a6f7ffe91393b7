"""Fitting a factorization machine by Lightning, over rows that stay as sparse as they are."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.optim import Adam, Optimizer

from windtunnel.modules.linear.factorization_machine import FactorizationMachine
from windtunnel.objectives.losses import Loss
from windtunnel.trainers.loop.quiet import quiet
from windtunnel.trainers.recipe import Recipe

Rows = Any
"""Rows float64 ``[B, width]``: a NumPy array or a matrix of SciPy's in CSR form."""


def fit_machine(
    machine: FactorizationMachine, rows: Rows, target: NDArray[Any], loss: Loss, recipe: Recipe
) -> list[float]:
    """Minimise the loss of a machine, in place; gives the mean loss of each epoch.

    Parameters
    ----------
    machine : FactorizationMachine
        In float64.
    rows : array or CSR matrix ``[N, width]``
    target : array ``[N]``
    loss : callable
        ``loss(scores [B, K], target [B], None) -> scalar``.
    recipe : Recipe
        Its epochs, learning rate, weight decay, batch size and seed are read.
    """
    module = MachineFitting(machine, loss, recipe)
    batches = RowBatches(rows, torch.tensor(target), recipe.rows_per_step(len(target)), recipe.seed)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with quiet():
        # On the CPU, where SciPy multiplies; without logs, bars and checkpoints, whose upkeep costs as much as a step.
        trainer = pl.Trainer(max_epochs=recipe.epochs, accelerator="cpu", devices=1, barebones=True)
        try:
            trainer.fit(module, batches)
        except SystemExit as leaving:
            if not isinstance(leaving.__context__, KeyboardInterrupt):
                raise
            # Lightning answers an interrupt by ignoring further ones and leaving the interpreter; the caller decides.
            signal.signal(signal.SIGINT, on_interrupt)
            raise leaving.__context__ from None
    return module.curve


class MachineFitting(pl.LightningModule):
    """Minimises a loss of a factorization machine by Adam.

    Attributes
    ----------
    curve : list of float
        Mean loss of each epoch so far.
    """

    def __init__(self, machine: FactorizationMachine, loss: Loss, recipe: Recipe) -> None:
        super().__init__()
        self.machine = machine
        self.loss = loss
        self.recipe = recipe
        self.curve: list[float] = []
        self._total = self._rows = 0.0

    def training_step(self, batch: tuple[Rows, Tensor], index: int) -> Tensor:
        """Give the loss of ``(rows, target)``."""
        rows, target = batch
        loss = self.loss(scores(self.machine, rows), target, None)
        self._total += float(loss.detach()) * len(target)
        self._rows += len(target)
        return loss

    def on_train_epoch_end(self) -> None:
        """Close the mean of the epoch."""
        self.curve.append(self._total / self._rows)
        self._total = self._rows = 0.0

    def configure_optimizers(self) -> Optimizer:
        """Set up Adam over all of the machine."""
        decay = self.recipe.weight_decay
        return Adam(self.parameters(), lr=self.recipe.learning_rate, weight_decay=decay, fused=True)


def scores(machine: FactorizationMachine, rows: Rows) -> Tensor:
    """What the machine gives for rows, float64 ``[B, K]``, in time linear in their non-zero columns.

    Each row picks its non-zero columns from one table of weights and factors side by side, as an embedding bag does.
    """
    outputs, width, length = machine.factors.shape
    table = torch.cat([machine.weight, machine.factors.permute(0, 2, 1).reshape(-1, width)]).t()
    summed = RowProduct.apply(rows, table)  # type: ignore[no-untyped-call]
    squares = rows.multiply(rows) if sparse.issparse(rows) else rows * rows
    own = RowProduct.apply(squares, machine.factors.square().sum(dim=2).t())  # type: ignore[no-untyped-call]
    pairs = summed[:, outputs:].view(-1, outputs, length).square().sum(dim=2)
    answer: Tensor = machine.bias + summed[:, :outputs] + 0.5 * (pairs - own)
    return answer


class RowProduct(torch.autograd.Function):
    """``rows @ table``, ``[B, width] x [width, columns]``, with a gradient for the table.

    SciPy multiplies sparse rows several times faster than an embedding bag of torch on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, rows: Rows, table: Tensor) -> Tensor:
        """``[B, columns]``."""
        ctx.rows = rows
        return torch.from_numpy(rows @ table.detach().contiguous().numpy())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Nothing for the rows, ``rows^T @ gradient`` for the table."""
        return None, torch.from_numpy(ctx.rows.T @ grads[0].contiguous().numpy())


class RowBatches:
    """Rows in a new order each epoch, ``batch_size`` at a time: ``(rows, target)``."""

    def __init__(self, rows: Rows, target: Tensor, batch_size: int, seed: int) -> None:
        self.rows = rows
        self.target = target
        self.batch_size = batch_size
        self._random = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.target) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Rows, Tensor]]:
        for rows in torch.randperm(len(self.target), generator=self._random).split(self.batch_size):  # type: ignore[no-untyped-call]
            yield self.rows[rows.numpy()], self.target[rows]
