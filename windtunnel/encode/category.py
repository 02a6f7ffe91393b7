"""One column of ids: the vocabulary of a raw column, and the values that the source rejects."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.columns import (
    column_kind,
    fractions_among,
    is_whole,
    mixes_texts,
    sample_value,
    show_value,
)
from windtunnel.encode.vocabulary import MISSING_ID, UNKNOWN_ID, Vocabulary
from windtunnel.errors import BadInput, join_some


@dataclass
class CategoryColumn:
    """One column of ``ids``: its raw column, its vocabulary, and the values that the source rejects."""

    column: int
    vocabulary: Vocabulary
    rejects_unknown: bool = False
    rejects_missing: bool = False
    rejects_infinite: bool = False
    rejects_fractions: bool = False
    # Of hashed categories, whether those without a stored hash are all alike to the source. Then a file that cannot
    # hash need not reject unknown texts once the texts of all stored hashes are known.
    hashes_are_complete: bool = False

    @property
    def rejects(self) -> bool:
        """Whether the source rejects some values of the vocabulary's kind."""
        return self.rejects_unknown or self.rejects_missing or self._rejects_some_numbers

    @property
    def files_reject_unknown(self) -> bool:
        """Whether a file that cannot hash rejects unknown values."""
        return self.rejects_unknown and not (self.hashes_are_complete and self.vocabulary.knows_texts)

    @property
    def _rejects_some_numbers(self) -> bool:
        """Whether infinite numbers or fractions are rejected; a vocabulary of texts has neither."""
        return self.vocabulary.kind != "text" and (self.rejects_infinite or self.rejects_fractions)

    def ids_of_values(self, values: list[Any]) -> list[int] | None:
        """The id of each Python value; None if the vocabulary has no plain look-up, or a value may be rejected."""
        if (ids := self.vocabulary.ids_of_values(values)) is None:
            return None
        rejected = (self.rejects_unknown and UNKNOWN_ID in ids) or (self.rejects_missing and MISSING_ID in ids)
        return None if rejected or (self._rejects_some_numbers and not all(map(is_whole, values))) else ids

    def ids(self, values: pd.Series, name: str, *, flat: bool, training: bool) -> NDArray[np.int64]:
        """The id of each value of a column.

        Parameters
        ----------
        values : Series
        name : str
            The name of the column in messages.
        flat : bool
            Whether the rows are a sequence of labels, not a table.
        training : bool
            Whether values that the source rejects are accepted, and texts of hashed categories kept, from then on.

        Raises
        ------
        BadInput
            Values of another kind than the vocabulary, or that the source rejects.
        """
        if self.vocabulary.hashes is not None:
            return self._ids_by_hash(values, name, training)
        ids = self._checked_ids(values, name, flat)
        unknown = (ids == UNKNOWN_ID) & self.rejects_unknown
        missing = (ids == MISSING_ID) & self.rejects_missing
        if training:
            self.rejects_unknown &= not unknown.any()
            self.rejects_missing &= not missing.any()
        elif (unknown | missing).any():
            unseen = sorted({show_value(value) for value in values[unknown]}) + ["missing values"] * bool(missing.any())
            if flat:
                raise BadInput(
                    f"the rows hold labels that the encoder was not fitted on: {join_some(unseen)}. "
                    "Fit it on them too, or drop these rows."
                )
            raise BadInput(
                f"column {name} holds categories that were not there in fitting and are rejected: "
                f"{join_some(unseen)}. Fit the encoder with handle_unknown='ignore' or a value for unknown ones; for a "
                "model that reads categories without an encoder, such as XGBoost, make them missing; or fine-tune on "
                "rows with them first."
            )
        return ids

    def _checked_ids(self, values: pd.Series, name: str, flat: bool) -> NDArray[np.int64]:
        """The ids of values, checked to be of the vocabulary's kind."""
        vocabulary = self.vocabulary
        if not vocabulary.fits(values) or (flat and mixes_texts(values)):
            example = f", such as {vocabulary.values[0]!r}" if vocabulary.values else ""
            expected: tuple[type, ...] = {"text": (str,), "number": (Real,)}.get(vocabulary.kind, (Hashable,))
            raise BadInput(
                f"column {name} holds {sample_value(values, expected)} of dtype {values.dtype}, which is "
                f"{column_kind(values)}; its categories are {vocabulary.kind}{example}. Convert the column to what the "
                "pipeline saw."
            )
        if self.rejects_infinite and values.dtype.kind == "f" and np.isinf(values.to_numpy()).any():
            raise BadInput(
                f"column {name} holds infinite values, which its encoder rejects; drop these rows, or replace the "
                "values."
            )
        if self.rejects_fractions and (fractions := fractions_among(values)):
            raise BadInput(
                f"column {name} holds numbers that are not whole, which its encoder does not take for labels: "
                f"{join_some(map(show_value, fractions))}. Drop these rows, or round the numbers."
            )
        return vocabulary.ids(values)

    def _ids_by_hash(self, values: pd.Series, name: str, training: bool) -> NDArray[np.int64]:
        """The ids of values that the source identifies by the hash of their text."""
        try:
            ids = self.vocabulary.ids(values)
        except TypeError as error:
            raise BadInput(
                f"column {name} of dtype {values.dtype}: CatBoost identifies categories by their text, and {error}; "
                "convert the column to text or whole numbers."
            ) from error
        missing = (ids == MISSING_ID) & self.rejects_missing
        if training:
            self.rejects_missing &= not missing.any()
            self.vocabulary = self.vocabulary.with_texts_of(values, ids)
        elif missing.any():
            raise BadInput(
                f"column {name} holds missing values, which CatBoost rejects among categories; give them a text of "
                "their own, as in fitting."
            )
        return ids
