"""Training that is planned in steps: its length, its validations, the rows of a pass, resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from small_net import TASKS, SmallNet, finetune, rows, trajectory

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.data.loader_adapter import LoaderAdapter
from windtunnel.trainers.loop.training_plan import TrainingPlan
from windtunnel.trainers.loop.validation_intervals import ValidationIntervals
from windtunnel.trainers.recipe import Recipe

STEPS: dict[str, Any] = {
    "max_steps": 12,
    "val_check_interval": 4,
    "batch_size": 64,
    "patience": None,
    "learning_rate": 0.02,
    "metric": "log_loss",
    "progress": False,
    "accelerator": "cpu",
}
"""400 rows in batches of 64 are 7 steps, so that no validation falls on the end of a pass."""
NET: Any = SmallNet(TASKS["binary"])


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ({"epochs": 3}, TrainingPlan(3)),
        ({"max_steps": 1000, "val_check_interval": 300}, TrainingPlan(4, 300)),
        ({"max_steps": 1000}, TrainingPlan(10, 100)),
        ({"max_steps": 30}, TrainingPlan(1, 30)),
        ({"max_steps": 30, "val_check_interval": 200}, TrainingPlan(1, 30)),
        ({"epochs": 3, "val_check_interval": 50}, TrainingPlan(6, 50)),
        ({"epochs": 3, "max_steps": 120, "val_check_interval": 50}, TrainingPlan(3, 50)),
    ],
)
def test_the_plan_of_a_recipe(options: dict[str, Any], plan: TrainingPlan) -> None:
    recipe = Recipe.resolve("joint", {"epochs": None, "val_check_interval": None, **options})
    assert TrainingPlan.of(recipe, loader(NET, *rows(700), batch_size=7)) == plan


def test_processes_share_the_rows_of_a_pass_but_not_the_batches_of_a_callers_loader() -> None:
    recipe = Recipe(epochs=5, val_check_interval=20)
    batches = loader(NET, *rows(700), batch_size=7)
    assert TrainingPlan.of(recipe, batches, 2) == TrainingPlan.of(recipe, batches.map(lambda rows: rows), 2)
    assert TrainingPlan.of(recipe, batches, 2) == TrainingPlan(13, 20)  # 5 passes of 50 steps
    assert TrainingPlan.of(recipe, LoaderAdapter(NET, [rows(7)] * 50), 2) == TrainingPlan(13, 20)


def test_an_override_of_the_length_replaces_the_recipes() -> None:
    joint = Recipe.named("joint")
    assert joint.epochs is None and joint.max_steps and joint.max_steps >= 2000
    epochs, steps = Recipe.resolve("joint", {"epochs": 3}), Recipe.resolve(None, {"max_steps": 50})
    assert (epochs.epochs, epochs.max_steps, epochs.val_check_interval) == (3, None, None)
    assert (steps.epochs, steps.max_steps) == (None, 50)
    with pytest.raises(InvalidOption, match="epochs=None and max_steps=None set no end"):
        Recipe(epochs=None)


@pytest.mark.parametrize(
    ("rows", "size"), [(100, 5), (5_000, 64), (100_000, 390), (1_500_000, 4096), (20_000_000, 4096)]
)
def test_batches_grow_with_the_rows(rows: int, size: int) -> None:
    assert Recipe.named("paper").rows_per_step(rows) == size


def test_every_pass_has_each_row_once_whatever_the_intervals() -> None:
    whole, parts = (loader(SmallNet(TASKS["binary"]), *rows(70), batch_size=16, seed=3) for _ in range(2))
    passes = [target for epoch in range(4) for _, target in (whole.set_epoch(epoch), *whole)[1:]]  # type: ignore[misc]
    intervals, seen = ValidationIntervals(parts, 3), []
    for number in range(6):
        intervals.set_epoch(number)
        seen += [target for _, target in intervals]
    assert len(seen) == 18 and all(map(torch.equal, seen, passes))


def test_validation_within_a_pass_keeps_and_stops() -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), **STEPS)
    assert [epoch.step for epoch in history.epochs] == [0, 4, 8, 12]
    assert history.stopped == "at the limit of 12 steps"
    assert "max_steps=24" in history.notes()[-1] or history.best_epoch < 3
    stopped = finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), **STEPS | {"learning_rate": 5.0, "patience": 1})
    assert stopped.epochs[-1].step == 4


class Stops(pl.Callback):
    """Ends training within a pass, two steps after a validation."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 10:
            raise KeyError("killed")


@pytest.mark.parametrize("every", [None, 5])
def test_a_resumed_run_goes_on_within_the_pass(tmp_path: Path, every: int | None) -> None:
    train, valid, files = rows(), rows(seed=1), {"checkpoint_dir": tmp_path, "checkpoint_every": every}
    whole, resumed = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    once = finetune(whole, train, valid, **STEPS)
    with pytest.raises(KeyError, match="killed"):
        finetune(SmallNet(TASKS["binary"]), train, valid, callbacks=[Stops()], **STEPS, **files)
    again = finetune(resumed, train, valid, resume_from=tmp_path, **STEPS)
    assert trajectory(once) == trajectory(again)
    assert all(map(torch.equal, whole.parameters(), resumed.parameters()))


def test_a_trainer_comes_with_a_length_of_its_own() -> None:
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
    with pytest.raises(InvalidOption, match=r"max_steps, val_check_interval and trainer="):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, max_steps=5, val_check_interval=2)


def test_fit_says_what_it_will_do(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.trainers.loop.epoch_progress.DELAY", 0.0)
    with caplog.at_level("INFO", logger="windtunnel"):
        finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), **STEPS | {"progress": True})
    assert "trains at most 12 steps of 64 rows with a validation every 4 steps; about" in caplog.text


def test_steps_need_a_length_only_to_count_passes() -> None:
    endless = LoaderAdapter(NET, iter([rows(7)]))
    with pytest.raises(BadInput, match=r"has no len\(\)"):
        TrainingPlan.of(Recipe(epochs=2, val_check_interval=5), endless)
    assert TrainingPlan.of(Recipe(epochs=None, max_steps=9, val_check_interval=5), endless) == TrainingPlan(2, 5)
