"""Support vector machines and kernel ridge regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case, scaled
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

CANCELS = "float32 rounds the kernel before weights of both signs cancel"


def on_sparse_rows(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(sparse.csr_array(X), y)


CASES = [
    Case("svc, two classes", lambda: scaled(SVC(gamma=0.3)), NUMBERS),
    Case("svc, large weights that cancel", lambda: scaled(SVC(C=100.0)), NUMBERS),
    Case("svc, three classes", lambda: scaled(SVC(gamma="auto", class_weight="balanced")), NUMBERS, "grade"),
    Case("svc on raw incomes", SVC, NUMBERS, "grade"),
    Case("svc, pairs", lambda: scaled(SVC(decision_function_shape="ovo", kernel="sigmoid")), NUMBERS, "grade"),
    Case("svc, ties broken", lambda: scaled(SVC(break_ties=True)), NUMBERS, "grade"),
    Case("svc, linear", lambda: scaled(SVC(kernel="linear")), NUMBERS, "grade"),
    Case(
        "svc, polynomial",
        lambda: scaled(SVC(kernel="poly", degree=2, coef0=1.0)),
        NUMBERS,
        "grade",
        coarse=1e-4,
        why=CANCELS,
    ),
    Case(
        "svc, fitted on sparse rows",
        lambda: SVC(gamma=0.01),
        ("age", "visits"),
        "grade",
        array=True,
        fit=on_sparse_rows,
    ),
    Case("nu-svc", lambda: scaled(NuSVC(nu=0.3)), NUMBERS),
    Case("svr", lambda: scaled(SVR(C=2.0)), NUMBERS, "value"),
    Case("svr without support vectors", lambda: scaled(SVR(epsilon=100.0)), NUMBERS, "value"),
    Case("nu-svr", lambda: scaled(NuSVR(kernel="rbf", gamma=0.2)), NUMBERS, "value"),
    Case("one-class svm", lambda: scaled(OneClassSVM(nu=0.2)), NUMBERS),
    *(
        Case(
            f"kernel ridge, {kernel}",
            lambda kernel=kernel: scaled(KernelRidge(kernel=kernel, alpha=100.0)),
            NUMBERS,
            "pair",
            coarse=1e-3,
            why=CANCELS,
        )
        for kernel in ("linear", "rbf", "laplacian", "polynomial", "sigmoid", "cosine")
    ),
    Case(
        "kernel ridge, chi2",
        lambda: make_pipeline(FunctionTransformer(np.abs), KernelRidge(kernel="chi2", gamma=0.1)),
        ("age", "visits"),
        "value",
        coarse=1e-3,
        why=CANCELS,
    ),
]
