"""scikit-learn's support vector machines with a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import svm

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.kernels.support_vectors import (
    PairCoupling,
    PairVotes,
    PairVotesLabel,
    PairWinnerLabel,
    SupportVectors,
    pairs,
)
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.outputs.class_outputs import OffsetScore, Squeeze
from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.translators.arrays import dense, tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates

TRAINABLE = "support vectors, weights, bias"


@translates(
    svm.SVC,
    svm.NuSVC,
    trainable=TRAINABLE,
    notes="kernels linear, rbf, poly, sigmoid; raw scores are those of pairs of classes",
)
def svc(fitted: svm.SVC | svm.NuSVC) -> Predictor:
    """Sum of dual_coef_ times kernel, plus intercept_: one score for two classes, else one for each pair of classes.

    Reads support_vectors_, dual_coef_, intercept_, n_support_, _gamma, _probA, _probB.
    """
    count = len(fitted.classes_)
    binary = count == 2
    if len(fitted.n_support_) not in (0, count):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} has {count} classes, and support vectors of {len(fitted.n_support_)}: the others "
            "had rows of weight 0 alone, as in a bagging sample; give each class a row with a weight above 0."
        )
    if fitted.break_ties and fitted.decision_function_shape == "ovo":
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with break_ties=True and decision_function_shape='ovo' does not predict; "
            "set one of them otherwise."
        )
    methods: dict[str, Module] = {}
    if binary:
        # At 0 libsvm predicts the second label.
        methods["predict"] = LabelThreshold(torch.zeros((), dtype=torch.float64))
    else:
        methods["predict"] = PairVotesLabel(count) if fitted.break_ties else PairWinnerLabel(count)
        if fitted.decision_function_shape == "ovr":
            methods["decision_function"] = PairVotes(count)
    if hasattr(fitted, "predict_proba"):
        methods["predict_proba"] = PairCoupling(
            tensor(fitted._probA), tensor(fitted._probB), count, -1.0 if binary else 1.0
        )
    dual = _sign(fitted) * dense(fitted._dual_coef_)
    weight = dual if binary else _pair_weights(dual, np.asarray(fitted.n_support_))
    return Predictor(_machine(fitted, weight), loss="hinge" if binary else "one_vs_one_hinge", methods=methods)


@translates(svm.SVR, trainable=TRAINABLE, notes="kernels linear, rbf, poly, sigmoid")
def svr(fitted: svm.SVR) -> Predictor:
    """Sum of dual_coef_ times kernel, plus intercept_."""
    return Predictor(
        _machine(fitted, dense(fitted._dual_coef_)),
        loss="epsilon_insensitive",
        loss_options={"epsilon": float(fitted.epsilon)},
    )


@translates(
    svm.NuSVR, trainable=TRAINABLE, notes="kernels linear, rbf, poly, sigmoid; fine-tuned with the absolute error"
)
def nu_svr(fitted: svm.NuSVR) -> Predictor:
    """Sum of dual_coef_ times kernel, plus intercept_."""
    return Predictor(_machine(fitted, dense(fitted._dual_coef_)), loss="absolute")


@translates(
    svm.OneClassSVM,
    trainable=TRAINABLE,
    notes="kernels linear, rbf, poly, sigmoid; fine-tuned to tell inliers (1) from outliers (-1)",
)
def one_class_svm(fitted: svm.OneClassSVM) -> Predictor:
    """Sum of dual_coef_ times kernel, plus intercept_; an inlier (1) where it is above 0. Reads offset_ too."""
    return Predictor(
        _machine(fitted, dense(fitted._dual_coef_)),
        loss="hinge",
        classes=np.array([-1, 1], dtype=np.intp),
        methods={"decision_function": Squeeze(), "score_samples": OffsetScore(tensor(fitted.offset_).reshape(()))},
    )


def _machine(fitted: Any, weight: NDArray[np.float64]) -> Module:
    """The weighted kernel sums over the support vectors; with the linear kernel one vector of weights."""
    if fitted.kernel not in ("linear", "rbf", "poly", "sigmoid"):
        kernel = repr(fitted.kernel) if isinstance(fitted.kernel, str) else "a function"
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with kernel={kernel}: only scikit-learn's own kernels can be translated; "
            "fit it with 'linear', 'rbf', 'poly' or 'sigmoid'."
        )
    # libsvm reads these two, of which the attributes without an underscore are copies.
    points, bias = tensor(fitted.support_vectors_), tensor(_sign(fitted) * fitted._intercept_)
    if fitted.kernel == "linear":
        return Linear(torch.from_numpy(weight) @ points, bias)
    return SupportVectors(
        points, torch.from_numpy(weight), bias, fitted.kernel, fitted._gamma, fitted.coef0, fitted.degree
    )


def _sign(fitted: Any) -> float:
    """-1 for classifiers of two classes, whose scores are for the second class, and libsvm's for the first."""
    return -1.0 if len(getattr(fitted, "classes_", ())) == 2 else 1.0


def _pair_weights(dual: NDArray[np.float64], support: NDArray[Any]) -> NDArray[np.float64]:
    """Weights ``[pairs, vectors]`` from libsvm's table; its row j - 1 has the weights of classes i < j against j."""
    start = np.concatenate([[0], np.cumsum(support)])
    first, second = pairs(len(support))
    weight = np.zeros((len(first), dual.shape[1]))
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        vectors_i, vectors_j = slice(start[i], start[i + 1]), slice(start[j], start[j + 1])
        weight[pair, vectors_i] = dual[j - 1, vectors_i]
        weight[pair, vectors_j] = dual[i, vectors_j]
    return weight
