"""How much longer than its compiled source a net of the default ``fit`` predicts, natively and on one thread.

python -m benchmarks.tuned_nets --data FOLDER

FOLDER has a ``datasets.py`` with ``load(name)``. The source is LightGBM of 100 trees of 63 leaves behind
``TwoHotEncoder``. Both predict the same test rows, as DataFrames, in turns; a cell is the median of the ratios of their
processor times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline

import windtunnel
from benchmarks.command import command
from benchmarks.report import markdown
from benchmarks.sets import load

SETS = ("flight_delays_100k", "hotel_bookings", "adult")
ROWS = (1, 1_000, 10_000)
TRAIN_ROWS = 20_000
SECONDS = 3.0
"""Per cell."""

app = command()


@app.callback()
def main(
    data: Annotated[Path, typer.Option(help="Folder whose datasets.py has load(name).")],
    sets: Annotated[list[str] | None, typer.Option("--set", help=f"By default {', '.join(SETS)}.")] = None,
) -> None:
    """Print a table: a line per data set, a column per number of rows."""
    torch.set_num_threads(1)
    lines = [["data set", *(f"{rows:,} row{'s' * (rows > 1)}" for rows in ROWS)]]
    for name in sets or SETS:
        lines.append([name, *(f"{ratio:.2f}" for ratio in ratios(load(f"{name}={data}")))])
    typer.echo(markdown(lines))


def ratios(data: Any) -> list[float]:
    """The ratio for each number of rows."""
    (X, y), valid, (rows, _) = (data.part(part) for part in ("train", "valid", "test"))
    train = X[:TRAIN_ROWS], y[:TRAIN_ROWS]
    trees = LGBMClassifier(n_estimators=100, num_leaves=63, n_jobs=1, verbosity=-1)
    source = make_pipeline(windtunnel.TwoHotEncoder(), trees).fit(*train)
    tuned = windtunnel.translate(source).fit(train, valid, progress=False)
    compiled = [windtunnel.compile(model, backend="native") for model in (tuned, source)]
    return [ratio(*(net.predict_proba for net in compiled), rows[:count]) for count in ROWS]


def ratio(first: Callable[[Any], Any], second: Callable[[Any], Any], rows: Any) -> float:
    """The median of the ratios of processor times, in turns."""
    found, end = [], time.perf_counter() + SECONDS
    while len(found) < 5 or time.perf_counter() < end:
        seconds = []
        for call in (first, second):
            started = time.process_time()
            call(rows)
            seconds.append(time.process_time() - started)
        found.append(seconds[0] / seconds[1])
    return median(found)


if __name__ == "__main__":
    app()
