"""The rows with the highest scores, and how good an approximation of them is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TopK:
    """The rows with the highest scores.

    Attributes
    ----------
    rows : ndarray
        Their positions, the highest score first, int64 ``[k]``.
    scores : ndarray
        Their scores by the full model, ``[k]``.
    ranked : int
        How many rows the full model scored.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    ranked: int


@dataclass(frozen=True)
class TopKQuality:
    """How near the rows that ``top_k`` selects come to those that the full model alone would select.

    Attributes
    ----------
    k, ranked : int
        See ``Cascade.top_k`` and ``TopK``.
    precision : float
        The share of the selected rows that are among the true ones.
    mean_average_precision : float
        The mean over i = 1 ... k of the share of the first i selected rows that are among the first i true ones, so
        that a row that is missing moves all below it. The paper does not define its own.
    average_value, full_average_value : float
        The mean score by the full model of the selected rows, and of the true ones.
    """

    k: int
    ranked: int
    precision: float
    mean_average_precision: float
    average_value: float
    full_average_value: float


def top_k_quality(selected: TopK, scores: NDArray[np.float64]) -> TopKQuality:
    """The quality of selected rows, by the full model's scores of all rows ``[B]``.

    Source
    ------
    Kraft et al., Willump, MLSys 2020, section 6.3.
    """
    k = len(selected.rows)
    true = np.argsort(-scores, kind="stable")[:k]
    precisions = [len(np.intersect1d(selected.rows[:first], true[:first])) / first for first in range(1, k + 1)]
    return TopKQuality(
        k,
        selected.ranked,
        precisions[-1],
        float(np.mean(precisions)),
        float(scores[selected.rows].mean()),
        float(scores[true].mean()),
    )
