"""A sweep from end to end, in one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import check_distribution_compatibility
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sklearn.utils.parallel import Parallel, delayed

from windtunnel.api.load import load
from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.errors import BadInput
from windtunnel.sweeps.artefacts import Artefacts, winners
from windtunnel.sweeps.budget import COUNTED, Budget, Surplus
from windtunnel.sweeps.quiet import quiet
from windtunnel.sweeps.result import SweepResult, history
from windtunnel.sweeps.rows import SharedRows
from windtunnel.sweeps.space import RISKY, TRANSLATE, Space, default_space
from windtunnel.sweeps.storage import open_storage, try_again
from windtunnel.sweeps.trial import Objective
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.recipe import Recipe

PAUSE = 0.5
"""Seconds between looks at the trials of other processes."""


@dataclass(frozen=True)
class Settings:
    """The arguments of ``windtunnel.sweep``, checked, as each process gets them.

    ``deadline`` is a time of ``time.monotonic``, which is that of the machine.
    """

    pipeline: Any
    train: Any
    valid: Any
    space: Space | None
    trials: int
    deadline: float | None
    storage: str | BaseStorage | None
    study_name: str
    recipe: Recipe | str | None
    metric: dict[str, Any]
    translated: dict[str, Any]
    objectives: tuple[str, ...]
    calibrate: Any
    folder: Path | None
    seed: int
    jobs: int
    pruner: BasePruner | None
    sampler: BaseSampler | None
    accelerator: str
    progress: bool


def run(settings: Settings) -> SweepResult:
    """Run the trials that are missing, and read the result."""
    with contextlib.ExitStack() as stack:
        if settings.folder is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="windtunnel-sweep-"))
            here = dataclasses.replace(settings, folder=Path(made))
        else:
            here = settings
        if settings.jobs > 1:
            Parallel(n_jobs=settings.jobs)(delayed(_work)(here) for _ in range(settings.jobs))
        with quiet():
            process = Process(here)
            process.work()
            return process.result(settings.folder)


def _work(settings: Settings) -> None:
    with quiet():
        Process(settings).work()


class Process:
    """One process' share of a sweep.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.folder is not None
        self.settings = settings
        net = translate(settings.pipeline, calibrate=settings.calibrate, **settings.translated)
        self.recipe = self._recipe(net)
        judge = FineTuning(net, self.recipe).judge
        self.metric, self.greater_is_better = judge.name, judge.greater_is_better
        self.rows = SharedRows(net, settings.train, settings.valid)
        self.space = settings.space or default_space(net, self.recipe, self.rows.train.size)
        self.space.check_effect(
            bool(self.space.fixed.get("residual", self.recipe.residual)) and net.takes_residual_model()
        )
        self.steps = [[step.name, type(step.module).__name__, _size(step)] for step in net.program.steps]
        storage = open_storage(settings.storage)
        self.study = self._study(storage)
        self.artefacts = Artefacts(settings.folder)
        self.objective = Objective(
            settings.pipeline,
            self.rows,
            settings.calibrate,
            self.space,
            settings.translated,
            settings.recipe,
            settings.metric,
            self.recipe,
            self.artefacts,
            claim=lambda number: self.budget.claim(number),
            alive=storage.record_heartbeat if isinstance(storage, RDBStorage) else None,
            seed=settings.seed,
            sampler=settings.sampler,
            several=len(settings.objectives) > 1,
            accelerator=settings.accelerator,
            takes_residual_model=net.takes_residual_model(),
        )
        default = self.objective.default()
        risky = [name for name in RISKY if self.space.careful and name in self.space.swept]
        usual = {name: self.objective.usual(name) for name in risky}
        shared = isinstance(storage, RDBStorage)
        self.budget = Budget(self.study, settings.trials, default, usual, shared=shared)

    def _recipe(self, net: Translation) -> Recipe:
        """The recipe that ``fit`` takes for this pipeline."""
        given = self.settings.recipe
        if given in (None, "default") and not net.takes_residual_model():
            given = "joint"
        return Recipe.resolve(given, self.settings.metric)

    def _study(self, storage: BaseStorage) -> optuna.Study:
        settings = self.settings
        directions = [StudyDirection.MAXIMIZE if self.greater_is_better else StudyDirection.MINIMIZE]
        several = len(settings.objectives) > 1
        try:
            study = optuna.create_study(
                storage=storage,
                study_name=settings.study_name,
                directions=directions + [StudyDirection.MINIMIZE] * several,
                load_if_exists=True,
                pruner=NopPruner() if several else settings.pruner or MedianPruner(n_warmup_steps=2),
                sampler=settings.sampler,
            )
        except ValueError as error:
            raise BadInput(f"study {settings.study_name!r} cannot be opened: {error}") from error
        self._check_same(study)
        study.set_metric_names(self._columns())
        return study

    def _columns(self) -> list[str]:
        return [self.metric, *self.settings.objectives[1:]]

    def _check_same(self, study: optuna.Study) -> None:
        """Reject to add to a study whose values mean something else, or whose options cannot be compared."""
        ours = json.loads(json.dumps(self._facts()))
        theirs = study.user_attrs.get("windtunnel")
        trials = study.get_trials(deepcopy=False)
        if theirs is None and trials:
            raise BadInput(f"study {study.study_name!r} holds trials of something else; take another study_name")
        if theirs is not None and theirs != ours:
            what = [
                f"{name}={_cut(theirs.get(name))} (now {_cut(ours[name])})"
                for name in ours
                if theirs.get(name) != ours[name]
            ]
            raise BadInput(
                f"study {study.study_name!r} was made with {', '.join(what)}; its values cannot be compared with those "
                "of this sweep: give the same, or take another study_name"
            )
        space = self.space.distributions()
        for trial in trials:
            for name in trial.distributions.keys() & space.keys():
                try:
                    check_distribution_compatibility(trial.distributions[name], space[name])
                except ValueError as error:
                    raise BadInput(
                        f"study {study.study_name!r} chose {name} from {trial.distributions[name]} and this sweep from "
                        f"{space[name]}; only the bounds of ranges may change: take another study_name"
                    ) from error
        if theirs is None:
            study.set_user_attr("windtunnel", ours)

    def _facts(self) -> dict[str, Any]:
        """What two sweeps must have in common for their values to be compared, as JSON values."""
        settings, swept, fixed = self.settings, self.space.swept, self.space.fixed
        recipe = Recipe.resolve(self.recipe, {name: one for name, one in fixed.items() if name not in TRANSLATE})
        shared = {**recipe.facts(), **settings.translated, **{n: one for n, one in fixed.items() if n in TRANSLATE}}
        return {
            "metric": self.metric,
            "objectives": list(settings.objectives),
            **self.rows.facts(),
            "steps": self.steps,
            **{name: value for name, value in shared.items() if name not in swept and name != "metric"},
        }

    def work(self) -> None:
        """Run trials until as many are finished as were asked for, here or in other processes, or time is up."""
        told = False
        while not self.budget.spent():
            if self._late():
                self._say(f"time is up after {self.budget.done()} of {self.settings.trials} trials")
                return
            self.budget.bury()
            if not self.budget.taken():
                self.budget.prepare()
                self._one()
                continue
            if not told:
                self._say("waiting for trials that other processes run, or that a killed one left")
                told = True
            time.sleep(PAUSE)

    def _late(self) -> bool:
        """Whether no further trial shall begin; without a complete one there would be no result."""
        deadline = self.settings.deadline
        return deadline is not None and time.monotonic() >= deadline and bool(winners(self.study))

    def _one(self) -> None:
        try:
            self.study.optimize(self.objective, n_trials=1, catch=(Surplus,), callbacks=[self._after])
        except KeyboardInterrupt:
            if (trial := self._current()) is not None:
                try_again(self.study, trial)
            raise
        except Exception as error:
            trial = self._current()
            if trial is not None and trial.state == TrialState.FAIL and self.objective.ended:
                # This process stood still for so long that another one took the trial for dead and queued it again.
                self._say(f"trial {trial.number} was given up by another process")
                return
            if trial is not None:
                error.add_note(
                    f"in trial {trial.number} with {trial.user_attrs.get('options', trial.params)}; the trials before "
                    "it are kept: the same call with the same storage goes on after them"
                )
            raise

    def _current(self) -> FrozenTrial | None:
        number = self.objective.number
        return None if number is None else self.study.get_trials(deepcopy=False)[number]

    def _after(self, study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.state not in COUNTED:
            return
        self.artefacts.settle(study)
        best = winners(study)
        value = f"{self.metric} {trial.values[0]:.6f}" if trial.values else "no value"
        pruned = " (pruned)" if trial.state == TrialState.PRUNED else ""
        lead = f"best {best[0].values[0]:.6f} of trial {best[0].number}" if best else "none complete"
        count = f"{self.budget.done()} of {self.settings.trials}"
        self._say(f"trial {trial.number}, {count}: {value}{pruned}, {lead}, {trial.user_attrs['seconds']:.1f} s")

    def _say(self, what: str) -> None:
        if self.settings.progress:
            print(f"{self.study.study_name}: {what}", file=sys.stderr, flush=True)

    def result(self, folder: Path | None) -> SweepResult:
        """Read the storage, and the best model from its file, or train it again where the file is elsewhere."""
        front = winners(self.study)
        if not front:
            raise BadInput(
                f"study {self.study.study_name!r} has {self.budget.done()} pruned trials and none complete; give more "
                "trials, or a pruner that lets some finish"
            )
        best, columns = front[0], tuple(self._columns())
        path = self.artefacts.path(best.number)
        suggested = {} if best.user_attrs.get("default") else best.params
        if not path.is_file():
            self._say(f"the model of trial {best.number} is not in {path.parent}; training it again")
            self.artefacts.keep(best.number, self.objective.train(suggested, []))
        self.artefacts.settle(self.study)
        return SweepResult(
            study=self.study,
            best_options={**best.user_attrs["options"], **self.space.fixed},
            best_value=best.values[0],
            net=load(path, host=self.settings.pipeline),
            metric=self.metric,
            greater_is_better=self.greater_is_better,
            objectives=self.settings.objectives,
            history=history(self.study, columns),
            front=tuple(trial.number for trial in front),
            folder=folder,
        )


def _size(step: Any) -> int:
    return sum(parameter.numel() for parameter in step.parameters())


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
