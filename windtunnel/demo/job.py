"""The demo: fit a pipeline on a click log, translate and fine-tune it, export it, score it in another process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from rich.console import Console
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import Pipeline, make_pipeline

from windtunnel.clicklog import click_log
from windtunnel.errors import BadInput
from windtunnel.estimators import RareCategories, TwoHotEncoder
from windtunnel.experiment.files import write_table_file
from windtunnel.experiment.parts import Part, Parts
from windtunnel.experiment.run import Comparison, compare, write_json, write_model

ROWS = 50_000
SCORER = Path(__file__).with_name("score_elsewhere.py")


def run(output: str | Path = "demo-output", rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Fit, translate, fine-tune and export a pipeline on a click log, and write the results to a folder.

    The folder gets model.windtunnel, model.ts, score_elsewhere.py, test_rows.csv, scores.csv, report.html and
    summary.json.

    Parameters
    ----------
    output : path
    rows : int
        Rows of the click log: 70 % for training, 15 % for validation, 15 % for the test.
    seed : int
        Seed of the click log, the split and the training.

    Returns
    -------
    dict
        The content of summary.json: source_auc, warm_auc, finetuned_auc (test rows), export_max_abs_diff (largest
        difference of probabilities between the exported file and the model), seconds, and the details.

    Raises
    ------
    BadInput
        Too few rows.
    """
    started = time.perf_counter()
    if rows < 1000:
        raise BadInput(f"rows={rows}; the demo needs at least 1000 for a training, a validation and a test part")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    parts = split(*click_log(rows, seed=seed), seed=seed)
    print(f"A click log of {rows:,} rows, {parts.train[0].shape[1]} columns: fitting a LightGBM pipeline,")
    print("translating it, fine-tuning it ...\n")
    comparison = fine_tuned(parts, seed)
    Console(highlight=False).print(comparison.table())
    difference = export_and_score(comparison, parts.test, folder)
    print(f"\nmodel.ts, scored by a process that has torch only, differs by {difference:.1e} at most.")
    write_model(comparison, folder)
    summary = {
        "source_auc": comparison.source.scores["test"]["auroc"],
        "warm_auc": comparison.initial.scores["test"]["auroc"],
        "finetuned_auc": comparison.tuned.scores["test"]["auroc"],
        "export_max_abs_diff": difference,
        "rows": rows,
        "seed": seed,
        **comparison.summary(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_json(folder / "summary.json", summary)
    files = sorted(file.name for file in folder.iterdir() if file.is_file())
    print(f"After {summary['seconds']:.0f} s, {folder} holds {', '.join(files)}.")
    return summary


def split(X: pd.DataFrame, y: NDArray[Any], *, seed: int) -> Parts:
    """Split rows at random: 70 % train, 15 % valid, 15 % test."""
    order = np.random.default_rng(seed).permutation(len(X))
    pieces = np.split(order, [int(0.70 * len(X)), int(0.85 * len(X))])
    train, valid, test = ((X.iloc[piece].reset_index(drop=True), y[piece]) for piece in pieces)
    return Parts(train, valid, test)


def pipeline(seed: int) -> Pipeline:
    """Create the pipeline of the demo: rare categories dropped, two-hot encoding, boosted trees."""
    categories = make_pipeline(RareCategories(min_count=10), TwoHotEncoder())
    columns = ColumnTransformer(
        [
            ("categories", categories, make_column_selector(dtype_exclude="number")),
            ("numbers", "passthrough", make_column_selector(dtype_include="number")),
        ]
    )
    trees = LGBMClassifier(n_estimators=40, num_leaves=31, learning_rate=0.1, random_state=seed, verbosity=-1)
    return Pipeline([("columns", columns), ("trees", trees)])


def fine_tuned(parts: Parts, seed: int) -> Comparison:
    """Fit, translate, fine-tune and score."""
    options = {
        "epochs": 6,
        "batch_size": 1024,
        "dropout": 0.02,
        "patience": 3,
        "seed": seed,
        "progress": sys.stderr.isatty(),
    }
    return compare(pipeline(seed), parts, seed=seed, fit_options=options)


def export_and_score(comparison: Comparison, part: Part, folder: Path) -> float:
    """Export the model, and score rows in a process that imports torch only; returns the largest difference."""
    X, _ = part
    comparison.net.export(folder / "model.ts")
    write_table_file(X, folder / "test_rows.csv")
    shutil.copyfile(SCORER, folder / SCORER.name)
    # -I: Python ignores the working folder and the environment, so that no other module is imported.
    command = [sys.executable, "-I", SCORER.name, "model.ts", "test_rows.csv", "scores.csv"]
    subprocess.run(command, cwd=folder, check=True)
    elsewhere = pd.read_csv(folder / "scores.csv").to_numpy()
    return float(np.abs(elsewhere - comparison.net.predict_proba(X)).max())
