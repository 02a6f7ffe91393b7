"""Fine-tuning: the best epoch, exact resumes after a kill, interrupts, recipes, silence."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from sklearn.metrics import roc_auc_score, root_mean_squared_error
from small_net import TASKS, SmallNet, rows
from torch import Tensor
from torch.utils.data import DataLoader

from windtunnel.errors import BadFile, BadInput, InvalidOption
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.history import History
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.finetune import finetune
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT, BestCheckpoint
from windtunnel.trainers.loop.module import DataModule, FineTuning
from windtunnel.trainers.loop.processes import check_devices
from windtunnel.trainers.recipe import Recipe

QUICK: dict[str, Any] = {
    "schedule": "constant",
    "ema": None,
    "epochs": 3,
    "learning_rate": 0.02,
    "batch_size": 64,
    "progress": False,
    "accelerator": "cpu",
}


def _weights(net: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def _equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def _auroc(net: SmallNet, X: pd.DataFrame, y: Any) -> float:
    with torch.no_grad():
        return roc_auc_score(y == "yes", net(*net.encode(X)).numpy()[:, 0])


@pytest.mark.parametrize("task", TASKS)
def test_it_learns(task: str) -> None:
    net = SmallNet(TASKS[task])
    frozen = net.frozen.clone()
    history = finetune(net, rows(400, task), rows(200, task, seed=1), **QUICK | {"epochs": 8})
    gain = history.best - history.start
    assert gain > 0.05 if history.greater_is_better else gain < -0.05
    assert [one.epoch for one in history.epochs] == list(range(9))
    assert history.epochs[0].train_loss is None
    assert history.epochs[8].train_loss < history.epochs[1].train_loss
    assert history.best == history.epochs[history.best_epoch].metric
    assert torch.equal(net.frozen, frozen) and not net.training
    assert f"{history.metric} {history.start:.6f} -> {history.best:.6f} on 200 validation rows" in str(history)


def test_the_net_holds_the_epoch_that_the_history_names() -> None:
    net, (X, y) = SmallNet(TASKS["binary"]), rows(200, seed=1)
    start = _auroc(net, X, y)
    history = finetune(net, rows(), (X, y), **QUICK)
    assert history.start == pytest.approx(start, abs=1e-6)
    assert history.best == pytest.approx(_auroc(net, X, y), abs=1e-6)


@pytest.mark.parametrize("rate", [50.0, 1e30])
@pytest.mark.filterwarnings("ignore:training diverged")
def test_epoch_zero_is_kept_when_training_only_harms(rate: float) -> None:
    net, train, valid = SmallNet(TASKS["regression"]), rows(400, "regression"), rows(100, "regression", seed=1)
    finetune(net, train, valid, **QUICK)
    good = _weights(net)
    history = finetune(net, train, valid, **QUICK | {"learning_rate": rate})
    assert history.best_epoch == 0 and history.best == history.start
    assert _equal(_weights(net), good)


def test_divergence_stops_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="training diverged in epoch 1"):
        history = finetune(SmallNet(TASKS["regression"]), rows(400, "regression"), **QUICK | {"learning_rate": 1e38})
    assert len(history.epochs) == 2


def test_patience() -> None:
    history = finetune(
        SmallNet(TASKS["binary"]), rows(), rows(seed=1), **QUICK | {"epochs": 50, "patience": 2, "learning_rate": 1.0}
    )
    assert len(history.epochs) - 1 == history.best_epoch + 2 < 50


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained(seed: int) -> dict[str, Tensor]:
        net = SmallNet(TASKS["binary"])
        finetune(net, rows(), rows(seed=1), **QUICK | {"seed": seed})
        return _weights(net)

    assert _equal(trained(0), trained(0))
    assert not _equal(trained(0), trained(1))


def test_the_callers_random_numbers_are_left_alone() -> None:
    def states() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    before = states()
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK)
    assert states() == before


def test_dropout_is_on_while_training_only() -> None:
    seen = set()

    class Watching(SmallNet):
        def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
            seen.add((self.training, self.dropout))
            return super().forward(numbers, ids)

    net = Watching(TASKS["binary"])
    finetune(net, rows(), **QUICK | {"dropout": 0.25})
    assert seen == {(True, 0.25), (False, 0.25)}
    assert net.dropout == 0.0


def test_the_average_of_the_weights_is_kept() -> None:
    """After one epoch of plain SGD steps, the average is known from the steps themselves."""
    net, steps = SmallNet(TASKS["regression"]), []

    class Watching(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            steps.append(net.last.weight.detach().double().clone())

        on_train_batch_end = lambda self, trainer, module, *_: self.on_train_start(trainer, module)  # noqa: E731

    data = rows(256, "regression")
    history = finetune(net, data, data, callbacks=[Watching()], **QUICK | {"epochs": 1, "ema": 0.8})
    assert history.best_epoch == 1 and len(steps) == 5
    average = steps[0]
    for step in steps[1:]:
        average = 0.8 * average + 0.2 * step
    torch.testing.assert_close(net.last.weight.double(), average, rtol=1e-5, atol=1e-7)


def test_cosine_rates() -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"epochs": 4, "schedule": "cosine"})
    wanted = [0.02 * (1 + np.cos(np.pi * epoch / 4)) / 2 for epoch in range(4)]
    assert [one.learning_rate for one in history.epochs[1:]] == pytest.approx(wanted)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_optimizers_and_clipping(optimizer: str) -> None:
    history = finetune(
        SmallNet(TASKS["binary"]), rows(), rows(seed=1), optimizer=optimizer, clip=0.5, metric="log_loss", **QUICK
    )
    assert history.best < history.start


def test_a_custom_loss_and_a_metric() -> None:
    net = SmallNet(TASKS["regression"])

    def cubic(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return (scores[:, 0] - target).abs().pow(3).mean()

    history = finetune(net, rows(400, "regression"), rows(100, "regression", 1), loss=cubic, metric="r2", **QUICK)
    assert history.metric == "r2" and history.best > history.start


def test_a_given_loss_is_the_metric_of_the_epochs() -> None:
    net = SmallNet(TASKS["regression"])
    options = QUICK | {"loss": "absolute", "epochs": 4}
    history = finetune(net, rows(400, "regression"), rows(100, "regression", 1), **options)
    assert history.metric == "loss" and not history.greater_is_better
    assert [one.metric for one in history.epochs] == [one.val_loss for one in history.epochs]
    assert history.best == min(one.val_loss for one in history.epochs) < history.start


def test_weights_of_zero_make_rows_invisible() -> None:
    (X, y), valid = rows(200), rows(100, seed=1)
    wrong = np.where(np.arange(200) < 100, y, np.where(y == "yes", "no", "yes"))
    weight = (np.arange(200) < 100).astype(float)
    options = QUICK | {"batch_size": 200, "dropout": 0.0, "metric": "log_loss"}
    first, second = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    one = finetune(first, (X, y, weight), valid, **options)
    two = finetune(second, (X, wrong, weight), valid, **options)
    assert _equal(_weights(first), _weights(second))
    assert one.epochs[1].train_loss == two.epochs[1].train_loss
    assert one.best < one.start


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", ["list", "generator", "data loader", "unsized", "slices"])
def test_loaders_of_any_kind(kind: str, memory: float | None) -> None:
    X, y = rows(160)
    net = SmallNet(TASKS["binary"])
    parts = [(X[i : i + 32], y[i : i + 32]) for i in range(0, 160, 32)]

    class Unsized:
        def __iter__(self) -> Iterator[Any]:
            return iter(parts)

    train = {
        "list": parts,
        "generator": (part for part in parts),
        "data loader": DataLoader(parts, batch_size=None, shuffle=True),  # type: ignore[arg-type]
        "unsized": Unsized(),
        "slices": loader(net, X, y, batch_size=32),
    }[kind]
    history = finetune(net, train, rows(seed=1), loader_memory=memory, **QUICK)
    assert len(history.epochs) == 4 and history.best > history.start


def test_an_early_stop_of_a_callback() -> None:
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            trainer.should_stop = True

    assert len(finetune(SmallNet(TASKS["binary"]), rows(), callbacks=[Stop()], **QUICK).epochs) == 2


def test_a_second_fit_starts_from_the_first() -> None:
    net, valid = SmallNet(TASKS["binary"]), rows(seed=1)
    first = finetune(net, rows(), valid, **QUICK)
    second = finetune(net, rows(seed=2), valid, **QUICK)
    assert second.start == first.best <= second.best


def _breaking(error: BaseException) -> Iterator[Any]:
    X, y = rows(128)
    yield X, y
    raise error


class _BreaksInEpoch:
    def __init__(self, error: BaseException, epoch: int) -> None:
        self.error, self.epoch = error, epoch

    def __iter__(self) -> Iterator[Any]:
        X, y = rows(128)
        yield X[:64], y[:64]
        if self.epoch == 1:
            raise self.error
        self.epoch -= 1
        yield X[64:], y[64:]


@pytest.mark.parametrize("error", [ZeroDivisionError("disk gone"), KeyboardInterrupt()])
def test_an_error_keeps_the_best_weights_so_far(error: BaseException, tmp_path: Path) -> None:
    net, whole, valid = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"]), rows(seed=1)
    (X, y), options = rows(128), QUICK | {"metric": "log_loss", "loader_memory": 0}
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(type(error)) as caught:
        finetune(net, _BreaksInEpoch(error, epoch=3), valid, checkpoint_dir=tmp_path, **options)
    assert signal.getsignal(signal.SIGINT) is before
    history = finetune(whole, [(X[:64], y[:64]), (X[64:], y[64:])], valid, **options | {"epochs": 2})
    assert history.best_epoch > 0
    assert _equal(_weights(net), _weights(whole))
    assert not net.training and net.dropout == 0.0
    note = f"2 epochs were finished; the translation holds the weights of the best one, epoch {history.best_epoch}; "
    assert any(note in line for line in caught.value.__notes__)
    resumed = finetune(net, [(X[:64], y[:64]), (X[64:], y[64:])], valid, resume_from=tmp_path, **options)
    assert len(resumed.epochs) == 4


def test_an_error_before_the_first_step_changes_nothing() -> None:
    net = SmallNet(TASKS["binary"])
    before = _weights(net)
    with pytest.raises(ZeroDivisionError):
        finetune(net, rows(), _breaking(ZeroDivisionError()), **QUICK)
    with pytest.raises(ZeroDivisionError):
        finetune(net, _BreaksInEpoch(ZeroDivisionError(), epoch=1), rows(), loader_memory=0, **QUICK)
    assert _equal(_weights(net), before) and not net.training


def test_validation_rows_without_a_defined_metric() -> None:
    X, _ = rows(20)
    with pytest.raises(BadInput, match="before training, auroc over the validation rows is nan"):
        finetune(SmallNet(TASKS["binary"]), rows(), (X, ["no"] * 20), **QUICK)


def test_one_class_only_in_a_loader() -> None:
    net, (X, _) = SmallNet(TASKS["binary"]), rows(20)
    before = _weights(net)
    with pytest.raises(BadInput, match="every training target is 'no'"):
        finetune(net, [(X, ["no"] * 20)], rows(), **QUICK)
    assert _equal(_weights(net), before)


def test_nothing_to_train() -> None:
    net = SmallNet(TASKS["binary"]).requires_grad_(False)
    with pytest.raises(BadInput, match="nothing in this translation is trainable"):
        finetune(net, rows(), **QUICK)


def test_precisions_that_would_round_the_net() -> None:
    with pytest.raises(BadInput, match="precision='bf16-true' would round"):
        finetune(SmallNet(TASKS["binary"]), rows(), precision="bf16-true", **QUICK)
    assert finetune(SmallNet(TASKS["binary"]), rows(), precision="bf16-mixed", **QUICK).best > 0.5


def test_epochs_are_validated_in_the_precision_of_the_net() -> None:
    net, (X, y) = SmallNet(TASKS["regression"]), rows(100, "regression", 1)
    history = finetune(net, rows(400, "regression"), (X, y), precision="bf16-mixed", **QUICK)
    values = net(*net.encode(X)).detach().numpy()[:, 0]
    assert history.best_epoch > 0 and history.best == pytest.approx(root_mean_squared_error(y, values), rel=1e-6)


def test_sigterm_keeps_its_handler() -> None:
    class Terminate(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        history = finetune(SmallNet(TASKS["binary"]), rows(), callbacks=[Terminate()], **QUICK)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM] and len(history.epochs) == QUICK["epochs"] + 1


def test_a_whole_trainer() -> None:
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    callbacks = list(trainer.callbacks)
    options = {"learning_rate": 0.02, "batch_size": 64}
    assert len(finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, **options).epochs) == 3
    assert trainer.callbacks == callbacks
    with pytest.raises(BadInput, match="devices, clip, epochs and trainer="):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer, devices=2, clip=1.0, epochs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check_val_every_n_epoch": 2}, "leave check_val_every_n_epoch at 1,"),
        ({"val_check_interval": 0.5}, "leave val_check_interval at 1.0,"),
        ({"limit_val_batches": 1}, "leave limit_val_batches at 1.0,"),
        ({"limit_val_batches": 0}, "leave limit_val_batches at 1.0,"),
        ({"fast_dev_run": True}, "and fast_dev_run and overfit_batches out"),
        ({"overfit_batches": 2}, "and fast_dev_run and overfit_batches out"),
        ({"max_steps": 5}, "max_steps=5 may stop within an epoch"),
        ({"barebones": True}, "barebones=True logs nothing"),
    ],
)
def test_a_trainer_that_does_not_validate_every_epoch(options: dict[str, Any], message: str) -> None:
    silent = {} if "barebones" in options else {"logger": False, "enable_checkpointing": False}
    trainer = pl.Trainer(accelerator="cpu", **options, **silent)
    with pytest.raises(BadInput, match=message):
        finetune(SmallNet(TASKS["binary"]), rows(), trainer=trainer)


def test_a_whole_trainer_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    def trained(epochs: int, **options: Any) -> SmallNet:
        net, silent = SmallNet(TASKS["binary"]), {"enable_checkpointing": False, "enable_progress_bar": False}
        trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, **silent)  # with its sanity check
        chosen = {"learning_rate": 0.02, "batch_size": 64, "schedule": "constant", "ema": 0.9}
        finetune(net, rows(), trainer=trainer, checkpoint_dir=tmp_path, **chosen, **options)
        return net

    whole = trained(4)
    trained(2)
    assert _equal(_weights(trained(4, resume_from=tmp_path)), _weights(whole))


def test_devices_need_a_script_or_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    for devices in (2, "2", [0, 1]):
        with pytest.raises(BadInput, match="torchrun --standalone --nproc-per-node 2 train.py; or give devices=1"):
            finetune(SmallNet(TASKS["binary"]), rows(), devices=devices)
    monkeypatch.setattr(sys, "argv", [__file__])
    check_devices(2)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(BadInput, match="from a notebook"):
        check_devices(2)


def test_lightning_itself_takes_the_parts() -> None:
    net = SmallNet(TASKS["binary"])
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    net.train()
    with pytest.warns(FutureWarning, match="LeafSpec"):
        trainer.fit(FineTuning(net, Recipe()), datamodule=DataModule(net, rows()))
    assert {"train_loss", "val_loss", "val_auroc"} <= trainer.callback_metrics.keys()


def test_all_invalid_options_are_named_at_once() -> None:
    with pytest.raises(InvalidOption) as caught:
        Recipe(epochs=0, learning_rate=float("nan"), dropout=1.0, optimizer="adm", patience=0, ema=1, seed=True)
    message = str(caught.value)
    for part in (
        "epochs=0 must be a whole number from 1",
        "learning_rate=nan must be a finite number above 0",
        "dropout=1.0 must be in [0, 1)",
        "optimizer='adm' must be one of adam, adamw, sgd",
        "patience=0 must be",
        "ema=1 must be in (0, 1)",
        "seed=True must be",
    ):
        assert part in message


def test_recipes_by_name() -> None:
    paper = Recipe.named("paper")
    assert (paper.learning_rate, paper.batch_size, paper.weight_decay, paper.dropout) == (1e-4, 4096, 1e-6, 0.1)
    assert Recipe.resolve("paper", {"epochs": 7}) == Recipe.resolve(paper, {"epochs": 7})
    with pytest.raises(InvalidOption, match="recipe='papr' is not known; did you mean paper"):
        Recipe.named("papr")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("learning_rat", "learning_rate"), ("lr", "learning_rate"), ("n_epochs", "epochs"), ("random_state", "seed")],
)
def test_unknown_options_name_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidOption, match=rf"{name}=1 is not an option: did you mean {nearest}\?"):
        finetune(SmallNet(TASKS["binary"]), rows(), **{name: 1})


def test_a_long_value_of_an_unknown_option_is_not_printed() -> None:
    X, y = rows()
    with pytest.raises(InvalidOption, match=r"^folds=<list> is not an option: choose from residual, [a-z_, ]+$"):
        finetune(SmallNet(TASKS["binary"]), (X, y), folds=[(X, y)], **QUICK)


def test_a_recipe_is_json() -> None:
    recipe = Recipe(loss=lambda s, y, w: s.sum())
    assert json.loads(json.dumps(recipe.facts())) == {**asdict(recipe), "loss": "<lambda>"}


def test_nothing_is_printed_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("pytorch_lightning").level
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK)
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"accelerator": "auto"})
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert logging.getLogger("pytorch_lightning").level == level


def test_the_progress_names_what_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windtunnel")
    finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"progress": True})
    assert caplog.messages[-1].startswith("fit: auroc 0.") and "kept: joint training, epoch" in caplog.messages[-1]


def test_logs(tmp_path: Path) -> None:
    history = finetune(SmallNet(TASKS["binary"]), rows(), log_dir=tmp_path, **QUICK)
    (folder,) = tmp_path.iterdir()
    table = pd.read_csv(folder / "metrics.csv")
    logged = table["val_auroc"].dropna().tolist()
    assert logged == pytest.approx([one.metric for one in history.epochs])
    assert table["train_loss"].dropna().tolist() == pytest.approx([one.train_loss for one in history.epochs[1:]])
    assert list(folder.glob("events.out.tfevents.*"))
    finetune(SmallNet(TASKS["binary"]), rows(), log_dir=tmp_path, logger=False, **QUICK)
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(BadInput, match="give one of Lightning's loggers, or log_dir="):
        finetune(SmallNet(TASKS["binary"]), rows(), logger=True, **QUICK)


SCRIPT = """
import os, signal, sys
import pytorch_lightning as pl
import torch
from test_finetune import RESUMABLE, resumable
from small_net import TASKS, SmallNet, rows
from windtunnel.trainers.finetune import finetune

