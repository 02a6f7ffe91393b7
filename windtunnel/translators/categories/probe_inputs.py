"""The probe inputs of a fitted encoder: a typed column of values for each input column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import hash_bucket
from windtunnel.encode.columns import is_missing
from windtunnel.encode.vocabulary import EXACT_INTEGERS
from windtunnel.translators.conversions import CategoryEncoding

Array = NDArray[Any]


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
"""Stands in a list of values for a category that is in no vocabulary."""


@dataclass(frozen=True)
class ProbeColumn:
    """The values of one input column, as the encoder sees them."""

    values: Array  # [V], int64, float64 or object; ``base`` replaces a value that the source rejects
    base: Any  # the constant value while other columns are probed
    rejected: list[int]  # the rows on which the source raises
    number: bool = False  # True for a column that passes through; its values are three arbitrary numbers
    original: Sequence[Any] = ()  # the values before any replacement
    as_objects: bool = False  # whether numbers are objects too

    @classmethod
    def from_values(
        cls, values: Sequence[Any], rejected: Collection[int], known: Sequence[Any], as_objects: bool
    ) -> ProbeColumn:
        """The column of these values; the first known and accepted one replaces rejected ones."""
        vocabulary = set(known)
        accepted = [value for row, value in enumerate(values) if row not in rejected]
        ranked = [*(value for value in accepted if not is_missing(value) and value in vocabulary), *known, *accepted]
        base = ranked[0] if ranked else values[0]
        column = cls(np.empty(0), base, [], original=values, as_objects=as_objects)
        return column.rejecting(rejected)

    def rejecting(self, rejected: Collection[int]) -> ProbeColumn:
        """The column with ``base`` in the rejected rows."""
        values = [self.base if row in rejected else value for row, value in enumerate(self.original)]
        return replace(self, values=typed(values, self.as_objects), rejected=sorted(rejected))

    def base_and(self, row: int) -> Array:
        """A column of the base value and the value of a row."""
        return typed([self.base, self.original[row]], self.as_objects)

    @property
    def accepted(self) -> Array:
        """The rows on which the source does not raise."""
        return np.setdiff1d(np.arange(len(self.values)), self.rejected)

    def constant(self, rows: int) -> Array:
        """A column of the base value alone."""
        return np.full(rows, self.base, dtype=self.values.dtype)


def number_column() -> ProbeColumn:
    """Three values that show whether a column passes through unchanged."""
    return ProbeColumn(np.array([0.0, 1.0, -2.5]), 0.0, [], number=True)


def category_column(fitted: Any, encoding: CategoryEncoding, column: int, categories: Sequence[Any]) -> ProbeColumn:
    """A typed column of the categories, followed by one text per bucket.

    A value that is in no vocabulary counts as rejected until the encoder has been probed with it.
    """
    values = [*categories, *bucket_texts(encoding.buckets)]
    listed = encoding.categories[column] or ()
    known = [value for value in listed if not is_missing(value)]
    # If the vocabulary lists a missing value, the encoder may distinguish None from NaN: use the listed one.
    absent = next((value for value in listed if is_missing(value)), math.nan)
    real = [value for value in values if not is_missing(value) and value is not UNKNOWN]
    unknown = _unknown_category([*known, *real])

    def plain(value: Any) -> Any:
        if value is UNKNOWN:
            return unknown
        return absent if is_missing(value) and not (encoding.tells_none and value is None) else value

    # An encoder fitted on objects looks its numbers up as objects, and a hash is of the text: 1 is not 1.0.
    fitted_on = getattr(fitted, "categories_", [None] * (column + 1))[column]
    as_objects = encoding.buckets > 0 or getattr(fitted_on, "dtype", None) == np.dtype(object)
    original = [plain(value) for value in values]
    vocabulary = set(known)
    rejected = {row for row, value in enumerate(original) if is_missing(value) or value not in vocabulary}
    return ProbeColumn.from_values(original, rejected if listed else (), known or list(listed), as_objects)


def bucket_texts(buckets: int) -> list[str]:
    """One text for each bucket of a hashing encoder, in the order of the buckets."""
    texts: dict[int, str] = {}
    for text in map(str, count()):
        if len(texts) == buckets:
            break
        texts.setdefault(hash_bucket(text, buckets), text)
    return [texts[bucket] for bucket in range(buckets)]


def _unknown_category(known: Sequence[Any]) -> Any:
    """A category of the type of the known ones that is not among them."""
    taken = set(known)
    if known and all(_is_number(value) for value in known):
        return next(number for number in count() if number not in taken)
    return next(text for size in count() if (text := "unknown" + "_" * size) not in taken)


def typed(values: Sequence[Any], as_objects: bool) -> Array:
    """Numbers as int64 or float64 if that is exact, booleans as such, everything else as objects."""
    numeric = all(_is_number(value) for value in values) and any(value == value for value in values)
    whole = numeric and all(isinstance(value, numbers.Integral) for value in values)
    exact = not numeric or all(
        abs(int(value)) <= EXACT_INTEGERS for value in values if isinstance(value, numbers.Integral)
    )
    if numeric and exact and not as_objects:
        return np.array(values, dtype=np.int64 if whole else np.float64)
    if values and not as_objects and all(isinstance(value, bool | np.bool_) for value in values):
        return np.array(values, dtype=np.bool_)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
