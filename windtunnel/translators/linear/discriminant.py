"""scikit-learn's linear and quadratic discriminant analysis."""

from __future__ import annotations

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.linear.gaussian_classes import GaussianClasses
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.outputs.class_outputs import FlooredLog, LogSoftmax, ScoreDifference
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.decomposition.decomposition import projection
from windtunnel.translators.linear.linear import linear
from windtunnel.translators.registry import translates


@translates(
    LinearDiscriminantAnalysis,
    trainable="weights, bias; directions of transform",
    notes="transform too, which solver='lsqr' does not have",
)
def linear_discriminant(fitted: LinearDiscriminantAnalysis) -> Predictor:
    """Log-odds x coef_^T + intercept_; one score for two classes, else one per class and a softmax."""
    if len(fitted.classes_) < 2:
        raise UnsupportedEstimator(
            f"LinearDiscriminantAnalysis was fitted on the single class {str(fitted.classes_[0])!r} and cannot give "
            "probabilities; fit it on two classes or more, or take a DummyClassifier."
        )
    several = len(fitted.classes_) > 2
    return Predictor.of_classes(
        linear(fitted),
        several=several,
        methods={"predict_log_proba": FlooredLog("softmax" if several else "sigmoid")},
        column_methods={} if fitted.solver == "lsqr" else {"transform": _directions(fitted)},
    )


@translates(
    QuadraticDiscriminantAnalysis, trainable="means, covariances, priors", notes="the raw scores are log densities"
)
def quadratic_discriminant(fitted: QuadraticDiscriminantAnalysis) -> Predictor:
    """The log of priors_, less (sum_i log scalings_ki + |(x - means_k) rotations_k scalings_k^-1/2|^2) / 2."""
    scalings = [np.asarray(scale, dtype=np.float64) for scale in fitted.scalings_]
    whiten = np.stack([rotation / np.sqrt(scale) for rotation, scale in zip(fitted.rotations_, scalings, strict=True)])
    with np.errstate(divide="ignore"):  # a prior of 0
        offset = np.log(fitted.priors_) - 0.5 * np.array([np.log(scale).sum() for scale in scalings])
    binary = len(fitted.classes_) == 2
    return Predictor(
        GaussianClasses(tensor(fitted.means_), tensor(whiten), tensor(offset)),
        link="softmax",
        loss="softmax",
        methods={"predict_log_proba": LogSoftmax()} | ({"decision_function": ScoreDifference()} if binary else {}),
    )


def _directions(fitted: LinearDiscriminantAnalysis) -> Projection:
    """(x - xbar_) scalings_, or x scalings_ for solver="eigen", for the first ``_max_components`` directions."""
    center = fitted.xbar_ if fitted.solver == "svd" else np.zeros(len(fitted.scalings_))
    return projection(fitted.scalings_[:, : fitted._max_components].T, center)
