"""scikit-learn's neural networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.neural_network import BernoulliRBM, MLPClassifier, MLPRegressor

from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.linear.linear_classifiers import label_options
from windtunnel.translators.registry import translates

TRAINABLE = "weights, biases"


@translates(MLPClassifier, trainable=TRAINABLE, notes="several labels at once too")
def mlp_classifier(fitted: MLPClassifier) -> Predictor:
    """Log-odds of the last layer; one score for two classes, one per class and a softmax, or one per label."""
    options = label_options(fitted)
    several = {"softmax": "softmax", "logistic": "sigmoids"}[fitted.out_activation_]
    link = several if options or fitted.n_outputs_ > 1 else "sigmoid"
    loss = "softmax" if fitted.out_activation_ == "softmax" else "logistic"
    return Predictor(_layers(fitted), link=link, loss=loss, **options)


@translates(MLPRegressor, trainable=TRAINABLE, notes="one or several targets; fine-tuned with its loss")
def mlp_regressor(fitted: MLPRegressor) -> Predictor:
    """The last layer, or its exponential for the Poisson loss."""
    flat = fitted.n_outputs_ == 1
    if fitted.out_activation_ == "exp":
        return Predictor(_layers(fitted), link="exp", loss="poisson", flat=flat)
    return Predictor(_layers(fitted), loss="squared", flat=flat)


@translates(BernoulliRBM, trainable=TRAINABLE, notes="transform; score_samples draws random numbers")
def rbm(fitted: BernoulliRBM) -> MultilayerPerceptron:
    """1 / (1 + exp(-(x components_^T + intercept_hidden_)))."""
    return _perceptron([fitted.components_.T], [fitted.intercept_hidden_], "logistic", "logistic")


def _layers(fitted: Any) -> MultilayerPerceptron:
    return _perceptron(fitted.coefs_, fitted.intercepts_, fitted.activation, "identity")


def _perceptron(
    coefs: Sequence[np.ndarray], intercepts: Sequence[np.ndarray], activation: str, output: str
) -> MultilayerPerceptron:
    """Layers x coef + intercept, the coefs ``[width in, width out]``."""
    sizes = [len(coefs[0]), *(coef.shape[1] for coef in coefs)]
    weight = tensor(np.concatenate([coef.T.ravel() for coef in coefs]))
    return MultilayerPerceptron(weight, tensor(np.concatenate(intercepts)), sizes, activation, output)
