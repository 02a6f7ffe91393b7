"""The section "Results" of a Markdown file: protocol, tables, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from benchmarks.accuracy.cells import ALTERNATIVES
from benchmarks.accuracy.sources import SOURCES
from benchmarks.accuracy.table import (
    Line,
    Scores,
    alternatives,
    best_sources,
    from_best,
    seconds,
    translations,
)
from benchmarks.report import markdown, write_section, written
from windtunnel.errors import BadInput

BEGIN = "<!-- results: written by python -m benchmarks.accuracy --report -->"
END = "<!-- /results -->"
MODELS_TOLD = """\
Sources, whose translation is fine-tuned:

- `strong`: LightGBM on two-hot categories, 31 leaves, learning rate 0.1, at most 250 trees, early stopping after 30 \
trees without a better validation score.
- `paper`: LightGBM on two-hot categories, 100 trees of 64 leaves, learning rate 0.25, no early stopping.
- `logistic`, `lightgbm_native`, `lightgbm_target_encoded`, `xgboost`, `catboost`: five of the other models.

What is made of them: `default` is `fit(train, valid)`, `crossfit` is `windtunnel.crossfit`, `recipe_paper` is \
`fit(train, valid, recipe="paper")`, `warm` is the translation before training.

Other models:

- `logistic`: one-hot categories with ten rows or more, numbers in 32 bins and scaled; C from six values. Ridge \
regression if the target is a number.
- `lightgbm_two_hot`, `lightgbm_native`, `xgboost`, `catboost`: regularised, small learning rates, early stopping \
after 50 trees without a better validation score.
- `lightgbm_target_encoded`: LightGBM on two-hot categories and the out-of-fold target encodings of 150 unscreened \
single categories, pairs and triples, the idea of AutoGluon's TabPrep.
- `ebm`: `interpret`'s explainable boosting machine with 4 outer bags; it stops early on a part of the training rows.
- `realmlp`, `tabm`: the models of pytabkit, run by a separate Python, on a GPU if there is one."""
SECONDS_TOLD = """\
Mean seconds over the seeds to fit, and to score the validation and test rows. `SOURCE/default` and `SOURCE/crossfit` \
do not include the fit of the source."""
LOSS = 0.0005
"""Smaller gains and losses count as none."""


def write_report(path: Path, results: Sequence[Line]) -> None:
    """Write the section of a Markdown file."""
    if not results:
        raise BadInput("no results to report; run it with --data or --set, or give the --output of an earlier run")
    write_section(path, BEGIN, END, section(results))


def section(results: Sequence[Line]) -> str:
    """The whole section: a question, its answer, and the table that says so; then the models."""
    scores = Scores(results)
    questions = [
        ("Does it gain over its source?", _gained(scores), [translations(scores, "strong")]),
        ("Is it better than other libraries?", _compared(scores), [from_best(scores), alternatives(scores)]),
        ("How long does it take?", [SECONDS_TOLD], [seconds(scores)]),
    ]
    parts = [_measured(scores)]
    for title, answer, grids in questions:
        if shown := [grid for grid in grids if grid is not None]:
            parts += [f"## {title}", *(["\n".join(answer)] if answer else [])]
            parts += [part for grid in shown for part in (f"**{grid.title}**", markdown(grid.rows))]
    return "\n\n".join([*parts, "## The models", MODELS_TOLD])


def _gained(scores: Scores) -> list[str]:
    """Typical gains of ``fit`` and ``crossfit`` over each source, and losses."""
    ways = ("default", "crossfit")
    pairs = [(f"{source}/{way}", source) for source in SOURCES for way in ways]
    pairs += [(f"{source}/crossfit", f"{source}/default") for source in SOURCES]
    lines = [line for model, over in pairs if (line := _typical_gains(scores, model, over))]
    if lost := [line for source in SOURCES for way in ways for line in _losses(scores, source, way)]:
        lines.append(f"- Worse than the source by more than {LOSS}: {'; '.join(lost)}.")
    return _all_sources(scores) + lines


def _all_sources(scores: Scores) -> list[str]:
    """How often ``fit`` gains and loses, over all sources and sets."""
    gains = [
        fmean(gain) for name in scores.sets for each in SOURCES if (gain := scores.gains(name, f"{each}/default", each))
    ]
    better, worse = sum(gain > LOSS for gain in gains), sum(gain < -LOSS for gain in gains)
    return [
        f"- `default` over its source, {len(gains)} pairs of a source and a set, whatever the metric: better by more "
        f"than {LOSS} on {better}, worse by more than that on {worse}."
    ]


def _compared(scores: Scores) -> list[str]:
    """How ``fit`` from the best source, and from ``strong``, compares with the other models."""
    best = best_sources(scores)
    lines = []
    if best:
        lines.append(
            f"- `default` from the source with the best validation score is above every other model that was measured, "
            f"the source among them, on {_wins({name: each.difference for name, each in best.items()})}"
        )
    if crossfitted := {name: each.crossfit for name, each in best.items() if each.crossfit is not None}:
        lines.append(f"- `crossfit` from that source is above every other model on {_wins(crossfitted)}")
    return lines + _won_and_lost(scores, "strong/default")


def _wins(differences: Mapping[str, float]) -> str:
    """On how many of the sets a model is better, and on which it is not."""
    lost = [f"{name} ({difference:+.4f})" for name, difference in differences.items() if difference <= 0]
    wins = f"{len(differences) - len(lost)} of {len(differences)} sets"
    return wins + (f", not on {', '.join(lost)}." if lost else ".")


def _typical_gains(scores: Scores, model: str, over: str) -> str | None:
    """Mean and median gain over another model, and the mean without the set of the largest gain."""
    gains = scores.mean_gains(model, over)
    if len(gains) < 2:
        return None
    best, least = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
    others = fmean(gain for name, gain in gains.items() if name != best)
    return (
        f"- `{model}` over `{over}`, {len(gains)} sets with AUC: mean gain {fmean(gains.values()):+.4f} "
        f"({others:+.4f} without {best}), median {median(gains.values()):+.4f}, least {gains[least]:+.4f} ({least})."
    )


def _losses(scores: Scores, source: str, way: str) -> list[str]:
    gains = {name: scores.gains(name, f"{source}/{way}", source) for name in scores.sets}
    return [
        f"`{source}/{way}` on {name} ({written(gain, sign=True)})"
        for name, gain in gains.items()
        if gain and fmean(gain) < -LOSS
    ]


def _won_and_lost(scores: Scores, model: str) -> list[str]:
    """Against each alternative, with the same seeds: on how many sets it is better, and on which it is worse."""
    lines = []
    for other in ALTERNATIVES:
        differences = {name: scores.gains(name, model, other) for name in scores.sets}
        means = {name: fmean(each) for name, each in differences.items() if each}
        if means:
            lines.append(f"- `{model}` is better than `{other}` on {_wins(means)}")
    return lines


def _measured(scores: Scores) -> str:
    """How to read the numbers, and versions."""
    versions = sorted({item for line in scores.lines for item in line["settings"]["versions"].items()})
    return (
        "Scores are on the test rows: AUC unless the set says otherwise, mean ± standard error over the seeds 0 to 2; "
        "without ± it is seed 0 alone. Gains are over the source of the same seed and positive where better, whatever "
        "the metric. A dash is a cell that was not measured.\n\n"
        '"Rows" are training rows; of more than 100,000 so many are drawn at random. '
        f"Versions: {', '.join(f'{name} {number}' for name, number in versions)}."
    )
