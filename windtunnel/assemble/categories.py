"""Columns of categories: as tables, codes or hashes, or recoded for a later step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from windtunnel.assemble.edge_cases.imputed_thresholds import follow, transform_of
from windtunnel.assemble.graph_column import GraphColumn, Rejected, added_on_demand, column_at
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.encode import NONE_CATEGORY, CategoryColumn, Rows, Vocabulary, category_text
from windtunnel.encode.cityhash import city_hash, signed
from windtunnel.encode.columns import is_missing
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.tables.category_table import CategoryTable, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.target_statistics import CategoryHashes
from windtunnel.pipeline.expressions import Step
from windtunnel.program.program import IDS
from windtunnel.translators.categories.probe import probe
from windtunnel.translators.categories.probe_inputs import UNKNOWN
from windtunnel.translators.conversions import CategoryEncoding, CategoryRecoding, HashedColumns

NO_HASH = 2**40
"""Stands for the hash of a category without text; hashes have 32 bits."""


class RecodedVocabulary(NamedTuple):
    """The vocabulary of a raw column, and what earlier steps make of it."""

    vocabulary: Vocabulary
    values: list[Any]  # of an unknown category, a missing one, and each category, in this order


class Categories:
    """Adds the steps that read categories."""

    def __init__(self, builder: ProgramBuilder, sample: Rows | None) -> None:
        self.flat: set[Step] = set()  # encoders whose output has one dimension
        self._builder = builder
        self._sample = sample  # raw rows, for encoders without a vocabulary

    def recoded(self, step: Step, recoding: CategoryRecoding, columns: Sequence[GraphColumn]) -> list[GraphColumn]:
        """The columns after a step that merges, imputes or shifts categories; they are still categories."""
        name, estimator, number = step.name, step.estimator_name, recoding.number
        transform, imputed = transform_of(step.estimator), [column.imputed for column in columns]
        pairs = list(zip(columns, recoding.categories, strict=True))
        numbers = [column.number if listed_categories is None else None for column, listed_categories in pairs]
        if number is None:
            if any(column.raw is None for column, listed_categories in pairs if listed_categories is not None):
                raise UnsupportedEstimator(f"step {name!r} groups categories that earlier steps computed as numbers.")
        else:
            positions = range(len(columns)) if recoding.number_columns is None else recoding.number_columns
            taken = [columns[position] for position in positions]
            columnwise = self._builder.width(number, len(taken)) == len(taken)
            if not columnwise or all(column.raw is None for column in columns):
                return self._builder.module(name, estimator, number, columns, transform, step.estimator)
            rejects = self._builder.rejections(step.estimator, len(columns))
            place = added_on_demand(
                lambda: self._builder.add(name, estimator, number, self._builder.places(name, taken), rejects)
            )
            if len(taken) == len(columns):
                imputed = follow(transform, number, imputed)
            for at, position in enumerate(positions):
                numbers[position] = partial(place, at)
        return [
            replace(
                column,
                number=numbers[position],
                categories=(*column.categories, *_without_missing(listed_categories or ())),
                recodings=(*column.recodings, partial(recoding.recode, position)),
                imputed=imputed[position],
                rejects=column.rejects.union(_rejects_infinite(step)),
            )
            for position, (column, listed_categories) in enumerate(zip(columns, recoding.categories, strict=True))
        ]

    def encoded(self, step: Step, encoding: CategoryEncoding, columns: Sequence[GraphColumn]) -> list[GraphColumn]:
        """The output columns of an encoder: a table over each column with a vocabulary; numbers pass through."""
        encoding, vocabularies = self._with_vocabularies(step, encoding, columns)
        probed = probe(step.estimator, encoding, [recoded and recoded.values for recoded in vocabularies])
        if probed.flat:
            self.flat.add(step)
        outputs: list[GraphColumn | None] = [None] * probed.width
        summands: list[GraphColumn] = []
        for index, (column, recoded) in enumerate(zip(columns, vocabularies, strict=True)):
            positions = probed.positions[index]
            if recoded is None:  # a number that passes through
                for position in positions:
                    outputs[position] = column
                continue
            vocabulary, rejected = recoded.vocabulary, probed.rejected[index]
            if len(vocabulary) - 1 in rejected and vocabulary.values[-1] == NONE_CATEGORY:
                vocabulary = replace(vocabulary, values=vocabulary.values[:-1])
            # If an earlier step recodes unknown categories, the rows of the buckets are never read.
            table = self._table_module(probed.tables[index][: len(vocabulary)], encoding.trainable)  # type: ignore[index]
            rejects = column.rejects.union(rejected, _rejects_infinite(step))
            if encoding.rejects_fractions:
                rejects |= {Rejected.FRACTION}
            encoded = self._table(step, table, column, vocabulary, rejects)
            if probed.additive:
                summands += encoded
                continue
            for position, output in zip(positions, encoded, strict=True):
                outputs[position] = output
        if probed.additive:
            outputs = self._with_sums(step, outputs, summands)
        return [output for output in outputs if output is not None]

    def _with_vocabularies(
        self, step: Step, encoding: CategoryEncoding, columns: Sequence[GraphColumn]
    ) -> tuple[CategoryEncoding, list[RecodedVocabulary | None]]:
        """The encoding with missing categories as earlier steps recode them; and the vocabulary of each column."""
        categories = [
            listed_categories and _recoded_missing(column, listed_categories)
            for column, listed_categories in zip(columns, encoding.categories, strict=True)
        ]
        vocabularies = [
            None
            if listed_categories is None
            else self._vocabulary(step, column, listed_categories, encoding.buckets, encoding.tells_none)
            for column, listed_categories in zip(columns, categories, strict=True)
        ]
        return replace(encoding, categories=categories), vocabularies

    def _with_sums(
        self, step: Step, outputs: list[GraphColumn | None], summands: list[GraphColumn]
    ) -> list[GraphColumn | None]:
        """The output columns of an encoder that adds up the tables of its columns."""
        groups = SumGroups(len(summands) // len(outputs))
        sums = self._builder.module(step.name, step.estimator_name, groups, summands)
        return [passed or total for passed, total in zip(outputs, sums, strict=True)]

    def codes(self, step: Step, column: GraphColumn, categories: Sequence[Any], *, closed: bool) -> GraphColumn:
        """Categories as the codes that a tree compares.

        Missing and unknown ones are NaN, but for None among the categories; with ``closed``, unknown ones are rejected.
        """
        vocabulary, recoded = self._vocabulary(step, column, categories, 0)
        codes = {category: index for index, category in enumerate(categories)}
        if NONE_CATEGORY not in vocabulary.values:  # else earlier steps make something else of NaN than of None
            recoded = [None if is_missing(value) else value for value in recoded]
        rows = torch.tensor([codes.get(value, math.nan) for value in recoded], dtype=self._builder.dtype).unsqueeze(1)
        rejects = column.rejects | _rejects_infinite(step) | ({Rejected.UNKNOWN} if closed else set())
        return self._table(step, CategoryTable(rows, False), column, vocabulary, rejects)[0]

    def statistics(self, step: Step, hashed: HashedColumns, columns: Sequence[GraphColumn]) -> list[GraphColumn]:
        """The columns that are no categories, then the statistics of those that are."""
        name, estimator = step.name, step.estimator_name
        plain = [column for position, column in enumerate(columns) if position not in hashed.categories]
        coded = [
            self._by_hash(step, columns[position], known_hashes, position in hashed.complete)
            for position, known_hashes in hashed.categories.items()
        ]
        places = [(IDS, self._builder.encoder.add_category(category)) for category, _ in coded]
        if hashed.statistics is None:
            return plain
        hashes = CategoryHashes(torch.cat([codes for _, codes in coded]), torch.tensor([len(c) for _, c in coded]))
        slot = self._builder.add(name, estimator, hashes, places)
        places = [(slot, column) for column in range(len(coded))]
        if hashed.numbers:
            numbers = self._builder.places(name, [columns[position] for position in hashed.numbers])
            slot = self._builder.add(name, estimator, hashed.borders, numbers)
            places += [(slot, column) for column in range(len(numbers))]
        slot = self._builder.add(name, estimator, hashed.statistics, places)
        width = len(hashed.statistics(torch.zeros(1, len(places), dtype=torch.int64))[0])
        return [*plain, *(column_at((slot, column)) for column in range(width))]

    def _table_module(self, table: Tensor | sparse.csr_array, trainable: bool) -> CategoryTable | OneHot:
        """The module of a probed table; a sparse table of ones, at most one in a row, becomes a ``OneHot``."""
        if isinstance(table, Tensor):
            return CategoryTable(table.to(self._builder.dtype), trainable)
        ones = np.diff(table.indptr)
        if (ones > 1).any() or (table.data != 1).any():
            return CategoryTable(torch.from_numpy(table.toarray()).to(self._builder.dtype), trainable)
        column = np.full(len(ones), -1)
        column[ones == 1] = table.indices
        unit = torch.ones((), dtype=self._builder.dtype)
        return OneHot(torch.from_numpy(column), torch.arange(table.shape[1]), unit)

    def _table(
        self,
        step: Step,
        table: CategoryTable | OneHot,
        column: GraphColumn,
        vocabulary: Vocabulary,
        rejects: frozenset[int],
    ) -> list[GraphColumn]:
        """The columns of a table over a raw column; a single one can be encoded again."""
        assert column.raw is not None
        category = CategoryColumn(
            column.raw,
            vocabulary,
            rejects_unknown=Rejected.UNKNOWN in rejects,
            rejects_missing=Rejected.MISSING in rejects,
            rejects_infinite=Rejected.INFINITE in rejects,
            rejects_fractions=Rejected.FRACTION in rejects,
        )
        encoder, estimator = self._builder.encoder, step.estimator_name
        if category.rejects:  # even if no step reads the table, as the source checks all of its input
            encoder.add_category(category)
        place = added_on_demand(
            lambda: self._builder.add(step.name, estimator, table, [(IDS, encoder.add_category(category))])
        )
        width = len(table.columns) if isinstance(table, OneHot) else table.rows.shape[1]
        if width != 1 or vocabulary.buckets or isinstance(table, OneHot):
            return [GraphColumn(number=partial(place, position)) for position in range(width)]
        codes = table.rows[:, 0].tolist()
        # A rejected value has no code and stays as it is.
        unknown = UNKNOWN if Rejected.UNKNOWN in rejects else codes[0]
        values = [unknown, None if Rejected.MISSING in rejects else codes[1], *codes[2:]]
        recodings = (lambda _: list(values),)
        return [GraphColumn(partial(place, 0), column.raw, (), vocabulary.values, recodings, rejects)]

    def _vocabulary(
        self,
        step: Step,
        column: GraphColumn,
        listed_categories: Sequence[Any],
        buckets: int,
        tells_none: bool = False,
    ) -> RecodedVocabulary:
        """The vocabulary of a raw column, as the earlier steps recode it."""
        if column.raw is None:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) encodes a column that earlier steps computed "
                "as a number, which has no vocabulary of raw categories."
            )
        if NONE_CATEGORY in listed_categories:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) has the category {NONE_CATEGORY!r}, which stands for None "
                "in translations; write it otherwise before fitting."
            )
        values = column.vocabulary
        if values is None:
            values = tuple(dict.fromkeys((*column.categories, *_without_missing(listed_categories))))
            values = values or self._sampled(column.raw)
            none, nan = _recode(column, [None, math.nan])
            # In a column of numbers None becomes NaN before any step.
            text = not values or any(isinstance(value, str) for value in values)
            if text and (is_missing(none) != is_missing(nan) or (tells_none and none is None)):
                values = (*values, NONE_CATEGORY)
        plain = (None if value == NONE_CATEGORY else value for value in values)
        recoded = _recode(column, [UNKNOWN, math.nan, *plain])
        return RecodedVocabulary(Vocabulary(values, buckets if recoded[0] is UNKNOWN else 0), recoded)

    def _sampled(self, raw: int) -> tuple[Any, ...]:
        """Categories of a raw column in the sample, for an encoder that has no vocabulary."""
        if self._sample is None or raw >= self._builder.encoder.width:
            return ()
        column = self._builder.encoder.select(self._sample, [raw])[raw]
        return tuple(sorted(_without_missing(column.unique()), key=str))

    def _by_hash(
        self, step: Step, column: GraphColumn, known_hashes: Sequence[int], complete: bool
    ) -> tuple[CategoryColumn, Tensor]:
        """A raw column whose categories the source identifies by hash, and the hash of each id."""
        vocabulary, recoded = self._vocabulary(step, column, (), 0)
        assert column.raw is not None
        values = vocabulary.values
        if NONE_CATEGORY in values and is_missing(recoded[-1]):
            values, recoded = values[:-1], recoded[:-1]
        try:
            unknown, missing, *hashes = [
                None if value is UNKNOWN or is_missing(value) else signed(city_hash(category_text(value)))
                for value in recoded
            ]
        except TypeError as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) reads column "
                f"{self._builder.encoder.column_name(column.raw)} as a category, and there {error}; "
                "convert the column to text before fitting."
            ) from error
        rejects, further = column.rejects | ({Rejected.MISSING} if missing is None else set()), None
        if recoded[0] is UNKNOWN:
            further = tuple(sorted({*known_hashes} - {code % 2**32 for code in hashes if code is not None}))
            # Formats that cannot hash a text map unknown texts to one id, which may be no category of the source.
            rejects |= {Rejected.UNKNOWN} if further or not complete else set()
        codes = [unknown, missing, *hashes, *map(signed, further or ())]
        category = CategoryColumn(
            column.raw,
            Vocabulary(values, hashes=further),
            rejects_unknown=Rejected.UNKNOWN in rejects,
            rejects_missing=Rejected.MISSING in rejects,
            rejects_fractions=True,
            hashes_are_complete=complete,
        )
        return category, torch.tensor([NO_HASH if code is None else code for code in codes])


def _rejects_infinite(step: Step) -> set[int]:
    """scikit-learn rejects infinite numbers as categories; other libraries accept them."""
    return {Rejected.INFINITE} if type(step.estimator).__module__.startswith("sklearn.") else set()


def _recode(column: GraphColumn, values: list[Any]) -> list[Any]:
    """The values after the earlier steps of a column."""
    for recode in column.recodings:
        values = recode(values)
    return values


def _recoded_missing(column: GraphColumn, listed_categories: Sequence[Any]) -> Sequence[Any]:
    """The categories that an encoder lists, None replaced by NaN if earlier steps give NaN for both."""
    if column.vocabulary is not None:
        return listed_categories
    none, nan = _recode(column, [None, math.nan])
    if none is None or not (is_missing(none) and is_missing(nan)):
        return listed_categories
    return [math.nan if value is None else value for value in listed_categories]


def _without_missing(values: Iterable[Any]) -> list[Any]:
    """The values as Python values, without those that stand for a missing one."""
    present = (value for value in values if not is_missing(value))
    return [value.item() if isinstance(value, np.generic) else value for value in present]
