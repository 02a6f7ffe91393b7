"""What SIGTERM does while a net is trained: what it does otherwise."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytorch_lightning as pl


class Termination(pl.Callback):
    """Gives SIGTERM back to whoever handled it before, by default the system, which ends the process.

    Lightning's own handler lets the batch end and leaves the interpreter with status 0, which torchrun and schedulers
    take for success. Among several processes it exchanges a tensor from within, for which the others may be about to
    take a gradient. Nothing is gained by it, as ``last.ckpt`` is whole at any time. Where SLURM requeues a job of
    several processes, it stays.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Before training, and in a sanity check."""
        self._give_back(trainer)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Before the first step."""
        self._give_back(trainer)

    def _give_back(self, trainer: Any) -> None:
        requeued = getattr(getattr(trainer.strategy, "cluster_environment", None), "auto_requeue", False)
        if self.handler is not None and not requeued and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)
