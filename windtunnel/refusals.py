"""Which numbers a fitted step of the source refuses: the step itself is asked."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

ODD = {"nan": np.nan, "inf": np.inf, "huge": 1e39}
"""What a step is shown; "huge" is finite, and beyond float32."""
METHODS = ("predict", "transform")


def refusals(estimator: Any, width: int) -> tuple[str, ...]:
    """The kinds of ``ODD`` on which ``predict`` (or ``transform``) raises; none where it does not take zeros either.

    Parameters
    ----------
    estimator : fitted estimator
        Left untouched.
    width : int
        How many columns it reads.
    """
    method = next((name for name in METHODS if hasattr(estimator, name)), None)
    if method is None or not width or _raises(estimator, method, width, 0.0):
        return ()
    return tuple(kind for kind, value in ODD.items() if _raises(estimator, method, width, value))


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
