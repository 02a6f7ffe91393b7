"""``python -m benchmarks.feeding [--json]``: the time of a training step that is not compute.

``loop`` is the time per step of the same module, batches, optimizer and moving average in a loop of a dozen lines;
``lightning`` that of ``fit``. Both take turns in one process, and times are medians over the steps, from one batch's
arrival to the next. ``wait`` is the time until the next batch is there: rows are sliced from tensors in memory.

    overhead = lightning / loop - 1        compute_share = 1 - wait / lightning
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Annotated, Any

import numpy as np
import pytorch_lightning as pl
import torch
import typer
from sklearn.linear_model import LogisticRegression

import windtunnel
from benchmarks.command import command
from benchmarks.train_step import Settings, random_trees
from windtunnel.api.translation import Translation
from windtunnel.encode import Batch, RowEncoder
from windtunnel.errors import BadInput
from windtunnel.program.head import Head
from windtunnel.program.program import NUMBERS, Program, ProgramStep, Take
from windtunnel.program.records.origin import Origin
from windtunnel.trainers.data.encoded_rows import EncodedRows

CASES = ("L4", "L1", "logistic", "residual")
MAX_RESIDUAL_COLUMNS = 10
"""Columns in the case "residual"; with more, selecting interactions takes longer than the measured steps."""
Seconds = Callable[[], float]
app = command()


@app.callback()
def main(
    case: Annotated[list[str] | None, typer.Option(help=f"{', '.join(CASES)}; by default all of them.")] = None,
    trees: Annotated[int, typer.Option(min=1)] = 100,
    leaves: Annotated[int, typer.Option(min=2)] = 64,
    features: Annotated[int, typer.Option(min=1)] = 112,
    batch: Annotated[int, typer.Option(min=1)] = 4096,
    steps: Annotated[int, typer.Option(min=4, help="Steps of each turn.")] = 10,
    turns: Annotated[int, typer.Option(min=1)] = 3,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    cpu: Annotated[bool, typer.Option(help="Count CPU seconds of one thread, where other programs run too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON per case.")] = False,
) -> None:
    """Share of a step that is compute, and what Lightning adds to it."""
    if wrong := [name for name in case or CASES if name not in CASES]:
        raise BadInput(f"--case {', '.join(wrong)}; choose from {', '.join(CASES)}")
    if cpu and threads > 1:
        raise BadInput(f"--cpu counts one thread, and --threads is {threads}; leave one of them out")
    torch.set_num_threads(threads)
    for name in case or CASES:
        width = min(features, MAX_RESIDUAL_COLUMNS) if name == "residual" else features
        settings = Settings(trees, leaves, width, batch, name, 0.0, threads, "cpu")
        result = {
            "case": name,
            **measure(name, settings, steps, turns, time.thread_time if cpu else time.perf_counter),
            **asdict(settings),
            "cpu": cpu,
        }
        typer.echo(json.dumps(result) if as_json else "  ".join(f"{key} {value}" for key, value in result.items()))


class Clock(pl.Callback):
    """Records when Lightning began each step, with its module and batches."""

    def __init__(self, clock: Seconds) -> None:
        self.clock = clock
        self.began: list[float] = []
        self.module: Any = None
        self.batches: Any = None
        self.learned: list[torch.nn.Parameter] = []

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Record the trained module and batches; for a residual model they differ from the arguments of ``fit``."""
        self.module, self.batches = module, trainer.train_dataloader
        self.learned = [one for one in module.parameters() if one.requires_grad]

    def again(self) -> Any:
        """The module as it was trained. An installed residual model also trains tables that were frozen in training."""
        self.module.train().requires_grad_(False)
        for one in self.learned:
            one.requires_grad_()
        return self.module

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Take the time."""
        self.began.append(self.clock())


def measure(case: str, settings: Settings, steps: int, turns: int, clock: Seconds) -> dict[str, float]:
    """Medians over the steps of all turns."""
    lightning, loop, wait = [], [], []
    for _ in range(turns):
        net, train, watch = translation(case, settings), rows(settings, steps), Clock(clock)
        recipe = "default" if case == "residual" else "joint"
        net.fit(
            train, validation_rows(train), recipe=recipe, epochs=1, callbacks=[watch], progress=False, accelerator="cpu"
        )
        lightning += np.diff(watch.began).tolist()
        began, waited = by_hand(watch, clock)
        loop += np.diff(began).tolist()
        wait += waited
    mid = {"lightning_s": median(lightning), "loop_s": median(loop), "wait_s": median(wait)}
    share = 1 - mid["wait_s"] / mid["lightning_s"]
    return {**mid, "overhead": mid["lightning_s"] / mid["loop_s"] - 1, "compute_share": share}


class ByHand:
    """Steps of the module that ``fit`` has trained, without Lightning."""

    def __init__(self, watch: Clock, device: str = "cpu") -> None:
        self.device, self.module = device, watch.again().to(device)
        self.weights = [one.detach() for one in watch.learned]
        self.average, self.optimizer = [one.clone() for one in self.weights], self.module._optimizer()

    def step(self, batch: Any) -> None:
        """Forward, backward, optimizer and moving average."""
        self.optimizer.zero_grad()
        self.module.training_step(batch, 0).backward()
        self.optimizer.step()
        torch._foreach_lerp_(self.average, self.weights, 0.1)


def by_hand(watch: Clock, clock: Seconds) -> tuple[list[float], list[float]]:
    """One epoch without Lightning: when each step began, and how long the loop waited for its batch."""
    steps, items, end = ByHand(watch), iter(watch.batches), object()
    began, waited = [], []
    while True:
        requested = clock()
        batch = next(items, end)
        if batch is end:
            return began, waited
        began.append(clock())
        waited.append(began[-1] - requested)
        steps.step(batch)


def rows(settings: Settings, steps: int) -> EncodedRows:
    """Encoded rows for ``steps`` steps; the first two numbers determine the class."""
    random = torch.Generator().manual_seed(0)
    numbers = torch.randn(settings.batch * steps, settings.features, generator=random, dtype=torch.float64)
    target = (numbers[:, 0] * numbers[:, 1] > 0).float()
    return EncodedRows(
        Batch(numbers, torch.zeros(len(numbers), 0, dtype=torch.int64)), target, batch_size=settings.batch
    )


def validation_rows(train: EncodedRows) -> EncodedRows:
    """Up to 1,000 of the rows, for validation."""
    return EncodedRows(Batch(*(block[:1000] for block in train.rows)), train.target[:1000])


def translation(case: str, settings: Settings) -> Translation:
    """Random trees, or a logistic regression, alone or with a residual model."""
    if case in ("logistic", "residual"):
        X = rows(settings, 1).rows.numbers.numpy()
        return windtunnel.translate(LogisticRegression().fit(X, X[:, 0] + X[:, 1] > 0))
    step = ProgramStep(random_trees(settings), [Take(NUMBERS, list(range(settings.features)))], "trees")
    encoder = RowEncoder(None, settings.features, numbers=list(range(settings.features)))
    head = Head("binary", "sigmoid", "logistic", classes=np.array([0, 1]))
    return Translation(Program([step]), encoder, head, [Origin("trees", "")])


if __name__ == "__main__":
    app()
