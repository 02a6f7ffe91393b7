from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import windtunnel
from windtunnel.errors import BadInput


def test_a_second_fit_replaces_the_residual_model(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3)).round(1)
    y = X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + random.normal(size=1500) > 0
    train, valid = (X[:1000], y[:1000]), (X[1000:], y[1000:])
    options: dict[str, Any] = {"epochs": 2, "progress": False, "accelerator": "cpu"}
    net = windtunnel.translate(LogisticRegression().fit(*train)).fit(train, valid, **options)
    net.save(tmp_path / "net.windtunnel")
    names, first = [origin.name for origin in net.origins], net.history
    assert first is not None and names[-1] == "residual"
    for again in (net, windtunnel.load(tmp_path / "net.windtunnel")):
        again.fit((X[:800], y[:800]), valid, **options)
        assert [origin.name for origin in again.origins] == names and len(again.program.steps) == len(names)
        assert again.history is not None and abs(again.history.start - first.best) < 1e-6
        assert again.history.best >= again.history.start


def test_joint_training_after_a_fit_that_froze_the_steps() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3)).round(1)
    y = X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + random.normal(size=1500) > 0
    net = windtunnel.translate(LogisticRegression().fit(X, y)).fit((X, y), epochs=1, progress=False, accelerator="cpu")
    assert net.history is not None and net.history.kept.name != "translation"
    before = net.predict_proba(X)
    with pytest.raises(BadInput, match="an earlier fit replaced its steps .* Translate the source again"):
        net.fit((X, y), joint=True, progress=False, accelerator="cpu")
    np.testing.assert_array_equal(net.predict_proba(X), before)


def test_training_that_gains_less_leaves_an_earlier_residual_model_as_it_was() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3)).round(1)
    y = X[:, 0] + np.where(np.arange(1500) < 750, 1, -1) * X[:, 1] + random.normal(size=1500) > 0
    net = windtunnel.translate(LogisticRegression().fit(X[:750], y[:750])).refresh((X[750:], y[750:]))
    assert net.history is not None and net.history.changed
    before, batches = net.predict_proba(X), [(X[k::10], y[k::10]) for k in range(10)]
    valid = X, net.predict(X)  # nothing has a better accuracy
    net.fit(batches, valid, loader_memory=0, epochs=1, learning_rate=1e-2, metric="accuracy", progress=False)
    assert not net.history.changed
    np.testing.assert_array_equal(net.predict_proba(X), before)
    assert net.history.best == net.history.start == 1
    assert net.history.start_loss == pytest.approx(log_loss(valid[1], before))
