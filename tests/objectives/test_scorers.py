"""scikit-learn's scorers as the metric of ``fit``: what the history says is what the scorer says of the models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, TweedieRegressor
from sklearn.metrics import balanced_accuracy_score, fbeta_score, get_scorer, make_scorer, roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import SVC

import windtunnel
from windtunnel.errors import BadInput, InvalidOption

Rows = tuple[NDArray[Any], NDArray[Any]]


def classes(count: int) -> tuple[Rows, Rows]:
    """Training and validation rows with labels that are texts."""
    X, y = make_classification(1_200, 6, n_informative=4, n_classes=count, flip_y=0.2, random_state=count)
    labels = np.array(["no", "yes", "perhaps"])[y]
    return (X[:800], labels[:800]), (X[800:], labels[800:])


def values() -> tuple[Rows, Rows]:
    X, y = make_regression(1_200, 6, n_informative=4, noise=20, random_state=0)
    y = np.abs(y) + 1
    return (X[:800], y[:800]), (X[800:], y[800:])


def profit(y_true: NDArray[Any], y_pred: NDArray[Any]) -> float:
    return float(np.mean(np.where(y_pred == "yes", np.where(y_true == "yes", 5, -3), 0)))


def trees(**options: Any) -> LGBMClassifier:
    return LGBMClassifier(n_estimators=10, num_leaves=8, verbosity=-1, **options)


MODELS: dict[str, tuple[Callable[[], Any], tuple[Rows, Rows], Any]] = {
    "labels of trees": (trees, classes(2), "balanced_accuracy"),
    "labels, with an option": (trees, classes(2), make_scorer(fbeta_score, beta=2, pos_label="yes")),
    "a function of its own": (trees, classes(2), make_scorer(profit)),
    "a loss": (
        trees,
        classes(2),
        make_scorer(lambda y, p: np.mean(p != (y == "yes")), greater_is_better=False, response_method="predict_proba"),
    ),
    "log-odds": (
        LogisticRegression,
        classes(2),
        make_scorer(lambda y, d: np.mean(d * (y == "yes")), response_method="decision_function"),
    ),
    "more classes": (trees, classes(3), "matthews_corrcoef"),
    "probabilities of more classes": (trees, classes(3), "top_k_accuracy"),
    "votes of support vectors": (lambda: SVC(kernel="linear"), classes(3), "balanced_accuracy"),
    "a step of its own": (lambda: CalibratedClassifierCV(trees(), cv=2), classes(2), "d2_log_loss_score"),
    "a threshold": (lambda: FixedThresholdClassifier(trees(), threshold=0.3), classes(2), "recall_macro"),
    "a regressor": (
        lambda: LGBMRegressor(n_estimators=10, num_leaves=8, verbosity=-1),
        values(),
        "neg_mean_absolute_percentage_error",
    ),
    "a link": (lambda: TweedieRegressor(power=1.5, link="log", max_iter=1000), values(), "neg_mean_gamma_deviance"),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_history_has_what_the_scorer_gives(name: str) -> None:
    model, (train, valid), metric = MODELS[name]
    source = model().fit(*train)
    net = windtunnel.translate(source).fit(train, valid, metric=metric, progress=False, epochs=2)
    scorer = get_scorer(metric)
    # Scores of linear models and targets of regressors are rounded to float32.
    assert net.history.start == pytest.approx(scorer(source, *valid), rel=1e-6)
    assert net.history.best == pytest.approx(scorer(net, *valid), rel=1e-6)
    assert net.history.best >= net.history.start


def test_weights_reach_the_scorer() -> None:
    (X, y), (X_valid, y_valid) = classes(2)
    source, weight = trees().fit(X, y), np.random.default_rng(0).exponential(size=len(y_valid))
    net = windtunnel.translate(source)
    net.fit((X, y), (X_valid, y_valid, weight), metric="balanced_accuracy", progress=False, epochs=1)
    wanted = balanced_accuracy_score(y_valid, source.predict(X_valid), sample_weight=weight)
    assert net.history.start == pytest.approx(wanted, rel=1e-6)  # weights are rounded to float32


@pytest.mark.parametrize("joint", [False, True])
def test_the_epoch_with_the_best_score_is_kept(joint: bool) -> None:
    train, valid = classes(2)
    options = {"recipe": "joint"} if joint else {"select": "best_epoch"}
    net = windtunnel.translate(LogisticRegression().fit(*train))
    net.fit(train, valid, metric=make_scorer(profit), progress=False, epochs=3, **options)
    assert net.history.metric == "profit"
    assert net.history.best == pytest.approx(max(row.metric for row in net.history.epochs), rel=1e-6)  # in float32
    assert "profit" in str(net.history)


def test_crossfit_takes_a_scorer() -> None:
    (X, y), valid = classes(2)
    recipe = windtunnel.Recipe(metric="matthews_corrcoef", epochs=1)
    net = windtunnel.crossfit(trees(), X, y, valid=valid, folds=2, recipe=recipe, progress=False)
    assert net.history.best == pytest.approx(get_scorer("matthews_corrcoef")(net, *valid), rel=1e-12)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("balanced", "metric='balanced' is not known; did you mean balanced_accuracy"),
        (profit, "metric='profit' does not score this binary model.*give a scorer of scikit-learn, such as sklearn"),
        (lambda model, X, y: 1.0, "metric='scorer' calls none of predict, predict_proba, decision_function; give a"),
        ("precision", "metric='precision' does not score this binary model.*pos_label=1 is not a valid label"),
        (
            "neg_mean_squared_error",
            "metric='neg_mean_squared_error' has no value .*ValueError: could not convert string to float",
        ),
        (5, "metric=5 must be the name of a metric, a scorer, or None"),
    ],
)
def test_what_does_not_score_is_rejected(metric: Any, message: str) -> None:
    train, valid = classes(2)
    net = windtunnel.translate(trees().fit(*train))
    with pytest.raises(InvalidOption, match=message):
        net.fit(train, valid, metric=metric, progress=False)


def test_a_scorer_without_weights_is_rejected_for_rows_with_weights() -> None:
    (X, y), (X_valid, y_valid) = classes(2)
    net = windtunnel.translate(trees().fit(X, y))
    with pytest.raises(InvalidOption, match="It has to take sample_weight, as rows have weights, or the"):
        net.fit((X, y), (X_valid, y_valid, 1 + (y_valid == "yes")), metric=make_scorer(profit), progress=False)


def test_a_candidate_that_the_scorer_does_not_take_is_not_kept() -> None:
    """The deviance needs predictions above 0, which a residual model on top of means may miss."""
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 4))
    y = random.poisson(np.exp(0.3 * X[:, 0] + 0.8 * X[:, 1] * X[:, 2] - 1)).astype(float)
    train, valid = (X[:2000], y[:2000]), (X[2000:], y[2000:])
    source = RandomForestRegressor(20, min_samples_leaf=20, random_state=0).fit(*train)
    metric = "neg_mean_poisson_deviance"
    net = windtunnel.translate(source).fit(train, valid, metric=metric, progress=False, epochs=2)
    assert net.history.start == pytest.approx(get_scorer(metric)(source, *valid), rel=1e-6)
    assert net.history.best == pytest.approx(get_scorer(metric)(net, *valid), rel=1e-6)


def test_a_scorer_may_not_read_rows() -> None:
    train, valid = classes(2)
    net = windtunnel.translate(trees().fit(*train))
    with pytest.raises(InvalidOption, match="may hand its rows to the model, and not read them"):
        net.fit(train, valid, metric=lambda model, X, y: model.predict_proba(X)[:, 1] @ X[:, 0], progress=False)


def test_a_scorer_that_catches_errors_gets_its_method() -> None:
    def auc(model: Any, X: Any, y: Any) -> float:
        try:
            numbers = model.decision_function(X)
        except Exception:  # a user's function may swallow what the model raises
            numbers = model.predict(X) == "yes"
        return float(roc_auc_score(y, numbers))

    train, valid = classes(2)
    source = LogisticRegression().fit(*train)
    net = windtunnel.translate(source).fit(train, valid, metric=auc, progress=False, epochs=1)
    assert net.history.start == pytest.approx(auc(source, *valid), rel=1e-6)


def test_scores_of_pairs_of_classes() -> None:
    train, valid = classes(3)
    source = SVC(kernel="linear", decision_function_shape="ovo").fit(*train)
    methods = ("decision_function", "predict_proba")
    scorer = make_scorer(lambda y, decisions: -float(np.abs(decisions).mean()), response_method=methods)
    net = windtunnel.translate(source).fit(train, valid, metric=scorer, progress=False, epochs=1)
    assert net.history.start == pytest.approx(scorer(source, *valid), rel=1e-6)


def test_names_of_columns_stay_free() -> None:
    def gain(y: Any, labels: Any) -> float:
        return float(np.mean(y == labels))

    train, valid = classes(2)
    net = windtunnel.translate(trees().fit(*train)).fit(train, valid, metric=make_scorer(gain), progress=False)
    assert net.history.metric == "my_gain"
    assert net.history.to_frame("candidates").columns.is_unique


def test_other_options_of_a_scorer_are_another_metric(tmp_path: Path) -> None:
    train, valid = classes(2)
    source = trees().fit(*train)
    low, high = (make_scorer(fbeta_score, beta=beta, pos_label="yes") for beta in (0.1, 10))
    options: dict[str, Any] = {"recipe": "joint", "progress": False}
    windtunnel.translate(source).fit(train, valid, metric=low, epochs=1, checkpoint_dir=tmp_path, **options)
    net = windtunnel.translate(source)
    with pytest.raises(BadInput, match=r"metric=.make_scorer\(fbeta_score, .*beta=0.1, .*now .*beta=10, "):
        net.fit(train, valid, metric=high, epochs=2, resume_from=tmp_path, **options)


def test_groups_that_a_metric_is_undefined_for_warn_of_nothing() -> None:
    (X, y), (X_valid, y_valid) = classes(2)
    y, y_valid = (np.where(x[:, 0] > 2, label, "no") for x, label in ((X, y), (X_valid, y_valid)))
    net = windtunnel.translate(LogisticRegression().fit(X, y))
    net.fit((X, y), (X_valid, y_valid), metric="precision_macro", progress=False, epochs=1)  # warnings are errors
