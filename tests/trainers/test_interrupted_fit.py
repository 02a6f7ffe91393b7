"""Interrupts of a fit after its epochs: while a residual is boosted, and while the selected model is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier

import windtunnel
from windtunnel.trainers.residual import installation
from windtunnel.trainers.residual.boosted import fit_boosted

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 20, size=(8000, 4)).astype(float)
Y = ((X[:, 0] + X[:, 1]) % 2 == 0) ^ (RANDOM.random(8000) < 0.1)
TRAIN, VALID = (X[:4000], Y[:4000]), (X[4000:], Y[4000:])


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def net() -> windtunnel.Translation:
    return windtunnel.translate(LGBMClassifier(n_estimators=5, verbosity=-1).fit(*TRAIN))


def test_an_interrupt_during_the_installation_leaves_the_translation_as_it_was(
    net: windtunnel.Translation, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, steps = net.predict_proba(X[:50]), len(net.program.steps)
    monkeypatch.setattr(installation, "use_fastest_forms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        net.fit(TRAIN, VALID, epochs=1, progress=False)
    assert net.history is None and len(net.program.steps) == len(net.origins) == steps
    np.testing.assert_array_equal(net.predict_proba(X[:50]), before)


def test_an_interrupt_of_boosting_keeps_the_residual_model(
    net: windtunnel.Translation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_boosted, "boost", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        net.fit(TRAIN, VALID, epochs=1, progress=False)
    assert "without a boosted residual" in caught.value.__notes__[-1]
    history = net.history
    assert history is not None and history.kept is not None and history.kept.name in ("interactions", "residual model")
    assert history.best > history.start + 0.1
