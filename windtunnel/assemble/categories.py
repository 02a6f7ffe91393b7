"""Columns of categories: as tables, codes, hashes, or recoded on their way to one of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from windtunnel.assemble.draft import Draft
from windtunnel.assemble.imputed_thresholds import follow, rows_of
from windtunnel.assemble.wires import Wire, itself, once
from windtunnel.encode import NONE_CATEGORY, CategoryColumn, Rows, Vocabulary, category_text
from windtunnel.encode.cityhash import city_hash, signed
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.tables.category_table import CategoryTable, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.target_statistics import CategoryHashes
from windtunnel.pipeline.graph import Step
from windtunnel.program.program import IDS
from windtunnel.translators.categories.probe import UNKNOWN, probe
from windtunnel.translators.categories.probe_inputs import is_missing
from windtunnel.translators.registry import CategoryEncoding, CategoryRecoding, HashedColumns

NO_HASH = 2**40
"""Stands for the hash of a text where there is none; hashes have 32 bits."""


class Categories:
    """Puts together the steps that read categories.

    Parameters
    ----------
    draft : Draft
    sample : rows, optional
        Raw rows, for encoders without a vocabulary.

    Attributes
    ----------
    flat : set of Step
        Encoders that give one column without a second dimension.
    """

    def __init__(self, draft: Draft, sample: Rows | None) -> None:
        self.draft = draft
        self.flat: set[Step] = set()
        self._sample = sample

    def recoded(self, step: Step, recoding: CategoryRecoding, wires: Sequence[Wire]) -> list[Wire]:
        """Columns whose categories are told apart less, filled or shifted, and are still categories."""
        name, estimator, number = step.name, type(step.estimator).__name__, recoding.number
        if number is not None:
            with torch.no_grad():
                columnwise = number(torch.zeros(2, len(wires), dtype=self.draft.dtype)).shape[1] == len(wires)
            if not columnwise or all(wire.raw is None for wire in wires):
                return self.draft.module(name, estimator, number, wires, rows_of(step.estimator), step.estimator)
        elif any(wire.raw is None for wire, known in zip(wires, recoding.categories, strict=True) if known is not None):
            raise UnsupportedEstimator(f"step {name!r} groups categories that earlier steps computed as numbers.")
        rejects = self.draft.rejections(step.estimator, len(wires)) if number is not None else ()
        place = once(lambda: self.draft.add(name, estimator, number, self.draft.places(name, wires), rejects))  # type: ignore[arg-type]
        filled = [wire.filled for wire in wires]
        if number is not None:
            filled = follow(rows_of(step.estimator), number, filled)
        answer = []
        for column, (wire, known) in enumerate(zip(wires, recoding.categories, strict=True)):
            passes = wire.number if known is None else None
            answer.append(
                replace(
                    wire,
                    number=passes if number is None else partial(place, column),
                    known=(*wire.known, *_present(known or ())),
                    chain=(*wire.chain, partial(recoding.recode, column)),
                    filled=filled[column],
                    rejects=wire.rejects.union(_finite(step)),
                )
            )
        return answer

    def encoded(self, step: Step, encoding: CategoryEncoding, wires: Sequence[Wire]) -> list[Wire]:
        """The columns of an encoder: a table over each column that has a vocabulary, the others as they are."""
        listed = [known and _reaching(wire, known) for wire, known in zip(wires, encoding.categories, strict=True)]
        encoding = replace(encoding, categories=listed)
        looked = [
            None if known is None else self._look_up(step, wire, known, encoding.buckets, encoding.tells_none)
            for wire, known in zip(wires, encoding.categories, strict=True)
        ]
        probed = probe(step.estimator, encoding, [one and one[1] for one in looked])
        if probed.flat:
            self.flat.add(step)
        answer: list[Wire | None] = [None] * probed.width
        summed: list[Wire] = []
        for column, (wire, one) in enumerate(zip(wires, looked, strict=True)):
            positions = probed.positions[column]
            if one is None:
                for position in positions:
                    answer[position] = wire
                continue
            vocabulary, rejected = one[0], probed.rejected[column]
            if len(vocabulary) - 1 in rejected and vocabulary.values[-1] == NONE_CATEGORY:
                vocabulary = replace(vocabulary, values=vocabulary.values[:-1])
            # Where unknown categories are recoded, the rows of the buckets are out of reach.
            module = self._tabled(probed.tables[column][: len(vocabulary)], encoding.trainable)  # type: ignore[index]
            rejects = wire.rejects.union(rejected, _finite(step), {3} if encoding.rejects_fractions else ())
            encoded = self._table(step, module, wire, vocabulary, rejects)
            if probed.additive:
                summed += encoded
                continue
            for index, position in enumerate(positions):
                answer[position] = encoded[index]
        if probed.additive:
            groups = SumGroups(len(summed) // probed.width)
            sums = self.draft.module(step.name, type(step.estimator).__name__, groups, summed)
            answer = [passed or total for passed, total in zip(answer, sums, strict=True)]
        return [wire for wire in answer if wire is not None]

    def codes(self, step: Step, wire: Wire, categories: Sequence[Any], *, closed: bool) -> Wire:
        """Categories as the codes that a tree compares; unknown, if they are not rejected, and missing ones are NaN."""
        vocabulary, shown = self._look_up(step, wire, categories, 0)
        code = {category: index for index, category in enumerate(categories)}
        rows = torch.tensor([code.get(value, math.nan) for value in shown], dtype=self.draft.dtype).unsqueeze(1)
        rejects = wire.rejects | _finite(step) | ({0} if closed else set())
        return self._table(step, CategoryTable(rows, False), wire, vocabulary, rejects)[0]

    def statistics(self, step: Step, hashed: HashedColumns, wires: Sequence[Wire]) -> list[Wire]:
        """Columns that are no categories, then the numbers that are read in the place of those that are."""
        name, estimator = step.name, type(step.estimator).__name__
        plain = [wire for column, wire in enumerate(wires) if column not in hashed.categories]
        coded = [
            self._by_hash(step, wires[column], known, column in hashed.complete)
            for column, known in hashed.categories.items()
        ]
        places = [(IDS, self.draft.encoder.add_category(column)) for column, _ in coded]
        if hashed.statistics is None:
            return plain
        hashes = torch.cat([of for _, of in coded])
        slot = self.draft.add(
            name, estimator, CategoryHashes(hashes, torch.tensor([len(of) for _, of in coded])), places
        )
        places = [(slot, column) for column in range(len(coded))]
        if hashed.numbers:
            read = self.draft.places(name, [wires[column] for column in hashed.numbers])
            slot = self.draft.add(name, estimator, hashed.borders, read)
            places += [(slot, column) for column in range(len(read))]
        slot = self.draft.add(name, estimator, hashed.statistics, places)
        width = len(hashed.statistics(torch.zeros(1, len(places), dtype=torch.int64))[0])
        return [*plain, *(Wire(number=partial(itself, (slot, column))) for column in range(width))]

    def _tabled(self, table: Tensor | sparse.csr_array, trainable: bool) -> CategoryTable | OneHot:
        """The module of a probed table; of a sparse one its ones alone, where it holds nothing else."""
        if isinstance(table, Tensor):
            return CategoryTable(table.to(self.draft.dtype), trainable)
        ones = np.diff(table.indptr)
        if (ones > 1).any() or (table.data != 1).any():
            return CategoryTable(torch.from_numpy(table.toarray()).to(self.draft.dtype), trainable)
        column = np.full(len(ones), -1)
        column[ones == 1] = table.indices
        unit = torch.ones((), dtype=self.draft.dtype)
        return OneHot(torch.from_numpy(column), torch.arange(table.shape[1]), unit)

    def _table(
        self, step: Step, table: CategoryTable | OneHot, wire: Wire, vocabulary: Vocabulary, rejects: frozenset[int]
    ) -> list[Wire]:
        """The columns of a table over a raw column; a single one can be encoded again.

        What the source rejects in the column is rejected whether or not anything reads the table, as the source looks
        at all that it is given.
        """
        assert wire.raw is not None
        column = CategoryColumn(wire.raw, vocabulary, *(kind in rejects for kind in (0, 1, 2, 3)))
        if column.rejects:
            self.draft.encoder.add_category(column)
        place = once(
            lambda: self.draft.add(
                step.name, type(step.estimator).__name__, table, [(IDS, self.draft.encoder.add_category(column))]
            )
        )
        width = len(table.columns) if isinstance(table, OneHot) else table.rows.shape[1]
        if width != 1 or vocabulary.buckets or isinstance(table, OneHot):
            return [Wire(number=partial(place, index)) for index in range(width)]
        codes = table.rows[:, 0].tolist()
        # What is rejected has no code: it stays what it is.
        values = [UNKNOWN if 0 in rejects else codes[0], None if 1 in rejects else codes[1], *codes[2:]]
        return [Wire(partial(place, 0), wire.raw, (), vocabulary.values, (lambda _: list(values),), rejects)]

    def _look_up(
        self, step: Step, wire: Wire, known: Sequence[Any], buckets: int, tells_none: bool = False
    ) -> tuple[Vocabulary, list[Any]]:
        """The vocabulary of a raw column, and what of it an encoder gets to see."""
        if wire.raw is None:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) encodes a column that earlier steps computed "
                "as a number, which has no vocabulary of raw categories."
            )
        values = wire.vocabulary
        if values is None:
            values = tuple(dict.fromkeys((*wire.known, *_present(known)))) or self._sampled(wire.raw)
            none, nan = _through(wire.chain, [None, math.nan])
            # Among numbers None becomes NaN before anything looks at it.
            text = not values or any(isinstance(value, str) for value in values)
            if text and (is_missing(none) != is_missing(nan) or (tells_none and none is None)):
                values = (*values, NONE_CATEGORY)
        shown = _through(
            wire.chain, [UNKNOWN, math.nan, *(None if value == NONE_CATEGORY else value for value in values)]
        )
        return Vocabulary(values, buckets if shown[0] is UNKNOWN else 0), shown

    def _sampled(self, raw: int) -> tuple[Any, ...]:
        """Categories of a raw column in the sample, for an encoder that has no vocabulary."""
        if self._sample is None or raw >= self.draft.encoder.width:
            return ()
        column = self.draft.encoder.select(self._sample, every=True)[raw]
        return tuple(sorted(_present(column.unique()), key=str))

    def _by_hash(self, step: Step, wire: Wire, told: Sequence[int], all_told: bool) -> tuple[CategoryColumn, Tensor]:
        """A raw column whose categories are told by their hash, and the hash of each id that has a category."""
        vocabulary, shown = self._look_up(step, wire, (), 0)
        assert wire.raw is not None
        values = vocabulary.values
        if NONE_CATEGORY in values and is_missing(shown[-1]):
            values, shown = values[:-1], shown[:-1]
        try:
            unknown, missing, *known = [
                None if value is UNKNOWN or is_missing(value) else signed(city_hash(category_text(value)))
                for value in shown
            ]
        except TypeError as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) reads column "
                f"{self.draft.encoder.column_name(wire.raw)} as a category, and there {error}; "
                "convert the column to text before fitting."
            ) from error
        rejects, further = wire.rejects | ({1} if missing is None else set()), None
        if shown[0] is UNKNOWN:
            further = tuple(sorted({*told} - {one % 2**32 for one in known if one is not None}))
            # Formats that cannot hash a text have an id for what is unknown, which may be no category of the source.
            rejects |= {0} if further or not all_told else set()
        hashes = [unknown, missing, *known, *map(signed, further or ())]
        vocabulary = Vocabulary(values, hashes=further)
        column = CategoryColumn(wire.raw, vocabulary, 0 in rejects, 1 in rejects, rejects_fractions=True)
        return column, torch.tensor([NO_HASH if one is None else one for one in hashes])


def _finite(step: Step) -> set[int]:
    """scikit-learn takes no infinite numbers for categories; other libraries do."""
    return {2} if type(step.estimator).__module__.startswith("sklearn.") else set()


def _through(chain: Sequence[Callable[[list[Any]], list[Any]]], values: list[Any]) -> list[Any]:
    """What steps make of values, one after the other."""
    for recode in chain:
        values = recode(values)
    return values


def _reaching(wire: Wire, listed: Sequence[Any]) -> Sequence[Any]:
    """The categories that an encoder lists, NaN in the place of None where the steps before give NaN for both."""
    if wire.vocabulary is not None:
        return listed
    none, nan = _through(wire.chain, [None, math.nan])
    if none is None or not (is_missing(none) and is_missing(nan)):
        return listed
    return [math.nan if value is None else value for value in listed]


def _present(values: Iterable[Any]) -> list[Any]:
    return [_plain(value) for value in values if not is_missing(value)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
