"""Refresh: new rows move the values of a fitted translation, if that lowers the loss of validation rows."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.strategies import choose
from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.objectives.losses import Loss, pick
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.history import CandidateResult, History
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoding import encode
from windtunnel.trainers.data.hold_out import held_out
from windtunnel.trainers.loop.evaluation import evaluate
from windtunnel.trainers.refresh.movable_values import MovableValues, MovedValues
from windtunnel.trainers.refresh.residual_columns import add_new_categories, extend_residual
from windtunnel.trainers.residual.installation import FrozenPipeline, install_pipeline
from windtunnel.trainers.residual.significance import SignificanceTest, compare_losses

ANCHORS = (5.0, 50.0, 500.0, 5000.0)
HELD_OUT = 0.2


@dataclass(frozen=True)
class RefreshData:
    """New rows, validation rows and old rows, one after the other.

    Attributes
    ----------
    rows : Batch
    target, weight : Tensor
    new, old : Tensor
        bool ``[N]``, rows to fit: new ones, and old ones that are replayed.
    test, guard : Tensor
        bool ``[N]``, rows that are not fitted: new ones, whose loss must be lower, and old ones.
    """

    rows: Batch
    target: Tensor
    weight: Tensor
    new: Tensor
    test: Tensor
    old: Tensor
    guard: Tensor

    @classmethod
    def of(cls, net: TranslatedPipeline, new: Any, valid: Any, replay: Any, seed: int) -> RefreshData:
        """Encode the rows; a fifth of the old rows is held out, and of the new ones without validation rows."""
        parts = [_encode(net, data) for data in (new, valid, replay) if data is not None]
        first = len(parts[0][1])
        last = 0 if replay is None else len(parts[-1][1])
        total = sum(len(part[1]) for part in parts)
        rows = Batch(*(torch.cat(blocks) for blocks in zip(*(part[0] for part in parts), strict=True)))
        target, weight = torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])
        at = torch.arange(total)
        is_new, is_old = at < first, at >= total - last
        test = ~(is_new | is_old) if valid is not None else _hold_out(is_new, target, seed)
        guard = _hold_out(is_old, target, seed) if last else is_old
        return cls(rows, target, weight, is_new & ~test, test, is_old & ~guard, guard)


@dataclass(frozen=True)
class Attempt:
    """Moved values, the rows that they are fitted on, and the number in the history."""

    number: int
    anchor: float
    replays: bool
    moved: MovedValues


def refresh(
    net: TranslatedPipeline,
    new: Any,
    *,
    replay: Any = None,
    valid: Any = None,
    anchor: float | None = None,
    seed: int = 0,
) -> History:
    """Move leaf values and the residual model with new rows; keep the change if it lowers the validation loss.

    Values move by Newton steps with a quadratic penalty towards the old ones, which weighs as much as ``anchor`` rows
    (``fit_groups``). The attempts are the anchors ``ANCHORS`` (or ``anchor``), each on the new rows alone and, with
    ``replay``, on both. An attempt must lower the loss of the validation rows by more than one standard error, and not
    raise that of the held-out old rows by more than one. Of these, the one with the lowest validation loss is
    installed. Rows that ``refresh`` itself held out of the new ones then take part in a last fit with its anchor, which
    the held-out old rows must pass too. If no attempt passes, the translation stays as it is.

    Raises
    ------
    BadInput
        Arguments that are no tuples of rows and targets, or a translation that takes no residual model.
    """
    began = time.perf_counter()
    _check(net, anchor, new=new, replay=replay, valid=valid)
    trial = _trial(net, new)
    data = RefreshData.of(trial, new, valid, replay, seed)
    extend_residual(trial, data.rows.numbers[data.new], _unit(trial, data))
    values, loss = MovableValues.of(trial, data.rows), pick(None, trial.head)
    metric = Metric(None, trial.head)

    results = [_result("translation", values.scores, data, metric, loss)]
    passed: list[Attempt] = []
    for strength in ANCHORS if anchor is None else (float(anchor),):
        for replays in (False, True) if replay is not None else (False,):
            moved = values.fit(data.target, _weights(data, replays=replays), loss, strength)
            name = f"anchor {strength:g}" + " with replay" * replays
            gain = _compare(loss, values.scores, moved.scores, data, data.test)
            reason = "" if gain.significant else "the loss is not lower by more than one standard error"
            if not reason and _harms_old_rows(values, moved, data, loss):
                reason = "the loss of old rows is higher by more than one standard error"
            results.append(_result(name, moved.scores, data, metric, loss, gain, reason))
            if not reason:
                passed.append(Attempt(len(results) - 1, strength, replays, moved))

    kept = min(passed, key=lambda attempt: results[attempt.number].loss or 0.0) if passed else None
    if kept is not None:
        moved = kept.moved
        if valid is None:
            last = values.fit(data.target, _weights(data, replays=kept.replays, tested=True), loss, kept.anchor)
            moved = moved if _harms_old_rows(values, last, data, loss) else last
        values.install(trial, moved)
        _install(net, trial)
    history = _history(results, 0 if kept is None else kept.number, metric, data, valid, began)
    net.record(history=history)
    return history


def _trial(net: TranslatedPipeline, new: Any) -> TranslatedPipeline:
    """A copy on the CPU, with the source's exact trees where these are untrained, and ids for new categories."""
    trial = deepcopy(net).cpu()
    if trial.exact_modules:
        install_pipeline(trial, FrozenPipeline(trial.program, dict(trial.exact_modules), trial.head))
    add_new_categories(trial, new[0])
    choose(trial.program, "tree_traversal")  # a few passes take less time than making the tables of other forms
    return trial


