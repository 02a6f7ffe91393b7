"""What a run is resumed from, and whether it is a run over the same translation, options and rows."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from windtunnel.errors import BadFile, BadInput
from windtunnel.trainers.data.order import ROWS, same_rows
from windtunnel.trainers.loop.callbacks import CHECKPOINT
from windtunnel.trainers.loop.module import FineTuning, Loaders


def found(path: Path, module: FineTuning) -> tuple[Path, dict[str, Any]]:
    """Find the file to resume from, and make certain that it belongs to this translation and these options.

    With it comes what the keeper wrote into it.
    """
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise BadFile(f"no checkpoint at {file}; give the file, or the checkpoint_dir of a run that has begun to train")
    state = _read(file)
    ours, theirs = module.state_dict(), state["state_dict"]
    if wrong := sorted(name for name in {*ours, *theirs} if _shape(ours, name) != _shape(theirs, name)):
        raise BadFile(
            f"{file} belongs to another translation: {', '.join(wrong[:5])} differ in {len(wrong)} names or shapes; "
            "resume with the same pipeline and translate options"
        )
    before, now = state["hyper_parameters"], module.recipe.facts()
    free = {"patience"} if now["schedule"] == "cosine" else {"patience", "epochs"}
    if changed := [name for name in now if name not in free and before.get(name) != now[name]]:
        what = ", ".join(f"{name}={before.get(name)!r} (now {now[name]!r})" for name in changed)
        raise BadInput(
            f"{file} was written with {what}; resume with the same options ({', '.join(sorted(free))} may change)"
        )
    kept: dict[str, Any] = state["callbacks"]["BestCheckpoint"]
    done = len(kept["epochs"]) - 1
    if done > module.recipe.epochs:
        raise BadInput(f"{file} is past epoch {done} and epochs={module.recipe.epochs}; give at least {done}")
    return file, kept


def check_rows(file: Path, kept: dict[str, Any], data: Loaders) -> None:
    """Reject to go on with other rows than those that a checkpoint was trained on, or judged by."""
    for role, before, loader in (
        ("training", kept.get("order"), data.train),
        ("validation", kept.get("judged_by"), data.valid),
    ):
        now = same_rows(loader)
        if before is None or now is None:  # loaders of one's own, which do not tell
            continue
        other = [name for name in ROWS if name in before and before[name] != now.get(name)]
        if changed := [f"{name}={before[name]!r} (now {now.get(name)!r})" for name in other]:
            raise BadInput(
                f"{file} was written over other {role} rows: {', '.join(changed)}; resume with the same rows, or begin "
                "anew without resume_from"
            )


def check_order(file: Path, kept: dict[str, Any], now: dict[str, Any] | None) -> None:
    """Reject a checkpoint from the middle of an epoch where the rest of its rows cannot be told."""
    if not (done := kept.get("done", 0)):
        return
    before = kept["order"]
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
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, UnpicklingError) as error:
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
    return state


def _shape(tensors: dict[str, torch.Tensor], name: str) -> torch.Size | None:
    return tensors[name].shape if name in tensors else None
