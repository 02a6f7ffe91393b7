"""The confidence from which on the small model predicts a row alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from windtunnel.program.records.number_text import estimate_text, value_text

THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10)) + (0.97, 0.98, 0.99, 0.995, 0.999)
"""A coarse grid, so that the choice does not fit the noise of the validation rows."""
NEVER = 2.0
"""Above every confidence: the full model predicts all rows."""
QUANTILE = 1.645
"""The 95 % quantile of the normal distribution."""


KeptMetric = Literal["accuracy", "auroc"]


@dataclass(frozen=True)
class Threshold:
    """A confidence, and what it did on the validation rows.

    Attributes
    ----------
    confidence : float
        A row whose largest probability by the small model is at least this is predicted by the small model alone.
    early : float
        The fraction of rows that the small model predicts alone.
    metric : str
    value, full_value : float
        The metric of the cascade, and of the full model.
    standard_error : float
        Standard error of the difference of the two.
    allowed : float
        The ``accuracy_loss`` of ``windtunnel.cascade``.
    rows : int
        The number of validation rows.
    """

    confidence: float
    early: float
    metric: KeptMetric
    value: float
    full_value: float
    standard_error: float
    allowed: float
    rows: int

    @property
    def full_model_only(self) -> bool:
        """Whether the full model predicts all rows."""
        return self.confidence == NEVER

    def report(self) -> list[str]:
        """Lines of text: the rows that the small model predicts alone, and the metric."""
        if self.full_model_only:
            return [
                f"the full model predicts all rows: on {self.rows} validation rows, no confidence of the small model "
                f"keeps the drop of {self.metric} within {self.allowed:g} with 95 % confidence. Give more validation "
                "rows, or a larger accuracy_loss."
            ]
        return [
            f"predicted by the small model: {self.early:.1%} of the {self.rows} validation rows, from confidence "
            f"{self.confidence:g} on",
            f"{self.metric} {value_text(self.value)}, full model {value_text(self.full_value)} (difference "
            f"{estimate_text(self.value - self.full_value, self.standard_error)}); with 95 % confidence, at most "
            f"{self.allowed:g} is lost",
        ]


@dataclass(frozen=True)
class Drop:
    """How much lower a metric of the cascade is than that of the full model."""

    full_metric: float  # of the full model
    drop: float
    standard_error: float
    upper: float  # the upper end of the one-sided interval of 95 %


def choose_threshold(
    small: NDArray[np.float64],
    full: NDArray[np.float64],
    correct: NDArray[np.intp],
    accuracy_loss: float,
    metric: KeptMetric = "accuracy",
) -> Threshold:
    """The lowest confidence at which the drop of a metric is within ``accuracy_loss``, with 95 % confidence.

    The confidences are tested from the highest one down, and the first that fails ends the search. Therefore the whole
    search is wrong no more often than a single test.

    Parameters
    ----------
    small, full : ndarray
        Probabilities ``[rows, classes]``, of rows that neither model was fitted on.
    correct : ndarray
        The position of the right class of each row.
    accuracy_loss : float
        How much lower than the full model's the metric may be.
    metric : str
        "accuracy"; or "auroc", of the last of two classes.

    Source
    ------
    Angelopoulos et al., Learn then Test: calibrating predictive algorithms to achieve risk control, 2021 (tests in a
    fixed sequence).
    """
    drop_of = DROPS[metric]
    confidence, threshold, drop = small.max(axis=1), NEVER, drop_of(full, full, correct)
    for lower in reversed(THRESHOLDS):
        cascade = np.where((confidence >= lower)[:, None], small, full)
        larger_drop = drop_of(full, cascade, correct)
        if not larger_drop.upper <= accuracy_loss:  # NaN where a class has a single row
            break
        threshold, drop = lower, larger_drop
    return Threshold(
        threshold,
        float((confidence >= threshold).mean()),
        metric,
        drop.full_metric - drop.drop,
        drop.full_metric,
        drop.standard_error,
        accuracy_loss,
        len(correct),
    )


def drop_of_accuracy(full: NDArray[np.float64], cascade: NDArray[np.float64], correct: NDArray[np.intp]) -> Drop:
    """The drop of accuracy.

    The drop of a row is 1 where only the full model is right, -1 where only the cascade is, and 0 elsewhere. With n
    rows, of which d have a drop other than 0, and z = 1.645, the upper end is::

        (sum of drops + z^2 / 2 + z sqrt(d + z^2 / 4)) / n

    So even without any drop, z^2 / accuracy_loss rows are needed: 2,706 for 0.001.

    Source
    ------
    Wilson, Probable inference, the law of succession, and statistical inference, 1927 (score interval, here of a
    Poisson count).
    """
    full_correct = full.argmax(axis=1) == correct
    drops = full_correct.astype(float) - (cascade.argmax(axis=1) == correct)
    differing = np.count_nonzero(drops)
    upper = drops.sum() + QUANTILE**2 / 2 + QUANTILE * np.sqrt(differing + QUANTILE**2 / 4)
    error = drops.std(ddof=1) / np.sqrt(len(drops))
    return Drop(float(full_correct.mean()), float(drops.mean()), float(error), float(upper) / len(drops))


def drop_of_auroc(full: NDArray[np.float64], cascade: NDArray[np.float64], correct: NDArray[np.intp]) -> Drop:
    """The drop of the area under the ROC curve; the upper end is 1.645 standard errors above it.

    Source
    ------
    DeLong et al., Comparing the areas under two or more correlated receiver operating characteristic curves, 1988.
    """
    positive = correct == 1
    (full_up, full_down), (up, down) = (
        _fractions_below_and_above(scores[:, 1], positive) for scores in (full, cascade)
    )
    error = float(np.sqrt(_squared_error(full_up - up) + _squared_error(full_down - down)))
    drop = float(full_up.mean() - up.mean())
    return Drop(float(full_up.mean()), drop, error, drop + QUANTILE * error)


DROPS: dict[KeptMetric, Callable[..., Drop]] = {"accuracy": drop_of_accuracy, "auroc": drop_of_auroc}


def _fractions_below_and_above(
    scores: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The fraction of negative rows below each positive row, and of positive rows above each negative one."""
    ranks, count = rankdata(scores), np.count_nonzero(positive)
    below = (ranks[positive] - rankdata(scores[positive])) / (len(scores) - count)
    above = 1 - (ranks[~positive] - rankdata(scores[~positive])) / count
    return below, above


def _squared_error(values: NDArray[np.float64]) -> float:
    """The squared standard error of the mean; NaN for a single value, which has none."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else float("nan")
