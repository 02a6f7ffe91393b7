"""A branch beside the pipeline: what it reads, what it learns from, and how it becomes part of the translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from windtunnel.assemble import Origin
from windtunnel.encode import Batch, CategoryColumn
from windtunnel.head import Head
from windtunnel.modules.branch import Added, Branch, LogProbabilities
from windtunnel.modules.program import IDS, NUMBERS, Program, ProgramStep, Take
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.trainers.callbacks import Keeper
from windtunnel.trainers.data import Batches
from windtunnel.trainers.gating import Judged, gated
from windtunnel.trainers.losses import Loss, pick
from windtunnel.trainers.metrics import Judge
from windtunnel.trainers.module import DataModule, Loaders
from windtunnel.trainers.recipe import LARGEST_BATCH, Recipe
from windtunnel.trainers.screening import MOST_ROWS, Rows, screen

if TYPE_CHECKING:
    from windtunnel.translation import Translation

NAME = "branch"
BINS = 32
"""Bins of a number, about as many; of fewer values each has its own."""
CELLS = 2**18
"""Rows of the table that all pairs of values share."""
GROUPS = 100
"""Groups of rows whose mean losses tell how sure the gain of a branch is."""
USUAL_SLOPE = 0.4
"""The slope of the log loss where a fifth of the rows is positive: sqrt(0.2 (1 - 0.2))."""


class Stage(Protocol):
    """Trains a net on ready batches; calls ``finish`` in the end, whatever happens, with its best weights in place."""

    def __call__(self, net: Any, data: Loaders, recipe: Recipe, finish: Callable[[Keeper], None]) -> Keeper:
        """Give what was kept."""
        ...


def grow(net: Translation, data: DataModule, recipe: Recipe, stage: Stage) -> Keeper | None:
    """Train a branch beside a translation and make it part of it where it helps; None where no branch can be had.

    An error or an interrupt while training leaves the best branch so far in place, and is raised again.
    """
    if not net.may_branch() or data.judged_on == "training rows":
        return None
    generator = torch.Generator().manual_seed(recipe.seed)
    loss = pick(recipe.loss, branch_head(net.head))
    halves = _halves(_collected(data.valid), generator)
    gates = _gates(net, halves, loss)
    scored = Scorer(net, gates)
    train, valid = scored(data.train), scored(data.valid)
    plan = begin(net, train, tuple((scored.of(rows), *rest) for rows, *rest in halves), recipe, generator)
    if plan is None:
        return None

    def finish(keeper: Keeper) -> None:
        if not keeper.epochs:
            return
        # The soft trees that came may be better than those of the source, by chance.
        if net.exact or gates:
            keeper.given = _metric(keeper.judge, loss, net, data.valid)
        if keeper.best_epoch == 0:
            return
        if plan.holds(keeper.judge) and not keeper.judge.better(keeper.start, keeper.best_metric):
            attach(net, gates, plan.beside.branch, plan.inputs)
        else:
            keeper.reject()

    return stage(plan.beside, Loaders(plan.narrowed(train), plan.narrowed(valid)), recipe, finish)


class Beside(nn.Module):
    """A branch on rows whose last numbers are the scores of the pipeline, which stays as it is.

    Shape
    -----
    numbers ``[B, n + K]``, ids int64 ``[B, m]`` -> ``[B, K]``

    Parameters
    ----------
    branch : Branch
    head : Head
    slope : float
        Root mean square of the loss's slope by the branch, over rows and raw scores; weight decay is relative to it.
    """

    def __init__(self, branch: Branch, head: Head, slope: float) -> None:
        super().__init__()
        self.branch, self.head = branch, head
        self.decay_scale = slope / USUAL_SLOPE

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The scores of the pipeline plus those of the branch."""
        rows, scores = _apart(Batch(numbers, ids), len(self.branch.unit))
        return scores + self.branch(_inputs(rows))  # type: ignore[no-any-return]


class Mapped:
    """A loader of encoded batches, each changed on its way."""

    def __init__(self, loader: Any, change: Callable[[Batch], Batch]) -> None:
        self.loader, self.change = loader, change

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on."""
        self.loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        for rows, *rest in self.loader:
            yield self.change(rows), *rest


class Scorer:
    """Puts the scores of a pipeline beside the numbers of its rows: once where they lie in memory, else as they come.

    The trees are as the source has them, or gated, in the place of the soft ones; other steps are those of the
    translation.
    """

    def __init__(self, net: Translation, gates: dict[int, HardTrees]) -> None:
        self.net = net
        modules: dict[int, Any] = {**net.exact, **gates}
        steps = [
            ProgramStep(modules[index], list(step.takes), step.name, step.refuses) if index in modules else step  # type: ignore[arg-type]
            for index, step in enumerate(net.program.steps)
        ]
        self.program = Program(steps).eval()  # type: ignore[arg-type]

    def __call__(self, loader: Any) -> Any:
        """The same batches with scores: those that the loader itself brings, or the program's."""
        known = getattr(loader, "scores", None)
        return mapped(loader, self.of if known is None else lambda rows: _beside(rows, known))

    def of(self, rows: Batch) -> Batch:
        """Rows with scores."""
        scores = self.net._in_slices(self.program, rows)
        return _beside(rows, LogProbabilities()(scores) if self.net.head.link == "probabilities" else scores)


