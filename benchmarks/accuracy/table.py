"""Results as tables: rows are sets, columns are models; mean, standard error, and gains over the source by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.table import Table

from benchmarks.accuracy.builtin import BUILT_IN
from benchmarks.accuracy.cells import ALTERNATIVES, MODELS
from benchmarks.accuracy.ours import OURS
from benchmarks.accuracy.sources import SOURCES
from benchmarks.paper.tables import written

Line = Mapping[str, Any]
LABELS = {"auc": "AUC", "log_loss": "log loss", "rmse": "RMSE"}


class Scores:
    """Results by set, model and seed; of several with the same, the last.

    Attributes
    ----------
    sets : list of str
        Those that came with ``--data``, then those that are built in.
    """

    def __init__(self, results: Iterable[Line]) -> None:
        self._lines = {
            (one["settings"]["set"], one["settings"]["model"], one["settings"]["seed"]): one for one in results
        }
        found = list(dict.fromkeys(name for name, _, _ in self._lines))
        self.sets = sorted(found, key=lambda name: name in BUILT_IN)

    @property
    def of_data(self) -> list[str]:
        """The sets that came with ``--data`` and are compared by the AUC."""
        return [name for name in self.sets if name not in BUILT_IN and self.metric(name) == "auc"]

    @property
    def lines(self) -> list[Line]:
        """Every result."""
        return list(self._lines.values())

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
        table = Table(show_lines=any("\n" in cell for row in body for cell in row))
        for at, title in enumerate(titles):
            table.add_column(title, justify="right" if at else "left", no_wrap=True)
        for row in body:
            table.add_row(*row)
        return table


def grids(scores: Scores) -> list[Grid]:
    """The scores of the alternatives; those of each source and what is made of it; log losses and seconds."""
    found = [alternatives(scores), *(translations(scores, source) for source in SOURCES)]
    found += [by_model(scores, "log_loss", "Log loss on the test rows"), by_model(scores, "seconds", "Seconds")]
    return [grid for grid in found if grid is not None]


def alternatives(scores: Scores) -> Grid | None:
    """Sets by alternatives and the sources that are none."""
    models = [
        name for name in (*ALTERNATIVES, "strong", "paper") if any(scores.values(one, name) for one in scores.sets)
    ]
    if not models:
        return None
    rows = [
        [_label(scores, one), *(written(list(scores.values(one, name).values())) for name in models)]
        for one in scores.sets
    ]
    return Grid("Score on the test rows", [["set", *models], *rows])


def translations(scores: Scores, source: str) -> Grid | None:
    """Sets by what is made of a source: the score, and below it the gain over the source, positive where better."""
    ways = [way for way in OURS if any(scores.values(one, f"{source}/{way}") for one in scores.sets)]
    if not ways:
        return None
    rows = []
    for one in scores.sets:
        cells = [written(list(scores.values(one, source).values()))]
        for way in ways:
            score = written(list(scores.values(one, f"{source}/{way}").values()))
            gain = written(scores.gains(one, f"{source}/{way}", source), sign=True)
            cells.append(score if gain == "-" else f"{score}\n{gain}")
        rows.append([_label(scores, one), *cells])
    means = [list(scores.mean_gains(f"{source}/{way}", source).values()) for way in ways]
    if any(means):
        rows.append(["mean gain, sets of --data", "", *(f"{fmean(gains):+.4f}" if gains else "-" for gains in means)])
    return Grid(f"From {source}: score on the test rows, and its gain over {source}", [["set", source, *ways], *rows])


def by_model(scores: Scores, field: str, title: str) -> Grid | None:
    """Models by sets."""
    sets = [one for one in scores.sets if any(scores.values(one, name, field) for name in MODELS)]
    rows = []
    for name in MODELS:
        values = [list(scores.values(one, name, field).values()) for one in sets]
        if any(values):
            rows.append([name, *(_of(field, one) for one in values)])
    return Grid(title, [["model", *sets], *rows]) if rows else None


def _of(field: str, values: list[float]) -> str:
    if field == "seconds":
        return f"{fmean(values):.1f}" if values else "-"
    return written(values)


def _label(scores: Scores, set: str) -> str:
    metric = scores.metric(set)
    return set if metric == "auc" else f"{set} ({LABELS[metric]})"
