"""Hardening: a fine-tuned translation with hard trees in the place of soft ones, and the change of its scores."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from windtunnel.compiler.strategies import use_fastest_forms
from windtunnel.encode import Batch
from windtunnel.encode.row_values import check_length, encode_weights, to_arrays
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption
from windtunnel.modules.base import Module
from windtunnel.modules.trees import HardTrees, LeafOneHot, SoftLeaves, SoftSplits, SoftTrees
from windtunnel.modules.trees.soft.harden import harden as hard_ensemble, harden_splits
from windtunnel.objectives.losses import loss_for
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.hardening_result import HardeningResult
from windtunnel.program.translated import TranslatedPipeline

Net = TypeVar("Net", bound=TranslatedPipeline)


def harden(net: Net, valid: Any = None) -> Net:
    """A copy with hard trees in the place of soft ones, the limit of temperature 0; see ``Translation.harden``.

    The weights of soft leaves are never exactly 0, and the scores differ from hard trees by about the same amount in
    every row. With ``valid`` rows, the mean difference is added to the base. Hard trees stay as they are.

    Raises
    ------
    UnfaithfulOption
        Trees that training has moved at L3 or L4.
    InvalidOption
        A translation on a fixed backend.
    """
    if net.fixed:
        raise InvalidOption("this translation runs on a backend that is fixed; its trees are hard already.")
    rows, target, weight = validation_rows(net, valid)
    hard = copy.deepcopy(net).cpu().eval()
    hard.drop_trained_exact_modules()
    for position, step in enumerate(hard.program.steps):
        if isinstance(step.module, SoftSplits):
            hard.replace_modules({position: _hard(hard, position, rows)})
    use_fastest_forms(hard)
    hard.finish_softening()
    hard.to(net.device())
    hard.mark_initial_weights()
    measured = None if rows is None else measure_change(net, hard, rows, target, weight)
    hard.record(hardened=True, hardening=measured)
    return hard.eval()


def validation_rows(net: TranslatedPipeline, valid: Any) -> tuple[Batch | None, Tensor | None, Tensor | None]:
    """Encoded rows, targets and weights of the ``valid`` argument."""
    rows, target, weight = valid, None, None
    if isinstance(valid, tuple) and not isinstance(valid, Batch):
        if len(valid) > 1 and valid[1] is None:  # rows without targets
            rows = valid[0]
        else:
            rows, target, weight = rows_with_targets("valid= is", valid, "give X, (X, y) or (X, y, weight)")
    if rows is None:
        return None, None, None
    batch = net.encode(rows)
    count = len(batch.ids)
    if count == 0:
        raise BadInput("got 0 rows; at least 1 is needed to compare the scores.")
    if target is not None:
        check_length("y", target, count)
        target = net.head.encode_target(to_arrays(target))
    return batch, target, None if weight is None else encode_weights(weight, count)


def measure_change(
    before: TranslatedPipeline, after: TranslatedPipeline, rows: Batch, target: Tensor | None, weight: Tensor | None
) -> HardeningResult:
    """The change of the scores and, with targets, the metric and the loss before and after."""
    scores = [net.scores(rows) for net in (before, after)]
    first, second = (values.double() for values in scores)
    deviation = float((first - first.mean(dim=0)).square().mean().sqrt())
    moved = float((second - first).square().mean().sqrt())
    metric, nan = Metric(None, before.head, before.program.method_steps), math.nan
    result = HardeningResult(len(first), moved / deviation if deviation > 0 else moved, metric.name, nan, nan, nan, nan)
    if target is None or before.head.loss == "unknown":
        return result
    loss = loss_for(None, before.head)
    losses = [float(loss(values, target, weight)) for values in scores]
    metrics = []
    for net, values, loss_value in zip((before, after), scores, losses, strict=True):
        metric.reset()
        metric.update(values, target, weight, output=None if metric.method is None else net.output(metric.method, rows))
        metrics.append(loss_value if metric.name == "loss" else metric.compute())
    return replace(result, before=metrics[0], after=metrics[1], loss_before=losses[0], loss_after=losses[1])


def _hard(net: TranslatedPipeline, position: int, rows: Batch | None) -> Module:
    """The hard form of one step: the source's trees if they are untrained."""
    if position in net.exact_modules:
        return net.exact_modules[position]
    step = net.program.steps[position]
    soft: SoftTrees | SoftLeaves = step.module  # type: ignore[assignment]  # the caller has checked it
    try:
        if isinstance(soft, SoftLeaves):
            ensemble = harden_splits(soft)
            return LeafOneHot.numbered(ensemble, ensemble.leaf_value.astype("int64"))
        ensemble = hard_ensemble(soft)
    except UnfaithfulOption as error:
        raise UnfaithfulOption(f"step {step.name!r}: {error}") from error
    hard = HardTrees.of(ensemble)
    if rows is not None:
        inputs = net.step_inputs(position, rows)
        with torch.inference_mode():
            differences = [(soft(x).double() - hard(x.double())).sum(dim=0) for x in torch.split(inputs, 4096)]
        shift = torch.stack(differences).sum(dim=0) / len(inputs)
        hard = HardTrees.of(replace(ensemble, base=ensemble.base + shift.numpy()))
    return hard