@dataclass(frozen=True)
class Inputs:
    """The columns of a batch that a branch reads: positions among its numbers, and among its ids."""

    numbers: list[int]
    ids: list[int]


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
        return mapped(loader, lambda rows: _narrowed(rows, self.inputs, len(self.beside.branch.unit)))

    def holds(self, judge: Judge) -> bool:
        """Whether the branch helps on the untouched rows too.

        The metric is no worse, and the loss lower by more than a standard error, over ``GROUPS`` groups of rows.
        """
        outputs = len(self.beside.branch.unit)

        def alone(numbers: Tensor, ids: Tensor) -> Tensor:
            return numbers[:, -outputs:]

        without, with_branch = (_metric(judge, self.loss, one, [self.untouched]) for one in (alone, self.beside))
        rows, *rest = self.untouched
        with torch.no_grad():
            gains = _gains(self.loss, alone(*rows), self.beside(*rows), *rest)
        return _clear(gains) and not judge.better(without, with_branch)


def begin(
    net: Translation, train: Any, halves: tuple[tuple[Any, ...], ...], recipe: Recipe, generator: torch.Generator
) -> Plan | None:
    """Choose what a branch shall read, and make one that adds nothing yet; None where no column has anything to say.

    Parameters
    ----------
    train : loader
        Of batches with scores.
    halves : pair of (rows with scores, targets, and weights where there are any)
        Judged rows: those of the first have a part in choosing, those of the other none.
    """
    head = branch_head(net.head)
    loss = pick(recipe.loss, head)
    items, (half, other) = _collected(train), halves
    outputs = items[0].numbers.shape[1] - len(net.encoder.numbers)
    rows, scores = _apart(items[0], outputs)
    edges = _edges(rows.numbers)
    sizes = [int(torch.isfinite(row).sum()) + 2 for row in edges]
    sizes += [len(category.vocabulary) for category in net.encoder.categories]
    unit = _unit(head, scores, items[1])
    probe = Branch.zero(edges, sizes, [], unit, rank=0, cells=0, generator=generator)

    def read(rows: Batch, target: Tensor, weight: Tensor | None = None) -> Rows:
        rows, scores = _apart(rows, outputs)
        return Rows(probe.codes(_inputs(rows)), _residual(loss, scores, target, weight)).some(generator)

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
        rank=recipe.branch_rank,
        cells=CELLS,
        generator=generator,
    )
    slope = float((seen.residual * unit).square().mean().sqrt())
    return Plan(Beside(branch, head, slope), inputs, loss, (_narrowed(other[0], inputs, outputs), *other[1:]))


def branch_head(head: Head) -> Head:
    """The head behind a branch, which adds to scores that are no probabilities."""
    return replace(head, link="softmax", loss="softmax") if head.link == "probabilities" else head


def _gates(net: Translation, halves: tuple[tuple[Any, ...], ...], loss: Loss) -> dict[int, HardTrees]:
    """The last step as gated trees, where it is boosted trees and closing them in part clearly helps.

    The gates are learned on the first half of the judged rows and have to lower the loss of the other half by more
    than a standard error, as a branch has to.
    """
    last = len(net.program.steps) - 1
    trees = net.exact.get(last, net.program.steps[last].module)
    if not isinstance(trees, HardTrees):
        return {}
    with torch.no_grad():
        inputs = [net.program.inputs_of(last, *half[0]) for half in halves]
    found = gated(trees, Judged(inputs[0], *halves[0][1:]), loss)
    if found is None:
        return {}
    with torch.no_grad():
        gains = _gains(loss, trees(inputs[1]), found(inputs[1]), *halves[1][1:])
    return {last: found} if _clear(gains) else {}


def attach(net: Translation, gates: dict[int, HardTrees], branch: Branch, inputs: Inputs) -> None:
    """Make a branch part of a translation, as two further steps; the others are the source's from now on, and stay."""
    for index, module in {**net.exact, **gates}.items():
        net.program.steps[index].module = module
    net.exact = {}
    net.program.requires_grad_(False)
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


def mapped(loader: Any, change: Callable[[Batch], Batch]) -> Any:
    """The batches of a loader, changed at once where they lie in memory, else as they come."""
    if type(loader) is not Batches:
        return Mapped(loader, change)
    return loader._with(change(loader.rows), loader.target, loader.weight, shuffle=loader.shuffle)


