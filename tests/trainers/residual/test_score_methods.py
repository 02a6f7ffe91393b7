"""Residual models of sources with a program step for ``predict``, ``predict_proba`` or ``decision_function``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from catboost import CatBoostClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid, RadiusNeighborsClassifier
from sklearn.svm import SVC, OneClassSVM
from torch import Tensor

import windtunnel
from windtunnel.modules.linear.residual_model import ResidualSum

pytestmark = pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated:FutureWarning")

SOURCES = {
    "catboost": (CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False, thread_count=1), 3),
    "gradient boosting": (GradientBoostingClassifier(n_estimators=10), 2),
    "naive bayes": (GaussianNB(), 3),
    "linear discriminant": (LinearDiscriminantAnalysis(), 2),
    "quadratic discriminant": (QuadraticDiscriminantAnalysis(), 2),
    "support vectors": (SVC(), 2),
    "support vectors of three classes": (SVC(break_ties=True), 3),
    "threshold": (FixedThresholdClassifier(GradientBoostingClassifier(n_estimators=10), threshold=0.3), 2),
    "threshold of the first label": (FixedThresholdClassifier(GaussianNB(), threshold=0.3, pos_label="low"), 2),
    "tuned threshold of a forest": (
        TunedThresholdClassifierCV(RandomForestClassifier(10, max_depth=3, random_state=5)),
        2,
    ),
    "threshold on decisions": (FixedThresholdClassifier(SVC(), threshold=0.2), 2),
    "bagging with decisions": (BaggingClassifier(LogisticRegression(), 3, random_state=5), 3),
    "threshold of bagging with decisions": (
        FixedThresholdClassifier(BaggingClassifier(LogisticRegression(), 3, random_state=5), threshold=0.3),
        2,
    ),
    "one against the rest": (OneVsRestClassifier(LogisticRegression()), 3),
    "one against the rest of two classes": (OneVsRestClassifier(LogisticRegression()), 2),
    "one against the rest of forests": (OneVsRestClassifier(RandomForestClassifier(5, max_depth=3, random_state=5)), 3),
    "nearest centroid": (NearestCentroid(), 2),
    "gaussian process": (GaussianProcessClassifier(), 2),
    "support vectors with probabilities": (SVC(probability=True, random_state=5), 2),
    "calibrated support vectors": (CalibratedClassifierCV(SVC()), 3),
}
REFITTED = ("catboost", "naive bayes", "support vectors", "threshold", "one against the rest", "nearest centroid")
"""One of each kind: labels in a column, none, decisions, a bound, votes, a step of ``predict_proba``."""
OPTIONS: Any = {"progress": False, "epochs": 3}


def rows(classes: int, count: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 3))
    score = X[:, 0] + 2 * np.sign(X[:, 1] * X[:, 2]) + 0.5 * random.normal(size=count)
    return X, np.array(["low", "mid", "up"])[np.digitize(score, [0.0] if classes == 2 else [-1.0, 1.0])]


@cache
def fitted(name: str) -> tuple[Any, windtunnel.Translation]:
    source, classes = SOURCES[name]
    source.fit(*rows(classes, 600, 0))
    return source, windtunnel.translate(source).fit(rows(classes, 1500, 1), rows(classes, 800, 2), **OPTIONS)


def check(name: str, net: Any, X: Any) -> None:
    """Labels, log-probabilities and decisions follow from the same scores as the probabilities."""
    source, _ = fitted(name)
    if name in ("support vectors", "support vectors of three classes", "threshold on decisions"):
        decisions = net.decision_function(X)
        greatest = decisions.argmax(axis=1) if decisions.ndim == 2 else decisions >= getattr(source, "threshold", 0)
        np.testing.assert_array_equal(net.predict(X), net.classes_[greatest.astype(int)])
        return
    probabilities = net.predict_proba(X)
    if "threshold" in name:
        positive = int(name != "threshold of the first label")
        reached = probabilities[:, positive] >= getattr(source, "best_threshold_", getattr(source, "threshold", None))
        np.testing.assert_array_equal(net.predict(X), net.classes_[np.where(reached, positive, 1 - positive)])
        return
    if hasattr(source, "predict_log_proba"):
        np.testing.assert_allclose(net.predict_log_proba(X), np.log(probabilities), rtol=1e-6, atol=1e-9)
    labels = net.classes_[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(net.predict(X), labels[:, None] if name == "catboost" else labels)
    if hasattr(source, "decision_function") and len(net.classes_) == 2:
        odds = np.log(probabilities[:, 1]) - np.log(probabilities[:, 0])
        np.testing.assert_allclose(net.decision_function(X), odds, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", SOURCES)
def test_every_output_follows_the_residual_model(name: str, tmp_path: Path) -> None:
    source, net = fitted(name)
    X, y = rows(SOURCES[name][1], 2000, 3)
    assert isinstance(net.program.steps[-1].module, ResidualSum)
    assert np.mean(net.predict(X).ravel() == y) > np.mean(source.predict(X).ravel() == y)
    if hasattr(source, "predict_proba"):
        assert log_loss(y, net.predict_proba(X)) < log_loss(y, source.predict_proba(X))
    check(name, net, X)

    file = tmp_path / "net.windtunnel"
    net.save(file)
    loaded = windtunnel.load(file)
    np.testing.assert_array_equal(loaded.predict(X), net.predict(X))
    check(name, loaded, X)


@pytest.mark.parametrize("name", REFITTED)
def test_every_output_follows_residual_models_that_a_file_gets_anew(name: str, tmp_path: Path) -> None:
    fitted(name)[1].save(tmp_path / "net.windtunnel")
    net, classes = windtunnel.load(tmp_path / "net.windtunnel"), SOURCES[name][1]
    X, _ = rows(classes, 2000, 3)
    net.fit(rows(classes, 1500, 4), rows(classes, 800, 5), **OPTIONS)
    check(name, net, X)
    net.refresh(rows(classes, 500, 6))
    check(name, net, X)


SLOW_TO_EXPORT = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("threshold", "support vectors of three classes")
]


@pytest.mark.parametrize("name", ["catboost", "gaussian process", *SLOW_TO_EXPORT])
def test_an_exported_file_has_the_labels_of_the_sum(name: str, tmp_path: Path) -> None:
    _, net = fitted(name)
    X, _ = rows(SOURCES[name][1], 300, 3)
    net.export(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (labels,) = session.run(["predict"], {str(column): X[:, column] for column in range(3)})
    np.testing.assert_array_equal(net.classes_[np.ravel(labels)], np.ravel(net.predict(X)))


def test_the_threshold_of_catboost_is_on_the_sum() -> None:
    source = CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False, thread_count=1)
    source.fit(*rows(2, 300, 0)).set_probability_threshold(0.3)
    net = windtunnel.translate(source).fit(rows(2, 1500, 1), rows(2, 800, 2), **OPTIONS)
    X, _ = rows(2, 2000, 3)
    assert isinstance(net.program.steps[-1].module, ResidualSum)
    np.testing.assert_array_equal(net.predict(X), net.classes_[(net.predict_proba(X)[:, 1] > 0.3).astype(int)])


@pytest.mark.parametrize(
    "name",
    [
        "threshold", "tuned threshold of a forest", "support vectors of three classes", "nearest centroid",
        "one against the rest", "support vectors with probabilities",
    ],
)  # fmt: skip
def test_a_metric_of_labels_takes_the_rule_of_the_source(name: str) -> None:
    source, valid = fitted(name)[0], rows(SOURCES[name][1], 800, 2)
    net = windtunnel.translate(source).fit(rows(SOURCES[name][1], 1500, 1), valid, metric="accuracy", **OPTIONS)
    assert net.history.start == pytest.approx(np.mean(source.predict(valid[0]) == valid[1]))
    assert net.history.best == pytest.approx(np.mean(net.predict(valid[0]) == valid[1]))
    assert net.history.best > net.history.start


@pytest.mark.parametrize("bound", [0.1, 0.9, 1.0])
def test_votes_of_a_forest_may_be_equal_to_the_bound(bound: float) -> None:
    source = FixedThresholdClassifier(RandomForestClassifier(10, random_state=5), threshold=bound)
    source.fit(*rows(2, 600, 0))
    valid = rows(2, 800, 2)
    net = windtunnel.translate(source).fit(rows(2, 1500, 1), valid, metric="accuracy", **OPTIONS)
    assert net.history.start == pytest.approx(np.mean(source.predict(valid[0]) == valid[1]))
    assert net.history.best == pytest.approx(np.mean(net.predict(valid[0]) == valid[1]))
    assert net.history.best >= net.history.start


def test_a_threshold_on_a_predict_proba_step_has_no_residual_model() -> None:
    source = FixedThresholdClassifier(NearestCentroid(), threshold=0.3).fit(*rows(2, 300, 0))
    net = windtunnel.translate(source)
    assert not net.takes_residual_model()
    with pytest.raises(windtunnel.BadInput, match="cannot be refreshed"):
        net.refresh(rows(2, 300, 1))


@pytest.mark.parametrize("name", ["one against the rest", "nearest centroid"])
def test_calibration_before_fit_is_that_of_the_source(name: str) -> None:
    (source, net), (X, _) = fitted(name), rows(SOURCES[name][1], 800, 2)
    before = net.history.calibration.before
    probabilities = source.predict_proba(X)
    expected = probabilities[:, 1] if len(source.classes_) == 2 else probabilities.max(axis=1)
    assert np.dot(before.predicted, before.weight) == pytest.approx(expected.mean())


def test_tree_block_weights_are_tested_with_the_metric_of_a_step() -> None:
    source = GradientBoostingClassifier(n_estimators=60, learning_rate=0.5, max_depth=6).fit(*rows(2, 400, 0))
    net = windtunnel.translate(source).fit(rows(2, 1500, 1), rows(2, 800, 2), metric="accuracy", **OPTIONS)
    X, y = rows(2, 800, 2)
    weights = next(each for each in net.history.candidates if each.name == "tree-block weights")
    assert weights.gain > weights.standard_error
    assert net.history.best == pytest.approx(np.mean(net.predict(X) == y), abs=1e-6)


def test_scores_of_samples_do_not_follow() -> None:
    X, _ = rows(2, 100, 0)
    assert not windtunnel.translate(OneClassSVM().fit(X)).takes_residual_model()


def exponential(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of exp(-s) or exp(s), of the only score s of a row, for the two classes."""
    assert scores.shape[1] == 1
    return (scores[:, 0] * (1 - 2 * target)).exp().mean()


