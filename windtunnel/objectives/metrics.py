"""Metrics by name, over weighted rows, with the way in which each is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Self

import torch
import torchmetrics
from torch import Tensor

from windtunnel.errors import BadInput, nearest
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.objectives.weighted import AUROC, F1, R2, RMSE, Accuracy, AveragePrecision, LogLoss
from windtunnel.program.head import Head
from windtunnel.trainers.loop.processes import summed
from windtunnel.trainers.recipe import Recipe

GREATER_IS_BETTER = {
    "auroc": True,
    "average_precision": True,
    "log_loss": False,
    "accuracy": True,
    "f1": True,
    "r2": True,
    "rmse": False,
    "loss": False,
}
SAME = {
    "roc_auc": "auroc",
    "roc_auc_ovr": "auroc",
    "neg_log_loss": "log_loss",
    "neg_root_mean_squared_error": "rmse",
}
"""Names of scikit-learn's scorers -> ours for the same."""

_FITS = {
    "binary": ("auroc", "average_precision", "log_loss", "accuracy", "f1", "loss"),
    "multiclass": ("log_loss", "auroc", "average_precision", "accuracy", "f1", "loss"),
    "regression": ("rmse", "r2", "loss"),
}
_RANKINGS = ("auroc", "average_precision")
_PROBABILITIES = (*PROBABILITIES, "sigmoid", "softmax", "sigmoids", "one_vs_rest", "modified_huber")
_PAIRS = "one_vs_one_hinge"
"""The loss of scores that stand for pairs of classes."""


