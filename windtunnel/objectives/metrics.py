"""Metrics by name, over weighted rows, and which of two values is better."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from sklearn.metrics import get_scorer_names
from torch import Tensor

from windtunnel.errors import InvalidOption, nearest
from windtunnel.modules.outputs.links import PROBABILITIES, shares
from windtunnel.objectives import weighted
from windtunnel.objectives.scorers import Scorer, ScorerFunction
from windtunnel.objectives.weighted import Score, WeightedMetric
from windtunnel.program.head import HEAD_METHODS, Head
from windtunnel.program.score_methods import ScoreRule

GREATER_IS_BETTER = {
    "auroc": True,
    "average_precision": True,
    "log_loss": False,
    "accuracy": True,
    "f1": True,
    "r2": True,
    "rmse": False,
    "mae": False,
    "loss": False,
}
ALIASES = {
    "auc": "auroc",
    "roc_auc": "auroc",
    "roc_auc_ovr": "auroc",
    "neg_log_loss": "log_loss",
    "neg_root_mean_squared_error": "rmse",
    "neg_mean_absolute_error": "mae",
}
"""Names of the same metrics in scikit-learn's scorers and in boosters."""

_METRICS_OF_TASK = {
    "binary": ("auroc", "average_precision", "log_loss", "accuracy", "f1", "loss"),
    "multiclass": ("log_loss", "auroc", "average_precision", "accuracy", "f1", "loss"),
    "regression": ("rmse", "mae", "r2", "loss"),
}
_SQUARED = ("squared", "relevance", "log_squared")
"""Losses of regressors whose metric is the RMSE."""
RANKING_METRICS = ("auroc", "average_precision")
"""Metrics that compare rows with each other."""
_PROBABILITIES = (*PROBABILITIES, "sigmoid", "softmax", "sigmoids", "one_vs_rest", "modified_huber")


