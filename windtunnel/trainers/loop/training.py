"""A training run with Lightning."""

from __future__ import annotations

import contextlib
import math
import signal
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities.seed import isolate_rng

from windtunnel.modules.tables.large_tables import large_tables
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.history import Epoch
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT, BestCheckpoint, LocalCheckpointIO
from windtunnel.trainers.loop.checkpoints import CheckpointOptions, as_bad_file, resume
from windtunnel.trainers.loop.data_module import Loaders
from windtunnel.trainers.loop.devices import ignore_process_warnings
from windtunnel.trainers.loop.dropout import dropout_at
from windtunnel.trainers.loop.epoch_progress import EpochProgress
from windtunnel.trainers.loop.evaluation import Evaluation, check_initial_value
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.loop.quiet import quiet
from windtunnel.trainers.loop.termination import Termination
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training_plan import TrainingPlan
from windtunnel.trainers.loop.training_start import training_start
from windtunnel.trainers.loop.validation_intervals import ValidationIntervals
from windtunnel.trainers.loop.weight_average import WeightAverage
from windtunnel.trainers.optimizers.visited_rows import ADAM, VisitedRows, gradients_of_rows
from windtunnel.trainers.recipe import Recipe


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run; the trained module has the weights of the best epoch."""

    epochs: list[Epoch]  # epoch 0 and every trained epoch
    best_epoch: int
    best_metric: float
    # the error that ended training early; it is raised once the best model is installed
    error: BaseException | None = None
    # epoch_rule, stopped: see ``History``
    epoch_rule: str = ""
    stopped: str = ""

    @classmethod
    def without_training(cls, metric: Metric, initial: Evaluation, began: float, reason: str) -> Self:
        """Epoch 0 alone, evaluated since ``began``; raises as ``check_initial_value`` does."""
        check_initial_value(metric, initial.metric)
        epoch_0 = Epoch(0, None, initial.loss, initial.metric, 0.0, time.perf_counter() - began, step=0)
        return cls([epoch_0], 0, initial.metric, stopped=f"before it began: {reason}")

    @property
    def best(self) -> Evaluation:
        """The evaluation of the best epoch; its loss is NaN where an error ended this epoch after its validation."""
        is_recorded = self.best_epoch < len(self.epochs)
        return Evaluation(self.epochs[self.best_epoch].val_loss if is_recorded else math.nan, self.best_metric)


def train(
    trained: NetToTrain, data: Loaders, recipe: Recipe, options: TrainerOptions, checkpoints: CheckpointOptions
) -> TrainingResult:
    """Train a net; its module ends with its best weights, in eval mode, on the device where it was before.

    An error before epoch 0 is validated is raised; a later one is in the result.
    """
    plan = TrainingPlan.of(recipe, data.train, options.processes)
    net: Any = trained.module
    trainer: Any = options.trainer_for(trained, recipe, plan.epochs)
    if options.trainer is not None:
        plan = TrainingPlan(trainer.max_epochs)
    if plan.interval_steps is not None:
        data = Loaders(ValidationIntervals(data.train, plan.interval_steps), data.valid)
    for parameter in net.parameters():
        # An empty parameter never gets a gradient, for which other processes would wait.
        parameter.requires_grad_(parameter.requires_grad and parameter.numel() > 0)
    tables = _visited_rows(net, recipe, trainer)
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = LocalCheckpointIO()
    module = FineTuning(trained, recipe, tables)
    writes_or_reads = checkpoints.directory is not None or checkpoints.resume_from is not None
    start = training_start(trained, data.valid) if writes_or_reads else None
    file = resume(checkpoints.resume_from, module, data, trainer, start)
    error: BaseException | None = None
    with quiet():
        data.place(trainer.strategy.root_device)
        best = BestCheckpoint(module, checkpoints.directory, checkpoints.every, start)
        # Ours come first, so that they see the weights before other callbacks change them. BestCheckpoint keeps the
        # averaged weights of a validation, so it comes before WeightAverage, which restores the trained ones.
        callbacks = [best, Termination(), *([] if recipe.ema is None else [WeightAverage(module, recipe.ema)])]
        if trainer.progress_bar_callback is None:
            callbacks.append(EpochProgress(best, plan))
        try:
            with (
                _keeping_initial_tables(net, tables),
                _training_mode(trained, recipe.dropout, best),
                gradients_of_rows(net, tables),
                _callbacks(trainer, [*callbacks, *trainer.callbacks]),
            ):
                _run(trainer, module, data, best, file)
        except BaseException as caught:
            if not best.epochs:
                raise
            error = caught
    return TrainingResult(best.epochs, best.best_epoch, best.best_metric, error, best.rule, best.end(plan))


def _visited_rows(net: Any, recipe: Recipe, trainer: pl.Trainer) -> dict[str, VisitedRows]:
    """The visited rows of each large table by name, if the tables can be trained by rows, else none.

    Momentum and clipping need the whole gradient, and processes do not exchange sparse gradients.
    """
    clipped = recipe.clip is not None or trainer.gradient_clip_val is not None
    if recipe.optimizer not in ADAM or clipped or trainer.world_size > 1:
        return {}
    return {name: VisitedRows(module.rows, recipe.ema) for name, module in large_tables(net).items()}


def _run(trainer: Any, module: FineTuning, data: Loaders, best: BestCheckpoint, file: Path | None) -> None:
    """Validate epoch 0, unless a checkpoint has it, and train."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    with isolate_rng(), warnings.catch_warnings():
        # BestCheckpoint lets the loader skip the batches that are done.
        warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that ended before the epoch ended")
        ignore_process_warnings()
        torch.manual_seed(module.recipe.seed)
        try:
            if file is None:
                # A callback that counts epochs would count epoch 0 twice.
                with _callbacks(trainer, [callback for callback in trainer.callbacks if _sees_start(callback)]):
                    trainer.validate(module, datamodule=data, verbose=False)
            try:
                trainer.fit(module, datamodule=data, ckpt_path=file, weights_only=True)
            except Exception as error:
                if file is None or best.began:
                    raise
                with as_bad_file(file):
                    raise error
        except SystemExit:
            if best.interrupt is None:
                raise
            # Lightning ignores further interrupts and leaves the interpreter; we restore the handler and raise.
            signal.signal(signal.SIGINT, on_interrupt)
            raise _with_note(best.interrupt, best) from None
        except BaseException as error:
            _with_note(error, best)
            raise