class Metric:
    """One metric over the rows of an epoch: ``update`` with batches, ``compute``, ``reset``.

    Everything is computed in float64, of what the methods of the source answer: accuracy and F1 of ``predict``, log
    loss of ``predict_proba``, RMSE and R2 of ``predict``. AUROC and average precision are those of
    ``decision_function``, or of ``predict_proba`` where there are more than two classes or no other; of the margin
    between two classes where both say the same, as probabilities near 1 tie. For the most part all of that is made of
    the raw scores ``[B, K]``; where a method has a step of its own, its answer is wanted beside them (``answer``).

    Rows count by their weights, as scikit-learn's ``sample_weight`` has it, and those of weight 0 for nothing. With
    several outputs, RMSE and R2 are averaged over them; with several classes, AUROC, average precision and F1. "loss"
    stands for the mean of the loss itself, which whoever trains works out.

    Parameters
    ----------
    name : str or None
        A name in ``GREATER_IS_BETTER``, or one of scikit-learn's in ``SAME``; None takes the first that fits the task,
        or "loss" for a regression on anything but the squared error, which RMSE would misjudge, and "accuracy" for a
        classifier of several classes without probabilities, or whose only answers are labels.
    head : Head
        The task, the link and the classes of the translation.
    own : collection of str
        Methods of the source that have a step of their own.

    Attributes
    ----------
    name : str
    greater_is_better : bool
    method : str or None
        The method whose own answer is judged; None where the raw scores tell all.
    """

    def __init__(self, name: str | None, head: Head, own: Collection[str] = ()) -> None:
        self.name = _pick(name, head, own)
        self.greater_is_better = GREATER_IS_BETTER[self.name]
        method = _method(self.name, head)
        self.method = method if method in own else None
        self._head = head
        self._finite = True
        self._metric: torchmetrics.Metric | None = None

    @classmethod
    def of(cls, recipe: Recipe, net: Any) -> Self:
        """The metric of a recipe for what a net answers; a loss of one's own is its own metric."""
        return cls(recipe.metric or ("loss" if recipe.loss else None), net.head, own_methods(net))

    def answer(self, net: Any, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """What ``update`` needs of encoded rows beside their scores: the answer of ``method``, if any."""
        return None if self.method is None else net.program.answer(self.method, numbers, ids)

    def update(
        self, scores: Tensor, target: Tensor, weight: Tensor | None = None, *, answer: Tensor | None = None
    ) -> None:
        """Take in a batch: raw scores ``[B, K]``, encoded targets ``[B]`` or ``[B, K]``, weights ``[B]``, an answer."""
        if self.name == "loss":
            return
        assert (answer is None) == (self.method is None)
        given = [scores, target, target.new_ones(len(target), dtype=scores.dtype) if weight is None else weight]
        given += [] if answer is None else [answer]
        if scores.device.type == "mps":  # which has no float64
            given = [one.cpu() for one in given]
        if weight is not None:
            counted = given[2] > 0
            given = [one[counted] for one in given]
        scores, target, weight, *own = (one.detach() for one in given)
        # A ranking takes NaN as if it were a number.
        self._finite = self._finite and bool(torch.isfinite(scores).all())
        value = self._judged(scores.double(), *own)
        if self._metric is None:
            self._metric = _METRICS[self.name](value, self._head)
        if self._metric.device != value.device:
            self._metric.to(value.device)
        self._metric.update(value, target, weight)

    def compute(self) -> float:
        """Give the metric over everything since ``reset``; NaN where it is not defined, as AUROC over one class.

        Where several processes train together, it is of the rows of all of them, and each has to ask for it.
        """
        assert self._metric is not None
        if summed(float(not self._finite))[0]:
            return math.nan
        return float(self._metric.compute())

    def reset(self) -> None:
        """Forget every batch."""
        self._finite = True
        if self._metric is not None:
            self._metric.reset()

    def better(self, value: float, than: float) -> bool:
        """Whether a value beats another; equal is not better, and NaN beats nothing.

        Equal in float32, that is: Lightning logs the epochs in no other.
        """
        value, than = torch.tensor([value, than], dtype=torch.float32).tolist()
        return value > than if self.greater_is_better else value < than

    def _judged(self, scores: Tensor, answer: Tensor | None = None) -> Tensor:
        """What the metric takes, of scores in float64 or of the answer of ``method``."""
        if self.name in _RANKINGS:
            return self._ranks(scores, answer)
        if self.name in ("accuracy", "f1"):
            return self._head.positions(scores) if answer is None else answer.reshape(-1).long()
        value = self._head.linked(scores) if answer is None else answer.double()
        return value.reshape(len(value), -1)

    def _ranks(self, scores: Tensor, answer: Tensor | None) -> Tensor:
        """Numbers that are larger for the second of two classes ``[B]``, or for each of more ``[B, classes]``."""
        numbers = scores if answer is None else answer.double().reshape(len(answer), -1)
        if self._head.task == "binary":
            return numbers[:, 0] if numbers.shape[1] == 1 else numbers[:, 1] - numbers[:, 0]
        return self._head.linked(numbers) if answer is None and self._head.link in _PROBABILITIES else numbers


def own_methods(net: Any) -> Collection[str]:
    """The methods of the source that have a step of their own in a net; of a residual model that is trained, none."""
    return tuple(getattr(getattr(net, "program", None), "answers", ()))


def _method(name: str, head: Head) -> str | None:
    """The method of the source that a metric is of; None for the loss."""
    if name in _RANKINGS:
        first, second = "decision_function", "predict_proba"
        if head.task != "binary":
            first, second = second, first
        return first if first in head.methods else second
    return {"loss": None, "log_loss": "predict_proba"}.get(name, "predict")


def _pick(name: str | None, head: Head, own: Collection[str]) -> str:
    fits = _FITS[head.task]
    if head.link not in _PROBABILITIES and "predict_proba" not in own:
        fits = tuple(one for one in fits if one != "log_loss")
    if head.loss == _PAIRS and not {"predict_proba", "decision_function"} & {*own}:
        fits = tuple(one for one in fits if one not in _RANKINGS)
    if name is None and _by_labels(head, fits):
        return "accuracy"
    if name is None:
        return "loss" if head.task == "regression" and head.loss not in ("squared", "relevance") else fits[0]
    ours = SAME.get(name, name)
    if ours not in GREATER_IS_BETTER:
        raise BadInput(f"metric={name!r} is not known; {nearest(name, [*GREATER_IS_BETTER, *SAME])}")
    if ours not in fits:
        raise BadInput(
            f"metric={name!r} does not fit a {head.task} model with the link {head.link!r}; "
            f"choose from {', '.join(fits)}"
        )
    return ours


def _by_labels(head: Head, fits: Collection[str]) -> bool:
    """Whether a classifier is to be judged by its labels: it has no probabilities, or answers nothing else."""
    if head.task == "multiclass" and "log_loss" not in fits:
        return True
    others = {"predict_proba", "decision_function"} & {*head.methods}
    return head.task in ("binary", "multiclass") and "predict" in head.methods and not others


_METRICS: dict[str, Callable[[Tensor, Head], torchmetrics.Metric]] = {
    "auroc": lambda value, head: AUROC(),
    "average_precision": lambda value, head: AveragePrecision(),
    "log_loss": lambda value, head: LogLoss(),
    "accuracy": lambda value, head: Accuracy(),
    "f1": lambda value, head: F1(len(head.labels_in_order)),
    "r2": lambda value, head: R2(value.shape[1]),
    "rmse": lambda value, head: RMSE(value.shape[1]),
}
"""Metric -> it, for what it is the first to take ``[B, ...]`` and for a head."""
