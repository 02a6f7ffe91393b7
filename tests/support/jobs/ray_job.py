"""The job of tests/trainers/loop/test_ray.py: two workers of Ray Train over a Ray data set; one is killed once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import ray
import ray.data
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment
from ray.train.torch import TorchTrainer
from stream_rows import pipeline, table, valid_rows

import windtunnel

EPOCHS, TARGET = 4, "click"


class Shard:
    """What this worker gets of a data set, as batches of raw rows."""

    def __init__(self, name: str, batch_size: int) -> None:
        self.shard, self.batch_size = ray.train.get_dataset_shard(name), batch_size

    def __iter__(self) -> Iterator[Any]:
        for frame in self.shard.iter_batches(batch_size=self.batch_size, batch_format="pandas"):
            yield frame.drop(columns=TARGET), frame[TARGET].to_numpy()


class Kill(pl.Callback):
    """Kills this process in the third epoch, unless that has been done before."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.current_epoch == 2 and trainer.global_rank == 1 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def work(config: dict[str, Any]) -> None:
    """Train, from the last checkpoint where there is one; leave the net."""
    folder, rank = Path(config["folder"]), ray.train.get_context().get_world_rank()
    last = folder / "run" / "last.ckpt"
    with (folder / f"starts-{rank}").open("a") as starts:
        starts.write("resumed\n" if last.exists() else "fresh\n")
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        strategy=RayDDPStrategy(broadcast_buffers=False),
        plugins=[RayLightningEnvironment()],
        accelerator="cpu",
        devices="auto",
        callbacks=[Kill(folder / "killed")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    net = windtunnel.translate(pipeline(), start="cold")  # which every epoch makes better
    net.fit(
        Shard("train", 32),
        Shard("valid", 64),
        recipe="joint",
        patience=None,
        trainer=trainer,
        checkpoint_dir=folder / "run",
        resume_from=last if last.exists() else None,
    )
    net.save(folder / f"net-{rank}")


def main(folder: Path) -> None:
    """Two workers, each with a core of its own."""
    ray.init(num_cpus=4, include_dashboard=False)
    X, y = valid_rows()
    valid = pd.DataFrame(X).assign(**{TARGET: np.asarray(y)})
    trainer = TorchTrainer(
        work,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(folder / "ray"), failure_config=FailureConfig(max_failures=1)),
        datasets={"train": ray.data.from_pandas(table()), "valid": ray.data.from_pandas(valid)},
    )
    trainer.fit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
