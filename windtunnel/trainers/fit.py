"""``fit``: the checks and options of fine-tuning, before anything slow is imported."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import torch

from windtunnel.errors import InvalidOption
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.recipe_options import RecipeOptions
from windtunnel.trainers.shown_options import shows_options_of

if TYPE_CHECKING:
    from pytorch_lightning import Callback, Trainer
    from pytorch_lightning.loggers import Logger

Net = TypeVar("Net", bound=TranslatedPipeline)


@shows_options_of(Recipe)
def fit(
    net: Net,
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
    callbacks: Callback | Sequence[Callback] | None = None,
    logger: Logger | Sequence[Logger] | bool | None = None,
    trainer: Trainer | None = None,
    progress: bool = True,
    **options: Unpack[RecipeOptions],
) -> Net:
    """Fine-tune: by default a residual model on top of the pipeline.

    Epoch 0 is the model before the first step. Of the candidates that pass the significance test, ``fit`` installs
    the one with the best metric on the validation rows, or leaves the pipeline as it is. ``history`` lists the
    candidates. An error or an interrupt during training installs the best model so far, with its history, and is
    raised again.

    Parameters
    ----------
    net : Translation
        Changed in place; ``Translation.fit`` is this function.
    train, valid : loader, (X, y) or (X, y, weight)
        A loader yields ``(rows, target)`` or ``(rows, target, weight)``, rows raw or encoded. Without ``valid``,
        fit holds the recipe's ``validation_fraction`` of the training rows out. The rows of a loader are read
        and encoded once and stay in memory if they take at most ``loader_memory``; batch size and order are then
        the recipe's, as for ``(X, y)``. A ``windtunnel.loader`` with a ``batch_size`` keeps that. A larger loader,
        and one with a custom loss function, is read and encoded anew in each epoch, in its own batches; without
        ``valid`` its training rows serve as validation rows.
    recipe : Recipe, str or None
        The options, or their name: "default", "joint" or "paper".
    resume_from : path, optional
        A checkpoint, or the ``checkpoint_dir`` of an earlier run over the same rows and options. Training
        continues after its last checkpoint and, on a CPU, ends with the same bits.
    checkpoint_dir : path, optional
        Folder for ``last.ckpt``, written after each epoch.
    checkpoint_every : int, optional
        Steps between checkpoints within an epoch. A resumed run continues with the very next row, for which rows
        must be in memory or come from ``windtunnel.stream``.
    log_dir : path, optional
        Folder for ``version_<n>/metrics.csv``, and for TensorBoard's events if tensorboard is installed.
    accelerator, devices, precision, callbacks, logger
        Arguments of Lightning's Trainer; ``logger`` adds to ``log_dir``. A callback sees the validation of epoch 0
        only if it has an attribute ``sees_start = True``. The accelerator "auto" is never an Apple GPU, which has no
        float64. Processes that torchrun started train together, whatever ``devices`` says.
    trainer : pytorch_lightning.Trainer, optional
        A whole Trainer, with its own epochs, devices, precision, clipping and loggers.
    progress : bool
        Whether to show a progress bar, and to log the result in a line.
    **options
        Fields of ``windtunnel.Recipe``, which describes them. They replace those of ``recipe``.

    Returns
    -------
    Translation
        The same one, with the history of this call in ``history``.

    Raises
    ------
    BadInput
        For rows, targets or loaders that fit cannot use.
    InvalidOption
        For an option that does not exist or has a value that is not accepted.
    BadFile
        For a checkpoint that is damaged or belongs to another translation.
    """
    began = time.perf_counter()
    resolved = Recipe.resolve(recipe, dict(options))
    joint_recipe = Recipe.resolve_joint(recipe, dict(options))
    net.head.check_has_target()
    if net.fixed:
        raise InvalidOption('this translation runs on a backend that is fixed; compile with backend="torch" to fit.')

    from windtunnel.progress import log, show_progress
    from windtunnel.trainers.finetune import finetune
    from windtunnel.trainers.loop.checkpoints import CheckpointOptions
    from windtunnel.trainers.loop.trainer_options import TrainerOptions

    callback_list = () if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else (callbacks,)
    lightning = TrainerOptions(accelerator, devices, precision, callback_list, log_dir, logger, trainer, progress)
    lightning.check({**(recipe.changed() if isinstance(recipe, Recipe) else {}), **options})
    directory, resumed = (None if path is None else Path(path) for path in (checkpoint_dir, resume_from))
    checkpoints = CheckpointOptions(directory, checkpoint_every, resumed)
    checkpoints.check(trainer)

    categories_before, history_before = [replace(category) for category in net.encoder.categories], net.history
    try:
        # The caller may have switched gradients off.
        with show_progress(progress), net.in_torch(), torch.inference_mode(False), torch.enable_grad():
            finetune(net, train, valid, resolved, joint_recipe, lightning, checkpoints, began)
    except BaseException:
        # Encoding training rows made the encoder accept categories that the source rejects. Undo that if nothing was
        # installed.
        if net.history is history_before:
            net.replace_categories(categories_before)
        raise
    if progress and net.history is not None:
        log(f"fit: {net.history.summary}")
    return net
