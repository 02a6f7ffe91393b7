"""Refresh: new rows move the values of a fitted translation, if they lower the loss of validation rows."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windtunnel.compiler.strategies import choose
from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.modules.linear.residual_model import interaction_cells
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss, pick
from windtunnel.objectives.metrics import Metric
from windtunnel.program.history import CandidateResult, History
from windtunnel.program.program import IDS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoding import encode
from windtunnel.trainers.data.hold_out import held_out
from windtunnel.trainers.loop.evaluation import evaluate
from windtunnel.trainers.refresh.residual_columns import (
    add_new_categories,
    extend_residual,
    positions_of_new_categories,
    residual_position,
)
from windtunnel.trainers.refresh.value_groups import RefreshRows, ValueGroup, fit_groups
from windtunnel.trainers.residual.installation import FrozenPipeline, install_pipeline
from windtunnel.trainers.residual.significance import compare_losses
from windtunnel.trainers.residual.training import residual_head

ANCHORS = (5.0, 50.0, 500.0, 5000.0)
TABLE_PASSES = 10
HELD_OUT = 0.2


@dataclass(frozen=True)
class Encoded:
    """Encoded rows, targets and weights."""

    rows: Batch
    target: Tensor
    weight: Tensor

    def take(self, index: Tensor) -> Encoded:
        """Rows by a mask."""
        return Encoded(Batch(*(block[index] for block in self.rows)), self.target[index], self.weight[index])

    def join(self, other: Encoded) -> Encoded:
        """These rows and others."""
        rows = Batch(*(torch.cat(pair) for pair in zip(self.rows, other.rows, strict=True)))
        return Encoded(rows, torch.cat([self.target, other.target]), torch.cat([self.weight, other.weight]))


def refresh(
    net: TranslatedPipeline, new: Any, *, replay: Any = None, valid: Any = None, anchor: float | None = None, seed: int
) -> History:
    """Move leaf values and the residual model with new rows; keep the change if it lowers the validation loss.

    Values are moved by Newton steps with a quadratic penalty towards the old ones, which weighs as much as ``anchor``
    rows. Candidates are the anchors ``ANCHORS`` (or ``anchor``), each on the new rows alone and, with ``replay``, on
    both. A candidate must lower the loss of the validation rows by more than one standard error and raise that of
    held-out old rows by at most one. The best one is installed; where no ``valid`` was given, it is fitted on the
    held-out rows too. If none passes, the translation stays as it is.

    Raises
    ------
    BadInput
        Arguments that are no tuples of rows and targets, or a translation that takes no residual model.
    """
    began = time.perf_counter()
    _check(net, anchor, new=new, replay=replay, valid=valid)
    device = net.device()
    trial = deepcopy(net).cpu()
    if trial.exact_modules:
        install_pipeline(trial, FrozenPipeline(trial.program, dict(trial.exact_modules), trial.head))
    trial.encode(new[0], training=True)
    add_new_categories(trial, new[0])
    every = _encoded(trial, new)
    unit = torch.ones(_outputs(trial, every.rows))
    if trial.head.task == "regression" and trial.head.link == "identity" and every.target.ndim == 1:
        unit = unit * max(float(every.target.std()), 1e-12)
    extend_residual(trial, every.rows.numbers, unit)
    train, test = _split(every, seed) if valid is None else (every, _encoded(trial, valid))
    old, guard = (None, None) if replay is None else _split(_encoded(trial, replay), seed)
    loss, metric = pick(None, trial.head), Metric(None, residual_head(trial.head))
    before = _scores(trial, test)

    def metric_of(scores: Tensor) -> float:
        return evaluate(metric, loss, lambda x: x, [((scores,), test.target, test.weight)])

    start = CandidateResult("translation", metric_of(before), _loss(loss, before, test), None, None, False, "")
    results = [start]
    kept: tuple[int, float, bool, TranslatedPipeline] | None = None
    for strength in ANCHORS if anchor is None else (anchor,):
        for with_replay in (False,) if old is None else (False, True):
            candidate = deepcopy(trial)
            move_values(candidate, train.join(old) if with_replay and old is not None else train, loss, strength)
            after = _scores(candidate, test)
            gain = compare_losses(loss, before, after, test.target, test.weight)
            reason = "" if gain.significant else "the loss of the validation rows is not significantly lower"
            if guard is not None and not reason:
                harm = compare_losses(
                    loss, _scores(candidate, guard), _scores(trial, guard), guard.target, guard.weight
                )
                reason = "the loss of old rows is significantly higher" if harm.significant else ""
            name = f"anchor {strength:g}" + (" with replay" if with_replay else "")
            value = _loss(loss, after, test)
            results.append(
                CandidateResult(name, metric_of(after), value, gain.gain, gain.standard_error, False, reason)
            )
            if not reason and (kept is None or value < float(results[kept[0]].loss or 0)):
                kept = len(results) - 1, strength, with_replay, candidate
    if kept is not None:
        index, strength, with_replay, best = kept
        if valid is None:
            best = deepcopy(trial)
            move_values(best, every.join(old) if with_replay and old is not None else every, loss, strength)
        program = best.program.to(device)
        net.replace_program(program, origins=best.origins, encoder=best.encoder, head=best.head)
        net.set_exact_modules({})
        net.configure(strategy_choices=choose(net.program, "auto"))
        net.mark_initial_weights()
        net.eval()
    chosen = 0 if kept is None else kept[0]
    results = [
        replace(
            result,
            kept=position == chosen,
            reason=("lowest validation loss" if kept else "no candidate passed")
            if position == chosen
            else result.reason or f"{results[chosen].name} has the lower validation loss",
        )
        for position, result in enumerate(results)
    ]
    history = History(
        epochs=[],
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=results[0].metric,
        best=results[chosen].metric,
        best_epoch=0,
        validated_on="held-out rows" if valid is None else "validation rows",
        seconds=time.perf_counter() - began,
        candidates=results,
    )
    net.record(history=history)
    return history


def move_values(net: TranslatedPipeline, data: Encoded, loss: Loss, anchor: float) -> None:
    """Move the residual model's tables in ``TABLE_PASSES`` passes, then the leaf values of boosted trees in one."""
    position = residual_position(net)
    assert position is not None
    step: Any = net.program.steps[position]
    residual = step.module
    rows = RefreshRows(_scores(net, data), data.target, data.weight.double())
    inputs = net.run_in_slices(partial(net.program.inputs_of, position), data.rows)
    unit = residual.unit.double()
    codes = residual.codes(inputs)
    ids: list[int] = next((take.columns.tolist() for take in step.takes if take.slot == IDS), [])
    only_new = positions_of_new_categories(net)
    first = residual.edges.shape[0]
    at = codes + residual.first_code
    for place, column in enumerate(ids):
        if column in only_new:  # id 0 is any other category
            at[codes[:, first + place] == 0, first + place] = -1
    cross = interaction_cells(codes, residual.size, residual.interactions, residual.cell_count) + residual.first_cell
    tables = [
        (name, _table_group(cells, getattr(residual, name), unit))
        for name, block in (("weight", at), ("cross", cross))
        for cells in block.t()
    ]
    trees_position = _trees_position(net, position)
    trees: list[ValueGroup] = []
    if trees_position is not None:
        source: Any = net.program.steps[trees_position].module
        hard = HardTrees.of(source.ensemble())  # other forms lay leaves out in other ways
        trees_in = net.run_in_slices(partial(net.program.inputs_of, trees_position), data.rows)
        hard.cast(trees_in.dtype)
        positions = hard.leaf_positions(trees_in)
        trees = [
            ValueGroup(positions[:, :, each], hard.value.double(), torch.ones_like(unit))
            for each in range(positions.shape[2])
        ]
    fit_groups(rows, [[group for _, group in tables]] * TABLE_PASSES + [trees], loss, anchor)
    with torch.no_grad():
        for name, group in tables:
            parameter = getattr(residual, name)
            parameter.view(-1)[group.used] += group.moved[:-1].to(parameter.dtype)
    if trees_position is not None:
        moved = hard.value.double().clone()
        for group in trees:
            moved[group.used] += group.moved[:-1]
        net.replace_modules({trees_position: _with_values(hard, moved, trees_in.dtype)})


