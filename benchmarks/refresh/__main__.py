"""Metric on the period after each update, and CPU seconds of an update, for every method and stream.

python -m benchmarks.refresh --data FOLDER [--rows N] [--name NAME] [--output FILE]
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from sklearn.metrics import log_loss

from benchmarks.accuracy.task import METRICS, Task
from benchmarks.command import command
from benchmarks.refresh.methods import Method, RefreshInput, methods
from benchmarks.refresh.streams import STREAMS, Stream, load
from benchmarks.stored import add

app = command()


def run(stream: Stream, method: Method) -> tuple[list[float], list[float]]:
    """The metric on the next period after each update, and the CPU seconds of each update."""
    scores, seconds = [], []
    for until in range(stream.start + 1, len(stream.periods)):
        began = time.process_time()
        method.update(until)
        seconds.append(time.process_time() - began)
        rows = stream.periods[until].every
        task = Task(stream.name, stream.kind, rows, rows, rows)
        predictions = method.predict(task, rows)
        labels = range(predictions.shape[-1]) if stream.kind == "multiclass" else None
        scores.append(
            task.score(rows.y, predictions) if labels is None else log_loss(rows.y, predictions, labels=labels)
        )
    return scores, seconds


@app.callback()
def main(
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    rows: Annotated[int, typer.Option(help="Most rows of a period; of longer ones so many are drawn.")] = 10_000,
    name: Annotated[list[str] | None, typer.Option(help="Only these streams.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file of JSON lines, for figures.")] = None,
) -> None:
    """Compare methods that keep a model up to date: each learns up to a period and is tested on the next one."""
    for stream in (load(each, data, rows) for each in name or STREAMS):
        typer.echo(f"{stream.name}: {METRICS[stream.kind]} per period, mean; median CPU seconds per update")
        for label, method in methods(RefreshInput.of(stream)).items():
            scores, seconds = run(stream, method)
            if output is not None:
                settings = {"stream": stream.name, "metric": METRICS[stream.kind], "rows": rows, "method": label}
                add(output, settings | {"scores": scores, "cpu_s": seconds})
            cells = " ".join(f"{score:.4f}" for score in scores)
            typer.echo(f"  {label:22} {cells}  {np.mean(scores):.4f} {np.median(seconds):7.2f} s")


if __name__ == "__main__":
    app()
