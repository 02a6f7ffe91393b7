"""scikit-learn's generalized linear models."""

from __future__ import annotations

from sklearn import linear_model
from sklearn._loss.link import IdentityLink

from windtunnel.translators.conversions import Predictor
from windtunnel.translators.linear.linear import TRAINABLE, linear
from windtunnel.translators.registry import translates


@translates(
    linear_model.PoissonRegressor,
    linear_model.GammaRegressor,
    trainable=TRAINABLE,
    notes="fine-tuned with its deviance",
)
def log_linear(fitted: linear_model.PoissonRegressor | linear_model.GammaRegressor) -> Predictor:
    """exp(x coef_ + intercept_)."""
    loss = "poisson" if isinstance(fitted, linear_model.PoissonRegressor) else "gamma"
    return Predictor(linear(fitted), link="exp", loss=loss)


@translates(
    linear_model.TweedieRegressor,
    trainable=TRAINABLE,
    notes="fine-tuned with its deviance; with the identity link with squared errors",
)
def tweedie(fitted: linear_model.TweedieRegressor) -> Predictor:
    """exp(x coef_ + intercept_), without exp for the identity link ("auto" with a power up to 0)."""
    if isinstance(fitted._base_loss.link, IdentityLink):  # of the options in fit
        return Predictor(linear(fitted), loss="squared")
    return Predictor(linear(fitted), link="exp", loss="tweedie", loss_options={"power": float(fitted.power)})
