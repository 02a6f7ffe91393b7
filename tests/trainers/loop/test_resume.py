"""Checkpoints: a killed run resumes to the same bits, and files of other runs are rejected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from small_net import QUICK, TASKS, SmallNet, finetune, rows, same_bits, trajectory, weights
from torch.utils.data import DataLoader

from windtunnel.errors import BadFile, BadInput
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT


def test_a_whole_trainer_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    def trained(epochs: int, **options: Any) -> SmallNet:
        net, silent = SmallNet(TASKS["binary"]), {"enable_checkpointing": False, "enable_progress_bar": False}
        trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, **silent)  # with its sanity check
        chosen = {"learning_rate": 0.02, "batch_size": 64, "schedule": "constant", "ema": 0.9}
        finetune(net, rows(), trainer=trainer, checkpoint_dir=tmp_path, **chosen, **options)
        return net

    whole = trained(4)
    trained(2)
    assert same_bits(weights(trained(4, resume_from=tmp_path)), weights(whole))


SCRIPT = """
import os, signal, sys
import pytorch_lightning as pl
import torch
from test_resume import RESUMABLE, resumable
from small_net import TASKS, SmallNet, rows, finetune

class KillInStep(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

class KillWhileWriting(pl.Callback):
    def on_save_checkpoint(self, trainer, module, checkpoint):
        if trainer.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

for name, (kind, when, kill_at, _) in RESUMABLE.items():
    out = os.path.join(sys.argv[1], name)
    child = os.fork()
    if child == 0:
        killer = KillInStep() if when == "step" else KillWhileWriting()
        finetune(SmallNet(TASKS["binary"]), checkpoint_dir=out, callbacks=[killer], **resumable(kind))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
"""

# What the rows come from, where and at which step the process is killed, and the epochs it has finished by then.
RESUMABLE = {
    "mid-epoch": ("rows", "step", 13, 2),
    "shuffling-loader": ("loader", "step", 13, 2),
    "shuffling-stream": ("stream", "step", 13, 2),
    "first-epoch": ("rows", "step", 2, 0),
    "while-writing": ("rows", "save", 15, 2),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint folders of runs that were killed, by name."""
    folder, here = tmp_path_factory.mktemp("killed"), Path(__file__).parents[2] / "support"
    folders = (Path(__file__).parent, here, here.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


class Stream:
    """A shuffling loader of unknown length, of which Lightning reads one batch ahead."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Any]:
        return (self.parts[place] for place in torch.randperm(len(self.parts)).tolist())


def resumable(kind: str) -> dict[str, Any]:
    X, y = rows(320)
    parts = [(X[i : i + 64], y[i : i + 64]) for i in range(0, 320, 64)]
    train = {
        "rows": (X, y),
        "loader": DataLoader(parts, batch_size=None, shuffle=True),  # type: ignore[arg-type]
        "stream": Stream(parts),
    }[kind]
    options = {"epochs": 4, "schedule": "cosine", "ema": 0.9, "metric": "log_loss"}
    memory = 0 if kind == "stream" else None
    return {"train": train, "valid": rows(200, seed=1), "loader_memory": memory, **QUICK, **options}


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_killed_run_ends_with_the_same_bits(name: str, killed: Path, tmp_path: Path) -> None:
    kind, when, _, finished = RESUMABLE[name]
    state = torch.load(killed / name / CHECKPOINT, weights_only=True)
    assert len(state["callbacks"]["BestCheckpoint"]["epochs"]) - 1 == finished

    resumed, whole = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    again = finetune(resumed, resume_from=killed / name, checkpoint_dir=tmp_path / "resumed", **resumable(kind))
    once = finetune(whole, checkpoint_dir=tmp_path / "whole", **resumable(kind))
    assert once.best_epoch > 0
    assert trajectory(again) == trajectory(once)
    assert same_bits(weights(resumed), weights(whole))
    assert len([*(killed / name).iterdir()]) == 1 + (when == "save")
    # Also the last weights, the average, the optimizer and the random numbers, not only the best epoch's weights.
    states = [torch.load(tmp_path / name / CHECKPOINT, weights_only=True) for name in ("resumed", "whole")]
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        _assert_same(states[0][part], states[1][part])
    for part in ("average", "best", "random"):
        callback = "WeightAverage" if part == "average" else "BestCheckpoint"
        _assert_same(states[0]["callbacks"][callback][part], states[1]["callbacks"][callback][part])


def _assert_same(first: Any, second: Any) -> None:
    if not isinstance(first, dict):
        return torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert first.keys() == second.keys()
    for name in first:
        _assert_same(first[name], second[name])


def test_a_finished_run_is_resumed_without_training(tmp_path: Path) -> None:
    net, again = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    once = finetune(net, rows(), checkpoint_dir=tmp_path, **QUICK)
    twice = finetune(again, rows(), resume_from=tmp_path / CHECKPOINT, **QUICK)
    assert trajectory(once) == trajectory(twice)
    assert same_bits(weights(net), weights(again))
    longer = finetune(again, rows(), resume_from=tmp_path, **QUICK | {"epochs": 5})
    straight = finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"epochs": 5})
    assert trajectory(longer) == trajectory(straight)


@pytest.mark.parametrize("epochs", [0, 2])
def test_other_rows_are_rejected_on_resume(tmp_path: Path, epochs: int) -> None:
    class Stop(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if trainer.current_epoch == epochs:
                raise RuntimeError("stop")

    first, second = rows(), rows(seed=1)
    with pytest.raises(RuntimeError, match="stop"):
        finetune(SmallNet(TASKS["binary"]), first, second, checkpoint_dir=tmp_path, callbacks=Stop(), **QUICK)
    for train, valid, which in ((second, second, "training"), (first, first, "validation")):
        with pytest.raises(BadInput, match=f"was written over other {which} rows: targets="):
            finetune(SmallNet(TASKS["binary"]), train, valid, resume_from=tmp_path, **QUICK)
    again = finetune(SmallNet(TASKS["binary"]), first, second, resume_from=tmp_path, **QUICK)
    assert len(again.epochs) == QUICK["epochs"] + 1


def test_numpy_numbers_are_valid_options(tmp_path: Path) -> None:
    options = QUICK | {"epochs": np.int64(1), "learning_rate": np.float32(0.02), "seed": np.int64(3)}
    assert len(finetune(SmallNet(TASKS["binary"]), rows(), checkpoint_dir=tmp_path, **options).epochs) == 2
    finetune(SmallNet(TASKS["binary"]), rows(), resume_from=tmp_path, **options)


def test_a_run_out_of_patience_stays_stopped(tmp_path: Path) -> None:
    options = QUICK | {"epochs": 50, "patience": 2, "learning_rate": 1.0}
    net, other = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    once = finetune(net, rows(), rows(seed=1), checkpoint_dir=tmp_path, **options)
    again = finetune(other, rows(), rows(seed=1), resume_from=tmp_path, **options)
    assert trajectory(again) == trajectory(once)
    # The best epoch was before the checkpoint: its weights come out of the file.
    assert same_bits(weights(other), weights(net))


def test_checkpoints_that_do_not_match(tmp_path: Path) -> None:
    net = SmallNet(TASKS["binary"])
    with pytest.raises(BadFile, match="no checkpoint at .*last.ckpt; give"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK)
    finetune(net, rows(), checkpoint_dir=tmp_path, **QUICK)
    before = weights(net)
    with pytest.raises(
        BadInput, match=r"was written with learning_rate=0.02 \(now 0.5\), seed=0 \(now 9\); resume with"
    ):
        finetune(net, rows(), resume_from=tmp_path, **QUICK | {"learning_rate": 0.5, "seed": 9})
    with pytest.raises(BadInput, match="was written after 3 validations, and 2 are planned"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK | {"epochs": 2})
    with pytest.raises(
        BadFile, match="belongs to another translation, or to other rows: net.last.bias, net.last.weight"
    ):
        finetune(SmallNet(TASKS["multiclass"]), rows(task="multiclass"), resume_from=tmp_path, **QUICK)
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"nonsense"):
        (tmp_path / CHECKPOINT).write_bytes(content)
        with pytest.raises(BadFile, match="is damaged or no checkpoint"):
            finetune(net, rows(), resume_from=tmp_path, **QUICK)
    torch.save({"weights": torch.ones(2)}, tmp_path / CHECKPOINT)
    with pytest.raises(BadFile, match="is no checkpoint of fit"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK)
    assert same_bits(weights(net), before)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploded",))


def test_a_malicious_checkpoint_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": _Bomb()}, tmp_path / CHECKPOINT)
    with pytest.raises(BadFile, match="is damaged or no checkpoint"):
        finetune(SmallNet(TASKS["binary"]), rows(), resume_from=tmp_path, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