def _table_group(cells: Tensor, table: Tensor, unit: Tensor) -> ValueGroup:
    outputs = table.shape[1]
    flat = torch.where(cells < 0, -1, cells * outputs).unsqueeze(1)
    flat = torch.where(flat < 0, flat, flat + torch.arange(outputs))
    return ValueGroup(flat, table.detach().double().reshape(-1), unit)


def _with_values(trees: HardTrees, values: Tensor, dtype: torch.dtype) -> HardTrees:
    """The same trees with other values at the positions of a walk."""
    ensemble = trees.ensemble()
    numbers = HardTrees.of(replace(ensemble, leaf_value=np.arange(1.0, len(ensemble.leaf_value) + 1))).value.long()
    leaf_value = ensemble.leaf_value.copy()
    leaves = numbers > 0
    leaf_value[(numbers[leaves] - 1).numpy()] = values[leaves].numpy()
    moved = HardTrees.of(replace(ensemble, leaf_value=leaf_value))
    moved.cast(dtype)
    return moved.eval()


def _trees_position(net: TranslatedPipeline, residual: int) -> int | None:
    """The step of boosted trees whose sum is the score of the pipeline; None without such."""
    step: Any = net.program.steps[residual - 1]
    trees = step.module
    boosted = isinstance(trees, HardTrees) and not trees.vector and trees.divisor == 1
    return residual - 1 if boosted else None


def _scores(net: TranslatedPipeline, data: Encoded) -> Tensor:
    return net.run_in_slices(net.program, data.rows).double()


def _outputs(net: TranslatedPipeline, rows: Batch) -> int:
    return int(net.run_in_slices(net.program, Batch(*(block[:2] for block in rows))).shape[1])


def _loss(loss: Loss, scores: Tensor, data: Encoded) -> float:
    return float(loss(scores, data.target, data.weight.double()))


def _encoded(net: TranslatedPipeline, data: Any) -> Encoded:
    X, y, *weight = data
    rows, target, weights = encode(net, X, y, *weight, training=True)
    assert target is not None
    return Encoded(rows, target, torch.ones(len(target)) if weights is None else weights)


def _split(data: Encoded, seed: int) -> tuple[Encoded, Encoded]:
    """Training rows and a held-out fifth."""
    chosen = held_out(data.target, HELD_OUT, seed)
    if chosen is None:
        raise BadInput(f"{len(data.target)} rows are too few to hold a fifth out; give more rows, or valid=(X, y)")
    return data.take(~chosen), data.take(chosen)


def _check(net: TranslatedPipeline, anchor: float | None, **data: Any) -> None:
    for name, value in data.items():
        if value is not None and (not isinstance(value, tuple) or isinstance(value, Batch) or len(value) not in (2, 3)):
            raise BadInput(f"{name}= is a {type(value).__name__}; refresh takes (X, y) or (X, y, weight)")
    if anchor is not None and not 0 < anchor < float("inf"):
        raise BadInput(f"anchor={anchor!r}; give a finite number of rows above 0, or None to choose it")
    if not net.takes_residual_model():
        raise BadInput(
            "this translation takes no residual model (methods with steps of their own, several targets, or "
            "too many columns), so it cannot be refreshed; fit the source again"
        )
