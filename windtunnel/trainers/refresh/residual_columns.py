"""The residual model of a refresh: a table for each column, with rows for categories that the source does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from windtunnel.encode import Batch, CategoryColumn, Vocabulary
from windtunnel.encode.vocabulary import UNKNOWN_ID
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import IDS, NUMBERS
from windtunnel.program.score_methods import program_before
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.residual.column_coder import bin_edges, code_counts, one_per_raw_column
from windtunnel.trainers.residual.init_scores import ResidualInputs
from windtunnel.trainers.residual.installation import install_residual
from windtunnel.trainers.residual.residual_stages import InstallableResidual

MIN_ROWS = 5
"""Rows with a new category from which it gets a table row; rarer ones stay unknown."""


def add_new_categories(net: TranslatedPipeline, rows: Any) -> None:
    """Add category columns for the categories that the source does not know; only the residual model reads them.

    A raw column with new categories gets a second column of ids, whose vocabulary holds the new categories alone. In
    the first column their id stays that of unknown categories, so the source's steps compute what they did before.
    Later refreshes extend the second vocabulary.
    """
    if isinstance(rows, Batch) or net.encoder.flat:
        return
    frame = net.encoder.select(rows)
    categories = list(net.encoder.categories)
    read = positions_of_new_categories(net)
    for column in sorted({category.column for category in categories if category.column < net.encoder.width}):
        columns = [position for position, category in enumerate(categories) if category.column == column]
        vocabularies = [categories[position].vocabulary for position in columns]
        if any(each.buckets or each.hashes is not None or each.kind not in ("text", "number") for each in vocabularies):
            continue
        new = _new_values(frame[column], vocabularies)
        added = [position for position in columns if position in read]
        if new and added:
            old = categories[added[0]].vocabulary
            categories[added[0]] = CategoryColumn(column, Vocabulary((*old.values, *new)))
        elif new:
            categories.append(CategoryColumn(column, Vocabulary(tuple(new))))
    net.replace_categories(categories)


def positions_of_new_categories(net: TranslatedPipeline) -> set[int]:
    """The positions in ``ids`` that only the residual model reads."""
    position = InstalledResiduals.of(net.program).residual
    if position is None:
        return set()
    return _read_by_no_step(net, but=net.program.steps[position])


def _new_values(values: pd.Series, vocabularies: Sequence[Vocabulary]) -> list[Any]:
    """Values that are in no vocabulary and in at least ``MIN_ROWS`` rows, sorted."""
    if not all(vocabulary.fits(values) for vocabulary in vocabularies):
        return []
    unknown = np.all([vocabulary.ids(values) == UNKNOWN_ID for vocabulary in vocabularies], axis=0)
    count = Counter(values[unknown].tolist())
    return sorted(value for value, rows in count.items() if rows >= MIN_ROWS)


def extend_residual(net: TranslatedPipeline, numbers: Tensor, unit: Tensor) -> None:
    """Let the residual model read every column, with values of 0 for what it has not read before.

    A translation without one gets one, with ``unit`` ``[K]`` raw scores per unit. The quantiles of ``numbers``
    ``[N, n]`` bin those columns that the model has not read.
    """
    old, inputs = _pop_residual_model(net, unit)
    added = _unread_columns(net, inputs)
    every = ResidualInputs([*inputs.numbers, *added.numbers], [*inputs.ids, *added.ids])
    lengths = [len(net.encoder.categories[column].vocabulary) for column in every.ids]
    unread = numbers[:, added.numbers].to(getattr(torch, net.encoder.dtype))
    residual = _extended(old, len(inputs.numbers), unread, lengths)
    install_residual(net, InstallableResidual(residual, every))


def _pop_residual_model(net: TranslatedPipeline, unit: Tensor) -> tuple[ResidualModel, ResidualInputs]:
    """Take the residual model, and the columns that it reads, out of the program; an empty one if there is none."""
    position = InstalledResiduals.of(net.program).residual
    if position is None:
        dtype = getattr(torch, net.encoder.dtype)
        edges, generator = torch.zeros(0, 0, dtype=dtype), torch.Generator()
        return ResidualModel.zero(edges, [], unit.to(dtype), rank=0, generator=generator), ResidualInputs([], [])
    step: Any = net.program.steps[position]
    columns = {take.slot: take.columns.tolist() for take in step.takes}
    net.replace_program(program_before(net.program, position), origins=net.origins[:position])
    return step.module, ResidualInputs(columns.get(NUMBERS, []), columns.get(IDS, []))


def _extended(old: ResidualModel, count: int, added: Tensor, lengths: Sequence[int]) -> ResidualModel:
    """A residual model of ``count`` numbers that also reads ``added`` ones, and ids of these vocabulary lengths."""
    edges = _pad_edges(old.edges, bin_edges(added))
    bins = [*old.size[:count].tolist(), *code_counts(edges[count:])]
    size = [*bins, *lengths]
    weight, factors = (_blocks(part.detach(), old.size, count, size, len(bins)) for part in (old.weight, old.factors))
    interactions = torch.where(old.interactions >= count, old.interactions + added.shape[1], old.interactions)
    return ResidualModel(
        edges, torch.tensor(size), interactions, old.cell_count, old.keys, old.unit, weight, factors, old.cross.detach()
    )


def _unread_columns(net: TranslatedPipeline, inputs: ResidualInputs) -> ResidualInputs:
    """The columns that a residual model does not read; of several ids of a raw column, those with most categories."""
    numbers = [column for column in range(len(net.encoder.numbers)) if column not in inputs.numbers]
    categories, added = net.encoder.categories, _read_by_no_step(net)
    covered = {categories[position].column for position in inputs.ids if position not in added}
    largest = one_per_raw_column(categories, [at for at in range(len(categories)) if at not in added])
    unread = [position for position in largest if categories[position].column not in covered]
    return ResidualInputs(numbers, sorted({*unread, *added} - {*inputs.ids}))


def _read_by_no_step(net: TranslatedPipeline, but: Any = None) -> set[int]:
    """The positions in ``ids`` that no step of the program reads, but for one."""
    steps: list[Any] = [*net.program.steps, *net.program.method_steps.values()]
    read = {place for step in steps if step is not but for place in step.places()}
    return {position for position in range(len(net.encoder.categories)) if (IDS, position) not in read}


def _pad_edges(first: Tensor, second: Tensor) -> Tensor:
    width = max(first.shape[1], second.shape[1])
    pad = [nn.functional.pad(part, (0, width - part.shape[1]), value=torch.inf) for part in (first, second)]
    return torch.cat(pad)


def _blocks(old: Tensor, old_size: Tensor, numbers: int, size: list[int], all_numbers: int) -> Tensor:
    """Rows per code in the layout of more columns and of larger vocabularies; 0 where the old table has no row."""
    new = old.new_zeros(sum(size), *old.shape[1:])
    starts = np.cumsum([0, *size])
    for column, block in enumerate(torch.split(old, old_size.tolist())):
        start = starts[column if column < numbers else column - numbers + all_numbers]
        new[start : start + len(block)] = block
    return new
