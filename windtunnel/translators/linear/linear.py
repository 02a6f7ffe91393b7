"""scikit-learn's linear regressors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import linear_model, svm

from windtunnel.modules.linear.linear import Linear
from windtunnel.translators.arrays import dense, per_column, tensor
from windtunnel.translators.conversions import Composite, Predictor
from windtunnel.translators.registry import translates

TRAINABLE = "weights, bias"


@translates(
    linear_model.LinearRegression,
    linear_model.Ridge,
    linear_model.RidgeCV,
    linear_model.Lasso,
    linear_model.LassoCV,
    linear_model.LassoLars,
    linear_model.LassoLarsCV,
    linear_model.LassoLarsIC,
    linear_model.Lars,
    linear_model.LarsCV,
    linear_model.ElasticNet,
    linear_model.ElasticNetCV,
    linear_model.MultiTaskLasso,
    linear_model.MultiTaskLassoCV,
    linear_model.MultiTaskElasticNet,
    linear_model.MultiTaskElasticNetCV,
    linear_model.OrthogonalMatchingPursuit,
    linear_model.OrthogonalMatchingPursuitCV,
    trainable=TRAINABLE,
    notes="one or several targets",
)
def least_squares(fitted: Any) -> Predictor:
    """X coef_^T + intercept_."""
    return Predictor(linear(fitted), loss="squared", flat=np.ndim(fitted.coef_) == 1)


@translates(
    linear_model.BayesianRidge,
    linear_model.ARDRegression,
    trainable=TRAINABLE,
    notes="the mean; no standard deviations",
)
def bayesian(fitted: linear_model.BayesianRidge | linear_model.ARDRegression) -> Predictor:
    """X coef_ + intercept_, the mean of the predictive distribution."""
    return Predictor(linear(fitted), loss="squared")


@translates(linear_model.HuberRegressor, trainable=TRAINABLE, notes="fine-tuned with its loss, at its scale_")
def huber(fitted: linear_model.HuberRegressor) -> Predictor:
    """X coef_ + intercept_. The source's loss becomes linear at epsilon times its scale_."""
    return Predictor(linear(fitted), loss="huber", loss_options={"delta": float(fitted.epsilon * fitted.scale_)})


@translates(linear_model.QuantileRegressor, trainable=TRAINABLE, notes="fine-tuned with its quantile")
def quantile(fitted: linear_model.QuantileRegressor) -> Predictor:
    """X coef_ + intercept_."""
    return Predictor(linear(fitted), loss="quantile", loss_options={"alpha": float(fitted.quantile)})


@translates(linear_model.TheilSenRegressor, trainable=TRAINABLE, notes="fine-tuned with the absolute error")
def theil_sen(fitted: linear_model.TheilSenRegressor) -> Predictor:
    """X coef_ + intercept_."""
    return Predictor(linear(fitted), loss="absolute")


@translates(linear_model.RANSACRegressor, trainable="what its final estimator has")
def ransac(fitted: linear_model.RANSACRegressor) -> Composite:
    """The predictions of ``estimator_``, which is fitted on the inliers."""
    return Composite(parts=(), then=fitted.estimator_)


@translates(linear_model.SGDRegressor, trainable=TRAINABLE, notes="fine-tuned with its loss")
def sgd_regressor(fitted: linear_model.SGDRegressor) -> Predictor:
    """X coef_ + intercept_."""
    if fitted.loss == "squared_error":
        return Predictor(linear(fitted), loss="squared")
    if fitted.loss == "huber":
        return Predictor(linear(fitted), loss="huber", loss_options={"delta": float(fitted.epsilon)})
    return Predictor(linear(fitted), loss=fitted.loss, loss_options={"epsilon": float(fitted.epsilon)})


@translates(
    linear_model.PassiveAggressiveRegressor, svm.LinearSVR, trainable=TRAINABLE, notes="fine-tuned with its loss"
)
def insensitive(fitted: linear_model.PassiveAggressiveRegressor | svm.LinearSVR) -> Predictor:
    """X coef_ + intercept_."""
    return Predictor(linear(fitted), loss=fitted.loss, loss_options={"epsilon": float(fitted.epsilon)})


def linear(fitted: Any) -> Linear:
    """coef_ ``[K, width]`` or ``[width]``, dense or sparse (after sparsify), and intercept_ ``[K]`` or a number."""
    weight = tensor(np.atleast_2d(dense(fitted.coef_)))
    return Linear(weight, per_column(fitted.intercept_, len(weight)))