class Metric:
    """A metric over the rows of an epoch: ``update`` with batches, ``compute``, ``reset``.

    All metrics are computed in float64 from the predictions of the source's methods: accuracy and F1 from ``predict``,
    log loss from ``predict_proba``, RMSE, MAE and R2 from ``predict``. AUROC and average precision use
    ``decision_function``; with more than two classes, or without that method, they use ``predict_proba``. Most
    methods are functions of the raw scores ``[B, K]``; a method with steps of its own needs its ``output`` too.

    Row weights are scikit-learn's ``sample_weight``; rows of weight 0 are ignored. RMSE, MAE and R2 are means over
    several outputs; AUROC, average precision and F1 are means over several classes. "loss" is the mean of the training
    loss, which the caller computes.

    Parameters
    ----------
    metric : str, callable or None
        A name in ``GREATER_IS_BETTER``, or one of other libraries in ``ALIASES``; or a scorer of scikit-learn or its
        name, of which greater values are better. None takes the first metric of the task. The exceptions are "loss"
        for a regression on another loss than the squared error, of the target or its logarithm, and "accuracy" for a
        classifier of several classes without probabilities, or with no method but ``predict``.
    head : Head
        The task, the link and the classes of the translation.
    extra_methods : collection of str
        Methods whose output the caller passes to ``update``; the function of that name returns those with own steps.
    rules : dict, optional
        Methods that the metric computes from the raw scores by a ``ScoreRule``; they need no output.
    """

    def __init__(
        self,
        metric: str | ScorerFunction | None,
        head: Head,
        extra_methods: Collection[str] = (),
        rules: Mapping[str, ScoreRule] = {},
    ) -> None:
        picked = _pick(metric, head, {*extra_methods, *rules})
        self._scorer = picked if isinstance(picked, Scorer) else None
        self.name = picked.name if isinstance(picked, Scorer) else picked
        self.greater_is_better = self._scorer is not None or GREATER_IS_BETTER[self.name]
        method = picked.method if isinstance(picked, Scorer) else _method(picked, head)
        # The method whose output ``update`` needs; None where the raw scores are enough.
        self.method = method if method in extra_methods and method not in rules else None
        self._head, self._rule = head, None if method is None else rules.get(method)
        score = picked.score if isinstance(picked, Scorer) else _score(picked, head)
        self._rows = None if score is None else WeightedMetric(score)

    def update(
        self, scores: Tensor, target: Tensor, weight: Tensor | None = None, *, output: Tensor | None = None
    ) -> None:
        """Add a batch: raw scores ``[B, K]``, encoded targets ``[B]`` or ``[B, K]``, weights ``[B]``, an output."""
        if self._rows is None:
            return
        assert (output is None) == (self.method is None)
        parts = [scores, target, target.new_ones(len(target), dtype=scores.dtype) if weight is None else weight]
        parts += [] if output is None else [output]
        if scores.device.type == "mps":  # which has no float64
            parts = [part.cpu() for part in parts]
        if weight is not None:
            counted = parts[2] > 0
            parts = [part[counted] for part in parts]
        scores, target, weight, *outputs = (part.detach() for part in parts)
        scores = scores.double()
        if self._rule is not None:
            outputs = [self._rule(scores)]
        values = self._values(scores, target, *outputs).double()
        # Labels of non-finite scores would be finite.
        finite = scores.isfinite().all(dim=1).reshape(-1, *[1] * (values.dim() - 1))
        self._rows.update(values.where(finite, math.nan), target, weight)

    def compute(self) -> float:
        """The metric over all rows since ``reset``; NaN where it is undefined, such as AUROC over one class.

        With several processes it is over the rows of all of them, and each process must call it.
        """
        assert self._rows is not None
        return float(self._rows.compute())

    @property
    def of_scorer(self) -> bool:
        """Whether it is a scorer's, which may be undefined for some predictions."""
        return self._scorer is not None

    def why_undefined(self) -> str:
        """Why the last value was not finite; empty if this is not known."""
        return "" if self._scorer is None else self._scorer.error

    @property
    def needs_all_classes(self) -> bool:
        """Whether the metric may be undefined, or another one, for rows that lack a class."""
        return self.name in RANKING_METRICS or (self._scorer is not None and self._head.classes is not None)

    def reset(self) -> None:
        """Forget all batches."""
        if self._rows is not None:
            self._rows.reset()

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another in float32, in which Lightning logs epochs.

        Equal values are not better, and NaN is never better.
        """
        value, than = torch.tensor([value, than], dtype=torch.float32).tolist()
        return value > than if self.greater_is_better else value < than

    def _values(self, scores: Tensor, target: Tensor, output: Tensor | None = None) -> Tensor:
        """The values that the metric compares with targets, from scores in float64 or from the output of ``method``."""
        if self._scorer is not None:
            return self._head.output(self._scorer.method, scores) if output is None else output
        if self.name in RANKING_METRICS:
            return self._ranks(scores, output)
        if self.name in ("accuracy", "f1"):
            return self._head.positions(scores) if output is None else output.reshape(-1).long()
        values = self._head.linked(scores) if output is None else output.double()
        values = values.reshape(len(values), -1)
        if self.name != "log_loss":
            return values
        if self._head.link == "probabilities":
            values = shares(values)  # as the loss does: means of one-vs-all classifiers add up to something else
        return values.gather(1, target.unsqueeze(1))[:, 0]

    def _ranks(self, scores: Tensor, output: Tensor | None) -> Tensor:
        """Numbers that are larger for the second of two classes ``[B]``, or for each of more ``[B, classes]``."""
        numbers = scores if output is None else output.double().reshape(len(output), -1)
        of_decisions = self._head.task == "binary" and "decision_function" in self._head.methods
        if output is None and self._head.link in _PROBABILITIES and not of_decisions:
            numbers = self._head.linked(numbers)
        if self._head.task != "binary":
            return numbers
        if numbers.shape[1] == 1:
            return numbers[:, 0]
        return numbers[:, 1] - numbers[:, 0] if of_decisions else numbers[:, 1]


def _method(name: str, head: Head) -> str | None:
    """The method of the source whose predictions a metric compares; None for the loss."""
    if name in RANKING_METRICS:
        first, second = "decision_function", "predict_proba"
        if head.task != "binary":
            first, second = second, first
        return first if first in head.methods else second
    return {"loss": None, "log_loss": "predict_proba"}.get(name, "predict")


def metric_named(name: str) -> str:
    """The name in ``GREATER_IS_BETTER`` of a metric, or that of a scorer; ``InvalidOption`` for an unknown one."""
    metric = ALIASES.get(name, name)
    if metric not in GREATER_IS_BETTER and metric not in (scorers := get_scorer_names()):
        known = nearest(name, dict.fromkeys([*GREATER_IS_BETTER, *scorers]), ALIASES)
        raise InvalidOption(f"metric={name!r} is not known; {known}")
    return metric


def _pick(metric: str | ScorerFunction | None, head: Head, extra: Collection[str]) -> str | Scorer:
    """A name in ``GREATER_IS_BETTER``, or a scorer."""
    has_probabilities = head.link in _PROBABILITIES or "predict_proba" in extra
    fits = _METRICS_OF_TASK[head.task]
    if not has_probabilities:
        fits = tuple(name for name in fits if name != "log_loss")
    if head.is_pairwise and not {"predict_proba", "decision_function"} & {*extra}:
        fits = tuple(name for name in fits if name not in RANKING_METRICS)
    if metric is None and _has_labels_only(head, fits):
        return "accuracy"
    if metric is None:
        return "loss" if head.task == "regression" and head.loss not in _SQUARED else fits[0]
    name = metric_named(metric) if isinstance(metric, str) else metric
    if name not in GREATER_IS_BETTER:
        methods = [method for method in HEAD_METHODS if method in head.methods]
        if not has_probabilities:
            methods = [method for method in methods if method != "predict_proba"]
        return Scorer.of(name, head, methods, fits)
    if name not in fits:
        raise InvalidOption(
            f"metric={metric!r} does not fit a {head.task} model with the link {head.link!r}; "
            f"choose from {', '.join(fits)}"
        )
    return name


def _has_labels_only(head: Head, fits: Collection[str]) -> bool:
    """Whether accuracy is a classifier's default: it has no probabilities, or no method but ``predict``."""
    if head.task == "multiclass" and "log_loss" not in fits:
        return True
    others = {"predict_proba", "decision_function"} & {*head.methods}
    return head.task in ("binary", "multiclass") and "predict" in head.methods and not others


def _score(name: str, head: Head) -> Score | None:
    """The function of a metric; None for the loss, which the caller computes."""
    if name == "loss":
        return None
    if name == "f1" and len(head.labels_in_order) == 2:
        return weighted.BINARY_F1
    score: Score = getattr(weighted, name)
    return score
