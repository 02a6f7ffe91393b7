"""How often a cascade loses more accuracy on other rows than was allowed; a table for docs/cascades.md.

python -m benchmarks.cascade.promise [--seeds 10] [--first-seed 100] [--pipeline toxic] [--test-rows 60000]
"""

from __future__ import annotations

import warnings
from typing import Annotated

import numpy as np
import typer

import windtunnel
from benchmarks.cascade.__main__ import made, row, titles
from benchmarks.cascade.workloads import music, product, toxic, tracking
from benchmarks.command import command
from windtunnel.serving.cascade.threshold import loss_of_accuracy

app = command()
PIPELINES = {draw.__name__: draw for draw in (product, toxic, music, tracking)}
ALLOWED = (0.001, 0.005, 0.01)


def loss(cascade: windtunnel.Cascade, rows: object, target: object) -> tuple[float, float]:
    """The share of test rows that the small model predicts alone, and the loss of accuracy on all of them."""
    small, full = cascade.small.predict_proba(rows), cascade.full.predict_proba(rows)
    confident = cascade.confident(small)
    predicted = np.where(confident[:, None], small, full)
    correct = cascade.full.head.encode_target(target).numpy()
    return float(confident.mean()), loss_of_accuracy(full, predicted, correct).loss


@app.callback()
def main(
    seeds: Annotated[int, typer.Option(help="Data sets per workload.")] = 10,
    first_seed: Annotated[int, typer.Option(help="The data sets are drawn with this seed and those after it.")] = 100,
    pipeline: Annotated[list[str] | None, typer.Option(help=f"By default {', '.join(PIPELINES)}.")] = None,
    test_rows: Annotated[int, typer.Option(help="Of each data set; 3,000 at least.")] = 15_000,
) -> None:
    """Print a row per workload and allowed loss."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    results: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(first_seed, first_seed + seeds):
        for name in pipeline or PIPELINES:
            workload = PIPELINES[name](seed, test_rows - 3_000)
            for allowed in ALLOWED:
                result = loss(made(workload, accuracy_loss=allowed), *workload.test)
                results.setdefault((name, allowed), []).append(result)
                typer.echo(f"{name} {seed}: allowed {allowed:g}, early {result[0]:.3f}, loss {result[1]:.5f}")
    typer.echo(titles("pipeline", "allowed", "lost more on test rows", "loss: mean, largest", "predicted early"))
    for (name, allowed), values in results.items():
        early, losses = np.transpose(values)
        broken = f"{np.count_nonzero(losses > allowed)} of {seeds}"
        typer.echo(row(name, f"{allowed:g}", broken, f"{losses.mean():.4f}, {losses.max():.4f}", f"{early.mean():.0%}"))


if __name__ == "__main__":
    app()
