"""scikit-learn's dummy estimators, which ignore the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.constant import Constant
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates


@translates(
    DummyClassifier,
    trainable="probabilities",
    notes="prior, most_frequent and constant; stratified and uniform predict at random",
)
def dummy_classifier(fitted: DummyClassifier) -> Predictor:
    """class_prior_, or 1 for the predicted class; the targets are concatenated."""
    if fitted._strategy not in ("prior", "most_frequent", "constant"):
        raise UnsupportedEstimator(
            f"DummyClassifier(strategy={fitted._strategy!r}) predicts at random; take strategy='prior', "
            "'most_frequent' or 'constant'."
        )
    if fitted.sparse_output_:
        raise UnsupportedEstimator("DummyClassifier was fitted on a sparse target and predicts sparse matrices.")
    several = fitted.n_outputs_ > 1
    classes = list(fitted.classes_) if several else [fitted.classes_]
    priors = list(fitted.class_prior_) if several else [fitted.class_prior_]
    constants = np.reshape(np.atleast_1d(fitted.constant), (-1, 1)) if fitted._strategy == "constant" else None
    probabilities = []
    for target, prior in enumerate(priors):
        probability = np.asarray(prior, dtype=np.float64)
        if fitted._strategy == "most_frequent":
            probability = np.eye(len(probability))[probability.argmax()]
        elif constants is not None:
            probability = np.asarray(classes[target] == constants[target], dtype=np.float64)
        probabilities.append(probability)
    return Predictor(
        Constant(tensor(np.concatenate(probabilities))),
        link="probabilities",
        loss="probabilities",
        dtypes={"predict": _dtype(fitted)},
    )


@translates(DummyRegressor, trainable="values", notes="mean, median, quantile and constant")
def dummy_regressor(fitted: DummyRegressor) -> Predictor:
    """constant_."""
    value = tensor(fitted.constant_).ravel()
    return Predictor(Constant(value), flat=fitted.n_outputs_ == 1, dtypes={"predict": _dtype(fitted)})


def _dtype(fitted: Any) -> str:
    """The type of the predictions, which depends on the constant and not on the classes."""
    dtype = np.asarray(fitted.predict(np.zeros((1, 1)))).dtype
    return str(dtype.name if dtype.kind in "biuf" else dtype.str)
