"""How often a cascade loses more accuracy on other rows than was allowed; a table for docs/cascades.md.

python -m benchmarks.cascade.promise [--seeds 10] [--first-seed 100]
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
from windtunnel.serving.cascade.threshold import class_positions, loss_of_accuracy

app = command()
TEST_ROWS = 15_000
ALLOWED = (0.001, 0.005, 0.01)


def loss(cascade: windtunnel.Cascade, rows: object, target: object) -> tuple[float, float]:
    """The share of test rows that are settled early, and the loss of accuracy on all of them."""
    small, full = cascade.small.predict_proba(rows), cascade.full.predict_proba(rows)
    settled = cascade.settled(small)
    predicted = np.where(settled[:, None], small, full)
    return float(settled.mean()), loss_of_accuracy(full, predicted, class_positions(cascade.classes_, target)).value


@app.callback()
def main(
    seeds: Annotated[int, typer.Option(help="Data sets per workload.")] = 10,
    first_seed: Annotated[int, typer.Option(help="The data sets are drawn with this seed and those after it.")] = 100,
) -> None:
    """Print a row per workload and allowed loss."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    typer.echo(titles("pipeline", "allowed", "lost more on test rows", "loss: mean, largest", "settled early"))
    for draw in (product, toxic, music, tracking):
        results: dict[float, list[tuple[float, float]]] = {allowed: [] for allowed in ALLOWED}
        for seed in range(first_seed, first_seed + seeds):
            workload = draw(seed, TEST_ROWS - 3_000)
            for allowed in ALLOWED:
                results[allowed].append(loss(made(workload, accuracy_loss=allowed), *workload.test))
        for allowed, values in results.items():
            early, losses = np.transpose(values)
            broken = np.count_nonzero(losses > allowed)
            cells = (
                f"{allowed:g}",
                f"{broken} of {seeds}",
                f"{losses.mean():.4f}, {losses.max():.4f}",
                f"{early.mean():.0%}",
            )
            typer.echo(row(draw.__name__, *cells))


if __name__ == "__main__":
    app()
