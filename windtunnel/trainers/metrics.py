"""Metrics by name, as torchmetrics objects, with the way in which each is better."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, MeanSquaredError, Metric, R2Score
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassAUROC

from windtunnel.errors import BadInput, nearest
from windtunnel.head import Head
from windtunnel.modules.links import PROBABILITIES
from windtunnel.trainers.processes import summed
from windtunnel.trainers.recipe import Recipe

GREATER_IS_BETTER = {"auroc": True, "log_loss": False, "accuracy": True, "r2": True, "rmse": False, "loss": False}

_FITS = {
    "binary": ("auroc", "log_loss", "accuracy", "loss"),
    "multiclass": ("log_loss", "auroc", "accuracy", "loss"),
    "regression": ("rmse", "r2", "loss"),
}
_PROBABILITIES = (*PROBABILITIES, "sigmoid", "softmax", "sigmoids", "one_vs_rest", "modified_huber")


class Judge(nn.Module):
    """One metric over the rows of an epoch: ``update`` with batches, ``compute``, ``reset``.

    Everything is computed in float64 from the raw scores ``[B, K]``, and rows count alike whatever their weight.
    Rankings and accuracy read the scores themselves, as scikit-learn's scorers read ``decision_function``; log loss,
    RMSE and R2 read ``link(scores)``. With several outputs, RMSE and R2 are averaged over them. "loss" stands for the
    mean of the loss itself, which whoever trains works out.

    Parameters
    ----------
    name : str or None
        A name in ``GREATER_IS_BETTER``; None takes the first that fits the task, or "loss" for a regression on anything
        but the squared error, which RMSE would misjudge.
    head : Head
        The task, the link and the classes of the translation.
    """

    def __init__(self, name: str | None, head: Head) -> None:
        super().__init__()
        self.name = _pick(name, head)
        self.greater_is_better = GREATER_IS_BETTER[self.name]
        self._linked = head.linked
        self._link_gives_probabilities = head.link in _PROBABILITIES
        self._binary = head.task == "binary"
        self._finite = True
        self.metric: Metric | None = None
        self._classes = 0 if head.classes is None else len(head.classes)
        if self._classes:
            self.metric = self._classifier_metric(self._classes)

    @classmethod
    def of(cls, recipe: Recipe, head: Head) -> Judge:
        """The metric of a recipe; a loss of one's own is its own metric."""
        return cls(recipe.metric or ("loss" if recipe.loss else None), head)

    def _classifier_metric(self, classes: int) -> Metric:
        if self.name == "log_loss":
            return MeanMetric(nan_strategy="disable").set_dtype(torch.float64)
        if self.name == "accuracy":
            return MulticlassAccuracy(num_classes=classes, average="micro", validate_args=False)
        if self._binary:
            return BinaryAUROC(validate_args=False)
        return MulticlassAUROC(num_classes=classes, average="macro", validate_args=False)

    def _output_metric(self, outputs: int) -> Metric:
        # The number of outputs is known from the first scores.
        metric: Metric = (
            R2Score(multioutput="uniform_average")
            if self.name == "r2"
            else MeanSquaredError(squared=False, num_outputs=outputs)
        )
        return metric.set_dtype(torch.float64)

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Take in a batch: raw scores ``[B, K]`` and encoded targets ``[B]`` or ``[B, K]``."""
        if self.name == "loss":
            return
        if scores.device.type == "mps":  # which has no float64
            scores, target = scores.cpu(), target.cpu()
        scores = scores.detach().double()
        # torchmetrics ranks NaN as if it were a score.
        self._finite = self._finite and bool(torch.isfinite(scores).all())
        if self.metric is None:
            self.metric = self._output_metric(scores.shape[1])
        if self.metric.device != scores.device:
            self.metric.to(scores.device)
        if self.name == "accuracy":
            self.metric.update(self._labels(scores), target)
        elif self.name == "auroc":
            self.metric.update(self._ranks(scores), target)
        elif self.name == "log_loss":
            self.metric.update(-self._chosen(scores, target).log())
        else:
            value = self._linked(scores)
            target = target.double().reshape(value.shape)
            single = value.shape[1] == 1
            self.metric.update(value.flatten() if single else value, target.flatten() if single else target)

    def compute(self) -> float:
        """Give the metric over everything since ``reset``; NaN where it is not defined, as AUROC over one class.

        Where several processes train together, it is of the rows of all of them, and each has to ask for it.
        """
        assert self.metric is not None
        if summed(float(not self._finite))[0]:
            return math.nan
        if isinstance(self.metric, R2Score) and summed(self.metric.total)[0] < 2:
            return math.nan
        with warnings.catch_warnings():
            # Classes without rows are left out of the average, which is what is wanted of a small hold-out.
            warnings.filterwarnings("ignore", message="No (positive|negative) samples in targets")
            warnings.filterwarnings("ignore", message=".*score for one or more classes was `nan`")
            value = float(self.metric.compute().double().mean())
        ranks = isinstance(self.metric, (BinaryAUROC, MulticlassAUROC))
        return math.nan if ranks and self._ranked_classes() < 2 else value

    def reset(self) -> None:
        """Forget every batch."""
        self._finite = True
        if self.metric is not None:
            self.metric.reset()

    def better(self, value: float, than: float) -> bool:
        """Whether a value beats another; equal is not better, and NaN beats nothing."""
        return value > than if self.greater_is_better else value < than

    def _ranked_classes(self) -> int:
        """How many classes the rows of all processes have."""
        met = torch.zeros(self._classes)
        for target in self.metric.target:  # type: ignore[union-attr]
            met[target.cpu().long()] = 1
        return sum(float(rows) > 0 for rows in summed(*met.tolist()))

    def _labels(self, scores: Tensor) -> Tensor:
        return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(dim=1)

    def _ranks(self, scores: Tensor) -> Tensor:
        """Map the scores into [0, 1] in their order: torchmetrics would squash others by a sigmoid, which ties."""
        if self._binary:
            margin = scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
        elif self._link_gives_probabilities:
            return self._linked(scores)
        else:
            margin = scores
        return (1 + nn.functional.softsign(margin)) / 2

    def _chosen(self, scores: Tensor, target: Tensor) -> Tensor:
        """Give each row the probability of its class, rows normalised, kept off 0 as scikit-learn's log_loss does."""
        probability = self._linked(scores)
        probability = probability / probability.sum(dim=1, keepdim=True)
        eps = torch.finfo(torch.float64).eps
        return probability.gather(1, target.unsqueeze(1)).clamp(eps, 1 - eps)


def _pick(name: str | None, head: Head) -> str:
    fits = _FITS[head.task]
    if head.link not in _PROBABILITIES:
        fits = tuple(one for one in fits if one != "log_loss")
    if head.task == "multiclass" and name is None and "log_loss" not in fits:
        return "accuracy"
    if name is None:
        return "loss" if head.task == "regression" and head.loss not in ("squared", "relevance") else fits[0]
    if name not in GREATER_IS_BETTER:
        raise BadInput(f"metric={name!r} is not known; {nearest(name, GREATER_IS_BETTER)}")
    if name not in fits:
        raise BadInput(
            f"metric={name!r} does not fit a {head.task} model with the link {head.link!r}; "
            f"choose from {', '.join(fits)}"
        )
    return name
