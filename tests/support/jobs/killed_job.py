"""Training on two processes that are killed: ``run`` starts them, and kills them after some seconds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from distributed_job import OPTIONS
from optuna.trial import TrialState
from sklearn.metrics import roc_auc_score
from stream_rows import PATTERN, click_net, table, valid_rows, write
from sweep_case import QUICK, SPACE, TRAIN, VALID, logistic

import windtunnel
from windtunnel.sweeps import study

TRIALS = 12
BEGAN = "began"


class Begin(pl.Callback):
    """Leaves a file when training begins: the moment of a kill counts from then on."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / BEGAN

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.file.touch()


def train(kind: str, rows: Path, folder: Path, number: int) -> None:
    """Train until the end, from the checkpoint if there is one; leaves ``<number>.pt``, weights and epochs."""
    net, frame = click_net(), table()
    batches = windtunnel.loader(net, frame, frame["click"], batch_size=4)
    if kind == "streamed":
        batches = windtunnel.stream(net, rows / PATTERN, target="click", batch_size=4, buffer=128)
    last = folder / "last.ckpt"
    net.fit(
        batches,
        valid_rows(),
        recipe="joint",
        **{**OPTIONS, "ema": 0.9, "epochs": 8},
        callbacks=Begin(folder),
        checkpoint_dir=folder,
        checkpoint_every=3,
        resume_from=last if last.exists() else None,
    )
    epochs = [(epoch.train_loss, epoch.val_loss, epoch.metric) for epoch in net.history.epochs]
    torch.save((net.state_dict(), epochs), folder / f"{number}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def sweep(folder: Path) -> Any:
    """Run the missing trials of a sweep in this process."""
    options: dict[str, Any] = {"recipe": QUICK, "space": SPACE, "progress": False, "accelerator": "cpu"}
    storage = f"sqlite:///{folder / 'sweep.db'}"
    (folder / BEGAN).touch()
    return windtunnel.sweep(logistic(), TRAIN, VALID, trials=TRIALS, storage=storage, folder=folder, **options)


def _process(kind: str, rows: Path, folder: Path, number: int, port: int) -> None:
    """What one of the processes does; never returns."""
    try:
        if kind == "sweep":
            study.HEARTBEAT, study.GRACE = 1, 3
            sweep(folder)
        else:
            launcher = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "killed"}
            os.environ.update({name: str(value) for name, value in (launcher | address).items()})
            train(kind, rows, folder, number)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def run(kind: str, rows: Path, folder: Path, kill: tuple[float, int] | None = None) -> tuple[float, bool]:
    """Run both processes; ``kill`` is (seconds, which one), and the other one is killed next, as torchrun does.

    Returns the seconds between the begin of the training and the end, and whether a process was killed before its end.
    """
    (folder / BEGAN).unlink(missing_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = list[int]()
    for number in (0, 1):
        if (child := os.fork()) == 0:
            _process(kind, rows, folder, number, port)
        children.append(child)
    if kill is not None:
        while not (folder / BEGAN).exists():
            time.sleep(0.001)
        time.sleep(kill[0])
        for number in (kill[1], 1 - kill[1]):
            os.kill(children[number], signal.SIGKILL)
    codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    assert codes <= {0, *([] if kill is None else [-signal.SIGKILL])}, codes
    seconds = time.time() - began.stat().st_mtime if (began := folder / BEGAN).exists() else 0.0
    return seconds, -signal.SIGKILL in codes


def kill(kind: str, rows: Path, folder: Path, seconds: float) -> str:
    """Run both processes in a new folder, and kill them at a random moment of so many seconds; says when."""
    moment, which = random.uniform(0.1, 0.95) * seconds, random.randrange(2)
    folder.mkdir()
    while not run(kind, rows, folder, (moment, which))[1]:  # faster than the whole run, and at its end already
        shutil.rmtree(folder)
        folder.mkdir()
        moment /= 2
    return f"process {which} killed first, after {moment:.2f} of {seconds:.2f} s"


def check_training(kind: str, folder: Path, kills: int) -> None:
    """Kill and resume trainings; each ends with the bits of the whole one, and leaves no other file."""
    write(folder, table())
    (whole := folder / "whole").mkdir()
    seconds, _ = run(kind, folder, whole)
    expected = [torch.load(whole / f"{number}.pt", weights_only=True) for number in (0, 1)]
    for attempt in range(kills):
        when = kill(kind, folder, place := folder / str(attempt), seconds)
        at = "nothing"
        if (last := place / "last.ckpt").exists():
            at = f"step {torch.load(last, weights_only=True)['global_step']}"
        run(kind, folder, place)
        for number in (0, 1):
            (weights, epochs), (same, epochs_of_whole) = torch.load(place / f"{number}.pt"), expected[number]
            different = [name for name in same if not torch.equal(weights[name], same[name])]
            pairs = zip(epochs, epochs_of_whole, strict=True)
            different += [f"epoch {epoch}: {one}, {other}" for epoch, (one, other) in enumerate(pairs) if one != other]
            assert not different, f"{kind} {attempt}, {at}: {different}"
        assert sorted(path.name for path in place.iterdir()) in (
            ["0.pt", "1.pt", "last.ckpt"],
            ["0.pt", "1.pt", BEGAN, "last.ckpt"],
        )
        print(f"{kind} {attempt}: {when}; resumed from {at}: same bits", flush=True)


def check_sweep(folder: Path, kills: int) -> None:
    """Kill and continue sweeps; every trial is complete, or failed and repeated once with the same options."""
    (whole := folder / "whole").mkdir()
    seconds, _ = run("sweep", folder, whole)
    for attempt in range(kills):
        when = kill("sweep", folder, place := folder / str(attempt), seconds)
        time.sleep(5)  # longer than the grace of a trial without a heartbeat
        run("sweep", folder, place)
        result = sweep(place)
        trials = result.study.trials
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        failed = [trial for trial in trials if trial.state == TrialState.FAIL]
        assert len(complete) + len(failed) == len(trials) and TRIALS <= len(complete) <= TRIALS + 1
        assert len(result.history) == len(complete) and result.history["default"].any()
        for trial in failed:
            repeated = [other for other in complete if other.system_attrs.get("failed_trial") == trial.number]
            assert len(repeated) == 1 and repeated[0].params.items() >= trial.params.items()
        net = windtunnel.load(place / "best.windtunnel")
        area = roc_auc_score(VALID[1] == "yes", net.predict_proba(VALID[0])[:, 1])
        assert result.best_value == max(trial.value for trial in complete) and abs(area - result.best_value) < 1e-6
        assert [path.name for path in (place / "trials").iterdir()] == [f"{result.front[0]:04d}.windtunnel"]
        print(f"sweep {attempt}: {when}; {len(complete)} complete, {len(failed)} failed and repeated", flush=True)


if __name__ == "__main__":
    # Imported before the processes are made, not in each of them.
    assert windtunnel.compile and windtunnel.sweep and windtunnel.stream and windtunnel.loader and click_net()
    random.seed(0)
    kind, folder, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    check_sweep(folder, kills) if kind == "sweep" else check_training(kind, folder, kills)
