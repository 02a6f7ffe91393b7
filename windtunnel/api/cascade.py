"""``cascade``: a cheap model first, the full one where it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.api.compile import compile
from windtunnel.api.sources import source_of
from windtunnel.api.translation import Translation
from windtunnel.assemble import translation_in
from windtunnel.encode.row_values import check_length
from windtunnel.encode.rows import count_rows
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator, is_whole_number
from windtunnel.objectives.metrics import ALIASES
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.serving.cascade.groups import GroupedPipeline
from windtunnel.serving.cascade.selection import efficient_groups
from windtunnel.serving.cascade.statistics import feature_groups
from windtunnel.serving.cascade.threshold import DROPS, KeptMetric, choose_threshold

GAMMAS = (0.0, 0.25, 0.5, 0.75)
GAMMA_OF_FILTERS = 0.25
"""The gamma for regressors: without a threshold there is no expected cost to choose it by."""


def cascade(
    pipeline: Any,
    train: tuple[Any, Any],
    valid: tuple[Any, Any],
    *,
    net: Any = None,
    accuracy_loss: float = 0.001,
    metric: str = "accuracy",
    gamma: float | None = None,
    cost: Mapping[str, float] | None = None,
    cache: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Cascade:
    """Put a small model, which predicts easy rows alone, in front of a pipeline.

    The feature groups of the pipeline are the parts of its last ``ColumnTransformer`` or ``FeatureUnion``. Each is
    timed, and weighed by its importance to the predictions. A small model of the same class is fitted on the groups
    with the most importance per cost. Its prediction counts where it is sure enough; the full model predicts the other
    rows. The report has the time per row, and says so if the cascade saves none. A regressor's small model only filters
    rows for ``top_k``.

    Parameters
    ----------
    pipeline : fitted scikit-learn Pipeline, Translation, WindTunnelClassifier or WindTunnelRegressor
        Left as it is; the small model shares its fitted transformers. A translation stands for its pipeline, if that
        still exists, and for ``net``.
    train : (X, y)
        Raw rows that the small model is fitted on.
    valid : (X, y)
        Raw rows that the pipeline was not fitted on, for importances and for the choice of the confidence from which on
        the small model is trusted.
    net : Translation or fitted WindTunnelClassifier or WindTunnelRegressor, optional
        The full model, such as a fine-tuned translation of ``pipeline``; by default the compiled pipeline.
    accuracy_loss : float
        How much lower than that of the full model the metric may be, with 95 % confidence. The fewer validation rows,
        the fewer rows the small model predicts. If it may predict none, the full model predicts all rows, as the
        report then tells.
    metric : str
        "accuracy", or for two classes "auroc", also as "auc" or "roc_auc". Accuracy tells nothing about the order of
        rows: where a class is rare, give "auroc".
    gamma : float, optional
        A group joins the small model only if it has at least ``gamma`` times the importance per cost of those that
        have joined before. None tries 0, 0.25, 0.5 and 0.75 and takes the value with the lowest expected cost; 0.25 for
        regressors.
    cost : mapping, optional
        Name of a group -> seconds per row, where timing is misleading, as for look-ups in a remote store.
    cache : mapping, optional
        Name of a group, or of a step on the host -> how many rows to keep the features of, those used last. A row is
        found by the values of the raw columns that the step reads. Worth it for look-ups in a remote store and for
        slow code; what is translated takes less time than a look at a cache.
    seed : int
        Seed of the permutations that measure importances.

    Returns
    -------
    Cascade

    Raises
    ------
    BadInput
        No pairs of rows and as many targets, labels that are none of the classes, or targets of a single class.
    UnsupportedEstimator
        The pipeline has no feature groups, its last step cannot be compiled or is a classifier of several targets, or
        a row depends on the others (NMF).
    InvalidOption
        An argument is none of the accepted values.

    Source
    ------
    Kraft et al., Willump: a statistically-aware end-to-end optimizer for machine learning inference, MLSys 2020.
    """
    if translation_in(pipeline) is not None:
        net = pipeline if net is None else net
        pipeline = _source(pipeline)
    kept = _metric_to_keep(metric)
    _check_options(accuracy_loss, gamma, seed)
    _check_mappings(cost=cost, cache=cache)
    _check_rows(train=train, valid=valid)
    full = _full_model(pipeline, net)
    rows, target = _source_rows(full, valid[0]), valid[1]
    correct = _positions_of_labels(full, train[1], target, kept)
    grouped = GroupedPipeline.of(pipeline)
    inputs = grouped.inputs(_source_rows(full, train[0]))
    groups = feature_groups(grouped, rows, target, cost or {}, seed, compile)
    by_full = None if correct is None else (full.predict_proba(rows), correct)
    gammas = (GAMMA_OF_FILTERS,) if by_full is None else GAMMAS
    candidates: dict[tuple[str, ...], Cascade] = {}
    for value in gammas if gamma is None else (gamma,):
        names = tuple(group.name for group in efficient_groups(groups, value))
        if not names or names in candidates:
            continue
        small = compile(grouped.smaller(inputs, train[1], names))
        threshold = None
        if by_full is not None:
            threshold = choose_threshold(small.predict_proba(rows), *by_full, accuracy_loss, kept)
        candidates[names] = Cascade(small, full, groups, names, value, threshold, cache or {})
    if not candidates:
        most_expensive = max(groups, key=lambda group: group.cost).name
        raise InvalidOption(
            f"no group costs less than half of all; {most_expensive!r} is the most expensive. Split it, or give cost=."
        )
    best = min(candidates.values(), key=lambda candidate: (candidate.expected_cost, len(candidate.efficient)))
    return best.timed(rows, cost or {})


def _source(translation: Any) -> Any:
    """The pipeline of a translation, or of a fitted ``WindTunnelClassifier`` or ``WindTunnelRegressor``."""
    held = source_of(translation) if isinstance(translation, Translation) else getattr(translation, "pipeline_", None)
    if held is None:
        raise UnsupportedEstimator(
            "cascade needs the fitted pipeline, which this translation does not hold; give it too: "
            "cascade(pipeline, train, valid, net=net)"
        )
    return held


def _full_model(pipeline: Any, net: Any) -> Translation:
    full = compile(pipeline) if net is None else translation_in(net)
    if not isinstance(full, Translation):
        raise InvalidOption(
            f"net={type(net).__name__}; accepted are a translation, such as windtunnel.translate(pipeline), and a "
            "fitted WindTunnelClassifier or WindTunnelRegressor"
        )
    return full


def _source_rows(full: Translation, rows: Any) -> Any:
    """Raw rows in a form that transformers take: dicts and tables of other libraries become DataFrames."""
    as_they_are = isinstance(rows, pd.DataFrame | np.ndarray) or hasattr(rows, "tocsr") or full.encoder.flat
    return rows if as_they_are else full.encoder.source_rows(rows)


def _positions_of_labels(full: Translation, train: Any, valid: Any, metric: KeptMetric) -> NDArray[np.int64] | None:
    """The positions of the labels of the validation rows among the classes, int64 ``[B]``; None for a regressor.

    Raises what ``cascade`` raises for a full model, targets or a metric that it does not take.
    """
    head = full.head
    if full.program.needs_all_rows():
        raise UnsupportedEstimator(
            "the score of a row depends on the other rows of a call, and a full model of a cascade gets only some of "
            "them; use the pipeline without a cascade."
        )
    if head.has_several_targets or (np.ndim(valid) > 1 and np.shape(valid)[1] > 1):
        raise UnsupportedEstimator("the pipeline predicts several targets; a cascade takes one target.")
    if head.classes is None:
        return None
    if "predict_proba" not in head.methods or "predict" in full.program.method_steps:
        raise UnsupportedEstimator(
            "a cascade predicts the most probable label, and the labels of this pipeline follow from a decision "
            "threshold, from votes or from margins; give it a classifier without these, and with predict_proba."
        )
    classes = len(head.labels_in_order)
    if metric == "auroc" and classes != 2:
        raise InvalidOption(f"metric='auroc' is for two classes; the pipeline has {classes}.")
    # Labels of no class are rejected here.
    train_positions, valid_positions = (head.encode_target(part).numpy() for part in (train, valid))
    if len(np.unique(train_positions)) < classes:
        raise BadInput("the targets of train lack a class of the pipeline; give rows of every class")
    if metric == "auroc" and len(np.unique(valid_positions)) < 2:
        raise BadInput("the targets of valid are all of one class, of which there is no AUC; give other rows")
    return valid_positions


def _check_mappings(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and not isinstance(value, Mapping):
            raise InvalidOption(f"{name}={value!r}; give a mapping from the names of groups, such as {{'group': 1e-4}}")


def _check_rows(**parts: Any) -> None:
    """Raise ``BadInput`` for anything but rows and as many targets, without weights."""
    for name, part in parts.items():
        X, y, weight = rows_with_targets(f"{name} is", part, "give (X, y)")
        if weight is not None:
            raise BadInput(f"{name} has weights, and a cascade takes none; give (X, y)")
        rows = count_rows(X)
        check_length(f"the target of {name}", y, rows)
        if not rows:
            raise BadInput(f"{name} has no rows; give at least one")


def _metric_to_keep(name: str) -> KeptMetric:
    metrics: dict[str, KeptMetric] = {metric: metric for metric in DROPS}
    metric = metrics.get(ALIASES.get(name, name))
    if metric is None:
        raise InvalidOption(f"metric={name!r}; accepted are {', '.join(map(repr, DROPS))}.")
    return metric


def _check_options(accuracy_loss: float, gamma: float | None, seed: int) -> None:
    if not isinstance(accuracy_loss, Real) or not 0 <= accuracy_loss < 1:
        raise InvalidOption(f"accuracy_loss={accuracy_loss!r}; accepted are numbers from 0 to below 1.")
    if gamma is not None and not (isinstance(gamma, Real) and 0 <= gamma < float("inf")):
        raise InvalidOption(f"gamma={gamma!r}; accepted are numbers from 0 up, and None.")
    if not is_whole_number(seed, 0):
        raise InvalidOption(f"seed={seed!r}; give a whole number from 0")
