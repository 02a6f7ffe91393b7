"""Fine-tuning from end to end: judge, train, keep the best, hand back."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.utilities.seed import isolate_rng

from windtunnel.errors import BadFile, BadInput
from windtunnel.trainers.callbacks import CHECKPOINT, Average, Epoch, Keeper
from windtunnel.trainers.module import DataModule, FineTuning
from windtunnel.trainers.recipe import Recipe

if TYPE_CHECKING:
    from windtunnel.translation import Translation


@dataclass(frozen=True)
class History:
    """What fine-tuning did.

    Attributes
    ----------
    epochs : list of Epoch
        Epoch 0, before training, and every epoch since.
    metric : str
        The name of the metric that the epochs are judged by.
    greater_is_better : bool
        Its direction.
    start, best : float
        The metric before training and at the best epoch, whose weights the translation holds.
    best_epoch : int
        0 where training made nothing better.
    judged_on : str
        "validation rows", "held-out rows" (a share of the training rows) or "training rows".
    seconds : float
        Wall time, with encoding.
    """

    epochs: list[Epoch]
    metric: str
    greater_is_better: bool
    start: float
    best: float
    best_epoch: int
    judged_on: str
    seconds: float

    def __str__(self) -> str:
        lines = [f"epoch  train_loss    val_loss  {self.metric:>10}  seconds"]
        for one in self.epochs:
            train = "-" if one.train_loss is None else f"{one.train_loss:.6f}"
            mark = "  kept" if one.epoch == self.best_epoch else ""
            lines.append(f"{one.epoch:5d}  {train:>10}  {one.val_loss:10.6f}  {one.metric:10.6f}  {one.seconds:7.2f}{mark}")
        lines.append(f"{self.metric} on {self.judged_on}: {self.start:.6f} -> {self.best:.6f} in {self.seconds:.1f} s")
        return "\n".join(lines)


def finetune(
    net: Translation,
    train: Any,
    valid: Any = None,
    *,
    recipe: Recipe | str | None = None,
    resume_from: str | Path | None = None,
    checkpoint_dir: str | Path | None = None,
    log_dir: str | Path | None = None,
    accelerator: str = "auto",
    devices: Any = 1,
    precision: Any = None,
    callbacks: Sequence[pl.Callback] = (),
    logger: Logger | Sequence[Logger] | None = None,
    trainer: pl.Trainer | None = None,
    progress: bool = True,
    **overrides: Any,
) -> History:
    """Train what is trainable in a translation, and leave it with the weights of the best epoch, in eval mode.

    Epoch 0 is the translation as it came: where no epoch beats it on the rows judged by, it is handed back unchanged.
    An error or an interrupt while training leaves the best weights so far and is raised again.

    Parameters
    ----------
    net : Translation
        Changed in place.
    train, valid : loader, (X, y) or (X, y, weight)
        A loader yields ``(rows, target)`` or ``(rows, target, weight)``. Without ``valid`` the recipe's
        ``validation_fraction`` of the training rows is held out; a loader of raw rows cannot be split, so there the
        epochs are judged on the training rows.
    recipe : Recipe, str or None
        The options; "default" or "paper" by name.
    resume_from : path, optional
        A checkpoint, or the ``checkpoint_dir`` of an earlier run over the same rows and options: training goes on after
        its last whole epoch and on a CPU ends with the same bits.
    checkpoint_dir : path, optional
        Where ``last.ckpt`` is written after each epoch.
    log_dir : path, optional
        Where ``version_<n>/metrics.csv`` goes, and TensorBoard's events where tensorboard is installed.
    accelerator, devices, precision, callbacks, logger
        For Lightning's Trainer; ``logger`` goes with, or instead of, ``log_dir``.
    trainer : pytorch_lightning.Trainer, optional
        A whole Trainer, whose epochs, devices, precision, clipping and loggers then hold.
    progress : bool
        Whether to show a progress bar.
    **overrides
        Options of the recipe by name, such as ``epochs=5``.

    Returns
    -------
    History

    Raises
    ------
    BadInput
        For rows, targets, loaders or options that cannot be used.
    BadFile
        For a checkpoint that is damaged or belongs to another translation.
    """
    started = time.perf_counter()
    options = Recipe.resolve(recipe, overrides)
    _check_trainable(net)
    # Whatever is wrong with the arguments is said before the first row is encoded.
    module = FineTuning(net, options)
    checkpoint = None if resume_from is None else _checkpoint(Path(resume_from), module)
    directory = None if checkpoint_dir is None else Path(checkpoint_dir)
    keeper = Keeper(net, options.patience, directory)
    own = [keeper] if options.ema is None else [keeper, Average(net, options.ema)]
    with _quiet():
        if trainer is None:
            loggers = [*_loggers(log_dir), *_sequence(logger)]
            trainer = _trainer(options, accelerator, devices, precision, callbacks, loggers, progress)
        else:
            _check_trainer(trainer, locals())
        data = DataModule(net, train, valid, options)
        _attach(trainer, data)
        with _training(net, options.dropout, keeper), _with_callbacks(trainer, own):
            _fit(trainer, module, data, checkpoint, options.seed)
    return History(
        epochs=keeper.epochs,
        metric=module.judge.name,
        greater_is_better=module.judge.greater_is_better,
        start=keeper.epochs[0].metric,
        best=keeper.best_metric,
        best_epoch=keeper.best_epoch,
        judged_on=data.judged_on,
        seconds=time.perf_counter() - started,
    )
