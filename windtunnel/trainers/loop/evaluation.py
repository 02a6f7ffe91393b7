"""Evaluates the loss and a metric over validation rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.objectives.losses import Loss, loss_for
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import average_over_blocks, explain_failures
from windtunnel.program.head import Head
from windtunnel.program.program import Program
from windtunnel.program.score_methods import score_rules
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.loop.running_mean import RunningMean
from windtunnel.trainers.recipe import Recipe


class Evaluation(NamedTuple):
    """The mean loss, and the metric; the metric named "loss" is the mean loss."""

    loss: float
    metric: float


class RunningEvaluation:
    """The mean loss and the metric over batches of rows, and over all processes.

    Without a loss, the mean loss is NaN.
    """

    def __init__(self, metric: Metric, loss: Loss | None) -> None:
        self._metric, self._loss, self._mean_loss = metric, loss, RunningMean()
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._mean_loss.reset()
        self._metric.reset()

    def add(self, scores: Tensor, targets: Targets, output: Tensor | None = None) -> None:
        """Add a batch: raw scores ``[B, K]``, its targets, and the output of the method that the metric needs."""
        if targets.weight is not None and not targets.weight.any():
            return  # no row counts, and a custom loss may be NaN
        if self._loss is not None:
            self._mean_loss.add(self._loss(scores, *targets), targets)
        self._metric.update(scores, *targets, output=output)

    def compute(self) -> Evaluation:
        """The mean loss and the metric; raises ``BadInput`` where there is a loss and no row has a weight above 0."""
        loss = math.nan if self._loss is None else self._mean_loss.compute()
        if loss is None:
            raise BadInput("the weights of the validation rows are all 0; give at least one row a weight above 0")
        return Evaluation(loss, loss if self._metric.name == "loss" else self._metric.compute())


@dataclass(frozen=True)
class Evaluator:
    """Evaluates models by a metric, and by the mean loss."""

    metric: Metric
    loss: Loss

    @classmethod
    def of_scores(cls, recipe: Recipe, head: Head, program: Program) -> Self:
        """The metric and the loss of a recipe for the raw scores of a program with this head.

        The metric has a ``method`` if it does not follow from them.
        """
        metric = recipe.metric_of(head, program.method_steps, score_rules(program))
        return cls(metric, explain_failures(loss_for(recipe.loss, head)))

    @classmethod
    def of_translation(cls, recipe: Recipe, net: TranslatedPipeline) -> Self:
        """The metric and the loss of a recipe for the methods of a translation."""
        return cls(recipe.metric_for(net), loss_for(recipe.loss, net.head))

    @property
    def averaged_loss(self) -> Loss:
        """The loss for all validation rows at once; see ``average_over_blocks``."""
        return average_over_blocks(self.loss)

    def evaluate(
        self,
        score: Callable[..., Tensor],
        loader: Any,
        output: Callable[..., Tensor] | None = None,
        *,
        with_loss: bool = True,
    ) -> Evaluation:
        """The mean loss and the metric over the rows of a loader, and of all processes.

        ``score(*rows)`` gives raw scores ``[B, K]``, and ``output(*rows)`` the output of the source's method
        ``metric.method``, if a program step computes it. The loader yields encoded ``(rows, target)`` or
        ``(rows, target, weight)``. Without ``with_loss`` the loss is NaN and not computed: a custom one may be slow.
        """
        running = RunningEvaluation(self.metric, self.loss if with_loss else None)
        with torch.no_grad():
            for rows, *targets in loader:
                running.add(score(*rows), Targets(*targets), None if output is None else output(*rows))
        evaluation = running.compute()
        running.reset()
        return evaluation

    def evaluate_scores(self, scores: Tensor, targets: Targets, *, with_loss: bool = True) -> Evaluation:
        """The mean loss, and the metric, of raw scores ``[N, K]``."""
        averaged = replace(self, loss=self.averaged_loss)
        return averaged.evaluate(lambda scores: scores, [((scores,), *targets)], with_loss=with_loss)

    def metric_of_scores(self, scores: Tensor, targets: Targets) -> float:
        """The metric alone; the loss is computed only if it is the metric."""
        return self.evaluate_scores(scores, targets, with_loss=self.metric.name == "loss").metric


def evaluate_program(net: TranslatedPipeline, program: Program, recipe: Recipe, loader: Any) -> Evaluation:
    """The mean loss and the metric of a program in the place of that of a translation."""
    evaluator = Evaluator.of_translation(recipe, net)

    def output(method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        return net.run_in_slices(partial(program.output, method), Batch(numbers, ids))

    method = evaluator.metric.method
    return evaluator.evaluate(partial(output, "scores"), loader, None if method is None else partial(output, method))


def check_initial_value(metric: Metric, value: float) -> None:
    """Raise ``BadInput`` for a metric, or the loss, that is not finite before training, a scorer ``InvalidOption``."""
    if math.isfinite(value):
        return
    name = metric.name
    if metric.of_scorer:
        reason = metric.why_undefined() or "it gives no finite number"
        raise InvalidOption(
            f"before training, metric={name!r} has no value over the validation rows ({reason}); give other validation "
            "rows, or fit by another metric"
        )
    if name == "loss":
        raise BadInput(
            f"before training, the loss over the validation rows is {value}; give a loss that is finite for "
            "finite scores, or rows whose targets it takes"
        )
    raise BadInput(
        f"before training, {name} over the validation rows is {value}: AUROC needs rows of "
        "two classes, R2 two rows, and all need finite scores; give other validation rows, or fit by another metric"
    )
