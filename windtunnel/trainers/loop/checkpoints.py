"""Options of checkpoints, and checks that a checkpoint fits the translation, the recipe and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from pydantic import BaseModel, Field, ValidationError

from windtunnel.errors import BadFile, BadInput, WindTunnelError
from windtunnel.program.records.history import Epoch
from windtunnel.trainers.data.encoded_loader import ROW_FACTS, EncodedLoader
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT
from windtunnel.trainers.loop.module import FineTuning, Loaders


class BestState(BaseModel):
    """What a checkpoint holds of a ``BestCheckpoint``."""

    epochs: Annotated[list[Epoch], Field(min_length=1)]
    best_epoch: Annotated[int, Field(ge=0)]
    best_metric: float
    best: dict[str, Any]
    done: Annotated[int, Field(ge=0)] = 0
    order: dict[str, Any] | None = None
    validation_rows: dict[str, Any] | None = None


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
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise BadInput(f"checkpoint_every={steps!r} must be a whole number of steps from 1, or None")
        if self.directory is None:
            raise BadInput(f"checkpoint_every={steps} needs a checkpoint_dir to write to")
        if trainer is not None and steps % trainer.accumulate_grad_batches:
            raise BadInput(
                f"checkpoint_every={steps} would lose gradients that the Trainer still accumulates, over "
                f"{trainer.accumulate_grad_batches} batches; give a multiple of that"
            )

    def check_loader(self, loader: EncodedLoader) -> None:
        """Reject checkpoints within an epoch if the loader cannot begin in the middle of one."""
        if self.every is not None and loader.order is None:
            raise BadInput(
                f"checkpoint_every={self.every} needs rows that can be read on from the middle of an epoch: give "
                "(X, y), windtunnel.loader(net, X, y) or windtunnel.stream(net, paths, target=...)"
            )


def resume(path: Path | None, module: FineTuning, data: Loaders, trainer: pl.Trainer) -> Path | None:
    """The checkpoint file to resume from, after all checks; None without a path.

    Raises
    ------
    BadFile
        For a file that is missing, damaged, or of another translation.
    BadInput
        For other options, rows or order of rows.
    """
    if path is None:
        return None
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise BadFile(f"no checkpoint at {file}; give the file, or the checkpoint_dir of a run that has begun to train")
    with as_bad_file(file):
        best = _checked(file, module, trainer.max_epochs)
        _check_rows(file, best, data)
        _check_order(file, best, data.train.order_among(trainer.world_size))
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


def _checked(file: Path, module: FineTuning, epochs: int | None) -> dict[str, Any]:
    """The state of the ``BestCheckpoint`` of a checkpoint file, checked against module and recipe."""
    state = _read(file)
    ours, theirs = module.state_dict(), state["state_dict"]
    if wrong := sorted(name for name in {*ours, *theirs} if _shape(ours, name) != _shape(theirs, name)):
        raise BadFile(
            f"{file} belongs to another translation: {', '.join(wrong[:5])} differ in {len(wrong)} names or shapes; "
            "resume with the same pipeline and translate options"
        )
    before, now = state["hyper_parameters"], module.recipe.facts()
    free = {"patience"} if now["schedule"] == "cosine" else {"patience", "epochs", "max_steps"}
    if changed := [name for name in now if name not in free and before.get(name) != now[name]]:
        what = ", ".join(f"{name}={before.get(name)!r} (now {now[name]!r})" for name in changed)
        raise BadInput(
            f"{file} was written with {what}; resume with the same options ({', '.join(sorted(free))} may change)"
        )
    best: dict[str, Any] = state["callbacks"]["BestCheckpoint"]
    done = len(best["epochs"]) - 1
    if epochs is not None and done > epochs >= 0:
        raise BadInput(f"{file} is past epoch {done} and epochs={epochs}; give at least {done}")
    if [name for name in best["best"] if _shape(best["best"], name) != _shape(ours, f"net.{name}")]:
        raise BadFile(f"{file} is damaged: the weights of the best epoch are those of another translation.")
    return best


def _check_rows(file: Path, best: dict[str, Any], data: Loaders) -> None:
    """Reject other rows than those that the checkpoint was trained and validated on."""
    for role, before, loader in (
        ("training", best.get("order"), data.train),
        ("validation", best.get("validation_rows"), data.valid),
    ):
        now = loader.row_facts
        if before is None or now is None:  # custom loaders have no such facts
            continue
        other = [name for name in ROW_FACTS if name in before and before[name] != now.get(name)]
        if changed := [f"{name}={before[name]!r} (now {now.get(name)!r})" for name in other]:
            raise BadInput(
                f"{file} was written over other {role} rows: {', '.join(changed)}; resume with the same rows, or begin "
                "anew without resume_from"
            )


def _check_order(file: Path, best: dict[str, Any], now: dict[str, Any] | None) -> None:
    """Reject a checkpoint within an epoch if the order of the remaining rows is unknown or has changed."""
    if not (done := best.get("done", 0)):
        return
    before = best["order"]
    if before is None or now is None:
        raise BadInput(
            f"{file} is from the middle of an epoch, after {done} batches, and these rows cannot be read on from "
            "there; resume from the end of an epoch, or give (X, y), windtunnel.loader or windtunnel.stream"
        )
    if changed := [f"{name}={before.get(name)!r} (now {now[name]!r})" for name in now if before.get(name) != now[name]]:
        raise BadInput(
            f"{file} is from the middle of an epoch, after {done} batches, and its rows came in another order: "
            f"{', '.join(changed)}; resume with the same rows and options"
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, torch raises errors of many kinds
        raise BadFile(
            f"{file} is damaged or no checkpoint ({type(error).__name__}); resume from another one"
        ) from error
    wanted = ("state_dict", "callbacks", "hyper_parameters", "optimizer_states", "loops")
    if (
        not isinstance(state, dict)
        or any(key not in state for key in wanted)
        or "BestCheckpoint" not in state["callbacks"]
    ):
        raise BadFile(f"{file} is no checkpoint of fit; give one that fit wrote into its checkpoint_dir")
    try:
        best = BestState.model_validate(state["callbacks"]["BestCheckpoint"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadFile(f"{file} is damaged ({place}: {first['msg']}); resume from another one") from error
    if best.best_epoch >= len(best.epochs):
        raise BadFile(f"{file} is damaged (epoch {best.best_epoch} of {len(best.epochs)}); resume from another one")
    return state


def _shape(tensors: dict[str, torch.Tensor], name: str) -> torch.Size | None:
    return tensors[name].shape if name in tensors else None
