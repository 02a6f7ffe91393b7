"""Weights of the classes for a source that was fitted with some, or on rows that a sampler drew anew."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.errors import join_some, warn_caller
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets

MAX_ROWS_OF_ESTIMATE = 200_000
CALIBRATED_LINKS = ("sigmoid", "softmax")
"""Links of boosters and linear models: these predict the weighted frequencies of their own training rows."""


def source_class_weights(net: TranslatedPipeline, train: object, valid: object) -> Tensor | None:
    """The weights of the classes, float64 ``[K]``, with which the rows are as frequent as the source predicts.

    None for a source without class weights, with a warning where they cannot be found out. They follow from the
    training rows; if the source is a forest or the like, whose members do not fit all of these, from the validation
    rows, unless there are out-of-fold scores. ``train`` and ``valid`` are the loaders of a fit.
    """
    if not net.records.class_weights or not _has_probabilities(net, "fit"):
        return None
    if not (isinstance(train, EncodedRows) and isinstance(valid, EncodedRows)):
        _warn(net, "fit", "these rows are not in memory")
        return None
    fits_all = net.head.link in CALIBRATED_LINKS or train.scores is not None
    return balancing_weights(*_predicted(net, train if fits_all else valid))


def refresh_class_weights(net: TranslatedPipeline, new: LabelledRows) -> Tensor | None:
    """The weights of the classes of a refresh: those of the fit before, else those that follow from the new rows."""
    if not net.records.class_weights or not _has_probabilities(net, "refresh"):
        return None
    if net.history is not None and net.history.class_weights is not None:
        return torch.tensor([*net.history.class_weights.values()], dtype=torch.float64)
    return balancing_weights(torch.as_tensor(net.predict_proba(new.rows)), new.targets)


def _has_probabilities(net: TranslatedPipeline, method: str) -> bool:
    if net.head.has_several_targets or "predict_proba" not in net.head.methods:
        _warn(net, method, "the source has several targets, or predicts no probabilities of classes")
        return False
    return True


def _predicted(net: TranslatedPipeline, rows: EncodedRows) -> tuple[Tensor, Targets]:
    """Probabilities ``[N, K]``, out of fold where there are such scores, and the targets."""
    if rows.scores is not None and not isinstance(rows, LazilyEncodedRows):
        assert rows.target is not None
        return net.head.probabilities(rows.scores), Targets(rows.target, rows.weight)
    labelled = LabelledRows.of(rows.collect(MAX_ROWS_OF_ESTIMATE))
    return torch.as_tensor(net.predict_proba(labelled.rows)), labelled.targets


def balancing_weights(probabilities: Tensor, targets: Targets) -> Tensor:
    """The weights of K classes, float64 ``[K]``, with which classes are as frequent as they are predicted.

    Over rows with these weights, the sum of ``p[:, k]`` is that of ``target == k``, for every class k. So the weights
    of all rows of each class are the stationary distribution of P, where ``P[k, c]`` is the mean of ``p[:, k]`` over
    the rows of class c. The mean weight of a row is 1. Weights that rows have already are multiplied by those of their
    class. A class without rows has weight 1.

    Parameters
    ----------
    probabilities : Tensor
        ``[N, K]``
    targets : Targets
        Positions of classes, int64 ``[N]``, and maybe row weights ``[N]``.
    """
    count, target = probabilities.shape[1], targets.target.cpu()
    weight = torch.ones(len(target)) if targets.weight is None else targets.weight.cpu()
    of_class = torch.nn.functional.one_hot(target, count).double() * weight.double()[:, None]
    present = of_class.sum(dim=0) > 0
    totals = of_class.sum(dim=0)[present]
    means = (probabilities.double().cpu().T @ of_class)[present][:, present]
    means = means / means.sum(dim=0)
    size = len(totals)
    equations = torch.cat([means - torch.eye(size, dtype=torch.float64), torch.ones(1, size, dtype=torch.float64)])
    right = torch.zeros(size + 1, 1, dtype=torch.float64)
    right[-1] = totals.sum()
    solution = torch.linalg.lstsq(equations, right).solution[:, 0]
    weights = torch.ones(count, dtype=torch.float64)
    weights[present] = solution.clamp_min(0) / totals
    return weights


def named_weights(net: TranslatedPipeline, weights: Tensor | None) -> dict[str, float] | None:
    """The weights by the labels of their classes, for the history."""
    return None if weights is None else dict(zip(map(str, net.head.labels_in_order), weights.tolist(), strict=True))


def _warn(net: TranslatedPipeline, method: str, reason: str) -> None:
    warn_caller(
        f"the source has {join_some(net.records.class_weights)}, and {method} weighs the classes alike, as {reason}: "
        "scores move to the frequencies of the classes, and labels with them. Give the rows the weights of the source, "
        f"such as {method}((X, y, compute_sample_weight('balanced', y)))."
    )
