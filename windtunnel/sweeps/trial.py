"""One trial of a sweep: suggest, translate, fine-tune, keep the model, tell the value."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pytorch_lightning as pl
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import Trial

from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.sweeps.artefacts import Artefacts
from windtunnel.sweeps.cost import inference_cost
from windtunnel.sweeps.rows import SharedRows
from windtunnel.sweeps.space import TRANSLATE, Space
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.recipe import Recipe


class Pruning(pl.Callback):
    """Reports the metric to the trial after every epoch, and ends the training of a trial that is to be pruned.

    Epoch 0, before training, counts as a step: ``fit`` would hand it back.

    Parameters
    ----------
    trial : optuna.Trial
    reports : bool
        False for several objectives, of which Optuna takes no reports.
    may_end : bool
        False only reports.

    Attributes
    ----------
    pruned : bool
        Whether training was ended.
    recipe : Recipe or None
        What was trained with: ``fit`` takes another one where there can be no residual model.
    """

    sees_start = True

    def __init__(self, trial: Trial, *, reports: bool, may_end: bool) -> None:
        self.trial, self.reports, self.may_end = trial, reports, may_end
        self.pruned = False
        self.recipe: Recipe | None = None
        self._epoch = 0

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Report, and ask whether to go on."""
        assert isinstance(module, FineTuning)
        self.recipe = module.recipe
        if not self.reports:
            return
        self.trial.report(float(trainer.callback_metrics[f"val_{module.judge.name}"]), self._epoch)
        if self.may_end and self._epoch > 0 and self.trial.should_prune():
            # The epoch is ended as any last one, so that nothing is left half done.
            self.pruned = trainer.should_stop = True
        self._epoch += 1


