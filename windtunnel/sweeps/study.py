"""The Optuna study of a sweep: open it, and keep the files of its best models."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import MedianPruner, NopPruner
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from windtunnel.atomic_write import write_atomically
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.sweeps.objective import Objective
from windtunnel.sweeps.settings import BEST, Settings

HEARTBEAT, GRACE = 10, 60
"""Seconds between the heartbeats of a running trial, and without one after which Optuna fails and retries it."""
RETRIES = 2
DIGESTS = {"targets": "targets", "rows": "rows", "calibration": "calibration rows"}
"""Facts that are hashes, which nobody can read."""


@contextlib.contextmanager
def optuna_messages(shown: bool) -> Iterator[None]:
    """Show or hide Optuna's log lines; its warnings about experimental features are hidden."""
    verbosity = optuna.logging.get_verbosity()
    if not shown:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def open_study(settings: Settings, objective: Objective) -> optuna.Study:
    """Open or create the study.

    Raises
    ------
    InvalidOption
        If the storage cannot be opened.
    BadInput
        If the study was made with other rows, options or objectives.
    """
    several = len(settings.objectives) > 1
    best = StudyDirection.MAXIMIZE if objective.greater_is_better else StudyDirection.MINIMIZE
    facts = json.loads(json.dumps(objective.facts()))
    name = settings.study_name
    storage = _open_storage(settings.storage)
    if name in optuna.get_all_study_names(storage):
        _check_same(optuna.load_study(study_name=name, storage=storage), facts)
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=[best, StudyDirection.MINIMIZE][: 1 + several],
        load_if_exists=True,
        pruner=NopPruner() if several else settings.pruner or MedianPruner(n_warmup_steps=2),
        sampler=settings.sampler,
    )
    study.set_user_attr("windtunnel", facts)
    study.set_metric_names([objective.metric, *settings.objectives[1:]])
    return study


def _open_storage(storage: str | BaseStorage | None) -> BaseStorage:
    if not isinstance(storage, str):
        return storage or InMemoryStorage()
    sqlite = storage.startswith("sqlite")
    # Without an isolation level Python's driver begins no transactions by itself.
    options = {"connect_args": {"timeout": 120, "isolation_level": None}} if sqlite else {}
    for attempt in range(10):
        try:
            opened = RDBStorage(
                storage,
                engine_kwargs=options,
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
            )
            if sqlite:
                sqlalchemy.event.listen(opened.engine, "begin", _lock_for_writing)
            return opened
        except (SQLAlchemyError, ImportError) as error:
            # Two processes that create the tables of a new file at once disturb each other.
            busy = isinstance(error, OperationalError | IntegrityError) and "unable to open" not in str(error)
            if busy and attempt < 9:
                time.sleep(0.05 * (attempt + 1))
                continue
            raise InvalidOption(
                f"storage={storage!r} cannot be opened ({str(error).splitlines()[0]}); give a URL such as "
                "sqlite:///sweep.db, in a folder that exists"
            ) from error
    raise AssertionError


def _lock_for_writing(connection: sqlalchemy.Connection) -> None:
    """Lock the file before the first read, as SQLite locks no rows: else two processes take the same waiting trial."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _check_same(study: optuna.Study, facts: dict[str, Any]) -> None:
    before = study.user_attrs.get("windtunnel")
    if before is None and study.get_trials(deepcopy=False):
        raise BadInput(f"study {study.study_name!r} holds trials of something else; take another study_name")
    changed = [
        f"other {DIGESTS[name]}" if name in DIGESTS else f"{name}={_cut(before.get(name))} (now {_cut(value)})"
        for name, value in facts.items()
        if before and before.get(name) != value
    ]
    if changed:
        raise BadInput(
            f"study {study.study_name!r} was made with {', '.join(changed)}; its values cannot be compared with those "
            "of this sweep. Only the bounds of ranges may change: give the same, or take another study_name"
        )


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def pareto_front(study: optuna.Study) -> list[FrozenTrial]:
    """Complete trials that no other trial dominates, best metric first; of equal ones the earliest."""
    trials: dict[tuple[float, ...], FrozenTrial] = {}
    for trial in sorted(study.best_trials, key=lambda trial: trial.number):
        trials.setdefault(tuple(trial.values), trial)
    maximise = study.directions[0] == StudyDirection.MAXIMIZE
    return sorted(trials.values(), key=lambda trial: trial.values[0], reverse=maximise)


def keep_best_models(study: optuna.Study, objective: Objective) -> None:
    """Copy the best model to ``best.windtunnel``, and remove those of trials outside of the Pareto front."""
    # Before the front, so that none of these is missing from it because it has just ended in another process.
    finished = [trial.number for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    front = pareto_front(study)
    if front:
        path = objective.model_path(front[0].number)
        with contextlib.suppress(FileNotFoundError):  # another process has found a better one, and removed it
            write_atomically(path.parents[1] / BEST, path.read_bytes())
    for number in {*finished} - {trial.number for trial in front}:
        objective.model_path(number).unlink(missing_ok=True)
