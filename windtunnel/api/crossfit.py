"""``crossfit``: members fitted on all but one fold each, and a residual model on top of their out-of-fold scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import FixedThresholdClassifier, GroupShuffleSplit, TunedThresholdClassifierCV
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from windtunnel.api.compile import exact_translation
from windtunnel.api.translation import Translation
from windtunnel.compiler.strategies import use_fastest_forms
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator, warn_caller
from windtunnel.estimators.cross_fitted import CrossFittedClassifier, CrossFittedRegressor, check_column
from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.log_pool import LogPool
from windtunnel.modules.outputs.inverse_links import UNLINKED, unlinked
from windtunnel.objectives.losses import LOSSES, RAW_SCORE_LOSSES, Loss, loss_for
from windtunnel.program.head import Head
from windtunnel.trainers.data.class_weights import weights_of_last_fit
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.fit import fit
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.shown_options import shows_options_of
from windtunnel.trainers.significance.group_losses import GroupLosses, group_losses

ARGUMENTS_OF_FIT = {*signature(fit).parameters} - {field.name for field in fields(Recipe)}
"""The arguments of ``fit`` that are not options of a recipe."""
OPTIONS_OF_MEMBERS_ONLY = ("checkpoint_dir", "checkpoint_every", "resume_from", "trainer")
"""Options of ``fit`` for the members alone: a second fit would write into the same folder; a Trainer trains once."""
MANY_ROWS = 10_000
"""With this number of training rows or more, a member loses little by missing a fold."""


@shows_options_of(fit)
def crossfit(
    pipeline: Any,
    X: Any,
    y: Any,
    weight: Any = None,
    *,
    valid: Any = None,
    folds: int = 5,
    groups: Any = None,
    time: Any = None,
    recipe: Recipe | str | None = None,
    seed: int = 0,
    **options: Any,
) -> Translation:
    """Fit a pipeline once per fold, on the rows of all other folds, and train a residual model on the members' mean.

    The residual model learns from out-of-fold scores: each row is scored by the member that was not fitted on it, as
    new rows will be. In-sample scores are too optimistic to learn from. Fitting and scoring take ``folds`` times as
    long.

    Parameters
    ----------
    pipeline : estimator or Pipeline
        Cloned. If it is fitted and stopped early, members get its number of trees. A fitted pipeline is also compared
        with the members, if ``valid`` is a tuple of arrays. If its validation loss is lower (from 10,000 training rows
        on, significantly lower), it is returned with a residual model and a warning. Members have no decision
        threshold: they predict the most probable label.
    X : rows
        DataFrame, array, or what the pipeline takes.
    y : array-like
        Original targets.
    weight : array-like, optional
        Row weights, from 0, for the members and the residual model.
    valid : loader, (X, y) or (X, y, weight), optional
        Validation rows, on which ``fit`` selects and tests the residual model. By default the recipe's
        ``validation_fraction`` of the training rows, with their out-of-fold scores: of the groups if there are
        ``groups``, the latest rows if there are times.
    folds : int
        Number of members, 2 or more.
    groups : array-like, optional
        A group per row, such as the customer or the patient; all rows of a group are in one fold.
    time : array-like, optional
        A time per row; each fold is a block of rows that are neighbours in time, for data that drift.
    recipe : Recipe, str or None
        The options of fine-tuning.
    seed : int
        Seed of the folds, and of fine-tuning unless the recipe has one.
    accelerator, devices, precision, callbacks, logger, log_dir, progress
        Those of ``Translation.fit``.
    resume_from, checkpoint_dir, checkpoint_every, trainer
        Those of ``Translation.fit``, for the members' residual model; that of a fitted ``pipeline`` is trained for as
        many epochs as the Trainer's.

    Returns
    -------
    Translation
        The exact translation of a ``CrossFittedClassifier`` or ``CrossFittedRegressor``, with the residual model if it
        improves the metric. Or the translation of a fitted ``pipeline`` that has the lower validation loss; it has no
        history if it takes no residual model.

    Raises
    ------
    BadInput
        For folds that cannot be made, or rows and targets that cannot be used.
    InvalidOption
        For an option that is unknown, or trains the members themselves.
    UnsupportedEstimator
        For a pipeline with a step that has no translation, and for a classifier without ``predict_proba``.

    Examples
    --------
    >>> net = windtunnel.crossfit(pipeline, X, y, folds=5, time=X["day"])  # doctest: +SKIP
    """
    if "sample_weight" in options:
        raise InvalidOption("crossfit takes the weights of rows as weight=")
    if isinstance(pipeline, Translation):
        raise UnsupportedEstimator("crossfit fits copies of a pipeline; give the pipeline, not its translation")
    overrides = {name: options.pop(name) for name in [*options] if name not in ARGUMENTS_OF_FIT}
    if recipe is None or isinstance(recipe, str):
        overrides = {"seed": seed, **overrides}
    resolved = Recipe.resolve(recipe, overrides)
    if resolved.joint or not resolved.residual:
        raise InvalidOption(
            "crossfit trains a residual model on top of its members, and not the members themselves; leave out joint=, "
            "residual= and recipe='joint' or 'paper', or translate a fitted pipeline and fit it jointly."
        )
    if isinstance(X, tuple) or isinstance(weight, tuple):
        raise BadInput("crossfit takes rows and target as two arguments, crossfit(pipeline, X, y), and valid=(X, y)")
    family = CrossFittedClassifier if is_classifier(pipeline) else CrossFittedRegressor
    members = family(pipeline, folds=folds, random_state=seed).fit(X, y, weight, groups=groups, time=time)
    net = _fast_translation(members)
    train = loader(net, X, y, weight, seed=resolved.seed)
    scores = _raw_scores(net.head, members.out_of_fold(X))
    held_out = None if valid is not None else _held_out(train.size, groups, time, weight, resolved)
    train = replace(
        train, batch_size=resolved.rows_per_step(train.size), is_batched=True, scores=scores, held_out=held_out
    )
    net.fit(train, valid, recipe=resolved, **options)
    selected = net
    if isinstance(valid, tuple) and _is_fitted(pipeline):
        selected = _fit_pipeline_and_select(net, _fast_translation(pipeline), (X, y, weight), valid, resolved, options)
    if selected is net:
        _warn_of_threshold(pipeline)
    return selected


def _warn_of_threshold(pipeline: Any) -> None:
    last = pipeline
    while isinstance(last, Pipeline | BaseSearchCV):
        last = last.estimator if isinstance(last, BaseSearchCV) else last.steps[-1][1]
    wrapped = isinstance(last, FixedThresholdClassifier | TunedThresholdClassifierCV)
    if wrapped or _has_catboost_threshold(last):
        warn_caller(
            f"the members predict the most probable label, whatever the threshold of {type(last).__name__}. Give "
            "crossfit the classifier without its threshold, and wrap the result: "
            "FixedThresholdClassifier(FrozenEstimator(net), threshold=...).fit(X, y).",
        )


def _has_catboost_threshold(last: Any) -> bool:
    """Whether a fitted ``CatBoostClassifier`` has another threshold than 0.5."""
    threshold = getattr(last, "get_probability_threshold", None)
    return threshold is not None and _is_fitted(last) and threshold() != 0.5


def _held_out(rows: int, groups: Any, time: Any, weight: Any, recipe: Recipe) -> Tensor | None:
    """A mask of the rows to validate on, bool ``[rows]``: whole groups, or the latest rows; None without either.

    Rows of weight 0 do not count.
    """
    groups, time = check_column("groups", groups), check_column("time", time)
    held_out = np.zeros(rows, dtype=bool)
    counted = np.arange(rows) if weight is None else np.flatnonzero(np.asarray(weight) > 0)
    if groups is not None:
        split = GroupShuffleSplit(1, test_size=recipe.validation_fraction, random_state=recipe.seed)
        held_out[counted[next(split.split(counted, groups=groups[counted]))[1]]] = True
    elif time is not None:
        latest = max(round(recipe.validation_fraction * len(counted)), 1)
        held_out[counted[np.argsort(time[counted], kind="stable")[-latest:]]] = True
    else:
        return None
    return torch.from_numpy(held_out)


def _fast_translation(source: Any) -> Translation:
    """The exact translation, with the fastest strategy for its trees."""
    net = exact_translation(source, torch.float64)
    use_fastest_forms(net)
    return net


def _fit_pipeline_and_select(
    members: Translation, source: Translation, train: Any, valid: Any, recipe: Recipe, options: dict[str, Any]
) -> Translation:
    """Fit the translation of the fitted pipeline too; returns it if its validation loss is lower than the members'.

    With ``MANY_ROWS`` or more it must be significantly lower, because the pipeline may have stopped early on these
    rows, which makes its loss optimistic.
    """
    trainer = options.get("trainer")
    options = {name: value for name, value in options.items() if name not in OPTIONS_OF_MEMBERS_ONLY}
    if trainer is not None and (trainer.max_epochs or -1) > 0:
        options["epochs"] = trainer.max_epochs
    if takes_residual := source.takes_residual_model():
        source.fit(train, valid, recipe=recipe, **options)
    of_members, of_source = _validation_losses(members, source, recipe, valid)
    must_be_significant = len(train[1]) >= MANY_ROWS
    worse = of_members.mean > of_source.mean
    if must_be_significant:
        worse = (of_members - of_source).exceeds_standard_error()
    if not worse:
        return members
    warn_caller(
        f"on the validation rows the members (mean loss {of_members.mean:.4g}) are worse than the "
        f"fitted pipeline ({of_source.mean:.4g}), which is returned{' with a residual model' * takes_residual}. "
        "Members miss a fold of rows each: give more folds, or more rows.",
    )
    return source


def _validation_losses(
    members: Translation, source: Translation, recipe: Recipe, valid: Any
) -> tuple[GroupLosses, GroupLosses]:
    """The losses of the members and of the source, by groups of validation rows, with the members' class weights."""
    loss, score = _comparable_loss(members, source, recipe)
    class_weights = weights_of_last_fit(members)

    def losses(net: Translation) -> GroupLosses:
        rows = loader(net, *valid, shuffle=False, training=False)
        if class_weights is not None:
            rows = rows.with_class_weights(class_weights)
        assert rows.target is not None
        return group_losses(loss, score(net, net.scores(valid[0])), Targets(rows.target, rows.weight))

    return losses(members), losses(source)


