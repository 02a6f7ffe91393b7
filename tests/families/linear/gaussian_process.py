"""Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case, scaled
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

CANCELS = "float32 rounds the kernel before weights of both signs cancel"
KERNELS = {
    "default": None,
    "sum with noise": RBF(2.0) + WhiteKernel(0.5),
    "product": ConstantKernel(2.0) * Matern(1.5, nu=0.5),
    "length for each column": Matern([1.0, 2.0, 3.0], nu=1.5),
    "Matern 2.5": Matern(1.0, nu=2.5),
    "Matern infinite": Matern([1.0, 2.0, 3.0], nu=np.inf),
    "rational quadratic": RationalQuadratic(1.5, 0.7),
    "periodic": ExpSineSquared(2.0, 3.0) * RBF(2.0),
    "power": DotProduct(1.0) ** 2,
}


def regressor(kernel: Any, **options: Any) -> Any:
    return scaled(GaussianProcessRegressor(kernel, **{"alpha": 1.0, "optimizer": None} | options))


def classifier(kernel: Any) -> Any:
    return scaled(GaussianProcessClassifier(kernel, optimizer=None))


CASES = [
    *(
        Case(
            f"gaussian process, {name}",
            lambda kernel=kernel: regressor(kernel, normalize_y=True),
            NUMBERS,
            "value",
            coarse=1e-3,
            why=CANCELS,
        )
        for name, kernel in KERNELS.items()
    ),
    Case("gaussian process, two targets", lambda: regressor(RBF(2.0)), NUMBERS, "pair", coarse=1e-3, why=CANCELS),
    Case("gaussian process, two classes", lambda: classifier(RBF(2.0)), NUMBERS),
    Case(
        "gaussian process, three classes",
        lambda: classifier(ConstantKernel(2.0) * RBF(2.0) + WhiteKernel(0.1)),
        NUMBERS,
        "grade",
    ),
]
