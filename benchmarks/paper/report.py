"""The section of docs/accuracy.md with the results, the paper's numbers and what falls short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.paper.tables import TABLES, Fields, Table, markdown, mean_and_error, written
from windtunnel.errors import BadInput

BEGIN = "<!-- paper: written by `python -m benchmarks.paper --report` -->"
END = "<!-- /paper -->"
DIFFERENT = """\
- Each node of a tree starts with its own temperature (`temperature="auto"`), not with 1 for all, unless \
a table says otherwise. With 1, the warm start loses much of what the source knows.
- Target encoding is scikit-learn's, which cross-fits the columns that the trees are fitted on. If an encoder uses the \
target of the row itself, the trees rely on it.
- "The lower 1 % by frequency" are the least frequent categories that together have at most 1 % of the rows of a \
column.
- Bins of numbers are quantiles; a missing number has a separate bin. In Pipe1 numbers are imputed by the mean and \
standardised.
- GBDT2NN trains the trees and does not change the tables.
- The result is the epoch with the best AUC on the validation rows. Epoch 0, the warm start, counts, so W.T. can fall \
below ML on the test rows only.
- LightGBM without sampling draws nothing. So ML (Pipe1) and ML (Pipe2) have no spread over seeds where the encoders \
have none.
- DeepGBM was not run."""


class Run(NamedTuple):
    """A data set and the limits that it was run in."""

    data: str
    rows: int | None
    max_steps: int | None
    rates: tuple[float, ...]

    @property
    def label(self) -> str:
        """Name and rows."""
        return self.data + ("" if self.rows is None else f", {self.rows:,} rows")

    @property
    def limits(self) -> str:
        """Rates and steps."""
        steps = "" if self.max_steps is None else f", {self.max_steps:,} steps"
        return f"rate {' or '.join(f'{rate:g}' for rate in self.rates)}{steps}"


def write_report(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Put the section between its two marks in a Markdown file; make the file if it does not exist."""
    if not results:
        raise BadInput("no results to report; run a table first, or give the --output folder of an earlier run")
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# Accuracy\n\n{BEGIN}\n{END}\n"
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadInput(f"{path} does not have the lines {BEGIN!r} and {END!r} once each, in order; put them in")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{BEGIN}\n{section(results)}\n{END}{tail}", encoding="utf-8")


def section(results: Sequence[Mapping[str, Any]]) -> str:
    """The whole section: the answer, the runs, the tables, and what differs from the paper."""
    runs = runs_of(results)
    parts = ["## Does joint training gain?", _answer(runs, results), "### The runs", _settings(runs, results)]
    for table in TABLES.values():
        if any(_has_news(table, run, results) for run in runs):
            parts += [f"### {table.heading}", _comparison(table, runs, results)]
            if table.number == "5.3":
                parts.append(_gains(table, runs, results))
    return "\n\n".join([*parts, "### Differences from the paper", DIFFERENT])


def runs_of(results: Sequence[Mapping[str, Any]]) -> list[Run]:
    """The runs that translations were made in; sources belong to every one with the same rows."""
    found = {run_of(result["settings"]) for result in results if "recipe" in result["settings"]}
    bare = {Run(one["settings"]["data"], one["settings"]["rows"], None, ()) for one in results}
    known = {(run.data, run.rows) for run in found}
    return sorted(found | {run for run in bare if run[:2] not in known}, key=str)


def run_of(settings: Mapping[str, Any]) -> Run:
    """The run of the settings of a trained cell."""
    recipe = settings["recipe"]
    return Run(settings["data"], settings["rows"], recipe["max_steps"], tuple(recipe["learning_rate"]))


def values_of(results: Sequence[Mapping[str, Any]], run: Run, fields: Fields) -> dict[int, float]:
    """The AUC by seed of the cells with these fields."""
    wanted = {"share": 1.0, "trained_on": "all", **fields}
    scores = {}
    for result in results:
        settings = {"trained_on": "all"} | result["settings"]
        trained = "recipe" in settings
        same = run_of(settings) == run if trained else (settings["data"], settings["rows"]) == run[:2]
        if same and all(settings[name] == value for name, value in wanted.items()):
            scores[settings["seed"]] = result["auc"]
    return scores


