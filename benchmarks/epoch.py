"""``python -m benchmarks.epoch [--json]``: an epoch of fine-tuning, and LightGBM's fit of the same trees.

Rows are normal numbers, and the class follows from products of columns, so that trees have something to find. LightGBM
fits the trees on the processor, on all of the rows; ``fit`` tunes them at ``level`` on the same rows, on ``device``. An
epoch is forward, backward and Adam over all batches, and the validation on a hundredth of the rows.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer
from lightgbm import LGBMClassifier
from numpy.typing import NDArray

import windtunnel
from benchmarks.command import command
from windtunnel.errors import BadInput
from windtunnel.modules.trees.soft.trees import LEVELS

CALIBRATE = 4096
app = command()


@dataclass(frozen=True)
class Settings:
    """What is fitted and tuned."""

    rows: int
    trees: int
    leaves: int
    features: int
    batch: int
    level: str
    threads: int
    device: str


@app.callback()
def main(
    rows: Annotated[int, typer.Option(min=1000)] = 10_000_000,
    trees: Annotated[int, typer.Option(min=1)] = 100,
    leaves: Annotated[int, typer.Option(min=2)] = 64,
    features: Annotated[int, typer.Option(min=2)] = 28,
    batch: Annotated[int, typer.Option(min=1)] = 65_536,
    level: Annotated[str, typer.Option(help=", ".join(LEVELS[1:]))] = "L4",
    threads: Annotated[int, typer.Option(min=1, help="Of LightGBM, and of torch on a CPU.")] = os.cpu_count() or 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Seconds of LightGBM's fit and of an epoch over the same rows."""
    if level not in LEVELS[1:]:
        raise BadInput(f"--level {level}; choose from {', '.join(LEVELS[1:])}")
    settings = Settings(rows, trees, leaves, features, batch, level, threads, device)
    torch.set_num_threads(threads)
    result = {**measure(settings), **asdict(settings)}
    if as_json:
        typer.echo(json.dumps(result))
    else:
        for name, value in result.items():
            typer.echo(f"{name:20} {value}")


def measure(settings: Settings) -> dict[str, float]:
    """Fit, tune for one epoch, and say how long each took."""
    X, y = drawn(settings.rows, settings.features, seed=0)
    began = time.perf_counter()
    source = LGBMClassifier(
        n_estimators=settings.trees, num_leaves=settings.leaves, n_jobs=settings.threads, verbosity=-1
    ).fit(X, y)
    fit_s = time.perf_counter() - began
    net = windtunnel.translate(source, level=settings.level, calibrate=X[:CALIBRATE]).soften()
    net.fit(
        (X, y),
        drawn(settings.rows // 100, settings.features, seed=1),
        recipe="joint",
        residual=False,
        epochs=1,
        batch_size=settings.batch,
        accelerator="cpu" if settings.device == "cpu" else "gpu",
        progress=False,
    )
    assert net.history is not None
    epoch_s = net.history.epochs[1].seconds
    return {
        "fit_s": fit_s,
        "epoch_s": epoch_s,
        "ratio": epoch_s / fit_s,
        "samples_per_s": settings.rows / epoch_s,
        "whole_s": net.history.seconds,
    }


def drawn(rows: int, features: int, seed: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows, float32 ``[rows, features]``, and their class, 0 or 1."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, features), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + X[:, 2:].sum(axis=1) / features
    return X, (score + random.standard_normal(rows, dtype=np.float32) > 0).astype(np.int64)


if __name__ == "__main__":
    app()
