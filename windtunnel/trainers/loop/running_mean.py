"""Means over the batches of an epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.processes import sum_processes


class RunningMean:
    """The mean of a loss over the weighted rows of batches, and over all processes.

    The sums stay on the device of the losses, so that ``add`` does not wait for it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._sums: tuple[Tensor | float, Tensor | float] = (0.0, 0.0)

    def add(self, loss: Tensor, targets: Targets) -> None:
        """Add the mean loss of a batch with these targets."""
        total, rows = self._sums
        size = len(targets.target) if targets.weight is None else targets.weight.sum()
        loss = loss.detach().to(torch.promote_types(loss.dtype, torch.float32))  # of a training in 16 bits
        self._sums = total + loss * size, rows + size

    def compute(self) -> float | None:
        """The mean; None without a row of a weight above 0. Each process must call it."""
        total, rows = map(float, sum_processes(*self._sums))
        return total / rows if rows else None

    def state_dict(self) -> list[float]:
        """The sum of the losses and the sum of the weights, in this process."""
        return [*map(float, self._sums)]

    def load_state_dict(self, state: list[float]) -> None:
        """Set both sums."""
        total, rows = state
        self._sums = total, rows
