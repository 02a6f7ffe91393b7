"""Random projections and approximate kernels."""

from __future__ import annotations

from case import FOUR, Case, logistic, scaled
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection


def positive(estimator: object, *more: object) -> object:
    return make_pipeline(MinMaxScaler(clip=True), estimator, *more)


CASES = [
    Case("gaussian projection", lambda: GaussianRandomProjection(3, random_state=0), FOUR),
    Case("sparse projection", lambda: scaled(SparseRandomProjection(3, random_state=0, density=0.5), logistic()), FOUR),
    *(
        Case(
            f"nystroem, {kernel}",
            lambda kernel=kernel: positive(Nystroem(kernel=kernel, n_components=12, random_state=0), logistic()),
            FOUR,
        )
        for kernel in ("rbf", "polynomial", "sigmoid", "cosine", "laplacian", "chi2", "additive_chi2", "linear")
    ),
    Case(
        "nystroem with numbers of its own",
        lambda: scaled(Nystroem(kernel="poly", degree=2, coef0=0.5, gamma=0.2, n_components=10, random_state=0)),
        FOUR,
    ),
    Case(
        "nystroem with kernel_params",
        lambda: scaled(Nystroem(kernel="rbf", kernel_params={"gamma": 0.7}, n_components=10, random_state=0)),
        FOUR,
    ),
    Case("random Fourier features", lambda: scaled(RBFSampler(n_components=12, random_state=0), logistic()), FOUR),
    Case(
        "random Fourier features, scaled",
        lambda: scaled(RBFSampler(gamma="scale", n_components=5, random_state=0)),
        FOUR,
    ),
    Case("skewed chi2 features", lambda: positive(SkewedChi2Sampler(n_components=12, random_state=0)), FOUR),
    Case("additive chi2 features", lambda: positive(AdditiveChi2Sampler(), logistic()), FOUR),
    Case(
        "additive chi2 features, four steps",
        lambda: positive(AdditiveChi2Sampler(sample_steps=4, sample_interval=0.3)),
        FOUR,
    ),
    Case("additive chi2 features of zeros", lambda: AdditiveChi2Sampler(sample_steps=1), ("visits", "income")),
    Case("count sketch", lambda: scaled(PolynomialCountSketch(n_components=15, random_state=0), logistic()), FOUR),
    Case(
        "count sketch of degree 3",
        lambda: scaled(PolynomialCountSketch(gamma=0.5, degree=3, coef0=1.5, n_components=16, random_state=0)),
        FOUR,
    ),
]
