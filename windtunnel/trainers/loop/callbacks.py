"""What fine-tuning remembers while it runs: the epochs, the best weights, and all that an exact resume needs."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from windtunnel.errors import BadInput
from windtunnel.objectives.metrics import Metric
from windtunnel.program.history import Epoch
from windtunnel.trainers.data.order import order_of, resumable, same_rows
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.processes import check_steps
from windtunnel.trainers.optimizers.large_tables import VisitedRows

CHECKPOINT = "last.ckpt"


class BestCheckpoint(Checkpoint):
    """Records each epoch, keeps the best weights, stops early, and writes a checkpoint per epoch.

    The best epoch is the one with the best metric; ``by_loss`` the one with the lowest loss among those whose loss and
    metric are both better than at the start: a ranking is right long before the size of the scores is.

    Epoch 0 is the translation as it came, judged by ``Trainer.validate``. A checkpoint is written to a temporary file
    and moved into place, so that a kill at any time leaves the previous one whole. As one of Lightning's checkpoint
    callbacks it ends an epoch after the module has logged its means.

    A checkpoint from the middle of an epoch tells how many of its batches are done: a resumed run sees the others, in
    the order in which they would have come, which is why what that order follows from must be as it was.

    Parameters
    ----------
    net : nn.Module
        The translation, or a residual model beside it.
    judge : Metric
        The metric.
    patience : int or None
        Epochs without a better metric before training stops.
    directory : path or None
        Where the checkpoint of the last epoch goes.
    by_loss : bool
        Whether the loss chooses among the epochs that make the metric better.
    every : int or None
        Steps between the checkpoints within an epoch; None for none.
    tables : mapping
        Parameter of the net -> its rows; large tables, of which no copy is made.
    """

    def __init__(
        self,
        net: nn.Module,
        judge: Metric,
        patience: int | None,
        directory: Path | None,
        *,
        by_loss: bool = False,
        every: int | None = None,
        tables: Mapping[str, VisitedRows] | None = None,
    ) -> None:
        self.net = net
        self.judge = judge
        self.patience = patience
        self.directory = directory
        self.by_loss = by_loss
        self.every = every
        self.tables = dict(tables or {})
        self.given: float | None = None
        self.epochs: list[Epoch] = []
        self.best_epoch = 0
        self.best_metric = math.nan
        self.interrupt: KeyboardInterrupt | None = None
        self._best: dict[str, Tensor] = {}
        self._judged: tuple[float, float] | None = None
        self._resumed = False
        self._done = 0
        self._order: dict[str, Any] | None = None
        self._judged_by: dict[str, Any] | None = None
        self._rate = math.nan
        self._started = time.perf_counter()

    def restore(self) -> None:
        """Give the net the best weights so far."""
        parameters = dict(self.net.named_parameters())
        with torch.no_grad():
            for name, value in self._best.items():
                parameters[name].copy_(value)
        for met in self.tables.values():
            met.restore()

    def reject(self) -> None:
        """Let nothing be better than epoch 0."""
        self.best_epoch, self.best_metric = 0, self.epochs[0].metric

    @property
    def start(self) -> float:
        """The metric of the translation as it came: that of epoch 0, unless epoch 0 begins elsewhere (``given``)."""
        return self.epochs[0].metric if self.given is None else self.given

    @property
    def judged(self) -> int:
        """The epochs that were trained and judged, one that is not recorded yet included."""
        return len(self.epochs) - 1 + (self._judged is not None)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Metric the weights that were just validated, and keep them if they are the best."""
        assert isinstance(module, FineTuning)
        if trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        self._judged = float(logged["val_loss"]), float(logged[f"val_{module.judge.name}"])
        if not self.epochs:
            self._begin(module)
        elif self._better(*self._judged):
            self._keep(self._judged[1])

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Write the state before the first step, or stop at once where a resumed run had no patience left."""
        check_steps(trainer.num_training_batches)
        self._started = time.perf_counter()
        self._order = order_of(trainer.train_dataloader, trainer.world_size)
        self._judged_by = same_rows(_loaders(trainer.val_dataloaders)[0])
        if not self._resumed:
            self._save(trainer)
        elif self._done:
            self._go_on(trainer)
        trainer.should_stop = trainer.should_stop or self._hopeless()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Name the epoch to the loader, which sets the order of its rows."""
        for part in _loaders(trainer.train_dataloader):
            if hasattr(part, "set_epoch"):
                part.set_epoch(trainer.current_epoch)
        self._order = order_of(trainer.train_dataloader, trainer.world_size)
        self._rate = float(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Write a checkpoint within the epoch: now all callbacks are done with the step before."""
        if self.every is not None and batch_idx and batch_idx % self.every == 0:
            self._save(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        self._done = batch_idx + 1

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Record the epoch, write its checkpoint, and stop where going on is hopeless."""
        if self._judged is None:
            raise BadInput("an epoch ended without validation; a Trainer for fit validates once after every epoch")
        (val_loss, metric), self._judged, self._done = self._judged, None, 0
        now = time.perf_counter()
        train_loss = float(trainer.callback_metrics["train_loss"])
        record = Epoch(len(self.epochs), train_loss, val_loss, metric, self._rate, now - self._started)
        self.epochs.append(record)
        self._started = now
        self._save(trainer)
        if not math.isfinite(metric):
            warnings.warn(
                f"training diverged in epoch {record.epoch} (the metric is {metric}); epoch {self.best_epoch} is kept. "
                "Take a lower learning_rate, or clip=1.0.",
                UserWarning,
                stacklevel=2,
            )
        trainer.should_stop = trainer.should_stop or self._hopeless()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Remember an interrupt, which Lightning turns into an exit of the interpreter."""
        if isinstance(exception, KeyboardInterrupt):
            self.interrupt = exception

    def state_dict(self) -> dict[str, Any]:
        """Everything as tensors and plain values, loadable with ``weights_only=True``."""
        state: dict[str, Any] = {
            "epochs": [asdict(record) for record in self.epochs],
            "best_epoch": self.best_epoch,
            "best_metric": self.best_metric,
            "best": self._best,
            "done": self._done,
            "order": self._order,
            "judged_by": self._judged_by,
            "random": torch.get_rng_state(),
        }
        if torch.cuda.is_available():
            state["random_cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; nothing draws random numbers between here and the first step."""
        self.epochs = [Epoch(**record) for record in state_dict["epochs"]]
        self.best_epoch, self.best_metric = state_dict["best_epoch"], state_dict["best_metric"]
        self._best = state_dict["best"]
        self._done = state_dict.get("done", 0)
        self._resumed = True
        torch.set_rng_state(state_dict["random"].cpu())
        if torch.cuda.is_available() and "random_cuda" in state_dict:
            torch.cuda.set_rng_state_all([state.cpu() for state in state_dict["random_cuda"]])

    def _go_on(self, trainer: pl.Trainer) -> None:
        """Take the rows to their place within the epoch."""
        loader = resumable(trainer.train_dataloader)
        assert loader is not None  # the checkpoint would have been rejected
        self.on_train_epoch_start(trainer, trainer.lightning_module)
        loader.skip(self._done)

    def _begin(self, module: FineTuning) -> None:
        assert self._judged is not None
        (val_loss, metric), self._judged = self._judged, None
        if not math.isfinite(metric) and module.judge.name == "loss":
            raise BadInput(
                f"before training, the loss over the validation rows is {metric}; give a loss that is finite for "
                "finite scores, or rows whose targets it takes"
            )
        if not math.isfinite(metric):
            raise BadInput(
                f"before training, {module.judge.name} over the validation rows is {metric}: AUROC needs rows of "
                "two classes, R2 two rows, and all need finite scores; give other validation rows or another metric"
            )
        seconds = time.perf_counter() - self._started
        self._keep(metric)
        self.epochs = [Epoch(0, None, val_loss, metric, module.recipe.learning_rate, seconds)]

    def _keep(self, metric: float) -> None:
        self.best_epoch, self.best_metric = len(self.epochs), metric
        self._best = {
            name: parameter.detach().clone()
            for name, parameter in self.net.named_parameters()
            if parameter.requires_grad and name not in self.tables
        }
        for met in self.tables.values():
            met.keep()

    def _better(self, loss: float, metric: float) -> bool:
        if not self.by_loss:
            return self.judge.better(metric, self.best_metric)
        return self.judge.better(metric, self.epochs[0].metric) and loss < self.epochs[self.best_epoch].val_loss

    def _hopeless(self) -> bool:
        last = self.epochs[-1]
        out_of_patience = self.patience is not None and last.epoch - self.best_epoch >= self.patience
        return out_of_patience or not math.isfinite(last.metric)

    def _save(self, trainer: pl.Trainer) -> None:
        if self.directory is None:
            return
        final = self.directory / CHECKPOINT
        draft = final.with_suffix(".tmp")
        trainer.save_checkpoint(draft)
        if trainer.is_global_zero:
            os.replace(draft, final)


class Average(pl.Callback):
    """An exponential moving average of the trainable weights; epochs are judged, and kept, with the average in place.

    a <- decay a + (1 - decay) w after each step, from the weights before training.

    Parameters
    ----------
    net : nn.Module
        The translation.
    decay : float
        In (0, 1).
    tables : mapping
        Parameter of the net -> its rows; large tables, which keep the average of their rows themselves.
    """

    def __init__(self, net: nn.Module, decay: float, tables: Mapping[str, VisitedRows] | None = None) -> None:
        self.net = net
        self.decay = decay
        self.tables = dict(tables or {})
        self._weights: list[Tensor] = []  # found once: walking through the modules takes as long as moving the average
        self._average: list[Tensor] = []
        self._current: list[Tensor] = []

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start from the weights as they are, or from the checkpoint's average on the device of the weights."""
        named = self.net.named_parameters()
        self._weights = [one.detach() for name, one in named if one.requires_grad and name not in self.tables]
        if not self._average:
            self._average = [weight.clone() for weight in self._weights]
        pairs = zip(self._average, self._weights, strict=True)
        self._average = [average.to(weight.device) for average, weight in pairs]

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the average a step."""
        if self._average:  # large tables may be all there is
            torch._foreach_lerp_(self._average, self._weights, 1 - self.decay)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put the average in place; a sanity check, which comes before ``on_train_start``, judges nothing."""
        if trainer.sanity_checking:
            return
        if self._average:
            self._current = [weight.clone() for weight in self._weights]
            self._place(self._average)
        for met in self.tables.values():
            met.put_average()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put the trained weights back."""
        if trainer.sanity_checking:
            return
        if self._current:
            self._place(self._current)
            self._current = []
        for met in self.tables.values():
            met.put_back()

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return {"average": self._average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint's average."""
        self._average = state_dict["average"]

    def _place(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self._weights, values)


class LocalCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint straight to a local file; Lightning gathers it in memory first, large tables and all."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write it."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
        else:
            torch.save(checkpoint, path)


def _loaders(loaders: Any) -> list[Any]:
    return list(loaders) if isinstance(loaders, (list, tuple)) else [loaders]
