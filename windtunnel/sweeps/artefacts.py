"""The models that a sweep keeps: the best one, or the whole Pareto front."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from windtunnel.api.translation import Translation

BEST = "best.windtunnel"


def winners(study: optuna.Study) -> list[FrozenTrial]:
    """Complete trials that no other beats, the best by the first objective in front; of equals the earliest alone."""
    sign = [-1.0 if one == StudyDirection.MAXIMIZE else 1.0 for one in study.directions]
    found: dict[tuple[float, ...], FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        found.setdefault(tuple(s * value for s, value in zip(sign, trial.values, strict=True)), trial)
    losses = sorted(found)
    return [found[one] for one in losses if not any(_dominates(other, one) for other in losses)]


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


class Artefacts:
    """A folder with ``best.windtunnel``, and ``trials/<number>.windtunnel`` for each trial that no other beats.

    A trial's model is written before the storage hears of its value, so that no value is without its model, however
    the process ends. Several processes may share the folder.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copied: int | None = None
        (folder / "trials").mkdir(parents=True, exist_ok=True)

    def path(self, number: int) -> Path:
        """Where the model of a trial is."""
        return self.folder / "trials" / f"{number:04d}.windtunnel"

    def keep(self, number: int, net: Translation) -> None:
        """Write the model of a trial."""
        net.save(self.path(number))

    def settle(self, study: optuna.Study) -> None:
        """Put the best model in place and remove those that are beaten."""
        best = winners(study)
        # Another process may finish a better trial while this one copies.
        while best and best[0].number != self._copied and self._copy(best[0].number):
            best = winners(study)
        kept = {trial.number for trial in best}
        for trial in study.get_trials(deepcopy=False):
            if trial.state.is_finished() and trial.number not in kept:
                self.path(trial.number).unlink(missing_ok=True)

    def _copy(self, number: int) -> bool:
        if not self.path(number).is_file():  # of a process with another folder, or beaten and removed by now
            return False
        draft = self.folder / f".{BEST}.{os.getpid()}"
        shutil.copyfile(self.path(number), draft)
        os.replace(draft, self.folder / BEST)
        self._copied = number
        return True
