"""The calibration before and after a fit, for its history."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from windtunnel.program.records.fit_details import Calibration, Reliability
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.labelled_rows import LabelledRows

BINS = 10


def reliability(net: TranslatedPipeline, labelled: LabelledRows, scores: Tensor | None = None) -> Reliability | None:
    """Predicted and observed frequencies; None unless the source predicts probabilities of classes of one target.

    ``scores`` are raw scores of the rows, ``[N, K]``, in the place of those of the translation.
    """
    head = net.head
    if head.has_several_targets or len(head.labels_in_order) < 2 or "predict_proba" not in head.methods:
        return None
    target = labelled.targets.target.cpu().numpy()
    probabilities = net.predict_proba(labelled.rows) if scores is None else net.head.probabilities(scores).numpy()
    if probabilities.shape[1] == 2:
        predicted, hit = probabilities[:, 1], target == 1
    else:
        predicted, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == target
    row_weight = labelled.targets.weight
    weight = np.ones(len(hit)) if row_weight is None else row_weight.cpu().double().numpy()
    place = np.clip((predicted * BINS).astype(int), 0, BINS - 1)
    sums = np.bincount(place, weight, BINS)
    full = sums > 0
    means = [np.bincount(place, weight * values, BINS)[full] / sums[full] for values in (predicted, hit)]
    return Reliability(*(tuple(map(float, part)) for part in (*means, sums[full] / sums.sum())))


def calibration(
    before: Reliability | None, net: TranslatedPipeline, rows: LabelledRows | None, scores: Tensor | None = None
) -> Calibration | None:
    """The calibration before training and after it; None without rows, or if the source predicts no probabilities.

    ``scores``: see ``reliability``.
    """
    if before is None or rows is None or (after := reliability(net, rows, scores)) is None:
        return None
    return Calibration(before, after, len(rows))
