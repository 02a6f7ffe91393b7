"""The progress of training: which epoch, its last metric and the best one so far."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl

from windtunnel.progress import Phase
from windtunnel.trainers.loop.best_checkpoint import BestCheckpoint


class EpochProgress(pl.Callback):
    """Shows the epochs as a phase; its numbers are those of ``BestCheckpoint``, which the history has too.

    Lightning's bar shows the metric of the last epoch only, which may not be the epoch that ``fit`` keeps.
    """

    def __init__(self, best: BestCheckpoint) -> None:
        self.best = best
        self._phase: Phase | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin the phase; its steps are batches."""
        steps = (trainer.max_epochs or math.inf) * trainer.num_training_batches
        if trainer.is_global_zero and steps > 0:
            self._phase = Phase("training", int(steps) if math.isfinite(steps) else None)
            self._phase.__enter__()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Show the epoch, the metric after the last one, and the best one."""
        if self._phase is None or not self.best.epochs:
            return
        last, kept, name = self.best.epochs[-1], self.best.epochs[self.best.best_epoch], self.best.metric.name
        text = f"epoch {last.epoch + 1} of at most {trainer.max_epochs}; {name} {last.metric:.4f} after {last.epoch}"
        if kept is not last:
            text += f", best {kept.metric:.4f} after {kept.epoch}"
        self._phase.advance(0, name=text)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        if self._phase is not None:
            self._phase.advance()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """End the phase."""
        if self._phase is not None:
            self._phase.__exit__()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """End the phase."""
        self.on_train_end(trainer, module)
