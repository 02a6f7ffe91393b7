"""The progress of training: which epoch, its last metric and the best one so far."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl

from windtunnel.program.records.number_text import value_text
from windtunnel.progress import DELAY, Phase, announce
from windtunnel.trainers.loop.best_checkpoint import BestCheckpoint
from windtunnel.trainers.loop.training_plan import TrainingPlan


class EpochProgress(pl.Callback):
    """Shows the epochs as a phase; its numbers are those of ``BestCheckpoint``, which the history has too.

    Lightning's bar shows the metric of the last epoch only, which may not be the epoch that ``fit`` keeps.
    """

    def __init__(self, best: BestCheckpoint, plan: TrainingPlan) -> None:
        self.best, self.plan = best, plan
        self._phase: Phase | None = None
        self._began, self._announced = 0.0, False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin the phase; its steps are batches."""
        steps = (trainer.max_epochs or math.inf) * trainer.num_training_batches
        if trainer.is_global_zero and steps > 0:
            self._phase = Phase("training", int(steps) if math.isfinite(steps) else None)
            self._phase.__enter__()
            self._began = time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Show the epoch, the metric after the last one, and the best one."""
        if self._phase is None or not self.best.epochs:
            return
        last, kept, name = self.best.epochs[-1], self.best.epochs[self.best.best_epoch], self.best.metric.name
        value = f"{name} {value_text(last.metric)}"
        text = f"epoch {last.epoch + 1} of at most {trainer.max_epochs}; {value} after {last.epoch}"
        if kept is not last:
            text += f", best {value_text(kept.metric)} after {kept.epoch}"
        self._phase.advance(0, name=text)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch; once it is known how long a step takes, say how long training takes.

        Nothing is said of a loader without a length.
        """
        if self._phase is None:
            return
        self._phase.advance()
        seconds = time.monotonic() - self._began
        if not self._announced and seconds > DELAY and math.isfinite(trainer.num_training_batches):
            self._announced = True
            announce(f"fit: {self._outlook(trainer, seconds / self._phase.done)}")

    def _outlook(self, trainer: pl.Trainer, seconds_per_step: float) -> str:
        """The most steps of training, and how long they take if no validation ends it early."""
        batches, epochs = int(trainer.num_training_batches), trainer.max_epochs or 0
        loader: Any = trainer.train_dataloader
        rows = getattr(getattr(loader, "loader", loader), "batch_size", None)
        each = "" if rows is None else f" of {rows:,} rows"
        seconds = epochs * (batches * seconds_per_step + self.best.epochs[0].seconds)
        patience = "" if self.best.patience is None else f", unless {self.best.patience} in a row bring no improvement"
        return (
            f"trains at most {epochs * batches:,} steps{each} with a validation every {batches:,} steps{patience}; "
            f"about {seconds:,.0f} s at most"
        )

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """End the phase."""
        if self._phase is not None:
            self._phase.__exit__()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """End the phase."""
        self.on_train_end(trainer, module)
