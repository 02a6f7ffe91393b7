"""Parameters and attributes that are changed after fit count where the source reads them in predict, and only there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import decomposition, ensemble, kernel_approximation, linear_model, manifold, svm
from sklearn.base import clone, is_classifier
from sklearn.isotonic import IsotonicRegression
from sklearn.semi_supervised import LabelPropagation
from sklearn.tree import DecisionTreeRegressor

import windtunnel
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.registry import convert

RANDOM = np.random.default_rng(0)
X = np.abs(RANDOM.normal(size=(120, 4)))
Y = X[:, 0] * X[:, 1] + 0.2
LABELS = np.digitize(Y, [0.5, 1.0])


def moved(attribute: str, by: float) -> Callable[[Any], None]:
    return lambda fitted: setattr(fitted, attribute, getattr(fitted, attribute) + by)


def set_to(**parameters: Any) -> Callable[[Any], None]:
    return lambda fitted: fitted.set_params(**parameters)


CHANGED = {
    "bagged trees": (ensemble.BaggingRegressor(n_estimators=6, random_state=0), set_to(n_estimators=20)),
    "bagged models": (
        ensemble.BaggingClassifier(linear_model.LogisticRegression(), n_estimators=3, random_state=0),
        set_to(n_estimators=5),
    ),
    "histogram boosting": (
        ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=5),
        set_to(loss="squared_error"),
    ),
    "boosting": (ensemble.GradientBoostingClassifier(n_estimators=4), set_to(loss="exponential")),
    "boosting of two classes": (
        ensemble.GradientBoostingClassifier(n_estimators=4, loss="exponential"),
        set_to(loss="log_loss"),
    ),
    "tweedie": (linear_model.TweedieRegressor(power=1.5), set_to(power=0)),
    "svr": (svm.SVR(), moved("intercept_", 1.0)),
    "svc": (svm.SVC(), moved("intercept_", 1.0)),
    "label propagation": (LabelPropagation(kernel="knn", n_neighbors=3), set_to(n_neighbors=9)),
    "isomap": (manifold.Isomap(n_neighbors=4), set_to(n_neighbors=8)),
    "mini-batch factorization": (
        decomposition.MiniBatchNMF(2, random_state=0, transform_max_iter=3),
        set_to(transform_max_iter=50, beta_loss="kullback-leibler"),
    ),
    "isotonic": (IsotonicRegression(out_of_bounds="nan"), set_to(out_of_bounds="raise")),
    "isotonic, clipped": (IsotonicRegression(out_of_bounds="clip"), set_to(out_of_bounds="nan")),
    "one point": (IsotonicRegression(out_of_bounds="nan"), None),
}
TWO_CLASSES = {"boosting of two classes", "svc"}


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("name", CHANGED)
def test_the_source_and_its_translation_agree_afterwards(name: str) -> None:
    estimator, change = CHANGED[name]
    rows = X[:, :1] if isinstance(estimator, IsotonicRegression) else X
    target = (LABELS > 0) * 1 if name in TWO_CLASSES else LABELS if is_classifier(estimator) else Y
    fitted_rows, fitted_target = (rows[:1], target[:1]) if name == "one point" else (rows, target)
    fitted = clone(estimator).fit(fitted_rows, fitted_target)
    rows = rows * 2 - 1 if isinstance(estimator, IsotonicRegression) else rows  # beyond the bounds too
    before = _outputs(fitted, rows)
    if change is not None:
        change(fitted)
    after, ours = _outputs(fitted, rows), _outputs(windtunnel.compile(fitted), rows)
    assert ours.keys() == after.keys() == before.keys()
    for method, values in after.items():
        np.testing.assert_allclose(ours[method], values, rtol=1e-9, atol=1e-9)


def _outputs(model: Any, rows: Any) -> dict[str, Any]:
    methods = [name for name in ("predict", "predict_proba", "decision_function", "transform") if hasattr(model, name)]
    flat = isinstance(model, IsotonicRegression)
    return {name: getattr(model, name)(rows[:, 0] if flat else rows) for name in methods}


@pytest.mark.parametrize(
    ("estimator", "parameters", "said"),
    [
        (kernel_approximation.PolynomialCountSketch(random_state=0), {"degree": 3}, "degree=3"),
        (kernel_approximation.PolynomialCountSketch(coef0=1, random_state=0), {"coef0": 0}, "coef0=0"),
        (
            decomposition.DictionaryLearning(2, fit_algorithm="cd", max_iter=3),
            {"positive_code": True, "transform_algorithm": "omp"},
            "positive_code=True",
        ),
    ],
)
def test_what_the_source_rejects_afterwards_is_named(estimator: Any, parameters: dict[str, Any], said: str) -> None:
    fitted = estimator.fit(X)
    with pytest.raises(UnsupportedEstimator, match=said):
        convert(fitted.set_params(**parameters))


@pytest.mark.parametrize("kind", [ensemble.VotingRegressor, ensemble.StackingRegressor])
def test_members_that_are_dropped_after_fit_still_count(kind: Any) -> None:
    fitted = kind([("a", linear_model.Ridge()), ("b", DecisionTreeRegressor(max_depth=2))]).fit(X, Y)
    fitted.set_params(b="drop")
    np.testing.assert_allclose(windtunnel.compile(fitted).predict(X), fitted.predict(X), rtol=1e-9)
