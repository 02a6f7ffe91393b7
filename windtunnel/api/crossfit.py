"""``crossfit``: members fitted on all but one fold each, and one residual model that learns from their out-of-fold scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from windtunnel.api.compile import exact_translation
from windtunnel.api.translation import Translation
from windtunnel.compiler.strategies import choose
from windtunnel.estimators.cross_fitted import CrossFittedClassifier, CrossFittedRegressor
from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.log_pool import LogPool
from windtunnel.modules.outputs.inverse_links import UNLINKED, unlinked
from windtunnel.objectives.losses import LOSSES, RAW_SCORE_LOSSES, Loss, pick
from windtunnel.program.head import Head
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.significance import GroupLosses, group_losses

MANY_ROWS = 10_000
"""Training rows from which members hardly miss the fold that each was fitted without."""


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
    """Fit a pipeline once per fold, on all rows but the fold's, and train a residual model beside the mean of these members.

    The residual model learns from scores that every row got from the member that did not see it, which is what the members
    will be worth on new rows; scores of rows that a model was fitted on are too good to learn from. The price is
    ``folds`` times the time to fit, and to score.

    Parameters
    ----------
    pipeline : estimator or Pipeline
        Cloned; a fitted one that was stopped early gives members of as many trees as it has, and is handed back itself,
        with a residual model and a warning, where ``valid`` is given as arrays and finds it clearly better than the members.
    X : rows
        DataFrame, array, or what the pipeline takes.
    y : array-like
        Original targets.
    weight : array-like, optional
        Row weights, from 0, for the members and the residual model.
    valid : loader, (X, y) or (X, y, weight), optional
        Rows that choose the epoch and whether the residual model is kept; without them the recipe's ``validation_fraction`` of
        the training rows, with their out-of-fold scores.
    folds : int
        Number of members, 2 or more.
    groups : array-like, optional
        Rows of one group stay in one fold: wherever rows of a customer, a patient or a session resemble each other.
    time : array-like, optional
        Folds are blocks of rows that are neighbours in time: wherever the data drift.
    recipe : Recipe, str or None
        The options of fine-tuning.
    seed : int
        Of the folds, and of fine-tuning where the recipe does not say.
    **options
        See ``windtunnel.trainers.finetune``.

    Returns
    -------
    Translation
        Of a ``CrossFittedClassifier`` or ``CrossFittedRegressor``: exact, with the residual model where it helped.

    Raises
    ------
    BadInput
        For folds that cannot be made, or rows, targets or options that cannot be used.
    UnsupportedEstimator
        For a pipeline with a step that has no translation.

    Examples
    --------
    >>> net = windtunnel.crossfit(pipeline, X, y, folds=5, time=X["day"])  # doctest: +SKIP
    """
    family = CrossFittedClassifier if is_classifier(pipeline) else CrossFittedRegressor
    source = family(pipeline, folds=folds, random_state=seed).fit(X, y, weight, groups=groups, time=time)
    net = _exact(source)
    resolved = Recipe.resolve(recipe, {"seed": seed} if recipe is None or isinstance(recipe, str) else {})
    train = loader(net, X, y, weight, seed=resolved.seed)
    train.batch_size = resolved.rows_per_step(train.size)
    train.scores = _scores(net.head, source.out_of_fold(X))
    net.fit(train, valid, recipe=resolved, **options)
    if not isinstance(valid, tuple) or not _is_fitted(pipeline):
        return net
    return _guarded(net, _exact(pipeline), (X, y, weight), valid, resolved, options)


def _exact(source: Any) -> Translation:
    net = exact_translation(source, torch.float32)
    net.configure(strategy_choices=choose(net.program, "auto"))
    return net


def _guarded(
    members: Translation, source: Translation, train: Any, valid: Any, recipe: Recipe, options: dict[str, Any]
) -> Translation:
    """The members, or the fitted pipeline that was given where it is better on the validation rows.

    It has often stopped early by these very rows, which flatters it: where rows are many, it has to be clearly better.
    """
    source.fit(train if train[2] is not None else train[:2], valid, recipe=recipe, **options)
    ours, theirs = _losses(members, source, recipe, valid)
    worse = (ours - theirs).exceeds_standard_error() if len(train[1]) >= MANY_ROWS else ours.mean > theirs.mean
    if not worse:
        return members
    warnings.warn(
        f"on the validation rows the members (mean loss {ours.mean:.4g}) are worse than the fitted pipeline that "
        f"was given ({theirs.mean:.4g}), which is handed back with a residual model. Members miss a fold of rows each: "
        "give more folds, or more rows.",
        UserWarning,
        stacklevel=3,
    )
    return source


def _losses(members: Translation, source: Translation, recipe: Recipe, valid: Any) -> tuple[GroupLosses, GroupLosses]:
    """The losses of both, group by group: the source's own loss, or one that both have answers for."""
    loss, score = _yardstick(members, source, recipe)

    def losses(net: Translation) -> GroupLosses:
        rows = loader(net, *valid, shuffle=False, training=False)
        assert rows.target is not None
        rest = [rows.target] if rows.weight is None else [rows.target, rows.weight]
        return group_losses(loss, score(net, net.scores(rows.rows)), *rest)

    return losses(members), losses(source)


def _yardstick(
    members: Translation, source: Translation, recipe: Recipe
) -> tuple[Loss, Callable[[Translation, Tensor], Tensor]]:
    """A loss, and what of a net it is to be given.

    The scores of members are probabilities or values, whatever the source was fitted for: a Poisson model's are the
    logarithm of a mean, and its loss has another zero.
    """
    ours, theirs = members.head, source.head

    def linked(net: Translation, scores: Tensor) -> Tensor:
        return net.head.linked(scores)

    if (ours.loss, ours.link) == (theirs.loss, theirs.link):
        return pick(recipe.loss, theirs), lambda net, scores: scores
    if ours.task != "regression":
        return LOSSES["probabilities"], linked
    if theirs.link == "identity" or theirs.loss not in RAW_SCORE_LOSSES:
        return pick(recipe.loss, replace(theirs, link="identity")), linked
    if theirs.link == "exp":
        tiny = torch.finfo(torch.float32).tiny
        return pick(recipe.loss, theirs), lambda net, scores: linked(net, scores).clamp_min(tiny).log()
    return LOSSES["squared"], linked


def _is_fitted(pipeline: Any) -> bool:
    try:
        check_is_fitted(pipeline)
    except NotFittedError:
        return False
    return True


def _scores(head: Head, answers: Any) -> Tensor:
    """Probabilities or values as raw scores ``[N, K]``."""
    columns: Tensor = torch.from_numpy(answers).reshape(len(answers), -1)
    modules: list[Module] = [] if head.classes is None else [LogPool(len(head.classes))]
    if head.link in UNLINKED:
        modules = unlinked(head.link, columns.dtype)
    for module in modules:
        columns = module(columns)
    return columns
