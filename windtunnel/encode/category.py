"""One column of ids: the vocabulary that a raw column is read by, and which of its values the source rejects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.columns import column_kind, fractions_among, is_whole, listed, mixes, sample_value, shown
from windtunnel.encode.vocabulary import MISSING_ID, UNKNOWN_ID, Vocabulary
from windtunnel.errors import BadInput


@dataclass
class CategoryColumn:
    """One column of ``ids``: where it is read from, its vocabulary, and which values the source rejects."""

    column: int
    vocabulary: Vocabulary
    rejects_unknown: bool = False
    rejects_missing: bool = False
    rejects_infinite: bool = False
    rejects_fractions: bool = False

    @property
    def rejects(self) -> bool:
        """Whether the source rejects some values of the vocabulary's kind; no number is among texts."""
        numbers = self.vocabulary.kind != "text" and (self.rejects_infinite or self.rejects_fractions)
        return self.rejects_unknown or self.rejects_missing or numbers

    def ids_of_values(self, values: list[Any]) -> list[int] | None:
        """The id of each Python value; None where the vocabulary gives none, or some may be rejected."""
        if (ids := self.vocabulary.ids_of_values(values)) is None:
            return None
        odd = self.vocabulary.kind == "number" and (self.rejects_infinite or self.rejects_fractions)
        rejected = (self.rejects_unknown and UNKNOWN_ID in ids) or (self.rejects_missing and MISSING_ID in ids)
        return None if rejected or (odd and not all(map(is_whole, values))) else ids

    def ids(self, values: pd.Series, name: str, *, flat: bool, training: bool) -> NDArray[np.int64]:
        """The id of each value of a column.

        Parameters
        ----------
        values : Series
        name : str
            How messages call the column.
        flat : bool
            Whether the rows are a sequence of labels, and no table.
        training : bool
            Whether what the source rejects is let through, and no longer rejected from now on.

        Raises
        ------
        BadInput
            Values of another kind than the vocabulary, or that the source rejects.
        """
        if self.vocabulary.hashes is not None:
            return self._hashed(values, name, training)
        ids = self._told_apart(values, name, flat)
        unknown = (ids == UNKNOWN_ID) & self.rejects_unknown
        missing = (ids == MISSING_ID) & self.rejects_missing
        if training:
            self.rejects_unknown &= not unknown.any()
            self.rejects_missing &= not missing.any()
        elif (unknown | missing).any():
            unseen = sorted({shown(value) for value in values[unknown]}) + ["missing values"] * bool(missing.any())
            if flat:
                raise BadInput(
                    f"the rows hold labels that the encoder was not fitted on: {listed(unseen)}. Fit it on them too, "
                    "or drop these rows."
                )
            raise BadInput(
                f"column {name} holds categories that were not there in fitting and are rejected: "
                f"{listed(unseen)}. Fit the encoder with handle_unknown='ignore' or a value for unknown ones; for a "
                "model that reads categories without an encoder, such as XGBoost, make them missing; or fine-tune on "
                "rows with them first."
            )
        return ids

    def _told_apart(self, values: pd.Series, name: str, flat: bool) -> NDArray[np.int64]:
        """The ids of values that are all of the vocabulary's kind."""
        vocabulary = self.vocabulary
        if not vocabulary.fits(values) or (flat and mixes(values)):
            known = f", such as {vocabulary.values[0]!r}" if vocabulary.values else ""
            raise BadInput(
                f"column {name} holds {sample_value(values)} of dtype {values.dtype}, which is {column_kind(values)}; "
                f"its categories are {vocabulary.kind}{known}. Convert the column to what the pipeline saw."
            )
        if self.rejects_infinite and values.dtype.kind == "f" and np.isinf(values.to_numpy()).any():
            raise BadInput(
                f"column {name} holds infinite values, which its encoder rejects; drop these rows, or replace the "
                "values."
            )
        if self.rejects_fractions and (fractions := fractions_among(values)):
            raise BadInput(
                f"column {name} holds numbers that are not whole, which its encoder does not take for labels: "
                f"{listed([*map(shown, fractions)])}. Drop these rows, or round the numbers."
            )
        return vocabulary.ids(values)

    def _hashed(self, values: pd.Series, name: str, training: bool) -> NDArray[np.int64]:
        """The ids of values that are told by the hash of their text."""
        try:
            ids = self.vocabulary.ids(values)
        except TypeError as error:
            raise BadInput(
                f"column {name} of dtype {values.dtype} holds categories that are told by their text, and {error}, as "
                "CatBoost has it; convert the column to text or whole numbers."
            ) from error
        missing = (ids == MISSING_ID) & self.rejects_missing
        if training:
            self.rejects_missing &= not missing.any()
        elif missing.any():
            raise BadInput(
                f"column {name} holds missing values, which CatBoost rejects among categories; give them a text of "
                "their own, as in fitting."
            )
        return ids