def _comparable_loss(
    members: Translation, source: Translation, recipe: Recipe
) -> tuple[Loss, Callable[[Translation, Tensor], Tensor]]:
    """A loss that suits both translations, and the function from the scores of one to the input of this loss.

    The scores of members are probabilities or values. The source may score on another scale: the scores of a Poisson
    model are logarithms of means.
    """
    ours, theirs = members.head, source.head

    def linked(net: Translation, scores: Tensor) -> Tensor:
        return net.head.linked(scores)

    if (ours.loss, ours.link) == (theirs.loss, theirs.link):
        return loss_for(recipe.loss, theirs), lambda net, scores: scores
    if ours.task != "regression":
        return LOSSES["probabilities"], linked
    if theirs.link == "identity" or theirs.loss not in RAW_SCORE_LOSSES:
        return loss_for(recipe.loss, replace(theirs, link="identity")), linked
    if theirs.link == "exp":
        tiny = torch.finfo(torch.float32).tiny
        return loss_for(recipe.loss, theirs), lambda net, scores: linked(net, scores).clamp_min(tiny).log()
    return LOSSES["squared"], linked


def _is_fitted(pipeline: Any) -> bool:
    try:
        check_is_fitted(pipeline)
    except NotFittedError:
        return False
    return True


def _raw_scores(head: Head, outputs: Any) -> Tensor:
    """Raw scores ``[N, K]`` from probabilities or values."""
    columns: Tensor = torch.from_numpy(outputs).reshape(len(outputs), -1)
    modules: list[Module] = [] if head.classes is None else [LogPool(len(head.classes))]
    if head.link in UNLINKED:
        modules = unlinked(head.link, columns.dtype)
    for module in modules:
        columns = module(columns)
    return columns
