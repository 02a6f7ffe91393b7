"""Pipelines, rows and spaces for the tests of sweeps; as a program: ``python sweep_case.py URL TRIALS NUMBER``."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel

QUICK = windtunnel.Recipe(residual=False, epochs=2, learning_rate=1e-3, batch_size=50, ema=None)
RESIDUAL = windtunnel.Recipe(epochs=2, batch_size=50, ema=None)
SPACE: dict[str, Any] = {"learning_rate": {"low": 1e-3, "high": 0.1, "log": True}, "weight_decay": [0.0, 3e-4, 1e-2]}


def rows(count: int, seed: int) -> tuple[pd.DataFrame, Any]:
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.normal(size=(count, 3)), columns=["a", "b", "c"])
    margin = X["a"] * X["b"] + X["c"] + random.normal(size=count) / 2
    return X, np.where(margin > 0, "yes", "no")


TRAIN, VALID = rows(200, 0), rows(150, 1)


def logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(*TRAIN)


def trees() -> Any:
    model = LGBMClassifier(n_estimators=3, num_leaves=3, min_child_samples=5, verbosity=-1, n_jobs=1, random_state=0)
    return model.fit(*TRAIN)


def kill_in_trial(number: int) -> None:
    """Kill this process while it trains the trial of that number."""
    from windtunnel.sweeps.objective import Objective

    train, numbers = Objective.train, itertools.count()

    def train_or_die(objective: Any, *arguments: Any) -> Any:
        if next(numbers) == number:
            time.sleep(0.5)  # Optuna's thread records the first heartbeat
            os.kill(os.getpid(), signal.SIGKILL)
        return train(objective, *arguments)

    Objective.train = train_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    assert windtunnel.compile and windtunnel.sweep and windtunnel.SweepResult
    # Optional packages are imported only where they run.
    assert not {"optuna", "onnx", "onnxruntime", "onnxscript"} & set(sys.modules)
    url, trials, killed = sys.argv[1], *map(int, sys.argv[2:])
    kill_in_trial(killed)
    windtunnel.sweep(logistic(), TRAIN, VALID, space=SPACE, recipe=QUICK, trials=trials, storage=url)
