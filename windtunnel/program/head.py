"""What stands behind the raw scores: task, link, labels, and the methods that the source has."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import BadInput
from windtunnel.modules.outputs.links import LINKS

METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
    "transform",
    "apply",
)


MOST_LOST = 0.01
"""The share of the spread of targets that rounding may take without a word."""


@dataclass(frozen=True)
class Head:
    """Facts that turn raw scores ``[B, K]`` into what the source's methods return, and targets into tensors.

    Attributes
    ----------
    task : str
        "binary", "multiclass", "regression" or "transform".
    link, loss : str
        Names in ``LINKS`` and ``LOSSES``.
    link_options, loss_options : dict
        Their JSON options.
    classes : ndarray, list of ndarray or None
        Original labels, in the order of the scores; a list where there are several targets, whose scores stand side
        by side.
    methods : tuple of str
        Which of ``METHODS`` the source has.
    flat : bool
        Whether predictions of a regressor are ``[B]`` and not ``[B, K]``.
    decision_scale : float
        What ``decision_function`` gives over the raw score.
    dtypes : dict
        The NumPy dtype of what a method returns, where it is not float64, or of labels not that of ``classes``.
    """

    task: str
    link: str = "identity"
    loss: str = "squared"
    link_options: dict[str, float] = field(default_factory=dict)
    loss_options: Mapping[str, float | list[float]] = field(default_factory=dict)
    classes: NDArray[Any] | list[NDArray[Any]] | None = None
    methods: tuple[str, ...] = ("transform",)
    flat: bool = True
    decision_scale: float = 1.0
    dtypes: dict[str, str] = field(default_factory=dict)

    def linked(self, scores: Tensor) -> Tensor:
        """Probabilities ``[B, classes]`` of a classifier, values of a regressor."""
        return LINKS[self.link](scores, **self.link_options)

    @property
    def labels_in_order(self) -> list[Any]:
        """The labels as Python values, those of several targets one after the other; empty where there are none."""
        classes = [] if self.classes is None else self.classes if isinstance(self.classes, list) else [self.classes]
        return [label for one in classes for label in one.tolist()]

    def positions(self, scores: Tensor) -> Tensor:
        """The position of the predicted label, int64 ``[B]`` or ``[B, targets]``; of equal scores the first wins."""
        if isinstance(self.classes, list):
            parts = torch.split(scores, [len(one) for one in self.classes], dim=1)
            return torch.stack([part.max(dim=1).indices for part in parts], dim=1)
        if self.classes is not None and len(self.classes) == 1:
            return torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.max(dim=1).indices

    def labels(self, positions: Any) -> NDArray[Any]:
        """The labels at positions ``[B]``, or ``[B, targets]`` with a column per target."""
        at = np.asarray(positions).astype(np.intp, copy=False)
        if isinstance(self.classes, list):
            stacked = np.stack([one[at[:, target]] for target, one in enumerate(self.classes)], axis=1)
            return stacked.astype(self.dtypes.get("predict", stacked.dtype), copy=False)
        assert self.classes is not None
        labels: NDArray[Any] = self.classes[at]
        return labels.astype(self.dtypes.get("predict", labels.dtype), copy=False)

    def predicted(self, scores: Tensor) -> Tensor:
        """The positions of the labels of a classifier, values of a regressor or booster in float64."""
        if self.classes is not None:
            return self.positions(scores)
        values = self.linked(scores.double())
        return values[:, 0] if self.flat and values.shape[1] == 1 else values

    def typed(self, method: str, values: Any) -> Any:
        """Numbers in the type that the method returns; probabilities of every class of several targets as a list."""
        dtype = self.dtypes.get(method, "float64")
        array = (values.numpy() if isinstance(values, Tensor) else np.asarray(values)).astype(dtype, copy=False)
        if method not in ("predict_proba", "predict_log_proba") or not isinstance(self.classes, list):
            return array
        # Boosters give two columns for a target of one class too, all others a column per class; chains and
        # multi-label classifiers give one column per target, in one array.
        for least in (1, 2):
            widths = [max(len(one), least) for one in self.classes]
            if array.shape[1] == sum(widths):
                return np.split(array, np.cumsum(widths)[:-1], axis=1)
        return array

    def probabilities(self, scores: Tensor) -> Tensor:
        """What ``predict_proba`` gives, in float64."""
        return self.linked(scores.double())

    def decision(self, scores: Tensor) -> Tensor:
        """Raw scores as ``decision_function`` gives them, in float64: ``[B]`` for two classes, else ``[B, K]``."""
        values = scores.double() if self.decision_scale == 1 else scores.double() * self.decision_scale
        return values[:, 0] if values.shape[1] == 1 else values

    def encode_target(self, y: Any) -> Tensor:
        """Targets as a tensor: class indices int64 ``[B]``, or values float32 ``[B]`` or ``[B, K]``."""
        if self.task == "transform":
            raise BadInput("this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")
        try:
            target = np.asarray(y)
        except ValueError as error:
            raise BadInput(f"targets that are no array ({error}); give one per row.") from error
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim != 1 and (target.ndim != 2 or self.flat or self.classes is not None):
            what = "label" if self.classes is not None else "value"
            raise BadInput(
                f"targets of shape {target.shape}; of this {self.task} pipeline, fine-tuning takes one {what} per row. "
                "Several targets are fine-tuned one at a time, each by a translation of its own model."
            )
        return self.spread(self._values(target)) if self.classes is None else self._class_indices(target)

    def spread(self, target: Tensor) -> Tensor:
        """Values ``[B]`` as ``[B, K]`` where the scores are K quantiles of the same target, else as they are."""
        levels = self.loss_options.get("alpha")
        if not isinstance(levels, list) or target.ndim != 1:
            return target
        return target.unsqueeze(1).repeat(1, len(levels))

    def _values(self, target: NDArray[Any]) -> Tensor:
        missing = pd.isna(target)
        objects = [] if target.dtype.kind in "fiub" else target[~missing].tolist()
        if odd := sorted({type(one).__name__ for one in objects if not isinstance(one, (Real, Decimal))}):
            raise BadInput(f"targets of type {', '.join(odd)}; a regressor is fine-tuned on numbers: convert them.")
        with np.errstate(over="ignore"):
            values = np.where(missing, np.nan, target).astype(np.float32)
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            raise BadInput(
                f"{bad} of {target.size} targets are NaN, infinite or beyond float32; drop these rows or impute them."
            )
        _warn_of_rounding(target.astype(np.float64), values)
        return torch.from_numpy(values)

    def _class_indices(self, target: NDArray[Any]) -> Tensor:
        if isinstance(self.classes, list):
            raise BadInput(
                "several targets of classes cannot be fine-tuned together; translate one estimator for each."
            )
        assert self.classes is not None
        if missing := int(pd.isna(target).sum()):
            raise BadInput(f"{missing} of {len(target)} targets are missing (NaN or None); drop these rows.")
        known = {label: index for index, label in enumerate(self.classes.tolist())}
        labels = target.tolist()
        if unknown := sorted({repr(label) for label in labels if label not in known}):
            raise BadInput(
                f"labels {', '.join(unknown[:5])} are not among the classes that the pipeline was fitted on: "
                f"{', '.join(map(repr, list(known)[:10]))}. Map them, or refit the pipeline with them."
            )
        return torch.tensor([known[label] for label in labels], dtype=torch.int64)


def _warn_of_rounding(target: NDArray[np.float64], values: NDArray[np.float32]) -> None:
    """Say so where float32 takes from targets what is not small beside their spread, as of seconds since 1970."""
    if target.size == 0:
        return
    spread, middle = target.std(axis=0), np.abs(target).max(axis=0)
    lost = (values - target).std(axis=0) > np.maximum(MOST_LOST * spread, 1e-12 * middle)
    if np.any(lost):
        warnings.warn(
            f"targets of up to {np.max(middle, where=lost, initial=0):.1g} are rounded to float32, which takes a part "
            "of their spread: fine-tuning and its metrics are of the rounded ones. Subtract a constant from the "
            "targets and fit the pipeline again.",
            UserWarning,
            stacklevel=2,
        )
