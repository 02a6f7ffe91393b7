"""A sweep from a config: rows, pipeline, trials, and the scores of what they chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from windtunnel.api.sweep import sweep
from windtunnel.errors import BadInput
from windtunnel.experiment.config import Config
from windtunnel.experiment.run import build_pipeline, fit_source, load_parts, measure, write_json
from windtunnel.sweeps.result import SweepResult
from windtunnel.trainers.recipe import Recipe


@dataclass(frozen=True)
class SweptExperiment:
    """What a sweep found, and how source and best model score; the test rows enter here alone.

    Attributes
    ----------
    result : SweepResult
    scores : dict
        "source" and "best" to "valid" and "test" to metric to value.
    """

    result: SweepResult
    scores: dict[str, dict[str, dict[str, float]]]

    def table(self) -> Table:
        """Give the main metric of both, one line each."""
        metric = next(iter(self.scores["source"]["test"]))
        table = Table("model", f"valid {metric}", f"test {metric}")
        for name, parts in self.scores.items():
            table.add_row(name, *(f"{parts[part][metric]:.4f}" for part in ("valid", "test")))
        return table


def run(config: Config) -> SweptExperiment:
    """Fit the pipeline of a config and sweep its translation; the test rows score the result and nothing else.

    The folder ``config.output`` gets best.windtunnel, trials, plots, history.csv, summary.json and, where no other
    storage is named, sweep.db; the same call goes on from there.
    """
    if config.translate.calibrate_rows == 0:
        raise BadInput("translate.calibrate_rows=0: a sweep calibrates every trial; give at least 1")
    parts = load_parts(config.data)
    X, _ = parts["train"]
    source = fit_source(build_pipeline(config.pipeline, X), parts)
    folder = config.output
    folder.mkdir(parents=True, exist_ok=True)
    options = config.fit_options
    name = options.pop("recipe")
    sample = X.sample(min(config.translate.calibrate_rows, len(X)), random_state=config.data.seed)
    result = sweep(
        source,
        parts["train"],
        parts["valid"],
        recipe=Recipe.resolve(name, options) if options else name,
        calibrate=sample,
        folder=folder,
        progress=True,
        **config.translate.model_dump(exclude={"calibrate_rows"}),
        **{"storage": f"sqlite:///{folder / 'sweep.db'}", **config.sweep.model_dump(exclude_none=True)},
    )
    scores = {
        name: {part: measure(model, *parts[part], head=result.net.head) for part in ("valid", "test")}
        for name, model in (("source", source), ("best", result.net))
    }
    _write(config, result, scores)
    return SweptExperiment(result, scores)


def _write(config: Config, result: SweepResult, scores: dict[str, Any]) -> None:
    folder = config.output
    result.history.to_csv(folder / "history.csv", index=False)
    result.plots(folder / "plots")
    found = {
        "metric": result.metric,
        "default": result.default_value,
        "best": result.best_value,
        "best_options": result.best_options,
        "trials": len(result.history),
        "front": list(result.front),
    }
    write_json(folder / "summary.json", {**found, "scores": scores, "config": config.model_dump(mode="json")})
