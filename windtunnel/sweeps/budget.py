"""How many trials are still to run, counted over all processes that share a storage."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from windtunnel.sweeps import storage

COUNTED = (TrialState.COMPLETE, TrialState.PRUNED)
CAREFUL = 10
"""The first so many trials of the default space keep the default's start and temperature."""


class Surplus(Exception):
    """A trial is one too many: other processes have begun as many as were asked for."""


class Budget:
    """Lets as many trials finish as were asked for, no matter how many processes run them and which of them die.

    A trial may run where fewer than ``trials`` of those with a lower number are finished, running or waiting. Numbers
    are given by the storage, one after the other, so every process comes to the same answer without asking the others,
    and of those that may run never more than ``trials`` are alive. Failed trials do not count.

    Parameters
    ----------
    study : optuna.Study
    trials : int
        How many shall be complete or pruned in all.
    default : dict
        The swept options that the default can be written in.
    usual : dict
        Values of the default that the first trials keep.
    shared : bool
        Whether the storage outlives its processes, and takes their signs of life.
    """

    def __init__(
        self, study: optuna.Study, trials: int, default: dict[str, Any], usual: dict[str, Any], *, shared: bool
    ) -> None:
        self.study, self.trials, self.shared = study, trials, shared
        self.default, self.usual = default, usual

    def done(self) -> int:
        """How many trials are complete or pruned."""
        return len(self._all(*COUNTED))

    def spent(self) -> bool:
        """Whether nothing is left to do, here or elsewhere."""
        return self.done() >= self.trials

    def taken(self) -> bool:
        """Whether the trials that run now are all that is left."""
        return len(self._all(*COUNTED, TrialState.RUNNING)) >= self.trials

    def prepare(self) -> None:
        """Queue what has to come before anything else: the default, and cautious trials after it."""
        alive = [trial for trial in self._all() if trial.state != TrialState.FAIL]
        if not any(trial.user_attrs.get("default") for trial in alive):
            self.study.enqueue_trial(self.default, user_attrs={"default": True})
        elif self.usual and len(alive) < CAREFUL and not any(trial.state == TrialState.WAITING for trial in alive):
            self.study.enqueue_trial(self.usual)

    def claim(self, number: int) -> None:
        """Raise ``Surplus`` where the trial of this number may not run."""
        every = self._all()
        before = [trial for trial in every if trial.number < number and trial.state != TrialState.FAIL]
        # Two processes that start at once may both have queued the default.
        default = next(trial for trial in every if trial.number == number).user_attrs.get("default")
        twice = default and any(trial.user_attrs.get("default") for trial in before)
        if twice or len(before) >= self.trials:
            raise Surplus

    def bury(self) -> None:
        """Fail the trials whose processes have died, and queue their options again."""
        if not self.shared:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)
        long_ago = datetime.now() - timedelta(seconds=storage.GRACE)
        for trial in self._all(TrialState.RUNNING):
            # A process that was killed between asking for a trial and the first sign of life left none to go stale.
            if (
                not trial.user_attrs.get("begun")
                and trial.datetime_start is not None
                and trial.datetime_start < long_ago
            ):
                self._fail(trial)

    def _fail(self, trial: FrozenTrial) -> None:
        try:
            self.study.tell(trial.number, state=TrialState.FAIL)
        except (UpdateFinishedTrialError, ValueError):
            # Another process was faster.
            if self._all()[trial.number].state != TrialState.FAIL:
                raise
        else:
            storage.try_again(self.study, trial)

    def _all(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)
