"""``sweep``: search the options of translation and fine-tuning with Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from windtunnel.api.load import load
from windtunnel.api.translate import translate
from windtunnel.errors import InvalidOption, check_installed
from windtunnel.program.translate_options import check_options
from windtunnel.sweeps.space import given_space
from windtunnel.trainers.recipe import Recipe, reject_unknown
from windtunnel.trainers.shown_options import shows_options_of

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from windtunnel.sweeps.result import SweepResult


@shows_options_of()
def sweep(
    pipeline: Any,
    train: Any,
    valid: Any,
    *,
    space: Mapping[str, Any] | None = None,
    trials: int = 50,
    timeout: float | None = None,
    storage: str | BaseStorage | None = None,
    study_name: str = "sweep",
    metric: str | None = None,
    objectives: Sequence[str] = ("metric",),
    recipe: Recipe | str | None = None,
    level: str | Mapping[str, str] = "L4",
    start: str = "warm",
    temperature: float | str = "auto",
    untranslated: str = "cache",
    calibrate: Any = None,
    folder: str | Path | None = None,
    seed: int = 0,
    jobs: int = 1,
    pruner: BasePruner | None = None,
    sampler: BaseSampler | None = None,
    accelerator: str = "auto",
    progress: bool = True,
    **unknown: Any,
) -> SweepResult:
    """Search the options of translation and fine-tuning for the best metric on the validation rows.

    Each trial translates and fine-tunes the pipeline; its value is the metric of the model that ``fit`` installs. The
    first trial is the default recipe and is never pruned, so the result is never worse on the validation rows. They
    choose among many trials, so the best value is optimistic: score the model on other rows. Rows are encoded once for
    all trials.

    Parameters
    ----------
    pipeline : fitted pipeline
    train, valid : (X, y) or (X, y, weight)
        Raw rows and original targets.
    space : mapping, optional
        Name to the values to try: a list (one of its values), ``{"low": ..., "high": ..., "log": ..., "step": ...}`` or
        a distribution of Optuna (a range), a single value (fixed). Names are ``level``, ``start`` and ``temperature``
        of ``translate``, and the fields of ``windtunnel.Recipe``. Options of the translation have an effect only in
        trials without a residual model: sweep ``residual``, or fix it to False. None takes
        ``windtunnel.sweeps.space.DEFAULT``, as far as it has an effect on this pipeline.
    trials : int
        Number of complete or pruned trials in the study, with those of earlier calls and of other processes. Each
        further process may add one trial that was already running.
    timeout : float, optional
        Seconds from the start of this call after which no trial begins, once one is complete. The same call with the
        same storage runs the missing trials.
    storage : str or optuna.storages.BaseStorage, optional
        A URL such as "sqlite:///sweep.db"; None keeps the trials in memory. After a kill, the same call continues; a
        trial whose process gives no heartbeat for a minute is retried. Several processes may run the same call at once.
    study_name : str
        Name of the study in the storage.
    metric : str, optional
        Name of the metric, as in the recipe; None takes the recipe's, or the one that fits the task.
    objectives : ("metric",) or ("metric", "inference_cost")
        With the cost, Optuna searches the Pareto front of both and prunes nothing. The cost is the number of operations
        per row (``windtunnel.sweeps.cost.inference_cost``).
    recipe : Recipe, str or None
        Options of fine-tuning that the space does not name, and those of the default trial.
    level, start, temperature, untranslated
        Options of ``translate`` that the space does not name, and those of the default trial.
    calibrate : rows, optional
        Calibration rows for ``translate``; None draws up to 5,000 training rows.
    folder : path, optional
        Gets ``best.windtunnel``, and ``trials/<number>.windtunnel`` of every trial of the Pareto front. Without it the
        models are temporary, and the best one is trained again if another process trained it.
    seed : int
        Seed of the suggestions; training uses the recipe's. One process gets the same trials in each call.
    jobs : int
        Number of worker processes; more than 1 need a storage URL.
    pruner : optuna.pruners.BasePruner, optional
        None is ``MedianPruner(n_warmup_steps=2)``; ``NopPruner()`` prunes nothing.
    sampler : optuna.samplers.BaseSampler, optional
        None is Optuna's ``TPESampler``.
    accelerator : str
        Argument of Lightning's Trainer.
    progress : bool
        Whether Optuna logs a line per trial to stderr.

    Returns
    -------
    SweepResult
        With ``net``, ``best_options``, ``best_value``, ``history`` and ``plots(folder)``.

    Raises
    ------
    InvalidOption
        For names and values that are not accepted, a storage that cannot be opened; if Optuna is not installed.
    BadInput
        For rows that cannot be used, and a study that was made for other rows or options.
    """
    reject_unknown(unknown, "sweep", [name for name in signature(sweep).parameters if name != "unknown"])
    check_installed("a sweep", "tune", "optuna")
    translate_options: dict[str, Any] = {"level": level, "start": start, "temperature": temperature}
    translate_options["untranslated"] = untranslated
    check_options(**translate_options)
    given = Recipe.resolve(recipe, {})
    if given.joint and given.residual:
        raise InvalidOption(
            "recipe: a trial trains either the translation or a residual model, not both; leave joint=True out, and "
            "sweep residual: [true, false]"
        )
    recipe_options: dict[str, Any] = {"joint": False} | ({} if metric is None else {"metric": metric})
    base = Recipe.resolve(recipe, recipe_options)
    parsed = None if space is None else given_space(space)
    if parsed is not None and "loss" in parsed.swept and base.metric in (None, "loss"):
        raise InvalidOption(
            "space: losses of different kinds cannot be compared; name a metric, such as metric='log_loss'"
        )
    from windtunnel.sweeps.run import run
    from windtunnel.sweeps.settings import Settings

    try:
        settings = Settings(
            translate=translate,
            load=load,
            pipeline=pipeline,
            train=train,
            valid=valid,
            calibrate=calibrate,
            space=parsed,
            trials=trials,
            timeout=timeout,
            storage=storage,
            study_name=study_name,
            objectives=objectives,
            seed=seed,
            jobs=jobs,
            recipe=recipe,
            recipe_options=recipe_options,
            translate_options=translate_options,
            folder=folder,
            pruner=pruner,
            sampler=sampler,
            accelerator=accelerator,
            progress=progress,
        )
    except ValidationError as error:
        raise InvalidOption("; ".join(map(_text_of, error.errors()))) from error
    return run(settings)


def _text_of(error: ErrorDetails) -> str:
    """An error of pydantic in a line; one of several settings together names them in its message."""
    message = error["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, error['loc']))}={error['input']!r}: {message}" if error["loc"] else message
