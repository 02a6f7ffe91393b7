"""Lightning: trainers, devices, precision, callbacks and loggers that the caller passes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import root_mean_squared_error
from small_net import QUICK, TASKS, SmallNet, finetune, rows

import windtunnel
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.trainers.loop.best_checkpoint import BestCheckpoint
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.devices import check_devices
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.weight_average import WeightAverage
from windtunnel.trainers.recipe import Recipe


def test_a_callback_writes_checkpoints_into_a_new_folder(tmp_path: Path) -> None:
    callback = pl.callbacks.ModelCheckpoint(tmp_path / "new" / "folder", save_top_k=-1)
    finetune(SmallNet(TASKS["binary"]), rows(), callbacks=[callback], **QUICK)
    assert [*(tmp_path / "new" / "folder").glob("*.ckpt")]


def test_an_early_stop_of_a_callback() -> None:
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            trainer.should_stop = True

    assert len(finetune(SmallNet(TASKS["binary"]), rows(), callbacks=[Stop()], **QUICK).epochs) == 2


@pytest.mark.parametrize("callbacks", ["early", [print], pl.callbacks.EarlyStopping])
def test_what_is_no_callback(callbacks: object) -> None:
    with pytest.raises(InvalidOption, match="callbacks= has .*; give callbacks of Lightning"):
        finetune(SmallNet(TASKS["binary"]), rows(), callbacks=callbacks)


def test_precisions_that_would_round_the_net() -> None:
    with pytest.raises(InvalidOption, match="precision='bf16-true' would round"):
        finetune(SmallNet(TASKS["binary"]), rows(), precision="bf16-true", **QUICK)
    assert finetune(SmallNet(TASKS["binary"]), rows(), precision="bf16-mixed", **QUICK).best > 0.5


def test_epochs_are_validated_in_the_precision_of_the_net() -> None:
    net, (X, y) = SmallNet(TASKS["regression"]), rows(100, "regression", 1)
    history = finetune(net, rows(400, "regression"), (X, y), precision="bf16-mixed", **QUICK)
    values = net(*net.encode(X)).detach().numpy()[:, 0]
    assert history.best_epoch > 0 and history.best == pytest.approx(root_mean_squared_error(y, values), rel=1e-6)


def test_a_whole_trainer() -> None:
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    callbacks = list(trainer.callbacks)
    options = {"learning_rate": 0.02, "batch_size": 64}
    history = finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, callbacks=[], **options)
    assert len(history.epochs) == 3
    assert trainer.callbacks == callbacks
    with pytest.raises(InvalidOption, match="devices, clip, epochs and trainer="):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, devices=2, clip=1.0, epochs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check_val_every_n_epoch": 2}, "leave check_val_every_n_epoch at 1,"),
        ({"val_check_interval": 0.5}, "leave val_check_interval at 1.0,"),
        ({"limit_val_batches": 1}, "leave limit_val_batches at 1.0,"),
        ({"limit_val_batches": 0}, "leave limit_val_batches at 1.0,"),
        ({"fast_dev_run": True}, "and fast_dev_run and overfit_batches out"),
        ({"overfit_batches": 2}, "and fast_dev_run and overfit_batches out"),
        ({"max_steps": 5}, "max_steps=5 may stop within an epoch"),
        ({"barebones": True}, "barebones=True logs nothing"),
        ({"max_epochs": -1}, "max_epochs=-1 has no end"),
    ],
)
def test_a_trainer_that_does_not_validate_every_epoch(options: dict[str, Any], message: str) -> None:
    silent = {} if "barebones" in options else {"logger": False, "enable_checkpointing": False}
    trainer = pl.Trainer(accelerator="cpu", **options, **silent)
    with pytest.raises(InvalidOption, match=message):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer)


def test_devices_need_a_script_or_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    for devices in (2, "2", [0, 1], "0,1"):
        with pytest.raises(InvalidOption, match="torchrun --standalone --nproc-per-node 2 train.py; or give devices=1"):
            finetune(SmallNet(TASKS["binary"]), rows(), devices=devices)
    monkeypatch.setattr(sys, "argv", [__file__])
    check_devices(2)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(InvalidOption, match="from a notebook"):
        check_devices(2)


def test_a_process_is_planned_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    for accelerator, devices, count in (
        ("cpu", 1, 1),
        ("cpu", "auto", 1),
        ("cpu", 3, 3),
        ("gpu", [0, 2], 2),
        ("auto", "auto", 4),
        ("gpu", -1, 4),
    ):
        assert TrainerOptions(accelerator, devices).processes == count


def test_lightning_itself_takes_the_parts() -> None:
    net = SmallNet(TASKS["binary"])
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    net.train()
    with pytest.warns(FutureWarning, match="LeafSpec"):
        trainer.fit(FineTuning(NetToTrain.of(net, Recipe()), Recipe()), datamodule=DataModule(net, rows()))
    assert {"train_loss", "val_loss", "val_auroc"} <= trainer.callback_metrics.keys()


def test_the_weights_of_a_training_are_those_of_its_net() -> None:
    X, y = rows()
    source = LogisticRegression().fit(X[["x", "z"]], y)
    net = windtunnel.translate(source)
    module = FineTuning(NetToTrain.of(net, Recipe()), Recipe())
    assert {*module.state_dict()} == {f"net.{name}" for name in net.state_dict()}


def test_a_recipe_by_its_name_is_the_same_beside_a_trainer() -> None:
    for recipe in ("joint", Recipe.named("joint")):
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
        assert len(finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, recipe=recipe).epochs) == 2


def test_logs(tmp_path: Path) -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), log_dir=tmp_path, **QUICK)
    (folder,) = tmp_path.iterdir()
    table = pd.read_csv(folder / "metrics.csv")
    logged = table["val_auroc"].dropna().tolist()
    assert logged == pytest.approx([one.metric for one in history.epochs])
    assert table["train_loss"].dropna().tolist() == pytest.approx([one.train_loss for one in history.epochs[1:]])
    assert list(folder.glob("events.out.tfevents.*"))
    finetune(SmallNet(TASKS["binary"]), rows(), log_dir=tmp_path, logger=False, **QUICK)
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(InvalidOption, match="give one of Lightning's loggers, or log_dir="):
        finetune(SmallNet(TASKS["binary"]), rows(), logger=True, **QUICK)


def test_callbacks_see_each_validation_once() -> None:
    class Reports(pl.Callback):
        def __init__(self, *, sees_start: bool) -> None:
            self.seen: list[int] = []
            self.sees_start = sees_start

        def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            self.seen.append(trainer.current_epoch)

    plain, early = Reports(sees_start=False), Reports(sees_start=True)
    finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), callbacks=[plain, early], **QUICK | {"epochs": 2})
    assert (plain.seen, early.seen) == ([0, 1], [0, 0, 1])


def test_an_epoch_without_validation_is_rejected() -> None:
    net = SmallNet(TASKS["binary"])
    with pytest.raises(BadInput, match="an epoch ended without validation"):
        module = FineTuning(NetToTrain.of(net, Recipe()), Recipe())
        BestCheckpoint(module).on_train_epoch_end(pl.Trainer(logger=False, enable_checkpointing=False), module)


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
def test_gradients_are_clipped_in_any_precision(precision: str) -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), precision=precision, clip=0.5, **QUICK)
    assert history.best > 0.5


def test_a_recipe_has_no_options_beside_a_trainer() -> None:
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(InvalidOption, match="clip, epochs and trainer="):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, recipe=Recipe(clip=0.1, epochs=7))


def test_the_average_of_weights_counts_steps() -> None:
    """With accumulated gradients a step is several batches."""
    updates: list[int] = []

    class Counted(WeightAverage):
        def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
            before = [weight.clone() for weight in self._average]
            super().on_train_batch_end(trainer, *arguments)
            updates.append(any((a != b).any() for a, b in zip(before, self._average, strict=True)))

    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", accumulate_grad_batches=4, **silent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windtunnel.trainers.loop.training.WeightAverage", Counted)
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, batch_size=20, ema=0.9, learning_rate=0.1)
    assert sum(updates) == trainer.global_step == -(-len(updates) // 4) > 2
