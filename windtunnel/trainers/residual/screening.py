"""Which columns, and which combinations of columns, have something to say that a pipeline has missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.trainers.residual.effects import Combination, Effect, Rows

MOST_ROWS = 200_000
MOST_COLUMNS = 32
"""Columns that are combined with each other: 496 pairs."""
ORDER = 4
"""Columns in the largest combinations."""
MOST = 24
"""Combinations of each order that are kept, and that get a further column."""
SIGNAL = 2.0
"""How many standard errors the signal of a combination is above chance on the training rows."""
AGAIN, AGAIN_COMBINED = 1.0, 3.0
"""And on rows that were not trained on: for a single column, and for combinations, of which there are many."""


@dataclass(frozen=True)
class Screened:
    """The columns that a residual model shall read, and its combinations of them; single columns are combinations too."""

    columns: list[int]
    combinations: list[Combination]


def screen(train: Rows, judged: Rows, size: Sequence[int], offered: Sequence[int]) -> Screened:
    """Keep what shows on the training rows and shows again on rows that were not trained on.

    With e_i the effect of the value of row i, two statistics are standard normal where a combination says nothing: the
    sum of r_i e_i over the root of the sum of its squares, on the training rows with effects that row i has no part
    in, and on the judged rows with r centred. The second leaves out what holds of the training rows alone, such as a
    calendar day that never comes again.

    Combinations grow: those of three columns are the strongest ``MOST`` of two and a further column each. The strongest
    come first, and every next one has to show in what those before have left over.

    Parameters
    ----------
    train, judged : Rows
    size : sequence of int
        Number of codes of each column.
    offered : sequence of int
        The columns to choose among.
    """
    rows = len(train.codes)
    main = {}
    for column in offered:
        single = Combination.of((column,), size, rows)
        main[column] = _again(single, single.effect(train), judged)
    paired = sorted(sorted(main, key=lambda column: -main[column])[:MOST_COLUMNS])
    kept: list[Combination] = []
    grown: list[tuple[int, ...]] = [(column,) for column in offered]
    for _ in range(ORDER):
        candidates = [Combination.of(columns, size, rows) for columns in grown]
        signals = {one: shown[0] for one in candidates if (shown := _shown(one, train, judged)) is not None}
        strongest = sorted(signals, key=lambda one: -signals[one])[:MOST]
        for one in strongest:
            if (shown := _shown(one, train, judged)) is not None:
                kept.append(one)
                effect = shown[1]
                train, judged = train.without(effect.own), judged.without(effect.table[one.at(judged.codes)])
        seeds = [(column,) for column in paired] if len(grown[0]) == 1 else [one.columns for one in strongest]
        grown = sorted({tuple(sorted({*seed, column})) for seed in seeds for column in paired if column not in seed})
        if not grown:
            break
    read = {column for column in main if main[column] > 0}.union(*(one.columns for one in kept))
    return Screened(sorted(read), kept)


def _shown(combination: Combination, train: Rows, judged: Rows) -> tuple[float, Effect] | None:
    """The signal on the training rows and the effect, where it shows there and again."""
    effect = combination.effect(train)
    signal = _standard(effect.own * train.residual)
    enough = AGAIN if len(combination.columns) == 1 else AGAIN_COMBINED
    return (signal, effect) if signal > SIGNAL and _again(combination, effect, judged) > enough else None


def _again(combination: Combination, effect: Effect, judged: Rows) -> float:
    """The signal on the judged rows."""
    here = effect.table[combination.at(judged.codes)]
    return _standard(here * (judged.residual - judged.residual.mean(dim=0)))


def _standard(products: Tensor) -> float:
    """The sum over rows, in standard errors."""
    each = products.sum(dim=1)
    return float(each.sum() / each.square().sum().sqrt().clamp_min(torch.finfo(each.dtype).tiny))
