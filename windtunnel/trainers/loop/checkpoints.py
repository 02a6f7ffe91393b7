"""Options of checkpoints, and checks that a checkpoint fits the translation, the recipe and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pytorch_lightning as pl
import torch
from pydantic import BaseModel, Field, ValidationError, model_validator

from windtunnel.errors import BadFile, BadInput, InvalidOption, WindTunnelError, is_whole_number
from windtunnel.program.records.history import Epoch
from windtunnel.trainers.data.encoded_loader import ROW_FACTS, EncodedLoader
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT
from windtunnel.trainers.loop.data_module import Loaders
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.training_start import difference


class BestState(BaseModel):
    """The state of a ``BestCheckpoint`` in a checkpoint."""

    epochs: Annotated[list[Epoch], Field(min_length=1)]
    best_epoch: Annotated[int, Field(ge=0)]
    best_metric: float
    best: dict[str, Any]
    done: Annotated[int, Field(ge=0)] = 0
    order: dict[str, Any] | None = None
    validation_rows: dict[str, Any] | None = None
    start: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_the_best_epoch(self) -> Self:
        if self.best_epoch >= len(self.epochs):
            raise ValueError(f"epoch {self.best_epoch} of {len(self.epochs)}")
        return self


class Callbacks(BaseModel):
    """The states of the callbacks, by name."""

    BestCheckpoint: BestState


class CheckpointContents(BaseModel):
    """The parts of a checkpoint that are checked before Lightning reads it."""

    state_dict: dict[str, Any]
    hyper_parameters: dict[str, Any]
    callbacks: Callbacks


@dataclass(frozen=True)
class CheckpointOptions:
    """Where ``fit`` writes checkpoints, after how many steps, and from which one it resumes."""

    directory: Path | None = None
    every: int | None = None
    resume_from: Path | None = None

    def check(self, trainer: pl.Trainer | None) -> None:
        """Reject ``every`` if it is no whole number, has no directory, or would split accumulated gradients."""
        if (steps := self.every) is None:
            return
        if not is_whole_number(steps, 1):
            raise InvalidOption(f"checkpoint_every={steps!r} must be a whole number of steps from 1, or None")
        if self.directory is None:
            raise InvalidOption(f"checkpoint_every={steps} needs a checkpoint_dir to write to")
        if trainer is not None and steps % trainer.accumulate_grad_batches:
            raise InvalidOption(
                f"checkpoint_every={steps} would lose gradients that the Trainer still accumulates, over "
                f"{trainer.accumulate_grad_batches} batches; give a multiple of that"
            )

    def check_loader(self, loader: EncodedLoader) -> None:
        """Reject checkpoints within an epoch if the loader cannot begin in the middle of one."""
        if self.every is not None and loader.order is None:
            raise InvalidOption(
                f"checkpoint_every={self.every} needs rows that can be read on from the middle of an epoch: give "
                "(X, y), windtunnel.loader(net, X, y) or windtunnel.stream(net, paths, target=...)"
            )


def resume(
    path: Path | None, module: FineTuning, data: Loaders, trainer: pl.Trainer, start: dict[str, Any] | None
) -> Path | None:
    """The checkpoint file to resume from, after all checks; None without a path.

    ``start`` is the ``training_start`` of this run.
    """
    if path is None:
        return None
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise BadFile(f"no checkpoint at {file}; give the file, or the checkpoint_dir of a run that has begun to train")
    checkpoint = _read(file)
    best = checkpoint.callbacks.BestCheckpoint
    with as_bad_file(file):
        _check_module(file, checkpoint, module)
        _check_epochs(file, best, trainer.max_epochs)
        _check_rows(file, "training", best.order, data.train.row_facts)
        _check_rows(file, "validation", best.validation_rows, data.valid.row_facts)
        _check_order(file, best, data.train.order_among(trainer.world_size))
        _check_start(file, best.start, start)
    return file


@contextmanager
def as_bad_file(file: Path) -> Iterator[None]:
    """Turn errors of reading a checkpoint, which are of many kinds, into ``BadFile``."""
    try:
        yield
    except WindTunnelError:
        raise
    except Exception as error:
        raise BadFile(
            f"{file} cannot be resumed ({type(error).__name__}: {error}). If it is damaged, resume from another one."
        ) from error


def _read(file: Path) -> CheckpointContents:
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, torch raises errors of many kinds
        raise BadFile(
            f"{file} is damaged or no checkpoint ({type(error).__name__}); resume from another one"
        ) from error
    try:
        return CheckpointContents.model_validate(state)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadFile(
            f"{file} is no checkpoint of fit, or damaged ({place}: {first['msg']}); give one that fit wrote into its "
            "checkpoint_dir"
        ) from error


def _check_module(file: Path, checkpoint: CheckpointContents, module: FineTuning) -> None:
    """Reject the weights of another translation, and other options than those of the checkpoint."""
    ours, theirs = module.state_dict(), checkpoint.state_dict
    if wrong := sorted(name for name in {*ours, *theirs} if _shape(ours, name) != _shape(theirs, name)):
        raise BadFile(
            f"{file} belongs to another translation, or to other rows: {', '.join(wrong[:5])} differ in {len(wrong)} "
            "names or shapes; resume with the same rows, pipeline and translate options"
        )
    best = checkpoint.callbacks.BestCheckpoint.best
    if [name for name in best if _shape(best, name) != _shape(ours, f"net.{name}")]:
        raise BadFile(f"{file} is damaged: the weights of the best epoch are those of another translation.")
    now = module.recipe.facts()
    free = {"patience"} if now["schedule"] == "cosine" else {"patience", "epochs", "max_steps"}
    fixed = {name: value for name, value in now.items() if name not in free}
    if changed := _changes(checkpoint.hyper_parameters, fixed):
        raise BadInput(
            f"{file} was written with {changed}; resume with the same options ({', '.join(sorted(free))} may change)"
        )


def _check_start(file: Path, before: dict[str, Any] | None, now: dict[str, Any] | None) -> None:
    """Reject a checkpoint that began with other weights, or with rows that were encoded or scored otherwise."""
    if before is not None and now is not None and (different := difference(before, now)):
        raise BadInput(
            f"{file} was written for another fitted pipeline, or with other options of translate: {different}; resume "
            "with the same pipeline and options, or begin anew without resume_from"
        )


def _check_epochs(file: Path, best: BestState, epochs: int | None) -> None:
    """Reject a checkpoint that is past the last epoch."""
    done = len(best.epochs) - 1
    if epochs is not None and done > epochs >= 0:
        raise BadInput(
            f"{file} was written after {done} validations, and {epochs} are planned; give more epochs or max_steps"
        )


def _check_rows(file: Path, role: str, before: dict[str, Any] | None, now: dict[str, Any] | None) -> None:
    """Reject other rows than those that the checkpoint was trained or validated on; custom loaders have no facts."""
    if before is None or now is None:
        return
    if changed := _changes(before, {name: now.get(name) for name in ROW_FACTS if name in before}):
        raise BadInput(
            f"{file} was written over other {role} rows: {changed}; resume with the same rows, or begin anew without "
            "resume_from"
        )


def _check_order(file: Path, best: BestState, now: dict[str, Any] | None) -> None:
    """Reject a checkpoint within an epoch if the order of the remaining rows is unknown or has changed."""
    if not best.done:
        return
    within = f"{file} is from the middle of an epoch, after {best.done} batches, and"
    if best.order is None or now is None:
        raise BadInput(
            f"{within} these rows cannot be read on from there; resume from the end of an epoch, or give (X, y), "
            "windtunnel.loader or windtunnel.stream"
        )
    if changed := _changes(best.order, now):
        raise BadInput(f"{within} its rows came in another order: {changed}; resume with the same rows and options")


def _changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The facts ``now`` that differ from those before, such as "seed=0 (now 9)"; empty if none does."""
    return ", ".join(
        f"{name}={before.get(name)!r} (now {value!r})" for name, value in now.items() if before.get(name) != value
    )


def _shape(tensors: dict[str, Any], name: str) -> torch.Size | None:
    return tensors[name].shape if name in tensors else None
