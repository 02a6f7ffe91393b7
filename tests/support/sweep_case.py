"""What sweeps are tried on, here and in processes of their own: ``python sweep_case.py URL TRIALS [kill at]``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.sweeps import trial as one_trial

QUICK = windtunnel.Recipe(residual=False, epochs=2, learning_rate=1e-3, batch_size=50, ema=None)
BRANCH = windtunnel.Recipe(epochs=2, batch_size=50, ema=None)
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


def kill_at(number: int) -> None:
    """Let this process be killed in the midst of its so-manieth trial."""
    real, count = one_trial.translate, iter(range(1, 100))

    def translate(*arguments: Any, **options: Any) -> Any:
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    one_trial.translate = translate


if __name__ == "__main__":
    if len(sys.argv) > 3:
        kill_at(int(sys.argv[3]))
    url, trials = sys.argv[1], int(sys.argv[2])
    windtunnel.sweep(logistic(), TRAIN, VALID, space=SPACE, recipe=QUICK, trials=trials, storage=url)
