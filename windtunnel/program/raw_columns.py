"""The raw columns that the columns of a program are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from windtunnel.encode import Batch, RowEncoder, Rows
from windtunnel.encode.labels import labels_index
from windtunnel.encode.rows import as_column
from windtunnel.modules.base import Module
from windtunnel.modules.imputers.imputer import MissingFlags
from windtunnel.modules.tables.bin_tables import BinTables
from windtunnel.pipeline.expressions import columns_read
from windtunnel.pipeline.host_step import HostStep, computed_names
from windtunnel.program.program import IDS, NUMBERS, Program, position_of
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class RawColumns:
    """The raw columns that a translation encodes, to which contributions are given.

    Columns that a step on the host computes count as the raw column that it reads, or as one if it reads several. If
    the step returns a table of at most ``MOST_LISTED`` columns that have names, each of them counts.
    """

    names: list[str]
    # numbers, ids: the raw column of each column of ``Batch.numbers`` and ``Batch.ids``, as a position in ``names``
    numbers: list[int]
    ids: list[int]
    positions: list[int | None]
    """The position of each column among those that the source was fitted on, followed by those of steps on the host;
    None for a step on the host that counts as one column."""

    @classmethod
    def of(cls, net: TranslatedPipeline) -> RawColumns:
        """The raw columns of a translation, in the order of the source."""
        encoder = net.encoder
        hosts = {column: host for host in net.hosts for column in host.columns}
        computed = computed_names(net.hosts, encoder)

        def source(column: int) -> int | HostStep:
            """The raw column that counts for a column, or the host step that computes it from several."""
            if column in computed or column not in hosts:
                return column
            columns = {0} if encoder.width == 1 else columns_read(hosts[column].step.inputs)
            return next(iter(columns)) if columns is not None and len(columns) == 1 else hosts[column]

        sources = [source(column) for column in encoder.numbers]
        coded = [source(category.column) for category in encoder.categories]
        order = sorted({*sources, *coded}, key=lambda source: source if isinstance(source, int) else encoder.width)
        place = {source: position for position, source in enumerate(order)}
        return cls(
            names=[computed[source] if source in computed else _name(encoder, source) for source in order],
            numbers=[place[source] for source in sources],
            ids=[place[source] for source in coded],
            positions=[source if isinstance(source, int) else None for source in order],
        )

    def values(self, encoder: RowEncoder, rows: Rows, encoded: Batch) -> pd.DataFrame:
        """The values of raw rows, a column per name; None in those of steps on the host, unless they are numbers."""
        if encoder.flat:
            column = pd.Series(list(as_column(rows)), dtype=object)
            return pd.DataFrame({name: column for name in self.names})
        positions = [position for position in self.positions if position is not None and position < encoder.width]
        raw = encoder.select(rows, positions)
        values: dict[int | None, Any] = {position: raw[position] for position in positions}
        for place, computed in enumerate(encoder.numbers):
            if computed >= encoder.width:
                values[computed] = encoded.numbers[:, place].numpy(force=True)
        columns = {place: values.get(position) for place, position in enumerate(self.positions)}
        return pd.DataFrame(columns, index=raw.index).set_axis(labels_index(self.names), axis=1)


def _name(encoder: RowEncoder, source: int | HostStep) -> str:
    if isinstance(source, HostStep):
        return source.name
    if encoder.flat:
        return "text"
    return encoder.names[source] if encoder.names else f"x{source}"


@dataclass
class Dependencies:
    """Finds the raw columns that columns of a program depend on."""

    program: Program
    raw: RawColumns
    _cache: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def of(self, slot: int, column: int) -> frozenset[int]:
        """The raw columns that a column of a slot is computed from, as positions in ``raw.names``."""
        if slot in (NUMBERS, IDS):
            return frozenset([(self.raw.numbers if slot == NUMBERS else self.raw.ids)[column]])
        if (slot, column) not in self._cache:
            self._cache[slot, column] = self._of_step(slot, column)
        return self._cache[slot, column]

    def _of_step(self, slot: int, column: int) -> frozenset[int]:
        inputs = input_places(self.program, slot)
        needed = _inputs_of_column(self.program.steps[position_of(slot)].module, column, len(inputs))
        if needed is None and (slot, -1) in self._cache:
            return self._cache[slot, -1]
        places = inputs if needed is None else [inputs[position] for position in needed]
        columns = frozenset[int]().union(*(self.of(*place) for place in places))
        if needed is None:
            self._cache[slot, -1] = columns
        return columns

    def single(self, slot: int) -> list[int | None] | None:
        """The raw column of each input column of a step, None for a constant; None if one depends on several."""
        columns = [self.of(*place) for place in input_places(self.program, slot)]
        if any(len(raw) > 1 for raw in columns):
            return None
        return [next(iter(raw), None) for raw in columns]


def _inputs_of_column(module: Module, column: int, width: int) -> Sequence[int] | None:
    """The input columns that an output column of a module depends on; None for all."""
    match module:
        case MissingFlags():
            return [int(module.flagged[column])]
        case BinTables():
            return [int(module.kept[column]) // module.rows.shape[2]]
    return module.required_columns([column], width)


def input_places(program: Program, slot: int) -> list[tuple[int, int]]:
    """Slot and position of each input column of the step that fills a slot."""
    return program.steps[position_of(slot)].places()
