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


@pytest.mark.filterwarnings("ignore:on the validation rows the members")
def test_crossfit_and_a_loaded_translation_weigh_them_too(tmp_path: Any) -> None:
    windtunnel.translate(balanced()).save(tmp_path / "model.windtunnel")
    loaded = windtunnel.load(tmp_path / "model.windtunnel")
    loaded.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False)
    assert loaded.history.class_weights == tune(balanced()).history.class_weights
    crossed = windtunnel.crossfit(balanced(), X[TRAIN], Y[TRAIN], folds=2, progress=False)
    weights = crossed.history.class_weights
    assert 3 < weights["rare"] / weights["common"] < 6
    valid = (X[VALID], Y[VALID])
    crossed = windtunnel.crossfit(balanced(), X[TRAIN], Y[TRAIN], folds=2, valid=valid, progress=False)
    assert crossed.predict_proba(X[TEST])[:, 1].mean() > 2 * (Y[TEST] == "rare").mean()


def more_rare_rows() -> Any:
    """Rows of which more are rare."""
    common = np.flatnonzero(Y[TEST] == "common")[:700]
    rows = np.delete(np.arange(4500, 6000), common)
    return X[rows], Y[rows]


def test_a_second_fit_keeps_the_weights_of_the_first() -> None:
    forest = RandomForestClassifier(30, max_depth=5, class_weight="balanced", random_state=0)
    net = tune(forest.fit(X[TRAIN], Y[TRAIN]))
    before = net.history.class_weights
    net.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False)
    assert net.history.class_weights == before


def test_refresh_keeps_the_weights_of_the_fit() -> None:
    net = tune(balanced())
    before = net.history.class_weights
    assert net.refresh(more_rare_rows(), progress=False).history.class_weights == before


def test_refresh_after_a_fit_without_weights_has_none() -> None:
    net = tune(balanced(), class_weight=None)
    assert net.refresh(more_rare_rows(), progress=False).history.class_weights is None


def test_the_first_refresh_takes_the_weights_of_old_rows() -> None:
    old, net = (X[VALID], Y[VALID]), windtunnel.translate(balanced())
    weights = net.refresh(more_rare_rows(), replay=old, progress=False).history.class_weights
    assert 3 < weights["rare"] / weights["common"] < 6


def test_validation_rows_that_do_not_tell_leave_it_to_the_training_rows() -> None:
    target = np.where(X[:, 3] > 2, "none", Y)  # a class of 2 % of the rows, which no feature of the source tells
    forest = RandomForestClassifier(20, max_depth=2, max_features=1, class_weight="balanced", random_state=0)
    source = forest.fit(X[TRAIN], target[TRAIN])
    few = np.flatnonzero(target[VALID] != "none")[:60] + 3000
    net = windtunnel.translate(source)
    net.fit((X[TRAIN], target[TRAIN]), (X[few], target[few]), progress=False)
    assert net.history.class_weights["none"] > 3 * net.history.class_weights["common"]


@pytest.mark.parametrize(
    "probabilities",
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]],  # no row may be of another class
        [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]],  # no row of class 1 may be of class 0
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ],
)
def test_rows_that_tell_no_weights(probabilities: Any) -> None:
    targets = Targets(torch.tensor([0, 1, 1]))
    assert balancing_weights(torch.tensor(probabilities, dtype=torch.float64), targets) is None


def test_a_source_without_probabilities_causes_a_warning() -> None:
    net = windtunnel.translate(LinearSVC(class_weight="balanced").fit(X[TRAIN], Y[TRAIN]))
    with pytest.warns(UserWarning, match="the source has class_weight, and the classes are weighed alike, as"):
        net.fit((X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID]), progress=False)
    assert net.history.class_weights is None


@pytest.mark.filterwarnings("error")
def test_no_warning_where_the_rows_have_weights() -> None:
    source = LinearSVC(class_weight="balanced").fit(X[TRAIN], Y[TRAIN])
    train, valid = ((X[part], Y[part], np.where(Y[part] == "rare", 5.0, 1.0)) for part in (TRAIN, VALID))
    windtunnel.translate(source).fit(train, valid, progress=False)
