"""The objective of a sweep: suggest options, translate, fine-tune, save the model, return its value."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytorch_lightning as pl
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, TPESampler
from optuna.trial import Trial

from windtunnel.sweeps.cost import inference_cost
from windtunnel.sweeps.rows import SharedRows, calibration_rows, digest
from windtunnel.sweeps.settings import Settings
from windtunnel.sweeps.space import RISKY, TRANSLATE_OPTIONS, default_space
from windtunnel.trainers.loop.module import FineTuning
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.preparation import residual_base_for_loss

CAUTIOUS_TRIALS = 10
"""So many first trials of the default space do not vary start and temperature."""


class ReportEpochs(pl.Callback):
    """Reports the validation metric of each epoch to the trial, from epoch 0 (before training) on."""

    sees_start = True

    def __init__(self, trial: Trial, *, may_prune: bool) -> None:
        self.trial, self.may_prune = trial, may_prune
        self.pruned = False  # whether training was stopped because Optuna prunes the trial
        # The recipe that ``fit`` used; it differs from the given one if no residual model can be trained.
        self.recipe: Recipe | None = None
        self._epoch = 0

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Report the metric, and stop after this epoch if the trial is pruned."""
        assert isinstance(module, FineTuning)
        self.recipe = module.recipe
        if len(self.trial.study.directions) == 1:  # with several objectives Optuna accepts no reports
            self.trial.report(float(trainer.callback_metrics[f"val_{module.metric.name}"]), self._epoch)
            if self.may_prune and self._epoch > 0 and self.trial.should_prune():
                self.pruned = trainer.should_stop = True
            self._epoch += 1


