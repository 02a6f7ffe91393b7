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
QUANTILE = 1.645
"""Of the normal distribution, 95 %."""


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
        Of the cascade, and of the full model.
    standard_error : float
        Of the difference of the two.
    allowed : float
        ``accuracy_loss``.
    rows : int
        The number of validation rows.
    """

    confidence: float
    early: float
    accuracy: float
    full_accuracy: float
    standard_error: float
    allowed: float
    rows: int

    @property
    def settles_none(self) -> bool:
        """Whether the full model predicts all rows."""
        return self.confidence == NEVER

    def report(self) -> list[str]:
        """Lines of text: the rows that the small model settles, and the accuracy."""
        if self.settles_none:
            return [
                f"the full model predicts all rows: on {self.rows} validation rows, no confidence of the small model "
                f"keeps the loss of accuracy within {self.allowed:g} with 95 % confidence. Give more validation rows, "
                "or a larger accuracy_loss."
            ]
        return [
            f"settled by the small model: {self.early:.1%} of the {self.rows} validation rows, from confidence "
            f"{self.confidence:g} on",
            f"accuracy {self.accuracy:.4f}, full model {self.full_accuracy:.4f} (difference "
            f"{self.accuracy - self.full_accuracy:+.4f} ± {self.standard_error:.4f}); with 95 % confidence, at most "
            f"{self.allowed:g} is lost",
        ]


def choose_threshold(
    small: NDArray[np.float64], full: NDArray[np.float64], correct: NDArray[np.intp], accuracy_loss: float
) -> Threshold:
    """The lowest confidence at which the loss of accuracy is within ``accuracy_loss``, with 95 % confidence.

    The confidences are tested from the highest one down, and the first that fails ends the search. Therefore the whole
    search is wrong no more often than a single test. The loss of a row is 1 where only the full model is right, -1
    where only the small model is, and 0 elsewhere. With n rows, of which d have a loss other than 0, a confidence
    passes if the upper end of the score interval is within the allowed loss, z = 1.645::

        (sum of losses + z^2 / 2 + z sqrt(d + z^2 / 4)) / n <= accuracy_loss

    So even without any loss, z^2 / accuracy_loss rows are needed: 2,706 for 0.001.

    Parameters
    ----------
    small, full : ndarray
        Probabilities ``[rows, classes]``, of rows that neither model was fitted on.
    correct : ndarray
        The position of the right class of each row.
    accuracy_loss : float
        How much lower than the full model's the accuracy may be.

    Source
    ------
    Angelopoulos et al., Learn then Test: calibrating predictive algorithms to achieve risk control, 2021 (tests in a
    fixed sequence). Wilson, Probable inference, the law of succession, and statistical inference, 1927 (score interval,
    here of a Poisson count).
    """
    confidence = small.max(axis=1)
    full_correct = full.argmax(axis=1) == correct
    losses = full_correct.astype(float) - (small.argmax(axis=1) == correct)
    threshold = NEVER
    for lower in reversed(THRESHOLDS):
        if _largest_loss(np.where(confidence >= lower, losses, 0.0)) > accuracy_loss:
            break
        threshold = lower
    early = confidence >= threshold
    settled = np.where(early, losses, 0.0)
    accuracy = float(full_correct.mean())
    return Threshold(
        threshold,
        float(early.mean()),
        accuracy - float(settled.mean()),
        accuracy,
        float(settled.std(ddof=1) / np.sqrt(len(settled))),
        accuracy_loss,
        len(correct),
    )


def _largest_loss(losses: NDArray[np.float64]) -> float:
    """The upper end of the one-sided interval of the mean of losses of -1, 0 and 1."""
    differing = np.count_nonzero(losses)
    upper = losses.sum() + QUANTILE**2 / 2 + QUANTILE * np.sqrt(differing + QUANTILE**2 / 4)
    return float(upper) / len(losses)


def class_positions(classes: Any, target: Any) -> NDArray[np.intp]:
    """The position of each label among the classes, -1 for a label that is none of them."""
    places = {label: place for place, label in enumerate(np.asarray(classes).tolist())}
    return np.array([places.get(label, -1) for label in np.asarray(target).tolist()], dtype=np.intp)
