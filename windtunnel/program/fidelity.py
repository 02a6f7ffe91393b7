"""How near a translation is to its source, in the source's own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from windtunnel.api.translation import Translation
    from windtunnel.encode import Batch

ANSWERS = ("predict_proba", "decision_function", "predict", "transform", "score_samples")


def variance_kept(ours: Tensor, theirs: Tensor) -> float:
    """R squared of one set of answers ``[B, K]`` against another, 1 where there is nothing to explain and no error."""
    known = torch.isfinite(theirs)
    if ours.shape != theirs.shape or not torch.equal(known, torch.isfinite(ours)):
        return 0.0
    # The outputs of a transformer may be missing.
    ours, theirs = torch.where(known, ours, 0).double(), torch.where(known, theirs, 0).double()
    error = float(((ours - theirs) ** 2).sum())
    total = float(((theirs - theirs.mean(dim=0)) ** 2).sum())
    # What is rounding and not variance: answers that are the same for all rows.
    some = total > 1e-20 * float((theirs**2).sum())
    return 1.0 - error / total if some else float(error < 1e-8)


def measure(net: Translation, batch: Batch, source: Any, rows: Any) -> dict[str, float]:
    """R squared of a translation's answers on an encoded batch against those of the source itself on the same rows.

    The calibration rows have placed the thresholds and set the temperatures of soft trees; on rows that had no part in
    that it is lower, the more so the fewer they are.

    Answers are probabilities where the source gives them, else decision values, predictions or transformed columns.

    Returns
    -------
    dict
        ``rows``, how many there were, and ``r2``.
    """
    method = next(name for name in ANSWERS if name in net.head.methods)
    ours, theirs = _array(getattr(net, method)(batch)), _array(getattr(source, method)(rows))
    if theirs.dtype.kind not in "biuf":  # labels as their positions among all that there are
        known = np.unique(np.concatenate([ours, theirs]))
        ours, theirs = np.searchsorted(known, ours), np.searchsorted(known, theirs)
    return {"rows": float(len(theirs)), "r2": variance_kept(_columns(ours), _columns(theirs))}


def _array(given: Any) -> NDArray[Any]:
    """An answer with one row per row; those for several targets side by side."""
    if isinstance(given, list):
        return np.concatenate(given, axis=1)
    return np.asarray(given.toarray() if hasattr(given, "toarray") else given)


def _columns(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.reshape(len(array), -1).astype(np.float64))
