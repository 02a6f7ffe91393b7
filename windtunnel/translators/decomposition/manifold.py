"""scikit-learn's embeddings of manifolds that take new rows."""

from __future__ import annotations

import math
from typing import Any

from sklearn import manifold

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.neighbours.manifold import Barycenters, Geodesics
from windtunnel.translators.arrays import tensor
from windtunnel.translators.decomposition.kernel_pca import centred
from windtunnel.translators.registry import translates

TIES = "the first of equally near points count"


@translates(manifold.Isomap, trainable="weights, bias", notes=f"Minkowski metrics, neighbours by number; {TIES}")
def isomap(fitted: manifold.Isomap) -> Geodesics:
    """The projection (kernel_pca_) of -1/2 of the squared geodesic distances. Reads dist_matrix_ and nbrs_."""
    neighbours = fitted.nbrs_
    if neighbours.n_neighbors is None:
        raise UnsupportedEstimator("Isomap with radius= links a row to any number of points; fit it with n_neighbors=.")
    weight, bias = centred(fitted.kernel_pca_)
    return Geodesics(
        tensor(neighbours._fit_X),
        tensor(fitted.dist_matrix_),
        tensor(weight),
        tensor(bias),
        neighbours=neighbours.n_neighbors,
        norm=_norm(neighbours),
    )


@translates(manifold.LocallyLinearEmbedding, trainable="places of the points", notes=TIES)
def locally_linear_embedding(fitted: manifold.LocallyLinearEmbedding) -> Barycenters:
    """The places (embedding_) of the nearest points, weighted as they make up the row. Reads nbrs_ and reg."""
    return Barycenters(tensor(fitted.nbrs_._fit_X), tensor(fitted.embedding_), fitted.n_neighbors, fitted.reg)


def _norm(neighbours: Any) -> float:
    """The p of a Minkowski distance."""
    metric, options = neighbours.effective_metric_, neighbours.effective_metric_params_
    norms = {"euclidean": 2.0, "manhattan": 1.0, "chebyshev": math.inf, "minkowski": options.get("p", 2.0)}
    if metric not in norms or options.get("w") is not None:
        raise UnsupportedEstimator(
            f"{metric!r} distances have no translation here; fit it with metric 'minkowski', unweighted."
        )
    return float(norms[metric])
