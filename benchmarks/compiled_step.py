"""``python -m benchmarks.compiled_step [--json]``: steps of ``fit(compile=MODE)`` and eager ones.

Forward, backward, Adam and moving average of the module that ``fit`` has trained, without Lightning. Both take turns in
one process, once torch has compiled; times are medians of the CPU seconds of one thread, on a GPU of the seconds until
the step is done.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from statistics import median
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from benchmarks.command import command
from benchmarks.feeding import ByHand, Clock, rows, translation, validation_rows
from benchmarks.train_step import Settings
from windtunnel.errors import BadInput
from windtunnel.trainers.loop.compiled import MODES

CASES = {"residual": 10, "pipeline": 16, "logistic": 112, "L4": 112}
"""Columns of each case."""
app = command()


@app.callback()
def main(
    case: Annotated[list[str] | None, typer.Option(help=f"{', '.join(CASES)}; by default all of them.")] = None,
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(MODES)}.")] = "reduce-overhead",
    trees: Annotated[int, typer.Option(min=1)] = 20,
    leaves: Annotated[int, typer.Option(min=2)] = 16,
    batch: Annotated[int, typer.Option(min=1)] = 4096,
    steps: Annotated[int, typer.Option(min=4)] = 200,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON per case.")] = False,
) -> None:
    """How much of a step torch.compile saves."""
    if wrong := [name for name in case or CASES if name not in CASES]:
        raise BadInput(f"--case {', '.join(wrong)}; choose from {', '.join(CASES)}")
    torch.set_num_threads(1)
    for name in case or CASES:
        settings = Settings(trees, leaves, CASES[name], batch, name, 0.0, 1, device)
        result = {"case": name, "mode": mode, **measure(name, mode, settings, steps), **asdict(settings)}
        typer.echo(json.dumps(result) if as_json else "  ".join(f"{key} {value}" for key, value in result.items()))


def measure(case: str, mode: str, settings: Settings, steps: int) -> dict[str, float]:
    """Medians over steps in turns."""
    both = [Steps(fitted(case, compile, settings), settings.device) for compile in (None, mode)]
    eager, compiled = zip(*([one.seconds(count) for one in both] for count in range(steps)), strict=True)
    return {"eager_s": median(eager), "compiled_s": median(compiled)}


def fitted(case: str, compile: str | None, settings: Settings) -> Clock:
    """Watch a fit of one epoch."""
    net, train, valid = pipeline(settings) if case == "pipeline" else given(case, settings)
    watch, recipe = Clock(time.thread_time), "default" if case == "residual" else "joint"
    own = {"callbacks": [watch], "progress": False, "accelerator": settings.device, "compile": compile}
    net.fit(train, valid, recipe=recipe, epochs=1, batch_size=settings.batch, **own)
    return watch


class Steps(ByHand):
    """Steps over the same batches again and again."""

    def __init__(self, watch: Clock, device: str) -> None:
        super().__init__(watch, device)
        self.batches = list(watch.batches)

    def seconds(self, count: int) -> float:
        """Take a step, and the time."""
        batch, began = self.batches[count % len(self.batches)], self.now()
        self.step(batch)
        return self.now() - began

    def now(self) -> float:
        """Seconds of this thread; with a GPU, of the clock, once the GPU has done what it was given."""
        if self.device == "cpu":
            return time.thread_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def given(case: str, settings: Settings) -> tuple[Any, Any, Any]:
    """A translation, its training rows and its validation rows."""
    train = rows(settings, 4)
    return translation(case, settings), train, validation_rows(train)


def pipeline(settings: Settings) -> tuple[Any, Any, Any]:
    """Six columns of 100 categories, one-hot, and ten numbers, scaled, before a logistic regression."""
    drawn, count = np.random.default_rng(0), 4 * settings.batch
    categories = {f"c{at}": drawn.integers(0, 100, count).astype(str) for at in range(6)}
    X = pd.DataFrame(categories | {f"n{at}": drawn.normal(size=count) for at in range(10)})
    y = (X["n0"] * X["n1"] > 0).astype(int)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [*categories]), (StandardScaler(), [f"n{at}" for at in range(10)])
    )
    source = make_pipeline(columns, LogisticRegression()).fit(X[:5000], y[:5000])
    return windtunnel.translate(source).soften(), (X, y), (X[:1000], y[:1000])


if __name__ == "__main__":
    app()
