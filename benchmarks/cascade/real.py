"""What cascades save on real tables, where every column is a feature group; a table for docs/cascades.md.

python -m benchmarks.cascade.real --data FOLDER [--name adult]
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import windtunnel
from benchmarks.cascade.__main__ import WAIT, row, seconds, titles, without_small_model
from benchmarks.cascade.workloads import RemoteTable
from benchmarks.command import command
from benchmarks.sets import DataSet, load

app = command()
NAMES = ("adult", "census_kdd", "hotel_bookings", "flights2008", "job_change")
ROWS, TEST_ROWS, QUERIES = 60_000, 20_000, 300
FEW_CATEGORIES = 30
"""Columns of more categories get a target encoder instead of a one-hot encoder."""
MODELS: dict[str, Any] = {
    "linear": LogisticRegression(C=0.1, max_iter=300),
    "boosted trees": LGBMClassifier(n_estimators=200, num_leaves=31, verbosity=-1, n_jobs=1),
}
KEY = "row number"


@dataclass(frozen=True, eq=False)
class Case:
    """A fitted pipeline, and the table in which it looks up the numbers of a row, if any."""

    pipeline: Pipeline
    table: RemoteTable | None


def fitted(data: DataSet, model: Any, remote: bool) -> Case:
    """Fit a model on encoded categories and on numbers; these are columns of the row, or looked up by its number."""
    X, y = data.part("train")
    numbers = [name for name in X if pd.api.types.is_numeric_dtype(X[name])]
    texts = [name for name in X if name not in numbers and name != KEY]
    parts: list[Any] = [
        (
            name,
            OneHotEncoder(handle_unknown="ignore") if X[name].nunique() <= FEW_CATEGORIES else TargetEncoder(),
            [name],
        )
        for name in texts
    ]
    if not remote:
        parts += [(name, StandardScaler(), [name]) for name in numbers]
        return Case(Pipeline([("columns", ColumnTransformer(parts)), ("model", model)]).fit(X, y), None)
    table = RemoteTable(dict(zip(data.X[KEY].tolist(), data.X[numbers].to_numpy(float).tolist(), strict=True)))
    looked_up = Pipeline([("look-up", windtunnel.Lookup(table)), ("scaler", StandardScaler())])
    parts.append(("looked up", looked_up, [KEY]))
    return Case(Pipeline([("columns", ColumnTransformer(parts)), ("model", model)]).fit(X, y), table)


def auc_change(target: NDArray[Any], cascade: NDArray[Any], full: NDArray[Any]) -> str:
    """The change of the area under the curve, and its standard error from 100 bootstrap samples."""
    changes, draw = [], np.random.default_rng(0)
    for _ in range(100):
        some = draw.integers(len(target), size=len(target))
        changes.append(roc_auc_score(target[some], cascade[some]) - roc_auc_score(target[some], full[some]))
    return f"{roc_auc_score(target, cascade) - roc_auc_score(target, full):+.4f} ± {np.std(changes):.4f}"


def predict_all(model: Any, queries: list[Any]) -> None:
    """Predict each query by itself."""
    for query in queries:
        model.predict_proba(query)


def cells(data: DataSet, case: Case, **options: Any) -> list[str]:
    """What a cascade of a case does: columns of the table. Times are processor times."""
    cost = {"looked up": WAIT} if case.table else {}
    train, valid = data.part("train"), data.part("valid")
    cascade = windtunnel.cascade(case.pipeline, train, valid, cost=cost, **options)
    typer.echo(f"{data.name}\n{cascade.report()}\n", err=True)
    assert cascade.threshold is not None
    rows, target = data.part("test")
    some = np.random.default_rng(0).permutation(len(rows))[:TEST_ROWS]
    rows, target = rows.iloc[some].reset_index(drop=True), target[some]
    whole = without_small_model(cascade)
    probabilities, full = cascade.predict_proba(rows), whole.predict_proba(rows)
    correct = (probabilities.argmax(axis=1) == target) * 1.0 - (full.argmax(axis=1) == target)
    early = cascade.confident(cascade.small.predict_proba(rows)).mean()
    quality = [
        f"{len(cascade.efficient)} of {len(cascade.groups)}",
        f"{early:.0%}",
        f"{correct.mean():+.4f} ± {correct.std(ddof=1) / len(rows) ** 0.5:.4f}",
        auc_change(target, probabilities[:, 1], full[:, 1]),
    ]
    if case.table is None:
        compiled = windtunnel.compile(case.pipeline)
        single = [rows.iloc[[at]].to_dict("list") for at in range(QUERIES)]
        speeds = [
            f"{seconds(partial(predict_all, compiled, queries)) / seconds(partial(predict_all, cascade, queries)):.2f}"
            for queries in ([rows], single)
        ]
        return [*quality, "", *speeds]
    queries = [rows.iloc[[at]] for at in range(QUERIES)]
    keys = [case.table.keys]
    for predict in (whole.predict_proba, cascade.predict_proba):
        for query in queries:
            predict(query)
        keys.append(case.table.keys)
    full_keys, cascade_keys = np.diff(keys)
    return [*quality, f"{cascade_keys / full_keys - 1:+.0%}", "", ""]


@app.callback()
def main(
    data: Annotated[Path, typer.Option(help="Folder whose datasets.py has load(name).")],
    name: Annotated[list[str] | None, typer.Option(help="Only these sets.")] = None,
    accuracy_loss: Annotated[float, typer.Option(help="Allowed loss of the metric.")] = 0.005,
    metric: Annotated[str, typer.Option(help="accuracy or auc.")] = "auc",
) -> None:
    """Print a row per set, model and place of the numbers."""
    warnings.filterwarnings("ignore")
    lines = []
    for each in name or NAMES:
        table = load(f"{each}={data}", rows=ROWS)
        keyed = DataSet(
            each, table.X.assign(**{KEY: np.arange(len(table.X))}).astype({KEY: object}), table.y, table.split
        )
        for remote in (False, True):
            for model_name, model in MODELS.items():
                case = fitted(keyed if remote else table, model, remote)
                found = cells(keyed if remote else table, case, accuracy_loss=accuracy_loss, metric=metric)
                lines.append(row(each, model_name, "store" if remote else "row", *found))
                typer.echo(lines[-1], err=True)
    typer.echo(
        titles(
            "set", "model", "numbers are in the", "groups of the small model", "predicted early", "accuracy, change",
            "AUC, change", "keys asked for", "batch: times as fast as compiled", "single rows: times as fast",
        )
    )  # fmt: skip
    typer.echo("\n".join(lines))


if __name__ == "__main__":
    app()
