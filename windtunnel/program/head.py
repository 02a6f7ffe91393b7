"""The output head behind the raw scores: task, link, labels, and the methods of the source."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode.row_values import check_no_missing
from windtunnel.errors import BadInput, warn_caller
from windtunnel.modules.outputs.links import LINKS, PROBABILITIES

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform", "apply")
HEAD_METHODS = ("predict", "predict_proba", "decision_function")
"""The methods that ``Head.output`` computes."""
LABELS_AND_PROBABILITIES = "predict, predict_proba"
"""Stands for both methods in ``Engine.direct``, which then computes the outputs of both at once."""


LARGEST_ROUNDING = 0.01
"""The part of the standard deviation of targets that rounding may lose without a warning."""


@dataclass(frozen=True)
class Head:
    """Facts that turn raw scores ``[B, K]`` into the outputs of the source's methods, and targets into tensors."""

    task: str  # "binary", "multiclass", "regression" or "transform"
    # link, loss: names in ``LINKS`` and ``LOSSES``
    link: str = "identity"
    loss: str = "squared"
    # link_options, loss_options: their JSON options
    link_options: dict[str, float] = field(default_factory=dict)
    loss_options: Mapping[str, float | list[float]] = field(default_factory=dict)
    classes: NDArray[Any] | list[NDArray[Any]] | None = None
    """Original labels in the order of the scores; a list for several targets, whose scores are concatenated."""
    methods: tuple[str, ...] = ("transform",)  # the methods of the source, among ``METHODS``
    flat: bool = True  # whether predictions of a regressor are [B] and not [B, K]
    decision_scale: float = 1.0  # ``decision_function`` divided by the raw score
    dtypes: dict[str, str] = field(default_factory=dict)
    """The NumPy dtype of a method's output if it is not float64, or for labels not that of ``classes``."""

    def linked(self, scores: Tensor) -> Tensor:
        """Probabilities ``[B, classes]`` of a classifier, values of a regressor."""
        return LINKS[self.link](scores, **self.link_options)

    @property
    def unit(self) -> str:
        """The unit of the raw scores, such as "log-odds", "probability", "prediction" or "log of the prediction"."""
        if self.link in PROBABILITIES:
            return "probability"
        if self.task == "regression" and self.link == "identity":
            return "prediction"
        units = {
            "sigmoid": "log-odds",
            "logistic": "log-odds",
            "exp": "log of the prediction",
            "expm1": "log of 1 + the prediction",
        }
        return units.get(self.link, "raw score")

    @property
    def is_pairwise(self) -> bool:
        """Whether there is a raw score for each pair of classes, as in support vector machines of several classes."""
        return self.loss == "one_vs_one_hinge"

    @property
    def has_several_targets(self) -> bool:
        """Whether there are several targets with labels, whose scores are concatenated."""
        return isinstance(self.classes, list)

    @property
    def labels_of_targets(self) -> list[NDArray[Any]]:
        """The labels of each target; empty without labels."""
        if self.classes is None:
            return []
        return self.classes if isinstance(self.classes, list) else [self.classes]

    @property
    def labels_in_order(self) -> list[Any]:
        """The labels as Python values, those of several targets one after the other; empty without labels."""
        return [label for labels in self.labels_of_targets for label in labels.tolist()]

    def task_and_classes(self, shown: int) -> str:
        """The task, with up to ``shown`` labels of one target, or the numbers of classes of several targets."""
        if self.classes is None:
            return self.task
        if self.has_several_targets:
            counts = ", ".join(str(len(labels)) for labels in self.labels_of_targets)
            return f"{self.task} of {len(self.labels_of_targets)} targets, with {counts} classes"
        labels = [*map(str, self.labels_in_order)]
        return f"{self.task}, {len(labels)} classes: {', '.join(labels[:shown])}{', ...' * (len(labels) > shown)}"

    def positions(self, scores: Tensor) -> Tensor:
        """The position of the predicted label, int64 ``[B]`` or ``[B, targets]``; the first of equal scores."""
        if self.has_several_targets:
            parts = torch.split(scores, [len(labels) for labels in self.labels_of_targets], dim=1)
            return torch.stack([part.max(dim=1).indices for part in parts], dim=1)
        if self.classes is not None and len(self.classes) == 1:
            return torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.max(dim=1).indices

    def labels(self, positions: Any) -> NDArray[Any]:
        """The labels at positions ``[B]``, or ``[B, targets]`` with a column per target."""
        at = np.asarray(positions).astype(np.intp, copy=False)
        if self.has_several_targets:
            by_target = [labels[column] for labels, column in zip(self.labels_of_targets, at.T, strict=True)]
            output = np.stack(by_target, axis=1)
        else:
            output = self.labels_of_targets[0][at]
        return output.astype(self.dtypes.get("predict", output.dtype), copy=False)

    def predicted(self, scores: Tensor) -> Tensor:
        """The positions of the labels of a classifier, values of a regressor or booster in float64."""
        if self.classes is not None:
            return self.positions(scores)
        values = self.linked(scores.double())
        return values[:, 0] if self.flat and values.shape[1] == 1 else values

    def typed(self, method: str, values: Any) -> Any:
        """Numbers in the output type of the method; probabilities for several targets as a list."""
        dtype = self.dtypes.get(method, "float64")
        array = (values.numpy() if isinstance(values, Tensor) else np.asarray(values)).astype(dtype, copy=False)
        if method not in ("predict_proba", "predict_log_proba") or not self.has_several_targets:
            return array
        # Boosters have two columns for a target of one class too, all others a column per class. Chains and
        # multi-label classifiers have one column per target, in one array.
        for least in (1, 2):
            widths = [max(len(labels), least) for labels in self.labels_of_targets]
            if array.shape[1] == sum(widths):
                return np.split(array, np.cumsum(widths)[:-1], axis=1)
        return array

    def output(self, method: str, scores: Tensor) -> Tensor:
        """The output of a method without a step of its own, from raw scores; positions of labels for ``predict``."""
        functions = {
            "predict": self.predicted,
            "predict_proba": self.probabilities,
            "decision_function": self.decision,
        }
        return functions[method](scores)

    def probabilities(self, scores: Tensor) -> Tensor:
        """The output of ``predict_proba``, in float64."""
        return self.linked(scores.double())

    def decision(self, scores: Tensor) -> Tensor:
        """The output of ``decision_function``, in float64: ``[B]`` for two classes, else ``[B, K]``."""
        values = scores.double() if self.decision_scale == 1 else scores.double() * self.decision_scale
        return values[:, 0] if values.shape[1] == 1 else values

    def check_has_target(self) -> None:
        """Raise ``BadInput`` for a pipeline that ends in a transformer."""
        if self.task == "transform":
            raise BadInput("this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")

    def encode_target(self, y: Any) -> Tensor:
        """Targets as a tensor: class indices int64 ``[B]``, or values float32 ``[B]`` or ``[B, K]``."""
        self.check_has_target()
        try:
            target = np.asarray(y)
        except ValueError as error:
            raise BadInput(f"targets that are no array ({error}); give one per row.") from error
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim != 1 and (target.ndim != 2 or self.flat or self.classes is not None):
            what = "label" if self.classes is not None else "value"
            raise BadInput(
                f"targets of shape {target.shape}; fine-tuning takes one {what} per row. Several targets are tuned "
                "one at a time, each by a translation of its own model (such as multi_output.estimators_[0])."
            )
        return self.repeat_target(self._values(target)) if self.classes is None else self._class_indices(target)

    def repeat_target(self, target: Tensor) -> Tensor:
        """Values ``[B]`` repeated to ``[B, K]`` if the scores are K quantiles of the same target, else unchanged."""
        levels = self.loss_options.get("alpha")
        if not isinstance(levels, list) or target.ndim != 1:
            return target
        return target.unsqueeze(1).repeat(1, len(levels))

    def _values(self, target: NDArray[Any]) -> Tensor:
        missing = pd.isna(target)
        objects = [] if target.dtype.kind in "fiub" else target[~missing].tolist()
        if wrong := sorted({type(value).__name__ for value in objects if not isinstance(value, (Real, Decimal))}):
            raise BadInput(f"targets of type {', '.join(wrong)}; a regressor is fine-tuned on numbers: convert them.")
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
        if self.has_several_targets:
            raise BadInput(
                "several targets of classes cannot be fine-tuned together; translate one estimator for each."
            )
        check_no_missing(target)
        indices = {label: index for index, label in enumerate(self.labels_in_order)}
        labels = target.tolist()
        if strange := sorted({type(label).__name__ for label in labels if not isinstance(label, Hashable)}):
            raise BadInput(f"targets that are {', '.join(strange)}; give one label per row")
        if unknown := sorted({repr(label) for label in labels if label not in indices}):
            raise BadInput(
                f"labels {', '.join(unknown[:5])} are not among the classes that the pipeline was fitted on: "
                f"{', '.join(map(repr, list(indices)[:10]))}. Map them, or refit the pipeline with them."
            )
        return torch.tensor([indices[label] for label in labels], dtype=torch.int64)


def _warn_of_rounding(target: NDArray[np.float64], values: NDArray[np.float32]) -> None:
    """Warn if float32 rounds off a large part of the targets' standard deviation, as of seconds since 1970."""
    if target.size == 0:
        return
    deviation, largest = target.std(axis=0), np.abs(target).max(axis=0)
    lost = (values - target).std(axis=0) > np.maximum(LARGEST_ROUNDING * deviation, 1e-12 * largest)
    if np.any(lost):
        warn_caller(
            f"targets of up to {np.max(largest, where=lost, initial=0):.1g} are rounded to float32, which loses a part "
            "of their variance: fine-tuning and its metrics use the rounded ones, so that the result may be worse than "
            "the source. Subtract a constant from the targets and fit the pipeline again.",
        )
