"""Joint training that is tested: kept only if it is significantly better than the source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier

import windtunnel
from windtunnel.modules.trees.hard import HardTrees

ONE_VS_REST = OneVsRestClassifier(LogisticRegression())
WITHOUT_RESIDUAL_MODEL = FixedThresholdClassifier(ONE_VS_REST, threshold=0.5)


def rows(count: int, seed: int, signal: float) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 4))
    return X, signal * X[:, 0] + random.normal(size=count) > 0.3


def test_a_linear_source_stays_as_it_is_without_a_significant_gain() -> None:
    train, valid = rows(600, 0, 0.0), rows(300, 1, 0.0)
    source = WITHOUT_RESIDUAL_MODEL.fit(*train)
    net = windtunnel.translate(source)
    before = net.predict_proba(valid[0])
    for _ in range(2):  # what can be trained stays trainable
        history = net.fit(train, valid, epochs=3, learning_rate=0.1, progress=False).history
        assert history is not None and history.kept.name == "translation" and history.best == history.start
        assert "joint training" in [each.name for each in history.candidates]
        np.testing.assert_array_equal(net.predict_proba(valid[0]), before)
    overruled = net.fit(train, valid, epochs=3, learning_rate=1e-3, select="best_epoch", progress=False).history
    assert overruled is not None and "overruled" not in overruled.kept.reason
    assert [each.reason for each in overruled.candidates if each.name == "joint training"]


def test_a_significant_gain_is_kept() -> None:
    wrong, train, valid = rows(600, 0, -1.0), rows(2000, 1, 1.0), rows(1000, 2, 1.0)
    source = WITHOUT_RESIDUAL_MODEL.fit(*wrong)
    history = windtunnel.translate(source).fit(train, valid, epochs=5, learning_rate=0.05, progress=False).history
    assert history is not None and history.kept.name == "joint training"
    assert history.kept.gain > history.kept.standard_error > 0


def test_exact_trees_stay_without_a_significant_gain() -> None:
    train, valid = rows(600, 0, 0.5), rows(200, 1, 0.5)
    trees = LGBMClassifier(n_estimators=5, num_leaves=4, verbosity=-1, n_jobs=1)
    source = FixedThresholdClassifier(OneVsRestClassifier(trees), threshold=0.5).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    history = net.fit(train, valid, epochs=1, learning_rate=1e-7, progress=False).history
    assert history is not None and history.kept.name == "source pipeline"
    assert any(isinstance(step.module, HardTrees) for step in net.program.steps) and net.softening_pending
    np.testing.assert_allclose(net.predict_proba(valid[0]), source.predict_proba(valid[0]), rtol=1e-9)


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_joint_training_is_tested_with_a_metric_that_a_step_computes(metric: str) -> None:
    wrong, train, valid = rows(600, 0, -1.0), rows(2000, 1, 1.0), rows(1000, 2, 1.0)
    classes = [(X, y + (X[:, 1] > 0)) if metric == "log_loss" else (X, y) for X, y in (wrong, train, valid)]
    net = windtunnel.translate(ONE_VS_REST.fit(*classes[0]))
    history = net.fit(*classes[1:], joint=True, metric=metric, epochs=5, learning_rate=0.05, progress=False).history
    assert history is not None and history.metric == metric
    tuned = next(each for each in history.candidates if each.name == "joint training")
    assert tuned.gain > tuned.standard_error > 0