def paper_form(table: Table, runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The table as the paper has it: a line per model, columns per data set."""
    rows = [["Model", *(f"{run.data} {label}" for run in runs for label, _ in table.columns)]]
    for line in table.lines:
        cells = [_values(results, run, line, column) for run in runs for column in table.columns]
        rows.append([line[0], *map(written, cells)])
    return rows


def _values(
    results: Sequence[Mapping[str, Any]], run: Run, line: tuple[str, Fields], column: tuple[str, Fields]
) -> list[float]:
    return list(values_of(results, run, line[1] | column[1]).values())


def _has_news(table: Table, run: Run, results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table has a measured cell that table 5.3 has not."""
    return any(
        _values(results, run, line, column)
        for line in table.lines
        for column in table.columns
        if table.number == "5.3" or {**line[1], **column[1]}.get("variant") not in ("source", "L4")
    )


def _comparison(table: Table, runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> str:
    """Ours and the paper's, a row per data set and column of the paper's table; no model without a number."""
    rows = [["data", "", *(label for label, _ in table.lines)]]
    for run in runs:
        for column in table.columns:
            cells = [_values(results, run, line, column) for line in table.lines]
            trained = [
                cell
                for line, cell in zip(table.lines, cells, strict=True)
                if run.max_steps is None or {**line[1], **column[1]}["variant"] != "source"
            ]
            if any(trained) and _has_news(table, run, results):
                rows.append([_named(run, runs), column[0], *map(written, cells)])
    for name, numbers in table.paper.items():
        for at, (label, _) in enumerate(table.columns):
            rows.append([f"*{name}, paper*", label, *(f"{line[at]:.4f}" for line in numbers)])
    measured = [at for at in range(len(rows[0])) if at < 2 or any(row[at] != "-" for row in rows[1:])]
    return markdown([row[at] for at in measured] for row in rows)


def _gains(table: Table, runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> str:
    """What the translation adds to its source, by seed."""
    rows = [["W.T. - ML", *(f"Pipe{pipe} {label}" for pipe in (1, 2, 3) for label, _ in table.columns)]]
    for run in runs:
        gains = [_gain(results, run, pipe, column[1]) for pipe in (1, 2, 3) for column in table.columns]
        if any(gains):
            rows.append([_named(run, runs), *(written(one, sign=True) for one in gains)])
    for name, numbers in table.paper.items():
        gained = [numbers[pipe + 3][at] - numbers[pipe][at] for pipe in range(3) for at in range(len(table.columns))]
        rows.append([f"*{name}, paper*", *(f"{one:+.4f}" for one in gained)])
    return markdown(rows)


def _gain(
    results: Sequence[Mapping[str, Any]], run: Run, pipe: int, fields: Fields, variant: str = "L4"
) -> list[float]:
    ours, source = (values_of(results, run, {"pipe": pipe, "variant": one, **fields}) for one in (variant, "source"))
    return [ours[seed] - source[seed] for seed in ours.keys() & source.keys()]


def _named(run: Run, runs: Sequence[Run]) -> str:
    """The label of a run, with its limits where others of the same data have other ones."""
    alike = [one for one in runs if one.label == run.label]
    return run.label if len(alike) == 1 else f"{run.label}, {run.limits}"


def _settings(runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> str:
    """What the runs were, and how many of them the cap on steps ended."""
    seeds = sorted({result["settings"]["seed"] for result in results})
    lines = [
        "`python -m benchmarks.paper --table 5.3 --data NAME=PATH` with the pipelines of configs/paper/ and "
        f'`recipe="paper"`; AUC on the test rows, seed{"s" * (len(seeds) > 1)} {", ".join(map(str, seeds))}. '
        "The paper trains until convergence on 14 to 41 million rows; here training ends at the cap on steps, or "
        "after ten validations, one every 200 steps, without a better AUC on the validation rows.",
    ]
    for run in runs:
        trained = [one for one in results if "recipe" in one["settings"] and run_of(one["settings"]) == run]
        if trained:
            capped = sum(one["capped"] for one in trained)
            rows = max(one["train_rows"] for one in trained)
            lines.append(
                f"- {run.label}, {run.limits}: {rows:,} training rows; the cap on steps ended {capped} of "
                f"{len(trained)} trainings."
            )
    return "\n".join([lines[0], "", *lines[1:]])


def _answer(runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> str:
    """The mean gain of each run at each level, and the orders of the paper that ours do not have."""
    lines = list[str]()
    for run in runs:
        for variant, label in (("L4", "L4"), ("L1", "L1 with temperature 1")):
            gains = {
                f"Pre{pre} Pipe{pipe}": mean_and_error(gain)[0]
                for pipe in (1, 2, 3)
                for pre in (1, 2, 3)
                if (gain := _gain(results, run, pipe, {"pre": pre}, variant))
            }
            if gains:
                lost = [f"{name} ({mean:+.4f})" for name, mean in gains.items() if round(mean, 4) < 0]
                lines.append(
                    f"- {run.label}, {run.limits}, {label}: {fmean(gains.values()):+.4f} on average over {len(gains)} "
                    f"pipelines (the paper: {_paper_mean():+.4f} over 27)"
                    + (f"; below its source with {', '.join(lost)}." if lost else "; never below its source.")
                )
        lines += _orders(run, runs, results)
    return "\n".join(lines) or "Nothing was compared yet."


def _paper_mean() -> float:
    numbers = TABLES["5.3"].paper.values()
    return fmean(one[pipe + 3][at] - one[pipe][at] for one in numbers for pipe in range(3) for at in range(3))


ORDERS = (
    ("5.4", {"pipe": 2, "variant": "trees"}, {"pipe": 2, "variant": "source"}, "GBDT2NN is not above its source"),
    ("5.4", {"pipe": 2, "variant": "L4"}, {"pipe": 2, "variant": "trees"}, "the whole is not above GBDT2NN"),
    ("5.5", {"pipe": 2, "variant": "L4"}, {"pipe": 2, "variant": "cold"}, "Pipe2, warm is not above cold"),
    ("5.5", {"pipe": 3, "variant": "L4"}, {"pipe": 3, "variant": "cold"}, "Pipe3, warm is not above cold"),
)
"""Comparisons of the paper's tables 5.4 and 5.5: the better cell, the worse cell, and the sentence if ours differ."""


def _orders(run: Run, runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for number, above, below, told in ORDERS:
        for pre in (2, 3):
            high, low = (values_of(results, run, {"pre": pre, **fields}) for fields in (above, below))
            seeds = sorted(high.keys() & low.keys())
            difference = [high[seed] - low[seed] for seed in seeds]
            if difference and fmean(difference) <= 0:
                lines.append(
                    f"- {_named(run, runs)}, table {number}, Pre{pre}: {told} ({written(difference, sign=True)})."
                )
    return lines
