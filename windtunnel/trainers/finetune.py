"""Fine-tuning from end to end: judge, train a residual model or the translation itself, keep the best, hand back."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn

from windtunnel.errors import BadInput
from windtunnel.modules.tables.large_tables import large_tables
from windtunnel.objectives.losses import pick
from windtunnel.objectives.metrics import Metric
from windtunnel.program.history import Epoch, History
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.order import order_of, resumable
from windtunnel.trainers.loop.callbacks import Average, BestCheckpoint, LocalCheckpointIO
from windtunnel.trainers.loop.module import DataModule, FineTuning, Loaders
from windtunnel.trainers.loop.processes import launched, quieten
from windtunnel.trainers.loop.quiet import quiet
from windtunnel.trainers.loop.resuming import check_order, check_rows, found
from windtunnel.trainers.loop.termination import Termination
from windtunnel.trainers.optimizers.large_tables import ADAM, VisitedRows, gradients_of_rows
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.residual import Stage, grow, or_source
from windtunnel.trainers.residual.significance import metric

RANKS = (
    "the source ranks rows within their groups (queries), of which fit is not told: it fits the relevance of each row "
    "by the squared error, after which ranks may be worse, whatever net.history says. To tune ranks give loss= a "
    "function of your own, residual=False, and loaders for training and validation whose batches are whole groups. "
    "Compare NDCG before and after; loss='squared' is this fit without the warning."
)


def finetune(
    net: TranslatedPipeline,
    train: Any,
    valid: Any = None,
    *,
    recipe: Recipe | str | None = None,
    resume_from: str | Path | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    log_dir: str | Path | None = None,
    accelerator: str = "auto",
    devices: Any = 1,
    precision: Any = None,
    callbacks: pl.Callback | Sequence[pl.Callback] = (),
    logger: Logger | Sequence[Logger] | bool | None = None,
    trainer: pl.Trainer | None = None,
    progress: bool = True,
    **overrides: Any,
) -> History:
    """Fine-tune a translation, and leave it with the weights of the best epoch, in eval mode.

    By default a residual model is trained beside the pipeline, whose own steps stay as the source has them; with
    ``residual=False``, as in the recipes "joint" and "paper", everything that is trainable in the translation is.

    Epoch 0 is what there is before the first step: the translation as it came or, with a residual model, the source's exact
    trees, with gates and combinations of columns where these have shown on the validation rows to help. What is handed
    back is the best on the rows judged by: the translation as it came, unchanged, the source's exact trees, these with
    gates, or with the residual model of the best epoch.
    An error or an interrupt while training leaves the best weights so far and is raised again.

    Parameters
    ----------
    net : TranslatedPipeline
        Changed in place.
    train, valid : loader, (X, y) or (X, y, weight)
        A loader yields ``(rows, target)`` or ``(rows, target, weight)``. Without ``valid`` the recipe's
        ``validation_fraction`` of the training rows is held out; a loader of raw rows cannot be split, so there the
        epochs are judged on the training rows.
    recipe : Recipe, str or None
        The options; "default", "joint" or "paper" by name.
    resume_from : path, optional
        A checkpoint, or the ``checkpoint_dir`` of an earlier run over the same rows and options: training goes on after
        its last checkpoint and on a CPU ends with the same bits.
    checkpoint_dir : path, optional
        Where ``last.ckpt`` is written after each epoch.
    checkpoint_every : int, optional
        Steps after which it is written within an epoch too. A resumed run goes on with the very next row, for which
        rows have to come from ``(X, y)``, ``windtunnel.loader`` or ``windtunnel.stream``.
    log_dir : path, optional
        Where ``version_<n>/metrics.csv`` goes, and TensorBoard's events where tensorboard is installed.
    accelerator, devices, precision, callbacks, logger
        For Lightning's Trainer; ``logger`` goes with, or instead of, ``log_dir``. Callbacks do not see epoch 0 judged,
        but for those with an attribute ``sees_start = True``. Where torchrun started several
        processes, they train together, and ``devices`` says nothing.
    trainer : pytorch_lightning.Trainer, optional
        A whole Trainer, whose epochs, devices, precision, clipping and loggers then hold.
    progress : bool
        Whether to show a progress bar.
    **overrides
        Options of the recipe by name, such as ``epochs=5``.

    Returns
    -------
    History

    Raises
    ------
    BadInput
        For rows, targets, loaders or options that cannot be used, such as a loader that another translation has encoded
        otherwise, or rows that are not those of the checkpoint.
    BadFile
        For a checkpoint that is damaged or belongs to another translation.
    """
    started = time.perf_counter()
    options = Recipe.resolve(recipe, overrides)
    if options.loss is None and net.head.loss == "relevance":
        warnings.warn(RANKS, UserWarning, stacklevel=3)
    _check_task(net, options)
    callbacks = [callbacks] if isinstance(callbacks, pl.Callback) else callbacks
    hardware = {"accelerator": accelerator, "devices": devices, "precision": precision}
    given = {**hardware, "callbacks": callbacks, "log_dir": log_dir, "logger": logger, "clip": options.clip}
    if trainer is not None:
        _check_trainer(trainer, {**given, "epochs": overrides.get("epochs")})
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    _check_every(checkpoint_every, folder, trainer)

    def stage(net: Any, data: Loaders, recipe: Recipe, finish: Callable[[BestCheckpoint], None]) -> BestCheckpoint:
        with quiet():
            own = trainer or _trainer(recipe, hardware | launched(net, devices), callbacks, log_dir, logger, progress)
        checkpoint = None if resume_from is None else Path(resume_from)
        return _stage(net, data, recipe, own, folder, checkpoint_every, checkpoint, finish)

    net.drop_trained_exact_modules()  # a loop of one's own may have moved the others
    data = DataModule(net, train, valid, options)
    if checkpoint_every is not None and resumable(data.train) is None:
        raise BadInput(
            f"checkpoint_every={checkpoint_every} needs rows that can be read on from the middle of an epoch: give "
            "(X, y), windtunnel.loader(net, X, y) or windtunnel.stream(net, paths, target=...)"
        )
    keeper = grow(net, data, options, stage) if options.residual else None
    if keeper is None:
        if options.residual and net.takes_residual_model() and not _learns(net):
            return _as_it_came(net, data, options, started)
        default = recipe in (None, "default")
        joint = Recipe.resolve("joint" if default else options, {**(overrides if default else {}), "residual": False})
        finish = or_source(net, data, joint) if default and options.residual else lambda keeper: None
        keeper = _joint(net, data, joint, stage, finish)
    return History(
        epochs=keeper.epochs,
        metric=keeper.judge.name,
        greater_is_better=keeper.judge.greater_is_better,
        start=keeper.start,
        best=keeper.best_metric,
        best_epoch=keeper.best_epoch,
        validated_on=data.validated_on,
        seconds=time.perf_counter() - started,
    )


def _check_task(net: TranslatedPipeline, options: Recipe) -> None:
    """Reject what answers with the probabilities of classes, and does not tell which targets these are."""
    if options.loss is None and net.head.task == "regression" and net.head.loss == "softmax":
        source = next(origin.estimator for origin in reversed(net.origins) if origin.estimator)
        raise BadInput(
            f"the source is a {source} of several classes, whose answers are probabilities and whose labels are not "
            "told. To fine-tune it, fit a classifier (LGBMClassifier, XGBClassifier) and translate that; or give loss= "
            "a function of your own."
        )


def _learns(net: TranslatedPipeline) -> bool:
    return any(parameter.requires_grad for parameter in net.parameters())


def _as_it_came(net: TranslatedPipeline, data: DataModule, options: Recipe, started: float) -> History:
    """The history of an exact translation beside which no column has anything to say."""
    loss, judge = pick(options.loss, net.head), Metric.of(options, net)
    scored = [((net.run_in_slices(net.program, rows),), *rest) for rows, *rest in data.valid]
    value, found = (metric(one, loss, lambda scores: scores, scored) for one in (Metric("loss", net.head), judge))
    seconds = time.perf_counter() - started
    return History(
        epochs=[Epoch(0, None, value, found, 0.0, seconds)],
        metric=judge.name,
        greater_is_better=judge.greater_is_better,
        start=found,
        best=found,
        best_epoch=0,
        validated_on=data.validated_on,
        seconds=seconds,
    )


def _joint(
    net: TranslatedPipeline, data: DataModule, options: Recipe, stage: Stage, finish: Callable[[BestCheckpoint], None]
) -> BestCheckpoint:
    """Train the translation itself."""
    if not _learns(net) and getattr(net, "history", None) is not None:
        raise BadInput(
            "nothing in this translation is trainable: after the fit before, it holds the steps of the source as they "
            "are, trees exact and frozen. Translate the source anew, or load a file that was saved before that fit."
        )
    if not _learns(net):
        raise BadInput(
            "nothing in this translation is trainable: its steps are frozen or have no parameters; translate with "
            'level="L1" to "L4", or set requires_grad on what shall move'
        )
    net.set_exact_modules({})  # what training moves is not what the source has
    if net.head.link == "probabilities":  # nor within 0 and 1
        net.replace_head(replace(net.head, link="shares"))
    return stage(net, data, options, finish)


def _stage(
    net: Any,
    data: Loaders,
    options: Recipe,
    trainer: pl.Trainer,
    checkpoint_dir: Path | None,
    checkpoint_every: int | None,
    resume_from: Path | None,
    finish: Callable[[BestCheckpoint], None],
) -> BestCheckpoint:
    """Train a net on ready batches, and leave it with its best weights."""
    for parameter in net.parameters():
        # Of what is empty there is no gradient, which other processes would wait for.
        parameter.requires_grad_(parameter.requires_grad and parameter.numel() > 0)
    tables = _tables(net, options, trainer)
    if tables:
        trainer.strategy.checkpoint_io = LocalCheckpointIO()
    module = FineTuning(net, options, tables)
    checkpoint = None
    if resume_from is not None:
        checkpoint, kept = found(resume_from, module)
        check_rows(checkpoint, kept, data)
        check_order(checkpoint, kept, order_of(data.train, trainer.world_size))
    with quiet():
        _settle(data, trainer.strategy.root_device)
        keeper = BestCheckpoint(
            net,
            module.judge,
            options.patience,
            checkpoint_dir,
            by_loss=options.residual,
            every=checkpoint_every,
            tables=tables,
        )
        own = [keeper, Termination()] + ([] if options.ema is None else [Average(net, options.ema, tables)])
        try:
            with _training(net, options.dropout, keeper), gradients_of_rows(net, tables), _attached(trainer, own):
                _fit(trainer, module, data, keeper, checkpoint)
        finally:
            for name, met in tables.items():
                net.initial_weights.moved(
                    name.removeprefix("program."), met.number[: met.count], met.start[: met.count]
                )
            finish(keeper)
    return keeper


def _tables(net: Any, options: Recipe, trainer: pl.Trainer) -> dict[str, VisitedRows]:
    """The large tables, where they can be trained by rows.

    Momentum and clipping need the whole gradient, and processes exchange no sparse ones.
    """
    large = large_tables(net)
    clipped = options.clip is not None or trainer.gradient_clip_val is not None
    if options.optimizer in ADAM and not clipped and trainer.world_size == 1:
        return {name: VisitedRows(module.rows, options.ema) for name, module in large.items()}
    for name in large:
        net.initial_weights.copy(name.removeprefix("program."))
    return {}


def _fit(
    trainer: pl.Trainer, module: FineTuning, data: Loaders, keeper: BestCheckpoint, checkpoint: Path | None
) -> None:
    on_interrupt = signal.getsignal(signal.SIGINT)
    with isolate_rng(), warnings.catch_warnings():
        # It cannot know that the keeper takes the rows to their place.
        warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that ended before the epoch ended")
        quieten()
        torch.manual_seed(module.recipe.seed)
        try:
            if checkpoint is None:
                with _alone(trainer, keeper):
                    trainer.validate(module, datamodule=data, verbose=False)
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        except SystemExit:
            if keeper.interrupt is None:
                raise
            # Lightning answers an interrupt by ignoring further ones and leaving the interpreter; the caller decides.
            signal.signal(signal.SIGINT, on_interrupt)
            raise _noted(keeper.interrupt, keeper) from None
        except BaseException as error:
            _noted(error, keeper)
            raise


def _noted(error: BaseException, keeper: BestCheckpoint) -> BaseException:
    if keeper.epochs:
        where = "" if keeper.directory is None else f"; resume_from={str(keeper.directory)!r} goes on from there"
        error.add_note(
            f"{keeper.judged} epochs were finished; the translation holds the weights of the best one, "
            f"epoch {keeper.best_epoch}{where}"
        )
    return error


@contextlib.contextmanager
def _training(net: nn.Module, dropout: float, keeper: BestCheckpoint) -> Iterator[None]:
    """Training mode with dropout; whatever happens, back to the device it came from, the best weights and eval mode."""
    device = next(net.parameters()).device
    layers = [module for module in net.modules() if isinstance(getattr(module, "dropout", None), float)]
    before = [layer.dropout for layer in layers]
    try:
        for layer in layers:
            layer.dropout = dropout  # type: ignore[assignment]
        net.train()
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.dropout = value
        keeper.restore()
        net.zero_grad(set_to_none=True)
        net.to(device).eval()


@contextlib.contextmanager
def _attached(trainer: Any, own: Sequence[pl.Callback]) -> Iterator[None]:
    """Our callbacks in front: the best weights are copied before any other callback changes them."""
    theirs = trainer.callbacks
    trainer.callbacks = [*own, *theirs]
    try:
        yield
    finally:
        trainer.callbacks = theirs


@contextlib.contextmanager
def _alone(trainer: Any, keeper: BestCheckpoint) -> Iterator[None]:
    """Judging epoch 0 is no epoch of training: callbacks that count those would have two by the number 0."""

    def sees(one: pl.Callback) -> bool:
        return one is keeper or isinstance(one, Termination | ProgressBar) or getattr(one, "sees_start", False)

    every = trainer.callbacks
    trainer.callbacks = [one for one in every if sees(one)]
    try:
        yield
    finally:
        trainer.callbacks = every


def _trainer(
    options: Recipe,
    hardware: dict[str, Any],
    callbacks: Sequence[pl.Callback],
    log_dir: Any,
    logger: Any,
    progress: bool,
) -> pl.Trainer:
    if (precision := hardware["precision"]) not in _PRECISIONS:
        raise BadInput(
            f"precision={precision!r} would round the translation itself, thresholds and tables included; "
            f"choose from {', '.join(map(repr, _PRECISIONS))}"
        )
    loggers = _loggers(log_dir, logger)
    return pl.Trainer(
        **hardware,
        max_epochs=options.epochs,
        gradient_clip_val=options.clip,
        callbacks=list(callbacks),
        logger=loggers or False,
        # Nothing is logged per step, and a longer interval than an epoch would be warned about.
        log_every_n_steps=1 if loggers else None,
        enable_progress_bar=progress,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_model_summary=False,
        num_sanity_val_steps=0,
        # Modules may keep what they computed while validating and use it in training.
        inference_mode=False,
    )


def _loggers(log_dir: Any, logger: Any) -> list[Logger]:
    if logger is True or isinstance(logger, str):
        raise BadInput(
            f"logger={logger!r}: give one of Lightning's loggers, or log_dir= for those of CSV and TensorBoard"
        )
    given = [logger] if isinstance(logger, Logger) else list(logger or [])
    if log_dir is None:
        return given
    # CSV first: it wants the folder of the version empty.
    own: list[Logger] = [CSVLogger(log_dir, name="")]
    if importlib.util.find_spec("tensorboard") is not None:
        own.append(TensorBoardLogger(log_dir, name="", version=own[0].version, default_hp_metric=False))
    return [*own, *given]


def _check_every(steps: int | None, folder: Path | None, trainer: pl.Trainer | None) -> None:
    if steps is None:
        return
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise BadInput(f"checkpoint_every={steps!r} must be a whole number of steps from 1, or None")
    if folder is None:
        raise BadInput(f"checkpoint_every={steps} needs a checkpoint_dir to write to")
    if trainer is not None and steps % trainer.accumulate_grad_batches:
        raise BadInput(
            f"checkpoint_every={steps} would lose gradients that the Trainer still accumulates, over "
            f"{trainer.accumulate_grad_batches} batches; give a multiple of that"
        )


def _check_trainer(trainer: pl.Trainer, given: dict[str, Any]) -> None:
    defaults = {"accelerator": "auto", "devices": 1}
    clash = [name for name, value in given.items() if value not in (defaults.get(name), ())]
    if clash:
        raise BadInput(
            f"{', '.join(clash)} beside trainer=...: the Trainer has its own; set them there, or leave it out"
        )
    if trainer.barebones:
        raise BadInput("a Trainer with barebones=True logs nothing, so that no epoch can be judged; leave it out")
    as_wanted = {"check_val_every_n_epoch": 1, "val_check_interval": 1.0, "limit_val_batches": 1.0}
    if odd := [f"{name} at {one}" for name, one in as_wanted.items() if not _is(getattr(trainer, name), one)]:
        raise BadInput(
            "the Trainer must validate after every epoch, once and on all validation rows, as the best one is kept: "
            f"leave {' and '.join(odd)}, and fast_dev_run and overfit_batches out; to judge by fewer rows, give fewer "
            "as valid"
        )
    if trainer.max_steps != -1:
        raise BadInput(
            f"a Trainer with max_steps={trainer.max_steps} may stop within an epoch, which is then not judged; give "
            "max_epochs, with limit_train_batches for shorter ones"
        )
    if trainer.max_epochs is not None and 0 < trainer.max_epochs <= trainer.current_epoch:
        raise BadInput(
            f"this Trainer has trained its {trainer.max_epochs} epochs before, and would train none; give a new one"
        )


def _is(value: Any, wanted: float) -> bool:
    """Whether an option of the Trainer is a number of that kind: 1 is one batch, and 1.0 all of them."""
    return type(value) is type(wanted) and value == wanted


def _settle(data: Loaders, device: torch.device) -> None:
    """Move the rows to a GPU where they take a small part of it: slicing there beats a copy per step."""
    if device.type != "cuda":
        return
    if data.nbytes < torch.cuda.mem_get_info(device)[0] / 4:
        data.to(device)
    else:
        data.pin()


_PRECISIONS = (None, 32, "32", "32-true", "16-mixed", "bf16-mixed")