def _beside(rows: Batch, scores: Tensor) -> Batch:
    return Batch(torch.cat([rows.numbers, scores.to(rows.numbers)], dim=1), rows.ids)


def _apart(rows: Batch, outputs: int) -> tuple[Batch, Tensor]:
    """Rows with scores as rows and scores."""
    return Batch(rows.numbers[:, :-outputs], rows.ids), rows.numbers[:, -outputs:]


def _narrowed(rows: Batch, inputs: Inputs, outputs: int) -> Batch:
    rows, scores = _apart(rows, outputs)
    return Batch(torch.cat([rows.numbers[:, inputs.numbers], scores], dim=1), rows.ids[:, inputs.ids])


def _inputs(rows: Batch) -> Tensor:
    """What a branch takes: numbers and ids side by side."""
    return torch.cat([rows.numbers, rows.ids.to(rows.numbers.dtype)], dim=1)


def _collected(loader: Any) -> tuple[Any, ...]:
    """Rows, targets and, where there are any, weights: all that lie in memory, or the first of a loader."""
    if type(loader) is Batches:
        return (loader.rows, loader.target) if loader.weight is None else (loader.rows, loader.target, loader.weight)
    parts, count = [], 0
    for item in loader:
        parts.append(item)
        count += len(item[1])
        if count >= MOST_ROWS:
            break
    rows, *rest = zip(*parts, strict=True)
    blocks = Batch(*(torch.cat(list(blocks)) for blocks in zip(*rows, strict=True)))
    return blocks, *(torch.cat(list(one)) for one in rest)


def _halves(items: tuple[Any, ...], generator: torch.Generator) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Two random halves of collected rows."""
    order = torch.randperm(len(items[1]), generator=generator)
    parts = order.tensor_split(2)

    def part(index: Tensor) -> tuple[Any, ...]:
        return Batch(items[0].numbers[index], items[0].ids[index]), *(one[index] for one in items[1:])

    return part(parts[0]), part(parts[1])


def _one_each(categories: list[CategoryColumn]) -> list[int]:
    """Of several ids of one raw column, the position of the one with the most categories."""
    most: dict[int, int] = {}
    for position, category in enumerate(categories):
        known = most.setdefault(category.column, position)
        if len(category.vocabulary) > len(categories[known].vocabulary):
            most[category.column] = position
    return sorted(most.values())


def _gains(loss: Loss, before: Tensor, after: Tensor, *rest: Tensor) -> Tensor:
    """By how much the loss of scores is lower afterwards, in each of ``GROUPS`` groups of rows, or row by row.

    ``rest`` are targets and, where there are any, weights.
    """
    parts = [one.tensor_split(min(GROUPS, len(before))) for one in (before, after, *rest)]
    gains = [
        loss(first, target, *(weight or [None])) - loss(second, target, *(weight or [None]))
        for first, second, target, *weight in zip(*parts, strict=True)
    ]
    return torch.stack(gains)


def _clear(gains: Tensor) -> bool:
    """Whether the mean gain is more than its standard error."""
    return len(gains) < 2 or bool(gains.mean() > gains.std() / len(gains) ** 0.5)


def _edges(numbers: Tensor) -> Tensor:
    """Edges between the bins of each number ``[n, E]``, padded with infinity."""
    edges = [_edges_of(column[torch.isfinite(column)]) for column in numbers.t()]
    width = max(map(len, edges), default=0)
    padded = [nn.functional.pad(one, (0, width - len(one)), value=torch.inf) for one in edges]
    return torch.stack(padded) if padded else numbers.new_zeros(0, 0)


def _edges_of(known: Tensor) -> Tensor:
    """Quantiles of the rows; values that fill a bin have one of their own, so that the others share the rest."""
    values: Tensor
    values, counts = torch.unique(known, return_counts=True)
    if len(values) <= BINS:
        return values
    heavy = counts * BINS >= len(known)
    rest = torch.repeat_interleave(values[~heavy], counts[~heavy])
    bins = max(BINS - int(heavy.sum()), 2)
    place = torch.linspace(0, len(rest) - 1, bins + 1, dtype=torch.float64)[1:-1]
    before = values[:-1][heavy[1:]]  # the edges below the values that fill a bin
    edges: Tensor = torch.unique(torch.cat([rest[place.round().long()], values[heavy], before]))
    return edges


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


def _metric(judge: Judge, loss: Loss, score: Callable[[Tensor, Tensor], Tensor], loader: Any) -> float:
    """The metric of scores over the rows of a loader."""
    judge.reset()
    total, count = 0.0, 0
    with torch.no_grad():
        for rows, target, *weight in loader:
            scores = score(*rows)
            judge.update(scores, target)
            total, count = total + float(loss(scores, target, *(weight or [None]))) * len(target), count + len(target)
    value = total / count if judge.name == "loss" else judge.compute()
    judge.reset()
    return value
