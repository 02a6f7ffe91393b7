"""scikit-learn's mixtures of normal distributions and its elliptic envelope."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import digamma
from sklearn.covariance import EllipticEnvelope
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.decompositions.densities import LogSum, MahalanobisScore, NormalMixture
from windtunnel.modules.outputs.class_outputs import OffsetScore, Squeeze
from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates

TRAINABLE = "means, precisions, weights"


@translates(GaussianMixture, trainable=TRAINABLE, notes="full, tied, diagonal and spherical covariances")
def gaussian_mixture(fitted: GaussianMixture) -> Predictor:
    """Log densities of means_ and precisions_cholesky_ plus log weights_, under a softmax."""
    with np.errstate(divide="ignore"):  # a component of weight 0
        return _mixture(fitted, np.log(fitted.weights_))


@translates(BayesianGaussianMixture, trainable=TRAINABLE, notes="full, tied, diagonal and spherical covariances")
def bayesian_gaussian_mixture(fitted: BayesianGaussianMixture) -> Predictor:
    """Expected log densities: those of means_ and precisions_cholesky_, plus constants of the posterior.

    Reads weight_concentration_, degrees_of_freedom_ and mean_precision_ too.
    """
    width, freedom = fitted.means_.shape[1], np.asarray(fitted.degrees_of_freedom_)
    spread = width * np.log(2.0) + digamma(0.5 * (freedom - np.arange(width)[:, np.newaxis])).sum(axis=0)
    expected = 0.5 * (spread - width / fitted.mean_precision_ - width * np.log(freedom))
    return _mixture(fitted, expected + _expected_log_weights(fitted))


def _expected_log_weights(fitted: BayesianGaussianMixture) -> Any:
    concentration = fitted.weight_concentration_
    if fitted.weight_concentration_prior_type == "dirichlet_distribution":
        return digamma(concentration) - digamma(np.sum(concentration))
    taken, left = digamma(concentration) - digamma(concentration[0] + concentration[1])
    return taken + np.hstack((0, np.cumsum(left)[:-1]))  # the stick-breaking process


def _mixture(fitted: Any, log_weights: Any) -> Predictor:
    factors = np.asarray(fitted.precisions_cholesky_, dtype=np.float64)
    if fitted.covariance_type == "tied":
        factors = factors[np.newaxis]
    elif fitted.covariance_type == "spherical":
        factors = factors[:, np.newaxis]
    return Predictor(
        NormalMixture(tensor(fitted.means_), tensor(factors), tensor(log_weights)),
        link="softmax",
        loss="softmax",
        classes=np.arange(len(fitted.means_)),
        methods={"score_samples": LogSum()},
    )


@translates(EllipticEnvelope, trainable="centre, precision", notes="fine-tuned to tell inliers (1) from outliers (-1)")
def elliptic_envelope(fitted: EllipticEnvelope) -> Predictor:
    """-(x - location_) precision (x - location_)^T - offset_; an inlier (1) where it is not negative."""
    offset = tensor(fitted.offset_)
    return outlier_detector(MahalanobisScore(tensor(fitted.location_), tensor(fitted.get_precision()), offset), offset)


def outlier_detector(scores: Module, offset: Tensor) -> Predictor:
    """A detector whose score is ``score_samples`` less the offset: an inlier (1) where it is not negative, else -1."""
    label = LabelThreshold(torch.zeros((), dtype=torch.float64))
    methods = {"predict": label, "decision_function": Squeeze(), "score_samples": OffsetScore(offset)}
    return Predictor(scores, loss="logistic", classes=np.array([-1, 1]), methods=methods)
