"""Linear models against scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    Ridge,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.svm import LinearSVC, LinearSVR

from windtunnel.modules.outputs.links import LINKS
from windtunnel.translators.linear.linear_classifiers import MARGIN_LOSSES
from windtunnel.translators.registry import convert

X = np.random.default_rng(0).normal(size=(150, 5)).astype(np.float32).astype(np.float64)
LATENT = X @ np.random.default_rng(1).normal(size=(5, 3)) + 0.3 * np.random.default_rng(2).normal(size=(150, 3))
BINARY = np.where(LATENT[:, 0] > 0, "yes", "no")
CLASSES = np.array(["a", "b", "c"])[LATENT.argmax(axis=1)]
TARGETS = {"flat": LATENT[:, 0], "column": LATENT[:, :1], "several": LATENT}


def scores(fitted: Any) -> torch.Tensor:
    with torch.no_grad():
        return convert(fitted).scores(torch.from_numpy(X))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(
    "model",
    [LinearRegression(), Ridge(), Lasso(alpha=0.01), ElasticNet(alpha=0.01, fit_intercept=False)],
    ids=lambda model: type(model).__name__,
)
def test_regressor_of_targets_of_any_shape(model: Any, target: np.ndarray) -> None:
    fitted = model.fit(X, target)
    got = scores(fitted).numpy().reshape(target.shape)
    np.testing.assert_allclose(got, fitted.predict(X).reshape(target.shape), rtol=1e-5, atol=1e-6)


def test_sparse_coefficients_are_read() -> None:
    dense = LogisticRegression().fit(X, CLASSES)
    expected = scores(dense)
    torch.testing.assert_close(scores(dense.sparsify()), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "model, loss, options",
    [
        (SGDRegressor(loss="huber", epsilon=0.3), "huber", {"delta": 0.3}),
        (SGDRegressor(loss="squared_epsilon_insensitive"), "squared_epsilon_insensitive", {"epsilon": 0.1}),
        (LinearSVR(epsilon=0.2, max_iter=20_000), "epsilon_insensitive", {"epsilon": 0.2}),
        (LinearSVR(loss="squared_epsilon_insensitive"), "squared_epsilon_insensitive", {"epsilon": 0.0}),
        (TweedieRegressor(power=1.5), "tweedie", {"power": 1.5}),
        (TweedieRegressor(power=0), "squared", {}),
        (TweedieRegressor(power=0, link="log"), "tweedie", {"power": 0.0}),
        (Ridge(), "squared", {}),
        (LinearSVC(), "squared_hinge", {}),
        (LinearSVC(loss="hinge", C=0.01, max_iter=20_000), "hinge", {}),
        (LogisticRegression(), "logistic", {}),
    ],
)
def test_fine_tuning_starts_from_the_loss_of_the_source(model: Any, loss: str, options: dict[str, float]) -> None:
    predictor = convert(model.fit(X, (LATENT[:, 0] > 0).astype(float)))
    assert (predictor.loss, predictor.loss_options) == (loss, options)


CLASSIFIERS: dict[str, Any] = {
    "logistic": LogisticRegression(),
    "logistic-no-intercept": LogisticRegression(fit_intercept=False, solver="newton-cg"),
    "svc": LinearSVC(random_state=0),
    "svc-crammer-singer": LinearSVC(multi_class="crammer_singer", C=0.01, max_iter=20_000, random_state=0),
    "svc-no-intercept": LinearSVC(fit_intercept=False, random_state=0),
    **{f"sgd-{loss}": SGDClassifier(loss=loss, eta0=0.01, random_state=0) for loss in MARGIN_LOSSES},
}


# In some runs LinearSVC with crammer_singer does not converge, whatever its seed.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("target", [BINARY, CLASSES], ids=["binary", "multiclass"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_gives_what_its_source_gives(name: str, target: np.ndarray) -> None:
    fitted = CLASSIFIERS[name].fit(X, target)
    predictor = convert(fitted)
    got = scores(fitted)
    expected = fitted.decision_function(X)
    size = np.abs(expected).max()
    np.testing.assert_allclose(got.numpy(), expected.reshape(len(X), -1), rtol=1e-5, atol=1e-6 * size)
    if hasattr(fitted, "predict_proba"):
        # A probability p moves by p (1 - p) times the error of its score, which is relative to the largest score.
        probabilities = LINKS[predictor.link](got, **predictor.link_options).numpy()
        np.testing.assert_allclose(probabilities, fitted.predict_proba(X), rtol=0, atol=1e-6 * max(size, 1))
    else:
        assert predictor.link == "identity"
