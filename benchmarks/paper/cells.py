"""One cell of a table: a pipeline, fitted and translated in one way, on one set with one seed; and its measurement."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import TargetEncoder

import windtunnel
from benchmarks.paper.deepgbm import deepgbm, freeze_encoders_of_trees
from benchmarks.sets import DataSet, load
from windtunnel.api.translation import Translation
from windtunnel.errors import BadInput
from windtunnel.experiment.config import Config
from windtunnel.experiment.run import build_pipeline
from windtunnel.modules.trees import SoftTrees
from windtunnel.trainers.recipe import Recipe

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "paper"
LEVELS = ("L1", "L2", "L3", "L4")
VARIANTS: dict[str, dict[str, Any]] = {
    "source": {},
    **{level: {"level": level, "temperature": 1.0} for level in LEVELS},
    "cold": {"level": "L1", "temperature": 1.0, "start": "cold"},
    "trees": {"level": "L1", "temperature": 1.0},
    "joint": {"level": "L1", "temperature": 1.0},
    "sharp": {},
    "deepgbm": {"level": "L1", "temperature": 1.0},
    "residual": {},
}
"""What is measured: the source pipeline itself, or a translation with these options, trained at the paper's temperature
1; "trees" trains nothing but the trees, "joint" by the recipe "joint", "sharp" by that recipe from the library's own
start (L4, temperature "auto"), "deepgbm" what ``deepgbm.py`` makes of the source, "residual" is the default ``fit``."""
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("joint", {"leaf_rate": 1.0, "table_rate": 1.0, "dropout": 0.1, "ema": 0.99}),
    "sharp": ("joint", {}),
}
"""The recipe of a variant and what is changed in it; the others have the paper's as it is."""
RATES = {"criteo": 1e-5}
"""The learning rates of the paper that are not its recipe's."""
CALIBRATION = 5000
"""Training rows by which soft trees start."""
BLOCKS = 40
"""Blocks of neighbouring training rows, every other of which belongs to the same half."""
TRAINED_ON = ("all", "seen", "unseen")
"""All training rows for the source and for joint training; or the source is fitted on one half, and joint training has
the same half ("seen") or the other half ("unseen")."""


@dataclass(frozen=True)
class Limits:
    """What a run is held to.

    Attributes
    ----------
    rows : int or None
        Rows of the data set that are taken.
    max_steps : int or None
        The most optimizer steps; None is the recipe's.
    learning_rates : tuple of float
        The validation rows choose among these; empty is the paper's for the data set.
    batch_size : int or None
        Rows of a step; None is the recipe's, a 256th of the training rows.
    mixed : bool
        Whether the rows are dealt to the parts at random, where the set has later rows for validation and test.
    """

    rows: int | None = None
    max_steps: int | None = None
    learning_rates: tuple[float, ...] = ()
    batch_size: int | None = None
    mixed: bool = False

    def recipes(self, cell: Cell) -> list[Recipe]:
        """The recipe within these limits, once for each rate: the paper's, unless the variant has another one."""
        if cell.variant == "residual":
            return [Recipe(seed=cell.seed)]
        rates = self.learning_rates or (RATES.get(cell.data.partition("=")[0]),)
        name, changes = RECIPES.get(cell.variant, ("paper", {}))
        limits = {"max_steps": self.max_steps, "batch_size": self.batch_size, "seed": cell.seed, **changes}
        overrides = [limits | {"learning_rate": rate} for rate in rates]
        chosen = [{option: value for option, value in each.items() if value is not None} for each in overrides]
        return [Recipe.resolve(name, each) for each in chosen]


@dataclass(frozen=True)
class Cell:
    """What is measured once.

    Attributes
    ----------
    data : str
        NAME=PATH.
    pre, pipe : int
        1 to 3; the config ``pre<pre>_pipe<pipe>.yaml``.
    variant : str
        A key of ``VARIANTS``.
    seed : int
        Of the source, the training, and which rows make up a share.
    share : float
        Of the training rows, in (0, 1].
    trained_on : str
        One of ``TRAINED_ON``.
    """

    data: str
    pre: int
    pipe: int
    variant: str
    seed: int
    share: float = 1.0
    trained_on: str = "all"

    @property
    def source(self) -> Cell:
        """The cell of the source that this one is translated from."""
        return replace(self, variant="source", trained_on="all" if self.trained_on == "all" else "seen")

    def settings(self, limits: Limits) -> dict[str, Any]:
        """All that the result depends on, as JSON values."""
        name, _, path = self.data.partition("=")
        settings = asdict(self) | {"data": name, "rows": limits.rows, "pipeline": config(self.pre, self.pipe)[1]}
        if name == "clicklog":  # its path is no place but a number of rows
            settings["data"] = f"clicklog of {int(path):,}"
        if self.trained_on == "all":  # as stored before there were halves
            del settings["trained_on"]
        if limits.mixed:  # likewise
            settings["mixed"] = True
        if self.variant != "source":
            recipes = limits.recipes(self)
            settings["recipe"] = recipes[0].facts() | {"learning_rate": [each.learning_rate for each in recipes]}
        return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


@cache
def config(pre: int, pipe: int) -> tuple[Config, dict[str, Any]]:
    """The config of a pipeline, and its pipeline as JSON values."""
    read = Config.from_yaml(CONFIGS / f"pre{pre}_pipe{pipe}.yaml")
    return read, read.pipeline.model_dump(mode="json")


