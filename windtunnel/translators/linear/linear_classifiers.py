"""scikit-learn's linear classifiers, and its linear detector of outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn import linear_model, svm

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.outputs.class_outputs import OffsetScore
from windtunnel.modules.outputs.label_rules import AboveThreshold, LabelThreshold
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.arrays import dense, tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.linear.linear import TRAINABLE, linear
from windtunnel.translators.registry import translates

# Loss of SGDClassifier -> margin loss for fine-tuning: the same one, or the nearest. The scores are exact either way.
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
    linear_model.LogisticRegression,
    linear_model.LogisticRegressionCV,
    trainable=TRAINABLE,
    notes="binary and multinomial; one-vs-rest of scikit-learn before 1.8",
)
def logistic_regression(fitted: linear_model.LogisticRegression) -> Predictor:
    """Scores x coef_^T + intercept_; one for two classes (log-odds), else one per class and a softmax.

    Before scikit-learn 1.8 ``multi_class`` may ask for one-vs-rest, as liblinear does for three classes or more; for
    two classes "multinomial" has half the log-odds as its score.
    """
    multi_class = getattr(fitted, "multi_class", "")
    if len(fitted.classes_) <= 2:
        scale = {"scale": 2.0} if multi_class == "multinomial" else {}
        return Predictor(linear(fitted), link="sigmoid", loss="logistic", link_options=scale, loss_options=scale)
    if multi_class == "ovr" or (multi_class and multi_class != "multinomial" and fitted.solver == "liblinear"):
        return Predictor(linear(fitted), link="one_vs_rest", loss="logistic")
    return Predictor(linear(fitted), link="softmax", loss="softmax")


@translates(
    linear_model.SGDClassifier,
    linear_model.Perceptron,
    linear_model.PassiveAggressiveClassifier,
    trainable=TRAINABLE,
    notes="fine-tuned with its loss; perceptron and regression losses with the nearest hinge",
)
def sgd_classifier(fitted: Any) -> Predictor:
    """Margins x coef_^T + intercept_, one-vs-rest beyond two classes; probabilities for log_loss, modified_huber."""
    binary = len(fitted.classes_) <= 2
    links = {"log_loss": "sigmoid" if binary else "one_vs_rest", "modified_huber": "modified_huber"}
    return Predictor(linear(fitted), link=links.get(fitted.loss, "identity"), loss=MARGIN_LOSSES[fitted.loss])


@translates(
    linear_model.RidgeClassifier,
    linear_model.RidgeClassifierCV,
    trainable=TRAINABLE,
    notes="several labels at once too; fine-tuned with the squared hinge",
)
def ridge_classifier(fitted: linear_model.RidgeClassifier | linear_model.RidgeClassifierCV) -> Predictor:
    """Margins x coef_^T + intercept_, one per class beyond two, or one per label. Reads _label_binarizer."""
    return Predictor(linear(fitted), loss=MARGIN_LOSSES["squared_error"], **label_options(fitted))


@translates(svm.LinearSVC, trainable=TRAINABLE, notes="fine-tuned with its loss; crammer_singer with hinge one-vs-rest")
def linear_svc(fitted: svm.LinearSVC) -> Predictor:
    """Margins x coef_^T + intercept_, one per class beyond two."""
    return Predictor(linear(fitted), loss="hinge" if fitted.multi_class == "crammer_singer" else fitted.loss)


@translates(linear_model.SGDOneClassSVM, trainable=TRAINABLE, notes="fine-tuned to tell inliers (1) from outliers (-1)")
def sgd_one_class(fitted: linear_model.SGDOneClassSVM) -> Predictor:
    """X coef_ - offset_; a row is an inlier (1) if this is not negative."""
    offset = tensor(fitted.offset_).reshape(1)
    return Predictor(
        Linear(tensor(np.atleast_2d(dense(fitted.coef_))), -offset),
        loss="hinge",
        classes=np.array([-1, 1], dtype=np.int32),
        methods={
            "predict": LabelThreshold(torch.zeros(1, dtype=torch.float64)[0]),
            "score_samples": OffsetScore(offset[0]),
        },
    )


def label_options(fitted: Any) -> dict[str, Any]:
    """Options of ``Predictor`` for a classifier with a LabelBinarizer: none, or 0 and 1 for each of several labels."""
    binarizer = fitted._label_binarizer
    if binarizer.sparse_input_:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} was fitted on a sparse matrix of labels and predicts sparse matrices; fit it on "
            "a dense array (y.toarray())."
        )
    if not binarizer.y_type_.startswith("multilabel"):
        return {}
    methods = {"predict": AboveThreshold(torch.zeros((), dtype=torch.float64)), "decision_function": Identity()}
    return {"classes": [np.array([0, 1])] * len(binarizer.classes_), "methods": methods}
