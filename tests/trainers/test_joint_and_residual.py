"""``fit(joint=True)``: joint training, with residual models on top of the source pipeline and of its result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier

import windtunnel
from windtunnel.errors import InvalidOption
from windtunnel.trainers.candidates import train_candidates
from windtunnel.trainers.residual.residual_training import TrainedResidual, train_residual

STEPS: dict[str, Any] = {"max_steps": 120, "val_check_interval": 40, "progress": False, "accelerator": "cpu"}


def rows(decimals: int = 1) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(2500, 3)).round(decimals)
    score = 2 * X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 1.5, -1.5)
    y = score + random.logistic(size=2500) > 0
    return (X[:1500], y[:1500]), (X[1500:], y[1500:])


def test_a_residual_model_on_top_of_joint_training(tmp_path: Path) -> None:
    train, valid = rows()
    weak = LogisticRegression(C=1e-3).fit(train[0][:40], train[1][:40])
    net = windtunnel.translate(weak).fit(train, valid, recipe="joint", residual=True, learning_rate=0.05, **STEPS)
    alone = windtunnel.translate(weak).fit(train, valid, progress=False, accelerator="cpu")
    candidates = net.history.to_frame("candidates").set_index("name")
    metrics = candidates["auroc"]
    assert metrics["joint training"] > metrics["translation"]
    assert net.history.kept.name.startswith("joint training + ")
    assert net.history.best == pytest.approx(roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]), abs=1e-6)
    assert net.history.best > alone.history.best
    for candidate in alone.history.candidates:  # the same as without joint training
        assert candidate.gain is None or candidates["gain"][candidate.name] == candidate.gain
        if not candidate.kept:  # of which a part is installed
            assert metrics[candidate.name] == candidate.metric
    net.save(tmp_path / "net.windtunnel")
    loaded = windtunnel.load(tmp_path / "net.windtunnel")
    np.testing.assert_array_equal(loaded.predict_proba(valid[0]), net.predict_proba(valid[0]))


def test_an_error_in_the_last_training_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def interrupted(*arguments: Any) -> TrainedResidual:
        calls.append(arguments)
        trained = train_residual(*arguments)
        error = KeyboardInterrupt() if len(calls) == 2 else None
        return replace(trained, training=replace(trained.training, error=error))

    monkeypatch.setattr(train_candidates, "train_residual", interrupted)
    train, valid = rows()
    weak = LogisticRegression(C=1e-3).fit(train[0][:40], train[1][:40])
    net = windtunnel.translate(weak)
    with pytest.raises(KeyboardInterrupt):
        net.fit(train, valid, recipe="joint", residual=True, learning_rate=0.05, **STEPS)
    assert len(calls) == 2 and net.history is not None and net.history.kept.name.startswith("joint training")
    assert net.history.best == pytest.approx(roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]), abs=1e-6)


def test_the_residual_model_of_the_source_where_joint_training_brings_nothing() -> None:
    train, valid = rows()
    source = LGBMClassifier(n_estimators=8, num_leaves=4, verbosity=-1).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    alone = windtunnel.translate(source, calibrate=train[0]).fit(train, valid, progress=False, accelerator="cpu")
    net.fit(train, valid, joint=True, learning_rate=1e-9, **STEPS)
    assert net.history.kept.name == alone.history.kept.name
    np.testing.assert_array_equal(net.predict_proba(valid[0]), alone.predict_proba(valid[0]))
    assert [origin.name for origin in net.origins] == [origin.name for origin in alone.origins]


def test_the_exact_trees_where_nothing_helps() -> None:
    """Trees that fit the training rows perfectly, and validation rows of which they know all: nothing gains."""
    train, _ = rows()
    source = LGBMClassifier(n_estimators=30, num_leaves=31, min_child_samples=1, verbosity=-1).fit(*train)
    valid = (train[0][:500], source.predict_proba(train[0][:500])[:, 1] > 0.5)
    net = windtunnel.translate(source, calibrate=train[0][:500])
    net.fit(train, valid, joint=True, learning_rate=1e-9, **STEPS)
    assert net.history.kept.name in ("translation", "source pipeline")
    np.testing.assert_allclose(net.predict_proba(valid[0]), source.predict_proba(valid[0]), atol=1e-6)
    assert net.softening_pending and net.soften() is net


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (OneVsRestClassifier(LogisticRegression()), {}),
        (FixedThresholdClassifier(LogisticRegression(), threshold=0.4), {"metric": "accuracy"}),
    ],
    ids=["one vs rest", "threshold"],
)
def test_a_residual_model_is_kept_whose_metric_needs_a_method(source: Any, options: dict[str, Any]) -> None:
    train, valid = rows()
    net = windtunnel.translate(source.fit(*train)).fit(train, valid, joint=True, **options, **STEPS)
    assert net.history is not None and net.history.kept is not None and net.history.best > net.history.start
    if options:
        assert net.history.best == pytest.approx(np.mean(net.predict(valid[0]) == valid[1]), abs=1e-6)


def test_joint_is_true_or_false() -> None:
    train, valid = rows()
    net = windtunnel.translate(LogisticRegression().fit(*train))
    with pytest.raises(InvalidOption, match="joint='yes' must be True or False"):
        net.fit(train, valid, joint="yes")


def test_the_history_starts_from_trees_that_the_caller_made_soft() -> None:
    train, valid = rows(decimals=9)  # no two rows are equal: sums in another order would break ties of their scores
    source = LGBMClassifier(n_estimators=8, num_leaves=4, verbosity=-1).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0], temperature=1.0).soften()
    before = roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1])
    assert before != pytest.approx(roc_auc_score(valid[1], source.predict_proba(valid[0])[:, 1]), abs=1e-4)
    net.fit(train, valid, joint=True, **STEPS)
    assert net.history.start == pytest.approx(before, abs=1e-6)


def test_an_interrupt_before_the_last_training_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    prepare = train_candidates.prepare_residual

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return prepare(*arguments)

    monkeypatch.setattr(train_candidates, "prepare_residual", interrupted)
    train, valid = rows()
    net = windtunnel.translate(LogisticRegression(C=1e-3).fit(train[0][:40], train[1][:40]))
    with pytest.raises(KeyboardInterrupt):
        net.fit(train, valid, recipe="joint", residual=True, learning_rate=0.05, **STEPS)
    assert len(calls) == 2 and net.history is not None and net.history.best > net.history.start
    assert net.history.best == pytest.approx(roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]), abs=1e-6)
