"""What is made of a source: its translation before any training, tuned by either recipe, or cross-fitted.

Every function takes the fitted source, the ``Task`` in the form that the source takes, a seed and the most epochs of
the paper's recipe, and gives a model with facts about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import windtunnel
from benchmarks.accuracy.alternatives import fewer_bins
from benchmarks.accuracy.task import Task
from windtunnel.api.translation import Translation

CALIBRATION = 5000
"""Training rows by which soft trees start."""
Facts = dict[str, Any]


def warm(source: Any, task: Task, seed: int, epochs: int | None) -> tuple[Any, Facts]:
    """The translation as it starts."""
    net = _translated(source, task, seed)
    return net, _facts(net)


def recipe_paper(source: Any, task: Task, seed: int, epochs: int | None) -> tuple[Any, Facts]:
    """The translation, tuned as in the paper."""
    limit = {} if epochs is None else {"epochs": epochs}
    net = _translated(source, task, seed)
    net.fit(tuple(task.train), tuple(task.valid), recipe="paper", progress=False, seed=seed, **limit)
    return net, _facts(net)


def default(source: Any, task: Task, seed: int, epochs: int | None) -> tuple[Any, Facts]:
    """The translation, tuned with no options."""
    net = _translated(source, task, seed)
    net.fit(tuple(task.train), tuple(task.valid), progress=False, seed=seed)
    return net, _facts(net)


def crossfit(source: Any, task: Task, seed: int, epochs: int | None) -> tuple[Any, Facts]:
    """Members that are tuned on rows which their source did not see."""
    with fewer_bins():
        net = windtunnel.crossfit(source, *task.train, valid=tuple(task.valid), seed=seed, progress=False)
    return net, _facts(net)


OURS: dict[str, Callable[[Any, Task, int, int | None], tuple[Any, Facts]]] = {
    "warm": warm,
    "recipe_paper": recipe_paper,
    "default": default,
    "crossfit": crossfit,
}


def _translated(source: Any, task: Task, seed: int) -> Translation:
    sample = task.train.X.sample(min(CALIBRATION, len(task.train.X)), random_state=seed)
    return windtunnel.translate(source, calibrate=sample)


def _facts(net: Translation) -> Facts:
    facts: Facts = {"faithful_r2": net.fidelity.r2} if net.fidelity else {}  # an exact one has no need of it
    if net.history is not None:
        facts |= {"epochs": len(net.history.epochs) - 1, "best_epoch": net.history.best_epoch}
    return facts
