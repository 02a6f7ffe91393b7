"""``windtunnel.sweep``: Optuna over the options of translation and fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.api.translate import check_options
from windtunnel.errors import BadInput, nearest
from windtunnel.sweeps.space import Space
from windtunnel.trainers.recipe import Recipe, reject

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from windtunnel.sweeps.result import SweepResult

OBJECTIVES = ("metric", "inference_cost")


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
    """Search the options of translation and fine-tuning for those with the best metric on the validation rows.

    Each trial translates the pipeline, fine-tunes it and is judged by its best epoch. The first one is the default
    recipe, which is never pruned, so that what comes out is never worse on the validation rows. They choose the result
    among many, so its value on them flatters: score it on rows that were in neither part.

    Rows are encoded once, and steps on the host asked once, for all trials.

    Parameters
    ----------
    pipeline : fitted pipeline
    train, valid : (X, y) or (X, y, weight)
        Raw rows and original targets.
    space : mapping, optional
        Name to what is tried: a list (one of its values), ``{"low": ..., "high": ..., "log": ..., "step": ...}`` or a
        distribution of Optuna's (a range), anything else (the same in every trial). Names are ``level``, ``start`` and
        ``temperature`` of ``translate``, and the fields of ``windtunnel.Recipe``. Options of the translation itself
        are suggested where a trial trains no residual model, and have no effect otherwise: sweep ``residual``, or fix it to
        False. None takes ``windtunnel.sweeps.space.DEFAULT`` as far as it has an effect on this pipeline; the epochs
        are the recipe's.
    trials : int
        How many trials the study shall have complete or pruned in all: those of earlier calls and of other processes on
        the same storage and study count.
    timeout : float, optional
        Seconds from the start of this call after which no further trial is begun, once one is complete; those that run
        are finished. The same call with the same storage goes on with the trials that are missing.
    storage : str or optuna.storages.BaseStorage, optional
        A URL such as "sqlite:///sweep.db"; None keeps the trials in memory. After a kill the same call goes on: the
        options that were being tried are tried again once their process has given no sign of life for a minute.
        Several processes may run the same call at once, and each returns when all trials are finished.
    study_name : str
        Of the study in the storage.
    metric : str, optional
        As in the recipe; None takes the recipe's, or the one that fits the task.
    objectives : ("metric",) or ("metric", "inference_cost")
        With the cost, the Pareto front of both is searched and nothing is pruned. The cost is a number of operations
        per row (see ``windtunnel.sweeps.cost.inference_cost``), as a measured time would differ from run to run.
    recipe : Recipe, str or None
        The options of fine-tuning that the space does not name, and the first trial's.
    level, start, temperature, untranslated
        Those of ``translate``, likewise.
    calibrate : rows, optional
        For ``translate``; None takes up to 5,000 of the training rows.
    folder : path, optional
        Gets ``best.windtunnel``, replaced when a trial beats it, and ``trials/<number>.windtunnel`` of every trial that
        no other beats. Without it the models are in memory only, and one that another process trained is trained again.
    seed : int
        Of the suggestions; training takes the recipe's. The same call gives the same trials where one process runs.
    jobs : int
        Processes to start; more than one need a storage that they share.
    pruner : optuna.pruners.BasePruner, optional
        None prunes a trial whose best epoch is worse than the median of the others at the same epoch, from the second
        epoch of the sixth trial on; ``optuna.pruners.NopPruner()`` prunes nothing.
    sampler : optuna.samplers.BaseSampler, optional
        None is Optuna's TPE.
    accelerator : str
        Lightning's.
    progress : bool
        Whether to write a line per trial to stderr.

    Returns
    -------
    SweepResult
        With ``net``, ``best_options``, ``best_value``, ``history`` and ``plots(folder)``.

    Raises
    ------
    BadInput
        For names and values that are not accepted, rows that cannot be used, a storage that cannot be opened or a study
        that was made for something else; and where Optuna is not installed.
    """
    reject(unknown, "sweep", [name for name in signature(sweep).parameters if name != "unknown"])
    if find_spec("optuna") is None:
        raise BadInput("a sweep needs optuna, which is not installed; pip install 'windtunnel[tune]'")
    check_options(level, start, temperature, untranslated)
    _check_numbers(trials=trials, jobs=jobs, seed=seed)
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise BadInput(f"timeout={timeout!r} must be a number of seconds above 0, or None")
    _check_objectives(objectives, pruner)
    if jobs > 1 and (not isinstance(storage, str) or ":memory:" in storage or storage == "sqlite://"):
        raise BadInput(
            f"jobs={jobs} with storage={storage!r}: processes share their trials by a URL such as sqlite:///sweep.db"
        )
    always = {} if metric is None else {"metric": metric}
    base = Recipe.resolve(recipe, always)
    given = None if space is None else Space.of(space)
    if given is not None:
        _check_space(given, base)

    from windtunnel.sweeps.rows import calibration_rows
    from windtunnel.sweeps.run import Settings, run

    return run(
        Settings(
            pipeline=pipeline,
            train=train,
            valid=valid,
            space=given,
            trials=trials,
            deadline=None if timeout is None else time.monotonic() + timeout,
            storage=storage,
            study_name=study_name,
            recipe=recipe,
            metric=always,
            translated={"level": level, "start": start, "temperature": temperature, "untranslated": untranslated},
            objectives=tuple(objectives),
            calibrate=calibration_rows(train, seed) if calibrate is None else calibrate,
            folder=None if folder is None else Path(folder),
            seed=seed,
            jobs=jobs,
            pruner=pruner,
            sampler=sampler,
            accelerator=accelerator,
            progress=progress,
        )
    )


def _check_numbers(**given: Any) -> None:
    least = {"trials": 1, "jobs": 1, "seed": 0}
    wrong = [
        f"{name}={value!r} must be a whole number from {least[name]}"
        for name, value in given.items()
        if not isinstance(value, int) or isinstance(value, bool) or value < least[name]
    ]
    if wrong:
        raise BadInput("; ".join(wrong))


def _check_objectives(objectives: Any, pruner: Any) -> None:
    known = {OBJECTIVES[:1], OBJECTIVES}
    if isinstance(objectives, str) or tuple(objectives) not in known:
        unknown = [name for name in ([objectives] if isinstance(objectives, str) else objectives)]
        hint = next((f" {name!r}: {nearest(str(name), OBJECTIVES)}" for name in unknown if name not in OBJECTIVES), "")
        raise BadInput(f"objectives={objectives!r};{hint} accepted are ('metric',) and ('metric', 'inference_cost')")
    if len(objectives) > 1 and pruner is not None:
        raise BadInput("pruner beside two objectives: trials of a front have no order to prune by; leave it out")


def _check_space(space: Space, recipe: Recipe) -> None:
    if not space.swept:
        raise BadInput("space fixes everything and leaves nothing to try; give at least one option a list or a range")
    if "loss" in space.swept and recipe.metric in (None, "loss"):
        raise BadInput("space: losses of different kinds cannot be compared; name a metric, such as metric='log_loss'")
