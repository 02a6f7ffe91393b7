"""Fine-tuning: the best epoch, losses and metrics, rows from loaders, validation, silence."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from sklearn.metrics import roc_auc_score
from small_net import QUICK, TASKS, SmallNet, finetune, rows, same_bits, weights
from torch import Tensor
from torch.utils.data import DataLoader

from windtunnel.errors import BadInput
from windtunnel.program.records.number_text import value_text
from windtunnel.trainers.data.loader import loader


def _auroc(net: SmallNet, X: pd.DataFrame, y: Any) -> float:
    with torch.no_grad():
        return roc_auc_score(y == "yes", net(*net.encode(X)).numpy()[:, 0])


@pytest.mark.parametrize("task", TASKS)
def test_it_learns(task: str) -> None:
    net = SmallNet(TASKS[task])
    frozen = net.frozen.clone()
    history = finetune(net, rows(400, task), rows(200, task, seed=1), **QUICK | {"epochs": 8})
    gain = history.best - history.start
    assert gain > 0.05 if history.greater_is_better else gain < -0.05
    assert [one.epoch for one in history.epochs] == list(range(9))
    assert history.epochs[0].train_loss is None
    assert history.epochs[8].train_loss < history.epochs[1].train_loss
    assert history.best == history.epochs[history.best_epoch].metric
    assert torch.equal(net.frozen, frozen) and not net.training
    values = f"{value_text(history.start)} -> {value_text(history.best)}"
    assert f"{history.metric} {values} on 200 validation rows" in str(history)


def test_the_net_holds_the_epoch_that_the_history_names() -> None:
    net, (X, y) = SmallNet(TASKS["binary"]), rows(200, seed=1)
    start = _auroc(net, X, y)
    history = finetune(net, rows(), (X, y), **QUICK)
    assert history.start == pytest.approx(start, abs=1e-6)
    assert history.best == pytest.approx(_auroc(net, X, y), abs=1e-6)


@pytest.mark.parametrize("rate", [50.0, 1e30])
@pytest.mark.filterwarnings("ignore:training diverged")
def test_epoch_zero_is_kept_when_training_only_harms(rate: float) -> None:
    net, train, valid = SmallNet(TASKS["regression"]), rows(400, "regression"), rows(100, "regression", seed=1)
    finetune(net, train, valid, **QUICK)
    good = weights(net)
    history = finetune(net, train, valid, **QUICK | {"learning_rate": rate})
    assert history.best_epoch == 0 and history.best == history.start
    assert same_bits(weights(net), good)


def test_divergence_stops_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="training diverged in epoch 1"):
        history = finetune(SmallNet(TASKS["regression"]), rows(400, "regression"), **QUICK | {"learning_rate": 1e38})
    assert len(history.epochs) == 2


def test_patience() -> None:
    history = finetune(
        SmallNet(TASKS["binary"]), rows(), rows(seed=1), **QUICK | {"epochs": 50, "patience": 2, "learning_rate": 1.0}
    )
    assert len(history.epochs) - 1 == history.best_epoch + 2 < 50


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained(seed: int) -> dict[str, Tensor]:
        net = SmallNet(TASKS["binary"])
        finetune(net, rows(), rows(seed=1), **QUICK | {"seed": seed})
        return weights(net)

    assert same_bits(trained(0), trained(0))
    assert not same_bits(trained(0), trained(1))


def test_the_callers_random_numbers_are_left_alone() -> None:
    def states() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    before = states()
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK)
    assert states() == before


def test_dropout_is_on_while_training_only() -> None:
    seen = set()

    class Watching(SmallNet):
        def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
            seen.add((self.training, self.dropout))
            return super().forward(numbers, ids)

    net = Watching(TASKS["binary"])
    finetune(net, rows(), **QUICK | {"dropout": 0.25})
    assert seen == {(True, 0.25), (False, 0.25)}
    assert net.dropout == 0.0


def test_the_average_of_the_weights_is_kept() -> None:
    """After one epoch of plain SGD steps, the average is known from the steps themselves."""
    net, steps = SmallNet(TASKS["regression"]), []

    class Watching(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            steps.append(net.last.weight.detach().double().clone())

        on_train_batch_end = lambda self, trainer, module, *_: self.on_train_start(trainer, module)  # noqa: E731

    data = rows(256, "regression")
    history = finetune(net, data, data, callbacks=[Watching()], **QUICK | {"epochs": 1, "ema": 0.8})
    assert history.best_epoch == 1 and len(steps) == 5
    average = steps[0]
    for step in steps[1:]:
        average = 0.8 * average + 0.2 * step
    torch.testing.assert_close(net.last.weight.double(), average, rtol=1e-5, atol=1e-7)


def test_cosine_rates() -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"epochs": 4, "schedule": "cosine"})
    wanted = [0.02 * (1 + np.cos(np.pi * epoch / 4)) / 2 for epoch in range(4)]
    assert [one.learning_rate for one in history.epochs[1:]] == pytest.approx(wanted)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_optimizers_and_clipping(optimizer: str) -> None:
    history = finetune(
        SmallNet(TASKS["binary"]), rows(), rows(seed=1), optimizer=optimizer, clip=0.5, metric="log_loss", **QUICK
    )
    assert history.best < history.start


def test_a_custom_loss_and_a_metric() -> None:
    net = SmallNet(TASKS["regression"])

    def cubic(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return (scores[:, 0] - target).abs().pow(3).mean()

    history = finetune(net, rows(400, "regression"), rows(100, "regression", 1), loss=cubic, metric="r2", **QUICK)
    assert history.metric == "r2" and history.best > history.start


def test_a_given_loss_is_the_metric_of_the_epochs() -> None:
    net = SmallNet(TASKS["regression"])
    options = QUICK | {"loss": "absolute", "epochs": 4}
    history = finetune(net, rows(400, "regression"), rows(100, "regression", 1), **options)
    assert history.metric == "loss" and not history.greater_is_better
    assert [one.metric for one in history.epochs] == [one.val_loss for one in history.epochs]
    assert history.best == min(one.val_loss for one in history.epochs) < history.start


def test_weights_of_zero_make_rows_invisible() -> None:
    (X, y), valid = rows(200), rows(100, seed=1)
    wrong = np.where(np.arange(200) < 100, y, np.where(y == "yes", "no", "yes"))
    weight = (np.arange(200) < 100).astype(float)
    options = QUICK | {"batch_size": 200, "dropout": 0.0, "metric": "log_loss"}
    first, second = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    one = finetune(first, (X, y, weight), valid, **options)
    two = finetune(second, (X, wrong, weight), valid, **options)
    assert same_bits(weights(first), weights(second))
    assert one.epochs[1].train_loss == two.epochs[1].train_loss
    assert one.best < one.start


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", ["list", "generator", "data loader", "unsized", "slices"])
def test_loaders_of_any_kind(kind: str, memory: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.trainers.loop.epoch_progress.DELAY", 0.0)  # the first step tells how long it takes
    X, y = rows(160)
    net = SmallNet(TASKS["binary"])
    parts = [(X[i : i + 32], y[i : i + 32]) for i in range(0, 160, 32)]

    class Unsized:
        def __iter__(self) -> Iterator[Any]:
            return iter(parts)

    train = {
        "list": parts,
        "generator": (part for part in parts),
        "data loader": DataLoader(parts, batch_size=None, shuffle=True),  # type: ignore[arg-type]
        "unsized": Unsized(),
        "slices": loader(net, X, y, batch_size=32),
    }[kind]
    history = finetune(net, train, rows(seed=1), loader_memory=memory, **QUICK)
    assert len(history.epochs) == 4 and history.best > history.start


def test_a_second_fit_starts_from_the_first() -> None:
    net, valid = SmallNet(TASKS["binary"]), rows(seed=1)
    first = finetune(net, rows(), valid, **QUICK)
    second = finetune(net, rows(seed=2), valid, **QUICK)
    assert second.start == first.best <= second.best


def test_validation_rows_without_a_defined_metric() -> None:
    X, _ = rows(20)
    with pytest.raises(BadInput, match="before training, auroc over the validation rows is nan"):
        finetune(SmallNet(TASKS["binary"]), rows(), (X, ["no"] * 20), **QUICK)


def test_one_class_only_in_a_loader() -> None:
    net, (X, _) = SmallNet(TASKS["binary"]), rows(20)
    before = weights(net)
    with pytest.raises(BadInput, match="every training target is 'no'"):
        finetune(net, [(X, ["no"] * 20)], rows(), **QUICK)
    assert same_bits(weights(net), before)


def test_nothing_to_train() -> None:
    net = SmallNet(TASKS["binary"]).requires_grad_(False)
    with pytest.raises(BadInput, match="nothing in this translation is trainable"):
        finetune(net, rows(), **QUICK)


def test_nothing_is_printed_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("pytorch_lightning").level
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK)
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"accelerator": "auto"})
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert logging.getLogger("pytorch_lightning").level == level


def test_the_progress_names_what_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windtunnel")
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"progress": True})
    assert caplog.messages[-1].startswith("fit: auroc 0.") and "kept: joint training, epoch" in caplog.messages[-1]
