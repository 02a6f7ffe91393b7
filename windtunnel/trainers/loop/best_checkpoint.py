"""The best weights of a training run, its epochs, and the checkpoint that an exact resume needs."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from windtunnel.atomic_write import replacing
from windtunnel.errors import BadInput, warn_caller
from windtunnel.program.records.fit_record import AT_LIMIT
from windtunnel.program.records.history import Epoch
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.loop.evaluation import check_initial_value
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.training_plan import TrainingPlan
from windtunnel.trainers.processes import check_steps

CHECKPOINT = "last.ckpt"


class BestCheckpoint(Checkpoint):
    """Records each epoch, keeps the best weights, stops early, and writes a checkpoint per epoch.

    The best epoch has the best metric. With ``by_loss`` it has the lowest loss among the epochs whose loss and metric
    are both better than those of epoch 0: a ranking metric converges long before the loss does.

    ``Trainer.validate`` records epoch 0, before any step. A checkpoint is written to a temporary file and moved into
    place, so that the previous one survives a kill at any time. This is a ``Checkpoint`` because Lightning calls
    checkpoint callbacks last, after the module has logged the means of the epoch.

    A checkpoint within an epoch, after ``every`` steps, records how many batches are done. A resumed run trains on the
    other batches, so the facts that determine their order must be the same.

    Training stops after ``patience`` validations without a better one. Large tables that are trained by rows are not
    copied.
    """

    def __init__(
        self,
        module: FineTuning,
        directory: Path | None = None,
        every: int | None = None,
        start: dict[str, Any] | None = None,
    ) -> None:
        self.net, self.metric, self.tables = module.net, module.metric, module.tables
        self.patience, self.by_loss = module.recipe.patience, module.recipe.epoch_by_loss
        self.directory = directory
        self.every = every
        self.start = start  # see ``training_start``
        self.epochs: list[Epoch] = []
        self.best_epoch = 0
        self.best_metric = math.nan
        self.interrupt: KeyboardInterrupt | None = None
        self._best: dict[str, Tensor] = {}
        self._validated: tuple[float, float] | None = None
        self._resumed = False
        self.began = False
        self._done = 0
        self._order: dict[str, Any] | None = None
        self._validation_rows: dict[str, Any] | None = None
        self._rate = math.nan
        self._epoch_began = time.perf_counter()

    def restore(self) -> None:
        """Load the best weights into the net."""
        parameters = dict(self.net.named_parameters())
        with torch.no_grad():
            for name, value in self._best.items():
                parameters[name].copy_(value)
        for rows in self.tables.values():
            rows.restore()

    @property
    def finished_epochs(self) -> int:
        """The number of trained and validated epochs, including one that is not recorded yet."""
        return len(self.epochs) - 1 + (self._validated is not None)

    @property
    def rule(self) -> str:
        """The rule for the best epoch, such as "the best auroc"."""
        name = self.metric.name
        if not self.by_loss:
            return f"the best {name}"
        values = "loss is" if name == "loss" else f"loss and {name} are"
        return f"the lowest loss of those whose {values} better than in epoch 0"

    def end(self, plan: TrainingPlan) -> str:
        """How the training of a plan ended, such as "at the limit of 20 epochs"."""
        last = self.epochs[-1]
        if self._diverged():
            return f"as it diverged: {self.metric.name} {last.metric}"
        if self._out_of_patience():
            return f"early: {self.patience} validations without a better one (patience={self.patience})"
        if last.epoch == plan.epochs:
            return f"{AT_LIMIT} {plan.limit()}"
        return "by an error, an interrupt or a callback"

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Keep the validated weights if they are the best."""
        assert isinstance(module, FineTuning)
        if trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        self._validated = float(logged["val_loss"]), float(logged[f"val_{module.metric.name}"])
        if not self.epochs:
            self._record_epoch_0(module)
        elif self._better(*self._validated):
            self._keep(self._validated[1])

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Write the state before the first step; stop at once if the resumed run has no patience left."""
        check_steps(trainer.num_training_batches)
        self._epoch_began = time.perf_counter()
        self._order = _loader(trainer.train_dataloader).order_among(trainer.world_size)
        self._validation_rows = _loader(trainer.val_dataloaders).row_facts
        if not self._resumed:
            self._save(trainer)
        elif self._done:
            self.on_train_epoch_start(trainer, module)
            _loader(trainer.train_dataloader).skip(self._done)
        trainer.should_stop = trainer.should_stop or self._should_stop()
        self.began = True

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Tell the loader the epoch, which sets the order of its rows."""
        loader = _loader(trainer.train_dataloader)
        loader.set_epoch(trainer.current_epoch)
        self._order = loader.order_among(trainer.world_size)
        self._rate = float(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Write a checkpoint within the epoch, after all callbacks of the previous step."""
        if self.every is not None and batch_idx and batch_idx % self.every == 0:
            self._save(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        self._done = batch_idx + 1

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Record the epoch, write its checkpoint, and stop if patience has run out or the metric is not finite."""
        if self._validated is None:
            raise BadInput("an epoch ended without validation; a Trainer for fit validates once after every epoch")
        (val_loss, metric), self._validated, self._done = self._validated, None, 0
        now = time.perf_counter()
        train_loss = float(trainer.callback_metrics["train_loss"])
        seconds, number = now - self._epoch_began, len(self.epochs)
        record = Epoch(number, train_loss, val_loss, metric, self._rate, seconds, trainer.global_step)
        self.epochs.append(record)
        self._epoch_began = now
        self._save(trainer)
        if self._diverged():
            warn_caller(
                f"training diverged in epoch {record.epoch} (the metric is {metric}); epoch {self.best_epoch} is kept. "
                "Take a lower learning_rate, or clip=1.0.",
            )
        trainer.should_stop = trainer.should_stop or self._should_stop()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Remember an interrupt, which Lightning turns into an exit of the interpreter."""
        if isinstance(exception, KeyboardInterrupt):
            self.interrupt = exception

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values, loadable with ``weights_only=True``."""
        state: dict[str, Any] = {
            "epochs": [asdict(record) for record in self.epochs],
            "best_epoch": self.best_epoch,
            "best_metric": self.best_metric,
            "best": self._best,
            "done": self._done,
            "order": self._order,
            "validation_rows": self._validation_rows,
            "start": self.start,
            "random": torch.get_rng_state(),
        }
        if torch.cuda.is_available():
            state["random_cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint's state. Nothing may draw random numbers between this and the first step."""
        self.epochs = [Epoch(**record) for record in state_dict["epochs"]]
        self.best_epoch, self.best_metric = state_dict["best_epoch"], state_dict["best_metric"]
        self._best = state_dict["best"]
        self._done = state_dict.get("done", 0)
        self._resumed = True
        torch.set_rng_state(state_dict["random"].cpu())
        if torch.cuda.is_available() and "random_cuda" in state_dict:
            torch.cuda.set_rng_state_all([state.cpu() for state in state_dict["random_cuda"]])

    def _record_epoch_0(self, module: FineTuning) -> None:
        assert self._validated is not None
        (val_loss, metric), self._validated = self._validated, None
        check_initial_value(module.metric, metric)
        seconds = time.perf_counter() - self._epoch_began
        self._keep(metric)
        self.epochs = [Epoch(0, None, val_loss, metric, module.recipe.learning_rate, seconds, 0)]

    def _keep(self, metric: float) -> None:
        self.best_epoch, self.best_metric = len(self.epochs), metric
        self._best = {
            name: parameter.detach().clone()
            for name, parameter in self.net.named_parameters()
            if parameter.requires_grad and name not in self.tables
        }
        for rows in self.tables.values():
            rows.keep()

    def _better(self, loss: float, metric: float) -> bool:
        if not self.by_loss:
            return self.metric.better(metric, self.best_metric)
        return self.metric.better(metric, self.epochs[0].metric) and loss < self.epochs[self.best_epoch].val_loss

    def _should_stop(self) -> bool:
        return self._out_of_patience() or self._diverged()

    def _diverged(self) -> bool:
        """Whether the metric is not finite; of a scorer, which may be undefined, whether the loss is not."""
        last = self.epochs[-1]
        return not math.isfinite(last.val_loss if self.metric.of_scorer else last.metric)

    def _out_of_patience(self) -> bool:
        return self.patience is not None and self.epochs[-1].epoch - self.best_epoch >= self.patience

    def _save(self, trainer: pl.Trainer) -> None:
        if self.directory is None:
            return
        if trainer.is_global_zero:
            self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / CHECKPOINT
        with replacing(path) if trainer.is_global_zero else nullcontext(path) as written:
            trainer.save_checkpoint(written)  # only the first process writes


class LocalCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint straight to a local file.

    Lightning first copies it in memory, with its large tables, and then to a file in the folder of temporary files.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the file, in a new folder if there is none."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                try:
                    torch.save(checkpoint, file)
                except RuntimeError as error:  # torch's, which hides that of the file
                    raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def _loader(loaders: Any) -> EncodedLoader:
    """The loader that ``fit`` gave, which Lightning may have in a list."""
    (loader,) = loaders if isinstance(loaders, (list, tuple)) else (loaders,)
    return loader  # type: ignore[no-any-return]
