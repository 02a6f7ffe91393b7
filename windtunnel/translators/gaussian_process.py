"""scikit-learn's Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor, kernels
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.gaussian_process import (
    SHARES,
    GaussianProcessClasses,
    GaussianProcessMean,
    LaplaceProcess,
    SecondAbove,
    Shares,
)
from windtunnel.modules.kernels import (
    ConstantSimilarity,
    DotProductKernel,
    Kernel,
    MaternKernel,
    Noise,
    PeriodicKernel,
    PowerOfKernel,
    ProductOfKernels,
    RationalQuadraticKernel,
    SquaredExponential,
    SumOfKernels,
)
from windtunnel.translators.registry import Predictor, translates

KERNELS = "RBF, Matern (nu 0.5, 1.5, 2.5, inf), RationalQuadratic, ExpSineSquared, DotProduct, Constant, White, +, *, **"


@translates(
    GaussianProcessRegressor, trainable="training rows, weights, kernel", notes=f"the mean; kernels {KERNELS}"
)
def gaussian_process_regressor(fitted: GaussianProcessRegressor) -> Predictor:
    """k(x, X_train_) alpha_, scaled by _y_train_std and shifted by _y_train_mean."""
    if not hasattr(fitted, "X_train_"):
        raise UnsupportedEstimator("GaussianProcessRegressor is not fitted, and predicts its prior mean of 0; fit it.")
    alpha = np.asarray(fitted.alpha_, dtype=np.float64).reshape(len(fitted.alpha_), -1)
    scale = np.broadcast_to(np.asarray(fitted._y_train_std, dtype=np.float64), alpha.shape[1:])
    shift = np.broadcast_to(np.asarray(fitted._y_train_mean, dtype=np.float64), alpha.shape[1:])
    scores = GaussianProcessMean.of(
        _kernel(fitted.kernel_), _tensor(fitted.X_train_), _tensor((alpha * scale).T), _tensor(shift)
    )
    return Predictor(scores, loss="squared", flat=alpha.shape[1] == 1)


@translates(
    GaussianProcessClassifier,
    trainable="training rows, residuals, kernel",
    notes=f"two classes, or one_vs_rest; kernels {KERNELS}",
)
def gaussian_process_classifier(fitted: GaussianProcessClassifier) -> Predictor:
    """The probability of a class under Laplace's approximation; beyond two classes each against the rest.

    Reads X_train_, y_train_, pi_, W_sr_, L_ and kernel_ of base_estimator_.
    """
    two = len(fitted.classes_) == 2
    if not two and fitted.multi_class != "one_vs_rest":
        raise UnsupportedEstimator(
            f"GaussianProcessClassifier with multi_class={fitted.multi_class!r} over {len(fitted.classes_)} classes, "
            "which gives no probabilities; fit it with multi_class='one_vs_rest'."
        )
    members = [fitted.base_estimator_] if two else fitted.base_estimator_.estimators_
    # The sign of the latent mean decides; where it is 0 the probability is half the sum of the shares.
    half = 0.5 * torch.tensor(SHARES, dtype=torch.float64).sum()
    return Predictor(
        GaussianProcessClasses.of([_process(member) for member in members]),
        link="probabilities",
        loss="probabilities",
        answers={"predict": SecondAbove(half)} if two else {"predict_proba": Shares()},
    )


def _process(fitted: Any) -> LaplaceProcess:
    return LaplaceProcess(
        _kernel(fitted.kernel_),
        _tensor(fitted.X_train_),
        _tensor(fitted.y_train_ - fitted.pi_),
        _tensor(fitted.W_sr_),
        _tensor(fitted.L_),
    )


def _kernel(given: Any) -> Kernel:
    """A module for a fitted kernel; exact classes only, as a subclass may compute something else."""
    kind = type(given)
    if kind is kernels.Sum:
        return SumOfKernels(_kernel(given.k1), _kernel(given.k2))
    if kind is kernels.Product:
        return ProductOfKernels(_kernel(given.k1), _kernel(given.k2))
    if kind is kernels.Exponentiation:
        return PowerOfKernel(_kernel(given.kernel), exponent=float(given.exponent))
    if kind is kernels.ConstantKernel:
        return ConstantSimilarity(value=given.constant_value)
    if kind is kernels.WhiteKernel:
        return Noise(level=given.noise_level)
    if kind is kernels.RBF or (kind is kernels.Matern and given.nu == np.inf):
        return SquaredExponential(length=given.length_scale)
    if kind is kernels.Matern and given.nu in (0.5, 1.5, 2.5):
        return MaternKernel(length=given.length_scale, nu=float(given.nu))
    if kind is kernels.RationalQuadratic:
        return RationalQuadraticKernel(length=given.length_scale, alpha=given.alpha)
    if kind is kernels.ExpSineSquared:
        return PeriodicKernel(length=given.length_scale, period=given.periodicity)
    if kind is kernels.DotProduct:
        return DotProductKernel(sigma=given.sigma_0)
    raise UnsupportedEstimator(f"a Gaussian process with the kernel {given!r}, which has no module; accepted are {KERNELS}.")


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64, order="C"))
