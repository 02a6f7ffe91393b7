"""``fit`` installs as much of a change as is certain: 1 - (e / g)^2 of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.trainers.significance.significance_test import SignificanceTest

TRAIN, VALID = slice(0, 6000), slice(6000, 8500)


def numbers() -> tuple[Any, Any]:
    """Two columns interact, which interactions and columns find."""
    random = np.random.default_rng(0)
    X = random.normal(size=(8500, 3)).round(1)
    return X, X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + random.normal(size=8500)


def categories() -> tuple[Any, Any]:
    """A product of two interactions, which the boosted residual finds."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({name: random.integers(0, 12, 8500).astype(str) for name in "abcd"})
    signs = random.choice([-1.0, 1.0], size=(2, 12, 12))
    first, second = (signs[k][X[p].astype(int), X[q].astype(int)] for k, (p, q) in enumerate(("ab", "cd")))
    return X, random.random(8500) < 1 / (1 + np.exp(-1.2 * first - 1.2 * second - 2.0 * first * second))


def fitted(source: Any, X: Any, y: Any) -> windtunnel.Translation:
    train, valid = ((X[part], y[part]) for part in (TRAIN, VALID))
    return windtunnel.translate(source).fit(train, valid, epochs=1, progress=False, accelerator="cpu")


@pytest.mark.parametrize(
    ("source", "rows", "kept"),
    [
        (make_pipeline(StandardScaler(), Ridge()), numbers(), "residual model"),
        (make_pipeline(OneHotEncoder(), LogisticRegression()), categories(), "boosted"),
    ],
    ids=["residual model", "boosted residual"],
)
def test_the_installed_change_is_a_part_of_the_tested_one(
    source: Any, rows: tuple[Any, Any], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows
    source.fit(X[TRAIN], y[TRAIN])
    before = np.asarray(windtunnel.translate(source).scores(X))
    part = fitted(source, X, y)
    monkeypatch.setattr(SignificanceTest, "shrinkage", 1.0)
    whole = fitted(source, X, y)
    assert part.history is not None and part.history.kept is not None
    test = part.history.kept
    assert kept in test.name and test.gain is not None and test.standard_error is not None
    factor = 1 - (test.standard_error / test.gain) ** 2
    assert 0.9 < factor < 0.9999
    expected = before + factor * (np.asarray(whole.scores(X)) - before)
    np.testing.assert_allclose(np.asarray(part.scores(X)), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert test.installed_part == pytest.approx(factor) and f"{factor:.1%} of its change is installed" in str(test)


def test_the_history_has_the_metric_of_what_is_installed() -> None:
    X, y = numbers()
    net = fitted(Ridge().fit(X[TRAIN], y[TRAIN]), X, y)
    assert net.history is not None and net.history.kept is not None
    rmse = root_mean_squared_error(y[VALID], net.predict(X[VALID]))
    assert net.history.best == net.history.kept.metric == pytest.approx(rmse, rel=1e-5)


def test_interactions_are_installed_without_untrained_factors() -> None:
    X, y = numbers()
    train, valid = (X[:2500], y[:2500]), (X[VALID], y[VALID])
    net = windtunnel.translate(Ridge().fit(*train))
    net.fit(train, valid, epochs=1, learning_rate=10.0, progress=False, accelerator="cpu")
    assert net.history is not None and net.history.kept is not None and net.history.kept.name == "interactions"
    model = next(step.module for step in net.program.steps if isinstance(step.module, ResidualModel))
    assert model.factors.shape[2] == 0 and not model.weight.any() and model.cross.any()
    assert net.history.best == pytest.approx(root_mean_squared_error(y[VALID], net.predict(X[VALID])), rel=1e-5)


def test_the_best_epoch_is_installed_whole_where_it_overrules_the_test() -> None:
    X, y = numbers()
    source = Ridge().fit(X[TRAIN], y[TRAIN])
    train, valid = ((X[part], y[part]) for part in (TRAIN, VALID))
    options: dict[str, Any] = {"epochs": 1, "progress": False, "accelerator": "cpu", "select": "best_epoch"}
    net = windtunnel.translate(source).fit(train, valid, **options)
    assert net.history is not None and net.history.kept is not None
    assert net.history.kept.installed_part == 1 and "of its change" not in str(net.history.kept)


def test_a_part_that_is_worse_than_the_translation_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = numbers()
    source = make_pipeline(StandardScaler(), Ridge()).fit(X[TRAIN], y[TRAIN])
    train, valid = ((X[part], y[part]) for part in (TRAIN, VALID))
    monkeypatch.setattr(SignificanceTest, "shrinkage", 0.9)
    net = windtunnel.translate(source).fit(train, valid, epochs=1, progress=False, accelerator="cpu")
    before, scores = net.history, np.asarray(net.scores(X))
    assert before is not None and before.best < before.start
    monkeypatch.setattr(SignificanceTest, "shrinkage", 0.6)
    again = net.fit(train, valid, epochs=1, progress=False, accelerator="cpu").history
    assert again is not None and again.kept is not None and again.kept.name == "translation"
    assert again.best == again.start == pytest.approx(before.best)
    assert np.array_equal(np.asarray(net.scores(X)), scores)
    assert any("60.0% of its change, as much as may be" in each.reason for each in again.candidates)


@pytest.mark.parametrize(("error", "factor"), [(1.0, 0.75), (0.2, 0.99), (float("nan"), 1.0)])
def test_the_factor_follows_the_standard_error(error: float, factor: float) -> None:
    assert SignificanceTest(2.0, error, 100).shrinkage == pytest.approx(factor)