@pytest.mark.parametrize("options", [{"loss": "logistic"}, {"loss": exponential}, {"metric": "loss"}])
def test_a_loss_of_the_source_scores_trains_the_translation(options: dict[str, Any]) -> None:
    source = OneVsRestClassifier(LogisticRegression()).fit(*rows(2, 600, 0))
    X, y = rows(2, 800, 2)
    net = windtunnel.translate(source).fit(rows(2, 1500, 1), (X, y), **options, **OPTIONS)
    *trained, residual = net.history.candidates
    assert {each.name for each in trained} == {"translation", "joint training"}
    assert residual.name == "residual model" and "takes none: the loss is of scores" in residual.reason
    assert log_loss(y, net.predict_proba(X)) <= log_loss(y, source.predict_proba(X))


def test_a_label_without_a_column_of_probabilities() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    source = RadiusNeighborsClassifier(0.5, outlier_label=9).fit(X, (X[:, 0] > 0).astype(int))
    assert not windtunnel.compile(source, backend="torch").takes_residual_model()


def test_steps_keep_their_origins() -> None:
    source, net = fitted("one against the rest")
    added = net.origins[len(windtunnel.translate(source).origins) :]
    assert [origin.name for origin in added] == ["OneVsRestClassifier", *["residual"] * (len(added) - 1)]
    assert len(net.origins) == len(net.program.steps)
