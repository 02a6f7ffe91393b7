"""Results as tables: rows are sets, columns are models; mean, standard error, and gains over the source by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.accuracy.builtin import BUILT_IN
from benchmarks.accuracy.cells import ALTERNATIVES, MODELS
from benchmarks.accuracy.ours import OURS
from benchmarks.accuracy.sources import SOURCES
from benchmarks.report import written

Line = Mapping[str, Any]
LABELS = {"auc": "AUC", "log_loss": "log loss", "rmse": "RMSE"}


class Scores:
    """Results by set, model and seed; of several with the same, the last.

    Attributes
    ----------
    sets : list of str
        Those that came with ``--data``, then those that are built in; in each group those with an AUC first, and of
        these the ones where ``fit`` gains most over ``strong``.
    """

    def __init__(self, results: Iterable[Line]) -> None:
        self._lines = {
            (one["settings"]["set"], one["settings"]["model"], one["settings"]["seed"]): one for one in results
        }
        found = list(dict.fromkeys(name for name, _, _ in self._lines))
        self.sets = sorted(found, key=self._place)

    @property
    def of_data(self) -> list[str]:
        """The sets that came with ``--data`` and are compared by the AUC."""
        return [name for name in self.sets if name not in BUILT_IN and self.metric(name) == "auc"]

    @property
    def lines(self) -> list[Line]:
        """Every result."""
        return list(self._lines.values())

    def _place(self, set: str) -> tuple[bool, bool, float]:
        gains = self.gains(set, "strong/default", "strong")
        return set in BUILT_IN, self.metric(set) != "auc", -fmean(gains) if gains else 0.0

    def training_rows(self, set: str) -> int:
        """How many the models were fitted on."""
        return next(int(line["train_rows"]) for (name, _, _), line in self._lines.items() if name == set)

    def metric(self, set: str) -> str:
        """What is compared on a set."""
        return next(str(line["metric"]) for (name, _, _), line in self._lines.items() if name == set)

    def values(self, set: str, model: str, field: str = "test") -> dict[int, float]:
        """By seed."""
        found = ((seed, line) for (a, b, seed), line in self._lines.items() if (a, b) == (set, model))
        return {seed: line[field] for seed, line in sorted(found, key=lambda one: one[0]) if field in line}

    def gains(self, set: str, model: str, over: str) -> list[float]:
        """How much better a model is than another with the same seed; positive is better, whatever the metric."""
        sign = 1 if self.metric(set) == "auc" else -1
        ours, theirs = self.values(set, model), self.values(set, over)
        return [sign * (ours[seed] - theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]

    def mean_gains(self, model: str, over: str) -> dict[str, float]:
        """By set of ``of_data``, where both were measured."""
        gains = {name: self.gains(name, model, over) for name in self.of_data}
        return {name: fmean(gain) for name, gain in gains.items() if gain}


@dataclass(frozen=True)
class Grid:
    """A table of text; the first row has the titles."""

    title: str
    rows: Sequence[Sequence[str]]

    def rich(self) -> Table:
        """For a terminal."""
        titles, *body = self.rows
        table = Table()
        for at, title in enumerate(titles):
            table.add_column(title, justify="right" if at else "left", no_wrap=True)
        for row in body:
            table.add_row(*row)
        return table


def grids(scores: Scores) -> list[Grid]:
    """What is made of each source and of the best one; the scores of other models; seconds."""
    found = [
        *(translations(scores, each) for each in SOURCES),
        from_best(scores),
        alternatives(scores),
        seconds(scores),
    ]
    return [grid for grid in found if grid is not None]


def translations(scores: Scores, source: str) -> Grid | None:
    """Sets by their training rows and what is made of a source: scores, and gains over it, positive where better."""
    ways = [way for way in OURS if any(scores.values(name, f"{source}/{way}") for name in scores.sets)]
    if not ways:
        return None
    models = [f"{source}/{way}" for way in ways]
    gains = {name: [scores.gains(name, model, source) for model in models] for name in scores.sets}
    sets = [name for name in scores.sets if any(gains[name])]
    rows = []
    for name in sets:
        row = [
            _label(scores, name),
            f"{scores.training_rows(name):,}",
            written(list(scores.values(name, source).values())),
        ]
        for model, gain in zip(models, gains[name], strict=True):
            row += [written(list(scores.values(name, model).values())), written(gain, sign=True)]
        rows.append(row)
    titles = ["set", "rows", f"`{source}`", *(title for way in ways for title in (f"`{way}`", "gain"))]
    return Grid(f"From {source}", [titles, *rows])


def alternatives(scores: Scores) -> Grid | None:
    """Sets by alternatives, beside what ``fit`` makes of the source ``strong``."""
    models = [name for name in ALTERNATIVES if any(scores.values(set, name) for set in scores.sets)]
    if not models:
        return None
    shown = ["strong/default", *models]
    rows = [
        [_label(scores, set), *(written(list(scores.values(set, name).values())) for name in shown)]
        for set in scores.sets
    ]
    return Grid("From strong, and other models", [["set", *(f"`{name}`" for name in shown)], *rows])


class BestSource(NamedTuple):
    """The source with the best validation score on a set, and the strongest other model.

    ``difference`` is by how much ``fit`` is better than that model, and ``crossfit`` by how much ``crossfit`` is; None
    where that was not measured. Positive is better, whatever the metric.
    """

    source: str
    other: str
    difference: float
    crossfit: float | None


def best_sources(scores: Scores) -> dict[str, BestSource]:
    """By set, where ``fit`` was measured from that source, and another model, or the source itself, with its seeds."""
    best = dict[str, BestSource]()
    for name in scores.sets:
        known = {source: values for source in SOURCES if (values := scores.values(name, source, "valid"))}
        highest = max if scores.metric(name) == "auc" else min
        source = highest(known, key=lambda source: fmean(known[source].values()), default="")
        gains = {other: scores.gains(name, f"{source}/default", other) for other in ALTERNATIVES}
        differences = {other: fmean(gain) for other, gain in gains.items() if gain}
        if differences:
            other = min(differences, key=differences.__getitem__)
            gains_of_crossfit = scores.gains(name, f"{source}/crossfit", other)
            crossfit = fmean(gains_of_crossfit) if gains_of_crossfit else None
            best[name] = BestSource(source, other, differences[other], crossfit)
    return best


def from_best(scores: Scores) -> Grid | None:
    """Sets by the source with the best validation score, what is made of it, and the strongest other model."""
    rows = []
    for name, (source, other, difference, crossfit) in best_sources(scores).items():
        models = source, f"{source}/default", f"{source}/crossfit", other
        its, default, crossfitted, others = (written(list(scores.values(name, model).values())) for model in models)
        differences = f"{difference:+.4f}", "-" if crossfit is None else f"{crossfit:+.4f}"
        rows.append(
            [_label(scores, name), f"`{source}`", its, default, crossfitted, f"`{other}`", others, *differences]
        )
    titles = ["set", "best source on validation rows", "its score", "`default`", "`crossfit`"]
    titles += ["best other model", "its score", "`default` less it", "`crossfit` less it"]
    return Grid("From the best source", [titles, *rows]) if rows else None


def seconds(scores: Scores) -> Grid | None:
    """Sets by models: mean time of fitting, for translations without that of the source."""
    measured = {
        (set, name): values for set in scores.sets for name in MODELS if (values := scores.values(set, name, "seconds"))
    }
    models = [name for name in MODELS if any((set, name) in measured for set in scores.sets)]
    rows = [
        [set, *(f"{fmean(of.values()):.1f}" if (of := measured.get((set, name))) else "-" for name in models)]
        for set in scores.sets
    ]
    return Grid("Seconds", [["set", *(f"`{name}`" for name in models)], *rows]) if models else None


def _label(scores: Scores, set: str) -> str:
    metric = scores.metric(set)
    return set if metric == "auc" else f"{set} ({LABELS[metric]})"