def _install(net: TranslatedPipeline, trial: TranslatedPipeline) -> None:
    program = trial.program.to(net.device())
    net.replace_program(program, origins=trial.origins, encoder=trial.encoder, head=trial.head)
    net.set_exact_modules({})
    net.configure(strategy_choices=choose(net.program, "auto"))
    net.mark_initial_weights()
    net.eval()


def _unit(net: TranslatedPipeline, data: RefreshData) -> Tensor:
    """Raw score per unit of a new residual model: 1, or for values the standard deviation of the target."""
    first = Batch(*(block[:1] for block in data.rows))
    outputs = net.run_in_slices(net.program, first).shape[1]
    if net.head.task != "regression" or net.head.link != "identity" or data.target.ndim != 1:
        return torch.ones(outputs)
    return torch.full((outputs,), float(data.target[data.new].std()) or 1.0)


def _weights(data: RefreshData, *, replays: bool, tested: bool = False) -> Tensor:
    """Weights of the rows to fit, 0 for the others."""
    fitted = data.new | (data.old if replays else torch.zeros_like(data.old)) | (data.test & tested)
    return data.weight * fitted


def _compare(loss: Loss, before: Tensor, after: Tensor, data: RefreshData, rows: Tensor) -> SignificanceTest:
    """Test on some rows whether the loss of ``after`` is lower."""
    return compare_losses(loss, before[rows], after[rows], data.target[rows], data.weight[rows].double())


def _harms_old_rows(values: MovableValues, moved: MovedValues, data: RefreshData, loss: Loss) -> bool:
    if not data.guard.any():
        return False
    return _compare(loss, moved.scores, values.scores, data, data.guard).significant


def _result(
    name: str,
    scores: Tensor,
    data: RefreshData,
    metric: Metric,
    loss: Loss,
    gain: SignificanceTest | None = None,
    reason: str = "",
) -> CandidateResult:
    rows, target, weight = scores[data.test], data.target[data.test], data.weight[data.test].double()
    return CandidateResult(
        name=name,
        metric=evaluate(metric, loss, lambda scores: scores, [((rows,), target, weight)]),
        loss=float(loss(rows, target, weight)),
        gain=None if gain is None else gain.gain,
        standard_error=None if gain is None else gain.standard_error,
        kept=False,
        reason=reason,
        rows=len(target),
    )


def _history(
    results: list[CandidateResult], kept: int, metric: Metric, data: RefreshData, valid: Any, began: float
) -> History:
    reason = "lowest validation loss" if kept else "no attempt passed"
    other = f"{results[kept].name} has the lower validation loss"
    return History(
        epochs=[],
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=float(results[0].metric or 0.0),
        best=float(results[kept].metric or 0.0),
        best_epoch=0,
        validated_on="held-out rows" if valid is None else "validation rows",
        seconds=time.perf_counter() - began,
        candidates=[
            replace(result, kept=number == kept, reason=reason if number == kept else result.reason or other)
            for number, result in enumerate(results)
        ],
        validation_rows=int(data.test.sum()),
    )


def _encode(net: TranslatedPipeline, data: Any) -> tuple[Batch, Tensor, Tensor]:
    X, y, *weight = data
    rows, target, weights = encode(net, X, y, *weight, training=True)
    assert target is not None
    return rows, target, torch.ones(len(target)) if weights is None else weights


def _hold_out(rows: Tensor, target: Tensor, seed: int) -> Tensor:
    """A fifth of some rows, bool ``[N]``."""
    chosen = held_out(target[rows], HELD_OUT, seed)
    if chosen is None:
        raise BadInput(f"{int(rows.sum())} rows are too few to hold a fifth of them out; give more rows")
    mask = torch.zeros_like(rows)
    mask[rows] = chosen
    return mask


def _check(net: TranslatedPipeline, anchor: float | None, **data: Any) -> None:
    for name, value in data.items():
        if (name == "new" or value is not None) and (not isinstance(value, tuple) or len(value) not in (2, 3)):
            raise BadInput(f"{name}= is a {type(value).__name__}; refresh takes (X, y) or (X, y, weight)")
    if anchor is not None and not 0 < anchor < float("inf"):
        raise BadInput(f"anchor={anchor!r}; give a finite number of rows above 0, or None to choose it")
    if not net.takes_residual_model():
        raise BadInput(
            "this translation cannot be refreshed: it has several targets, more than 1,000 columns, or predictions "
            "that do not come from raw scores. Fit the source again"
        )
