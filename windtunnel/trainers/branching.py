"""A branch beside the pipeline: what it reads, what it learns from, and how it becomes part of the translation."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from windtunnel.assemble import Origin
from windtunnel.encode import Batch, CategoryColumn
from windtunnel.head import Head
from windtunnel.modules.branch import Added, Branch
from windtunnel.modules.log_pool import LogProbabilities
from windtunnel.modules.program import IDS, NUMBERS, ProgramStep, Take
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.trainers.beside import (
    Beside,
    Inputs,
    Scorer,
    apart,
    branch_head,
    mapped,
    narrowed,
    side_by_side,
)
from windtunnel.trainers.binning import bin_edges
from windtunnel.trainers.callbacks import Keeper
from windtunnel.trainers.data import Batches
from windtunnel.trainers.evidence import clear, collected, gains, halves, metric
from windtunnel.trainers.gating import Judged, gated
from windtunnel.trainers.losses import Loss, pick
from windtunnel.trainers.metrics import Judge
from windtunnel.trainers.module import DataModule, Loaders
from windtunnel.trainers.recipe import LARGEST_BATCH, Recipe
from windtunnel.trainers.screening import Rows, screen

if TYPE_CHECKING:
    from windtunnel.translation import Translation

NAME = "branch"
CELLS = 2**18
"""Rows of the table that all pairs of values share."""
Items = tuple[Any, ...]
"""Rows, targets, and weights where there are any."""


class Stage(Protocol):
    """Trains a net on ready batches; calls ``finish`` in the end, whatever happens, with its best weights in place."""

    def __call__(self, net: Any, data: Loaders, recipe: Recipe, finish: Callable[[Keeper], None]) -> Keeper:
        """Give what was kept."""
        ...


def grow(net: Translation, data: DataModule, recipe: Recipe, stage: Stage) -> Keeper | None:
    """Train a branch beside a translation and make it part of it where it helps; None where no branch can be had.

    One half of the judged rows has a part in choosing gates, columns and pairs, the other has none. An error or an
    interrupt while training leaves the best branch so far in place, and is raised again.
    """
    if not net.may_branch() or data.judged_on == "training rows":
        return None
    generator = torch.Generator().manual_seed(recipe.seed)
    loss = pick(recipe.loss, branch_head(net.head))
    held = collected(data.valid)
    order = torch.randperm(len(held[1]), generator=generator)
    gates = _gates(net, halves(held, order), loss)
    scored = Scorer(net, gates)
    train, valid = scored(data.train), scored(data.valid)
    rows = valid.rows if isinstance(valid, Batches) else scored.of(held[0])
    plan = begin(net, collected(train), halves((rows, *held[1:]), order), loss, recipe.branch_rank, generator)
    if plan is None:
        return None

    def finish(keeper: Keeper) -> None:
        if not keeper.epochs:
            return
        if keeper.best_epoch and not plan.holds(keeper.judge):
            keeper.reject()
        # Epoch 0 has the source's own trees, or gated ones: the soft ones that came may be better, by chance.
        if net.exact or gates:
            keeper.given = metric(keeper.judge, loss, scored.as_given, data.valid)
        if not keeper.judge.better(keeper.best_metric, keeper.start):
            keeper.best_epoch, keeper.best_metric = 0, keeper.start
            return
        settle(net, gates)
        if keeper.best_epoch:
            attach(net, plan.beside.branch, plan.inputs)

    return stage(plan.beside, Loaders(plan.narrowed(train), plan.narrowed(valid)), recipe, finish)


def _gates(net: Translation, held: list[Items], loss: Loss) -> dict[int, HardTrees]:
    """The last step as gated trees, where it is boosted trees and closing them in part clearly helps.

    The gates are learned on one half of the judged rows and have to lower the loss of the other by more than a
    standard error, as a branch has to.
    """
    last = len(net.program.steps) - 1
    trees: Any = net.exact.get(last, net.program.steps[last].module)
    if not isinstance(trees, HardTrees):
        return {}
    trees, program = deepcopy(trees).cpu(), Scorer(net, {}).program
    inputs = [net._in_slices(partial(program.inputs_of, last), half[0]) for half in held]
    found = gated(trees, Judged(inputs[0], *held[0][1:]), loss)
    if found is None:
        return {}
    with torch.no_grad():
        better = gains(loss, trees(inputs[1]), found(inputs[1]), *held[1][1:])
    return {last: found} if clear(better) else {}


@dataclass(frozen=True)
class Plan:
    """A branch that adds nothing yet, what it reads, and the judged rows that had no part in choosing that.

    Attributes
    ----------
    beside : Beside
    inputs : Inputs
    loss : callable
    untouched : tuple of Batch, Tensor, Tensor or None
        Narrowed rows with scores, targets, weights.
    """

    beside: Beside
    inputs: Inputs
    loss: Loss
    untouched: tuple[Any, ...]

    def narrowed(self, loader: Any) -> Any:
        """Batches with scores, with no more columns than the branch reads."""
        return mapped(loader, lambda rows: narrowed(rows, self.inputs, len(self.beside.branch.unit)))

    def holds(self, judge: Judge) -> bool:
        """Whether the branch helps on the untouched rows too.

        The metric is no worse, and the loss lower by more than a standard error, over ``GROUPS`` groups of rows.
        """
        outputs = len(self.beside.branch.unit)

        def alone(numbers: Tensor, ids: Tensor) -> Tensor:
            return numbers[:, -outputs:]

        without, with_branch = (metric(judge, self.loss, one, [self.untouched]) for one in (alone, self.beside))
        rows, *rest = self.untouched
        with torch.no_grad():
            better = gains(self.loss, alone(*rows), self.beside(*rows), *rest)
        return clear(better) and not judge.better(without, with_branch)


def begin(
    net: Translation, items: Items, held: list[Items], loss: Loss, rank: int, generator: torch.Generator
) -> Plan | None:
    """Choose what a branch shall read, and make one that adds nothing yet; None where no column has anything to say.

    Parameters
    ----------
    items : Items
        Training rows with scores.
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
    probe = Branch.zero(edges, sizes, [], unit, rank=0, cells=0, generator=generator)

    def read(rows: Batch, target: Tensor, weight: Tensor | None = None) -> Rows:
        rows, scores = apart(rows, outputs)
        return Rows(probe.codes(side_by_side(rows)), _residual(loss, scores, target, weight)).some(generator)

    count = len(edges)
    offered = [*range(count), *(count + position for position in _one_each(net.encoder.categories))]
    seen = read(*items)
    found = screen(seen, read(*half), sizes, offered, CELLS)
    if not found.columns:
        return None
    inputs = Inputs([c for c in found.columns if c < count], [c - count for c in found.columns if c >= count])
    branch = Branch.zero(
        edges[inputs.numbers],
        [sizes[column] for column in found.columns],
        found.pairs,
        unit,
        rank=rank,
        cells=CELLS,
        generator=generator,
    )
    slope = float((seen.residual * unit).square().mean().sqrt())
    return Plan(Beside(branch, head, slope), inputs, loss, (narrowed(other[0], inputs, outputs), *other[1:]))