@dataclass
class Objective:
    """What Optuna optimises: calling it with a trial runs the trial.

    Attributes
    ----------
    pipeline : fitted pipeline
    rows : SharedRows
    calibrate : rows
        For ``translate``.
    space : Space
    translated : dict
        The options of ``translate`` where the space has none.
    given : Recipe, str or None
        The recipe as ``fit`` takes it.
    metric : dict
        The metric, where one is named beside the recipe.
    recipe : Recipe
        What these come to on this pipeline.
    artefacts : Artefacts
    claim : callable
        Raises ``Surplus`` for the number of a trial that may not run.
    alive : callable or None
        Leaves the first sign of life of a trial.
    seed : int
        Of the suggestions, which also go by the number of the trial: two processes never draw the same.
    sampler : optuna.samplers.BaseSampler or None
        Instead of Optuna's TPE.
    several : bool
        Whether the cost of a prediction is an objective too.
    accelerator : str
    takes_residual_model : bool
        Whether the pipeline takes a residual model at all.
    number : int or None
        Of the trial that was begun last.
    ended : bool
        Whether it was trained to its end, or another process gave it up.
    """

    pipeline: Any
    rows: SharedRows
    calibrate: Any
    space: Space
    translated: dict[str, Any]
    given: Recipe | str | None
    metric: dict[str, Any]
    recipe: Recipe
    artefacts: Artefacts
    claim: Callable[[int], None]
    alive: Callable[[int], None] | None = None
    seed: int = 0
    sampler: BaseSampler | None = None
    several: bool = False
    accelerator: str = "auto"
    takes_residual_model: bool = True

    def __post_init__(self) -> None:
        self.number: int | None = None
        self.ended = False

    def __call__(self, trial: Trial) -> float | tuple[float, float]:
        """Run a trial; its model is written before its value is returned."""
        self.number, self.ended = trial.number, False
        try:
            value = self._run(trial)
        except (optuna.TrialPruned, UpdateFinishedTrialError):
            self.ended = True
            raise
        self.ended = True
        return value

    def _run(self, trial: Trial) -> float | tuple[float, float]:
        self.claim(trial.number)
        if self.alive is not None:
            self.alive(trial._trial_id)
        trial.set_user_attr("begun", True)
        started = time.perf_counter()
        default = bool(trial.user_attrs.get("default"))
        suggested = self._suggest(trial, default)
        trial.set_user_attr("options", self.told(suggested))
        # The default is run to its end, as everything else is measured by it; fronts have no order to prune by.
        watch = Pruning(trial, reports=not self.several, may_end=not default)
        net = self.train({} if default else suggested, [watch])
        trial.set_user_attr("options", self.told(suggested, watch.recipe if default else None))
        assert net.history is not None
        trial.set_user_attr("epochs", len(net.history.epochs) - 1)
        trial.set_user_attr("best_epoch", net.history.best_epoch)
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 3))
        if watch.pruned:
            raise optuna.TrialPruned(f"after {len(net.history.epochs) - 1} epochs")
        self.artefacts.keep(trial.number, net)
        return (net.history.best, inference_cost(net, self.rows.some())) if self.several else net.history.best

    def told(self, suggested: dict[str, Any], trained: Recipe | None = None) -> dict[str, Any]:
        """The options that the space names, as JSON values; a function goes by its name.

        Parameters
        ----------
        suggested : dict
            What the trial suggested.
        trained : Recipe, optional
            What it was trained with, where that was not for the space to say.
        """
        residual = self._branched(suggested.get("residual"))
        names = [name for name in self.space.swept if name == "residual" or name in self.space.active(residual)]
        options = {**{name: self.usual(name) for name in names}, **self.space.fixed, **suggested}
        recipe = trained or Recipe.resolve(self.recipe, {n: one for n, one in options.items() if n not in TRANSLATE})
        facts = recipe.facts()
        return {name: facts.get(name) if facts.get(name) is not None else value for name, value in options.items()}

    def usual(self, name: str) -> Any:
        """The default's value of an option."""
        if name == "batch_size":
            return self.resolved({}).rows_per_step(self.rows.train.size)
        return self.translated[name] if name in TRANSLATE else getattr(self.recipe, name)

    def default(self) -> dict[str, Any]:
        """The default's values of what is swept and has an effect on it, as far as the space holds them."""
        names = [*self.space.active(self._branched(None)), *(["residual"] if "residual" in self.space.swept else [])]
        usual = {name: self.usual(name) for name in names}
        return {name: value for name, value in usual.items() if self.space.swept[name].holds(value)}

    def resolved(self, suggested: dict[str, Any]) -> Recipe:
        """The recipe that ``fit`` is asked for."""
        return Recipe.resolve(self.given, self._overrides(suggested))

    def train(self, suggested: dict[str, Any], callbacks: list[pl.Callback]) -> Translation:
        """Translate and fine-tune; without suggestions as the default, which ``fit`` is left to settle."""
        options = {**self.space.fixed, **suggested}
        translated = {**self.translated, **{name: options[name] for name in TRANSLATE if name in options}}
        net = translate(self.pipeline, calibrate=self.calibrate, **translated)
        train, valid = self.rows.batches(net, self.resolved(suggested))
        return net.fit(
            train,
            valid,
            recipe=self.given,
            callbacks=callbacks,
            accelerator=self.accelerator,
            progress=False,
            **self._overrides(suggested),
        )

    def _overrides(self, suggested: dict[str, Any]) -> dict[str, Any]:
        options = {**self.metric, **self.space.fixed, **suggested}
        return {name: value for name, value in options.items() if name not in TRANSLATE}

    def _branched(self, suggested: Any) -> bool:
        """Whether there is a residual model, in a trial that suggests one or not, or says nothing of it."""
        usual = bool(self.space.fixed.get("residual", self.recipe.residual))
        return self.takes_residual_model and (usual if suggested is None else bool(suggested))

    def _suggest(self, trial: Trial, default: bool) -> dict[str, Any]:
        if self.sampler is None:
            seed = int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0])
            trial.study.sampler = TPESampler(seed=seed)
        swept = self.space.swept
        if default:
            # What the space does not hold, the default has all the same.
            return {name: swept[name].suggest(trial, name) for name in self.default()}
        first = {"residual": swept["residual"].suggest(trial, "residual")} if "residual" in swept else {}
        names = self.space.active(self._branched(first.get("residual")))
        return first | {name: swept[name].suggest(trial, name) for name in names}
