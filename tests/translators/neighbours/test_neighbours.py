"""Nearest neighbours where a quick comparison does not decide, and rows that are infinitely far from all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator

METRICS = ("euclidean", "manhattan", "chebyshev")


def rows(count: int, shift: float = 0.0) -> NDArray[np.float64]:
    """Decimals, half of them rounded to whole ones, which are equally near to many, and a shift that takes digits."""
    drawn = np.random.default_rng(count).normal(size=(count, 3))
    drawn[::2] = drawn[::2].round()
    return drawn + shift


@pytest.mark.parametrize("shift", [0.0, 1e6, 1e12], ids=str)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("search", ["kd_tree", "ball_tree"])
def test_what_a_quick_comparison_leaves_in_doubt_is_settled(search: str, metric: str, shift: float) -> None:
    X = rows(200, shift)
    source = KNeighborsRegressor(3, weights="distance", algorithm=search, metric=metric).fit(X, np.arange(200.0))
    given = rows(301, shift)
    np.testing.assert_allclose(windtunnel.compile(source).predict(given), source.predict(given), 1e-9, 1e-9)


def far(algorithm: str, **options: Any) -> tuple[Any, windtunnel.Translation, NDArray[np.float64]]:
    X = rows(120)[1::2]
    votes = KNeighborsClassifier(3, weights="distance", algorithm=algorithm, **options)
    source = make_pipeline(StandardScaler(), votes).fit(X, np.arange(60) % 3)
    given = rows(5)
    given[2, 1] = 1e300
    return source, windtunnel.compile(source), given


@pytest.mark.parametrize("search", ["kd_tree", "ball_tree"])
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_a_row_without_weights_is_rejected(method: str, search: str) -> None:
    source, net, given = far(search)
    with pytest.raises(ValueError, match="zero weights"):
        getattr(source, method)(given)
    with pytest.raises(BadInput, match="1 of 5 rows have no finite score"):
        getattr(net, method)(given)
    rest = np.delete(given, 2, axis=0)
    np.testing.assert_allclose(getattr(net, method)(rest), getattr(source, method)(rest), 1e-9, 1e-9)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("search", "metric"), [("brute", "euclidean"), ("kd_tree", "manhattan")])
def test_a_row_far_away_gives_what_the_source_gives(search: str, metric: str) -> None:
    source, net, given = far(search, metric=metric)
    np.testing.assert_allclose(net.predict_proba(given), source.predict_proba(given), 1e-9, 1e-9)


@pytest.mark.parametrize("queries", ["float32", "float64"])
def test_rows_of_float32_by_brute_force(queries: Any) -> None:
    X, given = (np.random.default_rng(seed).normal(size=(200, 4)).astype(np.float32) for seed in (0, 1))
    given = given.astype(queries)
    votes = KNeighborsClassifier(5, algorithm="brute").fit(X, X[:, 0] > 0)
    np.testing.assert_array_equal(windtunnel.compile(votes).predict_proba(given), votes.predict_proba(given))
    means = KNeighborsRegressor(5, algorithm="brute", weights="distance").fit(X, X[:, 1])
    np.testing.assert_allclose(windtunnel.compile(means).predict(given), means.predict(given), 1e-6, 1e-6)
    rounded = KNeighborsRegressor(5, algorithm="brute", metric="manhattan").fit(X, X[:, 1])
    with pytest.raises(UnsupportedEstimator, match="type float32 with metric='manhattan'"):
        windtunnel.compile(rounded)
