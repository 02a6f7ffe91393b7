"""What ``fit`` makes of a source with balanced class weights, with these weights and without.

python -m benchmarks.class_weights --data FOLDER --sets adult,bank_marketing [--rows 30000]
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

import windtunnel
from benchmarks.accuracy.alternatives import boosted, two_hot
from benchmarks.accuracy.sources import STRONG, STRONG_PATIENCE
from benchmarks.accuracy.task import Task, prepare
from benchmarks.command import command
from benchmarks.sets import load

app = command()


@app.callback()
def main(
    data: Annotated[str, typer.Option(help="Folder whose datasets.py has load(name).")],
    sets: Annotated[str, typer.Option(help="Names of sets of two classes, separated by commas.")],
    rows: Annotated[int, typer.Option(help="Most training rows.")] = 30_000,
    seed: Annotated[int, typer.Option(help="Seed of the source and of fit.")] = 0,
) -> None:
    """Print AUC and balanced accuracy on the test rows of the source, and of both fits."""
    typer.echo("| set | positive | source | `fit` | `class_weight=None` |\n| --- | ---: | --- | --- | --- |")
    for name in sets.split(","):
        task = prepare(load(f"{name}={data}"), rows)
        source = boosted(task, two_hot(task), STRONG | {"class_weight": "balanced"}, STRONG_PATIENCE, seed)
        models = [source]
        for class_weight in ("source", None):
            net = windtunnel.translate(source)
            options: Any = {"class_weight": class_weight, "seed": seed, "progress": False, "accelerator": "cpu"}
            models.append(net.fit(task.train, task.valid, **options))
        cells = " | ".join(_scores(task, model) for model in models)
        typer.echo(f"| {name} | {task.test.y.mean():.1%} | {cells} |")


def _scores(task: Task, model: Any) -> str:
    """AUC and balanced accuracy of labels, on the test rows."""
    auc = roc_auc_score(task.test.y, model.predict_proba(task.test.X)[:, 1])
    return f"{auc:.4f}, {balanced_accuracy_score(task.test.y, model.predict(task.test.X)):.3f}"


if __name__ == "__main__":
    app()
