"""Training on Parquet rows that are streamed: rows per second, time spent waiting for rows, peak memory.

python -m windtunnel.clicklog clicks --rows 20000000
python -m benchmarks.stream --data clicks
"""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import torch
import typer
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline

import windtunnel
from benchmarks.command import command
from windtunnel.estimators import TwoHotEncoder

TARGET = "clicked"

app = command()


class Timed:
    """A stream, the seconds that its next batch was waited for, and the most memory that was held meanwhile."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.waited, self.held_mib = stream, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __len__(self) -> int:
        return len(self.stream)

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self.stream), object()
        while True:
            started = time.perf_counter()
            batch = next(batches, end)
            self.waited += time.perf_counter() - started
            if batch is end:
                return
            self.held_mib = max(self.held_mib, _held_mib())
            yield batch


def measure(
    data: Path, *, recipe: str, level: str, trees: int, leaves: int, source_rows: int, batch_size: int, threads: int
) -> dict[str, Any]:
    """Fit a source on the first rows, translate it, and train an epoch on all files but the last (validation)."""
    torch.set_num_threads(threads)
    *files, last = sorted(data.glob("*.parquet"))
    X, y = _rows(files[0], source_rows)
    pipeline = _pipeline(trees, leaves, threads).fit(X, y)
    net = windtunnel.translate(pipeline, level=level, calibrate=X[:5000]).soften()
    stream = Timed(windtunnel.stream(net, files, target=TARGET, batch_size=batch_size))
    before = _peak_mib()
    started = time.perf_counter()
    net.fit(stream, _rows(last, source_rows), recipe=recipe, epochs=1, progress=False)
    seconds = net.history.epochs[-1].seconds
    return {
        "rows": stream.groups.rows,
        "batch_size": batch_size,
        "recipe": recipe,
        "level": level,
        "trees": trees,
        "leaves": leaves,
        "threads": threads,
        "epoch_s": round(seconds, 1),
        "fit_s": round(time.perf_counter() - started, 1),
        "rows_per_s": round(stream.groups.rows / seconds),
        "waited_s": round(stream.waited, 1),
        "waited_share": round(stream.waited / seconds, 4),
        "before_mib": before,
        "streaming_mib": stream.held_mib,
        "peak_mib": _peak_mib(),
        "auroc": [round(net.history.start, 4), round(net.history.best, 4)],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }


def _rows(file: Path, count: int) -> tuple[Any, Any]:
    frame = next(pq.ParquetFile(file).iter_batches(count)).to_pandas()
    return frame.drop(columns=TARGET), frame[TARGET].to_numpy()


def _pipeline(trees: int, leaves: int, threads: int) -> Pipeline:
    columns = make_column_transformer(
        (TwoHotEncoder(), make_column_selector(dtype_exclude="number")),
        ("passthrough", make_column_selector(dtype_include="number")),
    )
    model = LGBMClassifier(n_estimators=trees, num_leaves=leaves, random_state=0, verbosity=-1, n_jobs=threads)
    return make_pipeline(columns, model)


def _peak_mib() -> int:
    """The most memory that this process has held so far, the source's fit included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _held_mib() -> int:
    """The memory that this process holds now, where the system tells by the file."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() // 2**20 if status.exists() else 0


@app.callback()
def main(
    data: Annotated[Path, typer.Option(help="A folder that windtunnel.clicklog wrote, of two files or more.")],
    recipe: Annotated[str, typer.Option(help="default or joint.")] = "default",
    level: Annotated[str, typer.Option(help="L1 to L4.")] = "L4",
    trees: int = 40,
    leaves: int = 31,
    source_rows: Annotated[int, typer.Option(help="Rows for fitting the source, and for validation.")] = 200_000,
    batch_size: int = 4096,
    threads: int = 2,
) -> None:
    """Print one JSON line."""
    options = {"recipe": recipe, "level": level, "trees": trees, "leaves": leaves, "source_rows": source_rows}
    print(json.dumps(measure(data, **options, batch_size=batch_size, threads=threads)))


if __name__ == "__main__":
    app()