def _sees_start(callback: pl.Callback) -> bool:
    """Whether a callback sees the validation of epoch 0."""
    return isinstance(callback, BestCheckpoint | Termination | ProgressBar) or getattr(callback, "sees_start", False)


def _with_note(error: BaseException, best: BestCheckpoint) -> BaseException:
    if best.epochs:
        written = best.directory is not None and (best.directory / CHECKPOINT).is_file()
        where = f"; resume_from={str(best.directory)!r} continues from there" if written else ""
        error.add_note(
            f"{best.finished_epochs} epochs were finished; the translation holds the weights of the best one, "
            f"epoch {best.best_epoch}{where}"
        )
    return error


@contextlib.contextmanager
def _keeping_initial_tables(net: Any, tables: Mapping[str, VisitedRows]) -> Iterator[None]:
    """Store the initial weights of large tables: whole ones on entry, on exit the rows that training has visited."""
    for name in large_tables(net).keys() - tables.keys():
        net.initial_weights.store_table(name.removeprefix("program."))
    try:
        yield
    finally:
        for name, rows in tables.items():
            net.initial_weights.store_rows(
                name.removeprefix("program."), rows.number[: rows.count], rows.start[: rows.count]
            )


@contextlib.contextmanager
def _training_mode(trained: NetToTrain, dropout: float, best: BestCheckpoint) -> Iterator[None]:
    """Training mode with dropout; on exit the best weights, eval mode and the previous device."""
    net = trained.module
    device = next(net.parameters()).device
    try:
        with dropout_at(net, trained.program, dropout):
            net.train()
            yield
    finally:
        best.restore()
        net.zero_grad(set_to_none=True)
        net.to(device).eval()


@contextlib.contextmanager
def _callbacks(trainer: Any, callbacks: Sequence[pl.Callback]) -> Iterator[None]:
    """Give a Trainer these callbacks within the context."""
    before = trainer.callbacks
    trainer.callbacks = list(callbacks)
    try:
        yield
    finally:
        trainer.callbacks = before
