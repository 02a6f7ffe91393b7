"""A residual model beside the pipeline: what it reads, what it learns from, and how it becomes part of the translation."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from windtunnel.compiler.strategies import choose
from windtunnel.encode import Batch, CategoryColumn
from windtunnel.modules.ensembles.log_pool import LogProbabilities
from windtunnel.modules.linear.residual_model import Added, ResidualModel
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss, pick
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import by_blocks, of_any_rows
from windtunnel.program.head import Head
from windtunnel.program.origin import Origin
from windtunnel.program.program import IDS, NUMBERS, ProgramStep, Take
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.batches import Batches
from windtunnel.trainers.loop.callbacks import BestCheckpoint
from windtunnel.trainers.loop.module import DataModule, Loaders
from windtunnel.trainers.recipe import LARGEST_BATCH, Recipe
from windtunnel.trainers.residual.binning import bin_edges
from windtunnel.trainers.residual.effects import Combination, Rows, effects, shares
from windtunnel.trainers.residual.scored_rows import (
    Beside,
    Inputs,
    Scorer,
    apart,
    branch_head,
    in_parts,
    mapped,
    narrowed,
    raised,
    side_by_side,
)
from windtunnel.trainers.residual.screening import MOST_ROWS, screen
from windtunnel.trainers.residual.significance import collected, counted, gains, halves, helps, metric
from windtunnel.trainers.residual.tree_block_weights import Judged, gated

NAME = "residual"
Items = tuple[Any, ...]
"""Rows, targets, and weights where there are any."""
Score = Callable[[Tensor, Tensor], Tensor]
"""Numbers and ids to scores."""


class Stage(Protocol):
    """Trains a net on ready batches; calls ``finish`` in the end, whatever happens, with its best weights in place."""

    def __call__(
        self, net: Any, data: Loaders, recipe: Recipe, finish: Callable[[BestCheckpoint], None]
    ) -> BestCheckpoint:
        """Give what was kept."""
        ...


def grow(net: TranslatedPipeline, data: DataModule, recipe: Recipe, stage: Stage) -> BestCheckpoint | None:
    """Train a residual model beside a translation and make it part of it where it helps; None where no residual model can be had.

    One half of the judged rows has a part in choosing gates, columns and combinations, the other has none, so there
    have to be two. An error or an interrupt while training leaves the best residual model so far in place, and is raised again.
    """
    if not net.takes_residual_model() or data.validated_on == "training rows":
        return None
    generator = torch.Generator().manual_seed(recipe.seed)
    loss = of_any_rows(pick(recipe.loss, branch_head(net.head)))
    held = collected(data.valid)
    order = counted(held, generator)
    if len(order) < 2:
        return None
    judge = Metric.of(recipe, net)
    gates = _gates(net, halves(held, order), loss, judge, generator)
    scored = Scorer(net, gates)
    train, valid = scored(data.train), scored(data.valid)
    rows = valid.rows if isinstance(valid, Batches) else scored.of(held[0])
    learned, counts = counting(collected(train))
    plan = begin(net, learned, halves((rows, *held[1:]), order), loss, recipe.residual_rank, generator)
    if plan is None:
        return None
    plan = plan.over(counts)
    finish = Finish(net, plan, gates, scored, recipe, data.valid, valid)
    return stage(plan.beside, Loaders(plan.learned_from(train), plan.judged_by(valid)), recipe, finish)


class Finish:
    """Leaves a translation with what is best on the judged rows, once a residual model beside it is trained.

    That is the translation as it came, the trees of the source, gated ones, or these and the residual model, which has to help
    on the untouched rows too. What comes first in this list wins where the metric is the same.

    Parameters
    ----------
    net : TranslatedPipeline
    plan : Plan
    gates : dict
    scored : Scorer
        With these gates.
    recipe : Recipe
    rows, valid : loader
        The judged rows, and the same with scores.
    """

    def __init__(
        self,
        net: TranslatedPipeline,
        plan: Plan,
        gates: dict[int, HardTrees],
        scored: Scorer,
        recipe: Recipe,
        rows: Any,
        valid: Any,
    ) -> None:
        self.net, self.plan, self.gates, self.scored = net, plan, gates, scored
        self.recipe, self.rows, self.valid = recipe, rows, valid
        self.start = deepcopy(plan.beside.state_dict())
        # What stands for the pipeline, where that is not the translation as it came.
        sources = [Scorer(net, {})] if net.exact_modules and gates else []
        self.others = [*sources, scored] if net.exact_modules or gates else []

    def __call__(self, keeper: BestCheckpoint) -> None:
        """Choose, and tell the keeper the metric of what came and of what is chosen."""
        net, plan, judge = self.net, self.plan, keeper.judge
        if not keeper.epochs:
            return
        if keeper.best_epoch and not plan.holds(judge, plan.combined, plan.whole):
            keeper.reject()
            plan.beside.load_state_dict(self.start)
        adds = len(plan.residual.combinations) > 0 or keeper.best_epoch > 0
        adds = adds and plan.holds(judge, plan.alone, plan.whole if keeper.best_epoch else plan.combined)
        keeper.given = best = self._worth(judge, None)
        kept = None
        for scored in self.others:
            value = self._worth(judge, scored)
            if judge.better(value, best):
                best, kept = value, scored
        if adds and judge.better(keeper.best_metric, best):
            settle(net, self.gates)
            attach(net, plan.residual, plan.inputs)
            return
        keeper.best_epoch, keeper.best_metric = 0, best
        if kept is not None:
            settle(net, self.gates if kept is self.scored else {})

    def _worth(self, judge: Metric, scored: Scorer | None) -> float:
        """The metric of the pipeline with the trees of a scorer, or of the translation as it came."""
        net, plan = self.net, self.plan
        if net.head.link in PROBABILITIES and judge.name != "loss":
            # As they are answered: those of a residual model are kept off 0, which is a gain of its own in the log loss.
            program = net.program if scored is None else scored.program
            return metric(Metric.of(self.recipe, net), plan.loss, partial(self.scored.answers, program), self.rows)
        if scored is None and self.others:
            return metric(judge, plan.loss, self.scored.as_given, self.rows)
        return metric(judge, plan.loss, plan.alone, self.valid if scored in (None, self.scored) else scored(self.rows))


def or_source(net: TranslatedPipeline, data: DataModule, recipe: Recipe) -> Callable[[BestCheckpoint], None]:
    """What ends a joint training that a residual model was not possible for: the source, where it is better on judged rows.

    Its trees are exact, and the soft ones that are trained start a little below them.
    """
    head, exact, judge = net.head, net.exact_modules, Metric.of(recipe, net)
    if not exact or data.validated_on == "training rows" or (head.link in PROBABILITIES and judge.name == "loss"):
        return lambda keeper: None
    program = deepcopy(net.program.with_modules(exact)).eval()
    loss = pick(recipe.loss, head)

    def answers(method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        return net.run_in_slices(partial(program.output, method), Batch(numbers, ids))

    own = None if judge.method is None else partial(answers, judge.method)
    worth = metric(judge, loss, partial(answers, "scores"), data.valid, own)

    def finish(keeper: BestCheckpoint) -> None:
        if keeper.epochs and keeper.judge.better(worth, keeper.best_metric):
            keeper.best_epoch, keeper.best_metric = 0, worth
            net.replace_program(program, head=head, exact_modules=exact)
            settle(net, {})

    return finish


def _gates(
    net: TranslatedPipeline, held: list[Items], loss: Loss, judge: Metric, generator: torch.Generator
) -> dict[int, HardTrees]:
    """The last step as gated trees, where it is boosted trees and closing them in part clearly helps.

    The gates are learned on one half of the judged rows and have to help on the other, as a residual model has to.
    """
    last = len(net.program.steps) - 1
    trees: Any = net.exact_modules.get(last, net.program.steps[last].module)
    if not isinstance(trees, HardTrees):
        return {}
    trees, program = deepcopy(trees).cpu(), Scorer(net, {}).program
    inputs = [net.run_in_slices(partial(program.inputs_of, last), half[0]) for half in held]
    found = gated(trees, Judged(inputs[0], *held[0][1:]), by_blocks(loss), generator)
    if found is None:
        return {}
    with torch.no_grad():
        better = helps(judge, loss, trees(inputs[1]), found(inputs[1]), *held[1][1:])
    return {last: found} if better else {}


@dataclass(frozen=True)
class Plan:
    """A residual model whose combinations are learned and whose columns add nothing yet, and the rows for the rest.

    Attributes
    ----------
    beside : Beside
    inputs : Inputs
        What the residual model reads.
    loss : callable
    own : Tensor
        ``[N, K]``, what the combinations add to the scores of each training row, that row left out.
    untouched : tuple of Batch, Tensor, Tensor or None
        Narrowed rows with scores, targets, weights: judged rows that had no part in choosing the above.
    """

    beside: Beside
    inputs: Inputs
    loss: Loss
    own: Tensor
    untouched: Items

    @property
    def residual(self) -> ResidualModel:
        """The residual model itself."""
        return self.beside.residual

    def learned_from(self, loader: Any) -> Any:
        """Training batches, whose scores have what the combinations add.

        A row in memory was there when these were learned, and gets what they would add without it; to rows of a stream
        it hardly matters, as the combinations are learned from a sample.
        """
        if type(loader) is not Batches:
            return self.judged_by(loader)
        return mapped(loader, lambda rows: raised(self.narrowed(rows), self.own))

    def over(self, counts: Tensor | None) -> Plan:
        """The plan for all training rows, of which it was learned on those that count, bool ``[N]``, if not on all.

        To the others, of weight 0, it makes no difference what the combinations add.
        """
        if counts is None:
            return self
        own = self.own.new_zeros(len(counts), self.own.shape[1])
        own[counts] = self.own
        return replace(self, own=own)

    def judged_by(self, loader: Any) -> Any:
        """Validation batches, whose scores have what the combinations add."""

        def change(rows: Batch) -> Batch:
            rows = self.narrowed(rows)
            return raised(rows, self.combined(*rows) - self.alone(*rows))

        return mapped(loader, change)

    def narrowed(self, rows: Batch) -> Batch:
        """Rows with scores, with no more columns than the residual model reads."""
        return narrowed(rows, self.inputs, len(self.residual.unit))

    def alone(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores of the pipeline, for narrowed rows."""
        return apart(Batch(numbers, ids), len(self.residual.unit))[1]

    def combined(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores of the pipeline and of the combinations."""
        rows, scores = apart(Batch(numbers, ids), len(self.residual.unit))
        return scores + in_parts(
            lambda part: self.residual.by_combinations(self.residual.codes(part)), side_by_side(rows)
        )

    def whole(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores of the pipeline and of the residual model."""
        rows, scores = apart(Batch(numbers, ids), len(self.residual.unit))
        return scores + in_parts(self.residual, side_by_side(rows))

    def combining(self, combinations: list[Combination], seen: Rows, half: Items) -> Plan:
        """The plan with these combinations, where they lower the loss of the untouched rows clearly.

        Their effects are learned on the training rows, and how much of each counts on the first half of the judged
        rows.

        Parameters
        ----------
        combinations : list of Combination
            Of columns that the residual model reads.
        seen : Rows
            Training rows.
        half : Items
            Narrowed rows with scores, targets, weights.
        """
        unit = self.residual.unit
        tables = [effect.table for effect in effects(seen, combinations)]

        def apart_and_parts(rows: Batch) -> tuple[Tensor, Tensor]:
            rows, scores = apart(rows, len(unit))
            codes = in_parts(self.residual.codes, side_by_side(rows))
            parts = [table[one.at(codes)] for one, table in zip(combinations, tables, strict=True)]
            return scores, torch.stack(parts, dim=2) * unit.unsqueeze(1)

        scores, parts = apart_and_parts(half[0])
        share = shares(by_blocks(self.loss), self._size_of_loss(scores, *half[1:]), scores, parts, *half[1:])
        scores, parts = apart_and_parts(self.untouched[0])
        with torch.no_grad():
            better = gains(self.loss, scores, scores + parts @ share, *self.untouched[1:])
        if not better.clear():
            return self
        self.residual.combine(
            [one.columns for one in combinations], [b * t for b, t in zip(share, tables, strict=True)]
        )
        own = torch.zeros_like(seen.residual)
        for b, effect in zip(share, effects(seen, combinations), strict=True):
            own += b * effect.own
        return replace(self, own=own * unit)

    def _size_of_loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
        """What the loss is counted in: 1 where it is that of log-odds, and where scores are values its own size."""
        if bool((self.residual.unit == 1).all()):
            return 1.0
        return max(float(by_blocks(self.loss)(scores, target, weight)), torch.finfo(scores.dtype).tiny)

    def holds(self, judge: Metric, without: Score, having: Score) -> bool:
        """Whether scores are better on the untouched rows too."""
        rows, *rest = self.untouched
        with torch.no_grad():
            return helps(judge, self.loss, without(*rows), having(*rows), *rest)


def counting(items: Items) -> tuple[Items, Tensor | None]:
    """The rows of a weight above 0, and which they are, bool ``[N]``; None where that is all, or none of a sample."""
    if len(items) == 2 or bool((counts := items[2] > 0).all()) or not counts.any():
        return items, None
    rows, *rest = items
    return (Batch(rows.numbers[counts], rows.ids[counts]), *(one[counts] for one in rest)), counts


def begin(
    net: TranslatedPipeline, items: Items, held: list[Items], loss: Loss, rank: int, generator: torch.Generator
) -> Plan | None:
    """Choose what a residual model shall read, and learn its combinations; None where no column has anything to say.

    Parameters
    ----------
    items : Items
        Training rows with scores, none of weight 0.
    held : pair of Items
        Judged rows with scores: those of the first have a part in choosing, those of the other none.
    """
    head = branch_head(net.head)
    half, other = held
    outputs = items[0].numbers.shape[1] - len(net.encoder.numbers)
    rows, scores = apart(items[0], outputs)
    edges = bin_edges(rows.numbers)
    sizes = [int(torch.isfinite(row).sum()) + 2 for row in edges]
    sizes += [len(category.vocabulary) for category in net.encoder.categories]
    unit = _unit(head, scores, items[1])
    probe = ResidualModel.zero(edges, sizes, unit, rank=0, generator=generator)

    def read(rows: Batch, target: Tensor, weight: Tensor | None = None) -> Rows:
        rows, scores = apart(rows, outputs)
        return Rows(in_parts(probe.codes, side_by_side(rows)), _residual(loss, scores, target, weight) * unit)

    count = len(edges)
    offered = [*range(count), *(count + position for position in _one_each(net.encoder.categories))]
    seen, judged = read(*items), read(*half)
    slope = seen.residual.square().mean(dim=0).sqrt().clamp_min(torch.finfo(unit.dtype).tiny)
    seen, judged = (Rows(one.codes, one.residual / slope) for one in (seen, judged))
    found = screen(seen.some(MOST_ROWS, generator), judged, sizes, offered)
    if not found.columns:
        return None
    inputs = Inputs([c for c in found.columns if c < count], [c - count for c in found.columns if c >= count])
    size = [sizes[column] for column in found.columns]
    residual = ResidualModel.zero(edges[inputs.numbers], size, unit, rank=rank, generator=generator)
    place = {column: position for position, column in enumerate(found.columns)}
    combinations = [replace(one, columns=tuple(place[column] for column in one.columns)) for one in found.combinations]
    plan = Plan(
        Beside(residual, head, float(slope.square().mean().sqrt())),
        inputs,
        loss,
        torch.zeros_like(scores),
        (narrowed(other[0], inputs, outputs), *other[1:]),
    )
    if not combinations:
        return plan
    seen = Rows(seen.codes[:, found.columns], seen.residual)
    return plan.combining(combinations, seen, (narrowed(half[0], inputs, outputs), *half[1:]))


def settle(net: TranslatedPipeline, gates: dict[int, HardTrees]) -> None:
    """Put the trees of the source, or gated ones, in the place of the soft ones; from now on they stay."""
    for index, module in {**net.exact_modules, **gates}.items():
        net.replace_modules({index: module})
    if net.exact_modules or gates:
        net.configure(strategy_choices=choose(net.program, "auto"))
    net.set_exact_modules({})
    net.program.requires_grad_(False)
    net.mark_initial_weights()
    net.eval()


def attach(net: TranslatedPipeline, residual: ResidualModel, inputs: Inputs) -> None:
    """Make a residual model part of a settled translation, as two further steps."""
    outputs = range(len(residual.unit))
    if net.head.link in PROBABILITIES:
        _append(net, LogProbabilities(), [_last(net, outputs)])
    net.replace_head(branch_head(net.head))
    scores = _last(net, outputs)
    takes = ((NUMBERS, inputs.numbers), (IDS, inputs.ids))
    _append(net, residual, [Take(slot, columns) for slot, columns in takes if columns])
    _append(net, Added(), [scores, _last(net, outputs)])
    residual.cast(getattr(torch, net.encoder.dtype))
    residual.requires_grad_()
    net.mark_initial_weights()
    for name in ("weight", "factors", "cross"):
        net.initial_weights[f"steps.{len(net.program.steps) - 2}.module.{name}"].zero_()
    net.eval()


def _last(net: TranslatedPipeline, columns: range) -> Take:
    """The answer of the last step so far."""
    return Take(1 + len(net.program.steps), columns)


def _append(net: TranslatedPipeline, module: Any, takes: list[Take]) -> None:
    net.append_step(ProgramStep(module, takes, NAME), Origin(NAME, ""))


def _one_each(categories: list[CategoryColumn]) -> list[int]:
    """Of several ids of one raw column, the position of the one with the most categories."""
    most: dict[int, int] = {}
    for position, category in enumerate(categories):
        known = most.setdefault(category.column, position)
        if len(category.vocabulary) > len(categories[known].vocabulary):
            most[category.column] = position
    return sorted(most.values())


def _unit(head: Head, scores: Tensor, target: Tensor) -> Tensor:
    """What a residual model of one adds to each raw score: 1, or the spread of the residuals where scores are values."""
    # Targets that do not fit the scores are for the loss to reject.
    if head.task != "regression" or head.link != "identity" or len(scores) < 2 or target.numel() != scores.numel():
        return scores.new_ones(scores.shape[1])
    spread = (target.reshape(scores.shape) - scores).std(dim=0)
    return torch.where(spread > 0, spread, torch.ones_like(spread))


def _residual(loss: Loss, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The descent of the loss of each row by its scores, ``[N, K]``.

    Taken a batch after the other: a loss of one's own may compare every row with every other.
    """
    parts = []
    for start in range(0, len(scores), LARGEST_BATCH):
        rows = slice(start, start + LARGEST_BATCH)
        part = scores[rows].detach().clone().requires_grad_()
        value = loss(part, target[rows], None if weight is None else weight[rows])
        parts.append(-torch.autograd.grad(value, part)[0] * len(part))
    return torch.cat(parts)
