"""Experiments from a config: ``windtunnel fit``, ``windtunnel sweep`` and ``windtunnel cascade``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic_core import to_json
from rich.table import Table
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline, make_pipeline

from windtunnel.api.cascade import cascade
from windtunnel.api.report import Report
from windtunnel.api.scores import Scores, measure, score_table
from windtunnel.api.sweep import sweep
from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.atomic_write import write_atomically
from windtunnel.errors import BadInput, WindTunnelError
from windtunnel.estimators.fitting import fit_estimator
from windtunnel.experiment.config import Config, PipelineConfig
from windtunnel.experiment.files import write_table_file
from windtunnel.experiment.parts import Part, Parts, load_parts
from windtunnel.experiment.steps import StepConfig
from windtunnel.program.head import Head
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.sweeps.result import SweepResult
from windtunnel.sweeps.settings import BEST
from windtunnel.trainers.recipe import Recipe

Result = TypeVar("Result")


@dataclass(frozen=True)
class ScoredModel:
    """The scores of a model by part and metric, and the seconds of fitting, translating or fine-tuning it."""

    scores: dict[str, dict[str, float]]
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The source pipeline, its translation before fine-tuning and after, and the fine-tuned translation itself."""

    net: Translation
    source: ScoredModel
    initial: ScoredModel
    tuned: ScoredModel
    start: str = "warm"

    @property
    def stages(self) -> dict[str, ScoredModel]:
        """The three models by name."""
        return {"source": self.source, f"{self.start} start": self.initial, "fine-tuned": self.tuned}

    def table(self) -> Table:
        """The main metric and the seconds of each model."""
        stages = self.stages
        seconds = {name: stage.seconds for name, stage in stages.items()}
        return score_table({name: stage.scores for name, stage in stages.items()}, seconds)

    def summary(self) -> dict[str, Any]:
        """The scores and seconds as JSON values, with the best epoch and the versions of the libraries."""
        history = self.net.history
        return {
            "stages": {
                name: {**stage.scores, "seconds": round(stage.seconds, 2)} for name, stage in self.stages.items()
            },
            "metric": history.metric if history else None,
            "epochs": len(history.epochs) - 1 if history else 0,
            "best_epoch": history.best_epoch if history else 0,
            "kept": history.kept.name if history else None,
            "candidates": [str(candidate) for candidate in history.candidates] if history else [],
            "versions": {name: version(name) for name in ("windtunnel", "torch", "scikit-learn", "lightgbm")},
        }


def run_fit(config: Config, *, resume: bool = False) -> Comparison:
    """Fit the pipeline of a config, translate and fine-tune it, and score all three models.

    The folder ``config.output`` gets model.windtunnel, report.html, summary.json, logs, and the checkpoint from which
    ``resume`` continues.
    """
    parts = load_parts(config.data)
    folder = config.output
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = folder / "checkpoints"
    comparison = compare(
        _pipeline_of(config, parts.train[0]),
        parts,
        calibrate_rows=config.translate.calibrate_rows,
        seed=config.data.seed,
        translate_options=config.translate.model_dump(exclude={"calibrate_rows"}),
        fit_options={
            **config.fit_options,
            "checkpoint_dir": checkpoints,
            "resume_from": checkpoints if resume else None,
            "log_dir": folder / "logs",
            "progress": sys.stderr.isatty(),
        },
    )
    parts.name_classes(comparison.net)
    write_model(comparison, folder)
    write_json(folder / "summary.json", {**comparison.summary(), "config": config.model_dump(mode="json")})
    return comparison


def run_sweep(config: Config) -> tuple[SweepResult, Scores]:
    """Fit the pipeline of a config, sweep its translation, and score the source pipeline and the best model.

    The test rows are used for the scores only. The folder ``config.output`` gets best.windtunnel, trials, plots,
    history.csv, sweep_summary.json and, if the config names no storage, sweep.db, from which the same call continues.
    """
    if config.translate.calibrate_rows == 0:
        raise BadInput("translate.calibrate_rows=0: a sweep calibrates every trial; give at least 1")
    parts = load_parts(config.data)
    X, _ = parts.train
    source = _fit_source(_pipeline_of(config, X), parts)
    folder = config.output
    folder.mkdir(parents=True, exist_ok=True)
    options = config.fit_options
    recipe = options.pop("recipe")
    result = sweep(
        source,
        parts.train,
        parts.valid,
        recipe=Recipe.resolve(recipe, options) if options else recipe,
        calibrate=X.sample(min(config.translate.calibrate_rows, len(X)), random_state=config.data.seed),
        folder=folder,
        **config.translate.model_dump(exclude={"calibrate_rows"}),
        **{"storage": f"sqlite:///{folder / 'sweep.db'}", **config.sweep.model_dump(exclude_none=True)},
    )
    scores = {
        name: _score(model, said, parts.held_out, result.net.head)
        for name, said, model in (("source", "source pipeline", source), ("best", "best model", result.net))
    }
    if parts.classes is not None:
        parts.name_classes(result.net)
        result.net.save(folder / BEST)
    _write_sweep(result, scores, config)
    return result, scores


