"""How close the outputs of a translation are to those of its source pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

OUTPUT_METHODS = ("predict_proba", "decision_function", "predict", "transform", "score_samples")
"""The methods to compare, the most informative first."""


@dataclass(frozen=True)
class Fidelity:
    """R squared of a translation's outputs against those of the source pipeline, before training.

    The calibration rows also placed the thresholds and set the temperatures of soft trees. On other rows R squared is
    lower, the more so the fewer calibration rows there were.

    Attributes
    ----------
    rows : int
        Calibration rows.
    r2 : float
    """

    rows: int
    r2: float

    @classmethod
    def between(cls, outputs: Any, source_outputs: Any) -> Fidelity:
        """Compare the outputs of one method: probabilities, values, labels or columns."""
        ours, theirs = _array(outputs), _array(source_outputs)
        if theirs.dtype.kind not in "biuf":  # labels as their positions in the union of both
            labels = np.unique(np.concatenate([ours, theirs]))
            ours, theirs = np.searchsorted(labels, ours), np.searchsorted(labels, theirs)
        return cls(len(theirs), explained_variance(_columns(ours), _columns(theirs)))


def explained_variance(ours: Tensor, theirs: Tensor) -> float:
    """R squared of outputs ``[B, K]`` against others; 1 where those are constant and there is no error."""
    finite = torch.isfinite(theirs)
    if ours.shape != theirs.shape or not torch.equal(finite, torch.isfinite(ours)):
        return 0.0
    # The outputs of a transformer may be missing.
    ours, theirs = torch.where(finite, ours, 0).double(), torch.where(finite, theirs, 0).double()
    error = float(((ours - theirs) ** 2).sum())
    total = float(((theirs - theirs.mean(dim=0)) ** 2).sum())
    # Below this the variance is rounding: the outputs are the same for all rows.
    varies = total > 1e-20 * float((theirs**2).sum())
    return 1.0 - error / total if varies else float(error < 1e-8)


def _array(output: Any) -> NDArray[Any]:
    """An output with one row per row; those of several targets are concatenated."""
    if isinstance(output, list):
        return np.concatenate(output, axis=1)
    return np.asarray(output.toarray() if hasattr(output, "toarray") else output)


def _columns(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.reshape(len(array), -1).astype(np.float64))
