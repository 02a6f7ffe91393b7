"""What keeps a model up to date: each method starts on the first periods and updates by one period at a time."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

import windtunnel
from benchmarks.accuracy.sources import strong
from benchmarks.accuracy.task import Rows, Task
from benchmarks.refresh.streams import Period, Stream, concat
from windtunnel.api.translation import Translation

CALIBRATION = 2000
"""Training rows that calibrate a translation."""
WINDOW = 2
"""Periods that a model of a window is fitted on."""
DECAY = 0.9
"""LightGBM's default: the fraction of the old leaf value that ``refit`` keeps."""
MORE_TREES = 50
"""The most trees that continued training adds per period; it stops early on the validation rows."""
PATIENCE = 10


@dataclass
class RefreshInput:
    """The models that the methods start from: a pipeline fitted on the first periods, and its tuned translation."""

    stream: Stream
    source: Pipeline
    net: Translation

    @classmethod
    def of(cls, stream: Stream) -> RefreshInput:
        """Fit the source on the first periods, translate and tune it."""
        source, net = fit_all(stream, stream.periods[: stream.start])
        return cls(stream, source, net)


def fit_all(stream: Stream, periods: list[Period]) -> tuple[Pipeline, Translation]:
    """A pipeline fitted on periods, which stops early on their validation rows, and its tuned translation."""
    train, valid = concat([period.train for period in periods]), concat([period.valid for period in periods])
    source = strong(Task(stream.name, stream.kind, train, valid, valid), seed=0)
    sample = train.X.sample(min(CALIBRATION, len(train.X)), random_state=0)
    net = windtunnel.translate(source, calibrate=sample)
    net.fit(tuple(train), tuple(valid), progress=False)
    return source, net


@dataclass
class Method:
    """A model that stays as it starts; other methods override ``update``.

    ``model`` predicts raw rows.
    """

    stream: Stream
    model: Any

    def update(self, until: int) -> None:
        """Learn from period ``until`` - 1; earlier ones are ``stream.periods[:until - 1]``."""

    def predict(self, task: Task, rows: Rows) -> NDArray[np.float64]:
        """Probabilities or values."""
        return task.predictions(self.model, rows.X)


class FromScratch(Method):
    """Pipeline and translation fitted again on all periods, or on the last ``window`` ones."""

    window: int = 0

    def update(self, until: int) -> None:
        """Fit both."""
        self.model = fit_all(self.stream, self.stream.periods[-self.window + until if self.window else 0 : until])[1]


class OfWindow(FromScratch):
    """Pipeline and translation fitted again on the last periods."""

    window = WINDOW


@dataclass
class Boosted(Method):
    """A LightGBM booster behind frozen encoders; ``model`` is the source pipeline."""

    booster: lgb.Booster = field(init=False)

    def __post_init__(self) -> None:
        self.booster = self.model[-1].booster_

    def encode(self, rows: Rows) -> Any:
        """The columns that the booster reads."""
        return self.model[:-1].transform(rows.X)

    def predict(self, task: Task, rows: Rows) -> NDArray[np.float64]:
        """Probabilities or values."""
        return np.asarray(self.booster.predict(self.encode(rows), num_threads=1))


class Refit(Boosted):
    """LightGBM's ``refit``: other leaf values in the same trees, from all rows of the period."""

    def update(self, until: int) -> None:
        """Refit."""
        rows = self.stream.periods[until - 1].every
        self.booster = self.booster.refit(self.encode(rows), rows.y, decay_rate=DECAY, num_threads=1, verbosity=-1)


class Continued(Boosted):
    """LightGBM's ``init_model``: further trees on the rows of the period."""

    def update(self, until: int) -> None:
        """Add trees."""
        period, model = self.stream.periods[until - 1], self.model[-1]
        names = {"n_estimators", "importance_type", "n_jobs", "random_state", "objective", "class_weight"}
        options = {name: value for name, value in model.get_params().items() if name not in names}
        options |= {"objective": model.objective_, "num_threads": 1, "verbosity": -1, "seed": 0, "force_row_wise": True}
        if self.stream.kind == "multiclass":
            options["num_class"] = len(model.classes_)
        train, valid = (lgb.Dataset(self.encode(part), part.y) for part in (period.train, period.valid))
        self.booster = lgb.train(
            options,
            train,
            MORE_TREES,
            valid_sets=[valid],
            init_model=self.booster,
            callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
        )


class Refreshed(Method):
    """``net.refresh`` with the new rows; ``replayed`` old rows, drawn from all earlier periods, are replayed."""

    replayed: int = 0
    keep_old: bool = True

    def update(self, until: int) -> None:
        """Refresh."""
        replay = None
        if self.replayed:
            old = concat([period.every for period in self.stream.periods[: until - 1]])
            size = min(self.replayed, len(old.y))
            index = np.sort(np.random.default_rng(until).choice(len(old.y), size, replace=False))
            replay = (old.X.iloc[index].reset_index(drop=True), old.y[index])
        self.model.refresh(tuple(self.stream.periods[until - 1].every), replay=replay, keep_old=self.keep_old)


class Replayed(Refreshed):
    """The same with old rows, whose loss must not rise."""

    replayed = 10_000


class ReplayedFreely(Replayed):
    """The same with old rows, whose loss may rise."""

    keep_old = False


def methods(start: RefreshInput) -> dict[str, Method]:
    """All methods, by name."""
    stream, source, net = start.stream, start.source, start.net
    return {
        "source": Method(stream, source),
        "frozen": Method(stream, deepcopy(net)),
        "refresh": Refreshed(stream, deepcopy(net)),
        "refresh with replay": Replayed(stream, deepcopy(net)),
        "replay, loss may rise": ReplayedFreely(stream, deepcopy(net)),
        "from scratch": FromScratch(stream, net),
        "window": OfWindow(stream, net),
        "lightgbm refit": Refit(stream, source),
        "lightgbm init_model": Continued(stream, source),
    }
