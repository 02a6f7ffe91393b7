"""The numbers that a fitted step of the source rejects: the step itself is probed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from windtunnel.encode.labels import labels_index

PROBE_VALUES = {"nan": np.nan, "inf": np.inf, "huge": 1e39}
"""The probe inputs; "huge" is finite, and beyond float32."""
PROBED_METHODS = ("predict", "transform", "decision_function", "score_samples")


def rejected_inputs(estimator: Any, width: int, methods: Sequence[str] = PROBED_METHODS) -> tuple[str, ...]:
    """The kinds of ``PROBE_VALUES`` on which a method raises; none of a method that raises on zeros too.

    The estimator, which has ``width`` input columns, is left untouched.
    """
    if not width:
        return ()
    probed = [name for name in methods if hasattr(estimator, name) and not _raises(estimator, name, width, 0.0)]
    # Most methods share their checks; the decision function of a few (NearestCentroid) is stricter than predict.
    return tuple(
        kind for kind, value in PROBE_VALUES.items() if any(_raises(estimator, name, width, value) for name in probed)
    )


def _raises(estimator: Any, method: str, width: int, value: float) -> bool:
    names = getattr(estimator, "feature_names_in_", None)
    rows: Any = np.zeros((2, width))
    rows[0] = value
    if names is not None and len(names) == width:
        rows = pd.DataFrame(rows, columns=labels_index(names))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            getattr(estimator, method)(rows)
        except Exception:  # libraries have errors of their own
            return True
    return False
