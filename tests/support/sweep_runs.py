"""Sweeps over the pipelines of ``sweep_case``, and their trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState
from sklearn.metrics import roc_auc_score
from sweep_case import QUICK, SPACE, TRAIN, VALID

import windtunnel
from windtunnel.sweeps.objective import Objective

OPTIONS: dict[str, Any] = {"recipe": QUICK, "progress": False, "accelerator": "cpu"}


def sweep(pipeline: Any, trials: int = 3, **options: Any) -> windtunnel.SweepResult:
    return windtunnel.sweep(pipeline, TRAIN, VALID, trials=trials, **{"space": SPACE, **OPTIONS, **options})


def auroc(net: Any) -> float:
    return roc_auc_score(VALID[1] == "yes", net.predict_proba(VALID[0])[:, 1])


def counted(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweep.db'}"


def interrupt(*errors: BaseException | None) -> Callable[..., Any]:
    """``Objective.train`` that raises these errors, one per call."""
    train, remaining = Objective.train, iter(errors)

    def train_or_raise(objective: Objective, *arguments: Any) -> Any:
        if (error := next(remaining, None)) is not None:
            raise error
        return train(objective, *arguments)

    return train_or_raise
