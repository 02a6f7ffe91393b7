"""Decompositions and selectors beyond the case table: what is rejected, and rows that depend on one another."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from case import NUMBERS, logistic, table, targets
from scipy.linalg import LinAlgWarning
from sklearn.decomposition import NMF, PCA, DictionaryLearning, FastICA, KernelPCA
from sklearn.feature_selection import RFE, SelectKBest
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem, SkewedChi2Sampler
from sklearn.manifold import Isomap
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.translators import convert

ROWS = table()[[*NUMBERS, "cents"]]
TARGET = targets(table())
DEPENDENT = np.c_[ROWS, ROWS["age"] + ROWS["cents"]]


@pytest.mark.parametrize(
    ("estimator", "rows", "words"),
    [
        (PCA(whiten=True), DEPENDENT, "components without variance"),
        (FastICA(4, random_state=0, tol=1e3), np.c_[ROWS["age"], ROWS["age"] * 3, ROWS[["visits", "cents"]]], "depend"),
        (KernelPCA(2, kernel=np.dot), ROWS, "kernel=a function"),
        (Nystroem(kernel=np.dot, n_components=3), ROWS, "kernel=a function"),
        (NMF(2, shuffle=True), ROWS, "random_state"),
        (DictionaryLearning(3, max_iter=1, transform_algorithm="lasso_lars"), ROWS, "'omp' or 'threshold'"),
        (Isomap(n_neighbors=None, radius=60_000.0), ROWS[:60], "n_neighbors="),
        (Isomap(metric="canberra", n_neighbors=30), ROWS[:60], "metric 'minkowski'"),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "fit") else None,
)
def test_what_cannot_be_exact_is_rejected(estimator: Any, rows: Any, words: str) -> None:
    fitted = estimator.fit(rows)
    with pytest.raises(UnsupportedEstimator, match=words):
        convert(fitted)


@pytest.mark.parametrize("variance", [0.0, 1.7e-9], ids=["zero variance", "rounding as variance"])
def test_whitening_a_dependent_column_is_rejected_on_every_processor(variance: float) -> None:
    fitted = PCA(whiten=True, svd_solver="covariance_eigh").fit(DEPENDENT)
    fitted.explained_variance_[-1] = variance
    with pytest.raises(UnsupportedEstimator, match="components without variance"):
        convert(fitted)


def _raise_singular(matrix: Any) -> Any:
    raise np.linalg.LinAlgError("A singular matrix detected")


def _warn_ill_conditioned(matrix: Any) -> Any:
    warnings.warn("An ill-conditioned matrix detected", LinAlgWarning, stacklevel=2)
    return np.linalg.inv(matrix + np.diag(np.diag(matrix)) * 1e-15)


@pytest.mark.parametrize("inverse", [None, _raise_singular, _warn_ill_conditioned], ids=["scipy", "raises", "warns"])
@pytest.mark.parametrize("variance", [None, 0.0, 1.7e-9], ids=["fitted", "zero variance", "rounding as variance"])
def test_a_pca_of_dependent_columns_has_no_likelihood(
    variance: float | None, inverse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = PCA().fit(DEPENDENT)
    if variance is not None:
        fitted.explained_variance_[-1] = variance
    if inverse is not None:
        monkeypatch.setattr(scipy.linalg, "inv", inverse)
    net = windtunnel.compile(fitted)
    np.testing.assert_allclose(net.transform(DEPENDENT), fitted.transform(DEPENDENT), rtol=1e-9, atol=1e-9)
    assert not hasattr(net, "score_samples")


def test_a_constant_column_whose_variance_is_negative_by_rounding() -> None:
    rows = np.c_[ROWS, np.full(len(ROWS), 2.5)]
    fitted = PCA(ROWS.shape[1], svd_solver="full").fit(rows)
    fitted.noise_variance_ = -1e-9
    net = windtunnel.compile(fitted)
    np.testing.assert_allclose(net.transform(rows), fitted.transform(rows), rtol=1e-9, atol=1e-9)
    assert not hasattr(net, "score_samples")


@pytest.mark.parametrize("scale", [1.0, 1e9], ids=["alike", "on other scales"])
def test_a_pca_of_independent_columns_has_a_likelihood(scale: float) -> None:
    rows = StandardScaler().fit_transform(ROWS) * [1.0, 1.0, 1.0, scale]
    fitted = PCA(svd_solver="full").fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        want = fitted.score_samples(rows)
    np.testing.assert_allclose(windtunnel.compile(fitted).score_samples(rows), want, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero)")
@pytest.mark.parametrize("options", [{"svd_solver": "arpack"}, {"svd_solver": "full", "whiten": True}], ids=str)
def test_a_pca_whose_covariance_overflows_float32_has_no_likelihood(options: dict[str, Any]) -> None:
    rows = (np.random.default_rng(0).normal(size=(100, 5)) * 1e18).astype(np.float32)
    fitted = PCA(3, random_state=0, **options).fit(rows)
    net, want = windtunnel.compile(fitted), fitted.transform(rows)
    np.testing.assert_allclose(net.transform(rows), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not hasattr(net, "score_samples")


@pytest.mark.parametrize("estimator", [AdditiveChi2Sampler(), SkewedChi2Sampler(n_components=3), NMF(2)], ids=str)
def test_negative_rows_are_rejected_as_in_the_source(estimator: Any) -> None:
    fitted = estimator.fit(ROWS)
    negative = ROWS[:5] - 1000.0
    with pytest.raises(ValueError, match=r"(?i)negative|smaller"):
        fitted.transform(negative)
    with pytest.raises(BadInput):
        windtunnel.compile(fitted).transform(negative)


@pytest.mark.parametrize("options", [{}, {"solver": "mu", "max_iter": 2000}], ids=["cd", "mu"])
def test_rows_are_factorized_together_however_many(options: dict[str, Any]) -> None:
    fitted = NMF(2, random_state=0, **options).fit(ROWS)
    net = windtunnel.compile(fitted, batch_size=16)
    np.testing.assert_allclose(net.transform(ROWS), fitted.transform(ROWS), rtol=1e-9, atol=1e-9)


def test_shuffled_steps_follow_the_seed() -> None:
    fitted = NMF(3, shuffle=True, random_state=3).fit(ROWS)
    np.testing.assert_allclose(windtunnel.compile(fitted).transform(ROWS), fitted.transform(ROWS), rtol=1e-9, atol=1e-9)


def test_precomputed_kernels() -> None:
    rows = StandardScaler().fit_transform(ROWS)
    kernel = rbf_kernel(rows, rows[:40])
    for estimator in (
        KernelPCA(3, kernel="precomputed").fit(kernel[:40]),
        Nystroem(kernel="precomputed", n_components=40, random_state=0).fit(kernel[:40]),
    ):
        got, want = windtunnel.compile(estimator).transform(kernel), estimator.transform(kernel)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_a_selection_rejects_in_dropped_columns_too() -> None:
    fitted = make_pipeline(SelectKBest(k=1), logistic()).fit(ROWS, TARGET["label"])
    dropped = int(np.flatnonzero(~fitted[0].get_support())[0])
    rows = ROWS.astype(float).copy()
    rows.iloc[0, dropped] = np.nan
    with pytest.raises(BadInput):
        windtunnel.compile(fitted).predict(rows)


def test_elimination_around_a_pipeline() -> None:
    inner = make_pipeline(StandardScaler(), logistic())
    fitted = RFE(inner, n_features_to_select=2, importance_getter="named_steps.logisticregression.coef_")
    fitted.fit(ROWS, TARGET["grade"])
    net = windtunnel.compile(fitted)
    np.testing.assert_array_equal(net.predict(ROWS), fitted.predict(ROWS))
    np.testing.assert_allclose(net.predict_proba(ROWS), fitted.predict_proba(ROWS), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(net.transform(ROWS), fitted.transform(ROWS))
