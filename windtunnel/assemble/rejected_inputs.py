"""Which numbers a fitted step of the source rejects: the step itself is asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

ODD = {"nan": np.nan, "inf": np.inf, "huge": 1e39}
"""What a step is shown; "huge" is finite, and beyond float32."""
METHODS = ("predict", "transform", "decision_function", "score_samples")


def rejections(estimator: Any, width: int, asked: Sequence[str] = METHODS) -> tuple[str, ...]:
    """The kinds of ``ODD`` on which a method raises; of one that does not take zeros either nothing is learned.

    Parameters
    ----------
    estimator : fitted estimator
        Left untouched.
    width : int
        How many columns it reads.
    asked : sequence of str
        The methods.
    """
    if not width:
        return ()
    methods = [name for name in asked if hasattr(estimator, name) and not _raises(estimator, name, width, 0.0)]
    # Most methods share their checks; the decision function of a few (NearestCentroid) is stricter than predict.
    return tuple(kind for kind, value in ODD.items() if any(_raises(estimator, m, width, value) for m in methods))


def _raises(estimator: Any, method: str, width: int, value: float) -> bool:
    names = getattr(estimator, "feature_names_in_", None)
    rows: Any = np.zeros((2, width))
    rows[0] = value
    if names is not None and len(names) == width:
        rows = pd.DataFrame(rows, columns=names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            getattr(estimator, method)(rows)
        except Exception:  # libraries have errors of their own
            return True
    return False
