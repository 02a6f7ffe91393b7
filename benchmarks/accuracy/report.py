"""The section "Side by side" of a Markdown file: settings, tables, goals and what falls short."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.accuracy import builtin
from benchmarks.accuracy.cells import ALTERNATIVES
from benchmarks.accuracy.sources import SOURCES
from benchmarks.accuracy.table import Line, Scores, grids
from benchmarks.paper.tables import markdown, written
from windtunnel.errors import BadInput

BEGIN = "<!-- side by side: written by python -m benchmarks.accuracy --report -->"
END = "<!-- end of side by side -->"
HOW = """`python -m benchmarks.accuracy --data FOLDER --output FOLDER` runs on sets with a train, a valid and a test \
part. Scores are on the test rows: AUC unless the set says otherwise; means ± standard errors over the seeds. All \
choices are made on the validation rows. Seconds are the time of fitting (for translations, without that of the \
source), on whatever machine ran it.

- `logistic`: one-hot categories with ten rows or more, numbers in 32 bins and scaled; C from six values. Ridge \
regression if the target is a number.
- `lightgbm_two_hot`, `lightgbm_native`, `xgboost`, `catboost`: regularised, small learning rates, early stopping \
after 50 trees without a better validation score.
- `lightgbm_target_encoded`: LightGBM on two-hot categories and the out-of-fold target encodings of 150 unscreened \
single categories, pairs and triples, the idea of AutoGluon's TabPrep.
- `ebm`: `interpret`'s explainable boosting machine with 4 outer bags; it stops early on a part of the training rows.
- `realmlp`, `tabm`: the models of pytabkit, run by a separate Python.
- `strong`: two-hot, 31 leaves, learning rate 0.1, at most 250 trees, early stopping after 30.
- `paper`: two-hot, 100 trees of 64 leaves, learning rate 0.25.
- From a source: `warm` is its translation before training. `recipe_paper` and `default` are fine-tuned with \
`fit(train, valid, recipe="paper")` and `fit(train, valid)`. `crossfit` is `windtunnel.crossfit`.

