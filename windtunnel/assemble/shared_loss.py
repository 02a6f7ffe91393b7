"""The loss of an estimator made of others: the one that all of its parts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from windtunnel.modules.outputs.inverse_links import UNLINKED
from windtunnel.objectives.losses import RAW_SCORE_LOSSES
from windtunnel.translators.conversions import Composite, Predictor

QUANTILE_LOSSES = ("absolute", "quantile")
"""Losses whose minimizer an increasing function of outputs and targets preserves."""


def with_loss_of(parts: Sequence[Predictor], composite: Composite) -> Predictor:
    """``composite.then`` with the loss that all parts share, if its output has the parts' unit.

    A loss of outputs is passed on unchanged. A loss of raw scores is passed on with the link of the parts, whose
    inverse (``windtunnel.modules.outputs.inverse_links``) is applied to the scores, so that the mean of positive
    outputs stays positive. In all other cases ``then`` keeps its own loss.
    """
    then: Predictor = composite.then
    first, *others = parts
    options = _shared_options(parts)
    if options is None or any((part.loss, part.link) != (first.loss, first.link) for part in others):
        return then
    if composite.shared_loss == "quantiles" and first.loss not in QUANTILE_LOSSES:
        return then
    if first.loss not in RAW_SCORE_LOSSES or first.link == "identity":
        return replace(then, loss=first.loss, loss_options=options)
    if first.link not in UNLINKED:
        return then
    # The scale of a logistic link belongs to the scores of the parts.
    return replace(then, loss=first.loss, loss_options={} if first.link == "logistic" else options, link=first.link)


def _shared_options(parts: Sequence[Predictor]) -> dict[str, Any] | None:
    """The options of the loss if all parts agree, else None; delta, which each part estimates itself, is averaged."""
    shared: dict[str, Any] = {}
    if any(part.loss_options.keys() != parts[0].loss_options.keys() for part in parts):
        return None
    for name in parts[0].loss_options:
        values: list[Any] = [part.loss_options[name] for part in parts]
        if name != "delta" and any(value != values[0] for value in values):
            return None
        shared[name] = fmean(values) if name == "delta" else values[0]
    return shared
