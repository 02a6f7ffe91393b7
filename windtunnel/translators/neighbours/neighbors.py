"""scikit-learn's nearest neighbours, nearest centroids and kernel densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn import neighbors
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.decompositions.densities import KernelSum
from windtunnel.modules.linear.discriminants import CentroidDiscriminants, CentroidOutput
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.neighbours.nearest_points import NearestPoint
from windtunnel.modules.neighbours.neighbour_votes import (
    NeighbourMeans,
    NeighbourVotes,
    VoteProbabilities,
    VotesByDistance,
)
from windtunnel.modules.neighbours.outlier_factor import OutlierFactor
from windtunnel.modules.neighbours.radius import RadiusNeighbors, RadiusNeighborsOrReject
from windtunnel.modules.outputs.class_outputs import LogSoftmax, ScoreDifference, Squeeze
from windtunnel.translators.arrays import dense, indices, tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.decomposition.decomposition import linear
from windtunnel.translators.neighbours.mixture import outlier_detector
from windtunnel.translators.registry import translates

ORDERS = {
    "euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "l1": 1.0, "cityblock": 1.0, "chebyshev": np.inf, "infinity": np.inf,
}  # fmt: skip
ACCEPTED = "euclidean, manhattan, chebyshev and minkowski (without w)"
HARD = "neighbourhood is a step function: exact mode only"


@translates(
    neighbors.KNeighborsClassifier,
    notes=f"weights uniform and distance; {ACCEPTED}, cosine; several targets; {HARD}",
    differentiable=False,
)
def k_neighbors_classifier(fitted: neighbors.KNeighborsClassifier) -> Predictor:
    """Votes of the nearest of _fit_X for their classes _y."""
    classes = fitted.classes_ if fitted.outputs_2d_ else [fitted.classes_]
    sizes = [len(labels) for labels in classes]
    targets = _one_hot(_targets(fitted), sizes)
    _check_duplicates(fitted, targets)
    search, weighted = _search(fitted), _weighted(fitted)
    # Brute force has no infinite distances.
    votes = VotesByDistance if weighted and fitted._tree is not None else NeighbourVotes
    scores = votes(**search, targets=tensor(targets), k=fitted.n_neighbors, weighted=weighted)
    return _voting(scores, sizes)


@translates(
    neighbors.KNeighborsRegressor,
    notes=f"weights uniform and distance; {ACCEPTED}, cosine; several targets; {HARD}",
    differentiable=False,
)
def k_neighbors_regressor(fitted: neighbors.KNeighborsRegressor) -> Predictor:
    """The (weighted) mean of the targets _y of the nearest of _fit_X."""
    targets = _targets(fitted).astype(np.float64)
    _check_duplicates(fitted, targets)
    scores = NeighbourMeans(
        **_search(fitted), targets=tensor(targets), k=fitted.n_neighbors, weighted=_weighted(fitted)
    )
    return Predictor(scores, loss="squared", flat=np.ndim(fitted._y) == 1)


@translates(
    neighbors.RadiusNeighborsClassifier, notes=f"weights uniform and distance; {ACCEPTED}; {HARD}", differentiable=False
)
def radius_neighbors_classifier(fitted: neighbors.RadiusNeighborsClassifier) -> Predictor:
    """Votes of those of _fit_X within the radius; rows without neighbours get outlier_label_, or are rejected."""
    several = bool(fitted.outputs_2d_)
    classes = fitted.classes_ if several else [fitted.classes_]
    sizes = [len(target_classes) for target_classes in classes]
    targets = _one_hot(_targets(fitted), sizes)
    alone: NDArray[np.float64] = np.full(sum(sizes), np.nan)
    labels: Any = None
    if fitted.outlier_label_ is not None:
        if fitted._fit_method == "brute" and fitted.weights == "uniform":
            raise UnsupportedEstimator(
                "RadiusNeighborsClassifier with outlier_label, algorithm='brute' and uniform weights, which "
                "scikit-learn compares with positions of labels; take algorithm='kd_tree' or 'ball_tree'."
            )
        pairs = zip(classes, fitted.outlier_label_, strict=True)
        positions = [np.flatnonzero(target_classes == label) for target_classes, label in pairs]
        if all(len(position) == 1 for position in positions):
            alone = _one_hot(np.array([[position[0] for position in positions]]), sizes)[0]
        elif several:
            raise UnsupportedEstimator(
                f"RadiusNeighborsClassifier with outlier_label={fitted.outlier_label!r} over several targets, not "
                "all of which have it among their classes; give labels that were fitted on."
            )
        else:
            # One more class, without a probability.
            outlier = np.array([fitted.outlier_label_[0]]).astype(classes[0].dtype)
            labels = np.concatenate([classes[0], outlier])
            targets = np.column_stack([targets, np.zeros(len(targets))])
            alone = np.eye(len(labels))[-1]
    return _voting(_within(fitted, targets, alone, mean=False), sizes, classes=labels)


@translates(
    neighbors.RadiusNeighborsRegressor,
    notes=f"weights uniform and distance; {ACCEPTED}; rows without neighbours (NaN) are rejected; {HARD}",
    differentiable=False,
)
def radius_neighbors_regressor(fitted: neighbors.RadiusNeighborsRegressor) -> Predictor:
    """The (weighted) mean of the targets _y of those of _fit_X within the radius."""
    targets = _targets(fitted).astype(np.float64)
    alone = np.full(targets.shape[1], np.nan)
    return Predictor(_within(fitted, targets, alone, mean=True), loss="squared", flat=np.ndim(fitted._y) == 1)


@translates(
    neighbors.LocalOutlierFactor, notes=f"with novelty=True; {ACCEPTED}; fine-tuning changes the steps before it"
)
def local_outlier_factor(fitted: neighbors.LocalOutlierFactor) -> Predictor:
    """-mean(_lrd of the neighbours / density) - offset_; an inlier (1) where it is not negative.

    Reads _fit_X, _distances_fit_X_, n_neighbors_ too.
    """
    if not fitted.novelty:
        raise UnsupportedEstimator(
            "LocalOutlierFactor with novelty=False predicts only for its training rows; fit it with novelty=True."
        )
    search = _search(fitted)
    if search["search"] == "cosine":
        raise UnsupportedEstimator(f"LocalOutlierFactor with metric='cosine'; accepted are {ACCEPTED}.")
    offset = tensor(fitted.offset_)
    scores = OutlierFactor(
        **search,
        density=tensor(fitted._lrd),
        reach=tensor(fitted._distances_fit_X_[:, fitted.n_neighbors_ - 1]),
        offset=offset,
        k=fitted.n_neighbors_,
    )
    return outlier_detector(scores, offset)


@translates(neighbors.NearestCentroid, trainable="centroids", notes="euclidean and manhattan")
def nearest_centroid(fitted: neighbors.NearestCentroid) -> Predictor:
    """The nearest of centroids_; with unequal class_prior_ the greatest discriminant (within_class_std_dev_)."""
    if fitted.metric not in ("euclidean", "manhattan"):
        raise UnsupportedEstimator(
            f"NearestCentroid with metric={fitted.metric!r}; accepted are 'euclidean' and 'manhattan'."
        )
    p = ORDERS[fitted.metric]
    binary = len(fitted.classes_) == 2
    centroids = tensor(fitted.centroids_)
    scale = tensor(np.where(fitted.within_class_std_dev_ == 0, 1.0, fitted.within_class_std_dev_))
    with np.errstate(divide="ignore"):  # a prior of 0
        log_prior = tensor(np.log(fitted.class_prior_))
    if not np.isclose(fitted.class_prior_, 1 / len(fitted.classes_)).all():
        methods: dict[str, Module] = {"predict_log_proba": LogSoftmax()}
        if binary:
            methods["decision_function"] = ScoreDifference()
        scores = CentroidDiscriminants(centroids, log_prior, scale, p)
        return Predictor(scores, link="softmax", loss="softmax", methods=methods)
    outputs = {
        "decision_function": "difference" if binary else "scores",
        "predict_proba": "probability",
        "predict_log_proba": "log probability",
    }
    return Predictor(
        NearestPoint(centroids, p, 2.0 if p == 2.0 else 1.0),
        link="softmax",
        loss="softmax",
        column_methods={
            method: CentroidOutput(centroids, log_prior, scale, output) for method, output in outputs.items()
        },
    )


@translates(neighbors.NeighborhoodComponentsAnalysis, trainable="directions")
def neighborhood_components(fitted: neighbors.NeighborhoodComponentsAnalysis) -> Linear:
    """X components_^T."""
    return linear(fitted.components_)


@translates(
    neighbors.KernelDensity,
    trainable="training rows",
    notes=f"the density itself; where it is low scikit-learn's sums over a tree lose digits; {ACCEPTED}; atol=rtol=0",
    exact=False,
)
def kernel_density(fitted: neighbors.KernelDensity) -> Predictor:
    """Log of the mean of kernels around the rows of tree_. Reads bandwidth_."""
    if fitted.atol or fitted.rtol:
        raise UnsupportedEstimator(
            f"KernelDensity with atol={fitted.atol!r}, rtol={fitted.rtol!r} gives approximations; fit it with both 0."
        )
    points = np.array(fitted.tree_.get_arrays()[0])
    weights = fitted.tree_.sample_weight
    weights = np.ones(len(points)) if weights is None else np.array(weights)
    # At distance 0 each kernel is 1, so the density of a single row gives the normalization.
    origin = np.zeros((1, points.shape[1]))
    single = neighbors.KernelDensity(kernel=fitted.kernel, bandwidth=fitted.bandwidth_).fit(origin)
    constant = float(single.score_samples(origin)[0]) - np.log(weights.sum())
    with np.errstate(divide="ignore"):
        log_weights = tensor(np.log(weights))
    order = _order(fitted, fitted.metric, fitted.metric_params or {}, 2.0)
    return Predictor(
        KernelSum(tensor(points), log_weights, tensor(constant), fitted.kernel, fitted.bandwidth_, order),
        methods={"score_samples": Squeeze()},
    )


def _voting(votes: Module, sizes: list[int], classes: Any = None) -> Predictor:
    """A classifier by votes; ``sizes`` are the numbers of classes of its targets."""
    methods = {"predict_proba": VoteProbabilities(sizes, sum(sizes))}
    return Predictor(votes, link="probabilities", loss="probabilities", classes=classes, methods=methods)


def _targets(fitted: Any) -> NDArray[Any]:
    """The targets of the rows, ``[rows, targets]``: values, or codes of classes."""
    return np.asarray(fitted._y).reshape(fitted._fit_X.shape[0], -1)


def _search(fitted: Any) -> dict[str, Any]:
    """Arguments of the search: the rows, the order in which it visits them, the bounds of its tree."""
    if sparse.issparse(fitted._fit_X):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} fitted on sparse rows, among which scikit-learn searches in another order "
            "if several are equally near; fit it on dense ones (OneHotEncoder(sparse_output=False), "
            "ColumnTransformer(..., sparse_threshold=0))."
        )
    points = _rows(fitted)
    count, width = points.shape
    if fitted._fit_method == "brute" and not _has_fixed_order(fitted):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} that searches by brute force in numbers of type {fitted._fit_X.dtype} with "
            f"metric={fitted.effective_metric_!r}, where rounding or a partition decides which of equally near rows "
            "counts; fit it on float64, or take algorithm='kd_tree' or 'ball_tree'."
        )
    arguments = {
        "points": tensor(points),
        "inorder": torch.arange(count),
        "leaf": torch.zeros(count, dtype=torch.int64),
        "low": torch.zeros((0, width), dtype=torch.float64),
        "high": torch.zeros((0, width), dtype=torch.float64),
        "search": "cosine" if fitted.effective_metric_ == "cosine" else fitted._fit_method,
        "p": 2.0,
    }
    if arguments["search"] != "cosine":
        arguments["p"] = _order(fitted, fitted.effective_metric_, fitted.effective_metric_params_, None)
    return arguments if fitted._tree is None else arguments | _tree(fitted)


def _has_fixed_order(fitted: Any) -> bool:
    """Whether brute force orders rows by distances in float64; of float32 it rounds all but euclidean ones."""
    metric, dtype = fitted.effective_metric_, fitted._fit_X.dtype
    return bool(metric == "cosine" or dtype == np.float64 or (metric == "euclidean" and dtype == np.float32))


def _tree(fitted: Any) -> dict[str, Tensor]:
    _, inorder, nodes, bounds = (np.array(array) for array in fitted._tree.get_arrays())
    count = len(nodes)
    leaves = range(count // 2, count)
    if [bool(flag) for flag in nodes["is_leaf"]] != [index in leaves for index in range(count)]:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with leaf_size={fitted.leaf_size}, whose tree has leaves on several levels; "
            "take a greater leaf_size, or algorithm='brute'."
        )
    leaf = np.zeros(len(inorder), dtype=np.int64)
    for number, index in enumerate(leaves):
        leaf[nodes["idx_start"][index] : nodes["idx_end"][index]] = number
    high = bounds[1] if len(bounds) == 2 else nodes["radius"][:, np.newaxis]
    return {"inorder": indices(inorder), "leaf": indices(leaf), "low": tensor(bounds[0]), "high": tensor(high)}


def _within(fitted: Any, targets: NDArray[Any], alone: NDArray[Any], mean: bool) -> RadiusNeighbors:
    order = _order(fitted, fitted.effective_metric_, fitted.effective_metric_params_, None)
    kind = RadiusNeighbors if mean or np.isfinite(alone).all() else RadiusNeighborsOrReject
    return kind(tensor(_rows(fitted)), tensor(targets), tensor(alone), fitted.radius, order, _weighted(fitted), mean)


def _rows(fitted: Any) -> NDArray[np.float64]:
    if fitted.effective_metric_ == "precomputed":
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with metric='precomputed' reads distances, not rows; accepted are {ACCEPTED}."
        )
    return dense(fitted._fit_X)


def _order(fitted: Any, metric: Any, options: dict[str, Any], otherwise: float | None) -> float:
    """The order of the norm of a metric."""
    if metric in ("minkowski", "p") and options.get("w") is None:
        order = options.get("p", otherwise)
        if order is not None and order >= 1:
            return float(order)
    if isinstance(metric, str) and metric in ORDERS and not options.get("w"):
        return float(ORDERS[metric])
    raise UnsupportedEstimator(
        f"{type(fitted).__name__} with metric={metric!r} {options or ''}".rstrip() + f"; accepted are {ACCEPTED}."
    )


def _weighted(fitted: Any) -> bool:
    if fitted.weights not in (None, "uniform", "distance"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with weights={fitted.weights!r}: custom functions cannot be translated; "
            "accepted are 'uniform' and 'distance'."
        )
    return bool(fitted.weights == "distance")


def _check_duplicates(fitted: Any, targets: NDArray[Any]) -> None:
    """Reject equally near rows with different targets if the search has no fixed order, as by brute force."""
    if fitted._fit_method != "brute":
        return
    points, cosine = _rows(fitted), fitted.effective_metric_ == "cosine"
    if cosine:
        size = np.linalg.norm(points, axis=1, keepdims=True)
        points = (points / np.where(size == 0, 1, size)).round(12)
    both = len(np.unique(np.column_stack([points, targets]), axis=0))
    if both != len(np.unique(points, axis=0)):
        equal, instead = "that are equal", "algorithm='kd_tree' or 'ball_tree'"
        if cosine:
            equal, instead = "of one direction", "Normalizer and the euclidean metric"
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} searches by brute force among rows {equal} and have different targets: which of "
            f"them scikit-learn takes depends on how many threads it runs; drop the duplicates, or take {instead}."
        )


def _one_hot(codes: NDArray[Any], sizes: list[int]) -> NDArray[np.float64]:
    return np.concatenate([np.eye(size)[codes[:, target]] for target, size in enumerate(sizes)], axis=1)
