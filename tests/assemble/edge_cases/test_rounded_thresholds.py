"""Histogram boosting and bins decide at values of their training rows, which other code may round differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import Birch, KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)

import windtunnel

STEPS: dict[str, Any] = {
    "large means": PCA(),
    "large means, scaled afterwards": make_pipeline(PCA(), StandardScaler()),
    "products": PolynomialFeatures(2, interaction_only=True),
    "products of three": PolynomialFeatures(3),
    "distances": KMeans(5, random_state=0),
    "distances to the nearest of groups": Birch(n_clusters=5, threshold=5),
    "powers": PowerTransformer(),
    "powers of positive numbers": PowerTransformer(method="box-cox"),
    "powers, scaled afterwards": make_pipeline(PowerTransformer(standardize=False), StandardScaler()),
    "splines": SplineTransformer(),
    "linear splines beyond the knots": SplineTransformer(degree=2, n_knots=7, extrapolation="linear"),
}
ROWS = 4000


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Measurements of a few digits, so that many rows share values, and far from 0 compared with their spread."""
    random = np.random.default_rng(1)
    pressure, temperature = random.normal(1017, 7, ROWS).round(1), random.normal(288, 8, ROWS).round(1)
    rain, latitude = random.gamma(2, 3, ROWS).round(1) + 0.1, random.normal(40.7, 0.05, ROWS).round(4)
    logit = -0.3 * (pressure - 1017) + 0.2 * (temperature - 288) + 10 * (latitude - 40.7)
    X = np.stack([pressure, temperature, rain, latitude, random.integers(1, 100, ROWS)], axis=1)
    return X, (random.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(int)


@pytest.mark.parametrize("name", STEPS)
def test_rows_at_a_threshold_go_the_way_of_the_source(name: str) -> None:
    X, y = rows()
    source = make_pipeline(STEPS[name], HistGradientBoostingClassifier(max_iter=40, random_state=0)).fit(X, y)
    wanted = source.predict_proba(X)
    for model in (
        windtunnel.compile(source),
        windtunnel.compile(source, backend="torch"),
        windtunnel.translate(source),
    ):
        np.testing.assert_allclose(model.predict_proba(X), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["large means", "powers", "powers of positive numbers"])
def test_rows_at_the_edge_of_a_bin_are_in_that_of_the_source(name: str) -> None:
    X, y = rows()
    source = make_pipeline(STEPS[name], KBinsDiscretizer(8), LogisticRegression(max_iter=300)).fit(X, y)
    wanted = source.predict_proba(X)
    for backend in ("auto", "torch"):
        model = windtunnel.compile(source, backend=backend)
        np.testing.assert_allclose(model.predict_proba(X), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["products", "products of three", "splines", "linear splines beyond the knots"])
def test_bits_are_those_of_the_source(name: str) -> None:
    X, _ = rows()
    step = STEPS[name].fit(X)
    inside_and_outside = np.concatenate([X, X * 1.1, X * 0.9])
    if name == "splines":
        inside_and_outside = np.clip(inside_and_outside, X.min(axis=0), X.max(axis=0))
    net = windtunnel.compile(step, backend="torch")
    np.testing.assert_array_equal(net.transform(inside_and_outside), step.transform(inside_and_outside))
