"""scikit-learn's kernel ridge regression."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.kernel_ridge import KernelRidge

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.kernels.pairwise import Chi2KernelMap
from windtunnel.modules.kernels.support_vectors import SupportVectors
from windtunnel.modules.linear.linear import Linear
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates

OFFERED = ("linear", "poly", "polynomial", "rbf", "laplacian", "sigmoid", "cosine", "chi2", "additive_chi2")


@translates(KernelRidge, trainable="training rows, weights", notes=f"kernels {', '.join(OFFERED)}")
def kernel_ridge(fitted: KernelRidge) -> Predictor:
    """k(x, X_fit_) dual_coef_. Reads gamma (1 / width where None), coef0 and degree."""
    if not isinstance(fitted.kernel, str) or fitted.kernel not in OFFERED:
        kernel_text = repr(fitted.kernel) if isinstance(fitted.kernel, str) else "a function"
        raise UnsupportedEstimator(f"KernelRidge with kernel={kernel_text}; accepted are {', '.join(OFFERED)}.")
    kernel = "poly" if fitted.kernel == "polynomial" else fitted.kernel
    points, weight = tensor(fitted.X_fit_), tensor(np.atleast_2d(np.transpose(fitted.dual_coef_)))
    bias = torch.zeros(len(weight), dtype=torch.float64)
    flat = np.ndim(fitted.dual_coef_) == 1
    if kernel == "linear":
        return Predictor(Linear(weight @ points, bias), loss="squared", flat=flat)
    gamma = 1.0 / points.shape[1] if fitted.gamma is None else float(fitted.gamma)
    machine = Chi2KernelMap if "chi2" in kernel else SupportVectors
    scores = machine(points, weight, bias, kernel, gamma, fitted.coef0, fitted.degree)
    return Predictor(scores, loss="squared", flat=flat)