def _write_sweep(result: SweepResult, scores: Scores, config: Config) -> None:
    """Write history, plots and summary into the output folder."""
    folder = config.output
    write_table_file(result.history, folder / "history.csv")
    result.plots(folder / "plots")
    summary = {
        "metric": result.metric,
        "default": result.default_value,
        "best": result.best_value,
        "best_options": result.best_options,
        "trials": len(result.history),
        "front": list(result.front),
        "scores": scores,
        "config": config.model_dump(mode="json"),
    }
    write_json(folder / "sweep_summary.json", summary)


def run_cascade(config: Config, accuracy_loss: float, metric: str) -> Cascade:
    """Fit the pipeline of a config and a small model in front of it, as ``windtunnel.cascade`` does.

    The folder ``config.output`` gets model.cascade.
    """
    parts = load_parts(config.data)
    source = _fit_source(_pipeline_of(config, parts.train[0]), parts)
    seed = config.data.seed
    result = cascade(source, parts.train, parts.valid, accuracy_loss=accuracy_loss, metric=metric, seed=seed)
    parts.name_classes(result.small, result.full)
    config.output.mkdir(parents=True, exist_ok=True)
    result.save(config.output / "model.cascade")
    return result


def compare(
    pipeline: Any,
    parts: Parts,
    *,
    calibrate_rows: int = 5000,
    seed: int = 0,
    translate_options: dict[str, Any] | None = None,
    fit_options: dict[str, Any] | None = None,
) -> Comparison:
    """Fit a pipeline on the training rows, translate and fine-tune it; score all three models on the other parts.

    A booster with early stopping among its options uses the validation rows for it. ``calibrate_rows`` training rows,
    drawn with ``seed``, calibrate the translation; 0 for none.
    """
    X, _ = parts.train
    options = translate_options or {}
    sample = X.sample(min(calibrate_rows, len(X)), random_state=seed) if calibrate_rows else None
    source, fitting = _timed(lambda: _fit_source(pipeline, parts))
    net, translating = _timed(lambda: translate(source, calibrate=sample, **options))

    untuned = (
        ScoredModel(_score(source, "source pipeline", parts.held_out, net.head), fitting),
        ScoredModel(_score(net, "translation", parts.held_out, net.head), translating),
    )
    _, tuning = _timed(lambda: net.fit(parts.train, parts.valid, **(fit_options or {})))
    tuned = ScoredModel(_score(net, "fine-tuned translation", parts.held_out, net.head), tuning)
    return Comparison(net, *untuned, tuned, options.get("start", "warm"))


def _score(model: Any, name: str, parts: Mapping[str, Part], head: Head) -> dict[str, dict[str, float]]:
    """The scores of a model on each part; ``BadInput`` for rows that it rejects, and labels that it does not know."""
    scores = {}
    for part, rows in parts.items():
        try:
            scores[part] = measure(model, *rows, head=head)
        except WindTunnelError:
            raise
        except (ValueError, TypeError) as error:
            raise BadInput(f"the {name} cannot be scored on the {part} part: {error}") from error
    return scores


def _timed(run: Callable[[], Result]) -> tuple[Result, float]:
    """The result of a function, and its seconds."""
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def write_model(comparison: Comparison, folder: Path) -> None:
    """Write model.windtunnel and report.html, with the scores on the test rows."""
    comparison.net.save(folder / "model.windtunnel")
    on_test = {"source pipeline": comparison.source.scores["test"], "fine-tuned": comparison.tuned.scores["test"]}
    report = Report.of(comparison.net, on_test)
    write_atomically(folder / "report.html", report.to_html().encode())


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values as JSON, with NaN and infinities as null."""
    write_atomically(path, to_json(values, indent=2, inf_nan_mode="null") + b"\n")


def _fit_source(pipeline: Any, parts: Parts) -> Any:
    try:
        return fit_estimator(pipeline, *parts.train, validation=parts.valid)
    except Exception as error:  # each library has custom errors for wrong options
        raise BadInput(f"the pipeline cannot be fitted on the training rows: {error}") from error


def _pipeline_of(config: Config, X: pd.DataFrame) -> Pipeline:
    """The pipeline of a config; ``BadInput`` for a regressor of a positive class."""
    pipeline = build_pipeline(config.pipeline, X)
    if config.data.positive is not None and is_regressor(pipeline):
        raise BadInput(f"positive={config.data.positive!r} names a class, and the model is a regressor; leave it out")
    return pipeline


def build_pipeline(config: PipelineConfig, X: pd.DataFrame) -> Pipeline:
    """Create the pipeline of a config, not fitted: steps for text columns, steps for the others, the model."""
    text = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    if times := [name for name in text if X[name].dtype.kind in "mM"]:
        listed = ", ".join(f"{name!r} ({X[name].dtype})" for name in times)
        raise BadInput(f"columns of times: {listed}; make them numbers, list them under data.categorical or data.drop")
    if text and not config.categories:
        raise BadInput(
            f"columns {', '.join(map(repr, text))} hold text and pipeline.categories has no step; "
            "add one, such as OneHotEncoder, or list the columns under data.drop"
        )
    numbers = [name for name in X if name not in text]
    branches = [("categories", config.categories, text), ("numbers", config.numbers, numbers)]
    columns = ColumnTransformer([(name, _chain(steps), part) for name, steps, part in branches if part])
    return Pipeline([("columns", columns), ("model", config.model.build())])


def _chain(steps: Sequence[StepConfig]) -> Any:
    built = [step.build() for step in steps]
    return make_pipeline(*built) if len(built) > 1 else built[0] if built else "passthrough"