Gains are over the source of the same seed; positive is better for every metric."""


class Goal(NamedTuple):
    """The mean and the lowest gain to reach on the sets of ``--data``."""

    way: str
    source: str
    mean: float
    least: float | None = None


GOALS = (
    Goal("crossfit", "strong", 0.004, -0.0005),
    Goal("default", "strong", 0.002, -0.0005),
    Goal("default", "paper", 0.010),
    Goal("default", "logistic", 0.010),
)
BEST_ON = 0.6
"""Fraction of the sets on which a translation should beat the best alternative."""


def write_report(path: Path, results: Sequence[Line]) -> None:
    """Put the section between its two marks, at the end of a file without them, or in a new file."""
    if not results:
        raise BadInput("no results to report; run it with --data or --set, or give the --output of an earlier run")
    text = path.read_text(encoding="utf-8") if path.is_file() else "# Accuracy\n"
    if BEGIN not in text and END not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadInput(f"{path} has to have the lines {BEGIN!r} and {END!r} once each, in order, or not at all")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{BEGIN}\n{section(results)}\n{END}{tail}", encoding="utf-8")


def section(results: Sequence[Line]) -> str:
    """The whole section."""
    scores = Scores(results)
    parts = ["## Side by side", HOW, _measured(scores)]
    for grid in grids(scores):
        rows = [[cell.replace("\n", "<br>") for cell in row] for row in grid.rows]
        parts += [f"### {grid.title}", markdown(rows)]
    parts += [
        "### Goals, and what falls short",
        "\n".join(summary(scores)) or "Nothing was compared yet.",
    ]
    if any(name in scores.sets for name in ("housing_like", "covertype_like")):
        parts += ["### The generated sets", _generators()]
    return "\n\n".join(parts)


def summary(scores: Scores) -> list[str]:
    """Goals met and missed on the sets of ``--data``, losses everywhere, and the best alternative per set."""
    lines = [line for goal in GOALS if (line := _goal(scores, goal))]
    lines += [line for way in ("default", "crossfit") if (line := _from_best(scores, way))]
    lines += _typical_gains(scores, "strong/default") + _won_and_lost(scores, "strong/default")
    ways = ("warm", "recipe_paper", "default", "crossfit")
    lost = []
    for source in SOURCES:
        for way in ways:
            for one in scores.sets:
                gain = scores.gains(one, f"{source}/{way}", source)
                if gain and fmean(gain) < -0.0005:
                    lost.append(f"{source}/{way} on {one} ({written(gain, sign=True)})")
    if lost:
        lines.append(f"- Worse than the source by more than 0.0005: {'; '.join(lost)}.")
    return lines


def _goal(scores: Scores, goal: Goal) -> str | None:
    gains = scores.mean_gains(f"{goal.source}/{goal.way}", goal.source)
    if not gains:
        return None
    mean, lowest = fmean(gains.values()), min(gains, key=gains.__getitem__)
    met = mean >= goal.mean and (goal.least is None or gains[lowest] >= goal.least)
    wanted = f"at least {goal.mean:+.3f}" + ("" if goal.least is None else f", nowhere below {goal.least:+.4f}")
    return (
        f"- {goal.way} over {goal.source}: {mean:+.4f} on average over {len(gains)} sets, lowest on {lowest} "
        f"({gains[lowest]:+.4f}). The goal ({wanted}) is {'met' if met else 'missed'}."
    )


def _typical_gains(scores: Scores, model: str) -> list[str]:
    """Mean and median gain over the source, and the mean without the set of the largest gain."""
    gains = scores.mean_gains(model, model.partition("/")[0])
    if len(gains) < 2:
        return []
    best = max(gains, key=gains.__getitem__)
    others = fmean(gain for name, gain in gains.items() if name != best)
    return [
        f"- {model}: {fmean(gains.values()):+.4f} AUC over its source on average of {len(gains)} sets, median "
        f"{median(gains.values()):+.4f}, {others:+.4f} on average without {best}."
    ]


def _won_and_lost(scores: Scores, model: str) -> list[str]:
    """Against each alternative, with the same seeds: on how many sets it is better, and on which it is worse."""
    lines = []
    for other in ALTERNATIVES:
        differences = {name: scores.gains(name, model, other) for name in scores.sets}
        means = {name: fmean(each) for name, each in differences.items() if each}
        lost = [f"{name} ({mean:+.4f})" for name, mean in means.items() if mean <= 0]
        if means:
            lines.append(
                f"- {model} is better than {other} on {len(means) - len(lost)} of {len(means)} sets"
                + (f", not on {', '.join(lost)}." if lost else ".")
            )
    return lines


def _from_best(scores: Scores, way: str) -> str | None:
    """Compare with the best alternative, and with the source of the best validation score, which is tuned."""
    told, above, below = [], 0, []
    for one in scores.of_data:
        known = {source: values for source in SOURCES if (values := scores.values(one, source, "valid"))}
        others = {name: fmean(values.values()) for name in ALTERNATIVES if (values := scores.values(one, name))}
        source = max(known, key=lambda name: fmean(known[name].values()), default="")
        ours = scores.values(one, f"{source}/{way}")
        if not ours or not others:
            continue
        best = max(others, key=others.__getitem__)
        difference = fmean(ours.values()) - others[best]
        above += difference > 0
        if fmean(scores.gains(one, f"{source}/{way}", source)) < 0:
            below.append(one)
        told.append(f"{one}: {source}/{way} {fmean(ours.values()):.4f}, {best} {others[best]:.4f} ({difference:+.4f})")
    if not told:
        return None
    met = not below and above >= BEST_ON * len(told)
    left = len(list(scores.of_data)) - len(told)
    verdict = ("met" if met else "missed") + (f", with {left} sets that were not run" if left else "")
    return (
        f"- {way} from the source with the best validation score, compared with the alternative with the best test "
        f"score: {'; '.join(told)}. Above it on {above} of {len(told)} sets, below its source on "
        f"{', '.join(below) or 'none'}. The goal (above on three of five, below on none) is {verdict}."
    )


def _measured(scores: Scores) -> str:
    seeds = sorted({line["settings"]["seed"] for line in scores.lines})
    versions = {name: one for line in scores.lines for name, one in line["settings"]["versions"].items()}
    rows = {name: next(line for line in scores.lines if line["settings"]["set"] == name) for name in scores.sets}
    sizes = ", ".join(f"{name} {line['train_rows']:,} / {line['test_rows']:,}" for name, line in rows.items())
    epochs = {line["settings"]["options"]["epochs"] for line in scores.lines if "epochs" in line["settings"]["options"]}
    capped = f" recipe_paper: at most {', '.join(map(str, sorted(epochs)))} epochs." if epochs - {None} else ""
    return (
        f"Seeds {', '.join(map(str, seeds))}; rows for training / test: {sizes}; sets with more than "
        f"{max(line['settings']['most_rows'] for line in scores.lines):,} training rows are cut to that number, drawn "
        f"at random.{capped} Versions: {', '.join(f'{name} {one}' for name, one in sorted(versions.items()))}."
    )


def _generators() -> str:
    assert builtin.__doc__ is not None
    return builtin.__doc__.partition("\n\n")[2].strip()
