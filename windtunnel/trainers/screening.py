"""Which columns, and which pairs of columns, have something to say that a pipeline has missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from windtunnel.modules.branch import cells

PRIOR_ROWS = 100
"""The effect of a value is its mean residual, shrunk as if as many further rows had had a residual of 0."""
MOST_ROWS = 200_000
MOST_COLUMNS = 32
"""Columns that are paired with each other: 496 pairs."""
MOST_PAIRS = 64
PAIR_SIGNAL = 1.0
"""How many standard errors the signal of a pair is above chance, on the training and on the judged rows alike."""


@dataclass(frozen=True)
class Rows:
    """What a screening reads: codes int64 ``[N, C]`` and residuals ``[N, K]``, the loss's descent by the scores."""

    codes: Tensor
    residual: Tensor

    def some(self, generator: torch.Generator) -> Rows:
        """At most ``MOST_ROWS`` of them, at random."""
        if len(self.codes) <= MOST_ROWS:
            return self
        index = torch.randperm(len(self.codes), generator=generator)[:MOST_ROWS]
        return Rows(self.codes[index], self.residual[index])


@dataclass(frozen=True)
class Screened:
    """The columns that a branch shall read, and its pairs as positions among these columns."""

    columns: list[int]
    pairs: list[tuple[int, int]]


def screen(train: Rows, judged: Rows, size: list[int], offered: list[int], cell_count: int) -> Screened:
    """Keep what shows on the training rows and shows again on rows that were not trained on.

    With G_c the sum of the residuals of the rows of value c, n_c their number, S_c the sum of their squares, m the
    mean square and p = ``PRIOR_ROWS``, the effect of a value is e_c = G_c / (n_c + p). Two statistics are standard
    normal where a column says nothing:

    - on the training rows, z = sum_c (G_c^2 - S_c) / (n_c + p), over its standard error under chance;
    - on the judged rows, t = sum_i r_i e_i over the root of sum_i (r_i e_i)^2, with r centred.

    A pair is kept with z and t above ``PAIR_SIGNAL``, both of residuals without what the single columns explain; a
    column with t above 0, or as part of a pair. The second statistic leaves out what holds of the training rows
    alone, such as a calendar day that never comes again.

    Parameters
    ----------
    train, judged : Rows
    size : list of int
        Number of codes of each column.
    offered : list of int
        The columns to choose among.
    cell_count : int
        Cells that the values of a pair are spread over.
    """
    rest, judged_rest = train.residual, judged.residual - judged.residual.mean(dim=0)
    main: dict[int, float] = {}
    for column in offered:
        at, judged_at = train.codes[:, column], judged.codes[:, column]
        main[column] = _again(_effect(at, train.residual, size[column])[judged_at], judged_rest)
    for column in offered:
        effect = _effect(train.codes[:, column], rest, size[column])
        rest = rest - effect[train.codes[:, column]]
        judged_rest = judged_rest - effect[judged.codes[:, column]]
    paired = sorted(sorted(main, key=lambda column: -main[column])[:MOST_COLUMNS])
    found = sorted(_pairs(paired, Rows(train.codes, rest), Rows(judged.codes, judged_rest), cell_count), reverse=True)
    pairs = [pair for _, pair in found[:MOST_PAIRS]]
    columns = sorted({column for column in main if main[column] > 0}.union(*pairs))
    place = {column: position for position, column in enumerate(columns)}
    return Screened(columns, [(place[first], place[second]) for first, second in pairs])


def _pairs(columns: list[int], train: Rows, judged: Rows, cell_count: int) -> Iterator[tuple[float, tuple[int, int]]]:
    """The pairs that are kept, with their z."""
    for pair in combinations(columns, 2):
        here = torch.tensor([pair])
        at = cells(train.codes, here, cell_count)[:, 0]
        signal = _signal(at, train.residual, cell_count)
        if signal > PAIR_SIGNAL:
            effect = _effect(at, train.residual, cell_count)
            if _again(effect[cells(judged.codes, here, cell_count)[:, 0]], judged.residual) > PAIR_SIGNAL:
                yield signal, pair


def _sums(at: Tensor, values: Tensor, count: int) -> Tensor:
    """The sum of the values ``[N, K]`` over the rows of each code, ``[count, K]``."""
    return values.new_zeros(count, values.shape[1]).index_add_(0, at, values)


def _counts(at: Tensor, count: int) -> Tensor:
    return torch.bincount(at, minlength=count).unsqueeze(1)


def _effect(at: Tensor, residual: Tensor, count: int) -> Tensor:
    return _sums(at, residual, count) / (_counts(at, count) + PRIOR_ROWS)


def _signal(at: Tensor, residual: Tensor, count: int) -> float:
    number, squares = _counts(at, count) + PRIOR_ROWS, _sums(at, residual.square(), count)
    above = ((_sums(at, residual, count).square() - squares) / number).sum()
    chance = (2 * (squares / number).square()).sum().sqrt()
    return float(above / chance.clamp_min(torch.finfo(chance.dtype).tiny))


def _again(effect: Tensor, residual: Tensor) -> float:
    product = (effect * residual).sum(dim=1)
    return float(product.sum() / product.square().sum().sqrt().clamp_min(torch.finfo(product.dtype).tiny))