def settle(net: Translation, gates: dict[int, HardTrees]) -> None:
    """Put the trees of the source, or gated ones, in the place of the soft ones; from now on they stay."""
    for index, module in {**net.exact, **gates}.items():
        net.program.steps[index].module = module
    net.exact = {}
    net.program.requires_grad_(False)
    net.mark_start()
    net.eval()


def attach(net: Translation, branch: Branch, inputs: Inputs) -> None:
    """Make a branch part of a settled translation, as two further steps."""
    outputs = range(len(branch.unit))
    if net.head.link == "probabilities":
        _append(net, LogProbabilities(), [_last(net, outputs)])
    net.head = branch_head(net.head)
    scores = _last(net, outputs)
    takes = ((NUMBERS, inputs.numbers), (IDS, inputs.ids))
    _append(net, branch, [Take(slot, columns) for slot, columns in takes if columns])
    _append(net, Added(), [scores, _last(net, outputs)])
    branch.cast(getattr(torch, net.encoder.dtype))
    net.mark_start()
    for name in ("weight", "factors", "cross"):
        net.start[f"steps.{len(net.program.steps) - 2}.module.{name}"].zero_()
    net.eval()


def _last(net: Translation, columns: range) -> Take:
    """The answer of the last step so far."""
    return Take(1 + len(net.program.steps), columns)


def _append(net: Translation, module: Any, takes: list[Take]) -> None:
    net.program.steps.append(ProgramStep(module, takes, NAME))
    net.origins.append(Origin(NAME, ""))


def _one_each(categories: list[CategoryColumn]) -> list[int]:
    """Of several ids of one raw column, the position of the one with the most categories."""
    most: dict[int, int] = {}
    for position, category in enumerate(categories):
        known = most.setdefault(category.column, position)
        if len(category.vocabulary) > len(categories[known].vocabulary):
            most[category.column] = position
    return sorted(most.values())


def _unit(head: Head, scores: Tensor, target: Tensor) -> Tensor:
    """What a branch of one adds to each raw score: 1, or the spread of the residuals where scores are values."""
    # Targets that do not fit the scores are for the loss to refuse.
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