class KillInStep(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

class KillWhileWriting(pl.Callback):
    def on_save_checkpoint(self, trainer, module, checkpoint):
        if trainer.global_step == kill_at:
            open(os.path.join(out, "last.tmp"), "wb").write(b"half a checkpoint")
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
    folder, here = tmp_path_factory.mktemp("killed"), Path(__file__).parents[1] / "support"
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


def _trajectory(history: History) -> list[dict[str, Any]]:
    return [{**asdict(one), "seconds": None} for one in history.epochs]


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_killed_run_ends_with_the_same_bits(name: str, killed: Path, tmp_path: Path) -> None:
    kind, _, _, finished = RESUMABLE[name]
    state = torch.load(killed / name / CHECKPOINT, weights_only=True)
    assert len(state["callbacks"]["BestCheckpoint"]["epochs"]) - 1 == finished

    resumed, whole = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    again = finetune(resumed, resume_from=killed / name, checkpoint_dir=tmp_path / "resumed", **resumable(kind))
    once = finetune(whole, checkpoint_dir=tmp_path / "whole", **resumable(kind))
    assert once.best_epoch > 0
    assert _trajectory(again) == _trajectory(once)
    assert _equal(_weights(resumed), _weights(whole))
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
    assert _trajectory(once) == _trajectory(twice)
    assert _equal(_weights(net), _weights(again))
    longer = finetune(again, rows(), resume_from=tmp_path, **QUICK | {"epochs": 5})
    straight = finetune(SmallNet(TASKS["binary"]), rows(), **QUICK | {"epochs": 5})
    assert _trajectory(longer) == _trajectory(straight)


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


def test_an_error_tells_how_many_epochs_were_finished() -> None:
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if trainer.current_epoch == 1:
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop") as caught:
        finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), callbacks=Stop(), **QUICK)
    (note,) = caught.value.__notes__
    assert note.startswith("2 epochs were finished; the translation holds the weights of the best one, epoch 2")


