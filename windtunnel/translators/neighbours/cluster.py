"""scikit-learn's clusterings."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import cluster

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.pooling import PooledGroups
from windtunnel.modules.neighbours.nearest_points import (
    BisectingCenters,
    Distances,
    DistancesFromScores,
    NearestGroup,
    NearestPoint,
)
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.decomposition.decomposition import linear
from windtunnel.translators.registry import translates

TRAINABLE = "centres"
NOTES = "raw scores are negative squared distances, so that their softmax is the soft form of predict"


@translates(cluster.KMeans, cluster.MiniBatchKMeans, trainable=TRAINABLE, notes=NOTES)
def k_means(fitted: cluster.KMeans | cluster.MiniBatchKMeans) -> Predictor:
    """The nearest of cluster_centers_; transform gives the distances to them."""
    return _nearest(fitted.cluster_centers_, np.int32, {"transform": DistancesFromScores()})


@translates(
    cluster.BisectingKMeans,
    trainable=TRAINABLE,
    notes="raw scores are the smallest margin on the path to a leaf of the tree of bisections",
)
def bisecting_k_means(fitted: cluster.BisectingKMeans) -> Predictor:
    """The leaf of _bisecting_tree of the nearer centre at each split; transform as in KMeans."""
    centers = np.asarray(fitted.cluster_centers_, dtype=np.float64)
    if len(centers) == 1:
        return _nearest(centers, np.int32, {"transform": DistancesFromScores()})
    mean = getattr(fitted, "_X_mean", 0.0)
    left: list[Any] = []
    right: list[Any] = []
    path = np.zeros((len(centers), len(centers) - 1))

    def visit(node: Any, above: list[tuple[int, int]]) -> None:
        if node.left is None:
            for index, side in above:
                path[node.label, index] = side
            return
        index = len(left)
        left.append(node.left.center + mean)
        right.append(node.right.center + mean)
        visit(node.left, [*above, (index, 1)])
        visit(node.right, [*above, (index, -1)])

    visit(fitted._bisecting_tree, [])
    return Predictor(
        BisectingCenters(tensor(left), tensor(right), tensor(path)),
        link="softmax",
        loss="softmax",
        classes=np.arange(len(centers), dtype=np.int32),
        column_methods={"transform": Distances(tensor(centers))},
    )


@translates(cluster.MeanShift, trainable=TRAINABLE, notes=NOTES)
def mean_shift(fitted: cluster.MeanShift) -> Predictor:
    """The nearest of cluster_centers_."""
    return _nearest(fitted.cluster_centers_, np.intp, {})


@translates(cluster.AffinityPropagation, trainable=TRAINABLE, notes=NOTES)
def affinity_propagation(fitted: cluster.AffinityPropagation) -> Predictor:
    """The nearest of cluster_centers_."""
    if not hasattr(fitted, "cluster_centers_"):
        raise UnsupportedEstimator("AffinityPropagation with affinity='precomputed' has no centres and no predict.")
    if len(fitted.cluster_centers_) == 0:
        raise UnsupportedEstimator(
            "AffinityPropagation did not converge: it has no centres and predicts -1. Raise max_iter or damping."
        )
    return _nearest(fitted.cluster_centers_, np.intp, {})


@translates(
    cluster.Birch,
    trainable=TRAINABLE,
    notes="raw scores are negative squared distances to the nearest subcluster of each cluster",
)
def birch(fitted: cluster.Birch) -> Predictor:
    """The label of the nearest of subcluster_centers_ (subcluster_labels_); transform gives the distances to all."""
    classes, group = np.unique(fitted.subcluster_labels_, return_inverse=True)
    points = tensor(fitted.subcluster_centers_)
    return Predictor(
        NearestGroup(points, indices(group), len(classes)),
        link="softmax",
        loss="softmax",
        classes=classes,
        column_methods={"transform": Distances(points)},
    )


POOLING = {np.max: "max", np.amax: "max", np.min: "min", np.amin: "min", np.median: "median", np.sum: "sum"}


@translates(
    cluster.FeatureAgglomeration,
    trainable="weights, with mean and sum",
    notes="pooling_func np.mean, np.sum, np.max, np.min and np.median",
)
def feature_agglomeration(fitted: cluster.FeatureAgglomeration) -> Module:
    """The columns of each of labels_, pooled."""
    labels = np.asarray(fitted.labels_)
    member = (labels == np.unique(labels)[:, np.newaxis]).astype(np.float64)
    if fitted.pooling_func is np.mean:
        member /= member.sum(axis=1, keepdims=True)
    elif fitted.pooling_func not in POOLING:
        raise UnsupportedEstimator(
            f"FeatureAgglomeration with pooling_func={fitted.pooling_func!r}: custom functions cannot be translated; "
            "accepted are np.mean, np.sum, np.max, np.min and np.median."
        )
    elif (kind := POOLING[fitted.pooling_func]) != "sum":
        return PooledGroups(indices(labels), len(member), kind)
    return linear(member)


def _nearest(centers: Any, dtype: Any, methods: dict[str, Module]) -> Predictor:
    return Predictor(
        NearestPoint(tensor(centers)),
        link="softmax",
        loss="softmax",
        classes=np.arange(len(centers), dtype=dtype),
        methods=methods,
    )
