"""scikit-learn's linear classifiers and regressors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn import linear_model, svm

from windtunnel.modules.linear import Linear
from windtunnel.translators.registry import Predictor, translates

# The classification losses of SGDClassifier, as losses of the margin. Where there is no such loss of its own name,
# fine-tuning minimises the nearest one; the scores are exact either way.
MARGIN_LOSSES = {
    "log_loss": "logistic",
    "hinge": "hinge",
    "squared_hinge": "squared_hinge",
    "modified_huber": "modified_huber",
    "perceptron": "hinge",
    "squared_error": "squared_hinge",
    "huber": "modified_huber",
    "epsilon_insensitive": "hinge",
    "squared_epsilon_insensitive": "squared_hinge",
}


@translates(
    linear_model.LinearRegression,
    linear_model.Ridge,
    linear_model.Lasso,
    linear_model.ElasticNet,
    trainable="weights, bias",
    notes="one or several targets",
)
def least_squares(fitted: Any) -> Predictor:
    """X coef_^T + intercept_."""
    return Predictor(_linear(fitted), loss="squared", flat=np.ndim(fitted.coef_) == 1)


@translates(linear_model.LogisticRegression, trainable="weights, bias", notes="binary and multinomial")
def logistic_regression(fitted: linear_model.LogisticRegression) -> Predictor:
    """Log-odds x coef_^T + intercept_; one score for two classes, else one per class and a softmax."""
    if len(fitted.classes_) <= 2:
        return Predictor(_linear(fitted), link="sigmoid", loss="logistic")
    return Predictor(_linear(fitted), link="softmax", loss="softmax")


@translates(
    linear_model.SGDClassifier,
    trainable="weights, bias",
    notes="fine-tuned with its loss; perceptron and regression losses with the nearest hinge",
)
def sgd_classifier(fitted: linear_model.SGDClassifier) -> Predictor:
    """Margins x coef_^T + intercept_, one-vs-rest beyond two classes; probabilities for log_loss, modified_huber."""
    binary = len(fitted.classes_) <= 2
    links = {"log_loss": "sigmoid" if binary else "one_vs_rest", "modified_huber": "modified_huber"}
    return Predictor(_linear(fitted), link=links.get(fitted.loss, "identity"), loss=MARGIN_LOSSES[fitted.loss])


@translates(linear_model.SGDRegressor, trainable="weights, bias", notes="fine-tuned with its loss")
def sgd_regressor(fitted: linear_model.SGDRegressor) -> Predictor:
    """X coef_ + intercept_."""
    if fitted.loss == "squared_error":
        return Predictor(_linear(fitted), loss="squared")
    if fitted.loss == "huber":
        return Predictor(_linear(fitted), loss="huber", loss_options={"delta": float(fitted.epsilon)})
    return Predictor(_linear(fitted), loss=fitted.loss, loss_options={"epsilon": float(fitted.epsilon)})


@translates(
    svm.LinearSVC,
    trainable="weights, bias",
    notes="fine-tuned with its loss; crammer_singer with hinge one-vs-rest",
)
def linear_svc(fitted: svm.LinearSVC) -> Predictor:
    """Margins x coef_^T + intercept_, one per class beyond two."""
    return Predictor(_linear(fitted), loss="hinge" if fitted.multi_class == "crammer_singer" else fitted.loss)


@translates(svm.LinearSVR, trainable="weights, bias", notes="fine-tuned with its loss")
def linear_svr(fitted: svm.LinearSVR) -> Predictor:
    """X coef_ + intercept_."""
    return Predictor(_linear(fitted), loss=fitted.loss, loss_options={"epsilon": float(fitted.epsilon)})


def _linear(fitted: Any) -> Linear:
    """coef_ ``[K, width]`` or ``[width]``, dense or sparse (after sparsify), and intercept_ ``[K]`` or a number."""
    coef = fitted.coef_.toarray() if hasattr(fitted.coef_, "toarray") else fitted.coef_
    weight = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    bias = np.broadcast_to(np.asarray(fitted.intercept_, dtype=np.float64), weight.shape[:1])
    return Linear(torch.from_numpy(np.ascontiguousarray(weight)), torch.from_numpy(bias.copy()))
