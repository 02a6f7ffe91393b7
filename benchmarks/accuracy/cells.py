"""One cell of the table: a model on one set with one seed; what it depends on, and its measurement."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from benchmarks.accuracy import alternatives, sources
from benchmarks.accuracy.alternatives import (
    CATBOOST,
    EBM,
    LIGHTGBM,
    LOGISTIC,
    NATIVE,
    PATIENCE,
    TARGET_ENCODED,
    XGBOOST,
)
from benchmarks.accuracy.neural import NEURAL, Predictions, Pytabkit, timed
from benchmarks.accuracy.ours import CALIBRATION, OURS
from benchmarks.accuracy.sources import PAPER, SOURCES, STRONG, STRONG_PATIENCE
from benchmarks.accuracy.task import METRICS, MOST_ROWS, Task
from windtunnel.errors import BadInput, nearest


@dataclass(frozen=True)
class Fitted:
    """A model that is fitted in this process.

    Attributes
    ----------
    fit : callable
        ``fit(task, seed)`` gives the fitted model.
    options : dict
        What it was fitted with.
    libraries : tuple of str
        Whose versions matter.
    form : callable
        The task in the form that the model takes.
    """

    fit: Callable[[Task, int], Any]
    options: dict[str, Any]
    libraries: tuple[str, ...]
    form: Callable[[Task], Task] = lambda task: task


EARLY = {"patience": PATIENCE}
FITTED = {
    "logistic": Fitted(alternatives.logistic, LOGISTIC, ("scikit-learn",)),
    "lightgbm_two_hot": Fitted(alternatives.lightgbm_two_hot, LIGHTGBM | EARLY, ("lightgbm", "windtunnel")),
    "lightgbm_native": Fitted(alternatives.lightgbm_native, NATIVE | EARLY, ("lightgbm",), Task.as_categories),
    "lightgbm_target_encoded": Fitted(
        alternatives.lightgbm_target_encoded, TARGET_ENCODED | EARLY, ("lightgbm", "scikit-learn", "windtunnel")
    ),
    "xgboost": Fitted(alternatives.xgboost, XGBOOST | EARLY, ("xgboost",), Task.as_categories),
    "catboost": Fitted(alternatives.catboost, CATBOOST | EARLY, ("catboost",), Task.as_text),
    "ebm": Fitted(alternatives.ebm, EBM, ("interpret-core",), Task.as_text),
    "strong": Fitted(sources.strong, STRONG | {"patience": STRONG_PATIENCE}, ("lightgbm", "windtunnel")),
    "paper": Fitted(sources.paper, PAPER, ("lightgbm", "windtunnel")),
}
ALTERNATIVES = (*(name for name in FITTED if name not in ("strong", "paper")), *NEURAL)
"""What a user would pick instead."""
TRANSLATED = tuple(f"{source}/{way}" for source in SOURCES for way in OURS)
"""Each source, and what is made of it."""
MODELS = (*ALTERNATIVES, "strong", "paper", *TRANSLATED)


@dataclass(frozen=True)
class Settings:
    """What all cells of a run share.

    Attributes
    ----------
    most_rows : int
        Of the training rows.
    paper_epochs : int or None
        The most epochs of the paper's recipe; None is its own number.
    pytabkit : Pytabkit or None
    """

    most_rows: int = MOST_ROWS
    paper_epochs: int | None = None
    pytabkit: Pytabkit | None = None


@dataclass(frozen=True)
class Cell:
    """What is measured once: a set and a model of ``MODELS``, with a seed."""

    set: str
    model: str
    seed: int

    @property
    def source(self) -> str:
        """The model that has to be fitted first, which may be this one."""
        return self.model.partition("/")[0]

    @property
    def way(self) -> str:
        """What is made of the source: a key of ``OURS``, or nothing."""
        return self.model.partition("/")[2]

    def settings(self, run: Settings) -> dict[str, Any]:
        """All that the result depends on, as JSON values."""
        options, libraries = self._options(run)
        settings = {
            "set": self.set,
            "model": self.model,
            "seed": self.seed,
            "most_rows": run.most_rows,
            "options": options,
            "versions": libraries,
        }
        return json.loads(json.dumps(settings))  # type: ignore[no-any-return]

    def _options(self, run: Settings) -> tuple[dict[str, Any], dict[str, str]]:
        if self.model in NEURAL:
            assert run.pytabkit is not None  # _runnable leaves these cells out
            return run.pytabkit.options, run.pytabkit.versions
        model = FITTED[self.source]
        if not self.way:
            return model.options, _versions(model.libraries)
        options: dict[str, Any] = {"source": model.options}
        if self.way != "crossfit":  # which is exact
            options["calibration"] = CALIBRATION
        if self.way == "recipe_paper":
            options["epochs"] = run.paper_epochs
        return options, _versions((*model.libraries, "windtunnel", "torch"))


@cache
def _versions(libraries: tuple[str, ...]) -> dict[str, str]:
    return {name: version(name) for name in sorted(set(libraries))}


def named(models: Sequence[str]) -> list[str]:
    """The models of these names in the order of ``MODELS``, each with its source; ``default`` is that of every source.

    Raises
    ------
    BadInput
        For a name that is none.
    """
    chosen = set[str]()
    for name in models:
        if name not in MODELS and name not in OURS:
            raise BadInput(f"--model {name}: {nearest(name, (*MODELS, *OURS))}")
        found = [f"{source}/{name}" for source in SOURCES] if name in OURS else [name]
        # A gain needs its source beside it.
        chosen |= {*found, *(one.partition("/")[0] for one in found)}
    return [name for name in MODELS if name in chosen]


def measure(task: Task, cells: Sequence[Cell], run: Settings) -> Iterator[dict[str, Any]]:
    """Measure cells of one set, one seed and one source."""
    first = cells[0]
    if first.model in NEURAL:
        assert run.pytabkit is not None
        yield result(first, task, run.pytabkit.fit(first.model, task, first.seed), run)
        return
    model = FITTED[first.source]
    task = model.form(task)
    started = time.perf_counter()
    source = model.fit(task, first.seed)
    predictions = timed(task, source, started)
    for cell in cells:
        if not cell.way:
            yield result(cell, task, predictions, run)
            continue
        started = time.perf_counter()
        ours, facts = OURS[cell.way](source, task, cell.seed, run.paper_epochs)
        yield result(cell, task, timed(task, ours, started), run) | facts


def result(cell: Cell, task: Task, predictions: Predictions, run: Settings) -> dict[str, Any]:
    """The line of a finished cell."""
    line: dict[str, Any] = {
        "settings": cell.settings(run),
        "metric": METRICS[task.kind],
        "test": task.score(task.test.y, predictions.test),
        "valid": task.score(task.valid.y, predictions.valid),
    }
    if task.kind != "regression":
        line["log_loss"] = task.log_loss(task.test.y, predictions.test)
    rows = {f"{name}_rows": len(part.y) for name, part in (("train", task.train), ("test", task.test))}
    return line | {"seconds": round(predictions.seconds, 2)} | rows


def groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that one fitted source serves, together and in order."""
    found: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.set, cell.source, cell.seed), []).append(cell)
    return list(found.values())
