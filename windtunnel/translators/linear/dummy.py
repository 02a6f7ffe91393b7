"""scikit-learn's estimators that look at no column."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.constant import Constant
from windtunnel.translators.registry import Predictor, translates


@translates(
    DummyClassifier,
    trainable="probabilities",
    notes="prior, most_frequent and constant; stratified and uniform answer at random",
)
def dummy_classifier(fitted: DummyClassifier) -> Predictor:
    """class_prior_, or 1 for the class that is predicted; the targets side by side."""
    if fitted._strategy not in ("prior", "most_frequent", "constant"):
        raise UnsupportedEstimator(
            f"DummyClassifier(strategy={fitted._strategy!r}) answers at random; take strategy='prior', 'most_frequent' "
            "or 'constant'."
        )
    if fitted.sparse_output_:
        raise UnsupportedEstimator("DummyClassifier was fitted on a sparse target and predicts sparse matrices.")
    several = fitted.n_outputs_ > 1
    classes = list(fitted.classes_) if several else [fitted.classes_]
    priors = list(fitted.class_prior_) if several else [fitted.class_prior_]
    constants = np.reshape(np.atleast_1d(fitted.constant), (-1, 1)) if fitted._strategy == "constant" else None
    shares = []
    for target, prior in enumerate(priors):
        share = np.asarray(prior, dtype=np.float64)
        if fitted._strategy == "most_frequent":
            share = np.eye(len(share))[share.argmax()]
        elif constants is not None:
            share = np.asarray(classes[target] == constants[target], dtype=np.float64)
        shares.append(share)
    return Predictor(
        Constant(torch.from_numpy(np.concatenate(shares))),
        link="probabilities",
        loss="probabilities",
        dtypes={"predict": _dtype(fitted)},
    )


@translates(DummyRegressor, trainable="values", notes="mean, median, quantile and constant")
def dummy_regressor(fitted: DummyRegressor) -> Predictor:
    """constant_."""
    value = np.asarray(fitted.constant_, dtype=np.float64).ravel()
    return Predictor(
        Constant(torch.from_numpy(value.copy())), flat=fitted.n_outputs_ == 1, dtypes={"predict": _dtype(fitted)}
    )


def _dtype(fitted: Any) -> str:
    """The type of its predictions, which follows from the constant and not from the classes."""
    dtype = np.asarray(fitted.predict(np.zeros((1, 1)))).dtype
    return str(dtype.name if dtype.kind in "biuf" else dtype.str)
