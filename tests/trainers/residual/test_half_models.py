"""What is selected on one half of the validation rows is tested on the other; the columns of a residual model too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import windtunnel
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training import TrainingResult, train
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual import preparation, residual_training
from windtunnel.trainers.residual.residual_training import TrainedResidual, train_residual
from windtunnel.trainers.significance.validation_halves import ValidationHalves

COUNT = 1000
"""Validation rows."""


def rows(count: int, seed: int, noise: int = 0) -> tuple[Any, Any]:
    """Labels that depend on the square of the first column, and columns of noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 2 + noise))
    return X, X[:, 0] ** 2 + np.sin(3 * X[:, 1]) + random.normal(size=count) > 1


def trained(monkeypatch: pytest.MonkeyPatch, valid: tuple[Any, Any]) -> TrainedResidual:
    """A residual model, with the first and the second half of the validation rows as halves."""
    halves = [*torch.arange(COUNT).tensor_split(2)]
    monkeypatch.setattr(preparation, "split_in_halves", lambda *_: ValidationHalves(halves, torch.arange(COUNT)))
    train = rows(3000, 0)
    net = windtunnel.translate(LogisticRegression().fit(*train))
    recipe = Recipe(epochs=20, batch_size=64)
    prepared = preparation.prepare_residual(net, DataModule(net, train, valid, recipe), recipe)
    assert isinstance(prepared, preparation.ResidualSetup)
    return train_residual(prepared, recipe, TrainerOptions(), CheckpointOptions())


def test_a_half_has_the_scores_of_columns_that_never_saw_its_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(COUNT, 1)
    other = y.copy()
    other[:20] = ~other[:20]  # so few that the interactions stay significant
    before, after = (trained(monkeypatch, (X, each)).scores for each in (y, other))
    assert all(half.abs().max() > 0 for half in before.tensor_split(2))
    torch.testing.assert_close(before[: COUNT // 2], after[: COUNT // 2], rtol=0, atol=0)
    assert not torch.equal(before[COUNT // 2 :], after[COUNT // 2 :])


def test_columns_of_noise_are_not_kept() -> None:
    train, valid = rows(1500, 0, noise=60), rows(500, 1, noise=60)
    noise = np.random.default_rng(2)
    train, valid = ((X[:, 2:], noise.random(len(X)) < 0.3) for X, _ in (train, valid))
    source = LogisticRegression(C=1e-3).fit(*train)
    net = windtunnel.translate(source).fit(train, valid, progress=False)
    candidates = {each.name: each for each in net.history.candidates}
    assert candidates["residual model"].gain < 0
    np.testing.assert_allclose(net.predict_proba(valid[0]), source.predict_proba(valid[0]), rtol=1e-6)


def test_a_half_of_one_class_selects_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(COUNT, 1)
    y[COUNT // 2 :] = False
    scores = trained(monkeypatch, (X, y)).scores
    assert not scores[: COUNT // 2].any() and scores[COUNT // 2 :].any()


def test_an_interrupted_test_keeps_a_significant_model(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(*arguments: Any) -> TrainingResult:
        calls.append(arguments)
        result = train(*arguments)
        return result if len(calls) < 2 else replace(result, error=KeyboardInterrupt())

    monkeypatch.setattr(residual_training, "train", interrupted)
    data, valid = rows(3000, 0), rows(COUNT, 1)
    source = LogisticRegression().fit(*data)
    net = windtunnel.translate(source)
    with pytest.raises(KeyboardInterrupt) as caught:
        net.fit(data, valid, epochs=20, batch_size=64, progress=False)
    assert caught.value.__notes__ == ["the translation holds the best epoch, which is not tested any more"]
    assert len(calls) == 2 and net.history is not None and net.history.kept.name == "residual model"
    assert net.history.kept.gain > net.history.kept.standard_error
    assert net.history.best == pytest.approx(roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]), abs=1e-6)


def test_a_trainer_of_the_caller_bounds_the_models_that_test(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = []

    def noted(*arguments: Any) -> TrainingResult:
        epochs.append(len((result := train(*arguments)).epochs) - 1)
        return result

    monkeypatch.setattr(residual_training, "train", noted)
    data, valid = rows(8000, 0), rows(COUNT, 1)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    windtunnel.translate(LogisticRegression().fit(*data)).fit(data, valid, trainer=trainer, progress=False)
    assert len(epochs) == 3 and max(epochs) <= 2