def test_callbacks_see_each_validation_once() -> None:
    class Reports(pl.Callback):
        def __init__(self, *, sees_start: bool) -> None:
            self.seen: list[int] = []
            self.sees_start = sees_start

        def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            self.seen.append(trainer.current_epoch)

    plain, early = Reports(sees_start=False), Reports(sees_start=True)
    finetune(SmallNet(TASKS["binary"]), rows(), rows(seed=1), callbacks=[plain, early], **QUICK | {"epochs": 2})
    assert (plain.seen, early.seen) == ([0, 1], [0, 0, 1])


def test_numpy_numbers_are_valid_options(tmp_path: Path) -> None:
    options = QUICK | {"epochs": np.int64(1), "learning_rate": np.float32(0.02), "seed": np.int64(3)}
    assert len(finetune(SmallNet(TASKS["binary"]), rows(), checkpoint_dir=tmp_path, **options).epochs) == 2
    finetune(SmallNet(TASKS["binary"]), rows(), resume_from=tmp_path, **options)


def test_a_run_out_of_patience_stays_stopped(tmp_path: Path) -> None:
    options = QUICK | {"epochs": 50, "patience": 2, "learning_rate": 1.0}
    net, other = SmallNet(TASKS["binary"]), SmallNet(TASKS["binary"])
    once = finetune(net, rows(), rows(seed=1), checkpoint_dir=tmp_path, **options)
    again = finetune(other, rows(), rows(seed=1), resume_from=tmp_path, **options)
    assert _trajectory(again) == _trajectory(once)
    # The best epoch was before the checkpoint: its weights come out of the file.
    assert _equal(_weights(other), _weights(net))


