"""Linear and quadratic discriminant analysis."""

from __future__ import annotations

from case import NUMBERS, Case, logistic, scaled
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis as Linear,
    QuadraticDiscriminantAnalysis as Quadratic,
)

PRIORS = [0.2, 0.5, 0.3]

CASES = [
    Case("lda", Linear, NUMBERS),
    Case("lda, three classes", lambda: Linear(priors=PRIORS), NUMBERS, "grade"),
    Case("lda, one component", lambda: Linear(n_components=1), NUMBERS, "grade"),
    Case("lda, eigen", lambda: Linear(solver="eigen", shrinkage="auto"), NUMBERS, "grade"),
    Case("lda, eigen, two classes", lambda: Linear(solver="eigen"), NUMBERS),
    Case("lda, one feature", lambda: scaled(Linear()), ("age",), "grade"),
    Case("lda directions, logistic", lambda: scaled(Linear(), logistic()), NUMBERS, "grade"),
    Case("qda", lambda: scaled(Quadratic()), NUMBERS),
    Case("qda, three classes", lambda: Quadratic(reg_param=0.1, priors=PRIORS), NUMBERS, "grade"),
    Case(
        "qda, eigen",
        lambda: Quadratic(solver="eigen", shrinkage=0.2, store_covariance=True),
        NUMBERS,
        "grade",
        since="1.8",
    ),
    Case("qda, one feature", lambda: scaled(Quadratic()), ("age",), "grade"),
]
