"""The loss of an estimator made of others: that which all of its parts were fitted with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from windtunnel.modules.outputs.inverse_links import UNLINKED
from windtunnel.objectives.losses import OF_RAW_SCORES
from windtunnel.translators.registry import Composite, Predictor

OF_QUANTILES = ("absolute", "quantile")
"""Losses that an increasing function of answers and targets leaves with the same best answer."""


def with_loss_of(parts: Sequence[Predictor], composite: Composite) -> Predictor:
    """``composite.then`` with the loss that all parts share, where it answers what that loss is of.

    A loss of answers is passed on as it is. One of raw scores is passed on with the link of the parts, to be put behind
    scores that this link was taken off (``windtunnel.modules.outputs.inverse_links``), so that the mean of positive answers stays
    positive; without a link it is passed on as it is. Everything else leaves ``then`` with its own loss.
    """
    then: Predictor = composite.then
    first, *others = parts
    options = _shared_options(parts)
    if options is None or any((one.loss, one.link) != (first.loss, first.link) for one in others):
        return then
    if composite.shared_loss == "quantiles" and first.loss not in OF_QUANTILES:
        return then
    if first.loss not in OF_RAW_SCORES or first.link == "identity":
        return replace(then, loss=first.loss, loss_options=options)
    if first.link not in UNLINKED:
        return then
    # The scale of a logistic link belongs to the scores of the parts.
    return replace(then, loss=first.loss, loss_options={} if first.link == "logistic" else options, link=first.link)


def _shared_options(parts: Sequence[Predictor]) -> dict[str, Any] | None:
    """The options of the loss that all have; the mean of deltas, which each found in its own rows; else None."""
    shared: dict[str, Any] = {}
    if any(one.loss_options.keys() != parts[0].loss_options.keys() for one in parts):
        return None
    for name in parts[0].loss_options:
        values: list[Any] = [one.loss_options[name] for one in parts]
        if name != "delta" and any(value != values[0] for value in values):
            return None
        shared[name] = fmean(values) if name == "delta" else values[0]
    return shared
