"""The section of docs/joint_training.md with the stored results and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper.cells import LEVELS
from benchmarks.paper.tables import PAPER
from benchmarks.report import markdown, write_section, written
from benchmarks.stored import key
from windtunnel.errors import BadInput

BEGIN = "<!-- paper: written by `python -m benchmarks.paper --report` -->"
END = "<!-- /paper -->"
PAPER_SETS = {"flights2008": "Flight", "flight": "Flight", "avazu": "Avazu", "criteo": "Criteo"}
"""The set of the paper that a set of ours stands beside."""
TRAINED = {
    "L1": "L1",
    "L2": "L2",
    "L3": "L3",
    "L4": "L4",
    "cold": "L1, cold start",
    "trees": "L1, trees alone",
    "deepgbm": "DeepGBM, in our terms",
    "joint": 'L1, `recipe="joint"`, dropout {dropout:g}, ema {ema:g}',
    "sharp": 'L4, sharp start, `recipe="joint"`',
    "residual": "residual model",
}


class Training(NamedTuple):
    """A stored training, with the stored result of its source."""

    result: Mapping[str, Any]
    source: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of the training."""
        settings: Mapping[str, Any] = self.result["settings"]
        return settings

    @property
    def best_valid(self) -> float | None:
        """The best validation AUC after the start, of a residual model that of what is kept; None if not stored."""
        kept: float = self.result["valid_auc"]
        if self.settings["variant"] == "residual":  # epochs of one of its parts
            return kept
        if "curve" in self.result:
            return max(auc for _, auc in self.result["curve"][1:])
        return kept if self.result["best_step"] else None

    @property
    def valid_gain(self) -> float | None:
        """The gain in validation AUC, 0 where the source is kept; None if the source's is not stored."""
        valid: float | None = self.source.get("valid_auc")
        return None if valid is None else self.result["valid_auc"] - valid


def write_report(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the section of a Markdown file."""
    if not results:
        raise BadInput("no results to report; run a table first, or give the --output folder of an earlier run")
    write_section(path, BEGIN, END, section(results))


def section(results: Sequence[Mapping[str, Any]]) -> str:
    """A table for each question."""
    trainings = trainings_of(results)
    tables = {"The paper's pipelines": _pipelines(trainings), "Rows, levels, starts and scopes": _trainings(trainings)}
    return "\n\n".join(text for title, table in tables.items() if table for text in (f"**{title}**", table))


def trainings_of(results: Sequence[Mapping[str, Any]]) -> list[Training]:
    """Each training with its source; trainings whose source is not there are left out."""
    sources = {_source_key(each): each for each in results if each["settings"]["variant"] == "source"}
    pairs = ((each, sources.get(_source_key(each))) for each in results if each["settings"]["variant"] != "source")
    return [Training(result, source) for result, source in pairs if source is not None]


def _source_key(result: Mapping[str, Any]) -> str:
    settings = {name: value for name, value in result["settings"].items() if name not in ("variant", "recipe")}
    return key(settings | {"trained_on": "seen"} if "trained_on" in settings else settings)


def _is_whole(settings: Mapping[str, Any]) -> bool:
    """Whether all training rows of its data were used."""
    return settings["share"] == 1 and "trained_on" not in settings


def _by_seeds(trainings: Iterable[Training]) -> list[list[Training]]:
    """Trainings that differ in their seed alone, together; by pipeline, parts, rows and variant."""
    groups: dict[str, list[Training]] = {}
    for training in sorted(trainings, key=_place):
        settings = {name: value for name, value in training.settings.items() if name != "seed"}
        recipe = {name: value for name, value in settings["recipe"].items() if name != "seed"}
        groups.setdefault(key(settings | {"recipe": recipe}), []).append(training)
    return list(groups.values())


def _place(training: Training) -> tuple[Any, ...]:
    settings, rows = training.settings, training.result["train_rows"]
    return settings["pipe"], settings["pre"], "mixed" in settings, rows, settings["variant"]


def _pipelines(trainings: Iterable[Training]) -> str:
    """For each pipeline, number of rows, and level or residual model: test AUC, our gains, and the paper's gain."""
    gains = ("gain: valid", "gain: test", "the paper's gain")
    scores = ("source: test", "initial: test", "tuned: test")
    lines = [("pipeline", "rows", "trained", "rate", "most steps", *scores, *gains)]
    shown = (*LEVELS, "residual")
    chosen = (each for each in trainings if each.settings["variant"] in shown and _is_whole(each.settings))
    for same in _by_seeds(chosen):
        settings = same[0].settings
        lines.append(
            (
                f"Pre{settings['pre']} Pipe{settings['pipe']}",
                _rows(same[0]),
                TRAINED[settings["variant"]],
                _rates(settings),
                _most_steps(settings),
                written([each.source["auc"] for each in same]),
                written([each.result["start_auc"] for each in same]),
                written([each.result["auc"] for each in same]),
                written([each.valid_gain for each in same if each.valid_gain is not None], sign=True),
                written([each.result["auc"] - each.source["auc"] for each in same], sign=True),
                _paper_gain(settings),
            )
        )
    return markdown(lines) if len(lines) > 1 else ""


def _rows(training: Training) -> str:
    """The number of training rows; "not seen" by the source, or "mixed" with those of the other parts."""
    unseen, mixed = training.settings.get("trained_on") == "unseen", "mixed" in training.settings
    return f"{training.result['train_rows']:,}" + ", not seen" * unseen + ", mixed" * mixed


def _paper_gain(settings: Mapping[str, Any]) -> str:
    numbers = PAPER.get(PAPER_SETS.get(settings["data"], ""))
    if numbers is None:
        return "-"
    pre, pipe = settings["pre"] - 1, settings["pipe"] - 1
    return f"{numbers[pipe + 3][pre] - numbers[pipe][pre]:+.4f}"


def _rates(settings: Mapping[str, Any]) -> str:
    return " or ".join(f"{rate:g}" for rate in settings["recipe"]["learning_rate"])


def _most_steps(settings: Mapping[str, Any]) -> str:
    steps = settings["recipe"]["max_steps"]
    return "-" if steps is None else f"{steps:,}"


def _trainings(trainings: Iterable[Training]) -> str:
    """A line per training of Pre2 Pipe2: how far its source is overfitted, its start, and its best validation."""
    valid = ("source: valid", "initial: valid", "best after it: valid")
    columns = ("source: train", *valid, "source: test", "tuned: test")
    lines: list[tuple[str, ...]] = [("rows", "trained", "rate", "most steps", *columns)]
    shown = [each for each in trainings if (each.settings["pre"], each.settings["pipe"]) == (2, 2)]
    for same in _by_seeds(shown):
        settings = same[0].settings
        lines.append(
            (
                _rows(same[0]),
                TRAINED[settings["variant"]].format(**settings["recipe"]),
                _rates(settings),
                _most_steps(settings),
                written([each.source["train_auc"] for each in same]),
                written([each.source["valid_auc"] for each in same]),
                written([each.result["start_valid_auc"] for each in same]),
                written([each.best_valid for each in same if each.best_valid is not None]),
                written([each.source["auc"] for each in same]),
                written([each.result["auc"] for each in same]),
            )
        )
    return markdown(lines) if len(lines) > 1 else ""
