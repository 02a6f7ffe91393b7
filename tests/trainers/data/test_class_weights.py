"""``fit`` and ``refresh`` weigh the classes as the source did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import windtunnel
from windtunnel.trainers.data.class_weights import balancing_weights
from windtunnel.trainers.data.labelled_rows import Targets

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6000, 4))
LOGIT = X[:, 0] - 2.5 + 2 * (X[:, 1] > 0) * (X[:, 2] > 0)  # an interaction that a linear model misses
Y = np.where(RANDOM.random(6000) < 1 / (1 + np.exp(-LOGIT)), "rare", "common")
GRADE = np.digitize(LOGIT + RANDOM.logistic(size=6000), [-2, 1])
TRAIN, VALID, TEST = slice(0, 3000), slice(3000, 4500), slice(4500, None)


def balanced() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")).fit(X[TRAIN], Y[TRAIN])


def tune(source: Any, **options: Any) -> Any:
    net = windtunnel.translate(source)
    return net.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False, **options)


@pytest.mark.parametrize("row_weights", [False, True])
@pytest.mark.parametrize("target", [Y, GRADE])
def test_the_weights_are_those_that_a_source_was_fitted_with(target: Any, row_weights: bool) -> None:
    classes = np.unique(target)
    wanted = dict(zip(classes.tolist(), [1.0, 7.0, 3.0], strict=False))
    weight = RANDOM.random(len(X)) if row_weights else None
    # Without a penalty, a logistic regression predicts the weighted frequencies of its training rows.
    source = LogisticRegression(C=np.inf, class_weight=wanted, tol=1e-10, max_iter=1000).fit(X, target, weight)
    positions = torch.as_tensor(np.searchsorted(classes, target))
    targets = Targets(positions, None if weight is None else torch.tensor(weight))
    found = balancing_weights(torch.as_tensor(source.predict_proba(X)), targets).numpy()
    np.testing.assert_allclose(found / found[0], [*wanted.values()], rtol=1e-4)
    np.testing.assert_allclose(np.average(found[positions.numpy()], weights=weight), 1)


def test_a_class_without_rows_has_weight_1() -> None:
    probabilities = torch.tensor([[0.6, 0.3, 0.1]] * 6, dtype=torch.float64)
    found = balancing_weights(probabilities, Targets(torch.tensor([0, 0, 0, 1, 1, 1])))
    torch.testing.assert_close(found, torch.tensor([4 / 3, 2 / 3, 1], dtype=torch.float64))


@pytest.mark.parametrize(
    "source",
    [
        balanced(),
        make_pipeline(RandomOverSampler(random_state=0), LogisticRegression()).fit(X[TRAIN], Y[TRAIN]),
        RandomForestClassifier(30, max_depth=5, class_weight="balanced", random_state=0).fit(X[TRAIN], Y[TRAIN]),
    ],
    ids=["weights", "a sampler", "a forest"],
)
def test_fit_keeps_to_the_frequencies_of_the_source(source: Any) -> None:
    net = tune(source)
    assert net.history.changed
    before, after = (model.predict_proba(X[TEST])[:, 1].mean() for model in (source, net))
    assert abs(after - before) < 0.04 and before > 2 * (Y[TEST] == "rare").mean()
    weights = net.history.class_weights
    assert [*weights] == ["common", "rare"] and 3 < weights["rare"] / weights["common"] < 6
    assert f"rare: {weights['rare']:.3g})" in str(net.history)
    row_weights = np.vectorize(weights.get)(Y[VALID])
    expected = log_loss(Y[VALID], source.predict_proba(X[VALID]), sample_weight=row_weights)
    np.testing.assert_allclose(net.history.start_loss, expected, rtol=1e-6)


def test_without_them_probabilities_move_to_the_frequencies_of_the_rows() -> None:
    net = tune(balanced(), class_weight=None)
    assert net.history.class_weights is None
    assert net.predict_proba(X[TEST])[:, 1].mean() < 1.3 * (Y[TEST] == "rare").mean()


def test_crossfit_and_a_loaded_translation_weigh_them_too(tmp_path: Any) -> None:
    windtunnel.translate(balanced()).save(tmp_path / "model.windtunnel")
    loaded = windtunnel.load(tmp_path / "model.windtunnel")
    loaded.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False)
    assert loaded.history.class_weights == tune(balanced()).history.class_weights
    crossed = windtunnel.crossfit(balanced(), X[TRAIN], Y[TRAIN], folds=2, progress=False)
    weights = crossed.history.class_weights
    assert 3 < weights["rare"] / weights["common"] < 6


@pytest.mark.parametrize("tuned", [False, True])
def test_refresh_keeps_the_weights(tuned: bool) -> None:
    net = tune(balanced()) if tuned else windtunnel.translate(balanced())
    before = net.history.class_weights if tuned else None
    common = np.flatnonzero(Y[TEST] == "common")[:700]
    new = np.delete(np.arange(4500, 6000), common)  # "rare" is more frequent in the new rows
    net.refresh((X[new], Y[new]), progress=False)
    weights = net.history.class_weights
    assert weights == before if tuned else weights["rare"] / weights["common"] < 3


def test_a_source_without_probabilities_causes_a_warning() -> None:
    net = windtunnel.translate(LinearSVC(class_weight="balanced").fit(X[TRAIN], Y[TRAIN]))
    with pytest.warns(UserWarning, match="the source has class_weight, and fit weighs the classes alike, as"):
        net.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False)
    assert net.history.class_weights is None
