"""scikit-learn's Gaussian processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor, kernels

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.kernels.gaussian_process import HALF, GaussianProcessClasses, GaussianProcessMean
from windtunnel.modules.kernels.kernels import (
    ConstantSimilarity,
    DotProductKernel,
    MaternKernel,
    Noise,
    PeriodicKernel,
    PowerOfKernel,
    ProductOfKernels,
    RationalQuadraticKernel,
    SquaredExponential,
    SumOfKernels,
    described,
)
from windtunnel.modules.neighbours.neighbour_votes import VoteProbabilities
from windtunnel.modules.outputs.label_rules import LastLabelIndex, SecondAboveThreshold
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.scikit_learn_version import scikit_learn_before

KERNELS = "RBF, Matern (nu 0.5, 1.5, 2.5, inf), RationalQuadratic, ExpSineSquared, DotProduct, Constant, White; +, *"


@translates(GaussianProcessRegressor, trainable="training rows, weights, kernel", notes=f"the mean; kernels {KERNELS}")
def gaussian_process_regressor(fitted: GaussianProcessRegressor) -> Predictor:
    """k(x, X_train_) alpha_, scaled by _y_train_std and shifted by _y_train_mean."""
    if not hasattr(fitted, "X_train_"):
        raise UnsupportedEstimator("GaussianProcessRegressor is not fitted, and predicts its prior mean of 0; fit it.")
    alpha = np.asarray(fitted.alpha_, dtype=np.float64).reshape(len(fitted.alpha_), -1)
    scale = np.broadcast_to(np.asarray(fitted._y_train_std, dtype=np.float64), alpha.shape[1:])
    shift = np.broadcast_to(np.asarray(fitted._y_train_mean, dtype=np.float64), alpha.shape[1:])
    numbers: list[float] = []
    similarity = _kernel(fitted.kernel_, numbers)
    scores = GaussianProcessMean(
        tensor(fitted.X_train_), tensor((alpha * scale).T), tensor(shift), tensor(numbers), similarity
    )
    return Predictor(scores, loss="squared", flat=alpha.shape[1] == 1)


@translates(
    GaussianProcessClassifier,
    trainable="training rows, residuals, kernel",
    notes=f"two classes, or one_vs_rest; kernels {KERNELS}",
)
def gaussian_process_classifier(fitted: GaussianProcessClassifier) -> Predictor:
    """Class probabilities by Laplace's approximation; one-vs-rest beyond two classes.

    Reads X_train_, y_train_, pi_, W_sr_, L_ and kernel_ of base_estimator_.
    """
    binary = len(fitted.classes_) == 2
    if not binary and fitted.multi_class != "one_vs_rest":
        raise UnsupportedEstimator(
            f"GaussianProcessClassifier with multi_class={fitted.multi_class!r} over {len(fitted.classes_)} classes, "
            "which gives no probabilities; fit it with multi_class='one_vs_rest'."
        )
    members = [fitted.base_estimator_] if binary else fitted.base_estimator_.estimators_
    methods: dict[str, Module] = {"predict_proba": VoteProbabilities([len(fitted.classes_)], len(fitted.classes_))}
    if binary:
        # The sign of the latent mean decides.
        methods["predict"] = SecondAboveThreshold(tensor(HALF))
    elif scikit_learn_before("1.9"):
        methods["predict"] = LastLabelIndex()
    return Predictor(_classes(members), link="probabilities", loss="probabilities", methods=methods)


def _classes(members: Sequence[Any]) -> GaussianProcessClasses:
    """All members as one module: they share the rows and the form of the kernel, not its numbers."""
    numbers: list[list[float]] = [[] for _ in members]
    similarities = [_kernel(member.kernel_, each) for member, each in zip(members, numbers, strict=True)]
    return GaussianProcessClasses(
        points=tensor(members[0].X_train_),
        residual=tensor([member.y_train_ - member.pi_ for member in members]),
        root=tensor([member.W_sr_ for member in members]),
        inverse=tensor([solve_triangular(member.L_, np.eye(len(member.L_)), lower=True) for member in members]),
        numbers=tensor(numbers),
        similarity=similarities[0],
    )


def _kernel(kernel: Any, numbers: list[float]) -> dict[str, Any]:
    """The description of a fitted kernel. Subclasses of scikit-learn's kernels are rejected, as they may differ."""
    kind = type(kernel)
    if kind in (kernels.Sum, kernels.Product):
        made = SumOfKernels if kind is kernels.Sum else ProductOfKernels
        return described(made, numbers, _kernel(kernel.k1, numbers), _kernel(kernel.k2, numbers))
    if kind is kernels.Exponentiation:
        return described(
            PowerOfKernel, numbers, _kernel(kernel.kernel, numbers), facts={"exponent": float(kernel.exponent)}
        )
    if kind is kernels.ConstantKernel:
        return described(ConstantSimilarity, numbers, value=_list(kernel.constant_value))
    if kind is kernels.WhiteKernel:
        return described(Noise, numbers, level=_list(kernel.noise_level))
    if kind is kernels.RBF or (kind is kernels.Matern and kernel.nu == np.inf):
        return described(SquaredExponential, numbers, length=_list(kernel.length_scale))
    if kind is kernels.Matern and kernel.nu in (0.5, 1.5, 2.5):
        return described(MaternKernel, numbers, length=_list(kernel.length_scale), facts={"nu": float(kernel.nu)})
    if kind is kernels.RationalQuadratic:
        return described(RationalQuadraticKernel, numbers, length=_list(kernel.length_scale), alpha=_list(kernel.alpha))
    if kind is kernels.ExpSineSquared:
        return described(PeriodicKernel, numbers, length=_list(kernel.length_scale), period=_list(kernel.periodicity))
    if kind is kernels.DotProduct:
        return described(DotProductKernel, numbers, sigma=_list(kernel.sigma_0))
    raise UnsupportedEstimator(
        f"a Gaussian process with the kernel {kernel!r}, which has no translation; accepted are {KERNELS}."
    )


def _list(values: Any) -> list[float]:
    return [float(value) for value in np.atleast_1d(values)]
