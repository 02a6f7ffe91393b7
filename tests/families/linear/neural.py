"""Neural networks."""

from __future__ import annotations

import warnings
from typing import Any

from case import NUMBERS, Case, logistic
from sklearn.neural_network import BernoulliRBM, MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from families.linear.linear import several


def quietly(estimator: Any, X: Any, y: Any) -> Any:
    """Fit without the warnings that a few iterations are few and that a column is no vector."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Stochastic Optimizer: Maximum iterations")
        warnings.filterwarnings("ignore", "A column-vector y was passed")
        return estimator.fit(X, y)


def network(cls: type, activation: str = "relu", layers: tuple[int, ...] = (6, 4), **options: Any) -> Any:
    few = {"hidden_layer_sizes": layers, "activation": activation, "max_iter": 40, "random_state": 0}
    return make_pipeline(StandardScaler(), cls(**few, **options))


CASES = [
    Case("mlp classifier", lambda: network(MLPClassifier), NUMBERS, fit=quietly),
    Case("mlp classifier, three classes", lambda: network(MLPClassifier, "tanh"), NUMBERS, "grade", fit=quietly),
    Case("mlp classifier, several labels", lambda: network(MLPClassifier, "logistic"), NUMBERS, "value",
         fit=lambda estimator, X, y: quietly(estimator, X, several(y))),
    Case("mlp regressor", lambda: network(MLPRegressor, "identity"), NUMBERS, "value", fit=quietly),
    Case("mlp regressor, two targets", lambda: network(MLPRegressor, "tanh"), NUMBERS, "pair", fit=quietly),
    Case("mlp regressor, one column", lambda: network(MLPRegressor, layers=(5,)), NUMBERS, "value",
         fit=lambda estimator, X, y: quietly(estimator, X, y[:, None])),
    Case("mlp regressor, no hidden layer", lambda: network(MLPRegressor, layers=()), NUMBERS, "value", fit=quietly),
    Case("mlp regressor, poisson", lambda: network(MLPRegressor, loss="poisson"), NUMBERS, "count", fit=quietly),
    Case("restricted boltzmann machine", lambda: make_pipeline(MinMaxScaler(clip=True),
         BernoulliRBM(n_components=6, n_iter=3, random_state=0), logistic()), NUMBERS, "grade"),
]  # fmt: skip