def test_checkpoints_that_do_not_match(tmp_path: Path) -> None:
    net = SmallNet(TASKS["binary"])
    with pytest.raises(BadFile, match="no checkpoint at .*last.ckpt; give"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK)
    finetune(net, rows(), checkpoint_dir=tmp_path, **QUICK)
    before = _weights(net)
    with pytest.raises(
        BadInput, match=r"was written with learning_rate=0.02 \(now 0.5\), seed=0 \(now 9\); resume with"
    ):
        finetune(net, rows(), resume_from=tmp_path, **QUICK | {"learning_rate": 0.5, "seed": 9})
    with pytest.raises(BadInput, match="is past epoch 3 and epochs=2"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK | {"epochs": 2})
    with pytest.raises(BadFile, match="belongs to another translation: net.last.bias, net.last.weight"):
        finetune(SmallNet(TASKS["multiclass"]), rows(task="multiclass"), resume_from=tmp_path, **QUICK)
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"nonsense"):
        (tmp_path / CHECKPOINT).write_bytes(content)
        with pytest.raises(BadFile, match="is damaged or no checkpoint"):
            finetune(net, rows(), resume_from=tmp_path, **QUICK)
    torch.save({"weights": torch.ones(2)}, tmp_path / CHECKPOINT)
    with pytest.raises(BadFile, match="is no checkpoint of fit"):
        finetune(net, rows(), resume_from=tmp_path, **QUICK)
    assert _equal(_weights(net), before)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploded",))


def test_a_malicious_checkpoint_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": _Bomb()}, tmp_path / CHECKPOINT)
    with pytest.raises(BadFile, match="is damaged or no checkpoint"):
        finetune(SmallNet(TASKS["binary"]), rows(), resume_from=tmp_path, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


def test_an_epoch_without_validation_is_rejected() -> None:
    net = SmallNet(TASKS["binary"])
    with pytest.raises(BadInput, match="an epoch ended without validation"):
        BestCheckpoint(net, Metric(None, net.head), None, None).on_train_epoch_end(
            pl.Trainer(logger=False, enable_checkpointing=False), net
        )  # type: ignore[arg-type]
