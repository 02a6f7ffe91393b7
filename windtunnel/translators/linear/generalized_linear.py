"""scikit-learn's generalized linear models."""

from __future__ import annotations

from sklearn import linear_model

from windtunnel.translators.linear.linear import TRAINABLE, linear
from windtunnel.translators.registry import Predictor, translates


@translates(linear_model.PoissonRegressor, trainable=TRAINABLE, notes="fine-tuned with its deviance")
def poisson(fitted: linear_model.PoissonRegressor) -> Predictor:
    """exp(x coef_ + intercept_)."""
    return Predictor(linear(fitted), link="exp", loss="poisson")


@translates(linear_model.GammaRegressor, trainable=TRAINABLE, notes="fine-tuned with its deviance")
def gamma(fitted: linear_model.GammaRegressor) -> Predictor:
    """exp(x coef_ + intercept_)."""
    return Predictor(linear(fitted), link="exp", loss="gamma")


@translates(
    linear_model.TweedieRegressor,
    trainable=TRAINABLE,
    notes="fine-tuned with its deviance; with the identity link with squared errors",
)
def tweedie(fitted: linear_model.TweedieRegressor) -> Predictor:
    """exp(x coef_ + intercept_), or without exp for the identity link, which "auto" is for powers up to 0."""
    if fitted.link == "identity" or (fitted.link == "auto" and fitted.power <= 0):
        return Predictor(linear(fitted), loss="squared")
    return Predictor(linear(fitted), link="exp", loss="tweedie", loss_options={"power": float(fitted.power)})
