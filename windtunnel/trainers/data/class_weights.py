"""Weights of the classes for a source that was fitted with some, or on rows that a sampler drew anew."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import join_some, warn_caller
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets

MAX_ROWS_OF_ESTIMATE = 200_000
UNTOLD = "the rows of some class get no probability of another class"
CALIBRATED_LINKS = ("sigmoid", "softmax")
"""Links of boosters and linear models, which predict how frequent the weighted classes of all training rows are."""
NO_PROBABILITIES = "the source has several targets, or predicts no probabilities of classes"


def source_class_weights(net: TranslatedPipeline, train: EncodedLoader, valid: EncodedLoader) -> Tensor | None:
    """The weights, float64 ``[K]``, with which the classes are as frequent as the source predicts.

    None for a source without class weights, and, with a warning, where they cannot be found out. They are

    1. those of the fit before, if there was one;
    2. for boosters and linear models, and where there are out-of-fold scores, those of the training rows;
    3. for forests and the like, whose members have not seen all training rows, those of the validation rows; or of the
       training rows, if the validation rows lack a class or do not tell.

    ``train`` and ``valid`` are the loaders of a fit.
    """
    if not _has_class_weights(net):
        return None
    if (weights := weights_of_last_fit(net)) is not None:
        return weights
    weight = train.weight if isinstance(train, EncodedRows) else None
    if not _has_probabilities(net):
        _warn(net, NO_PROBABILITIES, weight)
        return None
    if not (isinstance(train, EncodedRows) and isinstance(valid, EncodedRows)):
        _warn(net, "these rows are not in memory", weight)
        return None
    of_valid = net.head.link not in CALIBRATED_LINKS and train.scores is None and _has_classes_of(valid, train)
    for rows in (valid, train) if of_valid else (train,):
        if (weights := balancing_weights(*_predicted(net, rows))) is not None:
            return weights
    _warn(net, UNTOLD, weight)
    return None


def refresh_class_weights(net: TranslatedPipeline, rows: LabelledRows) -> Tensor | None:
    """The weights of the classes of a refresh: those of the fit before, if any; else those that follow from rows.

    These are old ones, if the refresh has some: classes may be more frequent in new ones.
    """
    if not _has_class_weights(net):
        return None
    if net.history is not None:
        return weights_of_last_fit(net)
    if not _has_probabilities(net):
        _warn(net, NO_PROBABILITIES, rows.targets.weight)
        return None
    weights = balancing_weights(torch.as_tensor(net.predict_proba(rows.rows)), rows.targets)
    if weights is None:
        _warn(net, UNTOLD, rows.targets.weight)
    return weights


def weights_of_last_fit(net: TranslatedPipeline) -> Tensor | None:
    """The weights of the classes that the history has, float64 ``[K]``; None without a fit, or without weights."""
    weights = None if net.history is None else net.history.class_weights
    return None if weights is None else torch.tensor([*weights.values()], dtype=torch.float64)


def _has_classes_of(rows: EncodedRows, others: EncodedRows) -> bool:
    """Whether rows have every class that others have."""
    assert rows.target is not None and others.target is not None
    return bool(torch.isin(others.target, rows.target).all())


def _has_class_weights(net: TranslatedPipeline) -> bool:
    return net.head.classes is not None and bool(net.records.class_weight_parameters)


def _has_probabilities(net: TranslatedPipeline) -> bool:
    return not net.head.has_several_targets and "predict_proba" in net.head.methods


def _predicted(net: TranslatedPipeline, rows: EncodedRows) -> tuple[Tensor, Targets]:
    """Probabilities ``[N, K]``, out of fold where there are such scores, and the targets."""
    if rows.scores is not None and not isinstance(rows, LazilyEncodedRows):
        assert rows.target is not None
        return net.head.probabilities(rows.scores), Targets(rows.target, rows.weight)
    labelled = LabelledRows.of(rows.collect(MAX_ROWS_OF_ESTIMATE))
    return torch.as_tensor(net.predict_proba(labelled.rows)), labelled.targets


def balancing_weights(probabilities: Tensor, targets: Targets) -> Tensor | None:
    """The weights of K classes, float64 ``[K]``, with which classes are as frequent as they are predicted.

    Over rows with these weights, the sum of ``p[:, k]`` is that of ``target == k``, for every class k. So the weights
    of all rows of each class are the stationary distribution of P, where ``P[k, c]`` is the mean of ``p[:, k]`` over
    the rows of class c. The mean weight of a row is 1. Weights that rows have already are multiplied by those of their
    class. A class without rows has weight 1. None where rows do not tell, as a class has no probability in the rows of
    the others.

    Parameters
    ----------
    probabilities : Tensor
        ``[N, K]``
    targets : Targets
        Positions of classes, int64 ``[N]``, and maybe row weights ``[N]``.
    """
    predicted, target = probabilities.cpu().double().numpy(), targets.target.cpu().numpy()
    weight = np.ones(len(target)) if targets.weight is None else targets.weight.cpu().double().numpy()
    classes = np.flatnonzero(np.bincount(target, weight, predicted.shape[1]) > 0)
    totals = np.bincount(target, weight)[classes]
    # Of each class, the sums of the probabilities of all classes over its rows.
    sums = np.stack([(predicted[target == at] * weight[target == at, None]).sum(axis=0)[classes] for at in classes])
    if not (sums.sum(axis=1) > 0).all():
        return None
    stationary = _stationary_distribution(sums / sums.sum(axis=1, keepdims=True))
    if stationary is None:
        return None
    weights = torch.ones(predicted.shape[1], dtype=torch.float64)
    weights[torch.from_numpy(classes)] = torch.from_numpy(stationary * totals.sum() / totals)
    return weights


def _stationary_distribution(transitions: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The distribution that a stochastic matrix with rows of sum 1 does not change; None if there are several.

    States are eliminated one by one without subtractions (Grassmann, Taksar and Heyman, Operations Research 1985), so
    that the same rows give the same bits.
    """
    rates = transitions.copy()
    for state in range(len(rates) - 1, 0, -1):
        leaving = rates[state, :state].sum()
        if leaving <= 0:
            return None
        rates[:state, state] /= leaving
        rates[:state, :state] += rates[:state, state, None] * rates[state, :state]
    visits = np.ones(len(rates))
    for state in range(1, len(rates)):
        visits[state] = (visits[:state] * rates[:state, state]).sum()
    return visits / visits.sum() if (visits > 0).all() else None


def named_weights(net: TranslatedPipeline, weights: Tensor | None) -> dict[str, float] | None:
    """The weights by the labels of their classes, for the history."""
    return None if weights is None else dict(zip(map(str, net.head.labels_in_order), weights.tolist(), strict=True))


def _warn(net: TranslatedPipeline, reason: str, weight: Tensor | None) -> None:
    """Warn that the classes are weighed alike; not if row weights differ from 1, which may be those of the classes."""
    if weight is None or bool((weight == 1).all()):
        warn_caller(
            f"the source has {join_some(net.records.class_weight_parameters)}, and the classes are weighed alike, as "
            f"{reason}: scores move to the frequencies of the classes, and labels with them. Give the rows the weights "
            "of the source, such as (X, y, compute_sample_weight('balanced', y))."
        )
