"""Nearest neighbours and centroids, kernel densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case, scaled
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    KNeighborsRegressor,
    LocalOutlierFactor,
    NearestCentroid,
    NeighborhoodComponentsAnalysis,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

TIES = ("visits", "zip")
"""Whole numbers, few of them: most rows are there many times, with unlike targets."""
TWO = ("age", "visits")
METRICS: dict[str, dict[str, Any]] = {
    "euclidean": {},
    "manhattan": {"metric": "manhattan"},
    "chebyshev": {"metric": "chebyshev"},
    "minkowski": {"metric": "minkowski", "p": 3},
}


def of_several(estimator: Any, X: Any, y: Any) -> Any:
    """Three labels and two, as two targets."""
    return estimator.fit(X, np.stack([y, np.where(y == 7, -1, 2)], axis=1))


CASES = [
    *(
        Case(
            f"neighbours, {name}, {weights}, {search}",
            lambda options=options, weights=weights, search=search: KNeighborsClassifier(
                5, weights=weights, algorithm=search, leaf_size=10, **options
            ),
            NUMBERS,
            "grade",
        )
        for name, options in METRICS.items()
        for weights, search in (("uniform", "kd_tree"), ("distance", "ball_tree"), ("distance", "brute"))
    ),
    *(
        Case(
            f"{count} neighbours among duplicates, {search}",
            lambda count=count, search=search: KNeighborsClassifier(count, algorithm=search, leaf_size=5),
            TIES,
            "grade",
        )
        for count, search in ((1, "kd_tree"), (2, "ball_tree"), (7, "kd_tree"), (20, "ball_tree"))
    ),
    Case(
        "neighbours among decimals",
        lambda: KNeighborsRegressor(6, weights="distance"),
        ("visits", "cents"),
        "value",
        coarse=10.0,
        why="float32 decimals of the rows are not those that were fitted on: what was a tie is none",
    ),
    Case("all are neighbours", lambda: KNeighborsRegressor(300, weights="distance"), TWO, "value"),
    Case(
        "neighbours, cosine",
        lambda: KNeighborsClassifier(5, metric="cosine"),
        NUMBERS,
        coarse=1e-4,
        why="float32 distances",
    ),
    Case("neighbours, several targets", lambda: KNeighborsClassifier(4), NUMBERS, "grade", fit=of_several),
    Case("neighbours, two values", lambda: KNeighborsRegressor(4, weights="distance"), NUMBERS, "pair"),
    *(
        Case(
            f"within a radius, {name}, {weights}",
            lambda options=options, weights=weights: RadiusNeighborsClassifier(30.0, weights=weights, **options),
            TWO,
            "grade",
        )
        for name, options in METRICS.items()
        for weights in ("uniform", "distance")
    ),
    Case("within a radius, whole numbers", lambda: RadiusNeighborsClassifier(5.0), TIES, "grade"),
    Case("within a radius, outliers by label", lambda: RadiusNeighborsClassifier(1.0, outlier_label=7), TWO, "grade"),
    Case(
        "within a radius, outliers by the most frequent",
        lambda: RadiusNeighborsClassifier(1.0, outlier_label="most_frequent"),
        TWO,
    ),
    Case("within a radius, values", lambda: RadiusNeighborsRegressor(30.0, weights="distance"), TWO, "pair"),
    Case(
        "local outlier factor",
        lambda: LocalOutlierFactor(20, novelty=True, contamination=0.1),
        NUMBERS,
        coarse=1e-4,
        array=True,
        why="float32 scores near the offset",
    ),
    *(
        Case(
            f"centroids, {name}, {target}", lambda options=options: scaled(NearestCentroid(**options)), NUMBERS, target
        )
        for target in ("label", "grade")
        for name, options in {
            "plain": {},
            "shrunken": {"shrink_threshold": 0.2},
            "priors": {"priors": "empirical"},
            "manhattan": {"metric": "manhattan"},
            "manhattan, priors": {"metric": "manhattan", "priors": "empirical"},
        }.items()
        if target == "grade" or "priors" not in name
    ),
    Case("centroids, two unlike priors", lambda: scaled(NearestCentroid(priors=[0.3, 0.7])), NUMBERS),
    Case(
        "neighbourhood components",
        lambda: scaled(NeighborhoodComponentsAnalysis(2, random_state=0, max_iter=5)),
        NUMBERS,
        "grade",
    ),
    *(
        Case(
            f"kernel density, {kernel}",
            lambda kernel=kernel: scaled(KernelDensity(kernel=kernel, bandwidth=3.0)),
            ("age", "visits"),
        )
        for kernel in ("gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine")
    ),
]
