"""The arguments of Lightning's Trainer, or a Trainer of the caller."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.trainers.loop.devices import check_devices, planned_processes, trainer_arguments
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.loop.quiet import quiet
from windtunnel.trainers.recipe import Recipe

TRAINER_SETS = ("clip", "epochs", "max_steps", "val_check_interval")
"""The options of a recipe that a Trainer of the caller sets instead."""
_PRECISIONS = (None, 32, "32", "32-true", "16-mixed", "bf16-mixed")


@dataclass(frozen=True)
class TrainerOptions:
    """The options of ``fit`` that go to Lightning; see ``windtunnel.trainers.fit``."""

    accelerator: str = "auto"
    devices: Any = 1
    precision: Any = None
    callbacks: Sequence[pl.Callback] = ()
    log_dir: Any = None
    logger: Any = None
    trainer: pl.Trainer | None = None
    progress: bool = True

    @property
    def processes(self) -> int:
        """The number of processes that will train together."""
        return planned_processes(self.accelerator, self.devices) if self.trainer is None else self.trainer.world_size

    def check(self, options: Mapping[str, Any]) -> None:
        """Reject what is no callback, and a Trainer that has options beside it or does not validate after each epoch.

        ``options`` are those of the recipe that the caller has set; those in ``TRAINER_SETS`` are a Trainer's.
        """
        if others := [each for each in self.callbacks if isinstance(each, type) or not hasattr(each, "on_train_start")]:
            raise InvalidOption(
                f"callbacks= has {others[0]!r}; give callbacks of Lightning, such as "
                "pytorch_lightning.callbacks.EarlyStopping(...)"
            )
        if (trainer := self.trainer) is None:
            check_devices(self.devices)
            return
        names = ("accelerator", "devices", "precision", "callbacks", "log_dir", "logger")
        values = {name: getattr(self, name) for name in names} | {name: options.get(name) for name in TRAINER_SETS}
        values |= {"callbacks": [*self.callbacks] or None, "logger": self.logger or None}
        defaults = {"accelerator": "auto", "devices": 1}
        if clash := [name for name, value in values.items() if value != defaults.get(name)]:
            raise InvalidOption(
                f"{', '.join(clash)} and trainer=...: the Trainer has options of its own; set them on the Trainer, or "
                "leave trainer= out"
            )
        if trainer.barebones:
            raise InvalidOption("a Trainer with barebones=True logs nothing, so that fit cannot validate; leave it out")
        wanted = {"check_val_every_n_epoch": 1, "val_check_interval": 1.0, "limit_val_batches": 1.0}
        if wrong := [
            f"{name} at {value}" for name, value in wanted.items() if not _same(getattr(trainer, name), value)
        ]:
            raise InvalidOption(
                "the Trainer must validate after every epoch, once and on all validation rows, as fit keeps the best "
                f"epoch: leave {' and '.join(wrong)}, and fast_dev_run and overfit_batches out; to validate on fewer "
                "rows, give fewer as valid"
            )
        if trainer.max_steps != -1:
            raise InvalidOption(
                f"a Trainer with max_steps={trainer.max_steps} may stop within an epoch, without validation; give "
                "max_epochs, with limit_train_batches for shorter ones"
            )
        if trainer.max_epochs is not None and 0 < trainer.max_epochs <= trainer.current_epoch:
            raise BadInput(
                f"this Trainer has trained its {trainer.max_epochs} epochs before, and would train none; give a new one"
            )

    def hardware_only(self) -> TrainerOptions:
        """The accelerator, devices and precision, without callbacks, loggers and a Trainer of the caller."""
        hardware = replace(self, callbacks=(), log_dir=None, logger=None, trainer=None)
        if (trainer := self.trainer) is None:
            return hardware
        precision = trainer.precision if trainer.precision in _PRECISIONS else None
        return replace(hardware, accelerator=trainer.accelerator.name(), precision=precision)

    def trainer_for(self, net: NetToTrain, recipe: Recipe, epochs: int | None) -> pl.Trainer:
        """The caller's Trainer, or a new one that trains a net by a recipe for at most so many epochs."""
        if self.trainer is not None:
            if recipe.schedule == "cosine" and self.trainer.max_epochs == -1:
                raise InvalidOption(
                    'a Trainer with max_epochs=-1 has no end, at which the rate of schedule="cosine" would be 0; give '
                    'max_epochs, or schedule="constant"'
                )
            return self.trainer
        if self.precision not in _PRECISIONS:
            raise InvalidOption(
                f"precision={self.precision!r} would round the translation itself, thresholds and tables included; "
                f"choose from {', '.join(map(repr, _PRECISIONS))}"
            )
        loggers = self._loggers()
        no_float64 = self.accelerator == "auto" and torch.backends.mps.is_available()
        accelerator = "cpu" if no_float64 else self.accelerator
        hardware = {"accelerator": accelerator, "devices": self.devices, "precision": self.precision}
        with quiet():
            return pl.Trainer(
                **hardware | trainer_arguments(self.devices, leaves_parameters_out=net.leaves_parameters_out),
                max_epochs=epochs,
                gradient_clip_val=recipe.clip,
                callbacks=list(self.callbacks),
                logger=loggers or False,
                # fit logs per epoch; Lightning warns of an interval that is longer than an epoch.
                log_every_n_steps=1 if loggers else None,
                # fit has a progress of its own.
                enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in self.callbacks),
                enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in self.callbacks),
                enable_model_summary=False,
                num_sanity_val_steps=0,
                # Modules may cache values in validation and use them in training.
                inference_mode=False,
            )

    def _loggers(self) -> list[Logger]:
        if self.logger is True or isinstance(self.logger, str):
            raise InvalidOption(
                f"logger={self.logger!r}: give one of Lightning's loggers, or log_dir= for those of CSV and TensorBoard"
            )
        loggers = [self.logger] if isinstance(self.logger, Logger) else list(self.logger or [])
        if self.log_dir is None:
            return loggers
        # CSV first: it requires that the folder of the version is empty.
        file_loggers: list[Logger] = [CSVLogger(self.log_dir, name="")]
        if importlib.util.find_spec("tensorboard") is not None:
            version = file_loggers[0].version
            file_loggers.append(TensorBoardLogger(self.log_dir, name="", version=version, default_hp_metric=False))
        return [*file_loggers, *loggers]


def _same(value: Any, wanted: float) -> bool:
    """Whether a number has this value and type: for Lightning 1 means one batch, and 1.0 all batches."""
    return type(value) is type(wanted) and value == wanted
