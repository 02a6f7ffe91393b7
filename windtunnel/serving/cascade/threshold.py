"""From which confidence on the small model's prediction is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10)) + (0.97, 0.98, 0.99, 0.995, 0.999)
"""A coarse grid, so that the choice does not fit the noise of the validation rows."""
NEVER = 2.0
"""Above every confidence: the full model predicts all rows."""


@dataclass(frozen=True)
class Threshold:
    """A confidence, and what it did on the validation rows.

    Attributes
    ----------
    confidence : float
        A row whose largest probability by the small model is at least this is settled by the small model.
    early : float
        The share of rows that the small model settles.
    accuracy, full_accuracy : float
        Of the cascade, and of the full model, on the half of the rows that checked the choice.
    standard_error : float
        Of the difference of the two.
    """

    confidence: float
    early: float
    accuracy: float
    full_accuracy: float
    standard_error: float


def choose_threshold(
    small: NDArray[np.float64], full: NDArray[np.float64], correct: NDArray[np.intp], accuracy_loss: float, seed: int
) -> Threshold:
    """The lowest confidence that keeps the accuracy on each half of the rows, as all higher ones do.

    Without the last condition, the choice would fall on a dip of the loss that other rows do not have.

    Parameters
    ----------
    small, full : ndarray
        Probabilities ``[rows, classes]``.
    correct : ndarray
        The position of the right class of each row.
    accuracy_loss : float
        How much lower than the full model's the accuracy may be.
    """
    half = np.random.default_rng(seed).permutation(len(correct)) % 2 == 0
    confidence = small.max(axis=1)
    lost = (full.argmax(axis=1) == correct).astype(float) - (small.argmax(axis=1) == correct)
    threshold = NEVER
    for lower in reversed(THRESHOLDS):
        change = np.where(confidence >= lower, lost, 0.0)
        if max(change[half].mean(), change[~half].mean()) > accuracy_loss:
            break
        threshold = lower
    early = confidence >= threshold
    checked = np.where(early, lost, 0.0)[~half]
    full_accuracy = float((full.argmax(axis=1) == correct)[~half].mean())
    return Threshold(
        threshold,
        float(early.mean()),
        full_accuracy - float(checked.mean()),
        full_accuracy,
        float(checked.std(ddof=1) / np.sqrt(len(checked))),
    )


def class_positions(classes: Any, target: Any) -> NDArray[np.intp]:
    """The position of each label among the classes, -1 for a label that is none of them."""
    places = {label: place for place, label in enumerate(np.asarray(classes).tolist())}
    return np.array([places.get(label, -1) for label in np.asarray(target).tolist()], dtype=np.intp)
