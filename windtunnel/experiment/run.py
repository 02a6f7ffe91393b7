"""From a config to results: rows, pipeline, translation, fine-tuning, and scores of all three models."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.table import Table
from sklearn.compose import ColumnTransformer
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_absolute_error,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_tweedie_deviance,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import Pipeline, make_pipeline

from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.errors import BadInput
from windtunnel.estimators.fitting import fit_estimator
from windtunnel.experiment.config import Config, DataConfig, PipelineConfig
from windtunnel.experiment.files import read_table_file
from windtunnel.program.head import Head

PARTS = ("train", "valid", "test")
Part = tuple[pd.DataFrame, NDArray[Any]]


@dataclass(frozen=True)
class Stage:
    """One of the models that are compared: its scores by part and metric, and the seconds that it took to make."""

    name: str
    scores: dict[str, dict[str, float]]
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The source pipeline, its translation before and after fine-tuning, and how each scores."""

    source: Any
    net: Translation
    stages: list[Stage] = field(default_factory=list)

    def table(self) -> Table:
        """Give the main metric on the validation and test rows, and the seconds, one line per model."""
        parts = list(self.stages[0].scores)
        table = Table("model", *(f"{part} {self.metric}" for part in parts), "seconds")
        for column in table.columns[1:]:
            column.justify = "right"
        for stage in self.stages:
            cells = [f"{stage.scores[part][self.metric]:.4f}" for part in parts]
            table.add_row(stage.name, *cells, f"{stage.seconds:.1f}")
        return table

    @property
    def metric(self) -> str:
        """The first of the metrics: auroc, log_loss, accuracy, rmse or what the regressor's loss is about."""
        return next(iter(self.stages[0].scores["test"]))

    def summary(self) -> dict[str, Any]:
        """Give the same as JSON values, with the best epoch and the versions of the libraries."""
        history = self.net.history
        return {
            "stages": {stage.name: {**stage.scores, "seconds": round(stage.seconds, 2)} for stage in self.stages},
            "metric": history.metric if history else None,
            "epochs": len(history.epochs) - 1 if history else 0,
            "best_epoch": history.best_epoch if history else 0,
            "versions": {name: version(name) for name in ("windtunnel", "torch", "scikit-learn", "lightgbm")},
        }


