"""Evaluates a metric over the rows of a loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.objectives.metrics import Metric
from windtunnel.trainers.loop.processes import sum_processes


def evaluate(
    metric: Metric, loss: Loss, score: Callable[..., Tensor], loader: Any, output: Callable[..., Tensor] | None = None
) -> float:
    """The metric over the rows of a loader; over the rows of all processes in a distributed run.

    Parameters
    ----------
    metric : Metric
    loss : callable
        Its mean is the metric named "loss".
    score : callable
        ``score(*rows)`` gives raw scores ``[B, K]``.
    loader : iterable
        Yields encoded ``(rows, target)`` or ``(rows, target, weight)``.
    output : callable, optional
        ``output(*rows)`` gives the output of the source's method ``metric.method``, if a program step computes it.
    """
    metric.reset()
    total: Tensor | float = 0.0
    count: Tensor | float = 0
    with torch.no_grad():
        for rows, target, *weight in loader:
            scores = score(*rows)
            metric.update(scores, target, *weight, output=None if output is None else output(*rows))
            if metric.name == "loss":  # a custom loss may be slow
                size = float(weight[0].sum()) if weight else len(target)
                total, count = total + float(loss(scores, target, *(weight or [None]))) * size, count + size
    if metric.name == "loss":
        total, count = sum_processes(total, count)
        value = float(total / count)
    else:
        value = metric.compute()
    metric.reset()
    return value
