"""The job of each process of tests/trainers/loop/test_distributed.py: it fits several nets and writes the results."""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from small_net import TASKS, SmallNet, finetune, rows
from stream_rows import PATTERN, click_net, valid_rows

from windtunnel.errors import BadInput
from windtunnel.objectives.metrics import Metric
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.data.parquet_stream import stream
from windtunnel.trainers.processes import rank, world

OPTIONS: dict[str, Any] = {
    "schedule": "constant",
    "ema": None,
    "learning_rate": 0.02,
    "progress": False,
    "accelerator": "cpu",
    "patience": None,
}
KINDS = ("sgd", "adam", "weighted")


def small_fit(kind: str, batch_size: int) -> tuple[SmallNet, Any]:
    """Fit a small net; its 101 validation rows do not divide evenly among processes or batches."""
    net, (X, y) = SmallNet(TASKS["binary"]), rows(256)
    weight = (torch.arange(256.0) % 5 + 0.1).numpy() if kind == "weighted" else None
    batches = loader(net, X, y, weight, batch_size=batch_size)
    valid = rows(101, seed=1) if weight is None else (*rows(101, seed=1), weight[:101].round())  # a fifth of them 0
    optimizer = "adam" if kind == "adam" else "sgd"
    return net, finetune(net, batches, valid, epochs=2, optimizer=optimizer, **OPTIONS)


def stream_fit(folder: Path, recipe: str, **options: Any) -> tuple[Any, list[Any]]:
    """Fit on streamed rows; with the batches that this process got."""
    net, seen = click_net(), Seen()
    rows_of_files = stream(net, folder / PATTERN, target="click", batch_size=32, buffer=128)
    chosen = {**OPTIONS, "epochs": 2, **options}
    net.fit(rows_of_files, valid_rows(), recipe=recipe, callbacks=[seen, *chosen.pop("callbacks", [])], **chosen)
    return net, seen.batches


class Seen(pl.Callback):
    """Keeps the batches that were trained on."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        (numbers, ids), target = batch
        self.batches.append((numbers.clone(), ids.clone(), target.clone()))


class Copy(pl.Callback):
    """Keeps the checkpoint as it was in the middle of an epoch."""

    def __init__(self, source: Path, to: Path, step: int) -> None:
        self.source, self.to, self.step = source, to, step

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.step:
            if rank() == 0:
                shutil.copy(self.source, self.to)
            trainer.strategy.barrier()


def _weights(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def metric_value(name: str, task: str, number: int) -> float:
    """A metric that the one row of each process does not define by itself."""
    metric = Metric(name, TASKS[task])
    metric.update(torch.tensor([[float(number)]]), torch.tensor([number]))
    return metric.compute()


def rejected(train: Any, seed: int = 0) -> str:
    """The error for rows, or a net, that differ from those of the other process."""
    try:
        finetune(SmallNet(TASKS["binary"], seed=seed), train, rows(101, seed=1), epochs=1, **OPTIONS)
    except BadInput as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    """Leave ``<rank>.pt``: by name what each fit ended with."""
    done: dict[str, Any] = {}
    for kind in KINDS:
        net, history = small_fit(kind, 32)
        done[kind] = _weights(net), [(one.train_loss, one.val_loss, one.metric) for one in history.epochs]
    number = rank()
    every = {"checkpoint_dir": folder / f"checkpoints-{number}", "checkpoint_every": 2}
    copy = Copy(folder / "checkpoints-0/last.ckpt", folder / "middle.ckpt", 9)
    net, batches = stream_fit(folder, "joint", callbacks=[copy], **every)
    done["stream"] = _weights(net), batches
    net, batches = stream_fit(folder, "joint", resume_from=folder / "middle.ckpt")
    done["resumed"] = _weights(net), batches
    net, _ = stream_fit(folder, "default", batch_size=1)
    X, _ = valid_rows()
    done["residual"] = _weights(net), torch.from_numpy(net.predict_proba(X)), [*net.program.named_buffers()]
    done["rejected"] = rejected(rows(256), seed=number)
    parts = [rows(32)] * (5 - number)
    few = loader(SmallNet(TASKS["binary"]), *rows(100), batch_size=64, drop_last=True)
    done["uneven"] = {"list": rejected(parts), "generator": rejected(part for part in parts), "few": rejected(few)}
    done["metrics"] = metric_value("auroc", "binary", number), metric_value("r2", "regression", number)
    done["world"] = world()
    torch.save(done, folder / f"{number}.pt")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        main(Path(sys.argv[1]))
        # Threads of a process group that is still open can abort a process while it ends.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