def groups(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells of the same source together."""
    of_source: dict[Cell, list[Cell]] = {}
    for cell in cells:
        of_source.setdefault(cell.source, []).append(cell)
    return list(of_source.values())


def measure(cells: list[Cell], limits: Limits) -> Iterator[dict[str, Any]]:
    """Fit the source that these cells share, and measure one after the other."""
    first, data = cells[0], loaded(cells[0].data, limits.rows, limits.mixed)
    parts = halves(*shared(*data.part("train"), first.share, first.seed))
    valid, test = data.part("valid"), data.part("test")
    train = parts[first.source.trained_on]
    pipeline = seeded(build_pipeline(config(first.pre, first.pipe)[0].pipeline, train[0]), first.seed)
    started = time.perf_counter()
    source = pipeline.fit(*train)
    seconds = time.perf_counter() - started
    for cell in cells:
        train = parts[cell.trained_on]
        result = {"settings": cell.settings(limits), "train_rows": len(train[1]), "test_rows": len(test[1])}
        if cell.variant == "source":
            scores = {"auc": auc(source, *test), "valid_auc": auc(source, *valid), "train_auc": auc(source, *train)}
            yield result | scores | {"seconds": round(seconds, 2)}
        else:
            yield result | tuned(cell, source, train, valid, test, limits)


def tuned(
    cell: Cell,
    source: Any,
    train: tuple[pd.DataFrame, NDArray[Any]],
    valid: tuple[pd.DataFrame, NDArray[Any]],
    test: tuple[pd.DataFrame, NDArray[Any]],
    limits: Limits,
) -> dict[str, Any]:
    """Translate, fine-tune and measure."""
    started = time.perf_counter()
    sample = train[0].sample(min(CALIBRATION, len(train[0])), random_state=cell.seed)
    if cell.variant == "deepgbm":
        source = deepgbm(source, cell.seed).fit(*train)
    best: Translation | None = None
    for recipe in limits.recipes(cell):
        net = windtunnel.translate(source, calibrate=sample, **VARIANTS[cell.variant])
        if not recipe.residual:
            net.soften()
        if cell.variant == "trees":
            freeze_all_but_trees(net)
        elif cell.variant == "deepgbm":
            freeze_encoders_of_trees(net)
        start = auc(net, *test)
        net.fit(train, valid, recipe=recipe, progress=False)
        if best is None or net.history.best > best.history.best:
            best, rate = net, recipe.learning_rate
    assert best is not None  # there is a rate
    history = best.history
    last, steps = history.epochs[-1], history.epochs[history.best_epoch].step
    return {
        "auc": auc(best, *test),
        "start_auc": start,
        "valid_auc": history.best,
        "start_valid_auc": history.start,
        "faithful_r2": best.fidelity.r2,
        "learning_rate": rate,
        "curve": [[epoch.step, round(epoch.metric, 5)] for epoch in history.epochs],
        "steps": last.step,
        "best_step": steps,
        "capped": "limit" in history.stopped,
        "seconds": round(time.perf_counter() - started, 2),
    }


@lru_cache(maxsize=1)
def loaded(data: str, rows: int | None, mixed: bool) -> DataSet:
    """The data set, kept for the next cells; its rows do not depend on the seeds."""
    data_set = load(data, rows=rows)
    if mixed:
        data_set = replace(data_set, split=np.random.default_rng(0).permutation(data_set.split))
    if len(np.unique(data_set.y)) != 2:
        raise BadInput(
            f"{data_set.name} has targets {np.unique(data_set.y)[:5]}; the paper's tables are about two classes"
        )
    return data_set


def shared(X: pd.DataFrame, y: NDArray[Any], share: float, seed: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    """A share of the rows, drawn anew by each seed."""
    if share == 1:
        return X, y
    at = np.sort(np.random.default_rng(seed).choice(len(y), max(1, round(share * len(y))), replace=False))
    return X.iloc[at].reset_index(drop=True), y[at]


def halves(X: pd.DataFrame, y: NDArray[Any]) -> dict[str, tuple[pd.DataFrame, NDArray[Any]]]:
    """The rows of each of ``TRAINED_ON``."""
    is_seen = np.arange(len(y)) * BLOCKS // len(y) % 2 == 0
    return {
        "all": (X, y),
        "seen": (X[is_seen].reset_index(drop=True), y[is_seen]),
        "unseen": (X[~is_seen].reset_index(drop=True), y[~is_seen]),
    }


def seeded(pipeline: Pipeline, seed: int) -> Pipeline:
    """Give a seed to every step that draws."""
    for part in pipeline.get_params().values():
        if isinstance(part, TargetEncoder):
            part.set_params(cv=StratifiedKFold(5, shuffle=True, random_state=seed))
        elif isinstance(part, BaseEstimator) and "random_state" in part.get_params(deep=False):
            part.set_params(random_state=seed)
    return pipeline


def freeze_all_but_trees(net: Translation) -> None:
    """Leave the trees alone trainable, as in a translation of nothing but the trees."""
    for step in net.program.steps:
        if not isinstance(step.module, SoftTrees):
            step.module.requires_grad_(False)


def auc(model: Any, X: pd.DataFrame, y: NDArray[Any]) -> float:
    """Area under the ROC curve."""
    return float(roc_auc_score(y == model.classes_[1], model.predict_proba(X)[:, 1]))
