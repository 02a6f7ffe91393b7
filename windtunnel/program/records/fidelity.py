"""How close the outputs of a translation are to those of its source pipeline."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.errors import warn_caller

OUTPUT_METHODS = ("predict_proba", "decision_function", "predict", "transform", "score_samples")
"""The methods to compare, the most informative first."""
LEAST_R2 = 0.999
"""R squared against the source's outputs, below which a warning is given."""
MAX_SAMPLED_ROWS = 100_000
"""The most calibration rows that are kept until trees are made soft."""


@dataclass(frozen=True)
class Fidelity:
    """R squared of a translation's outputs against those of the source pipeline, before training.

    The calibration rows also placed the thresholds and set the temperatures of soft trees. On other rows R squared is
    lower, the more so the fewer calibration rows there were.
    """

    rows: int  # calibration rows
    r2: float

    @classmethod
    def between(cls, outputs: Any, source_outputs: Any) -> Fidelity:
        """Compare the outputs of one method: probabilities, values, labels or columns."""
        ours, theirs = _array(outputs), _array(source_outputs)
        if theirs.dtype.kind not in "biuf":  # labels as their positions in the union of both
            labels = np.unique(np.concatenate([ours, theirs]))
            ours, theirs = np.searchsorted(labels, ours), np.searchsorted(labels, theirs)
        return cls(len(theirs), r2_score(_columns(ours), _columns(theirs)))


@dataclass(frozen=True)
class CalibrationRows:
    """Encoded calibration rows, and the exact outputs of one method for them."""

    batch: Batch
    method: str  # one of ``OUTPUT_METHODS``
    outputs: NDArray[Any]  # [rows, ...], those of the source pipeline, or of its exact translation

    @classmethod
    def of(cls, batch: Batch, methods: Container[str], model: Any, rows: Any) -> Self:
        """Encoded rows, and the outputs of ``model`` for the raw ``rows``; ``methods`` are those that it has."""
        method = next(name for name in OUTPUT_METHODS if name in methods)
        return cls(batch, method, _array(getattr(model, method)(rows)))

    def fidelity(self, net: Any) -> Fidelity:
        """Compare the outputs of a translation."""
        return Fidelity.between(getattr(net, self.method)(self.batch), self.outputs)

    def sample(self) -> Self:
        """At most ``MAX_SAMPLED_ROWS`` of the rows, evenly spaced."""
        if len(self.outputs) <= MAX_SAMPLED_ROWS:
            return self
        rows = evenly_spaced(len(self.outputs), MAX_SAMPLED_ROWS)
        return replace(self, batch=self.batch.take(rows), outputs=self.outputs[rows.numpy()])


def warn_if_low(fidelity: Fidelity) -> None:
    """Warn of a translation that does not keep ``LEAST_R2``."""
    if fidelity.r2 < LEAST_R2:
        warn_caller(
            f"the translation keeps R2 {fidelity.r2:.4f} of the source's outputs on the {fidelity.rows:,} calibration "
            f"rows, which should be {LEAST_R2} or more. Give more calibration rows, or take windtunnel.compile for "
            "exact outputs without training.",
        )


def r2_score(ours: Tensor, theirs: Tensor) -> float:
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
    """The output of a method as an array ``[rows, ...]``; outputs of several targets are concatenated."""
    if isinstance(output, list):
        return np.concatenate(output, axis=1)
    return np.asarray(output.toarray() if hasattr(output, "toarray") else output)


def _columns(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.reshape(len(array), -1).astype(np.float64))