def run(config: Config, *, resume: bool = False) -> Comparison:
    """Fit the pipeline of a config, translate it, fine-tune it, score all three, and write what came out.

    The folder ``config.output`` gets model.windtunnel, report.html, summary.json, logs, and the checkpoint that
    ``resume`` goes on from.
    """
    parts = load_parts(config.data)
    pipeline = build_pipeline(config.pipeline, parts["train"][0])
    folder = config.output
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = folder / "checkpoints"
    comparison = compare(
        pipeline,
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
    write_results(comparison, folder, {"config": config.model_dump(mode="json")})
    return comparison


def compare(
    pipeline: Any,
    parts: dict[str, Part],
    *,
    calibrate_rows: int = 5000,
    seed: int = 0,
    translate_options: dict[str, Any] | None = None,
    fit_options: dict[str, Any] | None = None,
) -> Comparison:
    """Fit on the training rows, translate, fine-tune; score source, warm start and result on all other parts.

    A booster with early stopping among its options stops by the validation rows.

    Parameters
    ----------
    pipeline : estimator, not fitted
    parts : {"train", "valid", "test"} to (X, y)
    calibrate_rows : int
        How many training rows calibrate the translation; 0 for none.
    seed : int
        Of the choice of these rows.
    translate_options, fit_options : dict, optional
        Further arguments of ``translate`` and ``fit``.
    """
    X, _ = parts["train"]
    judged = {name: part for name, part in parts.items() if name != "train"}

    def stage(name: str, model: Any, seconds: float) -> Stage:
        return Stage(name, {part: measure(model, *rows, head=net.head) for part, rows in judged.items()}, seconds)

    started = time.perf_counter()
    source = fit_source(pipeline, parts)
    done = time.perf_counter()
    sample = X.sample(min(calibrate_rows, len(X)), random_state=seed) if calibrate_rows else None
    net = translate(source, calibrate=sample, **(translate_options or {}))
    translated = time.perf_counter()
    start_name = "cold start" if (translate_options or {}).get("start") == "cold" else "warm start"
    stages = [stage("source", source, done - started), stage(start_name, net, translated - done)]
    started = time.perf_counter()
    net.fit(parts["train"], parts["valid"], **(fit_options or {}))
    stages.append(stage("fine-tuned", net, time.perf_counter() - started))
    return Comparison(source, net, stages)


def write_results(comparison: Comparison, folder: Path, extra: dict[str, Any] | None = None) -> None:
    """Write model.windtunnel, report.html and summary.json."""
    comparison.net.save(folder / "model.windtunnel")
    (folder / "report.html").write_text(comparison.net.report().to_html(), encoding="utf-8")
    write_json(folder / "summary.json", {**comparison.summary(), **(extra or {})})


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values, NaN as null."""
    path.write_text(json.dumps(_finite(values), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def fit_source(pipeline: Any, parts: Mapping[str, Part]) -> Any:
    """Fit on the training rows; a booster with early stopping among its options stops by the validation rows."""
    try:
        return fit_estimator(pipeline, *parts["train"], validation=parts["valid"])
    except (ValueError, TypeError) as error:
        raise BadInput(f"the pipeline cannot be fitted on the training rows: {error}") from error


OBJECTIVES: dict[str, tuple[str, Callable[..., float]]] = {
    "absolute": ("mae", mean_absolute_error),
    "quantile": ("pinball_loss", mean_pinball_loss),
    "poisson": ("poisson_deviance", mean_poisson_deviance),
    "gamma": ("gamma_deviance", mean_gamma_deviance),
    "tweedie": ("tweedie_deviance", mean_tweedie_deviance),
}
"""What a regressor that does not minimise squares is judged by first: loss -> name and metric of scikit-learn."""


def measure(model: Any, X: pd.DataFrame, y: NDArray[Any], *, head: Head) -> dict[str, float]:
    """How well a fitted model predicts, by scikit-learn's metrics, the one that counts first.

    AUROC and log loss for two classes, log loss and accuracy for more, accuracy in the place of what asks for
    probabilities or decisions that there are none of; RMSE and R2 for values, after the metric of the loss that
    ``head`` names. AUROC is NaN where y holds one class only.
    """
    if not hasattr(model, "classes_"):
        values = model.predict(X)
        if values.ndim == 2 and y.ndim == 1:  # several quantiles of one target
            y = np.broadcast_to(y[:, None], values.shape)
        own = {}
        if head.loss in OBJECTIVES:
            name, metric = OBJECTIVES[head.loss]
            own[name] = _objective(metric, y, values, head.loss_options)
        return own | {"rmse": float(root_mean_squared_error(y, values)), "r2": float(r2_score(y, values))}
    classes = model.classes_
    probability = model.predict_proba(X) if hasattr(model, "predict_proba") else None
    scores: dict[str, float] = {}
    if len(classes) == 2 and (probability is not None or hasattr(model, "decision_function")):
        score = model.decision_function(X) if probability is None else probability[:, 1]
        scores["auroc"] = float(roc_auc_score(y == classes[1], score)) if len(np.unique(y)) == 2 else float("nan")
    if probability is not None:
        scores["log_loss"] = float(log_loss(y, probability, labels=classes))
    if probability is None or len(classes) > 2:
        scores["accuracy"] = float(accuracy_score(y, model.predict(X)))
    return scores


def _objective(metric: Callable[..., float], y: Any, values: Any, options: Mapping[str, Any]) -> float:
    """A metric of scikit-learn; the mean over columns, where each has an option of its own."""
    if not any(isinstance(option, list) for option in options.values()):
        return float(metric(y, values, **options))
    each = (dict(zip(options, column, strict=True)) for column in zip(*options.values(), strict=True))
    return float(np.mean([metric(y[:, at], values[:, at], **own) for at, own in enumerate(each)]))


def build_pipeline(config: PipelineConfig, X: pd.DataFrame) -> Pipeline:
    """Make the pipeline of a config, not fitted: text columns, numbers, model."""
    text = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    odd = {name: X[name].dtype for name in text if X[name].dtype.kind in "mM"}
    if odd:
        what = ", ".join(f"{name!r} ({dtype})" for name, dtype in odd.items())
        raise BadInput(f"columns of times: {what}; make them numbers, list them under data.categorical or data.drop")
    if text and not config.categories:
        raise BadInput(
            f"columns {', '.join(map(repr, text))} hold text and pipeline.categories has no step; "
            "add one, such as OneHotEncoder, or list the columns under data.drop"
        )
    numbers = [name for name in X if name not in text]
    branches: list[Any] = []
    if text:
        branches.append(("categories", _chain(config.categories), text))
    if numbers:
        branches.append(("numbers", _chain(config.numbers) if config.numbers else "passthrough", numbers))
    return Pipeline([("columns", ColumnTransformer(branches)), ("model", config.model.build())])


def _chain(steps: Any) -> Any:
    built = [step.build() for step in steps]
    return built[0] if len(built) == 1 else make_pipeline(*built)


def load_parts(data: DataConfig) -> dict[str, Part]:
    """Read the rows of each part and their targets.

    Raises
    ------
    BadInput
        Columns that are not there, parts without rows, targets that are missing.
    FileNotFoundError
    """
    frames = {"train": _read(data, data.train)}
    if data.split is not None:
        frames = _by_column(frames["train"], data.split)
    else:
        frames |= {part: _read(data, name) for part, name in (("valid", data.valid), ("test", data.test)) if name}
        frames = _hold_out(frames, data)
    return {part: _rows_and_target(frames[part], part, data) for part in PARTS}


def _read(data: DataConfig, name: str) -> pd.DataFrame:
    frame = read_table_file(data.folder / name, text=data.categorical)
    named = [data.target, *data.drop, *data.categorical, *([data.split] if data.split else [])]
    missing = sorted({column for column in named if column not in frame.columns})
    if missing:
        raise BadInput(
            f"{name} has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, frame.columns))}"
        )
    return frame


def _by_column(frame: pd.DataFrame, split: str) -> dict[str, pd.DataFrame]:
    unknown = sorted({str(value) for value in frame[split].unique()} - set(PARTS))
    if unknown:
        raise BadInput(f"column {split!r} holds {', '.join(unknown[:5])}; each row needs one of {', '.join(PARTS)}")
    return {part: frame[frame[split] == part].drop(columns=split) for part in PARTS}


def _hold_out(frames: dict[str, pd.DataFrame], data: DataConfig) -> dict[str, pd.DataFrame]:
    """Give each part that has no file a share of the training rows."""
    train = frames["train"]
    order = np.random.default_rng(data.seed).permutation(len(train))
    shares = {"valid": data.validation_fraction, "test": data.test_fraction}
    for part, share in shares.items():
        if part not in frames:
            count = round(share * len(train))
            frames[part], order = train.iloc[np.sort(order[:count])], order[count:]
    return {**frames, "train": train.iloc[np.sort(order)]}


def _rows_and_target(frame: pd.DataFrame, part: str, data: DataConfig) -> Part:
    if frame.empty:
        raise BadInput(f"the {part} part has no rows; give more rows, or other shares, files or values of the split")
    y = frame[data.target]
    if y.isna().any():
        raise BadInput(f"{int(y.isna().sum())} of {len(y)} values of the target {data.target!r} are missing in {part}")
    X = frame.drop(columns=[data.target, *data.drop]).reset_index(drop=True)
    if data.positive is None:
        return X, y.to_numpy()
    positive = (y == data.positive).to_numpy()
    if part == "train" and not 0 < positive.sum() < len(positive):
        raise BadInput(
            f"positive={data.positive!r} is the target {data.target!r} of {positive.sum()} of {len(positive)} training "
            f"rows; it holds {', '.join(map(repr, y.unique().tolist()[:10]))}"
        )
    return X, positive.astype(np.int64)
