"""The smallest thing that looks like a translation to the trainers: an embedding and two linear layers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from windtunnel.encode import Batch, RowEncoder
from windtunnel.program.head import Head
from windtunnel.program.records.history import History
from windtunnel.program.records.records import Records
from windtunnel.program.translation_state import TranslationState
from windtunnel.trainers.fit import fit

TASKS = {
    "binary": Head("binary", "sigmoid", "logistic", classes=np.array(["no", "yes"])),
    "multiclass": Head("multiclass", "softmax", "softmax", classes=np.array(["a", "b", "c"])),
    "regression": Head("regression", "identity", "squared"),
}


class SmallNet(nn.Module):
    """Columns "x", "z" are numbers, "c" holds categories "c0".."c7"; ids 0 and 1 are unknown and missing."""

    def __init__(self, head: Head, seed: int = 0) -> None:
        super().__init__()
        self.head = head
        self.exact_modules: dict[int, Any] = {}
        self.softening, self.softening_pending = None, False
        self.program: Any = SimpleNamespace(steps=[SimpleNamespace(module=None, takes=[])], method_steps={})
        self.origins = list[Any]()
        self.records = Records()
        self.engine, self.fixed, self.history = None, False, cast(History | None, None)
        self.encoder, self.hosts = RowEncoder(["x", "z", "c"], 3, [0, 1]), list[Any]()
        self.dropout = 0.0
        outputs = len(head.classes) if head.task == "multiclass" and head.classes is not None else 1
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.table = nn.Embedding(10, 4)
            self.first = nn.Linear(6, 16)
            self.last = nn.Linear(16, outputs)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("fact", torch.arange(3.0))
        self.initial_weights = {name: value.clone() for name, value in self.state_dict().items()}

    def in_torch(self) -> AbstractContextManager[None]:
        """It has no engine."""
        return nullcontext()

    def unchanged_on_error(self) -> AbstractContextManager[None]:
        """It has no program."""
        return nullcontext()

    def takes_residual_model(self) -> bool:
        return False

    def state(self) -> TranslationState:
        """It has nothing to restore."""
        return object.__new__(TranslationState)

    def restore(self, state: TranslationState) -> None:
        """Training leaves it with the best epoch."""

    def drop_trained_exact_modules(self) -> None:
        """There are none."""

    def replace_program(self, program: Any, *, origins: list[Any]) -> None:
        """It has none."""

    def replace_categories(self, categories: list[Any]) -> None:
        """Its encoder has none."""

    def record(self, *, history: History) -> None:
        self.history = history

    def keep_profile(self, profile: Any) -> None:
        """It has no report."""

    def finish_softening(self) -> None:
        self.exact_modules = {}

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        rows = torch.cat([numbers * self.frozen, self.table(ids[:, 0])], dim=1)
        hidden = nn.functional.dropout(torch.tanh(self.first(rows)), self.dropout, self.training)
        return self.last(hidden)

    def check_rows(self, batch: Batch) -> None:
        """Every row is taken."""

    def encode(self, rows: Any, *, training: bool = False) -> Batch:
        frame = pd.DataFrame(rows, columns=["x", "z", "c"])
        numbers = torch.from_numpy(frame[["x", "z"]].to_numpy(dtype=np.float32, copy=True))
        ids = [int(value[1:]) + 2 if isinstance(value, str) else 1 for value in frame["c"]]
        return Batch(numbers, torch.tensor(ids, dtype=torch.int64).reshape(-1, 1))


def finetune(net: Any, train: Any, valid: Any = None, **options: Any) -> History:
    """The history of ``fit``, which trains the net itself and keeps its best epoch."""
    history: History = fit(net, train, valid, **{"residual": False, **options}).history
    return history


def rows(count: int = 400, task: str = "binary", seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Raw rows with a pattern that a few epochs of training find."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"x": random.normal(size=count), "z": random.normal(size=count)})
    codes = random.integers(0, 8, count)
    X["c"] = [f"c{code}" for code in codes]
    value = X["z"].to_numpy() + X["x"].to_numpy() * np.where(codes % 2 == 0, 1, -1) + 0.3 * random.normal(size=count)
    if task == "regression":
        return X, value
    labels = TASKS[task].classes
    assert labels is not None
    return X, labels[np.digitize(value, [0.0] if task == "binary" else [-0.4, 0.4])]


QUICK: dict[str, Any] = {
    "schedule": "constant",
    "ema": None,
    "epochs": 3,
    "learning_rate": 0.02,
    "batch_size": 64,
    "progress": False,
    "accelerator": "cpu",
}


def weights(net: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def trajectory(history: History) -> list[dict[str, Any]]:
    return [{**asdict(one), "seconds": None} for one in history.epochs]
