"""The moving average of the weights during training."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from windtunnel.trainers.loop.module import FineTuning


class WeightAverage(pl.Callback):
    """Exponential moving average of the trainable weights; validation and ``BestCheckpoint`` see the average.

    a <- decay a + (1 - decay) w after each step, from the weights before training.

    Lightning's ``EMAWeightAveraging`` does not fit here. It starts from the weights after the first step. It restores
    the trained weights before metrics are logged, so that ``BestCheckpoint`` would keep those. And it copies the whole
    module with its frozen tables.

    Large tables that are trained by rows average their rows themselves.
    """

    def __init__(self, module: FineTuning, decay: float) -> None:
        self.net, self.tables = module.net, module.tables
        self.decay = decay
        self._weights: list[Tensor] = []  # collected once: walking the modules takes as long as a step of the average
        self._average: list[Tensor] = []
        self._current: list[Tensor] = []
        self._step = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start from the present weights, or move the checkpoint's average to their device."""
        named = self.net.named_parameters()
        self._weights = [weight.detach() for name, weight in named if weight.requires_grad and name not in self.tables]
        if not self._average:
            self._average = [weight.clone() for weight in self._weights]
        pairs = zip(self._average, self._weights, strict=True)
        self._average = [average.to(weight.device) for average, weight in pairs]
        self._step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average, after the last of the batches whose gradients are accumulated for a step."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._average:  # every trainable weight may be in a large table
            torch._foreach_lerp_(self._average, self._weights, 1 - self.decay)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put the average in place, except in a sanity check, which precedes ``on_train_start``."""
        if trainer.sanity_checking:
            return
        if self._average:
            self._current = [weight.clone() for weight in self._weights]
            self._set_weights(self._average)
        for rows in self.tables.values():
            rows.put_average()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put the trained weights back."""
        if trainer.sanity_checking:
            return
        if self._current:
            self._set_weights(self._current)
            self._current = []
        for rows in self.tables.values():
            rows.put_back()

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return {"average": self._average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the average of a checkpoint."""
        self._average = state_dict["average"]

    def _set_weights(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self._weights, values)
