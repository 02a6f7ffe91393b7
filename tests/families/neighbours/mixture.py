"""Mixtures of normal distributions, and the elliptic envelope."""

from __future__ import annotations

from case import NUMBERS, Case, scaled
from sklearn.covariance import EllipticEnvelope
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

INCOMES = "in float32 the difference of incomes is squared over variances of a few"

CASES = [
    *(
        Case(
            f"mixture, {kind}",
            lambda kind=kind: scaled(GaussianMixture(3, covariance_type=kind, random_state=0)),
            NUMBERS,
        )
        for kind in ("full", "tied", "diag", "spherical")
    ),
    *(
        Case(
            f"Bayesian mixture, {kind}",
            lambda kind=kind: scaled(
                BayesianGaussianMixture(n_components=3, covariance_type=kind, random_state=0, max_iter=500)
            ),
            NUMBERS,
        )
        for kind in ("full", "tied", "diag", "spherical")
    ),
    Case(
        "Bayesian mixture, Dirichlet",
        lambda: scaled(
            BayesianGaussianMixture(
                n_components=2, weight_concentration_prior_type="dirichlet_distribution", random_state=0, max_iter=500
            )
        ),
        NUMBERS,
    ),
    Case("mixture of one", lambda: scaled(GaussianMixture(1)), NUMBERS),
    Case("mixture on raw incomes", lambda: GaussianMixture(2, random_state=0), NUMBERS, coarse=1e-3, why=INCOMES),
    Case("elliptic envelope", lambda: scaled(EllipticEnvelope(random_state=0, support_fraction=0.9)), NUMBERS),
]
