"""Errors, interrupts and signals during training: the net keeps the best weights so far."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from linear_case import FRAME, QUICK as TWO_EPOCHS, Y, linear
from sklearn.linear_model import LogisticRegression
from small_net import QUICK, TASKS, SmallNet, finetune, rows, same_bits, weights

import windtunnel
from windtunnel.errors import BadInput


def _breaking(error: BaseException) -> Iterator[Any]:
    X, y = rows(128)
    yield X, y
    raise error


class _BreaksInEpoch:
    def __init__(self, error: BaseException, epoch: int) -> None:
        self.error, self.epoch = error, epoch

    def __iter__(self) -> Iterator[Any]:
        X, y = rows(128)
        yield X[:64], y[:64]
        if self.epoch == 1:
            raise self.error
        self.epoch -= 1
        yield X[64:], y[64:]


@pytest.mark.parametrize("error", [ZeroDivisionError("disk gone"), KeyboardInterrupt()])
def test_an_error_keeps_the_best_weights_so_far(error: BaseException, tmp_path: Path) -> None:
    net, whole, valid = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"]), rows(seed=1)
    (X, y), options = rows(128), QUICK | {"metric": "log_loss", "loader_memory": 0}
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(type(error)) as caught:
        finetune(net, _BreaksInEpoch(error, epoch=3), valid, checkpoint_dir=tmp_path, **options)
    assert signal.getsignal(signal.SIGINT) is before
    history = finetune(whole, [(X[:64], y[:64]), (X[64:], y[64:])], valid, **options | {"epochs": 2})
    assert history.best_epoch > 0
    assert same_bits(weights(net), weights(whole))
    assert not net.training and net.dropout == 0.0
    note = f"2 epochs were finished; the translation holds the weights of the best one, epoch {history.best_epoch}; "
    assert any(note in line for line in caught.value.__notes__)
    resumed = finetune(net, [(X[:64], y[:64]), (X[64:], y[64:])], valid, resume_from=tmp_path, **options)
    assert len(resumed.epochs) == 4


def test_an_error_before_the_first_step_changes_nothing() -> None:
    net = SmallNet(TASKS["binary"])
    before = weights(net)
    with pytest.raises(ZeroDivisionError):
        finetune(net, rows(), _breaking(ZeroDivisionError()), **QUICK)
    with pytest.raises(ZeroDivisionError):
        finetune(net, _BreaksInEpoch(ZeroDivisionError(), epoch=1), rows(), loader_memory=0, **QUICK)
    assert same_bits(weights(net), before) and not net.training


def test_sigterm_keeps_its_handler() -> None:
    class Terminate(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        history = finetune(SmallNet(TASKS["binary"]), rows(), callbacks=[Terminate()], **QUICK)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM] and len(history.epochs) == QUICK["epochs"] + 1


def test_an_error_tells_how_many_epochs_were_finished() -> None:
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if trainer.current_epoch == 1:
                raise RuntimeError("stop")

    net = SmallNet(TASKS["binary"])
    with pytest.raises(RuntimeError, match="stop") as caught:
        finetune(net, rows(), rows(seed=1), callbacks=Stop(), **QUICK)
    (note,) = caught.value.__notes__
    assert note.startswith("2 epochs were finished; the translation holds the weights of the best one, epoch 2")
    assert net.history is not None and net.history.summary.endswith("epoch 2 of 2")
    assert net.history.stopped == "by an error, an interrupt or a callback"


def test_an_interrupt_keeps_new_categories_with_what_was_learned_of_them() -> None:
    class Interrupt(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if trainer.current_epoch == 1:
                raise KeyboardInterrupt

    net, new = windtunnel.translate(linear()), FRAME.assign(city="Lilliput")
    train = FRAME.assign(city=new["city"].where(FRAME.index < 50, FRAME["city"])), Y["label"]
    with pytest.raises(BadInput, match="has 299 values for 300 rows"):
        net.fit(train, (FRAME, Y["label"][:-1]), recipe="joint", **TWO_EPOCHS)
    with pytest.raises(BadInput, match="Lilliput"):
        net.predict(new)
    with pytest.raises(KeyboardInterrupt):
        net.fit(train, (FRAME, Y["label"]), recipe="joint", callbacks=Interrupt(), **TWO_EPOCHS)
    assert len(net.predict(new)) == len(new)


@pytest.mark.parametrize(
    "comparison", ["candidates.train_candidates.residual_candidates", "finetune.select_as_installed"]
)
def test_an_interrupt_while_models_are_compared_loses_none(comparison: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _, function = comparison.rpartition(".")
    module = import_module(f"windtunnel.trainers.{file}")
    compare, calls = getattr(module, function), list[Any]()

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return compare(*arguments)

    X = np.random.default_rng(0).normal(size=(2000, 3))
    train, valid = ((X[part], X[part, 0] * X[part, 1] > 0) for part in (slice(1200), slice(1200, None)))
    whole, net = (windtunnel.translate(LogisticRegression().fit(*train)) for _ in range(2))
    whole.fit(train, valid, **TWO_EPOCHS)
    monkeypatch.setattr(module, function, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        net.fit(train, valid, **TWO_EPOCHS)
    assert "compared and installed" in caught.value.__notes__[0] and len(calls) == 2
    assert net.history.changed and net.history.kept.name == whole.history.kept.name
    np.testing.assert_array_equal(net.scores(X), whole.scores(X))
