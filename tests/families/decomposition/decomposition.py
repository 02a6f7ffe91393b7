"""Decompositions, and the estimators that predict or transform by them."""

from __future__ import annotations

import numpy as np
from case import FOUR, NUMBERS, Case, logistic, one_hot, scaled
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.decomposition import (
    NMF,
    PCA,
    DictionaryLearning,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    KernelPCA,
    LatentDirichletAllocation,
    MiniBatchDictionaryLearning,
    MiniBatchNMF,
    MiniBatchSparsePCA,
    SparseCoder,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures

COUNTS = ("visits", "zip")
ATOMS = np.random.default_rng(0).normal(size=(6, 4))
ONE_ROW = "scikit-learn gives [K] and not [1, K] for one row"


def positive(estimator: object, *more: object) -> object:
    return make_pipeline(MinMaxScaler((0.1, 1), clip=True), estimator, *more)


CASES = [
    Case("pca alone", lambda: PCA(2), NUMBERS),
    Case("pca, whitened", lambda: scaled(PCA(whiten=True)), FOUR),
    Case(
        "pca, randomized, logistic", lambda: scaled(PCA(2, svd_solver="randomized", random_state=0), logistic()), FOUR
    ),
    Case("pca over one-hot", lambda: make_pipeline(one_hot(), PCA(3), logistic()), ("city", "device"), unseen=True),
    Case("incremental pca", lambda: scaled(IncrementalPCA(2, whiten=True), logistic()), FOUR, "grade"),
    Case("truncated svd", lambda: make_pipeline(one_hot(), TruncatedSVD(3, random_state=0)), ("city", "device")),
    Case("factor analysis", lambda: scaled(FactorAnalysis(2)), FOUR),
    Case("factor analysis, logistic", lambda: scaled(FactorAnalysis(2), logistic()), FOUR),
    Case("sparse pca", lambda: scaled(SparsePCA(2, random_state=0)), FOUR, one_row=False, why=ONE_ROW),
    Case(
        "sparse pca with more components than columns",
        lambda: scaled(MiniBatchSparsePCA(6, random_state=0, ridge_alpha=0.5)),
        FOUR,
        one_row=False,
        why=ONE_ROW,
    ),
    Case("independent components", lambda: FastICA(2, random_state=0, tol=1e-2), NUMBERS),
    Case(
        "independent components of another scale",
        lambda: scaled(FastICA(2, random_state=0, tol=1e-2, whiten="arbitrary-variance"), logistic()),
        FOUR,
    ),
    Case("independent components, not whitened", lambda: scaled(FastICA(random_state=0, whiten=False, tol=0.5)), FOUR),
    *(
        Case(f"kernel pca, {kernel}", lambda kernel=kernel: scaled(KernelPCA(3, kernel=kernel), logistic()), FOUR)
        for kernel in ("linear", "rbf", "poly", "sigmoid", "cosine")
    ),
    Case("kernel pca of all components", lambda: scaled(KernelPCA(kernel="linear", remove_zero_eig=True)), FOUR),
    Case("nmf", lambda: make_pipeline(MinMaxScaler(clip=True), NMF(2, random_state=0)), FOUR),
    Case(
        "nmf, penalised and shuffled",
        lambda: positive(NMF(3, random_state=0, alpha_W=0.01, l1_ratio=0.4, shuffle=True), logistic()),
        FOUR,
    ),
    *(
        Case(
            f"nmf, multiplicative, {loss}",
            lambda loss=loss: positive(NMF(2, random_state=0, solver="mu", beta_loss=loss, alpha_W=1e-3, max_iter=600)),
            FOUR,
        )
        for loss in ("frobenius", "kullback-leibler", "itakura-saito", 0.5, 1.5, 2.5)
    ),
    *(
        Case(
            f"nmf, mini-batch, {loss}",
            lambda loss=loss: positive(MiniBatchNMF(2, random_state=0, beta_loss=loss)),
            FOUR,
        )
        for loss in ("frobenius", "kullback-leibler", 1.5)
    ),
    Case("topics", lambda: LatentDirichletAllocation(3, max_iter=2, random_state=0), COUNTS),
    Case(
        "topics of their own prior, logistic",
        lambda: make_pipeline(
            LatentDirichletAllocation(2, max_iter=2, random_state=0, doc_topic_prior=0.3, max_doc_update_iter=20),
            logistic(),
        ),
        COUNTS,
    ),
    Case(
        "dictionary, threshold",
        lambda: scaled(DictionaryLearning(5, max_iter=2, transform_algorithm="threshold", random_state=0)),
        FOUR,
    ),
    Case(
        "dictionary, pursuit",
        lambda: scaled(
            MiniBatchDictionaryLearning(5, max_iter=2, transform_n_nonzero_coefs=3, split_sign=True, random_state=0),
            logistic(),
        ),
        FOUR,
    ),
    Case("sparse coder, pursuit", lambda: scaled(SparseCoder(ATOMS, transform_n_nonzero_coefs=2)), FOUR),
    Case(
        "sparse coder, threshold",
        lambda: scaled(
            SparseCoder(
                ATOMS, transform_algorithm="threshold", transform_alpha=0.3, positive_code=True, split_sign=True
            )
        ),
        FOUR,
    ),
    Case("partial least squares of one target", lambda: PLSRegression(2), NUMBERS, "value"),
    Case("partial least squares of two targets", lambda: scaled(PLSRegression(2, scale=False)), FOUR, "pair"),
    Case("canonical partial least squares", lambda: PLSCanonical(2), FOUR, "pair"),
    Case("canonical correlation", lambda: CCA(1), FOUR, "pair"),
    Case("singular vectors of two blocks", lambda: PLSSVD(2), FOUR, "pair"),
    Case("isomap", lambda: scaled(Isomap(n_neighbors=6, neighbors_algorithm="brute")), ("age", "income")),
    Case(
        "isomap, Manhattan", lambda: scaled(Isomap(n_neighbors=6, neighbors_algorithm="brute", p=1)), ("age", "income")
    ),
    Case(
        "locally linear embedding",
        lambda: scaled(LocallyLinearEmbedding(n_neighbors=6, neighbors_algorithm="brute"), logistic()),
        ("age", "income"),
    ),
    Case("pca of many columns", lambda: scaled(PolynomialFeatures(2), PCA(5), logistic()), NUMBERS),
]
