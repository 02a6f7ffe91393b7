"""Clusterings."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case, logistic, scaled
from sklearn.cluster import (
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    FeatureAgglomeration,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)

INCOMES = "a centre at 24,000 is a float32 number to within 1e-3 only, and rows are 10 away from one"


def without_target(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X)


CASES = [
    Case("k-means", lambda: scaled(KMeans(4, random_state=0)), NUMBERS),
    Case("k-means on raw incomes", lambda: KMeans(4, random_state=0), NUMBERS, coarse=1e-3, why=INCOMES),
    Case("k-means, one cluster", lambda: scaled(KMeans(1)), NUMBERS),
    Case("k-means as features", lambda: scaled(KMeans(3, random_state=0), logistic()), NUMBERS),
    Case("mini-batch k-means", lambda: scaled(MiniBatchKMeans(3, random_state=0)), NUMBERS),
    Case("bisecting k-means", lambda: scaled(BisectingKMeans(6, random_state=0)), NUMBERS),
    Case("bisecting k-means, one cluster", lambda: scaled(BisectingKMeans(1)), NUMBERS),
    Case("mean shift", lambda: scaled(MeanShift(bandwidth=1.2)), NUMBERS),
    Case("birch", lambda: scaled(Birch(n_clusters=3)), NUMBERS),
    Case("birch, a cluster for each subcluster", lambda: scaled(Birch(n_clusters=None, threshold=1.0)), NUMBERS),
    Case("affinity propagation", lambda: scaled(AffinityPropagation(damping=0.9)), NUMBERS),
    *(
        Case(
            f"pooled columns, {pool.__name__}",
            lambda pool=pool: FeatureAgglomeration(2, pooling_func=pool),
            (*NUMBERS, "cents", "zip"),
            fit=without_target,
        )
        for pool in (np.mean, np.sum, np.max, np.min, np.median)
    ),
]