class Objective:
    """Translates and fine-tunes the pipeline with the options that a trial suggests, and returns its value.

    Trial 0 is the default: it uses the given recipe and is never pruned. The model of each trial is saved as
    ``trials/<number>.windtunnel`` in ``folder``.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.models = settings, folder / "trials"
        self.models.mkdir(parents=True, exist_ok=True)
        self.calibrate = settings.calibrate
        if self.calibrate is None:
            self.calibrate = calibration_rows(settings.train, settings.seed)
        net = settings.translate(settings.pipeline, calibrate=self.calibrate, **settings.translate_options).soften()
        fixed = {} if settings.space is None else settings.space.fixed
        self.takes_residual = residual_base_for_loss(net, self._resolve(settings.recipe, fixed)) is not None
        residual = self.takes_residual and {**settings.recipe_options, **fixed}.get("residual", True)
        resolve = Recipe.resolve if residual else Recipe.resolve_joint
        self.recipe = resolve(settings.recipe, self._overrides({}))  # the one that ``fit`` trains with
        metric = FineTuning(NetToTrain.of(net, self.recipe), self.recipe).metric
        self.metric, self.greater_is_better = metric.name, metric.greater_is_better
        self.rows = SharedRows(net, settings.train, settings.valid)
        # Steps on the host may take long, and run once for the rows of the sweep.
        self._calibration = "" if net.hosts else digest(net.encode(self.calibrate))
        self.space = settings.space or default_space(net, self.recipe, self.rows.train.size)
        self.space.check_effect(self._has_residual({}))
        steps = net.program.steps
        self._sizes = [[s.name, type(s.module).__name__, sum(p.numel() for p in s.parameters())] for s in steps]

    def model_path(self, number: int) -> Path:
        """The file of a trial's model; those of other studies in the same folder have other names."""
        name = self.settings.study_name
        study = "" if name == Settings.model_fields["study_name"].default else re.sub(r"\W", "_", name) + "-"
        return self.models / f"{study}{number:04d}.windtunnel"

    def __call__(self, trial: Trial) -> float | tuple[float, float]:
        """Run a trial; its model is saved before its value is returned."""
        started = time.perf_counter()
        default = trial.number == 0 or bool(trial.user_attrs.get("default"))
        trial.set_user_attr("default", default)
        trial.study.sampler = self._sampler(trial, default)
        suggested = self._suggest(trial, default)
        report = ReportEpochs(trial, may_prune=not default)
        try:
            net = self.train({} if default else suggested, [report])
        except Exception as error:
            error.add_note(
                f"in trial {trial.number} with {suggested}; the trials before it are stored: call the sweep again with "
                "the same storage to continue"
            )
            raise
        results = {
            "options": self.options(suggested, report.recipe if default else None),
            "trained_epochs": len(net.history.epochs) - 1,
            "best_epoch": net.history.best_epoch,
            "seconds": round(time.perf_counter() - started, 3),
        }
        for name, value in results.items():
            trial.set_user_attr(name, value)
        if report.pruned:
            raise optuna.TrialPruned(f"after {results['trained_epochs']} epochs")
        net.save(self.model_path(trial.number))
        best: float = net.history.best
        if len(self.settings.objectives) == 1:
            return best
        return best, inference_cost(net, self.rows.first_valid())

    def train(self, suggested: dict[str, Any], callbacks: list[pl.Callback]) -> Any:
        """Translate and fine-tune with the suggested options; without any this is the default trial."""
        settings, options = self.settings, {**self.space.fixed, **suggested}
        swept = {name: options[name] for name in TRANSLATE_OPTIONS if name in options}
        net = settings.translate(settings.pipeline, calibrate=self.calibrate, **{**settings.translate_options, **swept})
        train, valid = self.rows.batches(net, self._training_recipe(options))
        return net.fit(
            train,
            valid,
            recipe=settings.recipe,
            callbacks=callbacks,
            accelerator=settings.accelerator,
            progress=False,
            **self._overrides(options),
        )

    def options(self, suggested: dict[str, Any], used: Recipe | None = None) -> dict[str, Any]:
        """The options of a trial that the space names, as JSON values; ``used`` is the recipe that ``fit`` chose."""
        defaults = {name: self._default_value(name) for name in self.space.active(self._has_residual(suggested))}
        options = {**defaults, **self.space.fixed, **suggested}
        facts = (used or self._resolve(self.recipe, options)).facts()
        if facts["batch_size"] is None:
            del facts["batch_size"]  # ``_default_value`` knows the number of rows per step
        return {**options, **{name: facts[name] for name in options if name in facts}}

    def facts(self) -> dict[str, Any]:
        """The facts that all calls on one study must share for their values to be comparable, as JSON values."""
        settings, fixed = self.settings, self.space.fixed
        return {
            **self._resolve(self.recipe, fixed).facts(),
            **settings.translate_options,
            **fixed,
            **{name: _kind(distribution) for name, distribution in self.space.swept.items()},
            "metric": self.recipe.facts()["metric"] if callable(self.recipe.metric) else self.metric,
            "objectives": list(settings.objectives),
            **self.rows.fingerprint(),
            "calibration": self._calibration,
            "steps": self._sizes,
            "pipeline": _options_digest(self.settings.pipeline),
        }

    def _default_value(self, name: str) -> Any:
        if name == "batch_size":
            return self._training_recipe(self.space.fixed).rows_per_step(self.rows.train.size)
        return self.settings.translate_options[name] if name in TRANSLATE_OPTIONS else getattr(self.recipe, name)

    def _resolve(self, recipe: Recipe | str | None, options: dict[str, Any]) -> Recipe:
        return Recipe.resolve(recipe, self._overrides(options))

    def _training_recipe(self, options: dict[str, Any]) -> Recipe:
        """The recipe that ``fit`` trains a trial with: the joint one, where there is no residual model."""
        resolve = Recipe.resolve if self._has_residual(options) else Recipe.resolve_joint
        return resolve(self.settings.recipe, self._overrides(options))

    def _overrides(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of ``fit`` that a trial with these options sets."""
        of_recipe = {name: value for name, value in options.items() if name not in TRANSLATE_OPTIONS}
        return {**self.settings.recipe_options, **of_recipe}

    def _has_residual(self, suggested: dict[str, Any]) -> bool:
        options = {"residual": self.recipe.residual, **self.space.fixed, **suggested}
        return self.takes_residual and bool(options["residual"])

    def _sampler(self, trial: Trial, default: bool) -> BaseSampler:
        """The sampler of a trial; that of the default trial draws nothing."""
        # The seed depends on the trial, so that processes draw different values and a resumed sweep continues.
        seed = int(np.random.SeedSequence([self.settings.seed, trial.number]).generate_state(1)[0])
        sampler = self.settings.sampler or TPESampler(seed=seed)
        return PartialFixedSampler(self._default_values(), sampler) if default else sampler

    def _default_values(self) -> dict[str, Any]:
        """The options of the default trial that have an effect and are in the space."""
        values = {name: self._default_value(name) for name in self.space.active(self._has_residual({}))}
        return {name: value for name, value in values.items() if self.space.contains(name, value)}

    def _suggest(self, trial: Trial, default: bool) -> dict[str, Any]:
        """Suggest the options that have an effect; those of the default trial that the space contains."""
        if default:
            return {name: self._suggest_option(trial, name) for name in self._default_values()}
        suggested = {}
        if "residual" in self.space.swept:  # first, as the effect of other options depends on it
            suggested["residual"] = self._suggest_option(trial, "residual")
        skipped = {*suggested, *(RISKY if self.space.is_default and trial.number < CAUTIOUS_TRIALS else ())}
        names = [name for name in self.space.active(self._has_residual(suggested)) if name not in skipped]
        return suggested | {name: self._suggest_option(trial, name) for name in names}

    def _suggest_option(self, trial: Trial, name: str) -> Any:
        distribution: Any = self.space.swept[name]
        if isinstance(distribution, CategoricalDistribution):
            return trial.suggest_categorical(name, distribution.choices)
        suggest: Any = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
        return suggest(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


def _kind(distribution: Any) -> Any:
    """The choices of an option, or the kind of its range: Optuna lets only the bounds of ranges change."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    return "log range" if distribution.log else "range"


def _options_digest(pipeline: Any) -> str:
    """A hash of the options of all steps, as far as they are plain values; fitting again may change rounding."""
    options = pipeline.get_params() if hasattr(pipeline, "get_params") else {}
    plain = {
        name: value if isinstance(value, str | int | float | bool | None) else type(value).__name__
        for name, value in sorted(options.items())
    }
    return hashlib.sha256(repr(plain).encode()).hexdigest()
