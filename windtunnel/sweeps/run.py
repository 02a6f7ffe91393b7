"""A sweep from its settings to its result, in one process or several."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState
from sklearn.utils.parallel import Parallel, delayed

from windtunnel.sweeps.objective import Objective
from windtunnel.sweeps.result import SweepResult, history
from windtunnel.sweeps.settings import Settings
from windtunnel.sweeps.study import keep_best_models, open_study, optuna_messages, pareto_front

COUNTED = (TrialState.COMPLETE, TrialState.PRUNED)


def run(settings: Settings) -> SweepResult:
    """Run the missing trials, and return the result."""
    with optuna_messages(settings.progress), tempfile.TemporaryDirectory(prefix="windtunnel-sweep-") as temporary:
        folder = Path(settings.folder or temporary)
        if settings.jobs > 1:
            Parallel(n_jobs=settings.jobs)(delayed(_run_worker)(settings, folder) for _ in range(settings.jobs))
        objective = Objective(settings, folder)
        study = open_study(settings, objective)
        _run_trials(study, objective)
        while not _has_default(study, TrialState.COMPLETE):  # its process was killed, or is slower than this one
            if not _has_default(study, TrialState.WAITING):
                study.enqueue_trial({}, user_attrs={"default": True})
            _optimize(study, objective, n_trials=1)
        return _result(study, objective)


def _run_worker(settings: Settings, folder: Path) -> None:
    with optuna_messages(settings.progress):
        objective = Objective(settings, folder)
        _run_trials(open_study(settings, objective), objective)


def _run_trials(study: optuna.Study, objective: Objective) -> None:
    """Run trials until enough are complete or pruned, or the time is up; at least one completes."""
    settings = objective.settings

    def missing() -> bool:
        return len(study.get_trials(deepcopy=False, states=COUNTED)) < settings.trials

    if len(study.trials) > 0 and not _has_default(study, TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE):
        study.enqueue_trial({}, user_attrs={"default": True})
    if missing() and not study.best_trials:
        _optimize(study, objective, n_trials=1)
    if missing():
        _optimize(study, objective, timeout=max(0.0, settings.deadline - time.monotonic()))


def _optimize(study: optuna.Study, objective: Objective, **limit: Any) -> None:
    enough = MaxTrialsCallback(objective.settings.trials, states=COUNTED)
    study.optimize(objective, callbacks=[enough, lambda study, _: keep_best_models(study, objective)], **limit)


def _has_default(study: optuna.Study, *states: TrialState) -> bool:
    trials = study.get_trials(deepcopy=False, states=states)
    return any(trial.number == 0 or trial.user_attrs.get("default") for trial in trials)


def _result(study: optuna.Study, objective: Objective) -> SweepResult:
    settings, front = objective.settings, pareto_front(study)
    best = front[0]
    path = objective.model_path(best.number)
    if not path.is_file():  # another process has trained it, with another folder
        objective.train({} if best.user_attrs["default"] else best.params, []).save(path)
    keep_best_models(study, objective)
    return SweepResult(
        study=study,
        best_options={**best.user_attrs["options"], **objective.space.fixed},
        best_value=best.values[0],
        net=settings.load(path, host=settings.pipeline),
        metric=objective.metric,
        greater_is_better=objective.greater_is_better,
        objectives=tuple(settings.objectives),
        history=history(study, [objective.metric, *settings.objectives[1:]]),
        front=tuple(trial.number for trial in front),
        folder=Path(settings.folder) if settings.folder else None,
    )
