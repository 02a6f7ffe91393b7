"""What a fitted encoder is shown when it is probed: a typed column of values for each input column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode import hash_bucket
from windtunnel.translators.registry import CategoryEncoding

Array = NDArray[Any]

# A float64 column, which missing values need, no longer tells integers beyond this apart.
EXACT_INTEGERS = 2**53


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
"""Stands in a list of values for a category that is in no vocabulary."""


@dataclass(frozen=True)
class Shown:
    """The values of one input column, as the encoder gets to see them.

    Attributes
    ----------
    values : array [V]
        int64, float64 or object. A value that the source rejects is replaced by ``base``.
    base : scalar
        The value that stands still while other columns are probed.
    rejected : list of int
        The rows on which the source raises.
    number : bool
        True for a column passed through, whose values are three arbitrary numbers.
    wanted : list
        The values before any was replaced.
    as_objects : bool
        Whether numbers are shown as objects too.
    """

    values: Array
    base: Any
    rejected: list[int]
    number: bool = False
    wanted: Sequence[Any] = ()
    as_objects: bool = False

    @classmethod
    def of(cls, wanted: Sequence[Any], rejected: Collection[int], known: Sequence[Any], as_objects: bool) -> Shown:
        """The column of these values, with the first that is known and accepted in the place of rejected ones."""
        vocabulary = set(known)
        accepted = [value for row, value in enumerate(wanted) if row not in rejected]
        ranked = [*(value for value in accepted if not is_missing(value) and value in vocabulary), *known, *accepted]
        base = ranked[0] if ranked else wanted[0]
        shown = [base if row in rejected else value for row, value in enumerate(wanted)]
        return cls(typed(shown, as_objects), base, sorted(rejected), wanted=wanted, as_objects=as_objects)

    def accepting(self, rejected: Collection[int]) -> Shown:
        """The same column once the encoder has said what it rejects."""
        shown = [self.base if row in rejected else value for row, value in enumerate(self.wanted)]
        return replace(self, values=typed(shown, self.as_objects), rejected=sorted(rejected))

    def alone(self, row: int) -> Array:
        """A column of the base value and one other."""
        return typed([self.base, self.wanted[row]], self.as_objects)

    @property
    def accepted(self) -> Array:
        """The rows on which the source does not raise."""
        return np.setdiff1d(np.arange(len(self.values)), self.rejected)

    def still(self, rows: int) -> Array:
        """Repeat the base value as a column of so many rows."""
        return np.full(rows, self.base, dtype=self.values.dtype)


def shown_number() -> Shown:
    """Three values by which a column passed through can be told from one that is changed."""
    return Shown(np.array([0.0, 1.0, -2.5]), 0.0, [], number=True)


def shown_categories(fitted: Any, encoding: CategoryEncoding, column: int, given: Sequence[Any]) -> Shown:
    """Make a typed column of the given values, followed by one text per bucket where there are buckets.

    What is in no vocabulary counts as rejected until the encoder has been asked (``suspects``).
    """
    values = [*given, *bucket_texts(encoding.buckets)]
    listed = encoding.categories[column] or ()
    known = [value for value in listed if not is_missing(value)]
    # Where the vocabulary lists a missing value, the encoder may tell None from NaN: show the one that it knows.
    absent = next((value for value in listed if is_missing(value)), math.nan)
    real = [value for value in values if not is_missing(value) and value is not UNKNOWN]
    unknown = _stranger([*known, *real])

    def plain(value: Any) -> Any:
        if value is UNKNOWN:
            return unknown
        return absent if is_missing(value) and not (encoding.tells_none and value is None) else value

    # An encoder fitted on objects looks its numbers up as objects, and a hash is of the text: 1 is not 1.0.
    fitted_on = getattr(fitted, "categories_", [None] * (column + 1))[column]
    as_objects = encoding.buckets > 0 or getattr(fitted_on, "dtype", None) == np.dtype(object)
    wanted = [plain(value) for value in values]
    vocabulary = set(known)
    rejected = {row for row, value in enumerate(wanted) if is_missing(value) or value not in vocabulary}
    return Shown.of(wanted, rejected if listed else (), known or list(listed), as_objects)


def is_missing(value: Any) -> bool:
    """Tell whether a value is None, NaN or pd.NA."""
    return value is None or value is pd.NA or bool(value != value)


def bucket_texts(buckets: int) -> list[str]:
    """One text for each bucket of a hashing encoder, in the order of the buckets."""
    found: dict[int, str] = {}
    for text in map(str, count()):
        if len(found) == buckets:
            break
        found.setdefault(hash_bucket(text, buckets), text)
    return [found[bucket] for bucket in range(buckets)]


def _stranger(known: Sequence[Any]) -> Any:
    """Find a category of the same type as the known ones that is not among them."""
    taken = set(known)
    if known and all(_is_number(value) for value in known):
        return next(number for number in count() if number not in taken)
    return next(text for size in count() if (text := "unknown" + "_" * size) not in taken)


def typed(values: Sequence[Any], as_objects: bool) -> Array:
    """Numbers as int64 or float64 where that loses nothing, booleans as such, everything else as objects."""
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
