"""The process's own SIGTERM handler during training."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytorch_lightning as pl


class Termination(pl.Callback):
    """Restores the process's own SIGTERM handler during training; by default the system ends the process.

    Lightning's handler lets the batch end and exits with status 0, which torchrun and schedulers take for success.
    With several processes it exchanges a tensor within the handler, which the others may mistake for a gradient. The
    process may end at any time, because ``last.ckpt`` is always complete. If SLURM requeues a job of
    several processes, Lightning's handler stays.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_validation_start(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        """Restore the handler before epoch 0 is validated, and before the first step."""
        requeued = getattr(getattr(trainer.strategy, "cluster_environment", None), "auto_requeue", False)
        if self.handler is not None and not requeued and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)

    on_train_start = on_validation_start
